"""Logs as people have them: several tables, tools and processes in one; prefixes. Each table stands alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import linkgauge
from linkgauge.errors import UsageError
from linkgauge.exchange.imported import ImportedLog
from linkgauge.exchange.importers import Hints, explain, import_files, known_tools, read_log
from linkgauge.exchange.other_names import NCCL_PROGRAMS
from linkgauge.model.result import HEADLINE
from linkgauge.stats.summary import summarize
from store.nccl_logs import FACTORS, nccl_log
from thorough import most

PATTERN_OF = {program.removesuffix("_perf"): pattern for pattern, program in NCCL_PROGRAMS.items()}


def written(folder: Path, lines: Sequence[str] | str | bytes, name: str = "log.txt") -> Path:
    path = folder / name
    text = lines if isinstance(lines, str | bytes) else "\n".join(lines) + "\n"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder: Path, lines: Sequence[str] | str | bytes, **hints: Any) -> ImportedLog:
    return read_log(written(folder, lines), Hints(**hints))


def told(log: ImportedLog) -> list[tuple[str, int, int]]:
    """Pattern, ranks and number of cases of each table that has any."""
    return [(t.cases[0].case.pattern, t.cases[0].case.ranks, len(t.cases)) for t in log.tables if t.cases]


def both_nodes(ranks: int) -> list[tuple[str, str]]:
    """The lines of two runs side by side, a node each."""
    return list(zip(nccl_log(ranks=ranks), nccl_log(ranks=ranks, host=lambda _: "node2"), strict=True))


# --- nccl-tests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 8, 16])
@pytest.mark.parametrize("program", FACTORS)
def test_each_programs_table_bears_out_its_own_ranks_and_no_others(tmp_path: Path, program: str, ranks: int) -> None:
    log = read(tmp_path, nccl_log(program, ranks, sizes=(48 << 10, 48 << 20)))
    assert (told(log), log.problems) == ([(PATTERN_OF[program], ranks, 4)], [])
    other = read(tmp_path, nccl_log(program, ranks, sizes=(48 << 10, 48 << 20), printed_ranks=ranks + 1))
    if FACTORS[program](2) == FACTORS[program](3):
        assert told(other) == told(log)  # its bus bandwidth does not depend on the ranks
    else:
        assert told(other) == []
        (why,) = other.problems
        assert re.search(rf"table of {program}_perf, 2 rows left out: line \d+ prints a bus bandwidth of", why)
        assert f"{PATTERN_OF[program]} of {ranks} ranks does not give" in why
        assert other.left_out == 2


def test_tables_of_a_log_share_neither_ranks_nor_program_nor_version(tmp_path: Path) -> None:
    lines = [*nccl_log(version="2.17.6"), *nccl_log("all_gather", 2), *nccl_log("alltoall", 8), *nccl_log("broadcast")]
    log = read(tmp_path, lines)
    assert told(log) == [("allreduce", 4, 6), ("allgather", 2, 6), ("alltoall", 8, 6), ("broadcast", 4, 6)]
    assert [table.versions for table in log.tables] == [{"nccl-tests": "2.17.6", "nccl": "2.28.9"}, {}, {}, {}]
    assert log.problems == []


def test_a_program_that_is_not_known_has_no_pattern_of_anothers(tmp_path: Path) -> None:
    hypercube = [line.replace("all_gather", "hypercube") for line in nccl_log("all_gather")]
    lines = [*nccl_log(), *hypercube, *nccl_log("reduce")]
    for hints in ({}, {"pattern": "allreduce"}):
        log = read(tmp_path, lines, **hints)
        assert told(log) == [("allreduce", 4, 6), ("reduce", 4, 6)]
        (why,) = log.problems
        assert "table of hypercube_perf, 3 rows left out: no pattern measures" in why
        assert log.left_out == 3


def test_a_script_that_names_the_programs_says_what_older_versions_do_not(tmp_path: Path) -> None:
    lines = ["+ mpirun -np 4 ./build/all_gather_perf -b 8", *nccl_log("all_gather", named=False),
             "==== alltoall_perf ====", *nccl_log("alltoall", named=False, blank_op=True),
             "for t in all_reduce_perf all_gather_perf", *nccl_log("all_gather", named=False)]  # fmt: skip
    log = read(tmp_path, lines)
    assert told(log) == [("allgather", 4, 6), ("alltoall", 4, 6)]
    (why,) = log.problems
    assert "the log does not say which program it is, so --pattern must" in why


def test_a_hint_that_the_table_contradicts_is_refused(tmp_path: Path) -> None:
    lines = nccl_log("alltoall", named=False, blank_op=True, older=True)
    assert told(read(tmp_path, lines, pattern="alltoall")) == [("alltoall", 4, 6)]
    assert "has no reduction" in read(tmp_path, lines, pattern="allreduce").problems[0]
    assert "does not give" in read(tmp_path, nccl_log(named=False), pattern="alltoall").problems[0]


def test_a_bus_bandwidth_by_allreduces_factor_still_confirms_the_ranks(tmp_path: Path) -> None:
    """A log by hand, or of a fork: no program's own factor, but of the ranks that are listed, which is noted."""
    lines = [line.replace("sum", "   ") for line in nccl_log(named=False)]
    log = read(tmp_path, lines, pattern="alltoall")
    assert told(log) == [("alltoall", 4, 6)]
    assert "its busbw is by allreduce's 2(n-1)/n" in log.notes[-1]
    assert told(read(tmp_path, [line.replace("sum", "   ") for line in nccl_log(named=False, printed_ranks=8)],
                     pattern="alltoall")) == []  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [{"columns": ("busbw", "algbw", "time", "#wrong")}, {"sides": ("in-place", "out-of-place")}, {"mark": ""},
     {"stamp": "2025-11-25 21:20:34"}, {"stamp": "2025-11-25T21:20:34"}, {"blank_op": True}, {"sizes": (1 << 40,)},
     {"pci": lambda rank: f"0000:{0x10 + rank:02x}:00"}, {"host": lambda rank: f"n{rank // 2}"}],
    ids=lambda options: ",".join(options) or "plain",
)  # fmt: skip
def test_forms_of_one_table_give_the_same_cases(tmp_path: Path, changes: dict[str, Any]) -> None:
    sizes = changes.get("sizes", (1 << 20, 1 << 30))
    plain = read(tmp_path, nccl_log("all_gather", sizes=sizes))
    log = read(tmp_path, nccl_log("all_gather", **{"sizes": sizes, **changes}))

    def cases(one: ImportedLog) -> set[tuple[Any, ...]]:
        return {(c.case.size, c.case.in_place, round(c.intervals[0][0]), c.wrong) for c in one.cases}

    assert cases(log) == cases(plain)
    assert len(cases(log)) == 2 * len(sizes)
    assert log.problems == []


