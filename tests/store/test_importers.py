"""Other tools' logs: figures and sizes as definitions.md converts them, and everything else reported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linkgauge
from linkgauge.errors import UsageError
from linkgauge.exchange.importers import Hints, import_files, read_log
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import HEADLINE
from linkgauge.stats.summary import summarize
from thorough import most

LOGS = Path(__file__).parent / "logs"


def imported(tmp_path: Path, *names: str, **hints: Any) -> tuple[list[dict[str, Any]], list[str]]:
    result = import_files([LOGS / name for name in names], tmp_path / "run", Hints(**hints))
    rows = summarize(linkgauge.load(tmp_path / "run")).to_pylist()
    assert result.cases == len({(row["case_key"], row["launch"], row["repeat"]) for row in rows})
    return [row for row in rows if row["lane"] == HEADLINE], result.problems


def test_nccl_tests_table(tmp_path: Path) -> None:
    rows, problems = imported(tmp_path, "all_reduce.txt")
    by_key = {(row["size"], row["in_place"]): row for row in rows}
    row = by_key[1 << 20, False]
    assert (row["transport"], row["pattern"], row["devices"], row["datatype"], row["op"]) == (
        "ccl",
        "allreduce",
        [0, 1],
        "float32",
        "sum",
    )
    assert row["median_ns"] == pytest.approx(20_000)
    assert row["goodput_bytes_per_s"] == pytest.approx(52.43e9, rel=1e-3)  # its algbw
    assert row["busbw_bytes_per_s"] == pytest.approx(52.43e9, rel=1e-3)  # 2 (n - 1) / n is 1 on two
    assert row["library"] == "NCCL 2.28.9"
    assert (row["verified"], row["operations_total"], row["cadence"]) == (True, 20, "streaming")
    wrong = by_key[1 << 20, True]
    assert (wrong["status"], wrong["reason"], wrong["median_ns"]) == ("corrupt", "3 wrong values", None)
    assert len(rows) == 5
    assert by_key[2 << 20, True]["status"] == "ok"
    assert [problem.split(":")[1] for problem in problems] == ["13", "15", "16"]
    assert "x5.00" in problems[1]
    run = linkgauge.load(tmp_path / "run")
    assert run.info["origin"]["tools"] == ["nccl-tests"]
    assert run.launches["ranks"].to_pylist()[0][1]["device_name"] == "NVIDIA H200"


def test_nccl_tests_totals_become_blocks_of_alltoall(tmp_path: Path) -> None:
    rows, problems = imported(tmp_path, "alltoall_old.txt", pattern="alltoall")
    assert not problems
    row = next(row for row in rows if not row["in_place"])
    assert row["size"] == 256
    # Goodput of alltoall is nccl-tests' bus bandwidth: (n - 1) m / t.
    assert row["goodput_bytes_per_s"] == pytest.approx(3 * 256 / 30e-6)
    assert {row["verified"] for row in rows} == {True, None}


def test_a_table_that_does_not_say_its_pattern_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--pattern must"):
        imported(tmp_path, "alltoall_old.txt")


def test_nccl_tests_json_with_single_iterations(tmp_path: Path) -> None:
    rows, problems = imported(tmp_path, "sendrecv.json")
    assert not problems
    by_key = {(row["size"], row["in_place"]): row for row in rows}
    assert by_key[4096, False]["median_ns"] == pytest.approx(12_500)
    assert by_key[4096, False]["operations_total"] == 10
    assert by_key[4096, True]["verified"] is None
    single = by_key[8192, True]
    assert (single["median_ns"], single["min_ns"], single["max_ns"], single["samples"]) == (14_000, 13_000, 15_000, 3)
    assert {row["pattern"] for row in rows} == {"ring_shift"}


def test_figures_that_are_no_numbers_make_no_case_that_cannot_be_read_again(tmp_path: Path) -> None:
    text = (LOGS / "all_reduce.txt").read_text()
    row = next(line for line in text.splitlines() if line.split()[:1] and line.split()[0].isdecimal())
    (tmp_path / "log.txt").write_text(text.replace(row, " ".join([*row.split()[:7], "nan", *row.split()[8:]])))
    done = import_files([tmp_path / "log.txt"], tmp_path / "run", Hints(ranks=2))
    assert any("not a number" in problem for problem in done.problems)
    assert summarize(linkgauge.load(tmp_path / "run")).num_rows


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"rank":1', '"rank":[]', "devices[1].rank is list: expected a whole number"),
        ('"iterations":5', '"iterations":"5"', "config.iterations is '5': expected"),
        ("13.000000,", "null,", "results[1].in_place_per_iter.times_us[0] is None: expected a number"),
        ('"time":14.000000', '"time":{}', "results[1].in_place.time is dict: expected a text or a number"),
    ],
)
def test_json_that_is_not_as_its_tool_writes_it_names_the_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "log.json").write_text((LOGS / "sendrecv.json").read_text().replace(old, new, 1))
    with pytest.raises(UsageError, match=re.escape(said)):
        read_log(tmp_path / "log.json", Hints())


def test_osu(tmp_path: Path) -> None:
    names = ("osu_latency.txt", "osu_bibw.txt", "osu_bw_old.txt", "osu_allgather.txt")
    rows, problems = imported(tmp_path, *names, ranks=4)
    by_key = {(row["pattern"], row["size"]): row for row in rows}
    latency = by_key["pingpong", 8]
    assert latency["latency_ns"] == pytest.approx(340)
    assert (latency["source_memory"], latency["target_memory"], latency["datatype"]) == ("device", "pageable", "int8")
    both = by_key["bidirectional", 1 << 20]
    assert both["goodput_bytes_per_s"] == pytest.approx(20e9, rel=1e-4)  # the sum of both ways, MB of 10^6
    assert both["window"] == 64
    assert by_key["unidirectional", 1 << 20]["goodput_bytes_per_s"] == pytest.approx(12_345.67e6, rel=1e-4)
    gathered = by_key["allgather", 4096]  # 1024 a rank
    assert (gathered["median_ns"], gathered["operations_total"], gathered["cadence"]) == (5000, 1000, "barrier")
    assert by_key["allgather", 8192]["status"] == "corrupt"
    assert problems == []
    assert [row["variant"] for row in rows if row["pattern"] == "barrier"] == ["overlapped"]


def test_osus_message_rate_barrier_and_forms_of_alltoall(tmp_path: Path) -> None:
    rows, problems = imported(tmp_path, "osu_others.txt", ranks=2)
    assert not problems
    by_key = {(row["pattern"], row["variant"], row["size"]): row for row in rows}
    rate = by_key["pairs_unidirectional", "", 8]
    assert (rate["devices"], rate["window"]) == ([0, 2, 1, 3], 32)  # as its own header says, whatever is hinted
    assert rate["median_ns"] == pytest.approx(2 * 32 * 8 / 48.33e6 * 1e9, rel=1e-4)
    assert by_key["barrier", "", 0]["median_ns"] == pytest.approx(410)
    assert by_key["alltoall", "alltoallv_own", 16]["median_ns"] == pytest.approx(510)
    begun = by_key["alltoall", "overlapped", 8]
    assert begun["median_ns"] == pytest.approx(1720)
    assert json.loads(begun["evidence"])["overlap_percent"] == "0.13"


def test_osu_collectives_need_the_number_of_ranks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--ranks must say it"):
        imported(tmp_path, "osu_allgather.txt")


def test_nvbandwidth_matrices(tmp_path: Path) -> None:
    rows, problems = imported(tmp_path, "nvbandwidth.txt")
    rate = {
        (row["pattern"], row["transport"], tuple(row["devices"]), row["initiator"]): row["goodput_bytes_per_s"] / 1e9
        for row in rows
        if row["pattern"] != "pointer_chase"
    }
    assert rate["host_to_device", "copy_engine", (1,), "sender"] == pytest.approx(55.0, rel=1e-5)
    # The row's device reads from the column's, or writes to it.
    assert rate["unidirectional", "copy_engine", (1, 0), "receiver"] == pytest.approx(390, rel=1e-5)
    assert rate["unidirectional", "kernel", (0, 1), "sender"] == pytest.approx(330, rel=1e-5)
    assert rate["bidirectional", "copy_engine", (0, 1), "receiver"] == pytest.approx(770, rel=1e-5)
    assert rate["one_to_all", "copy_engine", (0, 1), "sender"] == pytest.approx(300, rel=1e-5)
    assert all(row["size"] == 512 << 20 for row in rows if row["pattern"] != "pointer_chase")
    # One flow, with the other device's beside it.
    assert rate["device_to_host_contended", "copy_engine", (1, 0), "sender"] == pytest.approx(50, rel=1e-5)
    assert len(rows) == 14
    assert any("'bad' is not a rate" in problem for problem in problems)
    assert any("host_device_latency_sm: 'odd' is not a latency" in problem for problem in problems)
    # The row's GPU walks through memory of the column's; a host's memory is walked by the column's.
    latencies = {
        (tuple(row["devices"]), row["source_memory"]): row for row in rows if row["pattern"] == "pointer_chase"
    }
    assert {who: row["latency_ns"] for who, row in latencies.items()} == pytest.approx(
        {((0, 1), "device"): 900, ((1, 0), "device"): 950, ((0,), "pinned"): 765.25}
    )
    assert all(row["size"] == 2 << 20 and row["transport"] == "kernel" for row in latencies.values())
    assert all(row["goodput_bytes_per_s"] is None for row in latencies.values())


def test_nvbandwidth_json_and_size(tmp_path: Path) -> None:
    rows, problems = imported(tmp_path, "nvbandwidth.json", size_bytes=64 << 20)
    assert [(row["pattern"], row["size"], row["devices"]) for row in rows] == [
        ("local_copy", 64 << 20, [0]),
        ("local_copy", 64 << 20, [1]),
    ]
    assert rows[0]["goodput_bytes_per_s"] == pytest.approx(1900.5e9, rel=1e-4)
    assert "Waived" in problems[0]


def test_blink(tmp_path: Path) -> None:
    rows, problems = imported(tmp_path, "blink.csv", pattern="pingpong", transport="ccl", ranks=2, size_bytes=8)
    (row,) = rows
    assert (row["latency_ns"], row["samples"]) == (6000, 3)  # blink stores half of the round trip
    assert len(problems) == 2
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match="--pattern, --transport, --ranks, --size"):
        imported(tmp_path / "other", "blink.csv")


def test_a_file_of_blink_with_a_very_long_field_is_read(tmp_path: Path) -> None:
    """More than Python's own reader of such files takes, which raises an error of its own then."""
    (tmp_path / "data.csv").write_text(f'"0_Transfer Time_s",1_Transfer Time_s\n"1e-6",{"x" * 200_000}\n2e-6,1\n')
    hints = Hints(pattern="pingpong", transport="ccl", ranks=2, size_bytes=8)
    assert import_files([tmp_path / "data.csv"], tmp_path / "run", hints).cases == 1
    assert linkgauge.load(tmp_path / "run").samples["ns"].to_pylist() == [2000, 4000]


