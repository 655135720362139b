"""Run folders made up from a seed, through the store's own writer: for tests of what reads run folders.

    path = make_run(tmp_path / "run", seed=1)                       # four devices, three transports, five patterns
    path = make_run(tmp_path / "run", cases=[...], time_ns=model)    # your cases, your model of their time

A model takes a case and returns the time of one iteration in ns, noise left out; `link_model` is the one used by
default, and takes planted faults (a slow link). Noise is log-normal with an autocorrelation `rho`, and is drawn from
the seed, so that a folder is the same at every call. `statuses` maps a case_key to (status, reason) for cases that did
not end well, and `skipped` lists (case, reason).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.model.patterns import pattern
from linkgauge.model.stop_rule import StopRule
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter

GIB = 1 << 30
SIZES = tuple(1 << power for power in range(3, 31, 3))  # 8 B to 1 GiB
START_NS = 1_000_000_000_000

# Per transport: overhead of one operation in ns, rate in bytes per ns (GB/s). Made up, in the order of an H200's.
TRANSPORTS: dict[str, tuple[float, float]] = {
    "staging": (14_000.0, 22.0),
    "copy_engine": (6_000.0, 370.0),
    "kernel": (3_500.0, 330.0),
    "ccl": (11_000.0, 355.0),
    "mpi": (9_000.0, 300.0),
}


def make_case(
    transport: str, pattern_name: str, size: int, devices: Sequence[int] = (0, 1, 2, 3), **settings: Any
) -> Case:
    """Return a case with `size` restated as whole blocks of float32 where the pattern cuts blocks."""
    info = pattern(pattern_name)
    chosen = tuple(devices)
    if info.ranks in ("2", "1 or 2"):
        chosen = chosen[:2]
    elif info.ranks in ("1", "first"):
        chosen = chosen[:1]
    m = size
    if info.blocks:
        m = size // 4 // len(chosen) * 4 * len(chosen)
    settings.setdefault("stop", StopRule(samples=200))
    return Case(transport=transport, pattern=pattern_name, size=m, size_requested=size, devices=chosen, **settings)


def usual_cases(
    transports: Iterable[str] = ("staging", "copy_engine", "ccl"),
    patterns: Iterable[str] = ("pingpong", "unidirectional", "bidirectional", "alltoall", "allreduce"),
    sizes: Iterable[int] = SIZES,
    devices: Sequence[int] = (0, 1, 2, 3),
) -> list[Case]:
    """Return the product of transports, patterns and sizes, without blocks of nothing."""
    sizes = tuple(sizes)
    made = [make_case(t, p, s, devices) for p in patterns for t in transports for s in sizes]
    return [case for case in made if case.size > 0]


def pair_cases(
    pattern_name: str, size: int, devices: Sequence[int] = (0, 1, 2, 3), transport: str = "copy_engine"
) -> list[Case]:
    """Return one case for each ordered pair of devices, a device with itself (one rank) included."""
    return [make_case(transport, pattern_name, size, (a, b) if a != b else (a,)) for a in devices for b in devices]


def link_model(slow: Mapping[tuple[int, int], float] | None = None) -> Callable[[Case], float]:
    """Return a model of overhead plus bytes over the slowest link; `slow` scales the rate of directed pairs."""
    slow = dict(slow or {})

    def time_ns(case: Case) -> float:
        overhead, rate = TRANSPORTS[case.transport]
        info = pattern(case.pattern)
        n = case.ranks
        pairs = [(a, b) for a in case.devices for b in case.devices if a != b]
        if n == 2 and info.timekeeper == "sender":
            pairs = pairs[:1]
        share = min((slow.get(pair, 1.0) for pair in pairs), default=1.0)
        if len(set(case.devices)) == 1:
            share *= 4  # inside one device
        payload = float(info.payload_bytes(case.size, n, case.window) * info.bus_factor(n))
        passes = 2 if case.pattern in ("pingpong", "flag_pingpong", "allreduce") else 1
        return passes * overhead * (1 + 0.15 * max(0, n - 2)) + payload / (rate * share)

    return time_ns


@dataclasses.dataclass(frozen=True)
class Noise:
    """Log-normal noise: relative spread, autocorrelation at lag 1, and the spread between launches."""

    sigma: float = 0.02
    rho: float = 0.0
    launch_sigma: float = 0.003
    warmup_factor: float = 3.0


def device(ordinal: int, host: str) -> dict[str, Any]:
    """Return a made-up device as a launch's record holds it."""
    return {
        "uuid": f"GPU-{host}-{ordinal:04d}",
        "serial": f"16500{ordinal:05d}",
        "pci_address": f"0000:{0x1B + 0x20 * ordinal:02x}:00.0",
        "vbios": "96.00.A0.00.01",
        "name": "Synthetic GPU",
        "ordinal": ordinal,
        "kind": "cuda",
    }