def test_of_one_side_alone_it_is_known_which(tmp_path: Path) -> None:
    for side, in_place in (("in-place", True), ("out-of-place", False)):
        assert {one.case.in_place for one in read(tmp_path, nccl_log(sides=[side])).cases} == {in_place}


def test_the_largest_error_of_older_versions_is_no_count_of_wrong_values(tmp_path: Path) -> None:
    lines = nccl_log(older=True, sizes=(1 << 20,))
    for error, wrong in (("2e-07", ""), ("3e+01", "1 wrong values")):
        log = read(tmp_path, [line.replace("0e+00", error) for line in lines])
        assert [one.wrong for one in log.cases] == [wrong, wrong]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([line for pair in both_nodes(1) for line in pair], r"rank 0 is listed 2 times \(node1, node2\)"),
        ([line for pair in both_nodes(2) for line in pair], "rank 0 is listed 2 times"),
        ([*nccl_log(ranks=2)[:9], *(line for _, line in both_nodes(2)), *nccl_log(ranks=2)[9:]], "is mixed in it"),
        (nccl_log(ranks=1), "no allreduce is of 1 rank"),
        ([line for line in nccl_log() if "Rank  2" not in line], "3 ranks up to rank 3: some are missing"),
        ([line for line in nccl_log() if "Rank  3" not in line], "allreduce of 3 ranks does not give"),
        ([re.sub(r"Group  0 (?=Pid 10[23])", "Group  1 ", line) for line in nccl_log()], "several groups"),
        ([line.replace("(us)", "(ms)") for line in nccl_log()], r"its units are \(ms\)"),
    ],
    ids=["single-ranks", "two-pairs", "overtaken", "one-rank", "lost-rank", "lost-last", "groups", "unit"],
)  # fmt: skip
def test_tables_that_cannot_be_taken_are_refused_by_name(tmp_path: Path, lines: list[str], why: str) -> None:
    log = read(tmp_path, lines, pattern="allreduce")
    assert log.cases == []
    assert any(re.search(why, one) for one in log.problems), log.problems
    assert log.left_out >= 3
    with pytest.raises(UsageError, match="nothing was understood"):
        import_files([written(tmp_path, lines)], tmp_path / "run", Hints(pattern="allreduce"))


