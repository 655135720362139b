"""The summary of a run: one row a case in a launch, and one for each of its lanes where it has several.

The row of lane -1 is the case's headline: the time by its timekeeper, and where it has several lanes their sum. The
warm-up cut and the interval of the median are the core's, the very functions that decide when to stop sampling.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from linkgauge.model.patterns import PATTERNS, PatternTraits
from linkgauge.model.shape import json_object
from linkgauge.model.transports import NIC_LIBRARIES
from linkgauge.stats import series
from linkgauge.stats.basics import median
from linkgauge.stats.distance import Distances
from linkgauge.store import schema

if TYPE_CHECKING:
    from linkgauge.store.run import Run

Floats = npt.NDArray[np.float64]

# Events resolve about half a microsecond on NVIDIA's devices; used where a launch did not store what it measured.
_EVENT_TICK_NS = 500.0
_HOST_TICK_NS = 1.0
# A row has figures where its samples are good for some: never of a corrupt case, nor of one without a status.
_SUMMARISED = ("ok", "timeout")
# Independent samples from which on the largest one bounds p99 (docs/explanation/statistics.md, One series).
_P99_SAMPLES = 368

# Findings, tables and charts of one run all start from its summary.
_SUMMARIES: weakref.WeakKeyDictionary[Run, pa.Table] = weakref.WeakKeyDictionary()

STATISTICS = (
    "median_ns",
    "interval_low_ns",
    "interval_high_ns",
    "mean_ns",
    "q1_ns",
    "q3_ns",
    "p5_ns",
    "p95_ns",
    "p99_ns",
    "min_ns",
    "max_ns",
)
DERIVED = (
    "latency_ns",
    "max_rank_median_ns",
    "goodput_bytes_per_s",
    "goodput_low_bytes_per_s",
    "goodput_high_bytes_per_s",
    "goodput_q1_bytes_per_s",
    "goodput_q3_bytes_per_s",
    "goodput_mean_bytes_per_s",
    "algbw_bytes_per_s",
    "busbw_bytes_per_s",
    "messages_per_s",
)


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
            *((name, pa.float64()) for name in (*STATISTICS, *DERIVED)),
            ("distance", pa.string()),  # of the two ranks that are farthest apart; null where it is not known
        ]
    )


def summarize(run: Run) -> pa.Table:
    """Return the summary of a run (summary_schema), in the order of its cases.

    The summary is made once and kept for as long as `run` is. Cases without figures (skipped, failed, corrupt, without
    a status) are there with null statistics, as are those whose clock did not see them pass.

    >>> import linkgauge
    >>> rows = summarize(linkgauge.load("linkgauge-demo")).to_pylist()
    >>> allreduces = [row for row in rows if row["pattern"] == "allreduce" and row["status"] == "ok"]
    >>> best = max(allreduces, key=lambda row: row["busbw_bytes_per_s"])
    >>> best["transport"], best["size"], f"{best['busbw_bytes_per_s'] / 1e9:.0f} GB/s"
    ('ccl', 2147483648, '338 GB/s')
    """
    if run in _SUMMARIES:
        return _SUMMARIES[run]
    records = run.cases.to_pylist()
    place = {tuple(record[name] for name in schema.IDENTITY): at for at, record in enumerate(records)}
    infos = [PATTERNS[record["pattern"]] for record in records]
    nodes = series.one_node(run)
    ticks = _ticks(run)
    gathered = _Gathered()
    for identity, block in series.run_blocks(run):
        at = place.get(identity)
        if at is None or records[at]["status"] not in _SUMMARISED:
            continue
        record = records[at]
        measured = block.only(block.measured)
        one_node = nodes.get(identity[1], True)
        # An imported figure is one over all ranks: no rank lacks it.
        ranks = 1 if "origin" in run.info else record["ranks"]
        groups = record["groups"]
        times, slowest = series.headline(measured, infos[at], ranks, record["root"], one_node, groups)
        if times.size == 0 or median(times) <= 0:
            continue
        tick = ticks.get(identity[1], {}).get(block.event_clock, _EVENT_TICK_NS if block.event_clock else _HOST_TICK_NS)
        tick /= median(measured.iterations)
        gathered.add(at, series.HEADLINE, times, tick)
        gathered.slowest[at] = slowest
        lanes = np.unique(measured.lane)
        for lane in lanes.tolist() if len(lanes) > 1 else []:
            if groups > 1:  # each has the pattern's own timekeeper
                own = measured.only(measured.lane == lane)
                values, _ = series.headline(own, infos[at], ranks // groups, record["root"], one_node, groups)
            else:
                values = series.lane_series(measured, lane)
            gathered.add(at, lane, values, tick)
    _SUMMARIES[run] = _table(run, records, infos, gathered)
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


def _table(run: Run, records: list[dict[str, Any]], infos: list[PatternTraits], gathered: _Gathered) -> pa.Table:
    count = len(gathered.owners)
    found = group_statistics(gathered.values, gathered.ticks) if count else {}
    at_of = np.array([at for at, _ in gathered.owners], np.int64)
    payload = np.array([_payload(records[at], infos[at], lane) for at, lane in gathered.owners], np.float64)
    bus = np.array([float(infos[at].bus_factor(_ranks(records[at]))) for at, _ in gathered.owners], np.float64)
    algorithm = np.array([_algorithm_factor(infos[at], _ranks(records[at])) for at, _ in gathered.owners], np.float64)
    half = np.array([infos[at].latency_share for at, _ in gathered.owners], np.float64)
    columns: dict[str, Any] = {name: found[name] for name in STATISTICS} if count else {}
    if count:
        columns["p99_ns"] = np.where(found["effective_samples"] >= _P99_SAMPLES, found["p99_ns"], np.nan)
        columns |= {name: found[name] for name in ("samples", "warmup_cut", "effective_samples")}
        columns["latency_ns"] = columns["median_ns"] * half
        rates = {
            "": "median_ns",
            "_low": "interval_high_ns",
            "_high": "interval_low_ns",
            "_q1": "q3_ns",
            "_q3": "q1_ns",
        }
        for suffix, time in (rates | {"_mean": "mean_ns"}).items():
            columns[f"goodput{suffix}_bytes_per_s"] = _rate(payload, columns[time])
        columns["algbw_bytes_per_s"] = columns["goodput_bytes_per_s"] * algorithm
        columns["busbw_bytes_per_s"] = columns["goodput_bytes_per_s"] * bus
        sizes = [records[at]["size"] if infos[at].counts_messages else np.nan for at in at_of.tolist()]
        columns["messages_per_s"] = columns["goodput_bytes_per_s"] / np.array(sizes, np.float64)
        columns["max_rank_median_ns"] = np.array(
            [
                _median_after(gathered.slowest[at], columns["warmup_cut"][i]) if lane == series.HEADLINE else np.nan
                for i, (at, lane) in enumerate(gathered.owners)
            ]
        )
    keys, libraries = _launch_facts(run)
    rows_of: dict[int, list[int]] = {}
    for i, at in enumerate(at_of.tolist()):
        rows_of.setdefault(at, []).append(i)
    order: list[tuple[int, int]] = []  # place in the cases, place among the series or -1
    for at in range(len(records)):
        order += [(at, i) for i in rows_of.get(at, [-1])]
    takes = np.array([i for _, i in order], np.int64)
    none = takes < 0
    table = run.cases.take(pa.array([at for at, _ in order], pa.int64()))
    lanes = [gathered.owners[i][1] if i >= 0 else series.HEADLINE for _, i in order]
    launches = table["launch"].to_pylist()
    added: dict[str, Any] = {
        "lane": pa.array(lanes, pa.int32()),
        "lane_name": pa.array(
            [_lane_name(records[at], lane) for (at, _), lane in zip(order, lanes, strict=True)], pa.string()
        ),
        "launch_key": pa.array([keys.get(launch) for launch in launches], pa.string()),
        "library": pa.array(
            [
                libraries.get(launch, {}).get(records[at]["transport"])
                for launch, (at, _) in zip(launches, order, strict=True)
            ],
            pa.string(),
        ),
    }
    wanted = summary_schema()
    for name in wanted.names[len(table.column_names) + len(added) : -1]:
        kind = wanted.field(name).type
        if not count:
            added[name] = pa.nulls(len(order), kind)
            continue
        values = np.asarray(columns[name])[np.where(none, 0, takes)]
        missing = none | ~np.isfinite(values)
        added[name] = pa.array(values, kind, mask=missing)
    for name, column in added.items():
        table = table.append_column(wanted.field(name), column)
    medians, least = table["median_ns"].to_pylist(), table["min_ns"].to_pylist()
    told = [
        {**records[at], "launch_key": keys.get(records[at]["launch"]), "median_ns": medians[i], "min_ns": least[i]}
        for i, ((at, _), lane) in enumerate(zip(order, lanes, strict=True))
        if lane == series.HEADLINE
    ]
    distances = Distances(run, told)
    classes = [distances.of_row(records[at]) for at, _ in order]
    return table.append_column(wanted.field("distance"), pa.array(classes, pa.string()))


def _payload(record: dict[str, Any], info: PatternTraits, lane: int) -> float:
    """Return goodput's numerator in bytes: of all lanes for the headline; nan where a pattern has no goodput."""
    if info.latency_only:
        return float("nan")
    payload = float(info.payload_bytes(record["size"], _ranks(record), record["window"], record["distribution"]))
    lanes = 2 if _both_in_one(record) else len(record["lanes"] or [])
    if (info.timekeeper == "lanes" or record["groups"] > 1) and lane == series.HEADLINE and lanes > 1:
        return payload * lanes
    return payload


