"""`linkgauge simulate`: what it prints and writes, what it refuses, and described fabrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linkgauge import system as systems
from linkgauge.app.cli import run_command
from linkgauge.simulate import of_system, papers
from linkgauge.simulate.beside import beside, job_and_loads
from linkgauge.simulate.described import parse_setting
from linkgauge.simulate.others import parse_load
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import Rule, parse_rules
from linkgauge.simulate.stage import Request
from linkgauge.simulate.study import study

GBIT = 1e9 / 8


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = run_command(["simulate", *arguments])
    found = capsys.readouterr()
    assert status == 0, found.err
    return " ".join(found.out.split())


def answers_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert run_command(["simulate", *arguments, "--json", "--no-what-if"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["answers"]
    return found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lumi"], "no described system"),
        (["lumi-g", "--gpus", "1000000"], "there are 23808"),
        (["lumi-g", "--gpus", "8:4:x2"], "smaller count first"),
        (["lumi-g", "--gpus", "x"], "no count or range"),
        (["lumi-g", "--gpus", "1"], "2 or more"),
        (["lumi-g", "--gpus", "64", "--pattern", "broadcast", "--root", "64"], "root 64: expected a rank, 0 to 63"),
        (["lumi-g", "--gpus", "64", "--placement", "groups:999"], "999 nodes of group 0"),
        (["lumi-g", "--routing", "static"], "no rule 'static' on a dragonfly"),
        (["lumi-g", "--routing", "mixed"], "a share from 0 to 1"),
        (["summit", "--routing", "minimal"], "no rule 'minimal' on a fat_tree"),
        (["lumi-g", "--pattern", "alltoal"], "did you mean 'alltoall'"),
        (["lumi-g", "--pattern", "barrier"], "is not simulated"),
        (["lumi-g", "--set", "groups=0"], "more than 0"),
        (["lumi-g", "--set", "groups=1e12"], "whole number"),
        (["lumi-g", "--set", "nodes_per_group=1000000000"], "expected at most"),
        (["lumi-g", "--set", "group=3"], "did you mean 'groups'"),
        (["lumi-g", "--set", "port_rate=0GB/s"], "more than 0"),
        (["lumi-g", "--set", "port_rate=fast"], "no quantity"),
        (["lumi-g", "--background", "alltoall"], "PATTERN:GPUS"),
        (["lumi-g", "--background", "alltoall:1000000", "--gpus", "64"], "lumi-g has 2976"),
        (["lumi-g", "--background", "alltoall:64", "--gpus", "64", "--routing", "best"], "spreads evenly"),
        (["lumi-g", "--pessimistic"], "goes with --background"),
        (["lumi-g", "--gpus-per-node", "9"], "lumi-g has 8"),
        (["hgx-h100-8"], "no NICs"),
        (["lumi-g", "--pattern", "allreduce", "--algorithm", "halving", "--gpus", "24"], "power of two"),
        (["--paper", "sc24:7"], "is simulated"),
        (["--paper", "sc24:12"], "no queues: measure it by 'linkgauge reproduce sc24:12'"),
        (["--paper", "sc24:13"], "no queues: measure it by 'linkgauge reproduce sc24:13'"),
        (["--paper", "sc24:9", "--efficiency", "0.75"], "is not a percentage"),
        (["--paper", "sc24:9", "--calibrate", "run"], "--efficiency"),
        ([], "name a system"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert run_command(["simulate", *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert len(found.err.strip().splitlines()) == 1, found.err
    assert words in found.err


def test_what_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    found = printed(capsys, "leonardo-booster", "--gpus", "64,4096", "--placement", "over:10")
    for words in ("Gb/s a GPU", "third_group", "leaf up", "Elsewhere placed", "19 links between two groups, not 18",
                  "No queues", "perfect"):  # fmt: skip
        assert words in found, words
    assert "Not known" not in found
    assert "Not known: groups" in printed(capsys, "alps", "--gpus", "64")
    assumed = printed(
        capsys, "alps", "--gpus", "64", "--set", "groups=24", "--set", "nodes_per_group=112",
        "--set", "links_per_group_pair=20",
    )  # fmt: skip
    assert "Assumed by you: groups=24" in assumed
    assert "third_group" in assumed
    assert "links_per_group_pair:" in printed(capsys, "--figures")


def test_the_asymptotes_of_sc24s_figure_9(capsys: pytest.CaptureFixture[str]) -> None:
    """2 MiB alltoall: 200 Gb/s a GPU on Alps, 100 on Leonardo and LUMI, reached from above as nodes are added."""
    for name, gbits in (("alps", 200), ("leonardo-booster", 100), ("lumi-g", 100)):
        found = answers_of(capsys, name, "--gpus", "64,512,2048", "--routing", "best", "--placement", "random")
        rates = [one["goodput"] / GBIT for one in found]
        assert rates == sorted(rates, reverse=True)
        assert rates[-1] == pytest.approx(gbits, rel=0.01)
        # A finite job is above the asymptote by the part that stays on its node (the paper's remark).
        per_node = 8 if name == "lumi-g" else 4
        assert rates[0] == pytest.approx(gbits * 63 / (64 - per_node), rel=0.01)


def test_latencies_alone_let_an_allreduce_fall_from_256_to_512_gpus() -> None:
    """SC'24's Fig. 10 falls there on Alps; 2 (n - 1) messages of the latency it measured are a part of it."""
    fabric = of_system(systems.load("alps"))
    alps = study(fabric, Request("allreduce", 1 << 30), [256, 512], parse_rules("", fabric), what_if=False)
    by_gpus = {row[0].gpus: row[0] for row in alps.curves}
    assert by_gpus[512].goodput < 0.95 * by_gpus[256].goodput
    assert by_gpus[512].latency_seconds == pytest.approx(2 * 511 * 4.33e-6)


def test_the_librarys_efficiency_is_a_curve_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """75 % of the asymptote, as the paper's NCCL, beside the rule that the network allows (Fig. 9)."""
    chart = tmp_path / "nine.json"
    assert run_command(["simulate", "--paper", "sc24:9", "--efficiency", "75%", "--chart", str(chart)]) == 0
    assert "with library" in capsys.readouterr().out
    spec = json.loads((tmp_path / "nine-leonardo-booster-alltoall.json").read_text())
    lines = [row for rows in spec["datasets"].values() for row in rows if "rule" in row]
    allowed = {row["gpus"]: row["goodput"] for row in lines if row["rule"] == "best"}
    reached = {row["gpus"]: row["goodput"] for row in lines if row["rule"] == "best, with the library's factor"}
    assert reached.keys() == allowed.keys()
    for gpus, goodput in reached.items():
        assert goodput == pytest.approx(0.75 * allowed[gpus], rel=1e-3)
    assert reached[1024] == pytest.approx(75, rel=0.01)


