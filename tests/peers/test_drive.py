"""Driving a peer: rows, launches, rounds kept on disk; a stand-in program that prints what the peer prints."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executables import python_program
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.peers import both_ends, drive, launch
from linkgauge.peers.catalog import PEERS, peer_tests
from linkgauge.peers.drive import alternate, row_of, undecided
from linkgauge.peers.launch import find_program
from linkgauge.peers.ours import ESTIMATORS, plan_text
from linkgauge.peers.request import MAX_PAIRS, MIN_PAIRS, Request, Row, rows_of
from linkgauge.peers.theirs import Figures, Reasons, launches_of, look_at_peer, measure_peer
from linkgauge.plan.expand import expand
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent import guard, mpi_library
from linkgauge.run.parent.devices import DeviceSet
from thorough import most

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RANGE = tuple(8 << (3 * step) for step in range(10))  # 8 B to 1 GiB


def request_of(
    peer: str, folder: Path, out: Path, *names: str, sizes: Sequence[int] = (1 << 20,), ranks: Sequence[int] = (2,),
    memory: Sequence[tuple[str, str]] = (("device", "device"),), **changes: Any,
) -> Request:  # fmt: skip
    rows, _ = rows_of(peer, peer_tests(peer, names), ranks, memory, sizes)
    values: dict[str, Any] = {"mpi": "", "devices": "host:4", **changes}
    return Request(peer=peer, folder=folder, rows=rows, out=out, **values)


@pytest.mark.parametrize("peer", PEERS)
def test_one_plan_of_ours_has_every_row_once(peer: str, tmp_path: Path) -> None:
    request = request_of(peer, tmp_path, tmp_path, sizes=(1 << 20, 8 << 20), ranks=(2, 4))
    text = plan_text(request, request.rows)
    parse_plan(text, "plan", "plan")
    tables = tomllib.loads(text)["case"]
    planned = sorted((table["pattern"], table.get("ranks", 2), size) for table in tables for size in table["size"])
    asked = [
        (row.test.case_of(row.ranks)["pattern"], row.ranks, (row.size or 1) * row.test.sizes_an_operation)
        for row in request.rows
    ]
    assert planned == sorted(asked)
    assert all(table["stop_rule"] == "count" for table in tables)


def test_counts_are_those_that_the_peer_is_given(tmp_path: Path) -> None:
    (tmp_path / "all_reduce_perf").touch(mode=0o755)
    request = request_of("nccl-tests", tmp_path, tmp_path, "all_reduce_perf", sizes=RANGE[:6], iterations=200, warmup=3)
    (one,) = launches_of(request, request.rows, {})
    options = dict(itertools.pairwise(one.command))
    (table,) = tomllib.loads(plan_text(request, request.rows))["case"]
    assert table["batch"] * table["stop_samples"] == int(options["-n"]) == 200
    assert table["warmup"] == int(options["-w"]) == 3
    assert (options["-b"], options["-e"], options["-f"]) == ("8", str(256 << 10), "8")


def test_large_sizes_take_a_launch_of_their_own_only_when_they_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "all_reduce_perf").touch(mode=0o755)
    sizes = (*RANGE[:6], *RANGE[-2:])
    apart = request_of("nccl-tests", tmp_path, tmp_path, "all_reduce_perf", sizes=sizes, large_iterations=20)
    small, middle, large = launches_of(apart, apart.rows, {})
    assert [row.size for row in (*small.rows, *middle.rows, *large.rows)] == list(sizes)
    assert middle.rows[0].size > 64 << 10 >= small.rows[-1].size
    assert all("20" in some.command for some in (middle, large))
    assert "20" not in small.command
    counted = [(t["size"], t["batch"] * t["stop_samples"]) for t in tomllib.loads(plan_text(apart, apart.rows))["case"]]
    assert {size: count for sizes, count in counted for size in sizes}[1 << 30] == 20


def test_our_buffers_are_made_as_the_peers_are(tmp_path: Path) -> None:
    for peer, buffers, changes in (
        ("nccl-tests", ["allocated"], {}),
        ("nccl-tests", ["plain"], {"buffer": "plain"}),
        ("osu", [None], {}),
        ("nvbandwidth", [None], {}),
    ):
        request = request_of(peer, tmp_path, tmp_path, **changes)
        tables = tomllib.loads(plan_text(request, request.rows))["case"]
        assert [table.get("buffer") for table in tables] == buffers * len(tables)


def test_each_program_of_nccl_tests_runs_once_a_rank_count_and_count_of_operations(tmp_path: Path) -> None:
    for test in peer_tests("nccl-tests"):
        (tmp_path / test.name).touch(mode=0o755)
    request = request_of("nccl-tests", tmp_path, tmp_path, sizes=RANGE[:6], ranks=(2, 4))
    started = launches_of(request, request.rows, {})
    assert len(started) == 2 * 2 * len(peer_tests("nccl-tests"))  # up to 64 KiB more operations than above
    assert sorted(row.key for one in started for row in one.rows) == sorted(row.key for row in request.rows)


def test_sizes_that_one_factor_does_not_step_take_several_launches(tmp_path: Path) -> None:
    (tmp_path / "all_reduce_perf").touch(mode=0o755)
    request = request_of("nccl-tests", tmp_path, tmp_path, "all_reduce_perf", sizes=(8, 64, 512, 1024, 4096, 5000))
    measured = []
    for one in launches_of(request, request.rows, {}):
        options = dict(itertools.pairwise(one.command))
        size, last, factor = (int(options[name]) for name in ("-b", "-e", "-f"))
        while size <= last:  # as nccl-tests steps
            measured.append(size)
            size *= factor
    assert measured == [8, 64, 512, 1024, 4096, 5000]


def test_a_size_that_a_cache_may_hold_is_measured_beside_no_larger_one(tmp_path: Path) -> None:
    (tmp_path / "all_reduce_perf").touch(mode=0o755)
    mib = 1 << 20
    sizes = (8, 64, mib // 2, mib, 4 * mib, 40 * mib, 128 * mib, 256 * mib)
    request = request_of("nccl-tests", tmp_path, tmp_path, "all_reduce_perf", sizes=sizes, iterations=10)
    started = [[row.size for row in one.rows] for one in launches_of(request, request.rows, {})]
    assert sorted(size for some in started for size in some) == list(sizes)
    assert [4 * mib] in started
    assert [40 * mib] in started
    assert [128 * mib, 256 * mib] in started


def mpi_of_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever --mpi names is an MPI library of the launcher mpiexec."""
    mpi = MpiInstallation("x", "mpich", "4", "mpich", Path("/x/libmpi.so.12"), Path("mpiexec"), "hydra", "--mpi")
    monkeypatch.setattr(mpi_library, "resolve", lambda name: mpi)


