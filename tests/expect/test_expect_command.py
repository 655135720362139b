"""The commands `expect` and `system` as a user types them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import linkgauge.system as systems
from linkgauge.app.cli import run_command
from linkgauge.app.limits_shown import measured_words
from linkgauge.expect.limit import Limit
from linkgauge.expect.rules import KINDS, RULES


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(list(arguments)) == 0
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(list(arguments)) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def test_expect_in_json_and_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(output(capsys, "expect", "lumi-g", "--pattern", "alltoall", "--json"))
    (group,) = data
    assert group["case"]["devices"] == list(range(8))
    values = {c["rule"]: c["value_bytes_per_s"] for c in group["limits"]}
    assert values["concurrent_flow"] == pytest.approx(1050e9 / 8)
    assert {c["kind"] for c in group["limits"]} <= set(KINDS)
    text = output(capsys, "expect", "lumi-g", "--pattern", "alltoall", "--unit", "Gb/s")
    for word in ("concurrent_flow", "1050 Gb/s", "600 Gb/s", "700 Gb/s", "published"):
        assert word in text


def test_expect_all_patterns_and_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(output(capsys, "expect", "lumi-g", "--json"))
    pingpongs = [group for group in data if group["case"]["pattern"] == "pingpong"]
    widest = [
        next(c["value_bytes_per_s"] for c in group["limits"] if c["rule"] == "widest_path") for group in pingpongs
    ]
    assert [value * 8 / 1e9 for value in widest] == [1600, 400, 400, 400, 400, 800, 800]
    for group in data:
        assert group["limits"], group["case"]


def test_expect_of_one_pair_and_of_several_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    (group,) = json.loads(output(capsys, "expect", "alps", "--pattern", "pingpong", "--devices", "2,3", "--json"))
    assert group["case"]["devices"] == [2, 3]
    (group,) = json.loads(output(capsys, "expect", "alps", "--pattern", "alltoall", "--nodes", "8", "--json"))
    assert {c["rule"] for c in group["limits"]} == {"nic_bundle", "nic_share_asymptotic"}


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "expect", "--rules")
    for name, rule in RULES.items():
        assert name in text
        assert rule.formula in text


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no described system 'lumi'" in error(capsys, "expect", "lumi")
    assert "there is no device 9" in error(capsys, "expect", "lumi-g", "--devices", "7,9")
    assert "'a' is no ordinal" in error(capsys, "expect", "lumi-g", "--devices", "0,a")
    assert "unknown pattern 'x'" in error(capsys, "expect", "lumi-g", "--pattern", "x")
    assert "unknown transport 'x'" in error(capsys, "expect", "lumi-g", "--transport", "x")
    assert "nccl,mpi: expected one transport" in error(capsys, "expect", "lumi-g", "--transport", "nccl,mpi")
    assert "unknown unit 'x'" in error(capsys, "expect", "lumi-g", "--unit", "x")
    assert "'64MB' is not a size" in error(capsys, "expect", "lumi-g", "--size", "64MB")
    assert "name a system" in error(capsys, "expect")
    assert "root 8 is no rank" in error(capsys, "expect", "lumi-g", "--pattern", "broadcast", "--root", "8")
    assert "one of them" in error(capsys, "topology", "lumi-g", "--here")


def test_system_lists_shows_and_dumps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    listed = output(capsys, "topology")
    for name in systems.names():
        assert name in listed
    shown = output(capsys, "topology", "v100-dgx-1")
    assert "2 nvlink 50" in shown
    assert "Li et al." in shown
    file = tmp_path / "edited.json"
    file.write_text(output(capsys, "topology", "alps", "--json"), encoding="utf-8")
    assert systems.load(file) == systems.load("alps")
    here = json.loads(output(capsys, "topology", "--here", "--json"))
    assert here["host"]


@pytest.mark.parametrize("name", systems.names())
def test_svg_has_every_node_and_link(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    system = systems.load(name)
    file = tmp_path / "drawn.svg"
    output(capsys, "topology", name, "--svg", str(file))
    root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    texts = {element.text for element in root.iter(f"{space}text")}
    assert {node.name for node in system.nodes} <= texts
    kinds = {link.kind for link in system.links if link.kind != "internal"}
    lines = list(root.iter(f"{space}line"))
    assert len(lines) == sum(link.kind != "internal" for link in system.links) + len(kinds)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter(f"{space}rect"):
        x, y = float(box.attrib.get("x", 0)), float(box.attrib.get("y", 0))
        assert x >= 0
        assert x + float(box.attrib["width"]) <= width
        assert y >= 0
        assert y + float(box.attrib["height"]) <= height


@pytest.mark.parametrize("name", systems.names())
def test_described_nodes_do_not_lie_on_each_other(name: str) -> None:
    from linkgauge.system.draw import places

    at = list(places(systems.load(name)).items())
    for i, (one, (x, y)) in enumerate(at):
        for other, (u, v) in at[:i]:
            assert abs(x - u) >= 0.8 or abs(y - v) >= 0.38, (one, other)


@pytest.mark.parametrize("page", ["reference/limits.md", "explanation/limits.md"])
def test_a_page_on_limits_names_rules_that_there_are(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    # Dimensions, transports and a figure of descriptions that these pages name too.
    assert named - {"copy_engine", "stream_copy", "host_stream", "nodes_per_domain"} <= set(RULES)
    assert len(named) > 5


def test_expect_of_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A run's cases with what was measured beside what its system allows; without a system one must be named."""
    pytest.importorskip("linkgauge._core", reason="medians are the core's")
    from synthetic import make_case, make_run

    cases = [make_case("kernel", "pingpong", 1 << 20, (0, 1)), make_case("mpi", "alltoall", 1 << 20, (0, 1, 2, 3))]
    make_run(tmp_path / "run", cases=cases)
    assert "holds no system" in error(capsys, "expect", str(tmp_path / "run"))
    words = ["expect", str(tmp_path / "run"), "--system", "leonardo-booster"]
    groups = json.loads(output(capsys, *words, "--json"))
    assert [group["case"]["pattern"] for group in groups] == ["pingpong", "alltoall"]
    for group in groups:
        assert group["case"]["measured_bytes_per_s"] > 0
        assert {c["kind"] for c in group["limits"]} >= {"upper bound", "achievable schedule"}
    # The ping-pong by kernels is a lowest-level primitive, and so sets what is achievable on its links.
    achieved = [c for c in groups[0]["limits"] if c["kind"] == "measured"]
    assert achieved[0]["value_bytes_per_s"] == pytest.approx(groups[0]["case"]["measured_bytes_per_s"])
    assert "of the bound" in output(capsys, *words)
    assert "no sweep" in output(capsys, "expect", str(tmp_path / "run"), "--fits")
    assert "own cases: leave out --pattern" in error(capsys, *words, "--pattern", "alltoall")
    assert "--fits needs a run" in error(capsys, "expect", "lumi-g", "--fits")