def test_what_the_model_cannot_show_of_figure_10_is_left_out_and_named() -> None:
    most = {one.study.fabric.name: (one.study.curves[-1][0].gpus, one.prose) for one in papers.curves("sc24:10")}
    assert {name: gpus for name, (gpus, _) in most.items()} == {"alps": 256, "lumi-g": 256, "leonardo-booster": 2048}
    assert all(("256 GPUs" in " ".join(prose)) == (gpus == 256) for gpus, prose in most.values())


@pytest.mark.parametrize("placement", ["packed", "interleaved", "random"])
@pytest.mark.parametrize("load", ["alltoall", "all_to_one"])
def test_an_incast_hurts_only_by_the_pessimistic_rule_and_where_switches_are_shared(placement: str, load: str) -> None:
    fabric = of_system(systems.load("leonardo-booster"))
    one = parse_load(f"{load}:128:128KiB")
    layout, (other,) = job_and_loads(fabric, 128, [one], Placement(placement, "", 0))
    for rule in (Rule("minimal"), Rule("third_group")):
        perfect, worst = (
            beside(layout, Request("allreduce", 1 << 30), [(other, one.request)], rule, pessimistic=how)
            for how in (False, True)
        )
        assert perfect.beside == pytest.approx(perfect.alone, rel=0.01)
        assert (worst.beside < 0.5 * worst.alone) == (load == "all_to_one" and placement != "packed")