def test_a_run_that_broke_off_spoils_no_other(tmp_path: Path) -> None:
    for cut in range(1, 14):
        log = read(tmp_path, [*nccl_log("all_gather", end=False)[:cut], "node1: Test NCCL failure", *nccl_log()])
        assert told(log)[-1] == ("allreduce", 4, 6), cut
        assert {pattern for pattern, _, _ in told(log)} <= {"allgather", "allreduce"}


# --- what launchers and terminals put around lines --------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    ["[1,0]<stdout>:", "[prterun-n1-1234@1,0]<stdout>: ", "0: ", "  0: ", "[0] ", "node-01: ", "[default0]:", "> ",
     "2025-11-25T21:20:34.123456Z ", "[2025-11-25 21:20:34] ", "2025-11-25 21:20:34 [1,0]<stdout>:", "21:20:34 ",
     "Nov 25 21:20:34 ", "Wed Nov 25 21:20:34 2026<stdout>:", "worker-0  | ", "[pod/tests-0/main] ", "\x1b[32m"],
)  # fmt: skip
def test_prefixes_of_launchers_are_taken_off_all_tools_logs_and_said(tmp_path: Path, prefix: str) -> None:
    logs = Path(__file__).parent / "logs"
    for lines, hints in (
        (nccl_log(), {}),
        ((logs / "osu_others.txt").read_text().splitlines(), {"ranks": 2}),
        ((logs / "nvbandwidth.txt").read_text().splitlines(), {}),
        ((logs / "nvbandwidth.json").read_text().splitlines(), {}),
    ):
        plain = read(tmp_path, lines, **hints)
        log = read(tmp_path, [f"{prefix}{line}" for line in lines], **hints)
        assert [one.case for one in log.cases] == [one.case for one in plain.cases]
        assert log.problems == plain.problems
        assert any("taken off" in note for note in log.notes)


def test_numbers_at_the_beginning_of_lines_are_no_prefix(tmp_path: Path) -> None:
    log = read_log(Path(__file__).parent / "logs" / "osu_latency.txt", Hints())
    assert not any("taken off" in note for note in log.notes)
    assert log.cases


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_ends_of_lines(tmp_path: Path, encoding: str, end: str) -> None:
    assert told(read(tmp_path, end.join(nccl_log()).encode(encoding))) == [("allreduce", 4, 6)]


def test_processes_whose_lines_are_labeled_are_read_each_by_itself(tmp_path: Path) -> None:
    log = read(tmp_path, [f"{rank}: {line}" for pair in both_nodes(2) for rank, line in enumerate(pair)])
    assert told(log) == [("allreduce", 2, 6), ("allreduce", 2, 6)]
    assert [{rank["host"] for rank in table.ranks} for table in log.tables] == [{"node1"}, {"node2"}]


