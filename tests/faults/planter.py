"""Plants faults from inside a rank, at a phase of a case: loaded by a worker whose spec names this file (tests only).

`spec.fault` is {"planter": this file, "folder": where markers go, "faults": [...]}, each fault a dict:
    size       the case it is for: each case of a faulted run has a size of its own
    transport  likewise
    kind       kill, segv, stop, hang, throw, memory, call, address, corrupt (tests/core/planted_faults.h);
               abort (MPI_Abort), launcher and parent (killed from here), disk (the journal's disk is full),
               library (a call of the stand-in for NCCL fails)
    phase      of tests/core/planted_faults.h; for `disk` the record: begin, case or end
    rank       of the launch
A marker file is made just before, so that each fault happens once, also over fresh launches.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from linkgauge.model.case import Case
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.heartbeat import HeartbeatFile
from linkgauge.run.wire.spec import WorkerSpec

sys.path.append(str(Path(__file__).parents[1]))  # a rank knows no folder of the tests

from planted_faults import clear, plant

FROM_OUTSIDE = ("abort", "launcher", "parent")
# Of a pingpong of two ranks after WARMUP operations: which call of ncclSend is made at a phase. An operation has two.
WARMUP, SAMPLES = 2, 6
_SENDS = {"check": 1, "warmup": 3, "time": 2 * (1 + WARMUP) + 3, "verify": 2 * (1 + WARMUP + SAMPLES) + 1}
_NCCL_FAILURE = 3  # ncclInternalError
_DISK_RECORDS = {"prepare": b'"begin"', "record": b'"case"', "release": b'"end"'}


class Planter:
    """One rank's planter."""

    def __init__(self, spec: WorkerSpec, session: Any) -> None:
        self.spec, self.session = spec, session
        assert spec.fault is not None
        self.folder = Path(spec.fault["folder"])
        self.faults: list[dict[str, Any]] = spec.fault["faults"]
        for fault in self.faults:
            if fault["kind"] == "disk" and session.rank == 0 and not self._marker(fault).exists():
                self._fill_the_disk(fault)

    def before(self, case: Case) -> None:
        """Called by every rank before a case."""
        fault = self._fault_for(case)
        if fault is None or fault["kind"] == "disk":
            clear(self.session)
            return
        self.session.barrier()  # all ranks have looked before one makes the marker
        here = self.session.rank == fault["rank"]
        if here:
            self._marker(fault).touch()
        kind = "hang" if fault["kind"] in FROM_OUTSIDE else fault["kind"]
        if kind == "library":
            clear(self.session)
            if here:
                fail_a_send(_SENDS[fault["phase"]])
            self.session.barrier()  # no rank has sent before
            return
        plant(self.session, kind=kind, phase=fault["phase"], rank=fault["rank"])
        if here and fault["kind"] in FROM_OUTSIDE:
            threading.Thread(target=self._act, args=(fault["kind"],), daemon=True).start()

    def _fault_for(self, case: Case) -> dict[str, Any] | None:
        for fault in self.faults:
            same = case.transport == fault["transport"] and case.size_requested == fault["size"]
            if same and not self._marker(fault).exists():
                return fault
        return None

    def _marker(self, fault: dict[str, Any]) -> Path:
        return self.folder / f"planted-{fault['transport']}-{fault['size']}"

    def _fill_the_disk(self, fault: dict[str, Any]) -> None:
        """At a record of the fault's case (or the launch's end) half of it is written and then the disk is full."""
        from linkgauge.store import journal

        real, full = journal._write_all, [False]
        same = [one.case for one in self.spec.cases if one.case.size_requested == fault["size"]]
        if not same and fault["phase"] != "release":
            return
        kind = b'"kind":' + _DISK_RECORDS[fault["phase"]]
        key = same[0].case_key.encode() if fault["phase"] != "release" else b""

        def write(descriptor: int, body: bytes) -> None:
            if kind in body and key in body and not full[0]:
                full[0] = True
                self._marker(fault).touch()
            if full[0]:
                os.write(descriptor, body[: len(body) // 2])
                raise OSError(28, os.strerror(28))
            real(descriptor, body)

        journal._write_all = write

    def _act(self, kind: str) -> None:
        """Wait until this rank hangs where it was told to, then do it."""
        watch = HeartbeatFile(Path(self.spec.heartbeat), self.spec.ranks, create=False)
        rank, seen, since = self.session.rank, None, time.monotonic()
        while time.monotonic() - since < 0.15:
            now = (watch.word(rank, beat.COUNT), watch.word(rank, beat.PHASE), watch.word(rank, beat.STATE))
            if now != seen or now[2] != beat.STATE_MEASURING:
                seen, since = now, time.monotonic()
            time.sleep(0.002)
        if kind == "abort":
            from mpi4py import MPI

            MPI.COMM_WORLD.Abort(7)
        parent = int(os.environ["LINKGAUGE_LAUNCH"].split(".")[0])
        os.kill(parent if kind == "parent" else launcher_of(parent), signal.SIGKILL)


def fail_a_send(number: int) -> None:
    """Let that call of ncclSend, counted from now, fail in this process."""
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    nccl = ctypes.CDLL(next(file for file in mapped if Path(file).name == "libnccl.so.2"))
    nccl.stand_in_configure(f"{os.environ['LINKGAUGE_STAND_IN']};fail=ncclSend:{number}:{_NCCL_FAILURE}".encode())


def launcher_of(parent: int) -> int:
    """The process that `parent` started and that this one descends from."""
    pid = os.getpid()
    while True:
        above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if above == parent or above <= 1:
            return pid
        pid = above
