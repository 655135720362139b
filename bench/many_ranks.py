"""What rank 0 of a launch of many ranks needs: memory, bytes and time of each step, over 100, 1,000 and 10,000 ranks.

Rank 0 runs the worker's own code (run_rank), from the ranks' meeting over one case to the end, and writes a journal.
The other ranks are played: where rank 0 waits for a node's message, it gets the bytes that this node's code would send,
of ranks that each have their own samples and observations. So the memory is that of rank 0 alone: how far its resident
set grew at most (VmHWM), in a fresh process for each number of ranks. A step's time is rank 0's own, without the time
that playing takes. With --threads every rank is a thread that runs the worker's code, on nodes that are linked by
queues: the same records must come of it; memory and times are then of all ranks together, on the cores at hand.

What is in the journal is compared with what the ranks had, column by column.

Example: python bench/many_ranks.py --ranks 100 1000 10000
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benching import options
from linkgauge import _core
from linkgauge.model.case import Case
from linkgauge.model.stop_rule import StopRule
from linkgauge.run.rank import gathering
from linkgauge.run.rank.case_record import part_of, traveling
from linkgauge.run.rank.gathering import Ranks, Take, children_of, framed
from linkgauge.run.rank.measuring import run_rank
from linkgauge.run.wire.heartbeat import HeartbeatFile
from linkgauge.run.wire.outcome import COLUMNS, RankOutcome
from linkgauge.run.wire.spec import CaseEntry, WorkerSpec
from linkgauge.store.journal import read_journal

OBSERVED = 35  # values of a device at a moment, as NVML gives them on a GPU of 18 links
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is simulated."""

    ranks: int
    per_node: int
    samples: int

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.per_node)

    def of_node(self, node: int) -> range:
        return range(node * self.per_node, min((node + 1) * self.per_node, self.ranks))


def outcome_of(setting: Setting, rank: int) -> RankOutcome:
    """What a rank brings back from the case; every rank has other times."""
    numbers = np.arange(setting.samples, dtype=np.int32)
    start = 1_000_000_000 + 100_000 * numbers.astype(np.int64)
    ns = 20_000 + (numbers.astype(np.int64) * 7919 + rank * 104_729) % 5_000
    samples: dict[str, Any] = {name: np.zeros(setting.samples, dtype) for name, dtype in COLUMNS.items()}
    samples |= {"rank": np.full(setting.samples, rank, np.int32), "sample": numbers, "scheduled_ns": start,
                "start_ns": start + rank, "ns": ns}  # fmt: skip
    samples["phase"][:] = 1
    samples["iterations"][:] = 1
    rows = [
        {"rank": rank, "subject": f"cuda:{rank}", "moment": moment, "when_ns": 123_456_789_012 + rank,
         "name": f"nvlink_counter_{number}", "value": float(rank * number), "unit": "B"}
        for moment in ("before", "after") for number in range(OBSERVED)
    ]  # fmt: skip
    facts = {"converged": True, "coarse": False, "verified": True, "operations_total": setting.samples + 7,
             "stopped_by": "interval", "lanes": ["all"]}  # fmt: skip
    return RankOutcome(rank, "ok", "", facts, samples, observations=rows)


def introduction_of(rank: int) -> dict[str, Any]:
    """A device as a rank describes it."""
    return {"name": "NVIDIA H200", "kind": "cuda", "uuid": f"GPU-{rank:032x}", "serial": str(rank), "numa_node": 0,
            "pci_address": f"0000:{rank % 256:02x}:00.0", "vbios": "96.00.A5.00.01", "memory_bytes": 150_000_000_000,
            "multiprocessors": 132, "clock_hz": 1_980_000_000, "links": [f"{link}" for link in range(18)]}  # fmt: skip


class SimulatedSession:
    """A session whose measuring is a few lines."""

    def __init__(self, setting: Setting, rank: int, ranks: Ranks) -> None:
        self.setting, self.rank, self.ranks = setting, rank, ranks

    def measure(self, case: Case) -> RankOutcome:
        return outcome_of(self.setting, self.rank)

    def describe(self) -> dict[str, Any]:
        return introduction_of(self.rank)

    def facts(self) -> dict[str, Any]:
        return {"clock": {"cost_ns": 20.0, "resolution_ns": 1.0}, "versions": {"core": "simulated"}}

    def close(self) -> None:
        pass