def osu_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mpi_of_fakes(monkeypatch)
    monkeypatch.setattr("linkgauge.run.parent.devices.find_devices", lambda asked: DeviceSet(kind, (), ()))


UNBOUND = ["--oversubscribe", "--bind-to", "none"]
BOUND = ["--map-by", "core", "--bind-to", "core"]
SLURM = ["--kill-on-bad-exit=1", "--export=ALL"]


@pytest.mark.parametrize(
    ("kind", "abi", "vendor", "bind", "words"),
    [
        ("hydra", "mpich", "mpich", "none", ["-genvall"]),
        ("hydra", "mpich", "mpich", "core", ["-bind-to", "core", "-genvall"]),
        ("openmpi", "openmpi", "openmpi", "none", UNBOUND),
        ("openmpi", "openmpi", "openmpi", "core", BOUND),
        ("srun", "mpich", "mpich", "none", ["--mpi=pmi2", "--cpu-bind=none", *SLURM]),
        ("srun", "mpich", "mpich", "core", ["--mpi=pmi2", "--cpu-bind=cores", *SLURM]),
        ("srun", "openmpi", "openmpi", "core", ["--mpi=pmix", "--cpu-bind=cores", *SLURM]),
        ("srun", "mpich", "cray", "core", ["--mpi=cray_shasta", "--cpu-bind=cores", *SLURM]),
    ],
)
def test_each_launcher_is_told_in_its_own_words_how_to_start_and_bind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, abi: str, vendor: str, bind: str, words: list[str]
) -> None:
    osu_on("host", monkeypatch)
    mpi = MpiInstallation("x", vendor, "4", abi, Path("/x/libmpi.so"), Path("/x/launcher"), kind, "--mpi")
    monkeypatch.setattr(mpi_library, "resolve", lambda name: mpi)
    (tmp_path / "osu_latency").touch(mode=0o755)
    request = request_of("osu", tmp_path, tmp_path, "osu_latency", mpi="x", bind=bind)
    (one,) = launches_of(request, request.rows, {})
    assert list(one.command[: len(words) + 4]) == ["/x/launcher", *words, "-n", "2", f"{tmp_path}/osu_latency"]


