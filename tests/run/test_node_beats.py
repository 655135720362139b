"""What the parent knows of ranks on other nodes: a slow case there is not hung, a stopped rank is."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linkgauge.model.case import Case
from linkgauge.model.stop_rule import StopRule
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.parent.measure import measure
from linkgauge.run.parent.prepare import named_mpis, new_pending
from linkgauge.run.parent.prepared import WORKER, Prepared, write_launches
from linkgauge.run.parent.reporter import Reporter
from linkgauge.run.parent.watch import COMPILE_PATIENCE_S, LaunchWatch
from linkgauge.run.wire import door
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.heartbeat import PHASE, PHASE_NAMES, HeartbeatFile
from linkgauge.run.wire.node_beats import BeatReporter, NodeBeats
from linkgauge.run.wire.spec import CaseEntry
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter
from linkgauge.store.run import load
from patience import PATIENCE_S
from planted_faults import HAVE_FAULTS, NO_FAULTS
from run.conftest import devices_of, machine_of
from run.on_a_node import namespaces_may_be_made
from thorough import thorough

PLAN = """
[[case]]
transport = "mpi"
pattern = "pingpong"
size = {sizes}
pairs = "first"
stop_rule = "duration"
max_time = "{ms}ms"
"""
PLANTER = Path(__file__).parents[1] / "faults" / "planter.py"
HUNG_AFTER_S = 5.0  # of which twice is what a busy machine may take between two cases
LONG_MS = 7000


def run_outside(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sizes: str, ms: int, fault: dict[str, Any] | None = None
) -> list[Any]:
    """The rows of a run of two ranks, each on a node on which the parent is not."""
    monkeypatch.setenv("MPIR_CVAR_NOLOCAL", "1")  # MPICH takes both to be on one node, and shares memory there
    machine = machine_of(2)
    for seed in itertools.count():
        text = f"seed = {seed}\n{PLAN.format(sizes=sizes, ms=ms)}"
        plan, mpis = named_mpis(parse_plan(text, "nodes", "nodes"), [])
        planned = plan_run(plan, expand(plan, machine), machine)
        if planned[0].cases[-1].size == 8:  # what a fault stops comes last: of both nodes a beat has come then
            break
    run = RunFolder.create(folder / "run", {"seed": 1})
    write_launches(run.path, planned)
    worker = (sys.executable, str(Path(__file__).with_name("on_a_node.py")), "apart", *WORKER)
    prepared = Prepared(new_pending(planned), devices_of(2), machine, mpis, seed=1, fault=fault, worker=worker,
                        hung_after_s=HUNG_AFTER_S)  # fmt: skip
    measure(prepared, run, Reporter())
    loaded = load(run.path)
    hosts = {rank["host"] for launch in loaded.launches.to_pylist() for rank in launch["ranks"]}
    assert hosts == {"node0", "node1"}
    assert list(run.path.rglob("*.beats")) == []
    return sorted(loaded.rows(), key=lambda row: row.case.size)


several = pytest.mark.skipif(not namespaces_may_be_made(), reason="no namespaces may be made here")


@thorough("the tests below have what nodes report, and silence")
@several
def test_a_case_that_takes_longer_than_the_patience_on_other_nodes_is_not_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, heard = NodeBeats._report, set()

    def noted(self: NodeBeats, node: Any, words: Any) -> None:
        report(self, node, words)
        heard.update(node.ranks)

    monkeypatch.setattr(NodeBeats, "_report", noted)
    (row,) = run_outside(tmp_path, monkeypatch, '"8"', ms=LONG_MS)
    assert row.status == "ok", row.reason
    assert heard == {0, 1}


@thorough("a rank that stops here is in tests/faults; the tests below have what nodes report, and silence")
@several
@pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS)
def test_a_rank_that_stops_on_another_node_is_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = {"transport": "mpi", "size": 8, "kind": "stop", "phase": "time", "rank": 1}
    fault = {"planter": str(PLANTER), "folder": str(tmp_path), "faults": [planted]}
    stopped, other = run_outside(tmp_path, monkeypatch, '["8", "1KiB"]', ms=500, fault=fault)
    assert (stopped.status, other.status) == ("hung", "ok"), (stopped.reason, other.reason)
    ranks = stopped.evidence["ranks"]
    assert [rank["state"] for rank in ranks] == ["on another node"] * 2


@thorough("the tests below have what nodes report, and silence")
@several
def test_nodes_that_cannot_reach_the_parent_are_not_taken_for_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = NodeBeats.listen

    def refusing(self: NodeBeats, hosts: Any) -> None:
        listen(self, hosts)
        assert self._door is not None
        self._door.close()
        self._door = None

    monkeypatch.setattr(NodeBeats, "listen", refusing)
    (row,) = run_outside(tmp_path, monkeypatch, '"8"', ms=LONG_MS)
    assert row.status == "ok", row.reason


TOKEN = "0123456789abcdef"


def hello_of(ranks: Any) -> bytes:
    return f"{TOKEN} {json.dumps([ranks])}\n".encode()


class Ends:
    """A parent's end, and a node's of ranks 1 and 2, in one process."""

    def __init__(self, folder: Path) -> None:
        self.parents = HeartbeatFile(folder / "parent", 3, create=True)
        self.nodes = HeartbeatFile(folder / "node", 3, create=True)
        self.parents.set_word(0, beat.PID, os.getpid())
        self.place = folder / "launch-00000.beats"
        self.end = NodeBeats(self.parents, self.place, TOKEN)

    def until(self, holds: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline
            self.end.look()
            time.sleep(0.01)

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.place.read_text())
        return told


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path)
    with contextlib.closing(made.end):
        yield made


def test_counters_come_over_and_a_stop_goes_back(ends: Ends) -> None:
    for rank in (1, 2):
        ends.nodes.set_word(rank, beat.PID, 100 + rank)
        ends.nodes.set_word(rank, beat.COUNT, 7)
    BeatReporter(ends.place, ends.nodes, (1, 2), TOKEN, lambda: 12345).start()  # it waits for the parent to listen
    ends.end.listen(["no.such.host.invalid"])
    assert ends.end.unheard == {1, 2}
    assert ends.place.stat().st_mode & 0o077 == 0
    ends.until(lambda: not ends.end.unheard)
    assert [ends.parents.word(rank, beat.COUNT) for rank in range(3)] == [0, 7, 7]
    assert ends.parents.crossed([0, 2]) == 12345
    assert [ends.parents.word(rank, beat.PID) for rank in (1, 2)] == [0, 0]  # another node's are not this one's
    ends.nodes.set_word(2, beat.PHASE, 5)
    ends.until(lambda: ends.parents.word(2, beat.PHASE) == 5)
    assert not ends.nodes.stop_requested
    ends.parents.request_stop()
    ends.until(lambda: ends.nodes.stop_requested)


def test_nothing_is_opened_where_all_ranks_are_here(ends: Ends) -> None:
    for rank in (1, 2):
        ends.parents.set_word(rank, beat.PID, 100 + rank)
    ends.end.listen(["here"])
    assert ends.place.read_text() == ""
    assert ends.end.unheard == frozenset()


def test_who_does_not_show_the_token_is_not_heard(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    ends.end.listen([])
    port = ends.told()["port"]
    assert TOKEN not in ends.place.read_text()
    report = b"".join(word.to_bytes(8, "little") for word in (0, 9, 9, 9, 9, 9))
    for hello in (b"x" * 600, b"\n", b"no [1]\n", TOKEN.encode() + b"[1]\n", *map(hello_of, (4, 0, "1", None))):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stranger:
            stranger.sendall(hello + report)
            with contextlib.suppress(ConnectionResetError):
                stranger.settimeout(0.01)
                ends.until(lambda: _is_closed(stranger))
    monkeypatch.setattr(door, "_STRANGER_S", 0.05)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as silent:
        silent.settimeout(0.01)
        ends.until(lambda: _is_closed(silent))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as known:
        known.sendall(hello_of(1) + report)  # of a rank that is the parent's own to watch
        known.settimeout(0.01)
        ends.until(lambda: _answered(known))
    assert ends.end.unheard == {1, 2}
    assert ends.parents.word(0, beat.COUNT) == 0


def test_more_nodes_may_connect_than_files_are_usually_allowed() -> None:
    script = (
        "import resource; from linkgauge.run.wire import node_beats\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))\n"
        "for nodes in (10, 400, 1 << 40):\n"
        "    node_beats._make_room(nodes)\n"
        "    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "print(hard)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    few, some, most, hard = map(int, done.stdout.split())
    assert few == 300
    assert some == 656 or some == hard < 656
    assert most in (some, hard)


def test_a_node_whose_connection_ends_is_no_longer_heard_and_known_to_have_left_until_it_is_back(ends: Ends) -> None:
    ends.end.listen([])
    with socket.create_connection(("127.0.0.1", ends.told()["port"]), timeout=PATIENCE_S) as link:
        report = b"".join(word.to_bytes(8, "little") for word in (2, 3, 1, 1, 1, 5))
        link.sendall(hello_of(1) + report[:13])
        ends.end.look()
        link.sendall(report[13:])
        ends.until(lambda: ends.end.unheard == {1})
        assert ends.parents.word(2, beat.COUNT) == 3
        assert ends.end.left == {}
    ends.until(lambda: ends.end.unheard == {1, 2})
    assert ends.end.left.keys() == {2}
    with socket.create_connection(("127.0.0.1", ends.told()["port"]), timeout=PATIENCE_S) as link:
        link.sendall(hello_of(1) + report)
        ends.until(lambda: ends.end.unheard == {1})
        assert ends.end.left == {}


@pytest.mark.parametrize("together", [False, True])
def test_which_node_closed_first_is_known_where_it_was_alone_between_two_looks(ends: Ends, together: bool) -> None:
    """A launcher ends the others within milliseconds, so that a wait between two looks ends at once."""
    ends.end.listen([])
    links = [socket.create_connection(("127.0.0.1", ends.told()["port"]), timeout=PATIENCE_S) for _ in range(2)]
    for rank, link in enumerate(links, 1):
        link.sendall(hello_of(1) + b"".join(word.to_bytes(8, "little") for word in (rank, 3, 1, 1, 1, 5)))
    ends.until(lambda: not ends.end.unheard)
    news = select.poll()
    news.register(ends.end.closings.fileno(), select.POLLIN)
    assert news.poll(0) == []
    links[1].close()
    assert news.poll(1000 * PATIENCE_S)
    if not together:
        ends.end.look()
        assert ends.end.first_left == (2,)
        assert news.poll(0) == []
    links[0].close()
    ends.until(lambda: ends.end.left.keys() == {1, 2})
    assert ends.end.first_left == (() if together else (2,))


def _is_closed(link: socket.socket) -> bool:
    try:
        return link.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def _answered(link: socket.socket) -> bool:
    try:
        return len(link.recv(1)) == 1
    except TimeoutError:
        return False


@pytest.mark.parametrize(
    ("unheard", "status", "after_s"), [((), "hung", 10), ((2,), "hung", 10), ((0, 2), "timeout", 20)]
)
def test_silence_of_ranks_that_are_not_heard_ends_no_case_before_its_time(
    tmp_path: Path, unheard: tuple[int, ...], status: str, after_s: float
) -> None:
    """Devices 0 and 1 take part in the case, by ranks 0 and 1; rank 2 does not."""
    case = Case("mpi", "pingpong", 8, 8, (0, 1), stop=StopRule(time_ns=10**9))
    entry, now = CaseEntry(case, 0, 0), [0.0]
    journal = tmp_path / "launch-00000.lgj"
    heartbeat = HeartbeatFile(tmp_path / "heartbeat", 3, create=True)
    watch = LaunchWatch(journal, heartbeat, {entry.key: entry}, machine_of(3), devices=(0, 1, 2), clock=lambda: now[0])
    with JournalWriter(journal) as writer:
        writer.append("launch", {"launch": 0, "ranks": []}, durable=False)
        writer.append("begin", {"case_key": case.case_key, "launch": 0, "repeat": 0, "attempt": 0}, durable=False)
        assert len(watch.new_records()) == 2
        trouble = None
        while trouble is None and now[0] < 100:
            now[0] += 0.2
            trouble = watch.trouble(frozenset(unheard))
    assert trouble is not None
    assert trouble.status == status
    assert now[0] > after_s
    assert ("no heartbeat of rank 0 came here" in trouble.reason) == (status == "timeout")


def ends_at(folder: Path, case: Case, crossed: Callable[[float], int]) -> tuple[str, float]:
    """The status, and when, of a case without a heartbeat, by what its other node's cards have counted until then."""
    entry, now = CaseEntry(case, 0, 0), [0.0]
    heartbeat = HeartbeatFile(folder / "heartbeat", 2, create=True)
    journal = folder / "launch-00000.lgj"
    watch = LaunchWatch(journal, heartbeat, {entry.key: entry}, machine_of(2), devices=(0, 1), clock=lambda: now[0])
    with JournalWriter(journal) as writer:
        writer.append("launch", {"launch": 0, "ranks": []}, durable=False)
        writer.append("begin", {"case_key": case.case_key, "launch": 0, "repeat": 0, "attempt": 0}, durable=False)
    watch.new_records()
    while now[0] < 1000:
        now[0] += 0.2
        heartbeat.set_word(1, beat.CROSSED, crossed(now[0]))
        if (trouble := watch.trouble()) is not None:
            return trouble.status, now[0]
    return "", now[0]


