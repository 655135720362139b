"""What the parent tells a launch: one JSON file that every rank reads, and how a case is told to the core.

The file lies on a disk: no secret is in it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.case import CORE_NAMES, NAMING_DEVICES, Case
from linkgauge.model.elements import restated_size
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import frozen
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.curves import Point, Step
from linkgauge.run.machine.binding import with_own_core

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
BROKEN = ("failed", "hung", "crashed", "corrupt")  # what counts against a transport: a slow case says nothing
ENDED_BY_TIME = "time"  # a launch's end record: the next case would not have been over in time

# Evidence of skipped cases that resume measures: so many of its transport had failed, a node of it did not answer, or
# two of its nodes lose large packets between them.
AFTER_FAILURES = "after_failures"
NODE_LEFT_OUT = "node_left_out"
PAIR_LEFT_OUT = "pair_left_out"
FITTED = "fitted"  # evidence: the case_key as planned, of a case that was measured at a smaller size


@dataclasses.dataclass(frozen=True)
class CaseEntry:
    """A case to measure, its attempt, its index in the launch, and what it is to a curve.

    `planned_key`: its case_key before its size was known, of a case at a full curve, or one that was too large for a
    slow link; empty: the case's own. `fits`: its size may shrink where a link is slow.
    """

    case: Case
    attempt: int
    index: int
    step: Step | None = None
    planned_key: str = ""
    fits: bool = False

    def evidence(self, point: Point | None) -> dict[str, Any]:
        """What the row of the measured case says of its curve, or of the planned case where its size is another."""
        if self.step is not None:
            return self.step.evidence(point)
        return {FITTED: self.planned_key} if self.fits and self.planned_key else {}

    @property
    def key(self) -> tuple[str, int]:
        """What the parent knows it by."""
        return (self.planned_key or self.case.case_key, self.attempt)

    def resolved(self, size: int) -> CaseEntry:
        """The entry with the size asked for, in bytes, at which it is measured."""
        info = PATTERNS[self.case.pattern]
        actual, _ = restated_size(info, size, self.case.group_ranks, self.case.datatype)
        case = dataclasses.replace(self.case, size=actual, size_requested=size)
        return dataclasses.replace(self, case=case, planned_key=self.key[0])


def entry_of(entries: Mapping[tuple[str, int], CaseEntry], header: Mapping[str, Any]) -> CaseEntry | None:
    """The entry that a journal record is about, with the size that it was measured at; None: not one of these."""
    entry = entries.get((str(header.get("planned") or header["case_key"]), int(header["attempt"])))
    size = header.get("size_requested")
    return entry if entry is None or size is None else entry.resolved(int(size))


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """Everything that the ranks of one launch need. Paths are of files that the parent has made or will read."""

    launch: int
    repeat: int
    launch_key: str
    launch_info: dict[str, Any]  # goes into the launch's record: mpi, env, versions, ...
    mode: str  # processes | threads
    ranks: int
    ranks_per_device: int
    devices: tuple[int, ...]  # of each rank the number of its place: modulo their number an index of `ordinals`
    runtime: str  # cuda | hip | sycl | host
    ordinals: tuple[int, ...]  # the runtime's own ordinals of the devices used
    cores: list[list[int]] | None  # of each rank; None: unbound
    available_cores: int
    peer_access: bool
    seed: int
    max_failures: int
    failures: dict[str, Any]  # of Failures.to_plain: those so far
    journal: str
    heartbeat: str
    folder: str  # private, on this node: segments of the group
    evidence: str  # folder of stacks and notes of failed ranks
    cases: tuple[CaseEntry, ...]
    thread_level: str  # asked of the MPI library
    fault: dict[str, Any] | None = None  # tests only: planted by the core's hook
    end_by: float | None = None  # Unix time: no case begins that by its estimate would not be over; None: no limit
    estimates_s: tuple[float, ...] = ()  # of each case; only with `end_by`
    node_of: tuple[int, ...] = ()  # of each rank, an index of `node_cores`; empty: all are on the parent's node
    node_cores: tuple[int, ...] = ()  # in place of `available_cores`
    curves: dict[str, Any] = dataclasses.field(default_factory=dict)  # Curves.to_plain: what is known of them
    # Variables that ranks set before they load MPI, by the devices that they drive, as `devices` has them.
    job_env: tuple[tuple[tuple[int, ...], dict[str, str]], ...] = ()
    core_use: bool = False  # what the nodes' cores did beside each case is observed
    lines: dict[str, Any] = dataclasses.field(default_factory=dict)  # of run/wire/load_lines.py, to loads' launches
    load: dict[str, Any] = dataclasses.field(default_factory=dict)  # what of another launch's case this launch is
    token: str = ""  # by which ranks call the parent: never in the file (run/wire/token.py)

    def device_of(self, rank: int) -> int:
        """The device that a rank drives, on its own node: an index of `ordinals`."""
        return self.devices[rank] % len(self.ordinals)

    def env_of(self, rank: int) -> dict[str, str]:
        """The variables that a rank has for itself."""
        return next((env for devices, env in self.job_env if self.devices[rank] in devices), {})

    def identity(self, entry: CaseEntry) -> dict[str, Any]:
        """The row identity of a case in this launch."""
        planned = (
            {"planned": entry.planned_key, "size_requested": entry.case.size_requested} if entry.planned_key else {}
        )
        return {
            "case_key": entry.case.case_key,
            "launch": self.launch,
            "repeat": self.repeat,
            "attempt": entry.attempt,
            **planned,
        }

    def write(self, path: Path) -> None:
        """Write the file."""
        plain = dataclasses.asdict(dataclasses.replace(self, cases=()))
        del plain["token"]
        # Every rank reads this: a case's devices, as many as its ranks, are written once for all cases that have them.
        sets: dict[tuple[int, ...], int] = {}
        plain["cases"] = [
            {"case": {**entry.case.dimensions(), "devices": sets.setdefault(entry.case.devices, len(sets))},
             "attempt": entry.attempt, "index": entry.index,
             **({} if entry.step is None else {"step": entry.step.to_plain()}),
             **({"fits": True} if entry.fits else {})} for entry in self.cases
        ]  # fmt: skip
        plain["device_sets"] = list(sets)
        with open(os.open(path, _NEW_FILE, 0o600), "w", encoding="ascii") as file:
            file.write(json.dumps(plain, separators=(",", ":")))

    @classmethod
    def read(cls, path: Path) -> WorkerSpec:
        """Read it back."""
        plain = json.loads(path.read_text())
        sets = [tuple(devices) for devices in plain.pop("device_sets")]
        cases = tuple(
            CaseEntry(Case.from_dimensions({**entry["case"], "devices": sets[entry["case"]["devices"]]}),
                      entry["attempt"], entry["index"], Step.of_plain(entry.get("step")),
                      fits=bool(entry.get("fits"))) for entry in plain["cases"]
        )  # fmt: skip
        return cls(**{**frozen(plain), "cases": cases, "cores": plain["cores"]})


def rank_list(case: Case, rank_devices: tuple[int, ...]) -> list[int]:
    """The launch's rank that plays each place of the measured job."""
    return job_ranks(case, rank_devices)[0]


