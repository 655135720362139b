"""Plan files: TOML with `[[case]]` and `[[launch]]` tables, checked against the table of dimensions.

A plan from a stranger must do no harm, so a file names MPI libraries only as `linkgauge list mpi` shows them, sets only
variables of known kinds (plan/tuning_variables.py), and holds no launcher arguments: paths, arguments and other
variables are the command line's. Nothing here raises anything but `UsageError`, each naming file, table and key.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model import quantity
from linkgauge.model.background import MPI, PACE, PACE_FIELDS, REST, Pace, WrittenLoads, load_text
from linkgauge.model.case import DIMENSIONS, LOAD_ROWS, loads_written
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import (
    MisshapenError,
    Shape,
    checked,
    each,
    flag,
    label,
    mapping,
    number,
    one_of,
    one_or_more,
    only,
    parsed_by,
    parsed_toml,
    read_toml,
    tables,
    text,
    whole,
)
from linkgauge.model.traits import having
from linkgauge.model.values import Value
from linkgauge.plan.curves import FULL, Until
from linkgauge.plan.jobs import named_jobs
from linkgauge.plan.launches import MOST_REPEATS
from linkgauge.plan.model import (
    BINDINGS,
    CHOICES,
    KINDS,
    PAIRS,
    THREAD_LEVELS,
    CaseTable,
    LaunchTable,
    Plan,
    side_by_side,
)
from linkgauge.plan.tuning_variables import refuse_units, safe_variable

# --- shapes ----------------------------------------------------------------------------------------------------------


def _size(value: Any, at: str) -> tuple[Value, ...]:
    return (FULL,) if value == "full" else DIMENSIONS["size"].from_toml(value, at)


def _devices(value: Any, at: str) -> tuple[tuple[int, ...], ...]:
    """Ordinals [0, 1], or subsets of them [[0, 1], [0, 2]]."""
    subsets = value if isinstance(value, list) and any(isinstance(item, list) for item in value) else [value]
    try:
        return tuple(tuple(subset) for subset in each(each(whole()))(subsets, at) if subset)
    except MisshapenError as wrong:
        raise MisshapenError(f"{wrong}, as in [0, 1] or [[0, 1], [0, 2]]") from None


def _mpi(value: Any, at: str) -> str:
    if "/" in text(value, at):
        raise MisshapenError(
            f"{at} is a path ('{value}'): expected a name of 'linkgauge list mpi'; give paths with --mpi"
        )
    return text(value, at)


def _bind(value: Any, at: str) -> str:
    if text(value, at) not in BINDINGS and re.fullmatch(r"[0-9,:-]+", value) is None:
        raise MisshapenError(f"{at}: unknown value '{value}': expected nearest, none or cores by rank, 0-3:4-7")
    return text(value, at)


def _environment(given: Any, at: str) -> dict[str, tuple[str, ...]]:
    """Variables with a value or several, which a stranger may set."""

    def one(item: Any, at: str) -> str:
        return str(whole(-(1 << 63))(item, at)) if type(item) is int else text(item, at)

    found = {name: tuple(values) for name, values in mapping(one_or_more(one))(given, at).items()}
    for name, texts in found.items():
        if not texts or not all(safe_variable(name, text) for text in texts):
            raise MisshapenError(
                f"{at} '{name}' is not a tuning variable of a communication library: "
                f"a plan file may set only those, without paths; give others with --env"
            )
        for value in texts:
            refuse_units(name, value)
    return found


def _on(value: Any, at: str) -> str:
    """Devices [2, 3], subsets of them [[2], [3]] with a load on each, or a word."""
    if isinstance(value, str):
        return value
    return "+".join(",".join(map(str, subset)) for subset in _devices(value, at))


def _class(value: Any, at: str) -> str:
    return str(DIMENSIONS["service_class"].from_toml(label(value, at), at)[0])


class_weights: Callable[[Any, str], dict[str, float]] = mapping(number(1e-6, 1e6), _class)
"""Weights by service class."""


PLAN: dict[str, Shape] = {
    "name": text, "description": text, "repeat": whole(1, MOST_REPEATS), "seed": whole(),
    "time_limit": parsed_by(quantity.parse_duration), "memory_limit": parsed_by(quantity.parse_share),
    "library_choices": flag, "class_weights": class_weights, "case": tables, "launch": tables, "job": tables,
}  # fmt: skip
CASE: dict[str, Shape] = {
    **{dimension.key: dimension.from_toml for dimension in DIMENSIONS.values()}, "size": _size, "devices": _devices,
    "pairs": one_of(PAIRS), "placement": one_of(CHOICES), "concurrent_pairs": flag, "launch": one_or_more(text),
    "until_gain": parsed_by(quantity.parse_percentage), "until_time": parsed_by(quantity.parse_duration),
    "on": one_of(KINDS), "swap_roles": flag, "fit_size": flag, "where_present": flag,
}  # fmt: skip
JOB: dict[str, Shape] = {
    **{name: dimension.from_toml for name, dimension in LOAD_ROWS.items()}, "name": text,
    "on": _on, MPI: one_or_more(_mpi), **{name: dimension.from_toml for name, dimension in PACE.items()},
}  # fmt: skip
LAUNCH: dict[str, Shape] = {
    "name": text, "mpi": _mpi, "env": _environment, "bind": _bind, "threads": flag, "peer_access": flag,
    "thread_level": one_of(THREAD_LEVELS),
}  # fmt: skip


# --- reading ---------------------------------------------------------------------------------------------------------


def read_plan(path: Path) -> Plan:
    """The plan of a TOML file; UsageError naming the file, and the table and key that are wrong.

    >>> _ = Path("mine.toml").write_text('repeat = 5\\n[[case]]\\npattern = "pingpong"\\nsize = "8"')
    >>> plan = read_plan(Path("mine.toml"))
    >>> plan.name, plan.repeat
    ('mine', 5)
    """
    return plan_of_tables(read_toml(path, "a plan's TOML"), str(path), path.stem)


def parse_plan(text: str, source: str, default_name: str) -> Plan:
    """The plan of TOML text; `source` begins every error.

    >>> plan = parse_plan('[[case]]\\npattern = "allreduce"\\nsize = "1KiB:1MiB:x4"', "example", "mine")
    >>> plan.name, plan.cases[0].values["size"]
    ('mine', (1024, 4096, 16384, 65536, 262144, 1048576))
    """
    return plan_of_tables(parsed_toml(text, source), source, default_name)


def plan_of_tables(document: Mapping[str, Any], file: str, default_name: str, inside: str = "") -> Plan:
    """The plan of a file's TOML, or of a table `inside` it, such as `figure.12`; both are named in every error."""
    source, prefix = (f"{file}: [{inside}]", f"{inside}.") if inside else (file, "")
    said = checked(document, only(PLAN), source)

    def named(kind: str) -> Iterator[tuple[dict[str, Any], str]]:
        return ((one, f"{file}: [[{prefix}{kind}]] {place}") for place, one in enumerate(said.pop(kind, ()), 1))

    launches = tuple(LaunchTable(**checked(table, only(LAUNCH), where)) for table, where in named("launch"))
    cases = tuple(itertools.starmap(_case_table, named("case")))
    if not cases:
        raise UsageError(f"{source}: no [[case]] table: expected at least one")
    said["jobs"] = dict(itertools.starmap(_job, named("job")))
    cases = tuple(
        dataclasses.replace(table, values={
            name: named_jobs(values, said["jobs"], table.where) if name == "background" else values
            for name, values in table.values.items()})
        for table in cases
    )  # fmt: skip
    names = [launch.name for launch in launches]
    for table in cases:
        for wanted in table.launch:
            if wanted not in names:
                raise UsageError(
                    f"{table.where}: launch '{wanted}' is not in the plan: expected one of {', '.join(names) or 'none'}"
                )
    if launches:
        said["launches"] = launches
    if "time_limit" in said:
        said["time_limit_ns"] = said.pop("time_limit")
    return Plan(**{"name": default_name, "cases": cases, **said})


