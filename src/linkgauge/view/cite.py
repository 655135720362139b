"""What to cite for a run: the program, the papers whose figures it repeats, and those whose formulas bound it."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from linkgauge.built import Build, build_of
from linkgauge.expect.rules import RULES
from linkgauge.model.grouped import grouped
from linkgauge.model.shape import checked, mapping, read_toml
from linkgauge.plan.papers import REFERENCE, Reference, paper_plans, papers, reference_of
from linkgauge.store.parts import read_parts
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results

if TYPE_CHECKING:
    from linkgauge.store.run import Run

TITLE = "Linkgauge: measurement of data paths between GPUs and host memory"
AUTHORS = ("The Linkgauge authors",)
_FILE = Path(__file__).parent / "references.toml"
# How a rule's source names the papers of plans/: by their first authors.
_NAMED = {"sc24": "De Sensi et al.", "infinity-fabric": "Schieffer et al.", "tartan": "Li et al."}


@dataclasses.dataclass(frozen=True)
class Cited:
    """A reference, and for what the run used it."""

    reference: Reference
    used: str


@functools.cache
def _formulas() -> dict[str, Reference]:
    """Return the papers of rules by the words that name them in a rule's source."""
    stored = checked(read_toml(_FILE, "references"), mapping(REFERENCE), str(_FILE))
    found = {entry["named"]: reference_of(key, entry) for key, entry in stored.items()}
    return {**{_NAMED[one.name]: one.reference for one in papers() if one.name in _NAMED}, **found}


def program(build: Build, year: int) -> Reference:
    """Return the program as a bibliography has it."""
    commit = f", commit {build.commit}" if build.commit else ""
    return Reference("linkgauge", "misc", TITLE, AUTHORS, f"Version {build.version}{commit}", year)


def citations(run: Run) -> list[Cited]:
    """Return the program, then the papers whose figures a run repeats, then those of the rules that bound its cases."""
    year = str(run.info.get("start") or "")[:4]
    build = build_of(run.info)
    found = [Cited(program(build, int(year) if year.isdecimal() else 0), "the program")]
    plan = paper_plans().get(str((run.info.get("requested") or {}).get("plan") or ""))
    names = list(read_parts(run.path) or ()) or ([plan.name] if plan else [])
    for paper in papers():
        own = [name for name in names if name.partition(":")[0] == paper.name]
        if own:
            found.append(Cited(paper.reference, f"figures {', '.join(own)}"))
    limits = Limits(run)
    rules = dict.fromkeys(line.rule for row in Results(run).rows for line in limits.of(row))
    used = grouped((reference.key, rule) for rule in rules if rule in RULES
                   for words, reference in _formulas().items() if words in RULES[rule].source)  # fmt: skip
    known = {one.reference.key: place for place, one in enumerate(found)}
    for reference in _formulas().values():
        if reference.key not in used:
            continue
        why = f"limits {', '.join(used[reference.key])}"
        if reference.key in known:
            place = known[reference.key]
            found[place] = dataclasses.replace(found[place], used=f"{found[place].used}; {why}")
        else:
            found.append(Cited(reference, why))
    return found


def as_text(one: Reference) -> str:
    """Return a reference as a line of a bibliography."""
    names = [" ".join(reversed(name.split(", ", 1))) for name in one.authors]
    authors = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    parts = ((", vol. ", one.volume), (", no. ", one.number), (", pp. ", one.pages), (", ", one.year),
             (". doi:", one.doi))  # fmt: skip
    return f"{authors}. {one.title}. {one.where}{''.join(f'{before}{value}' for before, value in parts if value)}."


def as_bibtex(one: Reference) -> str:
    """Return a reference as an entry of BibTeX."""
    where = {"article": "journal", "inproceedings": "booktitle", "misc": "howpublished"}[one.kind]
    # An author without a given name is a group, and braces keep it whole.
    authors = " and ".join(name if ", " in name else f"{{{name}}}" for name in one.authors)
    fields = {
        "author": authors, "title": f"{{{one.title}}}", where: one.where, "year": one.year, "volume": one.volume,
        "number": one.number, "pages": one.pages.replace("-", "--"), "publisher": one.publisher, "doi": one.doi,
    }  # fmt: skip
    lines = [f"  {name} = {{{value}}}" for name, value in fields.items() if value]
    return f"@{one.kind}{{{one.key},\n" + ",\n".join(lines) + "\n}"