HYDRA_ON = ["-hosts", "a,b", "-ppn", "1", "-wdir", "/", "-genvall", "-n", "2"]
OPEN_MPI_ON = ["--host", "a:1,b:1", "--map-by", "ppr:1:node", "-x", "PYTHONPATH", "-n", "2"]
SLURM_ON = ["--nodes=2", "--nodelist=a,b", "--ntasks-per-node=1", "--distribution=block", "--overcommit", "-n", "2"]


@pytest.mark.parametrize(
    ("kind", "abi", "words"),
    [("hydra", "mpich", HYDRA_ON), ("openmpi", "openmpi", OPEN_MPI_ON), ("srun", "mpich", SLURM_ON)],
)
def test_between_nodes_a_pair_is_of_the_first_two_and_a_collective_of_every_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, abi: str, words: list[str]
) -> None:
    osu_on("host", monkeypatch)
    host = DeviceSet("host", (0, 1), ())
    monkeypatch.setattr("linkgauge.run.parent.devices.find_devices", lambda asked: host)
    mpi = MpiInstallation("x", abi, "4", abi, Path("/x/libmpi.so"), Path("/x/launcher"), kind, "--mpi")
    monkeypatch.setattr(mpi_library, "resolve", lambda name: mpi)
    for name in ("osu_bw", "osu_alltoall"):
        (tmp_path / name).touch(mode=0o755)
    request = request_of(
        "osu", tmp_path, tmp_path, "osu_bw", "osu_alltoall", ranks=(4, 6), mpi="x", hosts=("a", "b", "c")
    )
    (pair, collective), reasons = look_at_peer(request, request.rows)
    at = pair.command.index(f"{tmp_path}/osu_bw")
    assert list(pair.command[at - len(words) : at]) == words
    assert (
        "a,b,c" in collective.command or "a:2,b:2,c:2" in collective.command or "--nodelist=a,b,c" in collective.command
    )
    assert "6" in collective.command
    assert list(reasons.values()) == ["4 ranks: on these hosts expected 6, one a device"]


def test_messages_in_flight_are_asked_of_both_sides_where_they_are_not_the_peers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    osu_on("host", monkeypatch)
    rows, _ = rows_of("osu", [one.with_window(2) for one in peer_tests("osu", ("osu_bw", "osu_latency"))], (2,),
                      (("device", "device"),), (8,))  # fmt: skip
    for name in ("osu_bw", "osu_latency"):
        (tmp_path / name).touch(mode=0o755)
    request = Request("osu", tmp_path, rows, "x", "host:2", tmp_path)
    bandwidth, latency = (list(one.command) for one in launches_of(request, request.rows, {}))
    assert bandwidth[-4:] == ["-m", "8:8", "-W", "2"]
    assert "-W" not in latency
    said = "# OSU MPI Bandwidth Test v7.4\\n# Size      Bandwidth (MB/s)\\n8 16.00"
    one = launch.PeerLaunch(bandwidth_rows := (rows[0],), (sys.executable, "-c", f"print('{said}')"))
    monkeypatch.setattr("linkgauge.peers.theirs.launches_of", lambda request, rows, reasons: [one])
    assert measure_peer(request, bandwidth_rows, 0) == ({rows[0].key: pytest.approx(1000)}, {})  # 16 bytes at 16 MB/s
    windows = [table.get("window") for table in tomllib.loads(plan_text(request, request.rows))["case"]]
    assert windows == [2, None]


def test_osu_is_told_its_first_and_last_size_and_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    osu_on("cuda", monkeypatch)
    for name in ("osu_latency", "osu_allgather"):
        (tmp_path / name).touch(mode=0o755)
    kinds = (("device", "device"), ("pageable", "device"))
    request = request_of(
        "osu", tmp_path, tmp_path, "osu_latency", "osu_allgather", sizes=RANGE[:8], ranks=(4,), memory=kinds, mpi="x"
    )
    commands = [" ".join(one.command) for one in launches_of(request, request.rows, {})]
    assert commands == [
        f"mpiexec -genvall -n 2 {tmp_path}/osu_latency -m 8:{16 << 20} D D",
        f"mpiexec -genvall -n 2 {tmp_path}/osu_latency -m 8:{16 << 20} H D",
        f"mpiexec -genvall -n 4 {tmp_path}/osu_allgather -m 2:{4 << 20} -d cuda",  # a block of each rank
    ]
    counts = {row.size: request.counts(row).iterations for row in request.rows if row.test.name == "osu_latency"}
    assert counts[8] == 10000
    assert counts[16 << 20] == 1000  # OSU's own, above 8 KiB
    given = request_of("osu", tmp_path, tmp_path, "osu_latency", sizes=(8, 1 << 20), mpi="x", iterations=50)
    assert [" ".join(one.command[5:]) for one in launches_of(given, given.rows, {})] == [f"-m 8:{1 << 20} -i 50 D D"]