def test_a_silent_case_whose_bytes_go_on_crossing_is_not_hung(tmp_path: Path) -> None:
    """256 MiB in flight over 100 Mb/s take 21 s, of which nothing is heard; then nothing crosses any more."""
    window = Case("mpi", "unidirectional", 4 << 20, 4 << 20, (0, 1), window=64, stop=StopRule(time_ns=60 * 10**9))
    whole = 64 * (4 << 20)
    cases: list[tuple[str, Callable[[float], int], float]] = [
        ("crosses", lambda now: 10**9 + min(whole, int(now * 12.5e6)), 21.4 + 10),
        ("silent", lambda now: 10**9, 10),
        ("talk", lambda now: 10**9 + int(now * 400), 10),  # the node's own reports
        ("others", lambda now: 10**9 + int(now * 100e6), 3 * whole / 100e6 + 10),  # another job's
    ]
    for name, crossed, after_s in cases:
        (tmp_path / name).mkdir()
        status, at_s = ends_at(tmp_path / name, window, crossed)
        assert status == "hung", name
        assert after_s < at_s < after_s + 3, name
    small = dataclasses.replace(window, size=8, size_requested=8, window=1)
    (tmp_path / "small").mkdir()
    status, at_s = ends_at(tmp_path / "small", small, cases[3][1])
    assert (status, at_s < 11) == ("hung", True)


