"""perftest, UCC's perftest, GPCNeT and NCCL RAS: what they print is read as what it is, or left out by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linkgauge.errors import UsageError
from linkgauge.exchange.imported import ImportedLog
from linkgauge.exchange.importers import Hints, import_files, read_log
from linkgauge.model.transports import EVERY_TRANSPORT, IMPORTED, TRANSPORT_NAMES
from linkgauge.run.machine.transports import absent_transports

TITLE = """ Dual-port       : OFF		Device         : mlx5_1
 Number of qps   : {qps}		Transport type : IB
 Connection type : {kind}		Using SRQ      : OFF
 TX depth        : 128
---------------------------------------------------------------------------------------
"""
BW = " #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n {row}\n"
LAT = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
       "99% percentile[usec]   99.9% percentile[usec] \n {row}\n")  # fmt: skip


def read(folder: Path, text: str, **hints: Any) -> ImportedLog:
    path = folder / "log.txt"
    path.write_text(text)
    return read_log(path, Hints(**hints))


def bandwidth(row: str, title: str = "RDMA_Write BW Test", unit: str = "Gb/sec", qps: int = 1, kind: str = "RC") -> str:
    return f"                    {title}\n{TITLE.format(qps=qps, kind=kind)}{BW.format(unit=unit, row=row)}"


# --- perftest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "unit", "rate"),
    [("65536 5000 390.11 389.90 0.743675", "Gb/sec", 389.90e9 / 8),
     ("65536 5000 0.00 11728.47 0.187656", "MB/sec", 11728.47 * 2**20),
     ("65536 5000 0.00 11728.47 0.187656", "MiB/sec", 11728.47 * 2**20),
     ("2 5000 0.101672 0.083211 5.200688", "Gb/sec", 0.083211e9 / 8)],
)  # fmt: skip
def test_a_bandwidth_is_of_its_unit_and_a_window_of_all_queue_pairs(
    tmp_path: Path, row: str, unit: str, rate: float
) -> None:
    (one,) = read(tmp_path, bandwidth(row, unit=unit, qps=4)).cases
    size = int(row.split()[0])
    assert (one.case.transport, one.case.pattern, one.case.variant) == ("verbs", "unidirectional", "put")
    assert (one.case.window, one.case.source_memory) == (512, "pageable")
    ((time_ns, count),) = one.intervals
    assert size * 512 / time_ns * 1e9 * count == pytest.approx(rate, rel=1e-9)
    assert one.evidence["network card"] == "mlx5_1"


def test_both_ways_are_one_sum_and_reads_are_gets(tmp_path: Path) -> None:
    text = bandwidth("65536 5000 0.00 400.00 0.762939", "Send Bidirectional Post List BW Test")
    both, reads = read(tmp_path, text + bandwidth("65536 5000 0.00 200.00 0.381470", "RDMA_Read BW Test")).cases
    assert (both.case.pattern, both.case.variant) == ("bidirectional", "")
    assert 2 * 128 * 65536 / both.intervals[0][0] == pytest.approx(50)
    assert (reads.case.pattern, reads.case.variant) == ("unidirectional", "get")


@pytest.mark.parametrize(
    ("title", "pattern", "variant", "factor"),
    [("Send Latency Test", "pingpong", "", 2), ("RDMA_Write Latency Test", "pingpong", "put", 2),
     ("RDMA_Read Latency Test", "unidirectional", "get", 1)],
)  # fmt: skip
def test_a_latency_is_half_of_a_round_trip_but_of_a_read_all(
    tmp_path: Path, title: str, pattern: str, variant: str, factor: int
) -> None:
    text = f"  {title}\n{TITLE.format(qps=1, kind='RC')}" + LAT.format(row="2 1000 1.50 4.20 1.60 1.70 0.00 2.10 3.90")
    (one,) = read(tmp_path, text).cases
    assert (one.case.pattern, one.case.variant, one.intervals) == (pattern, variant, ((factor * 1600.0, 1),))
    assert one.operations == 1000


def test_what_both_ends_printed_is_one_case(tmp_path: Path) -> None:
    text = bandwidth("65536 5000 390.11 389.90 0.743675")
    assert len(read(tmp_path, text + text).cases) == 1
    assert len(read(tmp_path, text + text.replace("389.90", "389.91")).cases) == 2


def test_a_gpus_memory_is_of_the_test_whose_title_follows(tmp_path: Path) -> None:
    host = bandwidth("65536 5000 390.11 389.90 0.743675")
    gpu = "cuMemAlloc() of a 131072 bytes GPU buffer\n" + bandwidth("65536 5000 380.11 379.90 0.724602")
    cases = read(tmp_path, host + gpu + host.replace("65536 5000 390.11 389.90", "65536 5000 389.11 388.90")
                 .replace("0.743675", "0.741768")).cases  # fmt: skip
    assert [one.case.source_memory for one in cases] == ["pageable", "device", "pageable"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (bandwidth("65536 5000 390.11 389.90 0.743675", unit="MB/sec"), "are not 389.9"),
        (bandwidth("65536 5000 390.11 389.90"), "4 columns where the heading has 5"),
        (bandwidth("8 5000 390.11 389.90 0.743675", "Atomic FETCH_AND_ADD BW Test"), "no pattern measures it"),
        (bandwidth("65536 5000 390.11 389.90 0.743675", kind="RawEth"), "raw Ethernet is no RDMA"),
        (bandwidth("65536 5000 390.11 389.90 0.743675", "Send BW Multicast Test"), "no pattern measures Multicast"),
        (BW.format(unit="Gb/sec", row="65536 5000 390.11 389.90 0.743675"), "no line says which test it is"),
        (bandwidth("65536 5000 390.11 389.90 0.743675", "RDMA_Write Latency Test"), "no case: size 65536"),
    ],
)  # fmt: skip
def test_a_row_that_contradicts_itself_or_is_no_pattern_is_left_out(tmp_path: Path, text: str, why: str) -> None:
    log = read(tmp_path, text)
    assert log.cases == []
    assert why in log.problems[0]


def test_the_command_says_which_test_a_table_without_title_is(tmp_path: Path) -> None:
    text = "$ ib_read_bw -d mlx5_0 -b 10.0.0.1\n" + BW.format(unit="Gb/sec", row="65536 5000 390.11 389.90 0.743675")
    (one,) = read(tmp_path, text).cases
    assert (one.case.pattern, one.case.variant) == ("bidirectional", "get")


def test_the_json_of_both_units(tmp_path: Path) -> None:
    for unit, average in ((125e6, 389.9), (2**20, 46479.7)):
        results = {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 0, "BW_average": average,
                   "MsgRate": round(average * unit / 65536 / 1e6, 6)}  # fmt: skip
        data = {"test_info": {"test": "RDMA_Write_BW_Test", "TX_depth": 16, "cuda_device": 0}, "results": results}
        (one,) = read(tmp_path, json.dumps(data)).cases
        assert (one.case.window, one.case.source_memory) == (16, "device")
        assert 16 * 65536 / one.intervals[0][0] * 1e9 == pytest.approx(average * unit)
        results["MsgRate"] = 1.0
        assert "are not" in read(tmp_path, json.dumps(data)).problems[0]


@pytest.mark.parametrize("kind", ["host", "cuda"])
def test_what_only_other_tools_measure_is_skipped_with_its_reason(kind: str) -> None:
    absent = absent_transports(kind)
    assert {name: absent[name] for name in IMPORTED} == {
        "verbs": "only 'linkgauge import' has it, of logs of perftest",
        "ucc": "only 'linkgauge import' has it, of logs of ucc_perftest",
    }
    assert not {*IMPORTED} & {*EVERY_TRANSPORT, *TRANSPORT_NAMES}


# --- UCC's perftest ---------------------------------------------------------------------------------------------------

UCC = """Collective:             {name}
Memory type:            cuda
Datatype:               float32
Reduction:              {reduction}
Inplace:                0
Warmup:
  small                 10

       Count        Size                Time, us{bandwidth}
                                 avg         min         max{columns}
{row}
{end}
"""


def ucc(name: str, row: str, end: str = "", reduction: str = "N/A") -> str:
    full = len(row.split()) == 8
    return UCC.format(name=name, row=row, end=end, reduction=reduction, columns="  avg  max  min" if full else "",
                      bandwidth="                 Bandwidth, GB/s" if full else "")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "row", "end", "size", "ranks"),
    [
        # 8 ranks: one peer's size of old, a rank's whole since the generators.
        ("Alltoall", "65536 262144 76.46 72.62 82.30 24.00 25.27 22.30", "", 262144, 8),
        ("Alltoall", "65536 262144 76.46 72.62 82.30 3.00 3.16 2.79", "Total time: 1.0 ms", 32768, 8),
        ("Alltoall", "65536 262144 76.46 72.62 82.30 3.00 3.16 2.79", "", 32768, 8),
        ("Allgather", "65536 262144 76.46 72.62 82.30 24.00 25.27 22.30", "Total time: 1.0 ms", 8 * 262144, 8),
        ("Scatter", "65536 262144 76.46 72.62 82.30 N/A N/A 2.79", "Total time: 1.0 ms", 262144, 8),
    ],
)  # fmt: skip
def test_how_many_ranks_and_what_a_size_means_follow_from_bandwidth_and_version(
    tmp_path: Path, name: str, row: str, end: str, size: int, ranks: int
) -> None:
    (one,) = read(tmp_path, ucc(name, row, end)).cases
    assert (one.case.transport, one.case.size, one.case.ranks) == ("ucc", size, ranks)
    assert one.intervals == ((82.30e3, 1),)


@pytest.mark.parametrize(
    ("text", "hints", "why"),
    [
        (ucc("Alltoall", "65536 262144 76.46 72.62 82.30"), {"ranks": 8}, "whether its sizes are one peer's"),
        (ucc("Allgather", "65536 262144 76.46 72.62 82.30"), {}, "--ranks must"),
        (ucc("Bcast", "65536 262144 76.46 72.62 82.30 3.43 3.61 3.19"), {}, "--ranks must"),
        (ucc("Alltoallv", "65536 262144 76.46 72.62 82.30"), {"ranks": 8}, "no pattern measures what it does"),
        (ucc("Reduce DT", "65536 262144 76.46 72.62 82.30"), {"ranks": 8}, "no pattern measures what it does"),
        (ucc("Allgather", "65536 262144 76.46 72.62 82.30 24.00 25.27 22.30"), {"ranks": 4}, "gives 9.556 GB/s, not"),
        (ucc("Allreduce", "1 4 1.00 1.00 1.00", reduction="band"), {"ranks": 4}, "no reduction is of float32 by band"),
        (ucc("Allgather", "65536 262144 76.46 90.00 82.30"), {"ranks": 8}, "no case: size 262144"),
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_table_is_not_guessed(
    tmp_path: Path, text: str, hints: dict[str, int], why: str
) -> None:
    log = read(tmp_path, text, **hints)
    assert log.cases == []
    assert why in log.problems[0]


# --- GPCNeT -----------------------------------------------------------------------------------------------------------

GPCNET = """{tests} Tests v1.3
  Test with {ranks} MPI ranks ({nodes} nodes)
{some}
   BW+Sync = bandwidth with barrier