def _algorithm_factor(info: PatternTraits, ranks: int) -> float:
    """Return algbw / goodput; nan where nccl-tests has no such collective."""
    return float(info.algorithm_factor(ranks)) if info.algorithm_factor is not None else float("nan")


def _ranks(record: dict[str, Any]) -> int:
    """Return how many ranks do the pattern with each other."""
    return int(record["ranks"]) // int(record["groups"])


def _both_in_one(record: dict[str, Any]) -> bool:
    """Whether one lane's time is of both ways: `bidirectional` inside one device."""
    return bool(PATTERNS[record["pattern"]].both_ways and record["ranks"] == 1 and len(record["lanes"] or []) == 1)


def _rate(payload: Floats, times_ns: Floats) -> Floats:
    """Return bytes per second; infinite where a time is 0, which becomes a missing value."""
    with np.errstate(divide="ignore"):
        rate: Floats = payload / times_ns * 1e9
    return rate


def _median_after(values: Floats, cut: int) -> float:
    return median(values[cut:]) if values.size > cut else float("nan")


def _lane_name(record: dict[str, Any], lane: int) -> str:
    lanes = record["lanes"] or []
    if lane == series.HEADLINE:
        return "sum" if len(lanes) > 1 or _both_in_one(record) else ""
    return str(lanes[lane]) if lane < len(lanes) else str(lane)


