"""A run's cases as the points of a paper's figure: what its table, its pictures and its CSV file are made from.

Each point has one value, in the paper's statistic and unit. A case that has none stays as a point that says why.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.expect import published
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import order_of
from linkgauge.plan.papers import Figure, Picture, PublishedCurve
from linkgauge.view.paper_choice import chosen, fits, on_paths, split
from linkgauge.view.paper_rows import (
    DIMENSIONS,
    ESTIMATORS,
    NOT_RUN,
    SPREAD,
    PaperRow,
    Words,
    rows_of,
    size_words,
    varying,
)
from linkgauge.view.units import RATE_UNITS, count_text, digits, unit_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run

PUBLISHED = "published"
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
    row: PaperRow | None = dataclasses.field(default=None, compare=False, repr=False)

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
    over: str = ""  # what times are divided by, in words
    notes: tuple[str, ...] = ()

    @property
    def quantity(self) -> str:
        """What the values are, as an axis heads it."""
        if self.picture.y == "hops":
            return "links of the shortest path"
        if self.picture.y in ("speedup", "normalized"):
            return "normalized time" if self.picture.y == "normalized" else "speedup"
        both = ", counted both ways" if self.picture.counts != 1 else ""
        peak = "peak " if self.picture.peak else ""
        return f"{peak}{self.picture.y} ({unit_text(self.unit)}{both})"

    def shown(self, value: float) -> str:
        """Return a value as the table and the picture show it."""
        return f"{value:g}" if self.picture.y == "hops" else digits(value)

    @property
    def measured(self) -> list[Point]:
        """The points of cases that have a value."""
        return [point for point in self.points if point.value is not None and point.status != PUBLISHED]

    @property
    def published(self) -> list[Point]:
        """The paper's points."""
        return [point for point in self.points if point.status == PUBLISHED]

    @property
    def remarks(self) -> list[str]:
        """What is said of the picture, a line each: by what it is divided, which devices are shown, what it lacks."""
        divided = [f"Divided by the time of {self.over}."] if self.over else []
        return [*divided, *self.notes, *self.not_measured]

    @property
    def not_measured(self) -> list[str]:
        """What the picture lacks, a line each: cases without a value by reason, times that ended early, sizes."""
        cases = [point for point in self.points if point.status != PUBLISHED]
        without = [point for point in cases if point.value is None]
        lines = []
        if without:
            lines.append(f"Not measured here: {len(without)} of {count_text(len(cases), 'case')}.")
            why = Counter((point.transport or point.series, point.reason or point.status) for point in without)
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


def drawings(run: Run, figure: Figure) -> list[Drawing]:
    """Return a figure's pictures with the points that a run has of them; pictures of which it has no case are empty."""
    rows = rows_of(run, figure)
    words = Words(run)
    return [_drawing(picture, figure, rows, words) for picture in figure.pictures if picture.form != "kinds"]


_PLAIN_UNITS = {"latency": "us", "hops": "links", "speedup": "times", "normalized": "times"}


def _drawing(picture: Picture, figure: Figure, rows: Sequence[PaperRow], words: Words) -> Drawing:
    shown, notes = on_paths(picture, chosen(picture, rows, lambda row: row.case))
    unit = _PLAIN_UNITS.get(picture.y) or picture.unit or figure.unit
    own_panel, own_series = split(picture, shown)
    points: list[Point] = []
    panels: dict[str, list[PaperRow]] = {}
    shown = sorted(shown, key=lambda row: _order(row, words.of(row, own_series)))
    for row in shown:
        panel = words.of(row, own_panel)
        panels.setdefault(panel, []).append(row)
        points.append(
            Point(
                panel,
                words.of(row, own_series) or words.of(row, ("transport",)),
                words.place(row, picture.x),
                words.hops(row)
                if picture.y == "hops"
                else _value(row, row.times_ns.get(ESTIMATORS[figure.estimator]), picture, unit),
                row.status,
                row.reason,
                words.of(row, ("transport",)),
                pair=(row.devices[0], row.devices[-1]),
                spread=tuple(_value(row, row.times_ns[name], picture, unit) or 0.0 for name in SPREAD)
                if row.times_ns and picture.y != "hops"
                else (),
                row=row,
            )
        )
    over = ""
    if picture.over:
        points, over = _divided(picture, points, words)
    if picture.form == "ratio":
        points = _ratios(points, shown, words)
    else:
        points.sort(key=lambda point: list(panels).index(point.panel))
    if picture.peak:
        points = _peaks(points)
    for curve in _stated(figure, picture):
        points += _published(curve, panels, points)
    sizes = tuple(sorted(_planned(figure, picture) - {row.case.size_requested for row in shown})) if shown else ()
    unit = "times" if picture.form == "ratio" else unit
    return Drawing(figure, picture, unit, tuple(points), sizes, over, notes)


