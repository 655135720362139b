"""Parts of the reference, each made from the table or the type that the program itself goes by."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import Any

from linkgauge.doctor import check as doctor
from linkgauge.errors import Exit
from linkgauge.exchange.bar_files import read_bars
from linkgauge.expect.rules import RULES as LIMITS
from linkgauge.findings.nominal import nominal
from linkgauge.findings.rules import RULES as FINDING_RULES
from linkgauge.judge.bars import judge_bars
from linkgauge.model.bar import PORT
from linkgauge.model.case import DEFAULTS, DIMENSIONS, STATUSES
from linkgauge.model.patterns import PATTERN_ALIASES, PATTERNS, PatternTraits
from linkgauge.model.quantity import format_bytes, percent
from linkgauge.model.shape import parsed_tables
from linkgauge.model.stop_rule import STOP_FIELDS, StopRule
from linkgauge.model.transports import TRANSPORT_ALIASES, TRANSPORTS
from linkgauge.plan import builtin, plan_file
from linkgauge.stats.summary import summary_schema
from linkgauge.store import schema
from linkgauge.system import catalog, shipped
from linkgauge.system.draw import svg
from linkgauge.system.model import Accepted, System

from . import commands, finding_texts, outputs, reading
from .markdown import code, facts, plain, table

# --- cases -----------------------------------------------------------------------------------------------------------


def dimensions() -> str:
    """Each dimension by its group: option, plan key and column, meaning, values and default."""
    defaults = DEFAULTS | {name: getattr(StopRule(), of) for name, of in STOP_FIELDS.items()}
    parts = []
    for group in dict.fromkeys(one.group for one in DIMENSIONS.values()):
        rows = [
            (f"`{name}`", f"`{one.flag}`", plain(one.help), plain(one.expected), _default(defaults.get(name)))
            for name, one in DIMENSIONS.items()
            if one.group == group
        ]
        heading = ("plan key and column", "option", "meaning", "values", "default")
        parts.append(f"## {group}\n\n{table(heading, rows)}")
    return "\n".join(parts)


def _default(value: object) -> str:
    if value is None or value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


_FORMULAS: dict[str, Callable[[int, int, int], Fraction]] = {
    "m": lambda m, n, w: Fraction(m),
    "2 m": lambda m, n, w: Fraction(2 * m),
    "W m": lambda m, n, w: Fraction(w * m),
    "2 W m": lambda m, n, w: Fraction(2 * w * m),
    "n m": lambda m, n, w: Fraction(n * m),
    "2 n m": lambda m, n, w: Fraction(2 * n * m),
    "n/2 W m": lambda m, n, w: Fraction(w * m * (n // 2)),
    "n W m": lambda m, n, w: Fraction(n * w * m),
    "m / n": lambda m, n, w: Fraction(m, n),
    "(n - 1) m": lambda m, n, w: Fraction((n - 1) * m),
    "2 (n - 1) m": lambda m, n, w: Fraction(2 * (n - 1) * m),
    "n (n - 1) m": lambda m, n, w: Fraction(n * (n - 1) * m),
    "(n - 1) / n m": lambda m, n, w: Fraction((n - 1) * m, n),
}
_FACTORS: dict[str, Callable[[int], Fraction]] = {
    "1": lambda n: Fraction(1),
    "(n - 1) / n": lambda n: Fraction(n - 1, n),
    "n / (n - 1)": lambda n: Fraction(n, n - 1),
    "2 (n - 1) / n": lambda n: Fraction(2 * (n - 1), n),
}
_POINTS = ((96, 4, 10), (240, 6, 11), (840, 8, 13))


def formula(amount: Callable[..., Fraction]) -> str:
    """The formula in m, n and W that an amount of a pattern follows; ValueError where it follows none that is known."""
    for text, known in _FORMULAS.items():
        if all(amount(*point) == known(*point) for point in _POINTS):
            return text
    raise ValueError("an amount of a pattern follows no formula of docs/_site/reference.py: add it there")


def _factor(factor: Callable[[int], Fraction] | None) -> str:
    if factor is None:
        return "-"
    return next(text for text, known in _FACTORS.items() if all(factor(n) == known(n) for n in (2, 3, 5, 8)))


def patterns() -> str:
    """Each pattern with what its size means and what its figures are."""
    aliases = {name: [alias for alias, of in PATTERN_ALIASES.items() if of == name] for name in PATTERNS}
    moved = [
        (
            f"`{name}`" + (f" (also {code(aliases[name])})" if aliases[name] else ""),
            plain(one.what), one.size_means, _timekeeper(one),
        )
        for name, one in PATTERNS.items()
    ]  # fmt: skip
    figures = [
        (f"`{name}`", *_amounts(one), _factor(one.bus_factor), _factor(one.algorithm_factor))
        for name, one in PATTERNS.items()
        if not one.latency_only
    ]
    heading = ("pattern", "goodput x t", "bytes that must arrive", "busbw / goodput", "algbw / goodput")
    return (
        table(("pattern", "what it does", "size m is", "time t is"), moved)
        + "\n## Formulas\n\nm: size; n: ranks; W: window; t: time. Patterns of latency alone have no goodput.\n\n"
        + table(heading, figures)
    )


_TIMEKEEPERS = {
    "starter": "the first rank's",
    "sender": "the sender's, until all has arrived",
    "root": "the root's, until all has arrived",
    "lanes": "each flow's own",
    "slowest": "the slowest rank's",
}


def _timekeeper(one: PatternTraits) -> str:
    return _TIMEKEEPERS[one.timekeeper] + (", there and back" if one.half_round_trip else "")


def _amounts(one: PatternTraits) -> tuple[str, str]:
    if one.distributed and one.windowed:
        return "what the rank with most neighbors sends", "what all ranks send"
    return formula(one.payload_bytes), formula(one.bytes_total)


def transports() -> str:
    """Each transport, whose library it uses and what brings that."""
    rows = []
    for name, one in TRANSPORTS.items():
        aliases = [alias for alias, of in TRANSPORT_ALIASES.items() if of == name]
        brought = _brought(name)
        rows.append((
            f"`{name}`" + (f" (also {code(aliases)})" if aliases else ""), plain(one.what), brought,
            "imported" if one.measured_by else "by name" if one.only_by_name else "by default",
        ))  # fmt: skip
    return table(("transport", "what moves the bytes", "what brings it", "measured"), rows)


def _brought(name: str) -> str:
    one = TRANSPORTS[name]
    if one.measured_by:
        return f"logs of {one.measured_by}"
    if one.nic_library is not None:
        _, file, brings, *_ = dataclasses.astuple(one.nic_library)
        return f"{one.nic_library.name} (`{file}`): {plain(brings)}"
    if one.by_mpi:
        return "an MPI library; the package brings MPICH"
    if one.library:
        return "`libnccl.so.2` (`pip install nvidia-nccl-cu13`), RCCL of ROCm, or `pip install oneccl` for host devices"
    return "the GPU's driver; on host devices nothing"


# --- judging ---------------------------------------------------------------------------------------------------------


def finding_rules() -> str:
    """Each rule and each of its findings: what is looked for, what is said, the fix."""
    known = finding_texts.texts()
    names = dict.fromkeys(name for rule in FINDING_RULES for name in rule.tells)
    parts = ["Go to " + ", ".join(f"[{name}](#{name})" for name in names) + ".\n"]
    for rule in FINDING_RULES:
        parts.append(f"## {rule.name}\n\nLooks for {plain(rule.looks_for)}.\n")
        for name in rule.tells:
            one = known.get(name, finding_texts.Texts())
            if name != rule.name or len(rule.tells) > 1:
                parts.append(f"### `{name}`\n")
            lines = [("severity", code(one.severities) or "by the evidence")]
            lines += [("says", plain(text)) for text in one.sentences] + [("fix", plain(text)) for text in one.fixes]
            parts.append(facts(lines))
    return "\n".join(parts)


def doctor_checks() -> str:
    """Each check of the doctor: what it checks, what it looks at, and whether each run begins with it."""
    doctor.load()
    rows = [(f"`{one.name}`", plain(one.what), plain((one.look.__doc__ or "").strip()), "yes" if one.quick else "no")
            for one in doctor.CHECKS.values()]  # fmt: skip
    return table(("check", "passes if", "how", "before each run"), rows)


def limit_rules() -> str:
    """Each rule of a limit, in a section of its own."""
    parts = []
    for name, one in LIMITS.items():
        lines = [("kind", one.kind), ("patterns", one.patterns), ("formula", one.formula), ("source", one.source),
                 ("holds", one.limits)]  # fmt: skip
        parts.append(f"## {name}\n\n" + facts((key, plain(value)) for key, value in lines))
    return "\n".join(parts)


# --- plans, runs -----------------------------------------------------------------------------------------------------


def plans() -> str:
    """The built-in plans."""
    rows = [(f"`{name}`", plain(builtin.builtin_plan(name).description)) for name in builtin.names()]
    return table(("plan", "what it measures"), rows)


def plan_keys() -> str:
    """The keys of each table of a plan file; those of a case that are dimensions are on their own page."""
    parts = []
    for title, keys in (("top level", plan_file.PLAN), ("[[case]]", plan_file.CASE), ("[[job]]", plan_file.JOB),
                        ("[[launch]]", plan_file.LAUNCH)):  # fmt: skip
        own = [key for key in keys if title != "[[case]]" or key not in DIMENSIONS]
        also = ", and every [dimension](dimensions.md)" if title == "[[case]]" else ""
        parts.append((f"`{title}`" if title.startswith("[") else title, code(own) + also))
    return table(("table", "keys"), parts)


def run_tables() -> str:
    """The columns of each table of a run folder, and of the table of results that is made from them."""
    known = parsed_tables((Path(__file__).parent / "columns.toml").read_bytes(), "columns.toml")
    identity, parts = known.pop("identity"), []
    cases = schema.schema("cases").names
    for name, columns in {**{name: schema.schema(name) for name in schema.TABLES}, "results": summary_schema()}.items():
        meanings = known.pop(name)
        own = [field for field in columns if name != "results" or field.name not in cases or field.name in meanings]
        rows = []
        for field in own:
            dimension = DIMENSIONS.get(field.name)
            meaning = meanings.pop(field.name, None) or (plain(dimension.help) if dimension else identity[field.name])
            rows.append((f"`{field.name}`", str(field.type).split("<")[0], meaning))
        if meanings:
            raise ValueError(f"docs/_site/columns.toml: {name} has no column {', '.join(meanings)}")
        parts.append(f"## {name}\n\n" + table(("column", "type", "meaning"), rows))
    return "\n".join(parts)


def questions() -> str:
    """How far each reader goes to each answer, as it was and as it is; docs/results/readers.md says what is counted."""
    figures = ("clicks_before", "words_before", "clicks", "words")
    rows = [
        (row["reader"], row["question"], *(row[name] or "not found" for name in figures)) for row in reading.questions()
    ]
    heading = ("reader", "question", "clicks before", "words before", "clicks", "words")
    return table(heading, rows)


def statuses() -> str:
    """The names of all statuses of a case."""
    return code(STATUSES)


def exit_statuses() -> str:
    """The names and numbers of all exit statuses."""
    return ", ".join(f"{one.value} (`{one.name}`)" for one in Exit)


# --- systems ---------------------------------------------------------------------------------------------------------


def systems() -> str:
    """Each described system: its picture, links, limits and accepted shares, and where its figures come from."""
    parts = []
    for name in shipped.names():
        system = catalog.load(name)
        sources = "".join(f"- {plain(text)}\n" for text in _sources(system))
        picture = f'<img class="picture" src="../_static/systems/{name}.svg" alt="{escape(system.title)}">\n'
        about = "\n".join(filter(None, (_links(system), _limits(system), _shares(system))))
        parts.append(f"## {name}\n\n{plain(system.title)}\n\n{picture}\n{about}\nSources of its figures:\n\n{sources}")
    return "\n".join(parts)


def _links(system: System) -> str:
    """How many links of which kind and rate there are, and between what."""
    found: Counter[tuple[str, ...]] = Counter()
    for link in system.links:
        ends = sorted({system.kinds[link.a], system.kinds[link.b]})
        rate = "unknown" if link.data_rate is None else f"{link.data_rate.value / 1e9:.4g} GB/s"
        found[f"{link.kind} {link.version or ''}".strip(), " to ".join(ends), rate] += link.count
    rows = [(str(count), kind, ends, rate) for (kind, ends, rate), count in found.items()]
    return table(("links", "kind", "between", "data rate of one, one way"), rows)


def _limits(system: System) -> str:
    """What the links allow one pair, one host link and an allreduce of all devices."""
    count, rows = len(system.devices), []
    for pattern, transport, ranks in _SHOWN:
        number = ranks or count
        found = nominal(system, transport, pattern, number, 8 << 30) if number <= count else None
        if found is None or (not ranks and count < 2):
            continue
        factor = float(PATTERNS[pattern].bus_factor(number)) if not ranks else 1.0
        what = pattern.replace("_", " ") + ("" if ranks else f" of {count}, busbw")
        rows.append((what, f"{found[1] * factor / 1e9:.3g} GB/s", found[2]))
    return table(("limit of", "rate", "by"), rows) if rows else ""


_SHOWN = (("unidirectional", "copy_engine", 2), ("host_to_device", "copy_engine", 1), ("allreduce", "ccl", 0))


def _shares(system: System) -> str:
    """The accepted shares, a row a class: the share at its largest size, which `check` requires 95 % of."""
    classes: dict[tuple[object, ...], list[Accepted]] = {}
    for one in system.accepted:
        key = (one.kind, one.pattern, one.transport, one.ranks, one.nodes, one.algorithm, one.origin)
        classes.setdefault(key, []).append(one)
    rows = []
    for (kind, pattern, transport, ranks, nodes, algorithm, origin), some in classes.items():
        sizes = sorted(some, key=lambda one: one.size.value)
        least, largest = (format_bytes(int(one.size.value)) for one in (sizes[0], sizes[-1]))
        share = percent(sizes[-1].share.value, 1)
        place = f"{nodes} nodes of {ranks}" if nodes else ranks or ""
        class_of = (kind, pattern or "any", transport or "any", place, algorithm or "")
        rows.append((*class_of, least, f"{share} at {largest}", origin))
    heading = ("kind", "pattern", "transport", "ranks", "algorithm", "from", "share of the limit", "origin")
    return table(heading, rows) if rows else "No share is accepted here yet.\n"


def bars() -> str:
    """Every bar of docs/results/data/bars.csv, and whether it fits, as `linkgauge bars` says it."""
    rows = []
    for one in judge_bars(read_bars(outputs.DOCS / "results" / "data" / "bars.csv")):
        unit = ("Gb/s", 8e-9) if one.bar.quantity == PORT else ("GB/s", 1e-9)
        value, limit, usual, broken = (
            "" if rate is None else f"{rate * unit[1]:.3g}"
            for rate in (one.bar.value, one.limit, one.usual, one.broken)
        )
        what = "NIC port" if one.bar.quantity == PORT else one.bar.pattern.replace("_", " ")
        what += f", {one.bar.nodes} nodes" if one.bar.nodes > 1 else ""
        rows.append((plain(one.bar.source), one.bar.system, what, f"{value} {unit[0]}", limit, usual, broken, one.fit))
    heading = ("whose", "machine", "of", "bar", "limit", "healthy", "dead link", "verdict")
    return table(heading, rows)


def pictures() -> dict[str, str]:
    """The drawing of each described system, as SVG, by name."""
    return {name: svg(catalog.load(name)) for name in shipped.names()}


def _sources(system: System) -> list[str]:
    """Every source that a figure of the system names, each once."""
    found: dict[str, None] = {}

    def look(value: Any) -> None:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            if (source := getattr(value, "source", "")) and isinstance(source, str):
                found.setdefault(source)
            for field in dataclasses.fields(value):
                look(getattr(value, field.name))
        elif isinstance(value, (list, tuple, dict)):
            for one in value.values() if isinstance(value, dict) else value:
                look(one)

    look(system)
    return list(found)


PARTS: dict[str, Callable[[], str]] = {
    name: functools.cache(part)
    for name, part in {
        "commands": commands.page, "dimensions": dimensions, "patterns": patterns, "transports": transports,
        "finding-rules": finding_rules, "doctor-checks": doctor_checks, "limit-rules": limit_rules, "plans": plans,
        "plan-keys": plan_keys,
        "run-tables": run_tables, "questions": questions,
        "statuses": statuses, "exit-statuses": exit_statuses, "systems": systems, "bars": bars,
    }.items()
}  # fmt: skip
"""What `{made} NAME` stands for, by name."""
