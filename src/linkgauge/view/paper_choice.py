"""Which rows of a run a picture of a paper shows, and which dimensions tell its panels and its series apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from linkgauge.model.case import Case
from linkgauge.model.comparing import MECHANISM
from linkgauge.model.patterns import PATTERNS
from linkgauge.plan.papers import Picture
from linkgauge.view.paper_rows import DIMENSIONS, LAUNCH, MEMORIES, PaperRow, varying

Of = TypeVar("Of")
_TELLS_SERIES = (*MECHANISM, LAUNCH, *MEMORIES, "clock")
_BY_PLACE = {
    "size": {"size"},
    "ranks": {"devices"},
    "devices": {"devices"},
    "target": {"devices"},
    "route": {"devices", "via"},
    "link": {"devices", "source_memory", "target_memory", "ranks_per_device", "window", "cpu_node", "source_node"},
}


def chosen(picture: Picture, rows: Sequence[Of], case_of: Callable[[Of], Case]) -> list[Of]:
    """Return of some things with a case each those that a picture shows."""
    found = [(row, case_of(row)) for row in rows]
    found = [
        (row, case)
        for row, case in found
        if (not picture.patterns or case.pattern in picture.patterns)
        and (not picture.transports or case.transport in picture.transports)
        and (picture.most is None or case.size_requested <= picture.most)
    ]
    if isinstance(picture.sizes, str):
        found = _ends(found, min if picture.sizes == "first" else max, lambda case: case.size_requested)
    elif picture.sizes:
        found = [(row, case) for row, case in found if case.size_requested in picture.sizes]
    if picture.ranks:
        found = _ends(found, min if picture.ranks == "first" else max, lambda case: case.ranks)
    return [row for row, _ in found]


def _ends(found: list[tuple[Of, Case]], pick: Any, key: Callable[[Case], int]) -> list[tuple[Of, Case]]:
    """Return those of each pattern with the least or the largest key, as `pick` says."""
    best: dict[str, int] = {}
    for _, case in found:
        best[case.pattern] = pick(best.get(case.pattern, key(case)), key(case))
    return [(row, case) for row, case in found if key(case) == best[case.pattern]]


def split(picture: Picture, rows: Sequence[PaperRow]) -> tuple[list[str], list[str]]:
    """Return the dimensions that tell panels apart, and those that tell series; together all that vary."""
    used = _BY_PLACE["devices" if picture.form == "matrix" else picture.x]
    differ = varying(rows) - used - {"distance"}
    for by in ("pattern", "transport"):  # either tells apart what differs with it alone
        if by in differ:
            differ -= {name for name in differ - {"pattern", "transport"} if _by(rows, by, name)}
    if picture.x == "ranks" and len({(row.ranks, row.devices) for row in rows}) > len({row.ranks for row in rows}):
        differ.add("devices")
    if picture.form == "ratio":
        return [], []
    if picture.peak:
        differ.discard("size")
    if all(len(sizes) == 1 for sizes in _sizes_asked(rows).values()):
        differ.discard("size")  # one a pattern, restated as whole blocks of each number of ranks
    if picture.form == "matrix":
        tells = [name for name in picture.series if name in differ]
        return [name for name in DIMENSIONS if name in differ and name not in tells], tells
    asked = {*picture.panel, *picture.series}
    series = [
        name
        for name in DIMENSIONS
        if (name in differ or (name == "distance" and name in picture.series))
        and (name in picture.series or (name in _TELLS_SERIES and name not in asked))
    ]
    panel = [
        name
        for name in DIMENSIONS
        if (name in differ or (name == "distance" and name in picture.panel)) and name not in series
    ]
    return panel, series


def _by(rows: Sequence[PaperRow], by: str, name: str) -> bool:
    """Whether all rows that are alike in one dimension are so in another."""
    return len({(row.of(by), row.of(name)) for row in rows}) == len({row.of(by) for row in rows})


def _sizes_asked(rows: Sequence[PaperRow]) -> dict[str, set[int]]:
    """Return the sizes of each pattern; an application has none of its own."""
    found: dict[str, set[int]] = {}
    for row in rows:
        own = 0 if PATTERNS[row.pattern].scripted else row.case.size_requested
        found.setdefault(row.pattern, set()).add(own)
    return found


def on_paths(picture: Picture, rows: list[PaperRow]) -> tuple[list[PaperRow], tuple[str, ...]]:
    """Return the rows on a picture's ways, and what is said of them; all rows where the run lacks some of the ways."""
    if not picture.paths or not rows:
        return rows, ()
    here = {row.case_key: _path(row) for row in rows}
    lacking = [way for way in picture.paths if way not in here.values()]
    if not lacking:
        # A device alone stays where only pairs are named.
        lengths = {len(way) for way in picture.paths}
        kept = [row for row in rows if here[row.case_key] in picture.paths or (row.ranks == 1 and 1 not in lengths)]
        return kept, ()
    names = ", ".join("→".join(map(str, way)) for way in lacking)
    return rows, (f"All devices of this machine are shown: it lacks the paper's {names}.",)


def _path(row: PaperRow) -> tuple[int, ...]:
    return (row.devices[0], row.case.via, row.devices[-1]) if row.case.via >= 0 else row.devices


def fits(row: PaperRow, where: Mapping[str, Any]) -> bool:
    """Return whether a row has these values of dimensions: one of each list."""
    return all(str(row.of(name)) in _texts(value) for name, value in where.items())


def _texts(value: Any) -> list[str]:
    return [str(one) for one in (value if isinstance(value, tuple | list) else (value,))]