class Played:
    """All other ranks, as rank 0 meets them: those of its node, and the first ranks of the nodes that it hears of."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.rank, self.size = 0, len(setting.of_node(0))
        self.number, self.count = 0, setting.nodes
        self.spent_s = 0.0
        self.largest_message = self.messages = 0
        self._coming: dict[int, Iterator[tuple[bytes, bool]]] = {}
        self._next: list[Callable[[int], bytes]] = [self._introduction]

    def _introduction(self, rank: int) -> bytes:
        place = {"rank": rank, "host": f"node{rank // self.setting.per_node:05d}", "pid": 1000 + rank,
                 "cores": list(range(8)), "memory_node": 0,
                 "device": {**introduction_of(rank), "ordinal": rank}}  # fmt: skip
        return framed(json.dumps(place).encode())

    def _outcome(self, rank: int) -> bytes:
        return framed(traveling(outcome_of(self.setting, rank), self.setting.ranks))

    def _hear(self, word: bytes) -> None:
        told = json.loads(word)
        if "index" in told:
            self._next = [self._outcome]
        for part in told.get("send", {}).get("parts", ()):
            for number in range(len(part_of(part, RankOutcome(-1, "idle"), told["send"]))):
                self._next.append(self._part(part, number, told["send"]))

    def _part(self, part: str, number: int, asked: Any) -> Callable[[int], bytes]:
        return lambda rank: part_of(part, outcome_of(self.setting, rank), asked)[number]()

    def exchange(self, mine: bytes) -> list[bytes]:
        if b'"index"' in mine or b'"send"' in mine:
            self._hear(mine)
        if mine.startswith(b"["):  # [rank, pid, [host, ordinal]]
            host = json.loads(mine)[2][0]
            return [json.dumps([rank, 1000 + rank, [host, rank]]).encode() for rank in range(self.size)]
        return [mine, *(b"" for _ in range(self.size - 1))]

    def gather(self, mine: bytes, take: Take | None) -> None:
        assert take is not None
        began = time.perf_counter()
        what = self._next.pop(0)
        self._coming = {child: self._subtree(child, what) for child in children_of(0, self.count)}
        others = [what(rank) for rank in self.setting.of_node(0)][1:]
        self.spent_s += time.perf_counter() - began
        for said in (mine, *others):
            for at in range(0, len(said), 1 << 14):
                take(said[at : at + (1 << 14)])

    def _subtree(self, node: int, what: Callable[[int], bytes]) -> Iterator[tuple[bytes, bool]]:
        """What a node and those behind it send up, in messages as long as may be."""
        held = bytearray()
        for behind in range(node, min(node + (node & -node), self.count)):
            for rank in self.setting.of_node(behind):
                held += what(rank)
                while len(held) > gathering.WINDOW_BYTES:
                    yield bytes(held[: gathering.WINDOW_BYTES]), False
                    del held[: gathering.WINDOW_BYTES]
        yield bytes(held), True

    def send(self, to: int, data: Any, last: bool) -> None:
        self.messages += 1

    def receive(self, source: int) -> tuple[bytes, bool]:
        began = time.perf_counter()
        data, last = next(self._coming[source])
        self.spent_s += time.perf_counter() - began
        self.messages += 1
        self.largest_message = max(self.largest_message, len(data))
        return data, last


class QueueLink:
    """Messages between threads, one on its way at a time between any two."""

    def __init__(self, number: int, ways: dict[tuple[int, int], queue.Queue[tuple[bytes, bool]]], count: int) -> None:
        self.number, self.count, self._ways = number, count, ways

    def send(self, to: int, data: Any, last: bool) -> None:
        self._ways[self.number, to].put((bytes(data), last))

    def receive(self, source: int) -> tuple[bytes, bool]:
        return self._ways[source, self.number].get()


class Timed(Ranks):
    """Rank 0's door, which notes how long each call took and what it brought."""

    def __init__(self, played: Played | None, *door: Any) -> None:
        super().__init__(*door)
        self._played = played
        self.steps: list[dict[str, Any]] = []
        self._began = self._now()

    def _now(self) -> float:
        return time.perf_counter() - (self._played.spent_s if self._played is not None else 0.0)

    def _note(self, name: str, count: int, began: float) -> None:
        self.steps.append({"step": name, "bytes": count, "s": self._now() - began})

    def tell(self, word: bytes) -> bytes:
        began = self._now()
        said = super().tell(word)
        self._note("tell " + next(iter(json.loads(word))), len(word), began)
        return said

    def gather(self, mine: bytes, take: Take | None = None) -> None:
        began, count = self._now(), 0

        def counted(piece: bytes) -> None:
            nonlocal count
            count += len(piece)
            assert take is not None
            take(piece)

        super().gather(mine, counted)
        self._note("gather", count, began)


def spec_of(setting: Setting, folder: Path) -> WorkerSpec:
    """The launch's spec: one case, an allreduce over all ranks."""
    case = Case("ccl", "allreduce", 1 << 20, 1 << 20, tuple(range(setting.ranks)),
                stop=StopRule("count", setting.samples, 0.025, 1_000_000_000))  # fmt: skip
    spec = WorkerSpec(
        launch=0, repeat=0, launch_key="k", launch_info={}, mode="processes", ranks=setting.ranks, ranks_per_device=1,
        devices=tuple(range(setting.ranks)), runtime="host", ordinals=tuple(range(setting.ranks)), cores=None,
        available_cores=8, peer_access=True, seed=1, max_failures=3, failures={}, journal=str(folder / "j.lgj"),
        heartbeat=str(folder / "heartbeat"), folder=str(folder), evidence=str(folder), thread_level="funneled",
        cases=(CaseEntry(case, 0, 0),),
    )  # fmt: skip
    spec.write(folder / "spec.json")
    return WorkerSpec.read(folder / "spec.json")


