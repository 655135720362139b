"""`linkgauge bars`: other people's thresholds are read from their files, and judged by limits and measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bar_samples import AICR, AWS, CVS, DCGM, GOOGLE, NHC, ORACLE, SUPERBENCH, TABLE
from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.exchange.bar_files import MACHINES, read_bars
from linkgauge.judge.bars import judge_bar, judge_bars
from linkgauge.model.bar import GOODPUT, PORT, Bar
from linkgauge.system import catalog
from thorough import thorough

FOUND = Path(__file__).parents[2] / "docs" / "results" / "data" / "bars.csv"


def bar(value: float, system: str = "hgx-h200-8", **more: Any) -> Bar:
    return Bar("made up", value * 1e9, system=system, **more)


@pytest.mark.parametrize(
    ("value", "fit"),
    # The cut of the switches' reduction allows 787; 480 was measured at 16 GiB, and 17 of 18 links leave 453.
    [
        (800, "impossible"),
        (786, "too high"),
        (481, "too high"),
        (470, "about right"),
        (431, "toothless"),
        (1, "toothless"),
    ],
)
def test_an_allreduce_of_eight_h200_has_four_kinds_of_bar(value: float, fit: str) -> None:
    assert judge_bar(bar(value, size=1 << 34)).fit == fit


def test_an_impossible_bar_names_the_rule_and_its_inputs() -> None:
    found = judge_bar(bar(350, "h100-nvl-2", pattern="unidirectional", transport="copy_engine", quantity=GOODPUT))
    assert found.fit == "impossible"
    assert found.limit == pytest.approx(300e9)
    assert found.why == "the links allow 300 GB/s (the links from one device to the other)"
    nodes = judge_bar(bar(800, "aws-p5", nodes=2))
    assert (nodes.fit, "nic_bundle: 32 NICs, 400 GB/s a node" in nodes.why) == ("impossible", True)


def test_a_host_link_at_half_width_is_the_dead_link_of_a_host_copy() -> None:
    for value, fit in ((70, "impossible"), (60, "too high"), (52, "about right"), (27, "toothless")):
        copy = bar(
            value, "hgx-h100-8", pattern="host_to_device", transport="copy_engine", quantity=GOODPUT, size=1 << 28
        )
        assert judge_bar(copy).fit == fit, value


@pytest.mark.parametrize("size", [1 << 28, 1 << 29, 0])
@pytest.mark.parametrize(
    ("value", "fit"), [(400, "too high"), (385, "too high"), (360, "about right"), (340, "toothless")]
)
def test_a_bar_above_a_healthy_pair_is_too_high_whoever_measured_it(value: float, fit: str, size: int) -> None:
    """Pairs of H100 were published from 363 GB/s on, and reads reach less than writes; ours reach 398."""
    found = judge_bar(
        bar(value, "hgx-h100-8", pattern="unidirectional", transport="copy_engine", quantity=GOODPUT, size=size)
    )
    assert found.fit == fit, found


def test_bars_of_others_prove_nothing() -> None:
    """AMD's own bar for four MI300A is the only share that is known of them."""
    found = judge_bar(bar(230, "mi300a-4", size=1 << 33))
    assert (found.fit, found.usual) == ("unknown", None)


def test_what_no_description_says_is_unknown() -> None:
    assert judge_bar(bar(1, "")).why.startswith("no described system is known for it: name one with --system")
    assert "2 nodes" in judge_bar(bar(1, "hgx-a100-8", nodes=2)).why
    assert judge_bar(bar(1, "hgx-h100-4", ranks=8)).fit == "unknown"
    assert "no rate of a NIC" in judge_bar(bar(1, quantity=PORT)).why
    assert judge_bar(Bar("x", 48e9, system="aws-p5", unread="a loop")).why == "a loop"


def test_a_named_system_goes_for_what_the_file_does_not_name() -> None:
    assert judge_bar(bar(300, "aws-p4d", nodes=2), "aws-p5en").why == judge_bar(bar(300, "aws-p4d", nodes=2)).why
    assert judge_bar(bar(800, "", nodes=2), "aws-p5en").fit == "impossible"


def test_all_machines_of_clouds_are_described() -> None:
    assert set(MACHINES.values()) <= set(catalog.names())


# --- files -----------------------------------------------------------------------------------------------------------


def read(folder: Path, name: str, text: str) -> list[tuple[Any, ...]]:
    (folder / name).write_text(text)
    return [
        (one.system, one.pattern, round(one.value / 1e9, 3), one.nodes, one.size, one.quantity)
        for one in read_bars(folder / name)
    ]