def _job(table: Mapping[str, Any], where: str) -> tuple[str, tuple[WrittenLoads, ...]]:
    """A job's name, and the loads that it stands for: one for each combination of its lists."""
    said = checked(table, only(JOB), where)
    name, on = said.pop("name", ""), said.pop("on", REST)
    if not re.fullmatch(r"[A-Za-z_][\w-]*", name):
        raise UsageError(f"{where}: name '{name}': expected a word, by which [[case]] tables name it in background")
    missing = [key for key in ("transport", "pattern", "size") if key not in said]
    if missing:
        raise UsageError(f"{where}: no '{missing[0]}': expected {DIMENSIONS[missing[0]].expected}")
    loads = []
    for combination in itertools.product(*said.values()):
        values = dict(zip(said, combination, strict=True))
        pace = Pace(**{PACE_FIELDS[key]: values[key] for key in PACE if key in values})
        of_load = {name: values[name] for name in LOAD_ROWS if name in values}
        try:
            loads.append(loads_written(load_text(of_load, on, pace, values.get(MPI, ""))))
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
    return name, tuple(loads)


def _case_table(table: Mapping[str, Any], where: str) -> CaseTable:
    said = checked(table, only(CASE), where)
    values: dict[str, tuple[Value, ...]] = {"transport": DIMENSIONS["transport"].from_toml("all", where)}
    values |= {name: said[one.key] for name, one in DIMENSIONS.items() if one.key in said}
    if "app" in values and "pattern" not in values:
        values["pattern"] = having(PATTERNS, "scripted")
    if "pattern" not in values:
        raise UsageError(f"{where}: no 'pattern': expected {DIMENSIONS['pattern'].expected}")
    if "size" not in values:
        if not all(PATTERNS[str(name)].size_means == "-" for name in values["pattern"]):
            raise UsageError(f"{where}: no 'size': expected {DIMENSIONS['size'].expected}")
        values["size"] = (8,)
    until = None
    if "until_gain" in said or "until_time" in said:
        if table.get("size") == "full":
            raise UsageError(f"{where}: 'size' is full, which is one size: leave out until_gain and until_time")
        until = Until(gain=said.get("until_gain", 0.0), time_ns=said.get("until_time", 0))
    own = ("devices", "placement", "pairs", "on", "swap_roles", "fit_size", "where_present")
    told = {name: said[name] for name in own if name in said}
    made = CaseTable(values, launch=tuple(said.get("launch", ())), until=until, where=where, **told)
    return side_by_side(made) if said.get("concurrent_pairs") else made
