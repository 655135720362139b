"""Peers of a server and a client: what either end is told, what they print, and that both ends start and end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from executables import python_program
from installed_mpi import installed
from linkgauge.errors import EnvironmentLackingError
from linkgauge.peers import two_ended
from linkgauge.peers.catalog import TWO_ENDED, peer_tests
from linkgauge.peers.request import Request, Row, rows_of
from linkgauge.peers.theirs import launches_of, measure_peer
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent import mpi_library
from linkgauge.run.parent.devices import DeviceSet
from thorough import thorough

KIB, MIB = 1 << 10, 1 << 20
UCX = """+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
[thread 0]               635      0.321  1589.821  1589.821      629.00     629.00         629         629
Final:                  1280      6.169    40.000    46.602     1341.16    1341.16       21459       21459
"""  # of 1.22
FABTESTS = """---
fi_rdm_tagged_bw -m -B 13788 -P 13777 -I 1000 -w 10 -W 8 -S 65536 127.0.0.1 :
- { xfer_size: 65536, iterations: 1000, total: 65536000, time: 0.034124, MB/sec: 1920.525144, usec/xfer: 34.124001 }
"""
PINGPONG = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64k     100     =100     12m         0.07s    181.24     361.60       0.00
"""  # fi_pingpong of libfabric 1.17
# As perftest's REPORT_FMT and REPORT_FMT_LAT have them.
IB_BW = """ #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             97.80              97.75\t\t     0.186443
"""
IB_LAT = """ #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 2       1000          1.02           4.50         1.05     \t       1.06     \t0.05\t\t1.20 \t\t2.70
"""


def request_of(peer: str, *names: str, size: int = 64 * KIB, memory: str = "device", **changes: Any) -> Request:
    rows, _ = rows_of(peer, peer_tests(peer, names), (2,), ((memory, memory),), (size,))
    values: dict[str, Any] = {"folder": Path("/x"), "out": Path("/x"), "mpi": "x", "devices": "host:2", **changes}
    return Request(peer=peer, rows=rows, **values)


@pytest.mark.parametrize(
    ("peer", "name", "text", "ns"),
    [
        ("ucx_perftest", "tag_lat", UCX, 2 * 6169),  # the median, both ways
        ("ucx_perftest", "tag_bw", UCX, 64 * 46602),  # the mean of all, of a window
        ("fabtests", "fi_rdm_tagged_pingpong", FABTESTS, 2 * 34124.001),
        ("fabtests", "fi_rdm_tagged_bw", FABTESTS, 64 * 34124.001),
        ("fabtests", "fi_pingpong", PINGPONG, 2 * 361600),
        ("perftest", "ib_send_lat", IB_LAT, 2 * 1050),
        ("perftest", "ib_write_bw", IB_BW, 64 * 65536 * 8 / 97.75),
    ],
)
def test_what_a_client_prints_is_one_operation_of_ours(peer: str, name: str, text: str, ns: float) -> None:
    request = request_of(peer, name)
    assert two_ended.read_figure(request, request.rows[0], text) == pytest.approx(ns)
    for lacking in ("", "error: 12 34 56\n", text.splitlines()[0]):
        assert two_ended.read_figure(request, request.rows[0], lacking) is None


def ends_of(request: Request, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str = "host") -> dict[str, Any]:
    """What both ends of the request's one row are told."""
    mpi = MpiInstallation("x", "mpich", "4", "mpich", Path("/x/libmpi.so.12"), Path("mpiexec"), "hydra", "--mpi")
    monkeypatch.setattr(mpi_library, "resolve", lambda name: mpi)
    monkeypatch.setattr(two_ended, "our_nic", lambda transport, mpi: None)
    monkeypatch.setattr("linkgauge.run.parent.devices.find_devices", lambda asked: DeviceSet(kind, (0, 1), ()))
    for name in ("ucx_perftest", *(test.name for peer in TWO_ENDED for test in peer_tests(peer))):
        (tmp_path / name).touch(mode=0o755)
    (launch,) = two_ended.launches(request, request.rows)
    found: dict[str, Any] = json.loads(launch.command[-1])
    return found


def after(words: Sequence[str], option: str) -> str:
    return words[list(words).index(option) + 1]


def test_both_ends_have_the_counts_of_ours_in_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for peer, name, count, warmup in (
        ("ucx_perftest", "tag_bw", "-n", "-w"),
        ("fabtests", "fi_rdm_tagged_bw", "-I", "-w"),
        ("perftest", "ib_read_bw", "-n", ""),
    ):
        request = request_of(peer, name, folder=tmp_path, iterations=7, warmup=3, env={"FI_PROVIDER": "tcp"})
        ends = ends_of(request, monkeypatch, tmp_path)
        for end in ("server", "client"):
            assert after(ends[end], "-S" if peer == "fabtests" else "-s") == str(64 * KIB)
            assert after(ends[end], count) == str(7 * 64)
            assert not warmup or after(ends[end], warmup) == str(3 * 64)