def test_warnings_of_mpi_before_a_log_make_it_no_json(tmp_path: Path) -> None:
    said = ["[nodeA:01694] Warning: could not find environment variable", "Warning: Permanently added '[nodeB]:8089'",
            "[nodeA:01694] MCW rank 9 is not bound"]  # fmt: skip
    osu = ["# OSU MPI Bandwidth Test v5.9", "# Size      Bandwidth (MB/s)", "1048576             12000.00"]
    assert told(read(tmp_path, [*said, *osu])) == [("unidirectional", 2, 1)]
    json = (Path(__file__).parent / "logs" / "nvbandwidth.json").read_text().splitlines()
    assert len(read(tmp_path, [*said, *json, "mpirun: done"]).cases) == 2


# --- OSU --------------------------------------------------------------------------------------------------------------


def osu(title: str, columns: str, *rows: str) -> list[str]:
    return [f"# OSU {title} v7.4", f"# {columns}", *rows, ""]


def test_osu_tables_share_nothing(tmp_path: Path) -> None:
    lines = [
        *osu("MPI-CUDA Bandwidth Test", "Size      Bandwidth (MB/s)", "1048576  12000.00"),
        *osu("MPI_Put Bandwidth Test", "Size      Bandwidth (MB/s)", "1048576  3000.00"),
        *osu("MPI Bandwidth Test", "Size      Bandwidth (MB/s)", "1048576  9000.00"),
        *osu("NCCL-CUDA Allgather Latency Test", "Size       Avg Latency(us)", "1048576  95.10"),
        *osu("MPI Multi Latency Test", "Size          Latency (us)", "8  2.00"),
        *osu("MPI Latency Test", "Size          Latency (us)", "8  2.00"),
    ]
    log = read(tmp_path, lines)
    assert [(c.case.pattern, c.case.source_memory, c.intervals[0][0]) for c in log.cases] == [
        ("unidirectional", "device", pytest.approx(64 * (1 << 20) / 12e9 * 1e9)),
        ("unidirectional", "pageable", pytest.approx(64 * (1 << 20) / 3e9 * 1e9)),
        ("unidirectional", "pageable", pytest.approx(64 * (1 << 20) / 9e9 * 1e9)),
        ("pingpong", "pageable", 4000),
    ]
    assert [c.case.variant for c in log.cases] == ["", "put", "", ""]
    assert [re.sub(r"^\S+ ", "", why)[:52] for why in log.problems] == [
        "table of 'OSU NCCL Allgather Latency Test', 1 row le", "table of 'OSU MPI Multi Latency Test', 1 row left ou",
    ]  # fmt: skip


def test_osus_tests_that_are_named_for_their_calls_or_begun_before_they_are_waited_for(tmp_path: Path) -> None:
    lines = [
        *osu("MPI_Put Latency Test", "Synchronization: MPI_Win_flush", "Size          Latency (us)", "8  1.50"),
        *osu("MPI_Get-CUDA Bandwidth Test", "Size      Bandwidth (MB/s)", "1048576  3000.00"),
        *osu("MPI_Put Bi-directional Bandwidth Test", "Size      Bandwidth (MB/s)", "1048576  3000.00"),
        *osu("MPI_Accumulate Latency Test", "Size          Latency (us)", "8  1.50"),
        *osu("MPI Non-blocking Allreduce Latency Test",
             "Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)",
             "8  9.00  5.00  4.50  11.11"),
        *osu("MPI Multi Latency Test", "Size          Latency (us)", "8  2.00"),
    ]  # fmt: skip
    log = read(tmp_path, lines, ranks=4)
    seen = [(c.case.pattern, c.case.variant, c.case.window, round(c.intervals[0][0])) for c in log.cases]
    assert seen == [
        ("unidirectional", "put", 1, 1500), ("unidirectional", "get", 64, round(64 * (1 << 20) / 3)),
        ("bidirectional", "put", 64, round(2 * 64 * (1 << 20) / 3)), ("allreduce", "overlapped", 1, 9000),
        ("pairs_pingpong", "", 1, 4000),
    ]  # fmt: skip
    assert log.cases[0].evidence["synchronization"] == "MPI_Win_flush"
    (why,) = log.problems
    assert "OSU MPI_Accumulate Latency Test', 1 row left out: no pattern measures what it does" in why