def test_osu_sends_from_half_to_half_meets_and_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    osu_on("host", monkeypatch)
    names = ("osu_mbw_mr", "osu_barrier", "osu_alltoallv", "osu_ialltoall")
    for name in names:
        (tmp_path / name).touch(mode=0o755)
    host = (("pageable", "pageable"),)
    rows, left_out = rows_of("osu", peer_tests("osu", names), (2, 3, 4), host, (8, 64))
    assert set(left_out.values()) == {"3 ranks are not pairs"}
    of_four = tuple(row for row in rows if row.ranks == 4)
    assert [(row.test.name, row.size) for row in of_four] == [
        ("osu_mbw_mr", 8), ("osu_mbw_mr", 64), ("osu_barrier", 0), ("osu_alltoallv", 8), ("osu_alltoallv", 64),
        ("osu_ialltoall", 8), ("osu_ialltoall", 64),
    ]  # fmt: skip
    request = Request("osu", tmp_path, of_four, "x", "host:4", tmp_path, iterations=50)
    assert [" ".join(one.command[4:]) for one in launches_of(request, request.rows, {})] == [
        f"{tmp_path}/osu_mbw_mr -m 8:64 -i 50", f"{tmp_path}/osu_barrier -i 50",
        f"{tmp_path}/osu_alltoallv -m 8:64 -i 50", f"{tmp_path}/osu_ialltoall -m 8:64 -i 50",
    ]  # fmt: skip
    for asked, pattern, devices in ((of_four, "pairs_unidirectional", (0, 2, 1, 3)), (rows, "unidirectional", (0, 1))):
        text = plan_text(Request("osu", tmp_path, asked, "x", "host:4", tmp_path), asked)
        machine = PlanMachine("host", 4, 1 << 33, 1 << 33, 1 << 33, 4)
        planned = [one.case for one in expand(parse_plan(text, "plan", "plan"), machine) if not one.skip]
        assert {case.devices for case in planned if case.pattern == pattern} == {devices}
        assert {case.variant for case in planned if case.pattern == "alltoall"} == {"alltoallv_own", "overlapped"}


@pytest.mark.parametrize(
    ("kind", "pair", "collective"), [("cuda", ["D", "D"], ["-d", "cuda"]), ("hip", ["D", "D"], ["-d", "rocm"]),
                                     ("host", [], [])],
)  # fmt: skip
def test_osu_takes_the_memory_of_the_devices_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, pair: list[str], collective: list[str]
) -> None:
    osu_on(kind, monkeypatch)
    for name, words in (("osu_latency", pair), ("osu_bcast", collective)):
        (tmp_path / name).touch(mode=0o755)
        request = request_of("osu", tmp_path, tmp_path, name, mpi="x")
        (started,) = launches_of(request, request.rows, {})
        assert started.command[7:] == tuple(words)


def test_sizes_that_the_peer_would_cut_are_left_out_with_the_reason() -> None:
    tests = peer_tests("nccl-tests", ("all_reduce_perf", "all_gather_perf", "alltoall_perf"))
    rows, left_out = rows_of("nccl-tests", tests, (4,), (("device", "device"),), (8, 64, 1000, 1024))
    assert [(row.test.name, row.size, row.peer_size) for row in rows] == [
        ("all_reduce_perf", 8, 8), ("all_reduce_perf", 64, 64), ("all_reduce_perf", 1000, 1000),
        ("all_reduce_perf", 1024, 1024), ("all_gather_perf", 64, 64), ("all_gather_perf", 1024, 1024),
        ("alltoall_perf", 64, 256), ("alltoall_perf", 1024, 4096),
    ]  # fmt: skip
    assert {key.split()[0]: why for key, why in left_out.items() if key.endswith(" 8")} == {
        "all_gather_perf": "nccl-tests would cut 8 bytes to another size: expected a multiple of 64",
        "alltoall_perf": "nccl-tests would cut 8 bytes to another size: expected a multiple of 16",
    }
    pinned = rows_of("osu", peer_tests("osu", ("osu_bw",)), (2,), (("pinned", "device"),), (8,))
    assert pinned[0] == ()
    assert "pageable" in next(iter(pinned[1].values()))


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLackingError, match="no program 'osu_latency'"):
        find_program(tmp_path, "osu_latency")
    with pytest.raises(UsageError, match="unknown test 'nope' of osu"):
        peer_tests("osu", ("nope",))
    with pytest.raises(UsageError, match="unknown peer 'nope'"):
        peer_tests("nope", ())


