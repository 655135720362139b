"""A worker whose core is a few lines of Python: the run's machinery is tested apart from the core.

Plants what `fault` of the spec says: {"kind", "index"} on the last rank of the case with that index.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.run.machine.observe import PARTS, STATE, Value
from linkgauge.run.rank import gathering, measuring, worker
from linkgauge.run.rank.gathering import Ranks, Take
from linkgauge.run.rank.reading_plan import Readings
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.outcome import RankOutcome
from linkgauge.run.wire.spec import WorkerSpec, rank_list


class Meeting:
    """An exchange among threads."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.said: list[bytes] = [b""] * size


def link_ns(case: Case) -> int:
    """What a message takes over the link that LINKGAUGE_TEST_LINK describes: `latency in ns, bytes per ns`.

    UCX_TEST_LINKS, in the environment or among the case's settings, stands for another latency.
    """
    latency_ns, bytes_per_ns = map(float, os.environ["LINKGAUGE_TEST_LINK"].split(","))
    set_here = dict(case.settings.pairs)
    latency_ns = float(set_here.get("UCX_TEST_LINKS", os.environ.get("UCX_TEST_LINKS", latency_ns)))
    return round(latency_ns + case.size / bytes_per_ns)


class FakeNode:
    """Ranks of one node, who have only an exchange."""

    def __init__(self, spec: WorkerSpec, rank: int, exchange: Any) -> None:
        self.spec, self.rank, self.size, self._exchange = spec, rank, spec.ranks, exchange
        self._gathers = 0

    def exchange(self, mine: bytes) -> list[bytes]:
        said: list[bytes] = self._exchange(self.rank, mine)
        fault = self.spec.fault or {}
        if mine.startswith(b'{"index"') and fault.get("kind") == "early" and not os.path.exists(fault["once"]):
            time.sleep(0.3)  # the other ranks are in the case before rank 0 is
        return said

    def gather(self, mine: bytes, take: Take | None) -> None:
        self._gathers += 1
        fault = self.spec.fault or {}
        lost = str(fault.get("kind")).endswith(" gathering") and self.rank == self.size - 1
        if lost and self._gathers == fault["gather"] and not os.path.exists(fault["once"]):
            open(fault["once"], "w").close()
            if fault["kind"] == "dies gathering":
                os._exit(3)
            time.sleep(1000)
        for said in self._exchange(self.rank, mine):
            if self.rank == 0 and take is not None:
                take(said)


class FakeSession:
    def __init__(self, spec: WorkerSpec, rank: int, words: Any, exchange: Any) -> None:
        self.spec, self.rank, self.words = spec, rank, words
        self.ranks = Ranks(FakeNode(spec, rank, exchange))

    def describe(self) -> dict[str, Any]:
        return {"name": "fake", "kind": "host", "uuid": f"fake-{self.rank}"}

    def facts(self) -> dict[str, Any]:
        return {"clock": {"cost_ns": 20.0, "resolution_ns": 1.0}, "versions": {"core": "fake"}}

    def close(self) -> None:
        pass

    def _fault(self, case: Case, ranks: list[int]) -> str:
        fault = self.spec.fault or {}
        matches = all(getattr(case, name) == fault[name] for name in ("transport", "pattern", "size") if name in fault)
        matches = matches and case.devices == tuple(fault.get("devices", case.devices))
        between = fault.get("kind") == "between" or str(fault.get("kind")).endswith(" gathering")
        if not fault or not matches or self.rank != ranks[-1] or between:
            return ""
        marker = fault.get("once")
        if marker:
            if os.path.exists(marker):
                return ""
            with open(marker, "w") as file:
                file.write("planted")
        kind = str(fault["kind"])
        # On this thread, so that it does not go on: another one, to which a signal of the process may go, can be late.
        if kind == "sigkill":
            signal.raise_signal(signal.SIGKILL)
        elif kind == "sigsegv":
            signal.raise_signal(signal.SIGSEGV)
        elif kind == "sigstop":
            signal.raise_signal(signal.SIGSTOP)
        elif kind == "hang":
            time.sleep(1000)
        elif kind in ("exit", "early"):
            os._exit(3)
        elif kind == "raise":
            raise RuntimeError("planted by the test")
        elif kind == "noise":
            print("planted last words", flush=True)
            os._exit(9)
        elif kind == "chatter":
            while True:
                os.write(1, b"planted words\n" * 4096)
        elif kind == "launcher":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(1000)
        return kind

    def measure(self, case: Case) -> RankOutcome:
        ranks = rank_list(case, self.spec.devices)
        if self.rank not in ranks:
            return RankOutcome(self.rank, "idle")
        kind = self._fault(case, ranks)
        if "UCX_TEST_LAUNCH_SIZE=" in case.settings.text:
            kind = "skipped"  # a variable that is read when a launch begins
        if kind in ("corrupt", "failed", "skipped"):
            return RankOutcome(
                self.rank, kind, f"{kind} as planted", {"verify": {"first_bad_offset": 3}}, fatal=kind == "failed"
            )
        count = 20
        samples: dict[str, np.ndarray[Any, Any]] = {
            name: np.zeros(count, dtype=np.int64)
            for name in ("rank", "lane", "sample", "phase", "scheduled_ns", "start_ns", "ns", "iterations", "clock")
        }
        samples["rank"][:] = ranks.index(self.rank)
        samples["sample"][:] = np.arange(count)
        samples["phase"][:] = 1
        samples["iterations"][:] = 1
        for index in range(count):
            start = time.monotonic_ns()
            time.sleep(float(os.environ.get("LINKGAUGE_TEST_SAMPLE_S", "0.0002")))
            samples["scheduled_ns"][index] = samples["start_ns"][index] = start
            linked = "LINKGAUGE_TEST_LINK" in os.environ
            samples["ns"][index] = link_ns(case) if linked else time.monotonic_ns() - start
            self.words[beat.COUNT] += np.uint64(1)
        facts = {"converged": True, "coarse": False, "verified": True, "operations_total": count + 5, "lanes": ["all"],
                 "operations_checked": case.checks + 2}  # fmt: skip
        return RankOutcome(self.rank, "ok", "", facts, samples)