@pytest.mark.parametrize("name", most([*PATTERNS], [*PATTERNS][::5]))
def test_of_each_pattern_what_is_imported_can_be_read_again(tmp_path: Path, name: str) -> None:
    for ranks in (1, 2, 4):
        output = tmp_path / str(ranks)
        hints = Hints(pattern=name, transport="ccl", ranks=ranks, size_bytes=64)
        if PATTERNS[name].takes(ranks):
            assert import_files([LOGS / "blink.csv"], output, hints).cases == 1
            assert summarize(linkgauge.load(output)).num_rows
        else:
            assert any(f"a {name} of {ranks} ranks" in one for one in read_log(LOGS / "blink.csv", hints).problems)


def test_the_same_case_twice_is_two_repeats(tmp_path: Path) -> None:
    text = (LOGS / "osu_latency.txt").read_text()
    (tmp_path / "twice.txt").write_text(text + text)
    import_files([tmp_path / "twice.txt"], tmp_path / "run", Hints())
    repeats = sorted(row.repeat for row in linkgauge.load(tmp_path / "run").rows() if row.case.size == 8)
    assert repeats == [0, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a log"),
        ("hello\n", "not a log"),
        ("{", "truncated"),
        ("{}", "not JSON of"),
        ('{"nvbandwidth": {"testcases": 4}}', "not as"),
    ],
)
def test_what_is_no_log_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_log(tmp_path / "log", Hints())
    with pytest.raises(UsageError, match="no such file"):
        read_log(tmp_path / "missing", Hints())