@pytest.mark.parametrize(
    "heading",
    ["# Size      Bandwidth (MB/s)", "# Size Bandwidth (MB/s)", "Size   Bandwidth (MB/s)",
     "# Size      Bandwidth (MB/s)        Validation", "# Size   Validation   Bandwidth (MB/s)"],
)  # fmt: skip
def test_columns_of_osu_go_by_their_names(tmp_path: Path, heading: str) -> None:
    values = {"Size": "1048576", "Bandwidth": "12000.00", "(MB/s)": "", "Validation": "Pass"}
    row = " ".join(values[word] for word in heading.lstrip("# ").split())
    title = "OSU MPI Bandwidth Test v7.3" if heading[0] != "#" else "# OSU MPI Bandwidth Test v7.3"
    (one,) = read(tmp_path, [title, heading, row]).cases
    assert (one.case.size, one.verified) == (1 << 20, True if "Validation" in heading else None)


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [("Size      Bandwidth (GB/s)", "8 1.0", "its columns are Size, Bandwidth"),
     ("Size  Latency (us)", "8 1.0", "its columns"),
     ("Size      Bandwidth (MB/s)", "8 1.0 9", "3 columns where the heading has 2"),
     ("Size      Bandwidth (MB/s)", "8 inf", "not a size, a figure and a count")],
)  # fmt: skip
def test_figures_of_osu_that_are_not_what_they_should_be(tmp_path: Path, columns: str, row: str, why: str) -> None:
    log = read(tmp_path, osu("MPI Bandwidth Test", columns, row))
    assert (log.cases, len(log.problems)) == ([], 1)
    assert why in log.problems[0]


def test_rows_after_another_programs_comment_are_nobodys(tmp_path: Path) -> None:
    one = osu("MPI Bandwidth Test", "Size      Bandwidth (MB/s)", "8  12.00")
    log = read(tmp_path, [*one, "# mpiGraph bandwidth", "16  99.00"])
    assert [c.case.size for c in log.cases] == [8]
    assert any("a row outside of a table: '16  99.00'" in why for why in log.problems)


# --- nvbandwidth ------------------------------------------------------------------------------------------------------

MULTINODE = """nvbandwidth Version: v0.7

Process 0 (worker-0): device 0: NVIDIA GB200 (00000008:01:00)
Process 1 (worker-0): device 1: NVIDIA GB200 (00000009:01:00)
Process 2 (worker-1): device 0: NVIDIA GB200 (00000008:01:00)

Running multinode_device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0       N/A    798.02    797.00
 1    798.10       N/A    798.02
 2    400.11    797.95       N/A

Running multinode_device_to_device_bidirectional_memcpy_read_ce.
memcpy CE GPU(row) <-> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    700.00
 1    700.00       N/A

Running multinode_device_to_device_all_to_one_write_sm.
memcpy SM All Gpus -> GPU(column) total bandwidth (GB/s)
           0         1         2
 0    780.00    790.00    760.00
"""


def test_nvbandwidth_over_several_nodes(tmp_path: Path) -> None:
    done = import_files([written(tmp_path, MULTINODE)], tmp_path / "run", Hints())
    assert ["bidirectional_memcpy_read_ce" in why for why in done.problems] == [True]
    rows = [row for row in summarize(linkgauge.load(tmp_path / "run")).to_pylist() if row["lane"] == HEADLINE]
    rates = {(row["pattern"], *row["devices"], row["root"]): row["goodput_bytes_per_s"] / 1e9 for row in rows}
    assert rates["unidirectional", 0, 2, 0] == pytest.approx(400.11, rel=1e-5)  # the row's reads from the column's
    assert rates["all_to_one", 0, 1, 2, 2] == pytest.approx(760, rel=1e-5)
    (launch,) = linkgauge.load(tmp_path / "run").launches.to_pylist()
    assert [(rank["host"], rank["device_ordinal"]) for rank in launch["ranks"]] == [
        ("worker-0", 0), ("worker-0", 1), ("worker-1", 0)]  # fmt: skip


