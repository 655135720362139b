"""OTF2 traces become step files: written here by the format's own package, with the sizes that Score-P gives."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app.cli import run_command
from linkgauge.apps.matching import check
from linkgauge.apps.program import amounts, program_of
from linkgauge.apps.step_file import step_file_of
from linkgauge.apps.traces import convert
from thorough import most, thorough

RANKS, BLOCK = 4, 64
NONE = 0xFFFFFFFF  # of a collective without a root
# What Score-P counts of a call on all ranks with blocks of 64 bytes, sent and received: at the root, 2, and elsewhere.
ALL = RANKS * BLOCK
CALLS = {
    "BARRIER": ((0, 0), (0, 0)), "BCAST": ((ALL, BLOCK), (0, BLOCK)), "SCATTER": ((ALL, BLOCK), (0, BLOCK)),
    "GATHER": ((BLOCK, ALL), (BLOCK, 0)), "REDUCE": ((BLOCK, ALL), (BLOCK, 0)),
    **dict.fromkeys(("ALLREDUCE", "ALLGATHER", "ALLTOALL", "REDUCE_SCATTER_BLOCK"), ((ALL, ALL), (ALL, ALL))),
}  # fmt: skip
# The size m of definitions.md that such a call is.
SIZES = {"broadcast": BLOCK, "scatter": ALL, "gather": ALL, "reduce": BLOCK, "allreduce": BLOCK, "allgather": ALL,
         "alltoall": BLOCK, "reduce_scatter": ALL}  # fmt: skip


@pytest.fixture
def otf2(monkeypatch: pytest.MonkeyPatch) -> Any:
    place = os.environ.get("LINKGAUGE_TEST_OTF2", "")
    if place:
        monkeypatch.syspath_prepend(place)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH")))))
    return pytest.importorskip("otf2", reason="needs otf2; LINKGAUGE_TEST_OTF2 names a folder with it")


class Trace:
    """A trace of four ranks and a thread that is none, a microsecond a tick."""

    def __init__(self, otf2: Any, folder: Path) -> None:
        self.otf2, self.path = otf2, folder / "trace"
        self.held = otf2.writer.open(str(self.path), timer_resolution=1_000_000)
        self.archive = self.held.__enter__()
        kinds, named = importlib.import_module("otf2.enums"), self.archive.definitions
        mpi = {"paradigm": kinds.Paradigm.MPI}
        tree = named.system_tree_node("machine")
        groups = [named.location_group(f"rank {rank}", system_tree_parent=tree) for rank in range(RANKS)]
        places = [named.location("main", group=group) for group in groups]
        self.writers = [self.archive.event_writer_from_location(place) for place in places]
        self.thread = self.archive.event_writer_from_location(named.location("thread", group=groups[0]))
        self.call = named.region("MPI_Call", **mpi)
        self.work = named.region("work", paradigm=kinds.Paradigm.USER)
        named.group("ranks", group_type=kinds.GroupType.COMM_LOCATIONS, members=places, **mpi)

        def comm(name: str, members: list[int]) -> Any:
            kind = kinds.GroupType.COMM_GROUP
            return named.comm(
                name, group=named.group(name, group_type=kind, members=[places[i] for i in members], **mpi)
            )

        self.world, self.odd = comm("world", [*range(RANKS)]), comm("odd", [1, 3])
        self.ops = kinds.CollectiveOp
        self.now = [1000] * RANKS

    def inside(self, rank: int, event: str, **said: Any) -> None:
        """A call of MPI that takes 10 us and has the event in it; 5 us of work go before."""
        writer, begin = self.writers[rank], self.now[rank] + 5
        writer.enter(begin, self.call)
        if event:
            getattr(writer, event)(begin + 5, **said)
        writer.leave(begin + 10, self.call)
        self.now[rank] = begin + 10

    def closed(self) -> Path:
        self.held.__exit__(None, None, None)
        return self.path / "traces.otf2"


def moved(path: Path, rank: int) -> dict[str, tuple[int, int]]:
    document, _ = convert([path])
    made = program_of(step_file_of(document, "trace"), {}, RANKS)
    return {name: (one.count, one.total) for name, one in amounts(made, rank).items()}


def verbs(document: dict[str, Any], rank: int) -> list[str]:
    (own,) = [one["step"] for one in document["step"] if one["when"] == f"rank == {rank}"]
    return [next(iter(step)) for step in own if "compute" not in step]


def test_messages_are_between_ranks_of_the_world_and_waited_for_where_they_end(otf2: Any, tmp_path: Path) -> None:
    trace = Trace(otf2, tmp_path)
    trace.inside(0, "mpi_send", receiver=1, communicator=trace.world, msg_tag=7, msg_length=1024)
    trace.inside(1, "mpi_recv", sender=0, communicator=trace.world, msg_tag=7, msg_length=1024)
    # Of the communicator of ranks 1 and 3: begun, and ended later.
    trace.inside(3, "mpi_irecv_request", request_id=5)
    trace.inside(1, "mpi_isend", receiver=1, communicator=trace.odd, msg_tag=0, msg_length=512, request_id=9)
    trace.inside(3, "mpi_irecv", sender=0, communicator=trace.odd, msg_tag=0, msg_length=512, request_id=5)
    trace.inside(1, "mpi_isend_complete", request_id=9)
    trace.thread.enter(1001, trace.work)
    trace.thread.leave(9001, trace.work)
    path = trace.closed()
    assert [moved(path, rank) for rank in (0, 2)] == [{"sent": (1, 1024)}, {}]
    assert moved(path, 1)["received"] == (1, 1024)
    assert moved(path, 1)["sent"] == moved(path, 3)["received"] == (1, 512)
    document, lost = convert([path])
    assert verbs(document, 1) == ["receive", "wait", "send", "wait"]
    assert verbs(document, 3) == ["receive", "wait"]
    assert any("in place" in words for words in lost)


@pytest.mark.parametrize("op", most([*CALLS], [*CALLS][::3]))
@pytest.mark.parametrize("begun", [False, True])
def test_a_collective_has_the_size_of_its_call(otf2: Any, tmp_path: Path, op: str, begun: bool) -> None:
    trace = Trace(otf2, tmp_path)
    root = 2 if CALLS[op][0] != CALLS[op][1] else NONE
    for rank in range(RANKS):
        sent, received = CALLS[op][rank != root]
        said = {"collective_op": getattr(trace.ops, op), "communicator": trace.world, "root": root, "size_sent": sent,
                "size_received": received}  # fmt: skip
        if begun:
            trace.inside(rank, "non_blocking_collective_request", request_id=1)
            trace.inside(rank, "non_blocking_collective_complete", request_id=1, **said)
        else:
            trace.inside(rank, "mpi_collective_end", **said)
    document, _ = convert([trace.closed()])
    (step,) = [one for one in document["step"] if "compute" not in one and "wait" not in one]
    if op == "BARRIER":
        assert step == {"barrier": True}
        return
    made = program_of(step_file_of(document, "trace"), {}, RANKS)
    (name,) = [name for name in amounts(made, 0) if name in SIZES]
    assert amounts(made, 0)[name].total == SIZES[name]
    assert step.get("root", NONE) == root
    assert step.get("begun", False) == begun


def test_what_is_not_in_mpi_is_computed(otf2: Any, tmp_path: Path) -> None:
    trace = Trace(otf2, tmp_path)
    for rank in range(RANKS):
        for _ in range(3):
            trace.inside(rank, "mpi_collective_end", collective_op=trace.ops.BARRIER, communicator=trace.world,
                         root=NONE, size_sent=0, size_received=0)  # fmt: skip
    document, _ = convert([trace.closed()])
    assert document["step"] == [{"repeat": 2, "step": [{"barrier": True}, {"compute": 5000}]}, {"barrier": True}]


def test_a_sub_group_and_an_uneven_call_say_so(otf2: Any, tmp_path: Path) -> None:
    trace = Trace(otf2, tmp_path)
    for rank in (1, 3):
        trace.inside(rank, "mpi_collective_end", collective_op=trace.ops.ALLTOALLV, communicator=trace.odd, root=NONE,
                     size_sent=96, size_received=2 * BLOCK)  # fmt: skip
    path = trace.closed()
    assert moved(path, 0) == {}
    document, lost = convert([path])
    assert any("uneven shares" in words for words in lost)
    (step,) = document["step"][0]["step"]
    assert (step["collective"], step["group"]) == (
        "alltoall",
        "0 if rank >= 1 and rank < 5 and (rank - 1) % 2 == 0 else 1 + rank",
    )


@pytest.mark.parametrize("damage", ["junk", "short", "empty"])
def test_what_is_no_trace_is_one_line(
    damage: str, otf2: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Trace(otf2, tmp_path).closed()
    if damage != "empty":  # as a trace whose ranks did nothing
        path.write_bytes(b"junk" if damage == "junk" else path.read_bytes()[:100])
    assert run_command(["convert", str(path)]) == 2
    error = capsys.readouterr().err
    assert "expected" in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("event", "said", "expected"),
    [
        ("mpi_collective_end", {"root": 77, "size_sent": 64, "size_received": 64}, "with root 77"),
        ("mpi_collective_end", {"root": 0, "size_sent": (1 << 64) - 1, "size_received": 0}, "sent is"),
        (
            "mpi_collective_end",
            {"root": 0, "size_sent": 64, "size_received": 64, "communicator": "odd"},
            "none of them",
        ),
        ("mpi_send", {"receiver": 1, "msg_length": (1 << 64) - 1, "msg_tag": 0}, "bytes is"),
        ("mpi_send", {"receiver": 77, "msg_length": 8, "msg_tag": 0}, "expected the anchor file"),
    ],
)
def test_what_no_program_does_is_one_line(
    event: str, said: dict[str, Any], expected: str, otf2: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = Trace(otf2, tmp_path)
    comm = getattr(trace, str(said.pop("communicator", "world")))
    more = {"collective_op": trace.ops.BCAST} if "root" in said else {}
    trace.inside(0, event, communicator=comm, **said, **more)
    assert run_command(["convert", str(trace.closed())]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert expected in error


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "traces.otf2")
    assert run_command(["convert", str(tmp_path / "traces.otf2")]) == 2
    assert "no regular file" in capsys.readouterr().err


@thorough("a trace is read in the tests beside, and step files run in test_run.py")
def test_a_trace_runs(otf2: Any, tmp_path: Path) -> None:
    trace = Trace(otf2, tmp_path)
    for rank in range(RANKS):
        trace.inside(rank, "mpi_send" if rank % 2 == 0 else "mpi_recv", communicator=trace.world, msg_tag=0,
                     msg_length=4096, **{"receiver" if rank % 2 == 0 else "sender": rank ^ 1})  # fmt: skip
        trace.inside(rank, "mpi_collective_end", collective_op=trace.ops.ALLREDUCE, communicator=trace.world, root=NONE,
                     size_sent=ALL, size_received=ALL)  # fmt: skip
    step_file = tmp_path / "mine.toml"
    assert run_command(["convert", str(trace.closed()), "-o", str(step_file)]) == 0
    out = tmp_path / "run"
    words = ["run", "--app", str(step_file), "--devices", f"host:{RANKS}", "--threads", "--transport", "copy_engine",
             "--stop-rule", "count", "--stop-samples", "5", "--no-report", "--out", str(out)]  # fmt: skip
    assert run_command(words) == 0


def test_without_the_package_it_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("otf2") is not None:
        pytest.skip("otf2 is installed")
    path = tmp_path / "traces.otf2"
    path.write_bytes(b"OTF2")
    assert run_command(["convert", str(path)]) == 5
    assert "pip install otf2" in capsys.readouterr().err


IN_PLACE = (RANKS - 1) * BLOCK


@pytest.mark.parametrize(
    ("op", "at_root", "total"),
    [("REDUCE", (0, IN_PLACE), BLOCK), ("GATHER", (0, IN_PLACE), ALL), ("SCATTER", (IN_PLACE, 0), ALL),
     ("ALLREDUCE", (60, 60), 20)],
)  # fmt: skip
def test_a_call_in_place_has_the_size_of_one_that_is_not(
    op: str, at_root: tuple[int, int], total: int, otf2: Any, tmp_path: Path
) -> None:
    """Score-P does not count a rank's own block then; other ranks of a rooted call count theirs."""
    trace = Trace(otf2, tmp_path)
    rooted = op != "ALLREDUCE"
    for rank in range(RANKS):
        sent, received = at_root if rank == 2 or not rooted else CALLS[op][1]
        trace.inside(rank, "mpi_collective_end", collective_op=getattr(trace.ops, op), communicator=trace.world,
                     root=2 if rooted else NONE, size_sent=sent, size_received=received)  # fmt: skip
    made = program_of(step_file_of(convert([trace.closed()])[0], "trace"), {}, RANKS)
    check(made)
    (name,) = [name for name in amounts(made, 0) if name in SIZES]
    assert amounts(made, 0)[name].total == total