def test_estimators_by_hand() -> None:
    samples = {
        "rank": np.array([0, 0, 1, 1]),
        "lane": np.array([0, 0, 1, 1]),
        "ns": np.array([100, 300, 50, 150]),
        "iterations": np.array([10, 10, 10, 10]),
        "sample": np.array([0, 1, 0, 1]),
    }
    assert ESTIMATORS["mean_of_rank_0"](samples) == 20.0
    assert ESTIMATORS["mean_of_rank_means"](samples) == 15.0
    alone = {name: values[:2] for name, values in samples.items()}
    assert ESTIMATORS["nvbandwidth"](alone) == 20.0
    assert ESTIMATORS["nvbandwidth"](samples) == 20.0  # the first flow's, whatever goes beside it
    # Each way its own rate, a message in 20 and one in 10 ns, which add up: two messages at 1 / 20 + 1 / 10 a ns.
    assert ESTIMATORS["nvbandwidth_sum"](samples) == pytest.approx(2 / 0.15)
    assert ESTIMATORS["nvbandwidth_sum"](alone) == 20.0


def test_a_peers_printed_table_becomes_our_figures(tmp_path: Path) -> None:
    python_program(
        tmp_path / "bin", "nvbandwidth",
        "print('nvbandwidth Version: v0.8\\n')",
        "print('Running device_to_device_memcpy_write_ce.')",
        "print('memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)')",
        "print('           0         1')",
        "print(' 0       N/A    396.12')",
        "print(' 1    396.14       N/A\\n')",
        "print('SUM device_to_device_memcpy_write_ce 792.26\\n')",
    )  # fmt: skip
    request = request_of("nvbandwidth", tmp_path, tmp_path, "device_to_device_memcpy_write_ce", sizes=(512 << 20,))
    (started,) = launches_of(request, request.rows, {})
    assert started.command[1:] == ("-b", "512", "-i", "3", "-t", "device_to_device_memcpy_write_ce")
    figures, reasons = measure_peer(request, request.rows, 0)
    assert reasons == {}
    assert figures.keys() == {request.rows[0].key}
    (ns,) = figures.values()
    assert (512 << 20) / ns == pytest.approx(396.12, rel=1e-6)


def nvbandwidth_table(name: str) -> tuple[str, float]:
    """What nvbandwidth 0.8 prints of a test on three devices, and its first figure in ns of an operation at 64 MiB."""
    size = 64 << 20
    columns = "           0         1         2\n"
    pair = columns + " 0       N/A    {0}    7.00\n 1    7.00       N/A    7.00\n 2    7.00      7.00       N/A\n"
    row = columns + " 0    {0}     7.00     7.00\n"
    if name.endswith("latency_sm"):
        matrix = pair if "to" in name else row
        return "memory latency SM CPU(row) <-> GPU(column) (ns)\n" + matrix.format(830.5), 830.5
    if "device_to_device_bidirectional" in name:
        parts = {"Read1": 300, "Read2": 100, "Total": 400}
        title = "memcpy CE GPU(row) <-> GPU(column) {} bandwidth (GB/s)\n"
        return "\n".join(title.format(part) + pair.format(rate) for part, rate in parts.items()), 2 * size / 400
    if "device_to_device" in name:  # from 0 to 1: read by 1, whose row it is, or written by 0
        read = columns + " 0       N/A      7.00    7.00\n 1      {0}       N/A    7.00\n"
        arrow, matrix = ("->", read) if "read" in name else ("<-", pair)
        return f"memcpy CE GPU(row) {arrow} GPU(column) bandwidth (GB/s)\n" + matrix.format(40), size / 40
    several = 2 if "one" in name else 1
    return "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)\n" + row.format(40), several * size / 40


NVBANDWIDTH = [test.name for test in peer_tests("nvbandwidth")]