def test_the_server_is_of_the_second_node_and_the_client_is_told_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hosts, address in (((), "127.0.0.1"), (("a", "b", "c"), "b")):
        for peer, name in (("ucx_perftest", "tag_lat"), ("fabtests", "fi_pingpong"), ("perftest", "ib_send_lat")):
            request = request_of(peer, name, folder=tmp_path, hosts=hosts, env={"FI_PROVIDER": "tcp"})
            ends = ends_of(request, monkeypatch, tmp_path)
            assert ends["client"][-1] == address
            port = after(ends["server"], "-B" if peer == "fabtests" else "-p")
            assert after(ends["client"], "-P" if peer == "fabtests" else "-p") == port


def test_memory_of_gpus_is_asked_for_between_nodes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for peer, name, words in (
        ("ucx_perftest", "tag_bw", ["-m", "cuda"]),
        ("perftest", "ib_write_bw", ["--use_cuda=0"]),
    ):
        between = request_of(peer, name, folder=tmp_path, hosts=("a", "b"))
        ends = ends_of(between, monkeypatch, tmp_path, "cuda")
        assert all(word in ends[end] for end in ("client", "server") for word in words)
        here = request_of(peer, name, folder=tmp_path)
        with pytest.raises(EnvironmentLackingError, match="take device 0 of their node: expected --hosts"):
            ends_of(here, monkeypatch, tmp_path, "cuda")


def test_what_is_no_comparison_is_refused_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FI_PROVIDER", raising=False)
    with pytest.raises(EnvironmentLackingError, match=r"FI_PROVIDER is not set.*--env FI_PROVIDER=tcp"):
        ends_of(request_of("fabtests", "fi_pingpong", folder=tmp_path), monkeypatch, tmp_path)
    reasons: dict[str, str] = {}
    without = request_of("perftest", "ib_send_lat", folder=tmp_path, mpi="")
    assert launches_of(without, without.rows, reasons) == []
    assert "expected --mpi" in next(iter(reasons.values()))
    for memory, size in ((("device", "device"), 8), (("pinned", "pinned"), MIB), (("device", "pageable"), MIB)):
        rows, why = rows_of("ucx_perftest", peer_tests("ucx_perftest", ("tag_bw",)), (2,), (memory,), (size,))
        assert rows == ()
        assert len(why) == 1


PROGRAM = """import os, pathlib, socket, sys, time
words = sys.argv[1:]
port = int(words[words.index("-p") + 1])
started = pathlib.Path(sys.argv[0]).with_name("started")
if words[-2] == "-p":  # the server, which is late
    time.sleep({late})
    if {fails}:
        sys.exit("no device was found")
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.accept()[0].recv(1)
    print("of the server")
else:
    with started.open("a") as told:
        print(os.getpid(), file=told)
    with socket.create_connection((words[-1], port)) as connection:
        connection.send(b"x")
    print("Final:  1280  6.0  40.0  46.0  1.0  1.0  1  1")
"""
MPI = next((one for one in installed() if not one.problem), None)


@thorough("the real program is measured below where it is here")
@pytest.mark.skipif(MPI is None, reason="no MPI library")
def test_a_client_waits_for_its_server_and_a_failure_is_told(tmp_path: Path) -> None:
    assert MPI is not None
    python_program(tmp_path, "ucx_perftest", PROGRAM.format(late=1.5, fails=False))
    request = request_of("ucx_perftest", "tag_lat", folder=tmp_path, out=tmp_path, mpi=MPI.name)
    figures, reasons = measure_peer(request, request.rows, 0)
    assert reasons == {}
    assert list(figures.values()) == [12000.0]
    assert len((tmp_path / "started").read_text().split()) > 1  # it had come too early
    assert "of the server" not in (tmp_path / "peer-00-0.txt").read_text()
    python_program(tmp_path, "ucx_perftest", PROGRAM.format(late=0, fails=True))
    figures, reasons = measure_peer(request, request.rows, 1)
    assert figures == {}
    assert "no device was found" in (tmp_path / "peer-01-0.txt").read_text()
    assert "ended with 1" in reasons[request.rows[0].key]


TOOLS = Path(os.environ.get("LINKGAUGE_UCX_INCLUDE", "")).parent / "bin"


@thorough("what it prints is read from recorded texts by the same code")
@pytest.mark.skipif(not (TOOLS / "ucx_perftest").is_file() or MPI is None, reason="UCX's tools are not here")
def test_the_real_program_says_what_is_read(tmp_path: Path) -> None:
    assert MPI is not None
    few = {"folder": TOOLS, "out": tmp_path, "mpi": MPI.name, "env": {"UCX_TLS": "tcp,self"}, "iterations": 5}
    request = request_of("ucx_perftest", **few)
    figures, reasons = measure_peer(request, request.rows, 0)
    assert reasons == {}
    assert {key.split()[0] for key in figures} == {test.name for test in peer_tests("ucx_perftest")}
    assert all(1e3 < ns < 1e11 for ns in figures.values())


def test_every_row_is_of_a_case_that_a_plan_can_have() -> None:
    for peer in TWO_ENDED:
        for test in peer_tests(peer):
            assert Row(test, 2, ("device", "device"), MIB).peer_size == MIB
            assert test.own_ranks == 2