def test_cells_of_nvbandwidth_go_by_the_numbers_of_their_rows(tmp_path: Path) -> None:
    log = read(tmp_path, MULTINODE.replace(" 1    798.10       N/A    798.02\n", ""))
    pairs = {one.case.devices for one in log.cases if one.case.pattern == "unidirectional"}
    assert pairs == {(1, 0), (2, 0), (0, 2), (1, 2)}
    cut = read(tmp_path, MULTINODE.replace("798.10       N/A    798.02", "798.10    798.02"))
    assert {one.case.devices for one in cut.cases if one.case.pattern == "unidirectional"} == pairs
    assert any("2 cells where there are 3 columns" in why for why in cut.problems)


def test_each_start_of_nvbandwidth_has_its_own_devices_and_tests(tmp_path: Path) -> None:
    once = "nvbandwidth Version: v0.8\nDevice 0: NVIDIA X (00000000:{0}:00)\nDevice 1: NVIDIA X (00000000:{1}:00)\n"
    matrix = "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n 0 1\n 0 N/A 390.00\n 1 380.00 N/A\n"
    running = "Running device_to_device_memcpy_read_ce.\n"
    text = once.format("1b", "1c") + running + matrix + once.format("2b", "2c") + running + matrix
    done = import_files([written(tmp_path, text)], tmp_path / "run", Hints())
    assert done.cases == 4
    rows = summarize(linkgauge.load(tmp_path / "run")).to_pylist()
    assert sorted(tuple(row["devices"]) for row in rows if row["lane"] == HEADLINE) == [(0, 1), (1, 0), (2, 3), (3, 2)]
    lost = read(tmp_path, text + once.format("3b", "3c") + matrix)  # of which test is not known
    assert (len(lost.cases), len(lost.problems)) == (4, 1)
    assert "no line 'Running ...'" in lost.problems[0]


def test_in_json_both_parts_of_a_total_are_left_out(tmp_path: Path) -> None:
    rows = [["N/A", "385"], ["385", "N/A"]] * 2 + [["N/A", "770"], ["768", "N/A"]]
    test = {"name": "device_to_device_bidirectional_memcpy_read_ce", "status": "Passed", "bandwidth_matrix": rows,
            "bandwidth_description": "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)"}  # fmt: skip
    import json

    log = read(tmp_path, json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": [test]}}))
    rates = {one.case.devices: 2 * one.case.size / one.intervals[0][0] for one in log.cases}
    assert rates == {(0, 1): pytest.approx(770), (1, 0): pytest.approx(768)}


# --- several tools, other tools, rccl-tests' JSON, devices ------------------------------------------------------------


def test_one_log_may_hold_several_tools_output(tmp_path: Path) -> None:
    lines = [*nccl_log(), *osu("MPI Bandwidth Test", "Size      Bandwidth (MB/s)", "8  12.00"),
             "[ ID] Interval           Transfer     Bandwidth", "[  3]  0.0-10.0 sec  1.00 GBytes  859 Mbits/sec",
             *MULTINODE.splitlines(), *nccl_log("reduce")]  # fmt: skip
    log = read(tmp_path, lines)
    assert [name for name, _, _ in told(log)] == ["allreduce", "unidirectional", "unidirectional", "reduce"]
    assert any("iperf3's output, which Linkgauge does not read: left out" in why for why in log.problems)


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("[ ID] Interval           Transfer     Bandwidth\n", "iperf3"),
        ("# OSU OpenSHMEM Put Test v7.4\n# Size Latency (us)\n8 95.10\n", "the OSU suite for OpenSHMEM"),
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-15\n", "nvidia-smi topo"),
    ],
)  # fmt: skip
def test_tools_that_are_not_read_are_refused_by_name(tmp_path: Path, text: str, tool: str) -> None:
    with pytest.raises(UsageError, match=rf"this is {tool}.*output, which [^;]+; expected a log"):
        read(tmp_path, text)