@pytest.mark.parametrize("name", most(NVBANDWIDTH, NVBANDWIDTH[::4]))
def test_every_test_of_nvbandwidth_is_read_as_our_case_of_it(name: str, tmp_path: Path) -> None:
    text, expected_ns = nvbandwidth_table(name)
    python_program(tmp_path, "nvbandwidth", f"print({f'Running {name}.'!r})", f"print({text!r})")
    request = request_of("nvbandwidth", tmp_path, tmp_path, name, sizes=(64 << 20,), ranks=(3,))
    (row,) = request.rows
    assert row.size == (2 << 20 if name.endswith("latency_sm") else 64 << 20)
    assert measure_peer(request, request.rows, 0) == ({row.key: pytest.approx(expected_ns)}, {})


def test_all_of_nvbandwidths_devices_must_be_ours(tmp_path: Path) -> None:
    text, _ = nvbandwidth_table("host_to_all_memcpy_ce")
    python_program(tmp_path, "nvbandwidth", "print('Running host_to_all_memcpy_ce.')", f"print({text!r})")
    request = request_of("nvbandwidth", tmp_path, tmp_path, "host_to_all_memcpy_ce", sizes=(64 << 20,), ranks=(2,))
    figures, reasons = measure_peer(request, request.rows, 0)
    assert figures == {}
    assert list(reasons.values()) == ["host_to_all_memcpy_ce took 3 devices, Linkgauge 2: give --ranks as many"]


NCCL_TABLE = (  # what nccl-tests 2.19 prints, shortened; 100 ns a byte
    "import sys; o = dict(zip(sys.argv[1::2], sys.argv[2::2])); n = int(o['-t'])",
    "print('# Collective test starting: all_reduce_perf')",
    "print(f'# nThread {n} nGpus 1 minBytes 8 step: 8(factor) warmup iters: 1 iters: {o[\"-n\"]} agg iters: 1')",
    "for r in range(n): print(f'#  Rank  {r} Group  0 Pid    100 on   node device  {r} [0000:0{r}:00] NVIDIA H200')",
    "print('#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw"
    "   busbw  #wrong')",
    "s = int(o['-b'])",
    "while s <= int(o['-e']):",
    "    print(s, s // 4, 'float', 'sum', -1, s / 10, 0.01, 0.01, 'N/A', s / 5, 0.02, 0.02, 'N/A', flush=True)",
    "    s *= int(o['-f'])",
)


def test_what_nccl_tests_printed_before_it_died_counts(tmp_path: Path) -> None:
    died = "    if s > 4096: print('Test CUDA failure: out of memory'); sys.exit(3)"
    python_program(tmp_path, "all_reduce_perf", *NCCL_TABLE, died)
    request = request_of("nccl-tests", tmp_path, tmp_path, "all_reduce_perf", sizes=RANGE[:5], ranks=(4,))
    figures, reasons = measure_peer(request, request.rows, 0)
    sizes = {row.key: row.size for row in request.rows}
    assert {sizes[key]: round(ns) for key, ns in figures.items()} == {size: size * 100 for size in RANGE[:4]}
    assert {sizes[key] for key in reasons} == {RANGE[4]}
    assert all("ended with 3; it said: Test CUDA failure: out of memory" in why for why in reasons.values())


def test_wrong_data_of_a_peer_is_no_figure(tmp_path: Path) -> None:
    wrong = [line.replace("0.01, 'N/A'", "0.01, (s == 512) * 3 if o['-c'] == '1' else 'N/A'") for line in NCCL_TABLE]
    python_program(tmp_path, "all_reduce_perf", *wrong)
    request = request_of("nccl-tests", tmp_path, tmp_path, "all_reduce_perf", sizes=RANGE[:4], ranks=(4,))
    figures, reasons = measure_peer(request, request.rows, 0)
    sizes = {row.key: row.size for row in request.rows}
    assert {sizes[key] for key in figures} == {8, 64, 4096}
    assert {sizes[key]: why for key, why in reasons.items()} == {512: "peer-00-0.txt, 512 bytes: 3 wrong values"}