@dataclasses.dataclass
class _Writing:
    """What the writing of one run folder needs to know."""

    folder: RunFolder
    rng: np.random.Generator
    samples: int
    warmup: int
    model: Callable[[Case], float]
    noise: Noise
    statuses: Mapping[str, tuple[str, str]]
    host: str
    hosts: Sequence[str]
    observations: Sequence[Mapping[str, Any]]
    evidence: Mapping[str, Any]


def make_run(
    path: Path,
    *,
    cases: Sequence[Case] | None = None,
    seed: int = 0,
    samples: int = 200,
    warmup: int = 5,
    repeats: int = 1,
    time_ns: Callable[[Case], float] | None = None,
    noise: Noise = Noise(),
    statuses: Mapping[str, tuple[str, str]] | None = None,
    skipped: Sequence[tuple[Case, str]] = (),
    host: str = "synthetic",
    hosts: Sequence[str] = (),
    info: Mapping[str, Any] | None = None,
    launches: Sequence[Mapping[str, Any]] = (
        {"launch_key": "0123456789abcdef", "mpi": {"name": "MPICH", "version": "5.0.2"}},
    ),
    compact: bool = True,
    observations: Sequence[Mapping[str, Any]] = (),
    evidence: Mapping[str, Any] | None = None,
) -> Path:
    """Write a run folder and return its path. With `compact=False` it is left as journals, as a run in progress is.

    `samples` and `warmup` are counts for each rank and case; `launches` holds one launch record's contents each, and
    `repeats` makes as many fresh launches of each; `observations` and `evidence` are stored with every case. `hosts`:
    of each rank, where there are several.
    """
    cases = usual_cases() if cases is None else list(cases)
    machine = {
        "hosts": [host],
        "cpu": "Synthetic CPU",
        "cores": 64,
        "memory_bytes": 512 * GIB,
        "kernel": "6.1.0",
        "devices": [device(ordinal, host) for ordinal in sorted({d for case in cases for d in case.devices})],
    }
    facts = {"machine": machine, "versions": {"linkgauge": "0.1.0"}, "seed": seed, "start": "2026-01-02T03:04:05+00:00"}
    facts |= {"requested": {"command": "linkgauge run"}, "end": "2026-01-02T03:09:05+00:00"}
    facts |= {"clock": {"cost_ns": 18.0, "resolution_ns": 1.0}, **(info or {})}
    folder = RunFolder.create(path, facts)
    writing = _Writing(
        folder,
        np.random.default_rng(seed),
        samples,
        warmup,
        time_ns or link_model(),
        noise,
        statuses or {},
        host,
        hosts,
        observations,
        evidence or {},
    )
    launch = 0
    for contents in launches:
        for repeat in range(repeats):
            _write_launch(writing, launch, repeat, dict(contents), cases)
            launch += 1
    for case, reason in skipped:
        header = {"case_key": case.case_key, "launch": -1, "repeat": 0, "attempt": 0, "case": case.dimensions()}
        folder.status_journal().append("status", header | {"status": "skipped", "reason": reason}, durable=False)
    if compact:
        folder.compact(finish=True)
    folder.close()
    return path


