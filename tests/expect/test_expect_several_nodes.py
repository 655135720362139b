"""A run over several nodes is held to the network between them, or to nothing: never to the links of one of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import linkgauge
from linkgauge.app.cli import run_command
from linkgauge.findings.read import facts_of
from linkgauge.judge.siblings import check_limits
from linkgauge.judge.subjects import load_subjects
from linkgauge.stats.launches import Places, launch_devices, nodes_of
from linkgauge.system.catalog import load
from linkgauge.system.dump import to_data
from linkgauge.view.limits import Limits
from linkgauge.view.report import report_html
from linkgauge.view.results import Results
from results import launches_of
from synthetic import make_case, make_run

LARGE = 1 << 28
INSIDE, BETWEEN = (0, 1), (1, 2)
NO_NETWORK = "whose ranks lie on several nodes: hgx-h200-4 describes no network between nodes"
CASES = [
    *(
        make_case(t, "unidirectional", LARGE, pair)
        for t in ("mpi", "kernel")
        for pair in itertools.permutations(range(4), 2)
    ),
    make_case("ccl", "allreduce", LARGE),
    make_case("ccl", "alltoall", LARGE, INSIDE),
    make_case("kernel", "host_to_device", LARGE, (3,), source_memory="pinned"),
]


def run_on(path: Path, system: str, hosts: str = "aabb") -> Any:
    info = {"system": to_data(load(system))}
    return linkgauge.load(make_run(path, cases=CASES, samples=30, info=info, hosts=[f"n{host}" for host in hosts]))


def lies_inside(devices: Any, hosts: str = "aabb") -> bool:
    return len({hosts[device] for device in devices}) == 1


@pytest.fixture
def without(tmp_path: Path) -> Any:
    """A run over two nodes of a system that says nothing of a network."""
    return run_on(tmp_path / "without", "hgx-h200-4")


@pytest.fixture
def within(tmp_path: Path) -> Any:
    """A run over two nodes of a system whose network is described."""
    return run_on(tmp_path / "within", "leonardo-booster")


def test_only_cases_inside_a_node_are_held_to_its_links(without: Any, tmp_path: Path) -> None:
    one = run_on(tmp_path / "one", "hgx-h200-4", "aaaa")
    alone, several = Limits(one), Limits(without)
    known = {row.case_key: alone.of(row) for row in Results(one).rows}
    assert all(known.values())
    for row in Results(without).rows:
        # Ports are of pairs inside a node only, so those alone may be achieved.
        of_rules = [line for line in known[row.case_key] if line.kind != "measured"]
        expected = of_rules if lies_inside(row.devices) else []
        assert [line for line in several.of(row) if line.kind != "measured"] == expected, row.devices
        assert several.of(row) or not lies_inside(row.devices)
    assert alone.notes == []


def test_why_there_are_none_is_said_once(without: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (note,) = Limits(without).notes
    between = sum(not lies_inside(case.devices) for case in CASES)
    assert note == f"No limits for {between} of {len(CASES)} cases, {NO_NETWORK}."
    assert report_html(without, findings=()).count(NO_NETWORK) == 1
    for command in ("show", "expect"):
        assert run_command([command, str(without.path)]) == 0
        assert " ".join(capsys.readouterr().out.split()).count(NO_NETWORK) == 1


def test_a_described_network_bounds_what_lies_on_several_nodes(within: Any) -> None:
    limits = Limits(within)
    bundle = sum(nic.port_rate.value for nic in load("leonardo-booster").of_kind("nic"))
    for row in Results(within).rows:
        rules = {line.rule: line.goodput_bytes_per_s for line in limits.of(row)}
        if lies_inside(row.devices):
            assert rules
            assert not any(rule.startswith("nic_") for rule in rules)
        else:
            assert rules["nic_bundle"] == pytest.approx(bundle)
            assert "max_flow" not in rules
            assert "port" not in rules
    (both,) = (row for row in Results(within).rows if row.pattern == "allreduce")
    rules = {line.rule: line.goodput_bytes_per_s for line in limits.of(both)}
    assert rules["allreduce_node_bytes"] == pytest.approx(bundle)  # 2 nodes: 2 C / 2
    assert limits.notes == []


def test_expect_says_which_cases_lie_on_how_many_nodes(within: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["expect", str(within.path), "--json"]) == 0
    for group in json.loads(capsys.readouterr().out):
        inside = lies_inside(group["case"]["devices"])
        assert group["case"].get("over_nodes", 1) == (1 if inside else 2)
        assert ("nic_bundle" in {one["rule"] for one in group["limits"]}) == (not inside)


def test_unlike_nodes_have_no_rule(tmp_path: Path) -> None:
    limits = Limits(run := run_on(tmp_path / "run", "leonardo-booster", "aaab"))
    (both,) = (row for row in Results(run).rows if row.pattern == "allreduce")
    assert limits.of(both) == []
    (note,) = limits.notes
    assert "no rule is of nodes with unlike numbers of ranks (1 on 1, 3 on 1)" in note


def test_findings_and_check_hold_a_case_to_its_own_nodes(without: Any, within: Any) -> None:
    for run in (without, within):
        facts = facts_of(run)
        for measure in facts.measures:
            bound = facts.bound(measure)
            if lies_inside(measure.devices):
                assert bound is not None
                assert not bound.rule.startswith("nic_")
            elif run is without:
                assert bound is None
            else:
                assert bound is not None
                assert bound.rule == "nic_bundle"
        (subject,) = load_subjects([run.path])
        judged = [verdict.devices for verdict in check_limits(subject)]
        assert judged
        assert all(lies_inside(devices) for devices in judged)


def ranks(*places: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"rank": r, "host": host, "device_ordinal": ordinal} for r, (host, ordinal) in enumerate(places)]


def test_each_rank_is_where_its_launch_put_it() -> None:
    known = Places(
        launches_of(
            [
                {"launch": 0, "ranks": ranks(("a", 0), ("b", 0), ("a", 1), ("b", 1))},  # two ranks a device, in turn
                {"launch": 1, "ranks": ranks(("a", 2), ("b", 3))},
                {"launch": 2, "ranks": None},
                {"launch": 3, "ranks": ranks(("a", 0), ("b", 0))},
            ]
        )
    )
    assert known.of(0, (0, 1)) == (("a", 0), ("a", 1))
    assert known.of(0, (0, 0)) == (("a", 0), ("b", 0))
    assert known.of(0, (1, 0, 1)) == (("a", 1), ("a", 0), ("b", 1))
    assert nodes_of(known.of(1, (3, 2))) == ("b", "a")
    assert known.of(3, (0, 1)) == (("a", 0), ("b", 0))  # numbered through
    assert known.of(2, (0, 1)) == known.of(-1, (0, 1)) == ()


def test_devices_that_no_two_hosts_have_alike_keep_their_numbers() -> None:
    assert set(launch_devices(launches_of([{"ranks": ranks(("a", 2), ("b", 3))}]))) == {2, 3}
    assert set(launch_devices(launches_of([{"ranks": ranks(("a", 0), ("b", 0))}]))) == {0, 1}
