"""The core as a worker sees it: one session a rank. Nothing else of the worker touches the core's own types."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.model.runtimes import RUNTIMES
from linkgauge.model.transports import NIC_LIBRARIES
from linkgauge.owner import node_name
from linkgauge.run.machine.host_pages import page_rows
from linkgauge.run.machine.transports import ccl_library, library_folders, version_of_nixl
from linkgauge.run.rank.case_rows import clock_rows, load_rows, overlap_rows, step_rows
from linkgauge.run.rank.gathering import Link, MpiLink, Ranks
from linkgauge.run.wire.kept_samples import KeptSamples
from linkgauge.run.wire.load_lines import Lines
from linkgauge.run.wire.outcome import RankOutcome
from linkgauge.run.wire.spec import WorkerSpec, core_case, job_ranks, rank_list


class Session:
    """One rank's door to linkgauge._core. Calls are collective over the launch's ranks unless they say otherwise."""

    def __init__(
        self, core: Any, spec: WorkerSpec, group: Any, runtime: Any, mpi: Any, heartbeat: Any, link: Link | None = None
    ) -> None:
        """Open a session for the rank that `group` says; `link` as Ranks takes it."""
        self.ranks = Ranks(group.on_node(), link)
        """How this rank and the others tell each other, beside what is measured."""
        self._core = core
        self._spec = spec
        self._group = group
        self._runtime = runtime
        self._mpi = mpi
        self.rank: int = group.rank
        ccl = ccl_library(spec.runtime)
        self._ccl_places = (str(ccl or ""), [str(folder) for folder in library_folders()])
        device = spec.device_of(self.rank)
        self._session = core.Session(runtime, group, mpi, heartbeat, *self._ccl_places, self._note_failure, device)
        self._case_key = ""
        self._planter = _planter(spec, self) if spec.fault else None

    def describe(self) -> dict[str, Any]:
        """Describe this rank's device. Not collective."""
        found: dict[str, Any] = self._runtime.describe(self._spec.device_of(self.rank))
        return found

    def facts(self) -> dict[str, Any]:
        """Return `clock` (cost and resolution) and `versions` of runtime and driver. Not collective."""
        versions = {f"{self._spec.runtime} runtime": self._runtime.version}
        if self._mpi is not None:
            versions["MPI library"] = " ".join(self._mpi.version.split())[:300]
            versions["MPI file"] = self._mpi.path
            versions["MPI thread level"] = _granted_thread_level()
        versions |= self._ccl_versions() | self._nic_versions()
        return {"clock": self._core.host_clock(), "versions": versions}

    def _ccl_versions(self) -> dict[str, str]:
        """Version and file of NCCL or RCCL, where the launch has a case of it and it can be opened."""
        if all(entry.case.transport != "ccl" for entry in self._spec.cases):
            return {}
        try:
            version, file = self._core.ccl_version(self._spec.runtime, *self._ccl_places)
        except self._core.Unsupported:
            return {}  # each case says why
        name = RUNTIMES[self._spec.runtime].ccl.lower()
        return {name: version, f"{name} file": file}

    def _nic_versions(self) -> dict[str, str]:
        """Version and file of each network library that the launch has a case of and that can be opened."""
        found: dict[str, str] = {}
        for name in NIC_LIBRARIES.keys() & {entry.case.transport for entry in self._spec.cases}:
            try:
                version, file = getattr(self._core, f"{name}_version")(self._ccl_places[1])
            except self._core.Unsupported:
                continue  # each case says why
            found |= {name: version or version_of_nixl(file), f"{name} file": file}
        return found

    def measure(self, case: Case) -> RankOutcome:
        """Measure one case, and turn whatever the core raises into an outcome.

        Ranks that take no part sleep and bring back `idle`.
        """
        if self._planter is not None:
            self._planter.before(case)
        core = self._core
        self._case_key = case.case_key
        fields = core_case(case, self._spec.devices, self._spec.seed, self.rank)
        lines, kept = Lines(self._spec, case, self.rank), KeptSamples(self._spec, case, self.rank)
        try:
            result = self._session.measure({**fields, **lines.fields(), **kept.fields()})
            return RankOutcome(self.rank, "idle") if result is None else self._outcome(case, result, lines)
        except core.Unsupported as error:
            return RankOutcome(self.rank, "skipped", str(error))
        except core.PeerError as error:
            return RankOutcome(self.rank, "peer", str(error))
        except UsageError as error:
            return RankOutcome(self.rank, "failed", f"the core refused the case: {error}")
        except MemoryError as error:
            # Another rank's message for this case may be on its way still, and would be the next case's first.
            return RankOutcome(self.rank, "failed", f"out of memory: {error}", fatal=True)
        except core.RuntimeCallError as error:
            # After an error of a runtime or of MPI, messages may be on their way and a GPU's context may be lost.
            return RankOutcome(self.rank, "failed", str(error), fatal=True)
        except RuntimeError as error:
            return RankOutcome(self.rank, "failed", str(error), fatal=True)
        finally:
            lines.close()
            kept.close()

    def _outcome(self, case: Case, result: dict[str, Any], lines: Lines) -> RankOutcome:
        if result["load"] is None:
            outcome = self._measured_outcome(case, result)
            outcome.observations += lines.told()
            return outcome
        load = result["load"]
        if self._spec.load:
            outcome = self._load_outcome({**load, "number": self._spec.load["number"]}, self._spec.load["words"], case)
            if not load["failure"]:
                lines.tell(outcome.observations)
            return dataclasses.replace(outcome, observations=[])
        number, one = case.background.within[load["number"] - 1]
        return self._load_outcome({**load, "number": number}, one.text, case, number)

    def _load_outcome(self, load: dict[str, Any], words: str, case: Case, job: int = 0) -> RankOutcome:
        """What became of a load on one of its ranks; the first of them tells how it went on. `job`: of `case`."""
        reason = load["failure"] or ("" if load["verify"]["ok"] else _wrong_bytes(load["verify"]))
        if reason:
            told = f"load {load['number']} ({words}): {reason}"
            return RankOutcome(self.rank, "disturbed", told, fatal=bool(load["failure"]))
        first = self.rank == job_ranks(case, self._spec.devices)[job][0]
        return RankOutcome(self.rank, "idle", observations=load_rows(load) if first else [])

    def _measured_outcome(self, case: Case, result: dict[str, Any]) -> RankOutcome:
        samples = dict(result["samples"])
        place = rank_list(case, self._spec.devices).index(self.rank)
        samples["rank"] = np.full(len(samples["ns"]), place, dtype=np.int32)
        names = ("converged", "coarse", "verified", "operations_total", "operations_checked", "stopped_by", "lanes",
                 "chosen")  # fmt: skip
        facts = {name: result[name] for name in names}
        status, reason = "ok", ""
        verify = result["verify"]
        if not verify["ok"]:
            facts["verify"] = verify
            status = "corrupt"
            reason = _wrong_bytes(verify)
        elif result["stopped_by"] == "timeout":
            status = "timeout"
            times = self._core.FEW_SAMPLES
            reason = (f"only {self._counted(samples)} samples in {times} times the case's --max-time; fix: a smaller "
                      "--max-size, or a longer --max-time")  # fmt: skip
        rows = clock_rows(result["clocks"], place) + page_rows(place, result["host_pages"])
        if case.app:
            rows += step_rows(case, place, result["step_times"], result["step_spans"])
        elif result["step_times"]:
            rows += overlap_rows(place, result["step_times"])
        return RankOutcome(self.rank, status, reason, facts, samples, observations=rows)

    @staticmethod
    def _counted(samples: dict[str, Any]) -> int:
        numbers = samples["sample"][samples["phase"] == 1]
        return int(np.unique(numbers).size)

    def _note_failure(self, reason: str) -> None:
        """Leave word of this rank's failure at once: others may wait for it inside a library until they are ended."""
        note = {"rank": self.rank, "kind": "case", "case_key": self._case_key, "reason": reason}
        (Path(self._spec.evidence) / f"failed-{self.rank}.json").write_text(json.dumps(note))

    def set_hook(self, library: str, words: str = "") -> None:
        """Tests only: a library that sees the phases of the cases to come; "": none."""
        self._session.set_hook(library, words)

    def barrier(self) -> None:
        """Meet all ranks of the launch."""
        self._group.barrier()

    def close(self) -> None:
        """Give everything back."""
        self._session.close()


