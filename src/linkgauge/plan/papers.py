"""The papers' figures: each is a built-in plan, and says what its pictures show, which statistic the paper
uses, and the values that the paper states.

A paper is one file in linkgauge/plans/; docs/reference/plans.md (The papers' plans) has its keys.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linkgauge.model.quantity import parse_size
from linkgauge.model.shape import (
    as_it_is,
    checked,
    each,
    flag,
    frozen,
    mapping,
    number,
    one_of,
    one_or_more,
    only,
    parsed_by,
    read_toml,
    table,
    text,
    whole,
)
from linkgauge.plan.model import Plan
from linkgauge.plan.plan_file import PLAN, plan_of_tables

FOLDER = Path(__file__).resolve().parent.parent / "plans"
PAPERS = ("sc24", "infinity-fabric", "openpower", "tartan", "leonardo")


FORMS = ("curve", "bars", "boxes", "matrix", "ratio", "kinds")
PLACES = ("size", "ranks", "devices", "target", "route", "link")
QUANTITIES = ("goodput", "busbw", "latency", "hops", "speedup", "normalized")
UNITS = ("GB/s", "Gb/s", "us")
ENDS = ("first", "last")
HOW = ("median", "each", "highest", "lowest", "range")


@dataclasses.dataclass(frozen=True)
class Picture:
    """What one picture of a figure shows; the table, the chart and the CSV file are made from it.

    `x` is one of PLACES. `panel` and `series` name dimensions of a case; a dimension that varies and stands in neither
    tells series apart if it says how data is moved, else panels. So no case is left out silently. `patterns`,
    `transports`: only these cases. `sizes`, `ranks`: only these, or the first or last one of each pattern. `most`: no
    larger size. `paths`: only these devices, or ways from one to another by a third, if the run has all of them.
    `peak`: of several cases at one place the best. `over`: dimensions of the case by whose time an
    application's times on as many ranks are divided (`normalized`), or which is divided by them (`speedup`). `counts`
    is how many bytes the paper counts for one byte of ours. `scale` is of the vertical axis.
    """

    name: str
    form: str = "curve"
    x: str = "size"
    y: str = "goodput"
    unit: str = ""
    scale: str = "log"
    covers: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    sizes: str | tuple[int, ...] = ()
    ranks: str = ""
    most: int | None = None
    paths: tuple[tuple[int, ...], ...] = ()
    peak: bool = False
    over: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    panel: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    counts: float = 1.0


@dataclasses.dataclass(frozen=True)
class PublishedCurve:
    """Values that a paper states: points of one picture, in its unit. `read` says where in the paper they stand.

    `where` names dimensions of the cases beside which they are drawn. `level`: one value for every place.
    """

    picture: str
    series: str
    read: str
    points: tuple[tuple[float | str, float], ...] = ()
    level: float | None = None
    where: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a paper states of one picture, as a ratio with its tolerance: an order, a factor or an asymptote.

    The values of `of` (dimensions of the cases, or words in `panel` or `series`) at `at` are divided by those of `over`
    at `over_at`, or by the `published` series; with none of these they stand for themselves. Places are `first`,
    `last`, or a list. `how` says which of the ratios must lie from `least` to `most`: their median, each, the highest
    or the lowest; `range` is the highest value over the lowest. `on`: it holds for devices whose name has this alone.
    """

    says: str
    read: str
    picture: str
    of: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    over: Mapping[str, Any] | None = None
    at: tuple[str, ...] = ()
    over_at: tuple[str, ...] = ()
    published: str = ""
    how: str = "median"
    least: float = 0.0
    most: float = math.inf
    on: str = ""


