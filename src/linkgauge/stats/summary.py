"""The summary of a run: one row a case in a launch, and one for each of its lanes where it has several.

The row of lane -1 is the case's headline: the time by its timekeeper, and where it has several lanes their sum. The
warm-up cut and the interval of the median are the core's, the very functions that decide when to stop sampling.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS, PatternTraits
from linkgauge.model.result import FIGURES, HEADLINE, Launch, Measured, Result, Row
from linkgauge.model.transports import NIC_LIBRARIES
from linkgauge.stats import series
from linkgauge.stats.basics import Floats, median
from linkgauge.stats.distance import Distances
from linkgauge.store import schema

if TYPE_CHECKING:
    from linkgauge.store.run import Run


# Events resolve about half a microsecond on NVIDIA's devices; used where a launch did not store what it measured.
_EVENT_TICK_NS = 500.0
_HOST_TICK_NS = 1.0
# A row has figures where its samples are good for some: never of a corrupt case, nor of one without a status.
_SUMMARISED = ("ok", "timeout")
# Independent samples from which on the largest one bounds p99 (docs/explanation/statistics.md, One series).
_P99_SAMPLES = 368

# Findings, tables and charts of one run all start from its summary: its table, and the same as results.
_SUMMARIES: weakref.WeakKeyDictionary[Run, tuple[pa.Table, tuple[Result, ...]]] = weakref.WeakKeyDictionary()


def summary_schema() -> pa.Schema:
    """Return the schema of a summary: the columns of cases.parquet, then the lane, the library and the statistics.

    Times in ns per iteration, rates in bytes per second; `samples` counts what is left after the `warmup_cut` (samples
    that the stop rule's rule found to be warm-up), `effective_samples` how many independent ones these are worth.

    >>> str(summary_schema().field("busbw_bytes_per_s").type)
    'double'
    """
    return pa.schema(
        [
            *schema.schema("cases"),
            ("lane", pa.int32()),
            ("lane_name", pa.string()),
            ("launch_key", pa.string()),
            ("library", pa.string()),  # of transport mpi or ccl: name and version
            ("samples", pa.int64()),
            ("warmup_cut", pa.int64()),
            ("effective_samples", pa.float64()),
            *((name, pa.float64()) for name in FIGURES),
            ("distance", pa.string()),  # of the two ranks that are farthest apart; null where it is not known
        ]
    )


def summarize(run: Run) -> pa.Table:
    """Return the summary of a run as a table (summary_schema), in the order of its cases.

    The summary is made once and kept for as long as `run` is. Cases without figures (skipped, failed, corrupt, without
    a status) are there with null statistics, as are those whose clock did not see them pass.

    >>> import linkgauge
    >>> table = summarize(linkgauge.load("linkgauge-demo"))
    >>> {"case_key", "median_ns", "goodput_bytes_per_s", "busbw_bytes_per_s"} <= set(table.column_names)
    True
    """
    return _summary(run)[0]


def results_of(run: Run) -> tuple[Result, ...]:
    """Return the summary of a run as results, those with figures as `Measured`; a lane is a result of its own.

    >>> import linkgauge
    >>> results = results_of(linkgauge.load("linkgauge-demo"))
    >>> allreduces = [one for one in results if one.pattern == "allreduce" and isinstance(one, Measured)]
    >>> best = max(allreduces, key=lambda one: one.busbw_bytes_per_s)
    >>> best.transport, best.size, f"{best.busbw_bytes_per_s / 1e9:.0f} GB/s"
    ('ccl', 2147483648, '338 GB/s')
    """
    return _summary(run)[1]


def _summary(run: Run) -> tuple[pa.Table, tuple[Result, ...]]:
    if run in _SUMMARIES:
        return _SUMMARIES[run]
    rows = run.rows()
    place = {row.identity: at for at, row in enumerate(rows)}
    infos = [PATTERNS[row.pattern] for row in rows]
    nodes = series.one_node(run)
    ticks = _ticks(run)
    gathered = _Gathered()
    for identity, block in series.run_blocks(run):
        at = place.get(identity)
        if at is None or rows[at].status not in _SUMMARISED:
            continue
        case = rows[at].case
        measured = block.only(block.measured)
        one_node = nodes.get(identity[1], True)
        # An imported figure is one over all ranks: no rank lacks it.
        ranks = 1 if "origin" in run.info else case.ranks
        groups = case.groups
        times, slowest = series.headline(measured, infos[at], ranks, case.root, one_node, groups)
        if times.size == 0 or median(times) <= 0:
            continue
        tick = ticks.get(identity[1], {}).get(block.event_clock, _EVENT_TICK_NS if block.event_clock else _HOST_TICK_NS)
        tick /= median(measured.iterations)
        gathered.add(at, HEADLINE, times, tick)
        gathered.slowest[at] = slowest
        lanes = np.unique(measured.lane)
        for lane in lanes.tolist() if len(lanes) > 1 else []:
            if groups > 1:  # each has the pattern's own timekeeper
                own = measured.only(measured.lane == lane)
                values, _ = series.headline(own, infos[at], ranks // groups, case.root, one_node, groups)
            else:
                values = series.lane_series(measured, lane)
            gathered.add(at, lane, values, tick)
    _SUMMARIES[run] = _made(run, rows, infos, gathered)
    return _SUMMARIES[run]


class _Gathered:
    """The series of a run one after the other, and whose they are."""

    def __init__(self) -> None:
        self.values: list[Floats] = []
        self.owners: list[tuple[int, int]] = []  # place in the cases, lane
        self.ticks: list[float] = []
        self.slowest: dict[int, Floats] = {}

    def add(self, at: int, lane: int, values: Floats, tick: float) -> None:
        if values.size:
            self.values.append(values)
            self.owners.append((at, lane))
            self.ticks.append(tick)


# Our columns and the core's names for them.
_CORE_NAMES = {
    "median_ns": "median",
    "interval_low_ns": "interval_low",
    "interval_high_ns": "interval_high",
    "mean_ns": "mean",
    "q1_ns": "quartile_1",
    "q3_ns": "quartile_3",
    "p5_ns": "p5",
    "p95_ns": "p95",
    "p99_ns": "p99",
    "min_ns": "min",
    "max_ns": "max",
    "samples": "count",
    "warmup_cut": "warmup_cut",
    "effective_samples": "effective_size",
}


def group_statistics(groups: list[Floats], ticks: list[float]) -> dict[str, npt.NDArray[Any]]:
    """Return the core's statistics of each group of values: arrays of one value a group, named as the columns.

    `ticks` is what the clock resolves, in the unit of the values; no interval is narrower.
    """
    from linkgauge import _core

    offsets = np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)
    values = np.concatenate(groups) if groups else np.empty(0)
    found = _core.summarize_groups(values, offsets, np.array(ticks, np.float64))
    return {column: found[name] for column, name in _CORE_NAMES.items()}


def _made(
    run: Run, rows: Sequence[Row], infos: list[PatternTraits], gathered: _Gathered
) -> tuple[pa.Table, tuple[Result, ...]]:
    figures = _figures(rows, infos, gathered) if gathered.owners else {}
    series_of = grouped((at, i) for i, (at, _) in enumerate(gathered.owners))
    # Of each result its place in the cases, and among the series or -1.
    order = [(at, i) for at in range(len(rows)) for i in series_of.get(at, [-1])]
    wanted = summary_schema()
    takes = np.array([i for _, i in order], np.int64)
    columns: dict[str, pa.Array] = {}
    for field in wanted:
        if field.name in figures:
            values = figures[field.name][np.maximum(takes, 0)]
            columns[field.name] = pa.array(values, field.type, mask=(takes < 0) | ~np.isfinite(values))
    of_row = list(zip(*(column.to_pylist() for column in columns.values()), strict=True)) or [()] * len(order)
    launches = {launch.launch: launch for launch in run.launched}
    libraries = {number: _libraries(launch) for number, launch in launches.items()}

    def made(which: int, distance: str = "") -> Result:
        at, i = order[which]
        row, lane = rows[at], gathered.owners[i][1] if i >= 0 else HEADLINE
        known = {name: getattr(row, name) for name in _OF_A_ROW}
        known |= {
            "lane": lane,
            "lane_name": _lane_name(row, lane),
            "launch_key": launches[row.launch].launch_key if row.launch in launches else "",
            "library": libraries.get(row.launch, {}).get(row.transport, ""),
            "distance": distance,
        }
        return Result(**known) if i < 0 else Measured(**known, **dict(zip(columns, of_row[which], strict=True)))

    distances = Distances(run, map(made, range(len(order))))
    results = tuple(made(which, distances.of_row(rows[at])) for which, (at, _) in enumerate(order))
    for name in ("lane", "lane_name", "launch_key", "library", "distance"):
        kind = wanted.field(name).type
        told = [getattr(one, name) for one in results]
        columns[name] = pa.array(told if name.startswith("lane") else [one or None for one in told], kind)
    table = run.cases.take(pa.array([at for at, _ in order], pa.int64()))
    for field in list(wanted)[table.num_columns :]:
        table = table.append_column(field, columns.get(field.name, pa.nulls(len(order), field.type)))
    return table, results


_OF_A_ROW = tuple(field.name for field in dataclasses.fields(Row))


def _figures(rows: Sequence[Row], infos: list[PatternTraits], gathered: _Gathered) -> dict[str, npt.NDArray[Any]]:
    """Return the figures of each series, by their columns; infinite or not a number where there is none."""
    at_of = [at for at, _ in gathered.owners]
    figures = group_statistics(gathered.values, gathered.ticks)
    payload = np.array([_payload(rows[at], infos[at], lane) for at, lane in gathered.owners], np.float64)
    bus = np.array([float(infos[at].bus_factor(rows[at].case.group_ranks)) for at in at_of], np.float64)
    algorithm = np.array([_algorithm_factor(infos[at], rows[at].case.group_ranks) for at in at_of], np.float64)
    figures["p99_ns"] = np.where(figures["effective_samples"] >= _P99_SAMPLES, figures["p99_ns"], np.nan)
    figures["latency_ns"] = figures["median_ns"] * np.array([infos[at].latency_share for at in at_of], np.float64)
    rates = {"": "median_ns", "_low": "interval_high_ns", "_high": "interval_low_ns", "_q1": "q3_ns", "_q3": "q1_ns",
             "_mean": "mean_ns"}  # fmt: skip
    for suffix, time in rates.items():
        figures[f"goodput{suffix}_bytes_per_s"] = _rate(payload, figures[time])
    figures["algbw_bytes_per_s"] = figures["goodput_bytes_per_s"] * algorithm
    figures["busbw_bytes_per_s"] = figures["goodput_bytes_per_s"] * bus
    sizes = [rows[at].size if infos[at].counts_messages else np.nan for at in at_of]
    figures["messages_per_s"] = figures["goodput_bytes_per_s"] / np.array(sizes, np.float64)
    figures["max_rank_median_ns"] = np.array(
        [
            _median_after(gathered.slowest[at], figures["warmup_cut"][i]) if lane == HEADLINE else np.nan
            for i, (at, lane) in enumerate(gathered.owners)
        ]
    )
    return figures


def _payload(row: Row, info: PatternTraits, lane: int) -> float:
    """Return goodput's numerator in bytes: of all lanes for the headline; nan where a pattern has no goodput."""
    if info.latency_only:
        return float("nan")
    case = row.case
    payload = float(info.payload_bytes(case.size, case.group_ranks, case.window, case.distribution))
    lanes = 2 if _both_in_one(row) else len(row.lanes)
    if (info.timekeeper == "lanes" or case.groups > 1) and lane == HEADLINE and lanes > 1:
        return payload * lanes
    return payload


def _algorithm_factor(info: PatternTraits, ranks: int) -> float:
    """Return algbw / goodput; nan where nccl-tests has no such collective."""
    return float(info.algorithm_factor(ranks)) if info.algorithm_factor is not None else float("nan")


def _both_in_one(row: Row) -> bool:
    """Whether one lane's time is of both ways: `bidirectional` inside one device."""
    return bool(PATTERNS[row.pattern].both_ways and row.ranks == 1 and len(row.lanes) == 1)


def _rate(payload: Floats, times_ns: Floats) -> Floats:
    """Return bytes per second; infinite where a time is 0, which becomes a missing value."""
    with np.errstate(divide="ignore"):
        rate: Floats = payload / times_ns * 1e9
    return rate


def _median_after(values: Floats, cut: int) -> float:
    return median(values[cut:]) if values.size > cut else float("nan")


def _lane_name(row: Row, lane: int) -> str:
    if lane == HEADLINE:
        return "sum" if len(row.lanes) > 1 or _both_in_one(row) else ""
    return row.lanes[lane] if lane < len(row.lanes) else str(lane)


def _ticks(run: Run) -> dict[int, dict[bool, float]]:
    """Return the stored resolutions of each launch's clocks in ns, by whether it is the event clock."""
    ticks: dict[int, dict[bool, float]] = {}
    for launch in run.launched:
        known = ((False, launch.clock.get("resolution_ns")), (True, launch.clock.get("event_resolution_ns")))
        ticks[launch.launch] = {event: tick for event, tick in known if tick}
    return ticks


def _libraries(launch: Launch) -> dict[str, str]:
    """Return the name and version of the library behind each of a launch's transports."""
    name, version = launch.mpi_name, str(launch.mpi.get("version") or "")
    if not name.endswith(version):  # as 'openmpi-4.1.4' does; an imported run's may not
        name = f"{name} {version}".strip()
    known = {"mpi": name, "staging": name} if name else {}
    titles = [
        ("ccl", "nccl", "NCCL"),
        ("ccl", "rccl", "RCCL"),
        *((one, one, nic.name) for one, nic in NIC_LIBRARIES.items()),
    ]
    return known | {transport: f"{title} {launch.versions[key]}" for transport, key, title in titles
                    if launch.versions.get(key)}  # fmt: skip
