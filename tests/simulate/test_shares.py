"""Finish times of jobs on small fabrics against a solver of each flow, and what any fair share must hold to."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, vstack

from linkgauge.simulate import beside, fair
from linkgauge.simulate.crossing import Sharer, crossing
from linkgauge.simulate.demand import demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.routes import Rule, end_links, fabric_links, time_of
from linkgauge.simulate.stage import Request
from linkgauge.simulate.traffic import stages
from simulate.per_flow import finish_times
from simulate.small_fabrics import drawn, flows_of, jobs_of
from thorough import most

FABRICS = most(300, 100)


def rule_of(made: Fabric, r: random.Random) -> tuple[Rule, float]:
    """A rule that spreads evenly, and the part that goes straight by it."""
    if made.kind == "fat_tree":
        return Rule("best"), 1.0
    return r.choice([(Rule("minimal"), 1.0), (Rule("third_group"), 0.0), (Rule("mixed", 0.4), 0.4)])


def test_jobs_end_when_the_solver_of_each_flow_says() -> None:
    seen = {"dragonfly": 0, "dragonfly+": 0, "fat_tree": 0, "two jobs": 0}
    for seed in range(FABRICS):
        small, made, r = drawn(seed)
        jobs = jobs_of(made, r)
        flows = flows_of(small, jobs)
        if not flows:
            continue
        rule, direct = rule_of(made, r)
        wanted = finish_times(small, flows, direct)
        table = crossing(made, [Sharer(layout, stage) for layout, stage in jobs], rule)
        ends = fair.play(table.classes).ends
        for job, seconds in wanted.items():
            assert ends[table.job == job].max() == pytest.approx(seconds, rel=1e-6), (seed, rule)
        if len(jobs) == 1:
            # Flows of equal bytes: the fullest link alone says it, without any shares.
            asked = demand(*jobs[0])
            ports = end_links(jobs[0][0], asked)[:2]
            fullest = time_of([*ports, *fabric_links(made, asked, rule)])
            assert fullest == pytest.approx(wanted[0], rel=1e-6), (seed, rule)
        seen[made.kind] += 1
        seen["two jobs"] += len(wanted) == 2
    assert min(seen.values()) >= most(30, 10), seen


def test_paced_jobs_are_within_a_stated_bound_of_each_flows_share() -> None:
    """docs/explanation/fair-shares.md says how far a job's pace, as slow as its slowest flow, is from its flows."""
    ratios = []
    for seed in range(FABRICS):
        small, made, r = drawn(seed)
        jobs = jobs_of(made, r)
        if len(jobs) < 2 or not flows_of(small, jobs[:1]) or not flows_of(small, jobs[1:]):
            continue
        rule, _ = rule_of(made, r)
        table = crossing(made, [Sharer(*jobs[0]), Sharer(*jobs[1], endless=True)], rule)
        by_flow = fair.play(table.classes).ends[table.job == 0].max()
        asked = demand(*jobs[0])
        free = time_of([*end_links(jobs[0][0], asked)[:2], *fabric_links(made, asked, rule)])
        paced = free / beside._pace(made, jobs, rule)[0]
        ratios.append(paced / by_flow)
    assert len(ratios) >= most(60, 20)
    low, middle, high = np.quantile(ratios, (0.05, 0.5, 0.95))
    assert middle == pytest.approx(1.0, abs=0.005)
    assert low > 0.95, low
    assert high < 1.05, high


def classes_of(data: st.DataObject) -> fair.Classes:
    flows, links = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 8))
    part = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0])
    rows = data.draw(st.lists(st.lists(part, min_size=links, max_size=links), min_size=flows, max_size=flows))
    table = np.array(rows)
    table[table.sum(axis=1) == 0, 0] = 1.0
    counts = data.draw(st.lists(st.integers(1, 50), min_size=flows, max_size=flows))
    rates = data.draw(st.lists(st.floats(0.1, 1e3), min_size=links, max_size=links))
    sizes = data.draw(st.lists(st.floats(1.0, 100.0), min_size=flows, max_size=flows))
    return fair.Classes(csr_matrix(table), np.array(counts, float), np.array(sizes), np.array(rates))