def test_each_rank_of_an_uneven_allgather_has_its_own_share(otf2: Any, tmp_path: Path) -> None:
    trace = Trace(otf2, tmp_path)
    shares = [4, 8, 100, 16]
    for rank, share in enumerate(shares):
        trace.inside(rank, "mpi_collective_end", collective_op=trace.ops.ALLGATHERV, communicator=trace.world,
                     root=NONE, size_sent=RANKS * share, size_received=sum(shares))  # fmt: skip
    made = program_of(step_file_of(convert([trace.closed()])[0], "trace"), {}, RANKS)
    check(made)
    assert amounts(made, 0)["allgather"].total == sum(shares)


def test_a_message_to_oneself_is_a_copy(otf2: Any, tmp_path: Path) -> None:
    """As of a grid with periodic boundaries that is one rank wide: no rank sends itself a message in a step file."""
    trace = Trace(otf2, tmp_path)
    for rank in range(RANKS):
        message = {"communicator": trace.world, "msg_tag": 0, "msg_length": 512}
        trace.inside(rank, "mpi_irecv_request", request_id=5)
        trace.inside(rank, "mpi_send", receiver=rank, **message)
        trace.inside(rank, "mpi_irecv", sender=rank, request_id=5, **message)
    document, _ = convert([trace.closed()])
    made = program_of(step_file_of(document, "trace"), {}, RANKS)
    check(made)
    moved_here = {name: one.total for name, one in amounts(made, 3).items() if name != "compute"}
    assert moved_here == {"within_device": 512}