def open_process_session(spec: WorkerSpec, world: Any, nodes: Sequence[int], words: Any) -> FakeSession:
    return FakeSession(spec, world.Get_rank(), words, lambda _, mine: world.allgather(mine))


def open_thread_sessions(spec: WorkerSpec, heartbeats: list[Any]) -> list[FakeSession]:
    meeting = Meeting(spec.ranks)

    def exchange(rank: int, mine: bytes) -> list[bytes]:
        meeting.said[rank] = mine
        meeting.barrier.wait()
        said = list(meeting.said)
        meeting.barrier.wait()
        return said

    return [FakeSession(spec, rank, heartbeats[rank], exchange) for rank in range(spec.ranks)]


class FakeReader:
    """Reads a device on which an error is counted in every case, and whose power is capped (tests/run/test_observe)."""

    parts = (STATE,)

    def __init__(self, ordinal: int) -> None:
        self.subject = f"host:{ordinal}"
        self.errors = 0

    def read(self, part: str = "") -> list[Value]:
        self.errors += 1
        return [Value("ecc_corrected_errors", self.errors, "errors"), Value("throttle_reasons", 4, "")]

    def refused(self) -> dict[str, str]:
        return {"nvlink_raw_tx_bytes": "Insufficient Permissions"}

    def own(self, pids: Iterable[int]) -> None:
        assert os.getpid() in set(pids)


next_step = measuring.next_step


def die_between(schedule: Any, watch: Any, recorder: Any) -> bytes:
    """Rank 0 dies once, before it begins the case that the fault names."""
    fault = schedule._spec.fault or {}
    first = schedule._left[0].index if schedule._left else -1
    if fault.get("kind") == "between" and first == fault["index"] and not os.path.exists(fault["once"]):
        open(fault["once"], "w").close()
        os._exit(3)
    return next_step(schedule, watch, recorder)


if __name__ == "__main__":
    measuring.next_step = die_between
    if os.environ.get("LINKGAUGE_TEST_CANNOT_START") == "1":
        raise SystemExit("a library that this launch asks for is not here")
    if "LINKGAUGE_TEST_WINDOW" in os.environ:
        gathering.WINDOW_BYTES = int(os.environ["LINKGAUGE_TEST_WINDOW"])
    if "LINKGAUGE_TEST_OBSERVED" in os.environ:
        measuring.open_reader = lambda runtime, device: (FakeReader(device["ordinal"]), "")
        if os.environ["LINKGAUGE_TEST_OBSERVED"] == "each case":  # whatever it costs
            both = Readings(PARTS, PARTS)
            measuring.ReadingPlan.next = lambda self, case, *, is_last: both  # type: ignore[method-assign]
    worker.open_process_session = open_process_session
    worker.open_thread_sessions = open_thread_sessions  # type: ignore[assignment]
    worker.main()