@settings(max_examples=most(400, 120), deadline=None)
@given(st.data())
def test_no_link_carries_more_than_it_can_and_each_flow_has_a_full_link_where_none_is_faster(
    data: st.DataObject,
) -> None:
    classes = classes_of(data)
    rates = fair.max_min(classes)
    table = classes.uses.toarray()
    carried = table.T @ (classes.count * rates)
    assert (carried <= classes.capacity * (1 + 1e-6)).all()
    full = carried >= classes.capacity * (1 - 1e-6)
    for flow in range(len(rates)):
        on = full & (table[flow] > 0)
        assert any(rates[flow] >= rates[table[:, link] > 0].max() * (1 - 1e-6) for link in np.flatnonzero(on)), flow


@settings(max_examples=most(200, 60), deadline=None)
@given(st.data())
def test_a_class_cut_into_halves_changes_nothing(data: st.DataObject) -> None:
    classes = classes_of(data)
    whole = fair.play(classes)
    halves = fair.Classes(
        vstack([classes.uses, classes.uses]).tocsr(),
        np.concatenate([classes.count, classes.count]) / 2,
        np.concatenate([classes.bytes, classes.bytes]),
        classes.capacity,
    )
    cut = fair.play(halves)
    n = len(whole.ends)
    np.testing.assert_allclose(cut.ends[:n], whole.ends, rtol=1e-6)
    np.testing.assert_allclose(cut.ends[n:], whole.ends, rtol=1e-6)


def test_alike_jobs_in_alike_places_have_alike_shares() -> None:
    from linkgauge.simulate import fabric as fabrics

    made = fabrics.dragonfly(
        groups=4, nodes_per_group=4, gpus=2, ports=2, port_rate=2.0, switches=4, block_nodes=2, homes=2, link_rate=1.0,
        pair_links=2,
    )  # fmt: skip
    # Each job has a node of each block of two in every group, so that they differ in nothing.
    layouts = [Layout.of(made, np.arange(16)[job::2], 16) for job in (0, 1)]
    request = Request("alltoall", 1 << 20)
    for rule in (Rule("minimal"), Rule("third_group"), Rule("mixed", 0.3)):
        table = crossing(made, [Sharer(layout, stages(layout, request)[0]) for layout in layouts], rule)
        ends = fair.play(table.classes).ends
        assert ends[table.job == 0].max() == pytest.approx(ends[table.job == 1].max(), rel=1e-9)
        shares = [beside.beside(layouts[job], request, [(layouts[1 - job], request)], rule).beside for job in (0, 1)]
        assert shares[0] == pytest.approx(shares[1], rel=1e-6)


def test_an_overfull_port_holds_back_what_shares_its_links_and_nothing_else() -> None:
    from linkgauge.simulate import fabric as fabrics

    made = fabrics.fat_tree(nodes=8, gpus=1, ports=1, port_rate=1.0, block_nodes=2, link_rate=1.0, spines=2, up_links=4)
    victim = Layout.of(made, np.array([0, 2]), 2)
    beside_it = Layout.of(made, np.array([1, 3, 4, 6]), 4)  # on the victim's leaves
    apart = Layout.of(made, np.array([4, 5, 6, 7]), 4)
    ring, incast = Request("ring_shift", 100), Request("all_to_one", 100)
    rule = Rule("best")
    for load, pessimistic, share in ((beside_it, False, 1.0), (beside_it, True, 1 / 3), (apart, True, 1.0)):
        found = beside.beside(victim, ring, [(load, incast)], rule, pessimistic=pessimistic)
        assert found.alone == pytest.approx(1.0)
        assert found.beside == pytest.approx(share, rel=1e-6), (pessimistic, share)
    # A balanced alltoall fills its ports and holds nobody back.
    balanced = beside.beside(victim, ring, [(beside_it, Request("alltoall", 100))], rule, pessimistic=True)
    assert balanced.beside == pytest.approx(1.0)


def test_links_are_shared_by_the_number_of_flows() -> None:
    uses = csr_matrix(np.ones((2, 1)))
    classes = fair.Classes(uses, np.array([1.0, 3.0]), np.array([8.0, 8.0]), np.array([4.0]))
    np.testing.assert_allclose(fair.max_min(classes), [1.0, 1.0])
    later = dataclasses.replace(classes, bytes=np.array([8.0, 2.0]))
    # Three flows of 2 end after 2; the one that is left has 6 to go, at 4.
    np.testing.assert_allclose(fair.play(later).ends, [3.5, 2.0])