def _ticks(run: Run) -> dict[int, dict[bool, float]]:
    """Return the stored resolutions of each launch's clocks in ns, by whether it is the event clock."""
    ticks: dict[int, dict[bool, float]] = {}
    for launch, text in zip(run.launches["launch"].to_pylist(), run.launches["clock"].to_pylist(), strict=True):
        clock = json_object(text)
        known = ((False, clock.get("resolution_ns")), (True, clock.get("event_resolution_ns")))
        ticks[launch] = {event: tick for event, tick in known if tick}
    return ticks


def _launch_facts(run: Run) -> tuple[dict[int, str], dict[int, dict[str, str]]]:
    """Return each launch's key, and the name and version of the library behind each of its transports."""
    keys: dict[int, str] = {}
    libraries: dict[int, dict[str, str]] = {}
    for row in run.launches.select(["launch", "launch_key", "mpi", "versions"]).to_pylist():
        keys[row["launch"]] = row["launch_key"]
        mpi, versions = json_object(row["mpi"]), json_object(row["versions"])
        known: dict[str, str] = {}
        name, version = (mpi.get(word) or "" for word in ("name", "version"))
        if not name.endswith(version):  # as 'openmpi-4.1.4' does; an imported run's may not
            name = f"{name} {version}".strip()
        if name:
            known |= {"mpi": name, "staging": name}
        for library in ("nccl", "rccl"):
            if versions.get(library):
                known["ccl"] = f"{library.upper()} {versions[library]}"
        for transport, nic in NIC_LIBRARIES.items():
            if versions.get(transport):
                known[transport] = f"{nic.name} {versions[transport]}"
        libraries[row["launch"]] = known
    return keys, libraries