GIB = 1 << 30
READ: list[tuple[str, str, list[tuple[Any, ...]]]] = [
    ("nd96isr_h200_v5.conf", NHC, [
        ("azure-nd-h200-v5", "host_to_device", 48, 1, GIB >> 2, GOODPUT),
        ("azure-nd-h200-v5", "device_to_host", 48, 1, GIB >> 2, GOODPUT),
        ("azure-nd-h200-v5", "unidirectional", 335, 1, GIB >> 2, GOODPUT),
        ("azure-nd-h200-v5", "allreduce", 431, 1, 16 * GIB, "busbw"),
        ("azure-nd-h200-v5", "allreduce", 430, 1, 8 * GIB, "busbw"),
        ("azure-nd-h200-v5", "unidirectional", 45, 1, 0, PORT),
        ("azure-nd-h200-v5", "allreduce", 40, 1, 0, "busbw"),
    ]),
    ("nd96isr_mi300x_v5.conf", " * || check_gpu_bw 48 44\n", [
        ("azure-nd-mi300x-v5", "host_to_device", 48, 1, GIB >> 2, GOODPUT),
        ("azure-nd-mi300x-v5", "device_to_host", 44, 1, GIB >> 2, GOODPUT),
    ]),
    ("multi_node_check.py", ORACLE, [
        ("oci-bm-h100-8", "allreduce", 440, 2, GIB, "busbw"), ("oci-bm-h100-8", "unidirectional", 24, 1, 0, PORT),
        ("", "allreduce", 7, 2, GIB, "busbw"),
    ]),
    ("check.sh", AWS, [("aws-p5", "allreduce", 800, 2, 0, "busbw"), ("", "allreduce", 1, 2, 0, "busbw")]),
    ("a3ultra.yaml", GOOGLE, [("gcp-a3-ultra", "allreduce", 250, 2, 8 * GIB, "busbw")]),
    ("gb200.yaml", AICR, [("", "allreduce", 40, 2, 0, "busbw"), ("gb200-nvl72", "allreduce", 500, 1, 0, "busbw")]),
    ("rccl.json", CVS, [
        ("mi300x-8", "allreduce", 304, 1, 8 * GIB, "busbw"), ("mi300x-8", "allgather", 250.5, 1, GIB, "busbw"),
        ("mi300x-8", "unidirectional", 33.9, 1, GIB >> 2, GOODPUT),
    ]),
    ("rules.yaml", SUPERBENCH, [
        ("", "allreduce", 400, 1, 8 * GIB, "busbw"), ("", "host_to_device", 0, 1, GIB >> 2, GOODPUT),
    ]),
    ("diag.txt", DCGM, [
        ("", "local_copy", 1000, 1, GIB >> 1, GOODPUT), ("", "host_to_device", 20, 1, GIB >> 2, GOODPUT),
        ("", "device_to_host", 20, 1, GIB >> 2, GOODPUT),
    ]),
    ("mine.csv", TABLE, [("hgx-h200-8", "allreduce", 431, 1, 16 * GIB, "busbw")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "bars"), READ, ids=[name for name, _, _ in READ])
def test_a_file_of_each_form_is_read(tmp_path: Path, name: str, text: str, bars: list[tuple[Any, ...]]) -> None:
    assert read(tmp_path, name, text) == bars


@pytest.mark.parametrize("before", ["", "check_nvsmi_healthmon", "check_gpu_xid\n * || check_nvlink_status"])
def test_a_check_without_a_number_hides_none_of_the_next(tmp_path: Path, before: str) -> None:
    lines = [*([f" * || {before}"] if before else []), " * || check_gpu_bw 48 335", "#* || check_gpu_bw 9 9"]
    found = read(tmp_path, "nd96isr_h100_v5.conf", "\n".join([*lines, " * || check_gpu_xid", ""]))
    assert len(found) == 3


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "hello", "no file of bars that Linkgauge reads"),
        ("a.csv", "pattern,size,busbw\nallreduce,8GiB,460\n", "CSV with the columns system, pattern, value"),
        ("a.csv", "system,pattern,value\nx,nothing,1\n", "a.csv:2: expected a pattern"),
        ("a.csv", "system,pattern,value\nx,allreduce,much\n", "a.csv:2: expected numbers"),
        ("a.csv", "system,pattern,value,nodes\nx,allreduce,1,0\n", "a.csv:2: expected numbers"),
        ("a.csv", "system,pattern,value\n", "states no bandwidth"),
        ("a.json", '{"bus_bw": ', "not JSON"),
        ("a.conf", " * || check_gpu_count 8\n", "states no bandwidth"),
    ],
)
def test_what_is_no_file_of_bars_is_one_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=re.escape(words)) as error:
        read_bars(tmp_path / name)
    assert "\n" not in str(error.value)


# --- the command, and what was found ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "system", "status"), [("470", "hgx-h200-8", 0), ("431", "hgx-h200-8", 1), ("1", "gaudi2-8", 3)]
)
def test_the_command_ends_by_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str, system: str, status: int
) -> None:
    (path := tmp_path / "mine.csv").write_text(f"system,pattern,value,size\n,allreduce,{value},16 GiB\n")
    assert run_command(["bars", str(path), "--system", system]) == status
    assert "1 bar: 1 " in capsys.readouterr().out
    assert run_command(["bars", str(path), "--system", system, "--json"]) == status
    assert len(json.loads(capsys.readouterr().out)) == 1


@thorough("bars change with their table alone")
def test_sixty_bars_were_found_and_each_impossible_one_has_its_rule() -> None:
    judged = judge_bars(read_bars(FOUND))
    assert len(judged) >= 60
    assert len({one.bar.source for one in judged}) > 30
    assert all(one.rule and one.limit and one.limit < one.bar.value for one in judged if one.fit == "impossible")
    assert {"impossible", "toothless", "about right", "unknown"} <= {one.fit for one in judged}
    assert all(one.why and one.bar.system for one in judged)