@pytest.mark.parametrize("name", ["lumi-g", "leonardo-booster", "alps", "frontier", "summit", "dgx-h100-superpod",
                                  "gb200-nvl72-cluster"])  # fmt: skip
def test_described_fabrics_have_a_source_for_every_figure(name: str) -> None:
    fabric = of_system(systems.load(name))
    assert fabric.sources
    assert all(len(source) > 10 for source in fabric.sources.values())
    assert (fabric.kind == "endpoints") == (name == "alps")


def test_described_fabrics_fit_what_their_sources_say() -> None:
    lumi = of_system(systems.load("lumi-g"))
    # 276 TB/s within LUMI-G: all pairs of 24 groups, both ways.
    assert 276 * lumi.pair_links * lumi.link_rate * 2 == pytest.approx(276e12)
    assert lumi.gateways.sum() == 24 * 23 * 20
    assert lumi.gateways.sum(axis=2).max() <= 17  # global ports of a switch
    leonardo = of_system(systems.load("leonardo-booster"))
    assert leonardo.group_nodes.tolist() == [180] * 19 + [36]
    assert leonardo.gateways.sum(axis=2).max() <= 22
    frontier = of_system(systems.load("frontier"))
    taper = (frontier.groups - 1) * frontier.pair_links / (128 * 4)
    assert taper == pytest.approx(0.57, abs=0.01)
    summit = of_system(systems.load("summit"))
    assert summit.up_links * summit.link_rate == pytest.approx(summit.block_nodes * summit.port_rate)
    gb200 = of_system(systems.load("gb200-nvl72-cluster"))
    assert gb200.domain_nodes * gb200.gpus == 72
    assert gb200.domain_rate == pytest.approx(900e9)


def test_network_global_counts_what_joins_groups_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["expect", "lumi-g", "--nodes", "1000", "--pattern", "alltoall", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    basis = next(one["basis"] for one in row["limits"] if one["rule"] == "network_global")
    assert "1.15e+04 GB/s" in basis  # 23 x 20 links of 25 GB/s, not 32 x 17
    simulated = {one["rule"]: one["goodput"] for one in row["simulated"]}
    bound = next(one["value_bytes_per_s"] for one in row["limits"] if one["rule"] == "nic_bundle")
    assert simulated["minimal"] < simulated["best"] <= bound * 1.001


def test_figures_and_pages_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chart, page = tmp_path / "curves.json", tmp_path / "page.html"
    assert run_command(["simulate", "summit", "--pattern", "permutation", "--gpus", "48:768:x4", "--chart", str(chart),
                        "--html", str(page)]) == 0  # fmt: skip
    capsys.readouterr()
    spec = json.loads(chart.read_text())
    drawn = [row for rows in spec["datasets"].values() for row in rows]
    assert {row["rule"] for row in drawn if "rule" in row} == {"static", "best"}
    assert any("low" in row for row in drawn)
    text = page.read_text()
    assert "What binds" in text
    assert "Leiserson" not in text
    assert "Zimmer" in text  # a source of a figure
    assert "https://" not in text.split("<script>")[0]


def test_static_is_a_distribution_over_seeds_below_best(capsys: pytest.CaptureFixture[str]) -> None:
    for pattern in ("alltoall", "permutation"):
        static, best = answers_of(capsys, "summit", "--pattern", pattern, "--gpus", "1536", "--placement", "random")
        low, high = static["quantiles"]
        assert low <= static["goodput"] <= high <= best["goodput"] * (1 + 1e-9)
    again = answers_of(capsys, "summit", "--pattern", "permutation", "--gpus", "1536", "--placement", "random")
    assert again[0]["goodput"] == static["goodput"]


def test_settings_are_read_with_units() -> None:
    assert parse_setting("port_rate=400 Gb/s") == ("port_rate", 50e9)
    assert parse_setting("same_switch_latency=2us") == ("same_switch_latency", 2000.0)
    assert str(Rule("mixed", 0.25)) == "mixed:0.25"
