"""A run's cases as the points of a paper's figure: what its table, its pictures and its CSV file are made from.

Each point has one value, in the paper's statistic and unit. A case that has none stays as a point that says why.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from linkgauge.expect import published
from linkgauge.model.case import MECHANISM, Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import order_of
from linkgauge.plan.papers import Figure, Picture, PublishedCurve
from linkgauge.view.paper_rows import (
    DIMENSIONS,
    ESTIMATORS,
    LAUNCH,
    MEMORIES,
    NOT_RUN,
    SPREAD,
    PaperRow,
    Words,
    rows_of,
    size_words,
    varying,
)
from linkgauge.view.units import RATE_UNITS, count_text, unit_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run

Of = TypeVar("Of")
PUBLISHED = "published"
_TELLS_SERIES = (*MECHANISM, LAUNCH, *MEMORIES, "clock")
_BY_PLACE = {
    "size": {"size"},
    "ranks": {"devices"},
    "devices": {"devices"},
    "target": {"devices"},
    "route": {"devices", "via"},
}
_MOST_REASONS = 5


@dataclasses.dataclass(frozen=True)
class Point:
    """One case, or one value that the paper states. `value` and `spread` (SPREAD's quantiles) are in the unit.

    `x` is where it stands: a size in bytes, a number of ranks, or words. `source`: where the paper states it.
    """

    panel: str
    series: str
    x: int | float | str
    value: float | None
    status: str
    reason: str = ""
    transport: str = ""
    source: str = ""
    pair: tuple[int, int] = (0, 0)
    spread: tuple[float, ...] = ()

    @property
    def place(self) -> str:
        """`x` as people write it."""
        return size_words(self.x) if isinstance(self.x, int) else str(self.x)


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A picture of a figure with its points, in the order of panels, series and places."""

    figure: Figure
    picture: Picture
    unit: str
    points: tuple[Point, ...]
    sizes_missing: tuple[int, ...] = ()

    @property
    def quantity(self) -> str:
        """What the values are, as an axis heads it."""
        both = ", counted both ways" if self.picture.counts != 1 else ""
        return f"{self.picture.y} ({unit_text(self.unit)}{both})"

    @property
    def measured(self) -> list[Point]:
        """The points of cases that have a value."""
        return [point for point in self.points if point.value is not None and point.status != PUBLISHED]

    @property
    def published(self) -> list[Point]:
        """The paper's points."""
        return [point for point in self.points if point.status == PUBLISHED]

    @property
    def not_measured(self) -> list[str]:
        """What the picture lacks, a line each: cases without a value by reason, times that ended early, sizes."""
        cases = [point for point in self.points if point.status != PUBLISHED]
        without = [point for point in cases if point.value is None]
        lines = []
        if without:
            lines.append(f"Not measured here: {len(without)} of {count_text(len(cases), 'case')}.")
            why = Counter((_what(point), point.reason or point.status) for point in without)
            named = [f"{what} ({count}): {reason}" for (what, reason), count in why.most_common()]
            lines += named[:_MOST_REASONS]
            if len(named) > _MOST_REASONS:
                lines.append(f"and {count_text(len(named) - _MOST_REASONS, 'more reason')}: see the CSV file")
        ended = sum(point.status == "timeout" for point in self.measured)
        if ended:
            lines.append(f"Ended by their time limit, with fewer samples: {count_text(ended, 'case')}.")
        if self.sizes_missing:
            lines.append(f"Not measured here: sizes {', '.join(map(size_words, self.sizes_missing))}.")
        return lines

    def records(self) -> list[dict[str, Any]]:
        """The points as rows of a CSV file, all digits."""
        place = self.picture.x
        return [
            {
                "figure": self.figure.name, "picture": self.picture.name, "panel": point.panel, "series": point.series,
                "place": place, "at": point.x, "quantity": self.picture.y, "unit": self.unit,
                "statistic": "" if point.status == PUBLISHED else self.figure.estimator,
                "value": point.value, "status": point.status, "reason": point.reason, "source": point.source,
            }
            for point in self.points
        ]  # fmt: skip


def as_csv(records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as the text of a CSV file; empty where there are none."""
    rows = list(records)
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _what(point: Point) -> str:
    return point.transport or point.series


def drawings(run: Run, figure: Figure) -> list[Drawing]:
    """Return a figure's pictures with the points that a run has of them; pictures of which it has no case are empty."""
    rows = rows_of(run, figure)
    words = Words(run)
    return [_drawing(picture, figure, rows, words) for picture in figure.pictures if picture.form != "kinds"]


def _drawing(picture: Picture, figure: Figure, rows: Sequence[PaperRow], words: Words) -> Drawing:
    chosen = _chosen(picture, rows, lambda row: row.case)
    unit = "us" if picture.y == "latency" else picture.unit or figure.unit
    own_panel, own_series = _split(picture, chosen)
    points: list[Point] = []
    panels: dict[str, PaperRow] = {}
    chosen = sorted(chosen, key=lambda row: _order(row, words.of(row, own_series)))
    for row in chosen:
        panel = words.of(row, own_panel)
        panels.setdefault(panel, row)
        points.append(
            Point(
                panel,
                words.of(row, own_series) or words.of(row, ("transport",)),
                words.place(row, picture.x),
                _value(row, row.times_ns.get(ESTIMATORS[figure.estimator]), picture, unit),
                row.status,
                row.reason,
                words.of(row, ("transport",)),
                pair=(row.devices[0], row.devices[-1]),
                spread=tuple(_value(row, row.times_ns[name], picture, unit) or 0.0 for name in SPREAD)
                if row.times_ns
                else (),
            )
        )
    if picture.form == "ratio":
        points = _ratios(points, chosen, words)
    else:
        points.sort(key=lambda point: list(panels).index(point.panel))
    for curve in _stated(figure, picture):
        points += _published(curve, panels, points)
    sizes = tuple(sorted(_planned(figure, picture) - {row.case.size_requested for row in chosen})) if chosen else ()
    return Drawing(figure, picture, "times" if picture.form == "ratio" else unit, tuple(points), sizes)


def _chosen(picture: Picture, rows: Sequence[Of], case_of: Callable[[Of], Case]) -> list[Of]:
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


def _split(picture: Picture, rows: Sequence[PaperRow]) -> tuple[list[str], list[str]]:
    """Return the dimensions that tell panels apart, and those that tell series; together all that vary."""
    used = _BY_PLACE["devices" if picture.form == "matrix" else picture.x]
    differ = varying(rows) - used - {"distance"}
    if "pattern" in differ:  # it tells apart what differs with it alone
        differ -= {name for name in differ - {"pattern", "transport"} if _by_pattern(rows, name)}
    if picture.x == "ranks" and len({(row.ranks, row.devices) for row in rows}) > len({row.ranks for row in rows}):
        differ.add("devices")
    if picture.form == "ratio":
        return [], []
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


def _by_pattern(rows: Sequence[PaperRow], name: str) -> bool:
    """Whether all rows of a pattern are alike in a dimension."""
    return len({(row.pattern, row.of(name)) for row in rows}) == len({row.pattern for row in rows})


def _sizes_asked(rows: Sequence[PaperRow]) -> dict[str, set[int]]:
    """Return the sizes of each pattern; an application has none of its own."""
    found: dict[str, set[int]] = {}
    for row in rows:
        own = 0 if PATTERNS[row.pattern].scripted else row.case.size_requested
        found.setdefault(row.pattern, set()).add(own)
    return found


def _order(row: PaperRow, series: str) -> tuple[Any, ...]:
    """Return a row's place: by pattern, memory, mechanism, devices and size, never by the order of execution."""
    pattern, transport = list(PATTERNS).index(row.pattern), order_of(row.transport)
    host = row.case.source_memory != "device"
    return pattern, host, transport, row.ranks, list(row.devices), series, row.size, row.case_key


def _value(row: PaperRow, time_ns: float | None, picture: Picture, unit: str) -> float | None:
    """Return a time of a row as the picture's quantity; rates are turned over at the same payload."""
    if not time_ns:
        return None
    traits = PATTERNS[row.pattern]
    if picture.y == "latency":
        return float(time_ns / 1e3 * traits.latency_share)
    if not row.goodput_bytes_per_s:
        return None
    value = picture.counts * row.goodput_bytes_per_s * row.times_ns["median"] / time_ns / RATE_UNITS[unit]
    return float(value * traits.bus_factor(row.case.group_ranks)) if picture.y == "busbw" else float(value)


def _ratios(points: Sequence[Point], rows: Sequence[PaperRow], words: Words) -> list[Point]:
    """Return of each task, number of ranks and size the first transport's value over the second's."""
    apart = [name for name in varying(rows) if name not in ("transport", "size", "devices", "distance")]
    tasks: dict[tuple[Any, ...], dict[str, Point]] = {}
    for point, row in zip(points, rows, strict=True):
        key = (words.of(row, [name for name in DIMENSIONS if name in apart]), row.ranks, row.case.size_requested)
        tasks.setdefault(key, {})[point.transport] = point
    order = list(dict.fromkeys(point.transport for point in points))
    found = []
    for (panel, ranks, size), by in tasks.items():
        if len(order) < 2:
            break
        over, under = by.get(order[0]), by.get(order[1])
        lacking = next((one for one in (over, under) if one is not None and one.value is None), None)
        value = over.value / under.value if over and under and over.value and under.value else None
        names = f"{order[0]} / {order[1]}"
        absent = names if over is None or under is None else ""
        why = lacking.reason if lacking else f"not both of {absent}" if absent else ""
        status = lacking.status if lacking else "ok" if value is not None else NOT_RUN
        title = f"{panel} · {names}" if panel else names
        found.append(Point(title, str(ranks), int(size), value, status, why, lacking.transport if lacking else ""))
    return found


def _stated(figure: Figure, picture: Picture) -> list[PublishedCurve]:
    """Return what the paper states for a picture: the figure's own values, and its file of published curves."""
    found = [curve for curve in figure.published if curve.picture == picture.name]
    if figure.curves:
        known = published.load(figure.curves)
        for way in known.ways:
            pairs = zip(way.curve.sizes, way.curve.times, strict=True)
            points = tuple(
                (size, ns / 1e3 if picture.y == "latency" else size * 1e9 / ns / RATE_UNITS[figure.unit])
                for size, ns in pairs
            )
            found.append(PublishedCurve(picture.name, f"{known.system}: {way.words}", known.source, points))
    return found


def _published(curve: PublishedCurve, panels: Mapping[str, PaperRow], points: Sequence[Point]) -> list[Point]:
    """Return a paper's values in each panel that they belong to; a level stands at the panel's first and last place."""
    found = []
    for panel, row in panels.items():
        if not all(str(row.of(name)) in _texts(value) for name, value in curve.where.items()):
            continue
        places = list(dict.fromkeys(point.x for point in points if point.panel == panel and point.status != PUBLISHED))
        stated = [(place, curve.level) for place in places] if curve.level is not None else curve.points
        by_size = any(isinstance(place, int) for place in places)
        for place, value in stated:
            x = place if curve.level is not None else int(place) if by_size else f"{place:g}"
            found.append(Point(panel, f"paper: {curve.series}", x, value, PUBLISHED, source=curve.read))
    return found


def _texts(value: Any) -> list[str]:
    return [str(one) for one in (value if isinstance(value, tuple | list) else (value,))]


def _planned(figure: Figure, picture: Picture) -> set[int]:
    """Return the sizes that the paper measured of what a picture shows."""
    cases = [
        Case(transport, pattern, size, size, ())
        for table in figure.load().cases
        for pattern in map(str, table.values["pattern"])
        for transport in map(str, table.values["transport"])
        for size in table.values["size"]
        if isinstance(size, int) and size > 0 and not PATTERNS[pattern].scripted
    ]
    return {case.size_requested for case in _chosen(picture, cases, lambda case: case)}