def job_ranks(case: Case, rank_devices: tuple[int, ...]) -> list[list[int]]:
    """The launch's rank that plays each place of the measured job, then of each load.

    The k-th entry of a device, in all of them, goes to its k-th rank. A load that is another launch has none here.
    UsageError where the launch has fewer ranks of a device, as no planned one.
    """
    ranks_of = _ranks_of_devices(rank_devices)
    used: dict[int, int] = {}

    def taken(device: int) -> int:
        place = used.get(device, 0)
        used[device] = place + 1
        ranks = ranks_of.get(device, [])
        if place >= len(ranks):
            raise UsageError(f"a case takes {place + 1} ranks of device {device}, its launch has {len(ranks)}")
        return ranks[place]

    loads = (() if load.mpi else load.case.devices for load in case.background.each)
    return [[taken(device) for device in devices] for devices in (case.devices, *loads)]


@functools.lru_cache(maxsize=1)  # a launch has one
def _ranks_of_devices(rank_devices: tuple[int, ...]) -> dict[int, list[int]]:
    return grouped((device, rank) for rank, device in enumerate(rank_devices))


def case_seed(seed: int, case: Case) -> int:
    """The seed of the case's data patterns: from the run's seed and the case itself, so that it can be repeated."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{case.case_key}".encode()).digest()[:8], "little") >> 1


def core_case(case: Case, rank_devices: tuple[int, ...], seed: int, rank: int = -1) -> dict[str, Any]:
    """The case under the names of core/base/case_spec.h; of an application the part of the launch's `rank`."""
    measured, *others = job_ranks(case, rank_devices)
    loads = [
        {"case": _core_job(load.case, ranks, seed, case.on_its_node), "pace": dataclasses.asdict(load.pace)}
        for load, ranks in zip(case.background.each, others, strict=True)
        if not load.mpi
    ]
    made = {**_core_job(case, measured, seed, case.on_its_node), **({"loads": loads} if loads else {})}
    if PATTERNS[case.pattern].scripted and rank in measured:
        # Not with the module, which every worker reads before its start: few launches have an application.
        from linkgauge.apps import catalog
        from linkgauge.apps.program import core_program

        made["program"] = core_program(catalog.program(case.app, case.ranks), measured.index(rank))
    return made


def _core_job(case: Case, ranks: list[int], seed: int, own: Callable[[int], int]) -> dict[str, Any]:
    """One job; `own` gives a place's device on its node."""

    def options(node: int) -> dict[str, Any]:
        return {"numa_node": node, "write_combined": case.write_combined, "huge_pages": case.huge_pages,
                "fabric_handle": case.handles == "fabric"}  # fmt: skip

    plain = case.dimensions()
    return {
        **{name: plain[field] for field, name in CORE_NAMES.items()},
        "devices": [own(device) for device in case.devices],
        **{name: own(getattr(case, name)) for name in NAMING_DEVICES},
        "rank_list": ranks,
        "source_options": options(case.source_node),
        "target_options": options(case.target_node),
        "managed": case.managed or "default",
        "verify_each": case.verify == "each",
        "checks": case.checks,
        "seed": case_seed(seed, case),
        "stop": {
            "kind": case.stop.rule,
            "samples": case.stop.samples,
            "relative_half_width": case.stop.relative_half_width,
            "time_ns": case.stop.time_ns,
        },
    }


def threads_of(runtime: str) -> int:
    """How many threads of a rank may work at a time: on host devices its stream's too."""
    return 2 if runtime == "host" else 1


def is_oversubscribed(spec: WorkerSpec, case: Case) -> bool:
    """Whether a node's ranks, and on host devices the threads of their streams, are more than the cores there."""
    threads = 1 if TRANSPORTS[case.transport].own_way else threads_of(spec.runtime)
    ranks = [rank for job in job_ranks(case, spec.devices) for rank in job]
    others = 0 if spec.node_of else sum(load.case.ranks for _, load in case.background.own_launches)
    for node, cores in enumerate(spec.node_cores or (spec.available_cores,)):
        here = [rank for rank in ranks if not spec.node_of or spec.node_of[rank] == node]
        if (len(here) + others) * threads > cores:
            return True
        bound = [] if spec.cores is None else [spec.cores[rank] for rank in here] * threads
        if with_own_core(bound) < len(bound):
            return True
    return False
