"""Readers of other tools' output: what is not understood, or contradicts itself, is left out and said."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from exchange import drawn_logs
from linkgauge.errors import UsageError
from linkgauge.exchange.imported import ImportedLog
from linkgauge.exchange.importers import Hints, import_files, read_log
from linkgauge.exchange.jobs import join
from linkgauge.stats.summary import summarize
from linkgauge.store.run import load

P2P = """[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, NVIDIA A40, pciBusID: 1, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA A40, pciBusID: 41, pciDeviceID: 0, pciDomainID:0
Device=0 CANNOT Access Peer Device=1
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 565.51  21.60
     1  22.55 565.51
"""
TRANSFER = "Test 1:\n Executor: GPU 00 | 1 GB/s |\n Transfer 00 | {} GB/s | {} ms | 67108864 bytes | {} -> {} -> {}\n"
UCX = """| Test:         tag match bandwidth   |
| Message size: {size}    |
Final:  1000  1.0 1.0 {us} 976.56 {mb} {rate} {rate}
"""
NIXL = """NIXLBench Configuration
Backend (--backend=[UCX])        : {backend}
Initiator seg type (--initiator_seg_type=[DRAM,VRAM])       : VRAM
Target seg type (--target_seg_type=[DRAM,VRAM])             : VRAM
Scheme (--scheme=[pairwise,manytoone])         : {scheme}
Op type (--op_type=[READ,WRITE])                            : WRITE
Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)
65536               1              {rate}       53.0
"""
IMB = """# Benchmarking {name}
# #processes = {ranks}
       #bytes #repetitions      t[usec]   Mbytes/sec
      1048576           10        100.00     {mb}
"""


def read(folder: Path, text: str | bytes, name: str = "log_0.txt", **hints: Any) -> ImportedLog:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(path, Hints(**hints))


def at_once(pairs: Sequence[tuple[str, str]], *gb_per_s: float, executor_ms: float = 0.0) -> str:
    """A test of TransferBench whose transfers run at once, as text: an executor's line, then its transfers.

    `gb_per_s`: of each transfer, whose size is what takes it 1.5 ms; of all alike where only one is given.
    """
    lines = ["TransferBench v1.60.00", "Test 1:"]
    for source in dict.fromkeys(source for source, _ in pairs):
        lines.append(f" Executor: GPU 0{source[1]} | 99.9 GB/s | {executor_ms:.3f} ms | 9 bytes | 99.9 GB/s (sum)")
        for place, (one, target) in enumerate(pairs):
            if one == source:
                rate = [*gb_per_s, 40.0][place if len(gb_per_s) > 1 else 0]
                size = 60_000_000 if len(gb_per_s) <= 1 else round(rate * 1.5e6)
                lines.append(f"     Transfer 0{place} | {rate:.3f} GB/s | {size / rate / 1e6:.3f} ms | {size} bytes"
                             f" | {source} -> G00{source[1]}:008 -> {target}")  # fmt: skip
    return "\n".join([*lines, " Aggregate (CPU)  | 99.9 GB/s | 1.939 ms | 9 bytes | Overhead: 0.447 ms", ""])


def test_transfers_from_each_gpu_to_each_other_one_are_an_alltoall(tmp_path: Path) -> None:
    """As preset a2a runs them, whose figures AMD publishes; the slowest GPU's time counts, none that the host took."""
    gpus = ["G0", "G1", "G2"]
    (one,) = read(tmp_path, at_once([(a, b) for a in gpus for b in gpus if a != b], executor_ms=1.512)).cases
    case = one.case
    assert (case.transport, case.pattern, case.size, case.devices) == ("kernel", "alltoall", 60_000_000, (0, 1, 2))
    assert one.intervals == ((pytest.approx(1.512e6), 1),)


def test_two_transfers_against_each_other_are_both_ways_of_a_pair(tmp_path: Path) -> None:
    (one,) = read(tmp_path, at_once([("G0", "G3"), ("G3", "G0")])).cases
    assert (one.case.pattern, one.case.devices) == ("bidirectional", (0, 3))
    assert one.intervals == ((pytest.approx(1.5e6), 1),)