def test_what_is_measured_above_a_bound_is_said_to_be_wrong() -> None:
    bound = Limit("max_flow", "upper bound", 100e9, "basis", "source")
    assert measured_words(90e9, [bound], "GB/s") == "90 GB/s, 90.0 % of the bound max_flow"
    assert "measurement is wrong" in measured_words(101e9, [bound], "GB/s")
    assert measured_words(5e9, [], "GB/s") == "5 GB/s"


def test_copies_through_other_devices_are_expected_as_run_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    def rules(*arguments: str) -> dict[tuple[int, ...], set[str]]:
        groups = json.loads(output(capsys, "expect", "v100-dgx-1", "--pattern", "unidirectional", "--json", *arguments))
        return {tuple(one["case"]["devices"]): {limit["rule"] for limit in one["limits"]} for one in groups}

    assert all("striped" in found for found in rules("--variant", "striped").values())
    via = rules("--via", "2")
    assert (0, 2) not in via
    assert all("relay" in found for found in via.values())
    assert "relay_pipelined" in rules("--via", "2", "--variant", "pipelined")[0, 1]
    for arguments, said in (
        (["--via", "0"], "an end of the copy"),
        (["--via", "9"], "--via: no device 9: expected 0 to 7"),
        (["--variant", "strip"], "did you mean 'striped'?"),
        (["--variant", "striped", "--pattern", "allreduce"], "allreduce is not routed"),
        (["--via", "2", "--transport", "mpi"], "mpi chooses its own way"),
    ):
        assert said in error(capsys, "expect", "v100-dgx-1", *arguments)


@pytest.mark.parametrize(
    ("typed", "own"), [("nccl", "ccl"), ("rccl", "ccl"), ("memcpy", "copy_engine"), (" mpi ", "mpi")]
)
def test_a_transport_goes_by_the_name_that_screens_give_it(
    typed: str, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("expect", "hgx-h100-4", "--pattern", "alltoall", "--transport")
    assert output(capsys, *words, typed).startswith(f"alltoall {typed.strip()} on GPUs 0-3")
    (found,) = json.loads(output(capsys, *words, typed, "--json"))
    assert found["case"]["transport"] == own


def test_pairs_of_equal_limits_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Of eight A40 one pair of GPU 0 has a bridge, and six have not."""
    assert run_command(["expect", "a40-8", "--pattern", "unidirectional"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("unidirectional")]
    assert heads == [
        "unidirectional on GPU 0 - GPU 1", "unidirectional on GPU pairs 0-2, 0-3, 0-4, 0-5 and 2 more",
    ]  # fmt: skip


def test_a_limit_of_both_ways_says_that_it_is_of_each_direction(capsys: pytest.CaptureFixture[str]) -> None:
    """`show` holds the sum of both against twice as much."""
    assert run_command(["expect", "hgx-h100-8", "--pattern", "unidirectional,bidirectional", "--devices", "0,1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "bidirectional on GPU 0 - GPU 1 (each direction)" in lines
    assert "unidirectional on GPU 0 - GPU 1" in lines