def test_what_describes_a_machine_or_a_network_is_told_where_to_go(tmp_path: Path) -> None:
    matrix = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-15\nGPU1\tNV4\t X \t0-15\n"
    network = ('vendid=0x2c9\nSwitch\t36 "S-1"\n', "SwitchName=s0 Nodes=n[0-3]\n", "BlockName=b0 Nodes=n[0-3]\n",
               "- topology: t\n  tree:\n", "n0: lldp.eth0.chassis.name=leaf\nn1: lldp.eth0.chassis.name=leaf\n",
               "lldp.eth0.via=LLDP\n", '{"lldp": {"interface": {}}}')  # fmt: skip
    machine = (matrix, '<system version="1">\n', '<?xml version="1.0"?>\n<topology version="2.0">\n')
    places = [(text, "run --fabric") for text in network] + [(text, "give it to --system") for text in machine]
    for text, where in places:
        with pytest.raises(UsageError, match=where):
            read(tmp_path, text)


def test_the_nccl_suite_of_osu_is_of_transport_ccl_where_its_sizes_are_those_of_mpi(tmp_path: Path) -> None:
    lines = ["#Using NCCL", *osu("NCCL-CUDA Allreduce Latency Test", "Size      Avg Latency(us)", "1048576  95.10"),
             *osu("NCCL-CUDA All-to-All Personalized Exchange Latency Test", "Size    Avg Latency(us)", "8  189.24"),
             *osu("NCCL-CUDA Bandwidth Test", "Datatype: ncclBfloat16.", "Size      Bandwidth (MB/s)", "8  12.00"),
             *osu("NCCL-CUDA Allgather Latency Test", "Size    Avg Latency(us)", "8  12.00")]  # fmt: skip
    log = read(tmp_path, lines, ranks=8)
    seen = [(c.case.transport, c.case.pattern, c.case.size, c.case.source_memory, c.case.datatype) for c in log.cases]
    assert seen == [("ccl", "allreduce", 1 << 20, "device", "float32"), ("ccl", "alltoall", 8, "device", "int8"),
                    ("ccl", "unidirectional", 8, "device", "bfloat16")]  # fmt: skip
    (why,) = log.problems
    assert "of the NCCL suite only messages, allreduce, reduce, broadcast and alltoall are read" in why


def test_the_list_of_tools_and_what_a_log_is_taken_as(tmp_path: Path) -> None:
    known = dict(known_tools())
    assert known["nccl-tests"] == "text, JSON"
    assert known["ucx_perftest"] == "text"
    assert known["rccl-tests"] == "text, JSON"
    assert known["iperf3"] == "not read"
    assert known["perftest"] == "text, JSON"
    assert known["NCCL RAS"] == "JSON: ranks that are missing or behind, as notes"
    lines = ["[1,0]<stdout>:" + line for line in ["hello", *nccl_log(), "[ ID] Interval Transfer"]]
    assert explain(written(tmp_path, lines)) == [
        "log.txt: mpirun's tag of a rank ('[1,0]<stdout>:') was taken off 20 lines",
        "log.txt:1: 1 line from 'hello' on: no tool's",
        "log.txt:2: 18 lines from '# Collective test starting: all_reduce_perf' on: nccl-tests, read",
        "log.txt:20: 1 line from '[ ID] Interval Transfer' on: iperf3's output, which Linkgauge does not read",
    ]
    (line,) = [one for one in explain(written(tmp_path, rccl())) if "JSON" in one]
    assert line == "log.txt: JSON of rccl-tests, read"


def rccl(change: Callable[[dict[str, Any]], Any] = lambda one: None) -> str:
    import json

    found = []
    for in_place, time in ((0, 60.5), (1, 61.5)):
        one: dict[str, Any] = {"numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": 4, "ranksPerNode": 4,
                               "gpusPerRank": 1, "size": 1 << 20, "type": "float", "redop": "sum", "inPlace": in_place,
                               "time": time, "algBw": 1.048576 / time * 1e3, "busBw": 1.5 * 1.048576 / time * 1e3,
                               "wrong": "0"}  # fmt: skip
        change(one)
        found.append(one)
    return json.dumps(found)