def _wrong_bytes(verify: dict[str, Any]) -> str:
    return (
        f"{verify['bad_bytes']} wrong bytes {verify['where']}, the first at offset "
        f"{verify['first_bad_offset']}: expected {verify['expected']:#x}, found {verify['found']:#x}"
    )


def _planter(spec: WorkerSpec, session: Session) -> Any:
    """Tests only: who plants the spec's faults. The module is the tests' own, named by the spec."""
    assert spec.fault is not None
    module_spec = importlib.util.spec_from_file_location("linkgauge_fault_planter", spec.fault["planter"])
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module.Planter(spec, session)


def _core() -> Any:
    return importlib.import_module("linkgauge._core")


def _runtime(core: Any, spec: WorkerSpec) -> Any:
    host = spec.runtime == "host"
    return core.open_runtime(
        spec.runtime,
        [] if host else list(spec.ordinals),
        len(spec.ordinals) if host else 0,
        library_folders=[str(folder) for folder in library_folders()],
        peer_access=spec.peer_access,
    )


def open_process_session(spec: WorkerSpec, world: Any, nodes: Sequence[int], heartbeat: Any) -> Session:
    """This process' rank of the launch: `world` is mpi4py's COMM_WORLD, `heartbeat` the rank's words. Collective.

    `nodes`: of each rank the number of its node.
    """
    core = _core()
    segment = Path(spec.folder) / "group"
    several = max(nodes) > 0
    mpi = open_mpi(core, str(spec.launch_info["mpi"]["abi"]))
    group = core.process_group(world.Get_rank(), list(nodes), str(segment), mpi if several else None)
    link = _link_over(world, nodes) if several else None
    return Session(core, spec, group, _runtime(core, spec), mpi, heartbeat, link)