@given(data=st.data())
@settings(max_examples=most(150, 10), deadline=None)
def test_mangled_logs_end_in_cases_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any log with lines cut, swapped or filled with rubbish: cases, reports or a UsageError, never a traceback."""
    name = data.draw(st.sampled_from(sorted(path.name for path in LOGS.iterdir())))
    lines = (LOGS / name).read_text().split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at] = data.draw(
            st.sampled_from(
                ["", lines[at][: len(lines[at]) // 2], lines[at] * 2, "nan inf -1 1e999 9" * 3, "\x00\ud7ff", lines[-1]]
            )
            | st.text(max_size=40)
        )
    path = tmp_path_factory.mktemp("mangled") / "log"
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        log = read_log(path, Hints(ranks=4, pattern="alltoall", transport="ccl", size_bytes=1024))
    except UsageError:
        return
    for one in log.cases:
        assert one.case.size > 0 or one.case.pattern == "barrier"
        assert all(time > 0 and iterations > 0 for time, iterations in one.intervals)
    if log.cases:
        import_files([path], path.parent / "run", Hints(ranks=4, pattern="alltoall", transport="ccl", size_bytes=1024))
        for row in summarize(linkgauge.load(path.parent / "run")).to_pylist():
            assert row["median_ns"] is None or row["median_ns"] > 0