def resident(name: str) -> int:
    """VmRSS or VmHWM of this process, bytes."""
    text = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith(name))


def checked(setting: Setting, journal: Path) -> dict[str, Any]:
    """Compare a journal with what the ranks had; its bytes, records, and the longest header."""
    expected = dict.fromkeys(COLUMNS, 0)
    rows = 0
    for rank in range(setting.ranks):
        outcome = outcome_of(setting, rank)
        rows += len(outcome.observations)
        for name, dtype in COLUMNS.items():
            expected[name] = zlib.crc32(np.ascontiguousarray(outcome.samples[name], dtype).tobytes(), expected[name])
    records = list(read_journal(journal))
    (launch,) = [record for record in records if record.kind == "launch"]
    (case,) = [record for record in records if record.kind == "case"]
    found = [row for record in records if record.kind == "observations" for row in record.header["rows"]]
    assert [one["rank"] for one in launch.header["ranks"]] == list(range(setting.ranks))
    assert {name: zlib.crc32(column.tobytes()) for name, column in case.columns.items()} == expected
    assert len(found) == rows
    assert [row["rank"] for row in found] == sorted(row["rank"] for row in found)
    return {"journal_bytes": journal.stat().st_size, "records": len(records),
            "longest_header_bytes": max(len(json.dumps(record.header)) for record in records)}  # fmt: skip


def simulate(setting: Setting, threads: bool) -> dict[str, Any]:
    """Run the launch in this process, and say what it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = spec_of(setting, folder)
        watch = HeartbeatFile(Path(spec.heartbeat), setting.ranks, create=True)
        played = None if threads else Played(setting)
        if played is not None:
            doors: list[tuple[Any, ...]] = [(played, played if played.count > 1 else None)]
        else:
            ways: dict[tuple[int, int], queue.Queue[tuple[bytes, bool]]] = {}
            doors = []
            for node in range(setting.nodes):
                for child in children_of(node, setting.nodes):
                    ways[child, node], ways[node, child] = queue.Queue(1), queue.Queue(1)
                groups = _core.thread_groups(len(setting.of_node(node)))
                doors += [(group, None if group.rank or setting.nodes == 1 else QueueLink(node, ways, setting.nodes))
                          for group in groups]  # fmt: skip
        first = Timed(played, *doors[0])
        sessions = [SimulatedSession(setting, 0, first)]
        sessions += [SimulatedSession(setting, rank, Ranks(*door)) for rank, door in enumerate(doors[1:], 1)]
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
        before, began, played_s = resident("VmRSS"), time.perf_counter(), 0.0
        others = [threading.Thread(target=run_rank, args=(spec, session, session.rank, watch))
                  for session in sessions[1:]]  # fmt: skip
        for thread in others:
            thread.start()
        run_rank(spec, sessions[0], 0, watch)
        for thread in others:
            thread.join()
        took = time.perf_counter() - began
        peak = resident("VmHWM")
        result: dict[str, Any] = {"ranks": setting.ranks, "nodes": setting.nodes, "samples_a_rank": setting.samples,
                                  "threads": threads, "grew_bytes": peak - before}  # fmt: skip
        if played is not None:
            played_s = played.spent_s
            result |= {"messages": played.messages, "largest_message_bytes": played.largest_message}
        result |= {"s": took - played_s, "steps": named(first.steps)}
        return result | checked(setting, Path(spec.journal))


def named(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps by what they are; the columns of samples as one."""
    gathers = ["introductions", "outcomes", "lanes", "observations"]
    found: list[dict[str, Any]] = []
    for step in steps:
        name = step["step"] if step["step"] != "gather" else gathers.pop(0) if gathers else "samples"
        if found and found[-1]["step"] == name:
            found[-1]["bytes"] += step["bytes"]
            found[-1]["s"] += step["s"]
        else:
            found.append({**step, "step": name})
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON for each number of ranks."""
    parser = options(__doc__)
    parser.add_argument("--ranks", nargs="*", type=int, default=[100, 1000, 10000])
    parser.add_argument("--per-node", type=int, default=8)
    parser.add_argument("--samples", type=int, default=2000, help="of each rank")
    parser.add_argument("--threads", action="store_true", help="every rank is a thread; up to about 1,000")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.one:
        print(json.dumps(simulate(Setting(asked.ranks[0], asked.per_node, asked.samples), asked.threads)))
        return
    for ranks in asked.ranks:
        command = [sys.executable, __file__, "--one", "--ranks", str(ranks), "--per-node", str(asked.per_node),
                   "--samples", str(asked.samples), *["--threads"] * asked.threads]  # fmt: skip
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


if __name__ == "__main__":
    main()