@pytest.mark.parametrize(("name", "ns_a_byte"), [("all_reduce_perf", 100), ("broadcast_perf", 200)])
@pytest.mark.parametrize("build", ["", "_mpi"])  # a build for MPI may say so in its name
def test_a_broadcast_of_nccl_tests_counts_in_place(tmp_path: Path, name: str, ns_a_byte: int, build: str) -> None:
    python_program(tmp_path, name, *(line.replace("all_reduce_perf", name + build) for line in NCCL_TABLE))
    request = request_of("nccl-tests", tmp_path, tmp_path, name, ranks=(4,))
    assert measure_peer(request, request.rows, 0) == ({request.rows[0].key: (1 << 20) * ns_a_byte}, {})


def test_a_peer_that_measures_nothing_is_named_with_its_last_words(tmp_path: Path) -> None:
    python_program(tmp_path, "nvbandwidth", "print('no such device'); raise SystemExit(3)")
    request = request_of("nvbandwidth", tmp_path, tmp_path / "out")
    with pytest.raises(EnvironmentLackingError, match="ended with 3; it said: no such device"):
        alternate(request, lambda text: None)


def test_what_is_wrong_is_told_and_not_the_help_after_it(tmp_path: Path) -> None:
    helps = python_program(tmp_path, "osu", "print('Invalid option [-d]\\n\\nUsage: osu\\n  -z percentiles'); exit(1)")
    assert launch.run_logged([str(helps)], tmp_path / "log", {}).endswith(" ended with 1; it said: Invalid option [-d]")


def test_a_peer_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LAUNCH_TIMEOUT_S", 0.5)
    slow = python_program(tmp_path, "slow", "import time; time.sleep(60)")
    assert "did not end within 0.5 s" in launch.run_logged([str(slow)], tmp_path / "log", {})


def test_a_peer_that_prints_for_ever_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert launch.run_logged(["yes"], log, {}) == "yes printed more than 64 MiB"
    os.truncate(log, 0)
    both = [
        sys.executable,
        "-I",
        "-S",
        both_ends.__file__,
        guard.__file__,
        '{"rank_variables": ["R"], "client": ["yes"]}',
    ]
    assert launch.run_logged(both, log, {"R": "0"}).endswith("it said: the client printed more than 64 MiB")
    assert log.stat().st_size < 1000


