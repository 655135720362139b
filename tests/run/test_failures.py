"""What --max-failures leaves out between nodes: what has failed on a node, or between two, and nothing sound."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from linkgauge.model.case import Case
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch
from linkgauge.run.parent.prepared import Pending
from linkgauge.run.parent.reporter import Reporter
from linkgauge.run.parent.statuses import Statuses
from linkgauge.run.parent.time_left import TimeLeft
from linkgauge.run.wire.failures import Failures, least_nodes
from linkgauge.run.wire.spec import CaseEntry
from linkgauge.store.journal import JournalWriter, read_journal
from run.conftest import machine_of
from thorough import most

LIMIT = 3
SIZES = (8, 4096, 1 << 20, 4 << 20)
SETTINGS = LaunchSettings(
    mpi="", env=(), derived_env=(), launcher_args=(), bind="none", threads=False, ranks_per_device=1,
    peer_access=True, devices=(0, 1, 2), thread_level="funneled",
)  # fmt: skip


def case(size: int, nodes: Iterable[int], pattern: str = "unidirectional") -> Case:
    return Case("mpi", pattern, size, size, tuple(nodes), devices_per_node=1)


def cases_of(nodes: int, seed: int) -> list[Case]:
    """Pairs of all nodes and collectives of all of them, as a plan orders them: at random."""
    found = [case(size, pair) for size in SIZES for pair in itertools.permutations(range(nodes), 2)]
    found += [case(size, range(nodes), "allreduce") for size in SIZES]
    random.Random(seed).shuffle(found)
    return found


def measured(
    cases: Iterable[Case], fails: Callable[[Case], bool], named: Callable[[Case], int | None] = lambda _: None
) -> dict[Case, str]:
    """What becomes of each case; `named`: the node of which a failure surely is. Each is asked for as a rank asks."""
    failures, found = Failures(LIMIT), {}
    for one in cases:
        failures = Failures(LIMIT, json.loads(json.dumps(failures.to_plain()))) if failures.to_plain() else failures
        if failures.why_left_out(one) is not None:
            found[one] = "skipped"
            continue
        found[one] = "hung" if fails(one) else "ok"
        failures.note(one, found[one], named(one) if fails(one) else None)
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("nodes", [3, 4, 8])
@pytest.mark.parametrize("name_it", [False, True])
def test_a_node_that_fails_is_left_out_and_all_others_are_measured(seed: int, nodes: int, name_it: bool) -> None:
    bad = seed % nodes
    found = measured(cases_of(nodes, seed), lambda one: bad in one.devices, lambda _: bad if name_it else None)
    assert all(status == "ok" for one, status in found.items() if bad not in one.devices)
    failed = sum(status == "hung" for status in found.values())
    assert failed <= (LIMIT if name_it else 3 * LIMIT)
    assert set(found.values()) == {"ok", "hung", "skipped"}


@pytest.mark.parametrize("seed", range(20))
def test_large_frames_that_two_of_eight_nodes_alone_can_send_cost_what_is_between_them(seed: int) -> None:
    """An MTU of 9000 over a switch of 1500: small messages pass, and each of them is sound with all others."""
    large = {1, 2}
    found = measured(cases_of(8, seed), lambda one: large <= {*one.devices} and one.size > 1500)
    assert all(status == "ok" for one, status in found.items() if not large <= {*one.devices})
    assert sum(status == "hung" for status in found.values()) <= 2 * LIMIT  # of the pair, and of all nodes together


@pytest.mark.parametrize("seed", range(20))
def test_four_of_eight_nodes_with_large_frames_keep_their_sound_pairs(seed: int) -> None:
    large = {0, 2, 5, 7}
    found = measured(cases_of(8, seed), lambda one: len(large & {*one.devices}) > 1 and one.size > 1500)
    lost = [one for one, status in found.items() if status == "skipped" and len(large & {*one.devices}) < 2]
    assert lost == []


@pytest.mark.parametrize("seed", range(20))
def test_a_node_that_is_lost_in_the_middle_costs_twice_the_limit(seed: int) -> None:
    cases = cases_of(8, seed)
    late = {id(one) for one in cases[len(cases) // 2 :]}
    found = measured(cases, lambda one: id(one) in late and 6 in one.devices)
    assert all(status == "ok" for one, status in found.items() if 6 not in one.devices)
    assert sum(status == "hung" for status in found.values()) <= 3 * LIMIT


@pytest.mark.parametrize("nodes", most([2, 4, 8, 40], [2, 4, 8]))
def test_a_transport_that_works_nowhere_costs_few_failures(nodes: int) -> None:
    found = measured(cases_of(nodes, 1), lambda _: True)
    assert sum(status == "hung" for status in found.values()) <= 2 * LIMIT**2 + 1
    assert set(found.values()) == {"hung", "skipped"}


def test_on_one_node_a_transport_is_left_out_after_so_many_failures_and_others_are_not() -> None:
    failures = Failures(LIMIT)
    one = Case("kernel", "pingpong", 8, 8, (0, 1))
    for _ in range(LIMIT):
        assert failures.why_left_out(one) is None
        failures.note(one, "corrupt")
    found = failures.why_left_out(Case("kernel", "allreduce", 8, 8, (0, 1, 2)))
    assert found is not None
    assert (found.nodes, found.count) == ((0,), LIMIT)
    assert failures.why_left_out(Case("mpi", "pingpong", 8, 8, (0, 1))) is None


def test_what_fails_within_a_node_leaves_out_that_node_and_what_is_between_nodes_no_node_alone() -> None:
    failures = Failures(LIMIT)
    within = Case("mpi", "pingpong", 8, 8, (2, 3), devices_per_node=2)
    between = Case("mpi", "pingpong", 8, 8, (0, 2), devices_per_node=2)
    for _ in range(LIMIT):
        failures.note(between, "hung")
    assert failures.why_left_out(between) is not None
    assert failures.why_left_out(within) is None
    for _ in range(LIMIT):
        failures.note(within, "crashed")
    assert failures.why_left_out(within) is not None
    assert failures.why_left_out(Case("mpi", "pingpong", 8, 8, (0, 1), devices_per_node=2)) is None


def test_slow_cases_count_where_a_node_was_silent_alone() -> None:
    failures = Failures(LIMIT)
    pair = case(8, (0, 1))
    for _ in range(LIMIT):
        failures.note(pair, "timeout")
    assert failures.to_plain() == {}
    for _ in range(LIMIT):
        failures.note(pair, "timeout", node=1)
    assert failures.why_left_out(case(8, (1, 2))) is not None
    assert failures.why_left_out(case(8, (0, 2))) is None


def test_the_least_nodes_that_explain_sets_come_worst_first() -> None:
    sets = [frozenset(one) for one in ((0, 1), (1, 2), (1, 3), (4, 5), (4, 6))]
    assert [(node, len(of)) for node, of in least_nodes(sets)] == [(1, 3), (4, 2)]
    drawn = random.Random(1)
    for _ in range(50):
        many = [frozenset(drawn.sample(range(8), 2)) for _ in range(drawn.randrange(1, 12))]
        found = list(least_nodes(many))
        assert sum(len(of) for _, of in found) == len(many)
        counts = Counter(node for node, _ in found)
        assert all(one & counts.keys() for one in many)


def test_what_is_left_out_says_where_it_failed_and_the_rest_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [case(size, pair) for pair in itertools.permutations(range(3), 2) for size in SIZES]
    planned = PlannedLaunch(0, 0, SETTINGS, tuple(pairs))
    one = Pending.of(planned, [CaseEntry(each, 0, index) for index, each in enumerate(pairs)], 7)
    with JournalWriter(tmp_path / "statuses.lgj") as journal:
        statuses = Statuses(journal, Reporter(), TimeLeft(list, machine_of(3)), LIMIT)
        statuses.hosts |= {0: "a", 1: "b", 2: "c"}
        for failed in pairs[:LIMIT]:  # a, b
            statuses.write(one, one.entries.pop((failed.case_key, 0)), "hung", "planted", {})
        statuses.leave_out(one)
        assert all({0, 1} != {*entry.case.devices} for entry in one.entries.values())
        assert len(one.entries) == 4 * len(SIZES)
        for failed in [each for each in pairs if each.devices == (0, 2)][:LIMIT]:
            statuses.write(one, one.entries.pop((failed.case_key, 0)), "crashed", "planted", {}, node=2)
        statuses.leave_out(one)
    assert one.entries == {}
    found = [
        record.header for record in read_journal(tmp_path / "statuses.lgj") if record.header["status"] == "skipped"
    ]
    assert Counter(each["reason"] for each in found) == {
        "skipped after 3 failures of mpi between a, b (--max-failures 3)": 2 * len(SIZES) - LIMIT,
        "skipped after 3 failures of mpi with c (--max-failures 3)": 4 * len(SIZES) - LIMIT,
    }
    assert all(each["evidence"] == {"after_failures": True} for each in found)
    said = capsys.readouterr().err
    assert "linkgauge: the other 13 cases of mpi with c are skipped: 3 have failed" in said