@pytest.mark.parametrize("begun", [False, True])
def test_a_send_is_waited_for_at_once_only_where_it_blocks(begun: bool, otf2: Any, tmp_path: Path) -> None:
    trace = Trace(otf2, tmp_path)
    message = {"communicator": trace.world, "msg_tag": 0, "msg_length": 512}
    if begun:
        trace.inside(0, "mpi_isend", receiver=1, request_id=9, **message)
        trace.inside(0, "mpi_isend_complete", request_id=9)
    else:
        trace.inside(0, "mpi_send", receiver=1, **message)
        trace.inside(0, "")
    trace.inside(1, "mpi_recv", sender=0, **message)
    (own,) = [one["step"] for one in convert([trace.closed()])[0]["step"] if one["when"] == "rank == 0"]
    assert [next(iter(step)) for step in own] == ["send", *(["compute", "wait"] if begun else ["wait", "compute"])]


BENCH = Path(__file__).parent.parent.parent / "bench" / "real_programs"
EVENTS = """T 0 900 300 3 2
G 0 - 0 0 0 0 0
G 0 - 1 0 0 0 0
E 100 MPI_Irecv 0 0 0 0 0
q 110 - 0 0 0 0 7
L 120 MPI_Irecv 0 0 0 0 0
E 300 MPI_Send 0 0 0 0 0
s 310 - {other} 0 64 0 0
L 320 MPI_Send 0 0 0 0 0
E 400 MPI_Wait 0 0 0 0 0
r 490 - {other} 0 0 64 7
L 500 MPI_Wait 0 0 0 0 0
E 700 MPI_Allreduce 0 0 0 0 0
k 790 MPI_Allreduce 0 0 16 16 0
L 800 MPI_Allreduce 0 0 0 0 0
"""


def test_what_the_benchmark_records_of_mpi_is_a_trace(
    otf2: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times between calls are computing, and what a call has in it is as the program did it."""
    monkeypatch.syspath_prepend(str(BENCH))
    recorded = importlib.import_module("otf2_of_events")
    for rank in range(2):
        (tmp_path / f"rank-{rank}.txt").write_text(EVENTS.format(other=1 - rank))
    ranks = recorded.read_ranks(tmp_path)
    assert [(one.ns, one.in_mpi_ns, one.ranks) for one in ranks] == [(900, 300, 2)] * 2
    document, _ = convert([recorded.write(ranks, tmp_path / "trace")])
    made = program_of(step_file_of(document, "trace"), {}, 2)
    check(made)
    mine = document["step"][0]["step"]
    assert [next(iter(step)) for step in mine] == ["receive", "compute", "send", "wait", "compute", "collective"]
    assert [step["compute"] for step in mine if "compute" in step] == [180, 280]
    assert mine[-1] == {"collective": "allreduce", "bytes": 8}