def test_what_kernels_take_to_be_linked_is_no_part_of_the_case_but_has_an_end(tmp_path: Path) -> None:
    """A rank says that it compiles for 300 s, then no more; another that never ends is given up."""
    case = Case("nvshmem", "pingpong", 8, 8, (0, 1), stop=StopRule(time_ns=10**9), variant="device")
    entry = CaseEntry(case, 0, 0)
    for ends_after_s, gives_up_after_s in ((300.0, 310.0), (float("inf"), COMPILE_PATIENCE_S)):
        now = [0.0]
        folder = tmp_path / f"{ends_after_s}"
        folder.mkdir()
        heartbeat = HeartbeatFile(folder / "heartbeat", 2, create=True)
        watch = LaunchWatch(folder / "launch-00000.lgj", heartbeat, {entry.key: entry}, machine_of(2), devices=(0, 1),
                            clock=lambda now=now: now[0])  # fmt: skip
        with JournalWriter(folder / "launch-00000.lgj") as writer:
            writer.append("launch", {"launch": 0, "ranks": []}, durable=False)
            writer.append("begin", {"case_key": case.case_key, "launch": 0, "repeat": 0, "attempt": 0}, durable=False)
        watch.new_records()
        heartbeat.set_word(0, PHASE, PHASE_NAMES.index("compile"))
        trouble = None
        while trouble is None and now[0] < 2000:
            now[0] += 0.5
            if now[0] >= ends_after_s:
                heartbeat.set_word(0, PHASE, PHASE_NAMES.index("check"))
            trouble = watch.trouble()
        assert trouble is not None
        assert trouble.status == "hung"
        assert gives_up_after_s < now[0] < gives_up_after_s + 30