+------------------------------------------------------------------------------+
|                            Isolated Network Tests                            |
+---------------------------------+--------------+--------------+--------------+
|                            Name |          Avg |          99% |        Units |
+---------------------------------+--------------+--------------+--------------+
|          RR Two-sided Lat (8 B) |          2.9 |          4.3 |         usec |
+---------------------------------+--------------+--------------+--------------+
|        Multiple Allreduce (8 B) |         20.2 |         31.0 |         usec |
+---------------------------------+--------------+--------------+--------------+

| Network Tests running with Congestion Tests |
|                            Name |          Avg |          99% |        Units |
|        Multiple Allreduce (8 B) |         90.2 |        131.0 |         usec |
"""


@pytest.mark.parametrize(
    ("tests", "some", "ranks"),
    [("Network", "", 10), ("NetworkLoad", "  2 nodes running Network Tests\n  8 nodes running Congestion Tests", 2)],
)
def test_isolated_tests_are_of_the_nodes_that_run_them(tmp_path: Path, tests: str, some: str, ranks: int) -> None:
    log = read(tmp_path, GPCNET.format(tests=tests, ranks=10, nodes=10, some=some))
    (one,) = log.cases
    assert (one.case.transport, one.case.pattern, one.case.ranks) == ("mpi", "allreduce", ranks)
    assert one.intervals == ((20.2e3, 1),)
    assert ["random order" in why or "beside congestors" in why for why in log.problems] == [True, True]


def test_several_ranks_a_node_are_several_tests_at_once(tmp_path: Path) -> None:
    log = read(tmp_path, GPCNET.format(tests="Network", ranks=40, nodes=10, some=""))
    assert log.cases == []
    assert any("40 ranks on 10 nodes are several such tests at once" in why for why in log.problems)


# --- NCCL RAS, and lines of JSON --------------------------------------------------------------------------------------


def state(**changes: Any) -> dict[str, Any]:
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    ranks = [{"rank": rank, "host": "10.0.0.1", "pid": 100 + rank, "cuda_dev": rank, "status": status,
              "collective_counts": {"AllReduce": 12 if rank == 5 else 13, "Broadcast": 2}}
             for rank in range(7)]  # fmt: skip
    missing = [{"rank": 7, "host": "10.0.0.2", "pid": 9, "cuda_dev": 0, "nvml_dev": 0,
                "status": {"unresponsive": True, "considered_dead": False}}]  # fmt: skip
    one = {"hash": "0xab", "size": 8, "ranks_count": 7, "missing_ranks_count": 1, "ranks": ranks,
           "missing_ranks": missing}  # fmt: skip
    return {"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [one | changes]}


def test_a_jobs_state_names_ranks_that_are_missing_or_behind_and_makes_no_case(tmp_path: Path) -> None:
    log = read(tmp_path, json.dumps(state()))
    assert log.cases == []
    assert log.notes == [
        "log.txt:1: communicator 0xab of 8 ranks: unresponsive: rank 7 (process 9 on 10.0.0.2)",
        "log.txt:1: communicator 0xab of 8 ranks: 1 AllReduce of 13 behind: rank 5 (process 105 on 10.0.0.1)",
    ]
    with pytest.raises(UsageError, match=r"rank 7 .*rank 5 .*counts collectives and has no times"):
        import_files([tmp_path / "log.txt"], tmp_path / "run", Hints())
    well = state(missing_ranks=[], missing_ranks_count=0, ranks=[])
    assert "no rank is missing, failed or behind" in read(tmp_path, json.dumps(well)).problems[0]
    unnamed = state(missing_ranks=[], ranks=[])
    assert "missing, which ones is not said: 1" in read(tmp_path, json.dumps(unnamed)).notes[0]


def test_a_line_that_is_no_json_costs_itself_alone(tmp_path: Path) -> None:
    header = {"id": "0x1", "rank": 0, "n_ranks": 4, "nnodes": 1}
    perf = {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 100,
            "coll_algobw_gbs": 10.48576}  # fmt: skip
    good = json.dumps({"header": header, "coll_perf": perf})
    log = read(tmp_path, "\n".join([good, good, "[watchdog] alive", good, good[:40]]))
    assert len(log.calls) == 3
    assert log.problems == ["log.txt:3: not JSON: '[watchdog] alive'"]
    with pytest.raises(UsageError, match="not JSON"):
        read(tmp_path, "\n".join([good, good[:50], good[:50], good[:50], good]))