def _divided(picture: Picture, points: Sequence[Point], words: Words) -> tuple[list[Point], str]:
    """Return each application's times over its time as `over` says on as many ranks, or the other way round.

    And what they are divided by, in words.
    """
    of = {
        _app_and_ranks(point): point for point in points if point.row and point.value and fits(point.row, picture.over)
    }
    found = []
    for point in points:
        base = of.get(_app_and_ranks(point))
        if point.value is None:
            found.append(point)
        elif base is None or not base.value:
            why = "the case whose time it is divided by was not measured"
            found.append(dataclasses.replace(point, value=None, spread=(), status=NOT_RUN, reason=why))
        else:
            divided = [_over(picture, one, base.value) for one in (point.value, *point.spread)]
            # The quotient turns quantiles round: the least time is the highest speedup.
            spread = divided[1:] if picture.y == "normalized" else divided[:0:-1]
            found.append(dataclasses.replace(point, value=divided[0], spread=tuple(spread)))
    first = next(iter(of.values()), None)
    if first is None or first.row is None:
        return found, ""
    return found, f"{words.of(first.row, picture.over) or first.transport} on as many {words.noun}s"


def _app_and_ranks(point: Point) -> tuple[str, int]:
    return (point.row.case.app.name, point.row.ranks) if point.row is not None else ("", 0)


def _over(picture: Picture, time: float, base: float) -> float:
    return time / base if picture.y == "normalized" else base / time if time else 0.0


def _peaks(points: Sequence[Point]) -> list[Point]:
    """Return of the points at one place of a series the highest; one without a value where none has any."""
    best: dict[tuple[Any, ...], Point] = {}
    for point in points:
        key = (point.panel, point.series, point.x)
        if key not in best or (point.value or 0.0) > (best[key].value or 0.0):
            best[key] = point
    return list(best.values())


def _order(row: PaperRow, series: str) -> tuple[Any, ...]:
    """Return a row's place: by pattern, memory, mechanism, devices and size, never by the order of execution."""
    pattern, transport = list(PATTERNS).index(row.pattern), order_of(row.transport)
    host = row.case.source_memory != "device"
    return pattern, host, transport, row.ranks, list(row.devices), row.case.via, series, row.size, row.case_key


def _value(row: PaperRow, time_ns: float | None, picture: Picture, unit: str) -> float | None:
    """Return a time of a row as the picture's quantity; rates are turned over at the same payload."""
    if not time_ns:
        return None
    traits = PATTERNS[row.pattern]
    if picture.y in ("latency", "speedup", "normalized"):
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


def _published(curve: PublishedCurve, panels: Mapping[str, Sequence[PaperRow]], points: Sequence[Point]) -> list[Point]:
    """Return a paper's values in each panel that they belong to; a level stands at the panel's first and last place."""
    found = []
    for panel, rows in panels.items():
        if not any(fits(row, curve.where) for row in rows):
            continue
        places = list(dict.fromkeys(point.x for point in points if point.panel == panel and point.status != PUBLISHED))
        stated = [(place, curve.level) for place in places] if curve.level is not None else curve.points
        by_size = any(isinstance(place, int) for place in places)
        for place, value in stated:
            x = place if isinstance(place, str | int) else int(place) if by_size else f"{place:g}"
            found.append(Point(panel, f"paper: {curve.series}", x, value, PUBLISHED, source=curve.read))
    return found


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
    return {case.size_requested for case in chosen(picture, cases, lambda case: case)}