class Sides:
    """Both sides as functions of the round's number, in place of launches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, noisy: int = 0, failing: int = 0) -> None:
        self.rounds: list[tuple[str, int, tuple[int, ...]]] = []
        self.noisy, self.failing = noisy, failing
        monkeypatch.setattr(drive, "look_at_peer", lambda request, rows: ([], {}))
        monkeypatch.setattr(drive, "measure_peer", lambda *arguments: self.side("peer", *arguments))
        monkeypatch.setattr(drive, "measure_ours", lambda *arguments: self.side("ours", *arguments))

    def side(self, name: str, request: Request, rows: Sequence[Row], number: int) -> tuple[Figures, Reasons]:
        self.rounds.append((name, number, tuple(row.size for row in rows)))
        failing = [row for row in rows if row.size == self.failing and name == "peer"]
        figures = {row.key: 100.0 for row in rows if row not in failing}
        if name == "ours":
            figures |= {row.key: 100.0 + 50 * (number % 2) for row in rows if row.size == self.noisy}
        return figures, {row.key: "it is too large" for row in failing}


def verdicts(outcome: drive.Outcome) -> dict[int, tuple[int, str]]:
    return {line.row.size: (line.ratio.pairs, line.verdict) for line in outcome.lines}


def test_sides_alternate_and_only_unsettled_rows_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = Sides(monkeypatch, noisy=64)
    request = request_of("nccl-tests", tmp_path, tmp_path / "out", "all_reduce_perf", sizes=(8, 64))
    outcome = alternate(request, lambda text: None)
    assert verdicts(outcome) == {8: (MIN_PAIRS, "holds"), 64: (MAX_PAIRS, "cannot tell")}
    spreads = {line.row.size: (line.ours.spread, line.peer.spread) for line in outcome.lines}
    assert spreads == {8: (0.0, 0.0), 64: (0.5, 0.0)}  # every other launch of ours takes half as long again
    why, fix = undecided([row_of(line) for line in outcome.lines])
    assert why.startswith("undecided: all_reduce_perf, 2 ranks, 64: after 31 rounds the interval is 50.0 % wide, ")
    assert "of Linkgauge differ by 50.0 %, those of the benchmark by 0.0 %" in why
    assert fix.startswith("1 of 2 rows are undecided; fix: more --iterations")
    assert undecided([row_of(line) for line in outcome.lines if line.row.size == 8]) == []
    assert [name for name, _, _ in sides.rounds[:6]] == ["peer", "ours", "ours", "peer", "peer", "ours"]
    assert {sizes for _, number, sizes in sides.rounds if number < MIN_PAIRS} == {(8, 64)}
    assert {sizes for _, number, sizes in sides.rounds if number >= MIN_PAIRS} == {(64,)}


def test_a_row_that_one_side_cannot_measure_is_left_out_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = Sides(monkeypatch, failing=64)
    request = request_of("nccl-tests", tmp_path, tmp_path / "out", "all_reduce_perf", sizes=(8, 64))
    outcome = alternate(request, lambda text: None)
    assert verdicts(outcome) == {8: (MIN_PAIRS, "holds")}
    assert list(outcome.left_out.values()) == ["it is too large"]
    assert {sizes for _, number, sizes in sides.rounds if number > 0} == {(8,)}


def test_a_comparison_that_was_ended_goes_on_from_its_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = Sides(monkeypatch, failing=64)
    request = request_of("nccl-tests", tmp_path, tmp_path / "out", "all_reduce_perf", sizes=(8, 64))

    def interrupted(known: drive.Outcome) -> None:
        if len(sides.rounds) == 2 * 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alternate(request, lambda text: None, interrupted)
    assert len(json.loads((tmp_path / "out" / "rounds.json").read_text())["rounds"]) == 4
    outcome = alternate(request, lambda text: None)
    assert [number for name, number, _ in sides.rounds if name == "ours"] == list(range(MIN_PAIRS))
    assert verdicts(outcome) == {8: (MIN_PAIRS, "holds")}
    assert list(outcome.left_out.values()) == ["it is too large"]
    other = request_of("nccl-tests", tmp_path, tmp_path / "out", "all_reduce_perf", sizes=(8,))
    with pytest.raises(UsageError, match="holds another comparison"):
        alternate(other, lambda text: None)
    rounds = tmp_path / "out" / "rounds.json"
    stored = json.loads(rounds.read_text())
    assert stored["requested"].pop("started_apart")  # an older version started the peer for all sizes at once
    rounds.write_text(json.dumps(stored))
    with pytest.raises(UsageError, match="of an older version"):
        alternate(request, lambda text: None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is not empty"):
        alternate(request_of("nccl-tests", tmp_path, tmp_path / "full"), lambda text: None)


@pytest.mark.parametrize(
    "stored",
    ["[", "[]", "{}", '{"asked": {}, "rounds": [{"ours": {"a": "x"}, "theirs": {}}], "left_out": {}}',
     '{"asked": {}, "rounds": [{"ours": {"a": 0}, "theirs": {}}], "left_out": {}}',
     '{"asked": {}, "rounds": [{"ours": {}, "theirs": {}, "more": 1}], "left_out": {}}', "[" * 100_000],
)  # fmt: skip
def test_what_no_comparison_writes_is_refused(stored: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rounds.json").write_text(stored)
    with pytest.raises(UsageError, match=r"rounds\.json: .*"):
        alternate(
            request_of("nccl-tests", tmp_path, tmp_path / "out", "all_reduce_perf", sizes=(8,)), lambda text: None
        )
    (tmp_path / "out" / "rounds.json").unlink()
    os.mkfifo(tmp_path / "out" / "rounds.json")
    with pytest.raises(UsageError, match="no regular file"):
        alternate(
            request_of("nccl-tests", tmp_path, tmp_path / "out", "all_reduce_perf", sizes=(8,)), lambda text: None
        )


def test_no_round_begins_that_would_end_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = Sides(monkeypatch)
    clock = itertools.count(0, 10)  # each look at the clock is ten seconds later
    monkeypatch.setattr(drive.time, "monotonic", lambda: float(next(clock)))
    request = request_of("nccl-tests", tmp_path, tmp_path / "out", "all_reduce_perf", sizes=(8,), time_limit_s=150)
    told: list[str] = []
    outcome = alternate(request, told.append)
    done = len(sides.rounds) // 2
    assert 1 <= done < MIN_PAIRS
    assert 10 * (5 * done + 1) + 20 > 150  # five looks a round and one at the start, and a round takes two of them
    assert verdicts(outcome) == {8: (done, "more pairs")}
    why, fix = undecided([row_of(line) for line in outcome.lines])
    assert why.endswith(f"{done} of at least {MIN_PAIRS} rounds were measured")
    assert "--time-limit" in fix
    assert "no time is left" in told[-1]