@pytest.mark.parametrize("mb", ["10485.76", "10000.00"])  # of 10^6 B, and of 2^20 as before 2018
def test_either_megabyte_of_intels_benchmarks_bears_a_row_out(tmp_path: Path, mb: str) -> None:
    (one,) = read(tmp_path, IMB.format(name="PingPong", ranks=2, mb=mb)).cases
    assert (one.case.pattern, one.case.size, one.intervals) == ("pingpong", 1 << 20, ((2e6, 10),))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (IMB.format(name="PingPong", ranks=2, mb="9000.00"), "1048576 bytes in 100 µs are not 9000 MB/s"),
        (IMB.format(name="PingPong", ranks=4, mb="10485.76"), "no pingpong is of 4 ranks"),
        (IMB.format(name="Exchange", ranks=4, mb="10485.76"), "no pattern measures what it does"),
        (TRANSFER.format(46.1, 1.9, "G0", "G000:004", "G1"), "67108864 bytes in 1.9 ms are not 46.1 GB/s"),
        (TRANSFER.format(46.1, 1.456, "G0G2", "G000:004", "G1"), "'G0G2' is no one memory"),
        (TRANSFER.format(46.1, 1.456, "G0", "G002:004", "G1"), "not by a GPU at one of its ends"),
        (TRANSFER.format(46.1, 1.456, "C0", "C000:004", "G1"), "not by a GPU at one of its ends"),
        ("Test 1:\n" + "\n".join(TRANSFER.format(46.1, 1.456, "G0", "G0:4", "G1").splitlines()[1:] * 2),
         "2 transfers at once do not go from each GPU to each other one"),
        (at_once([("G0", "G1"), ("G1", "G2"), ("G2", "G0")]), "do not go from each GPU to each other one"),
        (at_once([("G0", "C0"), ("G0", "C1")]), "do not go from each GPU to each other one"),
        (at_once([("G0", "G1"), ("G1", "G0")], 1.0, 2.0), "are not alike in size, executor and memory"),
        (at_once([("G0", "G1"), ("G1", "N0")]), "not all of its transfers are read"),
        (UCX.format(size=4096, us=1.0, mb=976.56, rate=1000000), "its rates are of messages of 1024 bytes, not 4096"),
        (NIXL.format(backend="POSIX", scheme="pairwise", rate=1.236), "backend POSIX reaches storage"),
        (NIXL.format(backend="UCX", scheme="manytoone", rate=1.236), "--scheme is manytoone"),
        (NIXL.format(backend="UCX", scheme="pairwise", rate=9.9), "are not of 53 µs"),
        (NIXL.partition("Block")[1] + NIXL.partition("Block")[2].format(rate=1.2), "no configuration above it says"),
        (P2P.replace("Enabled", "Disabled"), "4 figures left out: peer access is off"),
        (P2P.replace("     1  22.55 565.51\n", ""), "of 2 rows these are missing: 1"),
        (P2P.replace("22.55", ""), "row 1: 1 cells where there are 2 columns"),
        ("bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec\n64k 10 1m 0.1s 10.0 10.0 0.1\n",
         "--pattern must"),
        ("bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
         "64k     10      =10      1.2m        0.00s   4566.97      99.35       0.07\n",
         "are of 453728 bytes, not 65536"),
        ("numCycle,name,ranks,size,type,redop,time,busBw\n0,AllReduce,4,1048576,float,sum,100,99.0\n",
         "bus bandwidth of 99"),
        ("RocmBandwidthTest Version: 2.6.0\nDevice: 0,  EPYC\nDevice: 1,  MI300X,  05:0.0\n"
         " Unidirectional copy peak bandwidth GB/s\nD/D 0 1\n0 N/A 1.0\n1 1.0 2.0\n",
         "--size must say it"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_is_no_pattern_is_left_out_and_said(tmp_path: Path, text: str, why: str) -> None:
    log = read(tmp_path, text)
    assert any(why in problem for problem in log.problems), log.problems
    whole = "of 2 rows" not in why and "row 1" not in why
    assert not whole or log.cases == []


LATENCY = "Send Latency Test\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n 8 9 1.0 2.0 1e999\n"


@pytest.mark.parametrize(
    "text",
    [IMB.replace("100.00", "1e999").format(name="PingPong", ranks=2, mb="10485.76"), LATENCY,
     UCX.format(size=4096, us="1e999", mb=976.56, rate=1000000),
     "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"
     "64k     10      =10      1.2m        0.00s   4566.97      1e999       0.07\n"],
)  # fmt: skip
def test_a_time_that_is_not_finite_is_left_out_and_said(tmp_path: Path, text: str) -> None:
    log = read(tmp_path, text)
    assert log.cases == []
    assert "inf s" in log.problems[0]


def test_copies_without_peer_access_say_so(tmp_path: Path) -> None:
    connected = "P2P Connectivity Matrix\n     D\\D     0     1\n     0       1     0\n     1       0     1\n"
    log = read(tmp_path, P2P.replace("Unidirectional", connected + "Unidirectional"))
    assert log.problems == []
    told = {one.case.devices: one.evidence.get("peer access") for one in log.cases}
    assert told == {(0,): None, (0, 1): "none", (1, 0): None, (1,): None}
    assert {one.case.devices for one in log.cases if one.case.transport == "staging"} == {(0, 1)}
    assert [rank["device"]["pci_address"] for rank in log.tables[-1].ranks] == ["0000:01:00", "0000:41:00"]


def test_the_words_of_a_tool_are_no_hosts_name(tmp_path: Path) -> None:
    log = read(tmp_path, "\n".join(P2P.splitlines()[:4] * 3 + P2P.splitlines()[4:]) + "\n")
    assert log.notes == []
    assert len(log.cases) == 4


# --- jobs -------------------------------------------------------------------------------------------------------------


def record(rank: int, number: int, us: int, **changes: Any) -> str:
    size = 1 << 30
    perf = {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": size, "coll_exec_time_us": us,
            "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": size / us / 1e3}  # fmt: skip
    header = {"id": "0x1", "rank": rank, "n_ranks": 4, "nnodes": 1}
    return json.dumps({"header": header, "metadata": {"hostname": "n1", "pid": 9}, "coll_perf": perf | changes})


def files(folder: Path, of: dict[int, list[str]]) -> list[Path]:
    paths = []
    for rank, lines in of.items():
        paths.append(folder / f"n1-pid{rank}.log")
        paths[-1].write_text("\n".join(lines) + "\n")
    return paths


def test_of_a_jobs_collectives_the_rank_that_comes_late_and_slow_calls_are_said(tmp_path: Path) -> None:
    # Rank 2 comes 900 us after the others in each call; call 7 takes ten times as long on every rank.
    times = {n: 10_000 if n == 7 else 1000 + n for n in range(12)}
    of = {rank: [record(rank, n, us + 900 * (rank != 2)) for n, us in times.items()] for rank in range(4)}
    done = import_files(files(tmp_path, of), tmp_path / "run", Hints())
    (row,) = summarize(load(tmp_path / "run")).to_pylist()
    assert (row["pattern"], row["ranks"], row["size"], row["samples"]) == ("allreduce", 4, 1 << 30, 12)
    assert row["median_ns"] == pytest.approx(1006.5e3, rel=1e-3)
    assert any("rank 2 comes last in 12 of 12 calls; the first to come waits 900 µs" in note for note in done.notes)
    assert any("1 of 12 calls take more than 3 times the median" in note for note in done.notes)


def test_records_of_some_ranks_alone_may_have_waiting_in_them_and_say_so(tmp_path: Path) -> None:
    done = import_files(files(tmp_path, {1: [record(1, n, 1000) for n in range(3)]}), tmp_path / "run", Hints())
    assert done.cases == 1
    assert any("on 4 ranks: records of 1 of them alone" in note for note in done.notes)


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"coll_algobw_gbs": 3.0}, "are not 3 GB/s"), ({"coll": "Foo"}, "no pattern measures it"),
     ({"coll_exec_time_us": 0}, "no pattern measures it")],
)  # fmt: skip
def test_a_record_that_contradicts_itself_is_left_out(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    log = read(tmp_path, "\n".join([record(0, 1, 1000), record(0, 2, 1000, **changes)]))
    assert len(log.calls) == 1
    assert why in log.problems[0]


def dump(**changes: Any) -> dict[str, Any]:
    entry = {"record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 1, "p2p_seq_id": 0,
             "profiling_name": "nccl:all_reduce", "input_sizes": [[3, 4]], "input_dtypes": ["Float"],
             "output_sizes": [[3, 4]], "output_dtypes": ["Float"], "state": "completed", "duration_ms": 0.25,
             "is_p2p": False, "frames": [{"name": "f", "filename": "a.py", "line": 1}]}  # fmt: skip
    return {"version": "2.9", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "entries": [entry | changes]}  # fmt: skip


def of_ranks(folder: Path, data: dict[str, Any], protocol: int) -> list[ImportedLog]:
    logs = []
    for rank in (0, 1):
        content = pickle.dumps(data, protocol) if protocol else json.dumps(data).encode()
        logs.append(read(folder, content, f"nccl_trace_rank_{rank}"))
    join(logs)
    return logs


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])  # 0: JSON
@pytest.mark.parametrize(
    ("changes", "pattern", "size"),
    [
        ({}, "allreduce", 48),
        ({"profiling_name": "nccl:_all_gather_base", "output_sizes": [[6, 4]]}, "allgather", 96),
        ({"profiling_name": "nccl:_reduce_scatter_base", "input_dtypes": ["BFloat16"]}, "reduce_scatter", 24),
        ({"profiling_name": "nccl:all_to_all"}, "alltoall", 24),
    ],
)  # fmt: skip
def test_the_flight_recorder_as_json_and_as_pickle(
    tmp_path: Path, protocol: int, changes: dict[str, Any], pattern: str, size: int
) -> None:
    (one,) = of_ranks(tmp_path, dump(**changes), protocol)[0].cases
    assert (one.case.pattern, one.case.size, one.case.ranks, one.intervals) == (pattern, size, 2, ((0.25e6, 1),))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"duration_ms": None}, "TORCH_NCCL_ENABLE_TIMING=1"), ({"state": "scheduled"}, "is scheduled"),
        ({"process_group": ["9", "x"]}, "no ranks of group '9'"), ({"input_sizes": "x"}, "no shapes of tensors"),
        ({"input_dtypes": ["Complex"]}, "no one datatype"), ({"is_p2p": True}, "messages between two ranks"),
        ({"profiling_name": "nccl:all_to_allv"}, "not even"), ({"profiling_name": "nccl:x"}, "no pattern"),
    ],
)  # fmt: skip
def test_entries_that_say_too_little_are_left_out(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    log = read(tmp_path, json.dumps(dump(**changes)), "nccl_trace_rank_1")
    assert log.calls == []
    assert why in log.problems[0]


@pytest.mark.parametrize("ranks", ["[0" + "9" * 5000 + "]", "[0, 1", "0, 1", "[,]", 7, None])
def test_ranks_of_a_group_that_are_no_list_are_none(tmp_path: Path, ranks: Any) -> None:
    data = dump()
    data["pg_config"]["0"]["ranks"] = ranks
    log = read(tmp_path, json.dumps(data), "nccl_trace_rank_1")
    assert log.calls == []
    assert "no ranks of group '0'" in log.problems[0]


class _Calls:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("called"),))