@dataclasses.dataclass(frozen=True)
class Reference:
    """A paper as a bibliography has it. `kind` is BibTeX's; empty texts: the paper has none of it."""

    key: str
    kind: str
    title: str
    authors: tuple[str, ...]  # Family, Given
    where: str
    year: int
    pages: str = ""
    volume: str = ""
    number: str = ""
    publisher: str = ""
    doi: str = ""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A paper's figures or tables that one plan repeats.

    `covers` are their numbers in the paper. `pictures` say what is drawn, `published` what the paper states, and
    `curves` names a built-in file of published curves. `estimator` is how the paper sums up a case's samples (mean,
    median, best), `unit` the one in which it prints rates. `ranks` is `each` where it is measured on 2, 3, ... devices,
    `via` where copies go by way of each device. `nodes` is how many a faithful repetition needs. `against` names the
    launch without settings where the paper tells what settings give: the others' times are held against its.
    """

    name: str  # PAPER:FIGURE
    title: str
    file: Path
    tables: Mapping[str, Any] = dataclasses.field(repr=False)  # the plan's
    covers: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    published: tuple[PublishedCurve, ...] = ()
    claims: tuple[Claim, ...] = ()
    curves: str = ""
    estimator: str = ""
    unit: str = ""
    numbers: tuple[str, ...] = ()
    ranks: str = ""
    via: str = ""
    nodes: int = 1
    against: str = ""

    @property
    def paper(self) -> str:
        """The paper's short name."""
        return self.name.partition(":")[0]

    @property
    def plan(self) -> str:
        """The plan's name."""
        return self.name.replace(":", "-")

    def load(self) -> Plan:
        """Return the plan."""
        return plan_of_tables(self.tables, str(self.file), self.plan, f"figure.{self.name.partition(':')[2]}")


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Figures and tables of a paper that no plan repeats, and why."""

    paper: str
    covers: tuple[str, ...]
    why: str


_OWN = {
    "covers": each(text), "estimator": text, "unit": one_of(UNITS), "numbers": each(text), "ranks": text,
    "via": text, "nodes": whole(1), "against": text, "curves": text,
}  # fmt: skip


def _sizes(value: Any, at: str) -> str | tuple[int, ...]:
    return str(value) if value in ENDS else tuple(each(_size)(value, at))


def _place(value: Any, at: str) -> float | str:
    """Return a place or a value of a point: a number, or a place in words."""
    return value if isinstance(value, str) else number()(value, at)


_size = parsed_by(parse_size)
_picture = only(
    {"name": text, "form": one_of(FORMS), "x": one_of(PLACES), "y": one_of(QUANTITIES), "unit": one_of(UNITS),
     "scale": one_of(("log", "linear")), "covers": each(text), "patterns": each(text), "transports": each(text),
     "sizes": _sizes, "ranks": one_of(ENDS), "most": _size, "panel": each(text), "series": each(text),
     "counts": number(0.0), "paths": each(each(whole(), least=1)), "peak": flag, "over": mapping(as_it_is)},
    ("name",),
)  # fmt: skip
_published = only(
    {"picture": one_or_more(text), "series": text, "read": text, "points": each(each(_place, 2, 2)),
     "level": number(0.0), "where": mapping(as_it_is)},
    ("picture", "series", "read"),
)  # fmt: skip
_places = one_or_more(text)
_claim = only(
    {"says": text, "read": text, "picture": text, "of": mapping(as_it_is), "over": mapping(as_it_is), "at": _places,
     "over_at": _places, "published": text, "how": one_of(HOW), "least": number(0.0), "most": number(0.0), "on": text},
    ("says", "read", "picture"),
)  # fmt: skip
REFERENCE = only(
    {"kind": one_of(("article", "inproceedings", "misc")), "title": text, "authors": each(text, least=1),
     "where": text, "year": whole(1900), "pages": text, "volume": text, "number": text, "publisher": text,
     "doi": text, "named": text},
    ("kind", "title", "authors", "where", "year"),
)  # fmt: skip
"""An entry of a bibliography; `named`: how other texts name it."""
_figure = only(
    {**_OWN, **dict.fromkeys(PLAN, as_it_is), "case": each(table({}, as_it_is)), "picture": each(_picture),
     "published": each(_published), "claim": each(_claim)}
)  # fmt: skip
_paper = only(
    {"title": text, "estimator": text, "unit": text, "figure": mapping(as_it_is), "every_case": table({}, as_it_is),
     "reference": REFERENCE, "left_out": each(only({"covers": each(text), "why": text}, ("covers", "why")))},
    ("title", "reference", "figure", "left_out"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper: its short name, its entry in a bibliography, its figures, and what no plan repeats."""

    name: str
    reference: Reference
    figures: tuple[Figure, ...]
    left_out: tuple[LeftOut, ...]


def read_paper(file: Path) -> Paper:
    """Return what a paper's file says of its figures; UsageError naming the table with a key that is not known."""
    paper, document = file.stem, checked(read_toml(file, "a paper's TOML"), _paper, str(file))
    found = []
    for key, said in document["figure"].items():
        entry = checked(said, _figure, f"{file}: [figure.{key}]")
        tables = {name: value for name, value in entry.items() if name in PLAN}
        tables["case"] = [{**document.get("every_case", {}), **case} for case in entry.get("case", [])]
        own = {name: document[name] for name in ("estimator", "unit") if name in document}
        own |= {name: value for name, value in frozen(entry).items() if name in _OWN}
        pictures = tuple(Picture(**frozen(one)) for one in entry.get("picture", ()))
        curves = tuple(
            PublishedCurve(**{**frozen(one), "picture": name})
            for one in entry.get("published", ())
            for name in one["picture"]
        )
        claims = tuple(Claim(**frozen(one)) for one in entry.get("claim", ()))
        name = f"{paper}:{key}"
        found.append(
            Figure(name, document["title"], file, tables, pictures=pictures, published=curves, claims=claims, **own)
        )
    left = tuple(LeftOut(paper, tuple(entry["covers"]), entry["why"]) for entry in document["left_out"])
    return Paper(paper, reference_of(paper, document["reference"]), tuple(found), left)


def reference_of(key: str, entry: Mapping[str, Any]) -> Reference:
    """Return an entry of REFERENCE's shape under its key."""
    return Reference(key, **{name: value for name, value in frozen(entry).items() if name != "named"})


@functools.cache
def papers() -> tuple[Paper, ...]:
    """Return the papers, in their order."""
    return tuple(read_paper(FOLDER / f"{name}.toml") for name in PAPERS)


def paper_plans() -> dict[str, Figure]:
    """Return the figures, and the plans beside them, by the plan's name, in the order of the papers."""
    return {figure.plan: figure for paper in papers() for figure in paper.figures}


def figures() -> list[Figure]:
    """Return all figures in the order of the papers."""
    return [figure for figure in paper_plans().values() if figure.covers]


def left_out() -> list[LeftOut]:
    """Return what no plan repeats, in the order of the papers."""
    return [one for paper in papers() for one in paper.left_out]
