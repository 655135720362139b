"""From samples to the series of times that a case is judged by: its timekeepers', per iteration, in ns.

Who keeps a pattern's time is docs/definitions.md's table; the rule for the slowest rank is its section on samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from linkgauge.errors import RunFolderError
from linkgauge.model.patterns import PATTERNS, PatternTraits
from linkgauge.stats.basics import Floats
from linkgauge.store import schema

if TYPE_CHECKING:
    import pyarrow as pa

    from linkgauge.model.case import Case
    from linkgauge.model.result import Row
    from linkgauge.store.run import Run


COLUMNS = [*schema.IDENTITY, "rank", "lane", "sample", "phase", "scheduled_ns", "start_ns", "ns", "iterations", "clock"]


@dataclasses.dataclass(frozen=True)
class Block:
    """The samples of one row identity. Arrays of one length; times in ns.

    `measured`: the case's own, beside its loads where it has any; `alone`: taken by turns with these, while they rest.
    """

    rank: npt.NDArray[np.int32]
    lane: npt.NDArray[np.int16]
    sample: npt.NDArray[np.int32]
    measured: npt.NDArray[np.bool_]
    alone: npt.NDArray[np.bool_]
    scheduled_ns: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    ns: npt.NDArray[np.int64]
    iterations: npt.NDArray[np.int64]
    event_clock: bool

    def only(self, chosen: npt.NDArray[np.bool_]) -> Block:
        """Return the samples that `chosen` (one bool a sample) picks."""
        if chosen.all():
            return self
        # By name and not by dataclasses.replace, which costs more than the choice itself.
        return Block(
            self.rank[chosen], self.lane[chosen], self.sample[chosen], self.measured[chosen], self.alone[chosen],
            self.scheduled_ns[chosen], self.start_ns[chosen], self.ns[chosen], self.iterations[chosen],
            self.event_clock,
        )  # fmt: skip


def blocks(samples: pa.Table) -> Iterator[tuple[tuple[str, int, int, int], Block]]:
    """Yield each row identity with its samples, from a table of COLUMNS."""
    keys, codes = _coded(samples["case_key"])
    numbers = {name: samples[name].to_numpy() for name in COLUMNS[1:] if name not in ("phase", "clock")}
    numbers["measured"] = _is(samples["phase"], "sample")
    numbers["alone"] = _is(samples["phase"], "alone")
    numbers["event"] = _is(samples["clock"], "event")
    identity = [codes, *(numbers[name] for name in schema.IDENTITY[1:])]
    starts = _starts(identity)
    first = [column[starts] for column in identity]
    if len(set(zip(*(column.tolist() for column in first), strict=True))) < len(starts):
        # Not as the store writes them: bring the rows of one identity together, in their order.
        order = np.lexsort(identity[::-1])
        identity = [column[order] for column in identity]
        numbers = {name: values[order] for name, values in numbers.items()}
        starts = _starts(identity)
        first = [column[starts] for column in identity]
    ends = np.append(starts[1:], samples.num_rows).tolist()
    names = ("rank", "lane", "sample", "measured", "alone", "scheduled_ns", "start_ns", "ns", "iterations")
    rows = zip(*(column.tolist() for column in first), strict=True)
    for (code, launch, repeat, attempt), start, end in zip(rows, starts.tolist(), ends, strict=True):
        part = {name: numbers[name][start:end] for name in names}
        yield (keys[code], launch, repeat, attempt), Block(**part, event_clock=bool(numbers["event"][start]))


def run_blocks(run: Run) -> Iterator[tuple[tuple[str, int, int, int], Block]]:
    """Yield each row identity of a run with its samples, reading part after part."""
    seen: dict[tuple[str, int, int, int], int] = {}
    for number, table in enumerate(run.sample_groups(list(COLUMNS))):
        for identity, block in blocks(table):
            if seen.setdefault(identity, number) != number:
                raise RunFolderError(f"{run.path}: the samples of case {identity[0]} lie in several parts")
            yield identity, block


def headline(
    block: Block, info: PatternTraits, ranks: int, root: int, one_node: bool, groups: int = 1
) -> tuple[Floats, Floats]:
    """Return two series in ns per iteration, in the order of the samples: the case's time, and max over ranks of ns.

    Of several groups side by side it is the slowest one's, whose root is the only rank of it with samples where a root
    keeps the time.
    The first is the time by the pattern's timekeeper; of a case with several lanes, the slower one's, by which the
    sum of the lanes is reckoned. The second is that of De Sensi et al. (SC'24), the same where the timekeeper is one
    rank. Samples that a rank lacks are left out where the ranks are compared.
    """
    if groups == 1 and info.timekeeper in ("starter", "sender", "root"):
        keeper = root if info.timekeeper == "root" else 0
        own = block.only(block.rank == keeper)
        if block.event_clock and not own.rank.size:
            own = block  # by events the rank that queues the copies keeps the time, here the receiver alone
        order = np.argsort(own.sample, kind="stable")
        series = own.ns[order] / own.iterations[order]
        return series, series
    columns = _by_sample(block, ranks if info.timekeeper == "slowest" else 1)
    if columns is None:
        return np.empty(0), np.empty(0)
    ns, end, scheduled, iterations = columns
    slowest = ns.max(axis=0) / iterations
    host_schedule = one_node and not block.event_clock and bool(scheduled.size) and bool((scheduled > 0).all())
    if info.timekeeper == "slowest" and host_schedule:
        times = end.max(axis=0) - scheduled
        if times.min() < 0:
            raise RunFolderError("damaged samples: some end before the start that was agreed on")
        return times / iterations, slowest
    return slowest, slowest


def headline_of(block: Block, case: Case, one_node: bool) -> tuple[Floats, Floats]:
    """Return `headline` of a case's samples."""
    return headline(block, PATTERNS[case.pattern], case.ranks, case.root, one_node, case.groups)


def lane_series(block: Block, lane: int) -> Floats:
    """Return the series of one lane in ns per iteration, in the order of the samples: the slowest of its ranks."""
    own = block.only(block.lane == lane)
    columns = _by_sample(own, 1)
    if columns is None:
        return np.empty(0)
    series: Floats = columns[0].max(axis=0) / columns[3]
    return series


def samples_of(run: Run, row: Row) -> pa.Table:
    """Return the samples of one row: a table of the columns of samples."""
    import pyarrow.compute as pc

    samples = run.samples
    chosen = None
    for name, value in zip(schema.IDENTITY, row.identity, strict=True):
        same = pc.equal(samples[name], value)
        chosen = same if chosen is None else pc.and_(chosen, same)
    return samples.filter(chosen)


def one_node(run: Run) -> dict[int, bool]:
    """Return for each launch whether all of its ranks are on one host, so that they share a steady clock."""
    return {launch.launch: len(launch.hosts) <= 1 for launch in run.launched}


def _by_sample(block: Block, ranks: int) -> tuple[Any, Any, Any, Any] | None:
    """Return ns and end as arrays of (series, samples), scheduled_ns and iterations as arrays of samples.

    A series is one rank on one lane. Samples that one of the series lacks are left out; None where a rank has none.
    """
    lanes = block.rank.astype(np.int64) << 16 | block.lane
    starts = np.flatnonzero(np.append(True, lanes[1:] != lanes[:-1])) if lanes.size else np.empty(0, np.int64)
    count = len(starts)
    if count == 0 or len(np.unique(block.rank[starts])) < ranks:
        return None
    length = lanes.size // count
    regular = lanes.size == count * length and bool((starts == np.arange(count) * length).all())
    if regular:
        number = block.sample.reshape(count, length)
        regular = bool((number == number[0]).all()) and bool((number[0, 1:] > number[0, :-1]).all())
    if not regular:
        block, count = _regular(block, lanes)
        length = block.ns.size // count
    shape = (count, length)
    ns = block.ns.reshape(shape)
    return ns, block.start_ns.reshape(shape) + ns, block.scheduled_ns[:length], block.iterations[:length]


def _regular(block: Block, lanes: npt.NDArray[np.int64]) -> tuple[Block, int]:
    """Sort by series and sample, and keep the samples that every series has exactly once."""
    order = np.lexsort((block.sample, lanes))
    names = [field.name for field in dataclasses.fields(block) if field.name != "event_clock"]
    block = dataclasses.replace(block, **{name: getattr(block, name)[order] for name in names})
    count = len(np.unique(lanes))
    numbers, times = np.unique(block.sample, return_counts=True)
    pairs = np.unique(np.stack([lanes[order], block.sample]), axis=1)
    distinct = np.unique(pairs[1], return_counts=True)[1]
    whole = numbers[(times == count) & (distinct == count)]
    return block.only(np.isin(block.sample, whole)), count


def _starts(columns: list[Any]) -> npt.NDArray[np.int64]:
    """Return where a new identity starts."""
    if len(columns[0]) == 0:
        return np.empty(0, np.int64)
    changed = np.zeros(len(columns[0]) - 1, np.bool_)
    for column in columns:
        changed |= column[1:] != column[:-1]
    return np.append(0, np.flatnonzero(changed) + 1)


def _coded(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the words of a dictionary column and the code of each row. The chunks share one dictionary."""
    import pyarrow as pa

    if column.num_chunks == 0:
        return [], np.empty(0, np.int32)
    codes = pa.chunked_array([chunk.indices for chunk in column.chunks], pa.int32()).to_numpy()
    return column.chunk(0).dictionary.to_pylist(), codes


def _is(column: pa.ChunkedArray, word: str) -> npt.NDArray[np.bool_]:
    words, codes = _coded(column)
    if word not in words:
        return np.zeros(len(codes), np.bool_)
    same: npt.NDArray[np.bool_] = codes == words.index(word)
    return same