def _bytearray() -> bytes:
    return b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"."


def _memo() -> bytes:
    return b"\x80\x02}r" + (1 << 31).to_bytes(4, "little") + b"."


@pytest.mark.parametrize("content", [pickle.dumps(_Calls(), 4), _bytearray(), b"\x80\x04", b"\x80\x02]q\x00h\x01."])
def test_a_pickle_that_is_more_than_plain_values_is_refused_and_calls_nothing(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"a pickle that is damaged or not plain: expected a dump"):
        read(tmp_path, content)
    assert not (tmp_path / "called").exists()


def test_a_memo_as_long_as_a_file_says_takes_no_memory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not JSON of a tool"):
        read(tmp_path, _memo())


def test_json_that_has_no_results_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="linkgauge convert"):
        read(tmp_path, json.dumps({"traceEvents": []}))


def test_what_nvbandwidth_prints_within_dcgms_json_is_read(tmp_path: Path) -> None:
    matrix = [["N/A", "100.0"], ["100.0", "N/A"]]
    test = {"name": "device_to_device_memcpy_write_ce", "status": "Passed", "bandwidth_description": "GPU -> GPU",
            "bandwidth_matrix": matrix}  # fmt: skip
    within = {"nvbandwidth": {"CUDA Runtime Version": 13000, "testcases": [test], "new key": {"a": 1}}}
    log = read(tmp_path, json.dumps({"DCGM Diagnostic": {"test_categories": [{"tests": [{"results": [within]}]}]}}))
    assert [one.case.devices for one in log.cases] == [(0, 1), (1, 0)]


@pytest.mark.parametrize("name", drawn_logs.FORMATS)
def test_a_drawn_log_makes_a_run_that_can_be_read(name: str, tmp_path: Path) -> None:
    text, hints, expected = drawn_logs.FORMATS[name](random.Random(name))
    (tmp_path / "log_0").write_text(text)
    done = import_files([tmp_path / "log_0"], tmp_path / "run", hints)
    assert done.cases == len(expected)
    assert all(row["median_ns"] > 0 for row in summarize(load(tmp_path / "run")).to_pylist())