def test_the_json_of_rccl_tests(tmp_path: Path) -> None:
    log = read(tmp_path, rccl())
    assert (told(log), log.problems, log.tables[0].tool) == ([("allreduce", 4, 2)], [], "rccl-tests")
    odd = (
        ("ranks", 8, "does not give"),
        ("name", "HyperCube", "no pattern"),
        ("gpusPerRank", 8, "of 32 ranks does not give"),
    )
    for name, value, why in odd:
        refused = read(tmp_path, rccl(lambda one, n=name, v=value: one.update({n: v})))  # type: ignore[misc]
        assert refused.cases == []
        assert why in refused.problems[0]


def test_ranks_of_several_gpus_count_as_their_bandwidths_bear_out(tmp_path: Path) -> None:
    assert told(read(tmp_path, rccl(lambda one: one.update(ranks=2, gpusPerRank=2)))) == [("allreduce", 4, 2)]

    def alone(one: dict[str, Any]) -> None:
        for name in ("nodes", "ranks", "ranksPerNode", "gpusPerRank"):
            del one[name]
        one["gpus"] = 4

    assert told(read(tmp_path, rccl(alone))) == [("allreduce", 4, 2)]
    log = read(tmp_path, rccl(lambda one: one.update(name="Broadcast", redop="none", gpusPerRank=2)))
    assert "no bus bandwidth of a broadcast bears out how many take part" in log.problems[0]


def devices_of(folder: Path, *logs: Sequence[str]) -> set[tuple[int, ...]]:
    files = [written(folder, lines, f"log{at}.txt") for at, lines in enumerate(logs)]
    import_files(files, folder / "run", Hints())
    return {tuple(row["devices"]) for row in summarize(linkgauge.load(folder / "run")).to_pylist()}


def test_devices_that_differ_are_not_pooled(tmp_path: Path) -> None:
    later = {"device": lambda rank: rank + 2, "pci": lambda rank: f"{0x20 + rank:#x}"}
    assert devices_of(tmp_path, [*nccl_log(ranks=2), *nccl_log(ranks=2, **later)]) == {(0, 1), (2, 3)}  # type: ignore[arg-type]


def test_processes_that_each_see_one_device_have_devices_of_their_own(tmp_path: Path) -> None:
    assert devices_of(tmp_path, nccl_log(device=lambda rank: 0)) == {(0, 1, 2, 3)}
    launch = linkgauge.load(tmp_path / "run").launches.to_pylist()[0]
    assert [rank["device_ordinal"] for rank in launch["ranks"]] == [0, 1, 2, 3]


def test_logs_of_two_nodes_are_not_repeats_of_each_other(tmp_path: Path) -> None:
    found = devices_of(tmp_path, nccl_log(ranks=2), nccl_log(ranks=2, host=lambda _: "node2"))
    assert found == {(0, 1), (2, 3)}


def test_what_was_taken_off_and_left_out_is_counted(tmp_path: Path) -> None:
    lines = [f"[1,0]<stdout>:{line}" for line in [*nccl_log(), *nccl_log("all_gather", printed_ranks=8)]]
    done = import_files([written(tmp_path, lines)], tmp_path / "run", Hints())
    assert (done.cases, done.left_out, len(done.problems)) == (6, 3, 1)
    assert done.notes == ["log.txt: mpirun's tag of a rank ('[1,0]<stdout>:') was taken off 36 lines"]


UNITS = [" ", "latency ", "P2P=Enabled ", "size count algbw ", "all_reduce_perf.", "[1,", "a.", "1"]


@pytest.mark.parametrize("unit", most(UNITS, UNITS[::3]))
def test_a_very_long_line_is_passed_over(tmp_path: Path, unit: str) -> None:
    """Of 4 MB: a form that goes back and forth over it would take days."""
    long = unit * (4_000_000 // len(unit))
    titles = ("# OSU MPI Bandwidth Test", "Device 0: NVIDIA", "memcpy")
    lines = [*nccl_log(), long, *(f"{title} {long}x" for title in titles), *nccl_log("reduce")]
    assert {"allreduce", "reduce"} <= {pattern for pattern, _, _ in told(read(tmp_path, lines))}
