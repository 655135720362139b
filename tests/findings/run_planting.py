"""Causes planted into the samples of a real run folder: what is written is a run folder again, later and longer.

Shares no code with the rules. A sample that takes longer moves everything after it: the rounds of samples are gone
through in the order of the host's clock, each one's start, and that of every later round and observation, moved by what
came on top before it. So a disturbance at a moment, or every 10 ms, meets whichever samples it would have met.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from run_wires import ALL_LANES, Identity, Record, Wire, Wires

from linkgauge.model.patterns import PATTERNS
from linkgauge.store.run import Run, load

Ints = npt.NDArray[np.int64]
MS = 1_000_000
COLLECTIVE_LATE_NS = 20_000
TICK_NS, TICK_EVERY_NS = 30_000, 10 * MS
SLOWER = 0.15
_POWER_CAP = 0x4  # NVML's bit


@dataclasses.dataclass
class Round:
    """One sample of a case on all of its ranks and lanes. Times in ns; arrays have an entry a row.

    `now_ns` is when it begins (was scheduled, or started) with all that was planted before it; `was_ns` when it did
    without. `lag` is how much later each row started, `ns` how long it took.
    """

    identity: Identity
    record: Record
    rank: Ints
    lane: Ints
    ns: Ints
    iterations: Ints
    lag: Ints
    was_ns: int
    now_ns: int
    measured: bool


Change = Callable[[Round], tuple[Ints, Ints] | None]
"""Returns by how much each row starts and ends later, None for not at all."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """What is planted. `kind` and `devices` say which finding would name it; `what` is for people.

    `observed`: a device whose observations tell of throttling from `since_ns` (before planting) on.
    """

    kind: str
    devices: tuple[int, ...]
    what: str
    change: Change
    observed: int | None = None
    since_ns: int = 0


def _longer(round_: Round, share: npt.NDArray[np.float64]) -> tuple[Ints, Ints]:
    more = np.rint(round_.ns * share).astype(np.int64)
    return np.zeros_like(more), more


def slow_wires(wires: Wires, slow: Mapping[Wire, float]) -> Change:
    """Wires that lack a share of their rate, all the time."""
    shares: dict[Identity, dict[int, float]] = {}

    def change(round_: Round) -> tuple[Ints, Ints] | None:
        if round_.identity not in shares:
            shares[round_.identity] = wires.longer(round_.identity, slow)
        mine = shares[round_.identity]
        if not mine:
            return None
        if ALL_LANES in mine:
            return _longer(round_, np.full(round_.ns.shape, mine[ALL_LANES]))
        return _longer(round_, np.array([mine.get(int(lane), 0.0) for lane in round_.lane]))

    return change


def late_rank(device: int, late_ns: int = COLLECTIVE_LATE_NS) -> Change:
    """A rank that comes late to every collective; the others wait for it."""

    def change(round_: Round) -> tuple[Ints, Ints] | None:
        devices = list(round_.record["devices"])
        if device not in devices or len(devices) < 2 or not PATTERNS[round_.record["pattern"]].collective:
            return None
        mine = round_.rank == devices.index(device)
        starts = np.where(mine, late_ns, 0).astype(np.int64)
        arrived = int((round_.lag + starts).max() - round_.lag.max()) if mine.any() else late_ns
        return starts, np.full(round_.ns.shape, max(0, arrived), np.int64)

    return change


def slow_from(device: int, moment_ns: int, share: float = SLOWER) -> Change:
    """A device that does everything slower from a moment of the run (before planting) on."""

    def change(round_: Round) -> tuple[Ints, Ints] | None:
        if round_.was_ns < moment_ns or device not in round_.record["devices"]:
            return None
        lanes = list(round_.record["lanes"] or [])
        alone = len(lanes) > 1 and round_.record["pattern"] in ("host_to_device", "device_to_host")
        hit = np.array([list(round_.record["devices"])[rank] == device for rank in round_.rank]) if alone else True
        return _longer(round_, np.where(hit, share / (1 - share), 0.0) * np.ones(round_.ns.shape))

    return change


def ticks(device: int | None, phase_ns: int, every_ns: int = TICK_EVERY_NS, lasts_ns: int = TICK_NS) -> Change:
    """A disturbance at a steady period, of one rank, or of the whole host (None)."""

    def change(round_: Round) -> tuple[Ints, Ints] | None:
        if device is not None and device not in round_.record["devices"]:
            return None
        end = round_.now_ns + int((round_.lag + round_.ns).max())
        count = (end - phase_ns) // every_ns - (round_.now_ns - phase_ns) // every_ns
        if count <= 0:
            return None
        return np.zeros_like(round_.ns), np.full(round_.ns.shape, count * lasts_ns, np.int64)

    return change


def resampled(seed: int, stretch: int = 8) -> Change:
    """Each case's samples drawn again from its own, in stretches, so that neighbors stay neighbors.

    To be the first of several changes; needs `rounds_of` of the run, which `plant` gives it.
    """
    return _Resampled(np.random.default_rng(seed), stretch)


@dataclasses.dataclass
class _Resampled:
    rng: np.random.Generator
    stretch: int
    drawn: dict[tuple[Identity, bool], list[Round]] = dataclasses.field(default_factory=dict)

    def read(self, rounds: list[Round]) -> None:
        own: dict[tuple[Identity, bool], list[Round]] = {}
        for one in rounds:
            own.setdefault((one.identity, one.measured), []).append(one)
        for key, mine in own.items():
            order: list[int] = []
            while len(order) < len(mine) and key[1]:
                first = int(self.rng.integers(len(mine)))
                order += [(first + i) % len(mine) for i in range(min(self.stretch, len(mine) - len(order)))]
            self.drawn[key] = [mine[i] for i in order][::-1]

    def __call__(self, round_: Round) -> tuple[Ints, Ints] | None:
        mine = self.drawn[round_.identity, round_.measured]
        if not mine:
            return None  # warm-up stays as it was
        other = mine.pop()
        if other.lag.shape != round_.lag.shape:
            return None
        return other.lag - round_.lag, (other.lag + other.ns) - (round_.lag + round_.ns)


def rounds_of(run: Run) -> tuple[pa.Table, list[tuple[npt.NDArray[np.int64], Round]]]:
    """Return the samples' table, and each round with the numbers of its rows in the table, by the host's clock."""
    records = {(row["case_key"], row["launch"], row["repeat"], row["attempt"]): row for row in run.cases.to_pylist()}
    table = run.samples.combine_chunks()
    keys = table["case_key"].to_pylist()
    columns = {name: table[name].to_numpy() for name in ("launch", "repeat", "attempt", "rank", "lane", "sample")}
    times = {name: table[name].to_numpy().astype(np.int64) for name in ("scheduled_ns", "start_ns", "ns", "iterations")}
    measured = np.asarray(table["phase"].to_pylist()) == "sample"
    rows: dict[tuple[Any, ...], list[int]] = {}
    names = ("launch", "repeat", "attempt", "sample")
    numbers = zip(*(columns[name].tolist() for name in names), strict=True)
    for row, (key, (launch, repeat, attempt, sample), phase) in enumerate(
        zip(keys, numbers, measured.tolist(), strict=True)
    ):
        rows.setdefault((key, launch, repeat, attempt, phase, sample), []).append(row)
    found = []
    for (key, launch, repeat, attempt, phase, _), own in rows.items():
        mine = np.asarray(own)
        begin = int(times["scheduled_ns"][mine].max()) or int(times["start_ns"][mine].min())
        identity = (key, launch, repeat, attempt)
        found.append(
            (mine, Round(identity, records[identity], columns["rank"][mine].astype(np.int64),
                         columns["lane"][mine].astype(np.int64), times["ns"][mine], times["iterations"][mine],
                         times["start_ns"][mine] - begin, begin, begin, phase))
        )  # fmt: skip
    found.sort(key=lambda one: one[1].was_ns)
    return table, found


def plant(run: Run, out: Path, changes: list[Change], observed: tuple[int, int] | None = None) -> None:
    """Write the run with changes planted into its samples to the new folder `out`.

    `observed`: (device, ns of the run's clock) from when on observations tell that the device was throttled.
    """
    table, rounds = rounds_of(run)
    for change in changes:
        if isinstance(change, _Resampled):
            change.read([one for _, one in rounds])
    start, ns, scheduled = (table[name].to_numpy().astype(np.int64) for name in ("start_ns", "ns", "scheduled_ns"))
    shift = 0
    moments, shifts = [], []
    for mine, was in rounds:
        now = dataclasses.replace(was, now_ns=was.was_ns + shift)
        for change in changes:
            later = change(now)
            if later is not None:
                lag = now.lag + later[0]
                now = dataclasses.replace(now, lag=lag, ns=np.maximum(1, now.lag + now.ns + later[1] - lag))
        start[mine], ns[mine] = now.now_ns + now.lag, now.ns
        scheduled[mine] = np.where(scheduled[mine] > 0, scheduled[mine] + shift, 0)
        shift += int((now.lag + now.ns).max() - (was.lag + was.ns).max())
        moments.append(was.was_ns)
        shifts.append(shift)
    out.mkdir(parents=True, exist_ok=True)
    for name, values in (("start_ns", start), ("ns", ns), ("scheduled_ns", scheduled)):
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), pa.array(values))
    _write(run, out, "samples", table)
    seen = run.observations.combine_chunks()
    when = seen["when_ns"].to_numpy()
    place = np.searchsorted(moments, when, side="right") - 1
    moved = when + np.where(place >= 0, np.asarray(shifts, np.int64)[place], 0)
    seen = seen.set_column(seen.schema.get_field_index("when_ns"), seen.schema.field("when_ns"), pa.array(moved))
    cases = run.cases
    if observed is not None:
        seen, cases = _throttled(run, seen, when, moved, *observed)
    _write(run, out, "observations", seen)
    _write(run, out, "cases", cases)
    _write(run, out, "launches", run.launches)
    (out / "journal").mkdir(exist_ok=True)
    shutil.copy(run.path / "run.json", out / "run.json")


def _write(run: Run, out: Path, name: str, table: pa.Table) -> None:
    covered = {"linkgauge_launches": json.dumps(run.launches["launch"].to_pylist())}
    pq.write_table(
        table.replace_schema_metadata(covered), out / f"{name}.parquet", compression="zstd", write_page_checksum=True
    )


def _throttled(
    run: Run, seen: pa.Table, was: npt.NDArray[np.int64], now: npt.NDArray[np.int64], device: int, since_ns: int
) -> tuple[pa.Table, pa.Table]:
    """Let observations of a device from a moment on say that a power cap holds its clocks down.

    The violation's counter grows with the time since; each case after the moment gets a reading of the reasons, and has
    `throttled` in its evidence, as run/machine/observe.py writes it.
    """
    subject = f"cuda:{device}"
    rows = seen.to_pylist()
    started = int(now[was >= since_ns].min()) if (was >= since_ns).any() else 0
    added, told = [], set()
    for row, moment in zip(rows, was.tolist(), strict=True):
        if row["subject"] != subject or moment < since_ns:
            continue
        if row["name"] == "power_violation":
            row["value"] = float(row["value"]) + SLOWER * (row["when_ns"] - started)
            added.append({**row, "name": "throttle_reasons", "value": float(_POWER_CAP), "unit": ""})
            if row["moment"] == "after":
                told.add(tuple(row[name] for name in ("case_key", "launch", "repeat", "attempt")))
    records = run.cases.to_pylist()
    for record in records:
        if tuple(record[name] for name in ("case_key", "launch", "repeat", "attempt")) in told:
            evidence = json.loads(record["evidence"] or "{}")
            record["evidence"] = json.dumps({**evidence, "throttled": {subject: ["power cap"]}})
    return (
        pa.Table.from_pylist(rows + added, schema=seen.schema.remove_metadata()),
        pa.Table.from_pylist(records, schema=run.cases.schema.remove_metadata()),
    )


CAUSES = (
    "port_10", "port_20", "pair_10", "pair_20", "host_10", "host_20", "late", "slow_from", "throttled", "periodic",
    "all_slow",
)  # fmt: skip
"""What is planted: parts that lack 10 or 20 % of their rate; a rank 20 us late; a device 15 % slower from a moment on,
unobserved and observed; 30 us every 10 ms; all ports and pairs 15 % slower."""


def possible_causes(run: Run) -> list[str]:
    """Return the causes that have something to act on in a run: a port, a collective, ..."""
    wires = Wires(run)
    records = wires.records.values()
    parts = {kind: bool(wires.known(kind)) for kind in ("port", "pair", "host")}
    parts["late"] = any(PATTERNS[record["pattern"]].collective for record in records)
    parts["all"] = parts["port"]
    parts["throttled"] = any(row == "power_violation" for row in run.observations["name"].to_pylist())
    return [name for name in CAUSES if parts.get(name, parts.get(name.partition("_")[0], True))]


def cause(run: Run, name: str, seed: int) -> Cause:
    """Return a variant of a cause: which part, which way, when. ValueError where the run has no such part."""
    rng = np.random.default_rng([CAUSES.index(name) if name in CAUSES else 99, seed])
    base, _, percent = name.partition("_")
    if base in ("port", "pair", "host") and percent.isdigit():
        return _slow_part(Wires(run), base, int(percent) / 100, rng)
    devices = sorted({int(d) for record in run.cases.to_pylist() for d in record["devices"]})
    device = int(rng.choice(devices))
    if name == "late":
        return Cause("late", (device,), f"rank {device} 20 us late to every collective", late_rank(device))
    starts = run.samples["start_ns"].to_numpy()
    if name in ("slow_from", "throttled"):
        share = float(rng.uniform(0.4, 0.6))
        moment = int(np.quantile(starts, share))
        words = f"device {device} {SLOWER:.0%} slower after {share:.0%} of the samples"
        observed = device if name == "throttled" else None
        return Cause(name, (device,), words, slow_from(device, moment), observed, moment)
    if name == "periodic":
        phase = int(starts.min()) + int(rng.integers(TICK_EVERY_NS))
        whole = bool(rng.random() < 0.5)
        words = f"30 us every 10 ms on {'the host' if whole else f'device {device}'}"
        return Cause("periodic", () if whole else (device,), words, ticks(None if whole else device, phase))
    if name == "all_slow":
        wires = Wires(run)
        slow = dict.fromkeys(wires.known("port"), SLOWER)
        return Cause("all_slow", (), f"all ports {SLOWER:.0%} slower", slow_wires(wires, slow))
    raise ValueError(f"unknown cause {name!r}: expected one of {', '.join(CAUSES)}")


def _slow_part(wires: Wires, kind: str, lacks: float, rng: np.random.Generator) -> Cause:
    known = wires.known(kind)
    if not known:
        raise ValueError(f"no case of this run crosses a {kind}")
    wire = known[int(rng.integers(len(known)))]
    both = bool(rng.random() < 0.5)
    if kind == "pair":
        way = f"{wire.ends[0]}->{wire.ends[1]}"
        slow = {wire: lacks, Wire("pair", wire.ends[::-1]): lacks} if both else {wire: lacks}
    else:
        way = wire.way
        slow = {one: lacks for one in known if one.ends == wire.ends and (both or one.way == wire.way)}
    words = f"{kind} {'-'.join(map(str, wire.ends))} {'both ways' if both else way} {lacks:.0%} slower"
    return Cause(kind, tuple(sorted(wire.ends)), words, slow_wires(wires, slow))


def planted(path: Path, out: Path, name: str, seed: int, resample: bool = True) -> Cause:
    """Plant a variant of a cause (or "clean") into the run folder `path`, with its samples drawn again by `seed`."""
    run = load(path)
    made = Cause("clean", (), "nothing", lambda round_: None) if name == "clean" else cause(run, name, seed)
    changes = [resampled(seed)] if resample else []
    observed = None if made.observed is None else (made.observed, made.since_ns)
    plant(run, out, [*changes, made.change], observed)
    return made