def _write_launch(writing: _Writing, launch: int, repeat: int, contents: dict[str, Any], cases: Sequence[Case]) -> None:
    ordinals = sorted({ordinal for case in cases for ordinal in case.devices})
    ranks = [
        {
            "rank": r,
            "host": writing.hosts[r] if writing.hosts else writing.host,
            "pid": 1000 + r,
            "cores": [r],
            "memory_node": r // 2,
            "device": device(d, writing.hosts[r] if writing.hosts else writing.host),
        }
        for r, d in enumerate(ordinals)
    ]
    common = {"env": {}, "versions": {"nccl": "2.28.9"}, "clock": {"cost_ns": 18.0, "resolution_ns": 1.0}}
    statuses = writing.folder.status_journal()
    with JournalWriter(writing.folder.journal_path(launch)) as journal:
        journal.append("launch", common | contents | {"launch": launch, "ranks": ranks}, durable=False)
        now = START_NS + launch * 10**12
        for index, case in enumerate(cases):
            identity = {"case_key": case.case_key, "launch": launch, "repeat": repeat, "attempt": 0}
            journal.append("begin", identity | {"index": index}, durable=False)
            status, reason = writing.statuses.get(case.case_key, ("ok", ""))
            told = identity | {"case": case.dimensions(), "status": status, "reason": reason}
            if status in ("ok", "timeout"):
                shift = float(np.exp(writing.noise.launch_sigma * writing.rng.standard_normal()))
                columns, now = draw_samples(writing, case, writing.model(case) * shift, now)
                evidence = {**writing.evidence, **({"stopped_by": "timeout"} if status == "timeout" else {})}
                told["evidence"] = evidence
                journal.append("case", told | _facts(case, writing.samples + writing.warmup) | {"evidence": evidence},
                               columns, durable=False)  # fmt: skip
            statuses.append("status", told, durable=False)
            if writing.observations:
                # One case's readings come after those of the case before.
                rows = [{**row, "when_ns": row["when_ns"] + 100 * index} for row in writing.observations]
                journal.append("observations", identity | {"rows": rows}, durable=False)
        journal.append("end", {"launch": launch})


def _lanes(case: Case) -> list[str]:
    if case.pattern == "pairs_unidirectional":
        return [f"{rank}->{rank + 1}" for rank in range(0, case.ranks, 2)]
    return ["0->1", "1->0"] if case.pattern == "bidirectional" else [""]


def _facts(case: Case, operations: int) -> dict[str, Any]:
    info = pattern(case.pattern)
    return {
        "lanes": _lanes(case),
        "bytes_per_peer": int(info.bytes_per_peer(case.size, case.ranks, case.window)),
        "bytes_total": int(info.bytes_total(case.size, case.ranks, case.window)),
        "converged": True,
        "coarse": False,
        "oversubscribed": False,
        "verified": True,
        "operations_total": operations + 2,
        "evidence": {},
    }


def draw_samples(
    writing: _Writing, case: Case, time_ns: float, now: int
) -> tuple[dict[str, np.ndarray[Any, Any]], int]:
    """Return the columns of a case's samples, rank after rank, and the time in ns at which the case ended."""
    rng, noise, warmup = writing.rng, writing.noise, writing.warmup
    total = writing.samples + warmup
    iterations = case.batch if case.cadence in ("streaming", "gated") else 1
    shared = rng.standard_normal(total)
    if noise.rho:
        for i in range(1, total):
            shared[i] = noise.rho * shared[i - 1] + np.sqrt(1 - noise.rho**2) * shared[i]
    factor = np.exp(noise.sigma * shared)
    factor[:warmup] *= np.linspace(noise.warmup_factor, 1.2, warmup)
    spent = time_ns * factor * iterations
    scheduled = now + np.cumsum(np.concatenate([[0.0], spent[:-1]]) + 5_000).astype(np.int64)
    keeper = case.root if pattern(case.pattern).timekeeper == "root" else 0
    parts: dict[str, list[np.ndarray[Any, Any]]] = {}
    for rank in range(case.ranks):
        # The timekeeper takes the whole time, the others up to 3 % less; each starts a little after the deadline.
        late = rng.integers(0, 60, total)
        share = np.ones(total) if rank == keeper else 1.0 - 0.03 * rng.random(total)
        ns = np.maximum(1, np.rint(spent * share) - late).astype(np.int64)
        lane = rank if case.pattern == "bidirectional" else rank // 2 if case.pattern == "pairs_unidirectional" else 0
        columns = {
            "rank": np.full(total, rank, np.int32),
            "lane": np.full(total, lane, np.int16),
            "sample": np.arange(total, dtype=np.int32),
            "phase": (np.arange(total) >= warmup).astype(np.uint8),
            "scheduled_ns": scheduled,
            "start_ns": scheduled + late,
            "ns": ns,
            "iterations": np.full(total, iterations, np.int64),
            "clock": np.full(total, int(case.clock == "event"), np.uint8),
        }
        for name, values in columns.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}, int(scheduled[-1] + spent[-1]) + 10_000