def open_thread_sessions(spec: WorkerSpec, heartbeats: Sequence[Any]) -> list[Session]:
    """All ranks of a launch of threads, over one runtime."""
    core = _core()
    runtime = _runtime(core, spec)
    groups = core.thread_groups(spec.ranks)
    return [
        Session(core, spec, group, runtime, None, heartbeat)
        for group, heartbeat in zip(groups, heartbeats, strict=True)
    ]


_PLACE_BYTES = 16


def node_numbers(world: Any) -> list[int]:
    """Of each rank the number of its node, by first appearance. `world` is mpi4py's COMM_WORLD. Collective."""
    place = hashlib.blake2b(node_name().encode(), digest_size=_PLACE_BYTES).digest()
    rank, size = world.Get_rank(), world.Get_size()
    places = bytearray(_PLACE_BYTES * size) if rank == 0 else None
    world.Gather(place, places)
    numbers = np.empty(size, dtype=np.int32)
    if places is not None:
        known: dict[bytes, int] = {}
        for index in range(size):
            at = index * _PLACE_BYTES
            numbers[index] = known.setdefault(bytes(places[at : at + _PLACE_BYTES]), len(known))
    world.Bcast(numbers)
    return [int(number) for number in numbers]


def _link_over(world: Any, nodes: Sequence[int]) -> Link | None:
    """Messages between the nodes' first ranks; None on the others. Collective over the first ones."""
    from mpi4py import MPI

    first: dict[int, int] = {}
    for rank, node in enumerate(nodes):
        first.setdefault(node, rank)
    if first[nodes[world.Get_rank()]] != world.Get_rank():
        return None
    ranks = [first[node] for node in sorted(first)]  # numbered by first appearance: node 0 is rank 0's
    return MpiLink(world.Create_group(world.Get_group().Incl(ranks)), MPI.Status())


_DATATYPES = {
    "int8": "INT8_T", "uint8": "UINT8_T", "int32": "INT32_T", "uint32": "UINT32_T", "int64": "INT64_T",
    "uint64": "UINT64_T", "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip


def open_mpi(core: Any, abi: str) -> Any:
    """The very library that mpi4py loaded, with the handles that mpi4py gives."""
    from mpi4py import MPI

    handles = {
        "comm_world": MPI.COMM_WORLD, "info_null": MPI.INFO_NULL, "errors_return": MPI.ERRORS_RETURN, "byte": MPI.BYTE,
        "sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX,
        **{name: getattr(MPI, word) for name, word in _DATATYPES.items()},
    }  # fmt: skip
    library = os.path.realpath(os.environ["MPI4PY_LIBMPI"])
    bits = {name: MPI._handleof(handle) & 0xFFFF_FFFF_FFFF_FFFF for name, handle in handles.items()}
    return core.open_mpi(library, abi, bits)


def _granted_thread_level() -> str:
    """The thread level that the MPI library gave, which may be another than was asked for."""
    from mpi4py import MPI

    levels = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized"}
    return levels.get(MPI.Query_thread(), "multiple")
