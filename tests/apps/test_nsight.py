"""Exports of Nsight Systems become step files: NCCL's calls by their payloads and kernels, MPI's by its tables."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.apps.matching import check
from linkgauge.apps.program import amounts, program_of
from linkgauge.apps.step_file import step_file_of
from linkgauge.apps.traces import convert
from nsight_exports import Export

WORLD, PAIR = 0xF0F0_F0F0_F0F0_F0F0, 77  # communicators


def test_nccl_in_the_order_and_at_the_times_of_its_kernels(tmp_path: Path) -> None:
    made = Export(tmp_path / "all.sqlite")
    # The process with the lower number is rank 1.
    for process, rank in ((100, 1), (200, 0)):
        made.nccl(process, 0, 10, "CommInitRank", WORLD, 2, rank, 0)
        made.kernel(process, 1000, 3000, "gemm", 100)
        made.nccl(process, 110, 120, "AllReduce", WORLD, 4096, 0)
        made.kernel(process, 3000, 9000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 115)
        made.kernel(process, 3500, 5500, "gemm", 130)  # beside it
        made.kernel(process, 9000, 9500, "gemm", 140)  # behind it
        made.nccl(process, 150, 160, "AllGather", WORLD, 512, registered=False)
        made.kernel(process, 9500, 9900, "ncclDevKernel_AllGather_RING_LL", 155)
        made.nccl(process, 161, 165, "ReduceScatter", WORLD, 256)
        made.kernel(process, 9900, 9950, "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", 163)
        made.nccl(process, 170, 180, "Broadcast", WORLD, 64, 1)
        made.kernel(process, 9950, 9990, "ncclDevKernel_Broadcast_RING_LL", 175)
    document, lost = convert([made.closed()])
    assert document["needs"] == {"ranks == 2": "2 ranks, as the traces have"}
    assert document["step"] == [
        {"compute": 2000}, {"collective": "allreduce", "bytes": 4096, "begun": True}, {"compute": 2000},
        {"wait": True}, {"compute": 500}, {"collective": "allgather", "bytes": "512 * ranks", "begun": True},
        {"wait": True}, {"collective": "reduce_scatter", "bytes": "256 * ranks", "begun": True},
        {"wait": True}, {"collective": "broadcast", "bytes": 64, "root": 1, "begun": True}, {"wait": True},
    ]  # fmt: skip
    assert not any("order" in words and "process" in words for words in lost)


def test_groups_of_messages_go_by_one_kernel_and_by_ranks_of_their_communicator(tmp_path: Path) -> None:
    files = []
    for rank in range(4):  # a file each, as 'nsys profile -o rank%q{...}' makes them; 2 and 3 have one of their own
        made = Export(tmp_path / f"rank{rank}.sqlite")
        made.nccl(50, 0, 1, "CommInitRank", WORLD, 4, rank, 0)
        made.nccl(50, 10, 11, "GroupStart")
        made.nccl(50, 11, 12, "Send", WORLD, 1024, (rank + 1) % 4)
        made.nccl(50, 12, 13, "Recv", WORLD, 1024, (rank - 1) % 4)
        made.nccl(50, 13, 14, "Send", WORLD, 1024, rank)
        made.nccl(50, 14, 20, "GroupEnd", WORLD)
        made.kernel(50, 100, 200, "ncclDevKernel_SendRecv", 19)
        if rank >= 2:
            made.nccl(50, 30, 31, "CommInitRank", PAIR, 2, 3 - rank, 0)
            made.nccl(50, 32, 33, "AlltoAll", PAIR, 128)
            made.nccl(50, 34, 35, "Broadcast", PAIR, 64, 0)
        files.append(made.closed())
    document, lost = convert(files)
    program = program_of(step_file_of(document, "made"), {}, 4)
    check(program)
    for rank in range(4):
        found = {name: (one.count, one.total) for name, one in amounts(program, rank).items()}
        assert found["sent"] == found["received"] == (1, 1024)
        assert found.get("alltoall") == ((1, 128) if rank >= 2 else None)
    roots = [(one.ranks[one.root], one.ranks) for one in program.collectives if one.pattern == "broadcast"]
    assert roots == [(3, (2, 3))]  # rank 3 is the first of the pair
    assert lost["messages of a rank to itself"] == 4
    assert lost["when calls of NCCL without a kernel were over: taken as begun when called"] == 4


def test_mpi_with_what_goes_on_between(tmp_path: Path) -> None:
    made = Export(tmp_path / "mpi.sqlite")
    for process, rank in ((9, 1), (8, 0)):
        made.mpi_rank(process, rank)
        made.communicator(rank, 5, rank, 2, 1234)
        other = 1 - rank
        made.mpi("P2P", process, 100, 110, "MPI_Irecv", 5, 3, other, 4096, 1)
        made.mpi("P2P", process, 110, 120, "MPI_Isend", 5, 3, other, 4096, 2)
        made.mpi("START_WAIT", process, 1120, 1500, "MPI_Waitall", None)
        made.mpi("COLLECTIVES", process, 1500, 1600, "MPI_Bcast", 5, 1, 64, 64, None)
        made.mpi("COLLECTIVES", process, 1600, 1700, "MPI_Iallreduce", 5, None, 32, 32, 4)
        made.mpi("START_WAIT", process, 2700, 2800, "MPI_Wait", 4)
    document, _ = convert([made.closed()])
    zero = next(one["step"] for one in document["step"] if one["when"] == "rank == 0")
    assert zero == [
        {"receive": 1, "bytes": 4096}, {"send": 1, "bytes": 4096}, {"compute": 1000}, {"wait": True},
        {"collective": "broadcast", "bytes": 64, "root": 1},
        {"collective": "allreduce", "bytes": 32, "begun": True}, {"compute": 1000}, {"wait": True},
    ]  # fmt: skip
    check(program_of(step_file_of(document, "made"), {}, 2))


def _no_payloads(path: Path) -> Path:
    made = Export(path, payloads=False)
    made.nccl(1, 0, 1, "AllReduce", WORLD, 4, 0)
    return made.closed()


def _nothing(path: Path) -> Path:
    made = Export(path)
    made.kernel(1, 0, 1, "gemm", 0)
    return made.closed()


def _too_few(path: Path) -> Path:
    made = Export(path)
    made.nccl(1, 0, 1, "CommInitRank", WORLD, 8, 0, 0)
    made.nccl(1, 1, 2, "AllReduce", WORLD, 4, 0)
    return made.closed()


def _several(path: Path) -> Path:
    made = Export(path)
    for rank in (0, 1):
        made.nccl(1, rank, rank + 1, "CommInitRank", WORLD, 2, rank, rank)
    return made.closed()


def _damaged(path: Path) -> Path:
    content = _too_few(path).read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    return path


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_no_payloads, "entry 0: ncclAllReduce without its bytes: expected payloads"), (_damaged, "cannot be read"),
        (_nothing, "no call of NCCL or MPI in it"), (_too_few, "a communicator of 8 ranks, and 1 processes"),
        (_several, "one process is several ranks of a communicator"),
    ],
)  # fmt: skip
def test_what_an_export_lacks_is_told(
    tmp_path: Path, make: Callable[[Path], Path], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["convert", str(make(tmp_path / "x.sqlite"))]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert expected in said[0]
    assert str(tmp_path) in said[0]


@pytest.mark.parametrize(
    "statement",
    [
        # Each row of these would compute for hours: 40 KB that end no command.
        "CREATE TABLE MPI_RANKS (globalTid INTEGER, rank INTEGER AS (length(hex(zeroblob(500000000)))))",
        "CREATE TABLE MPI_RANKS (globalTid INTEGER, rank INTEGER AS (length(hex(zeroblob(500000000)))) STORED)",
    ],
)
def test_columns_that_are_computed_are_refused(
    tmp_path: Path, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bomb.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        base.execute(statement)
        base.commit()
    assert run_command(["convert", str(path), "-o", str(tmp_path / "out.toml")]) == 2
    assert "MPI_RANKS has computed columns" in capsys.readouterr().err


def test_a_virtual_table_is_no_table_of_an_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "virtual.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE VIRTUAL TABLE StringIds USING rtree(id, low, high)")
        base.commit()
    assert run_command(["convert", str(path), "-o", str(tmp_path / "out.toml")]) == 2
    assert "no table StringIds" in capsys.readouterr().err
