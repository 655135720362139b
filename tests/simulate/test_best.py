"""Rule `best`: no other rule does better, more links never make it worse, and a plain program of all flows agrees."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import lil_matrix

from linkgauge.simulate import best as best_rule
from linkgauge.simulate import fabric as fabrics
from linkgauge.simulate.answer import answers, laid_out
from linkgauge.simulate.demand import Demand, demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import Rule, end_links, fabric_links, time_of
from linkgauge.simulate.stage import Request
from linkgauge.simulate.study import one_more
from simulate.small_fabrics import drawn, jobs_of
from thorough import most, thorough


def asked_of(seed: int) -> tuple[Fabric, Demand, float, Any]:
    _, made, r = drawn(seed)
    layout, stage = jobs_of(made, r, most=1)[0]
    asked = demand(layout, stage)
    return made, asked, time_of(end_links(layout, asked)[:2]), (layout, stage)


def dragonflies(count: int) -> list[int]:
    return [
        seed for seed in range(3 * count) if drawn(seed)[1].kind != "fat_tree" and jobs_of(*drawn(seed)[1:], most=1)
    ]


def test_no_rule_that_spreads_does_better_and_what_is_found_is_no_better_than_the_bound() -> None:
    closed = 0
    seeds = dragonflies(most(150, 50))
    for seed in seeds:
        made, asked, floor, _ = asked_of(seed)
        found = best_rule.best(made, asked, floor)
        for rule in (Rule("minimal"), Rule("third_group"), Rule("mixed", 0.5)):
            assert found.seconds <= max(floor, time_of(fabric_links(made, asked, rule))) * (1 + 1e-6), (seed, rule)
        assert found.reached >= found.seconds * (1 - 1e-9)
        assert found.reached == pytest.approx(max([floor, *(one.longest for one in found.links)]), rel=1e-6)
        closed += found.reached <= found.seconds * 1.005
    assert closed > 0.5 * len(seeds)


@settings(max_examples=most(120, 40), deadline=None)
@given(st.integers(0, 900))
def test_a_link_more_never_lowers_it(seed: int) -> None:
    _, made, r = drawn(seed)
    jobs = jobs_of(made, r, most=1)
    if made.kind == "fat_tree" or not jobs:
        return
    asked = demand(*jobs[0])
    floor = time_of(end_links(jobs[0][0], asked)[:2])
    before = best_rule.best(made, asked, floor).seconds
    for change, grown in one_more(made):
        later = demand(dataclasses.replace(jobs[0][0], fabric=grown), jobs[0][1])
        ends = time_of(end_links(dataclasses.replace(jobs[0][0], fabric=grown), later)[:2])
        assert best_rule.best(grown, later, ends).seconds <= before * (1 + 2e-3), change


def ideal(wanted: np.ndarray) -> float:  # type: ignore[type-arg]
    """The least time until all bundles are through, by the plain program with every way; seconds of a bundle."""
    g = len(wanted)
    pairs = [(i, j) for i, j in itertools.permutations(range(g), 2) if wanted[i, j] > 0]
    ways = [(i, k, j) for i, j in pairs for k in range(g) if k not in (i, j)]
    ways += [(i, -1, j) for i, j in pairs]
    arcs = {pair: number for number, pair in enumerate(itertools.permutations(range(g), 2))}
    upper, equal = lil_matrix((len(arcs), len(ways) + 1)), lil_matrix((len(pairs), len(ways) + 1))
    place = {pair: number for number, pair in enumerate(pairs)}
    for column, (i, k, j) in enumerate(ways):
        equal[place[i, j], column] = 1
        for arc in [(i, j)] if k < 0 else [(i, k), (k, j)]:
            upper[arcs[arc], column] = 1
    upper[:, len(ways)] = -1
    cost = np.zeros(len(ways) + 1)
    cost[-1] = 1
    solved = linprog(cost, A_ub=upper.tocsr(), b_ub=np.zeros(len(arcs)), A_eq=equal.tocsr(),
                     b_eq=[wanted[pair] for pair in pairs])  # fmt: skip
    assert solved.status == 0
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(most(24, 8)))
def test_the_division_between_groups_is_the_plain_programs(seed: int) -> None:
    r = np.random.default_rng(seed)
    g = int(r.integers(3, 9))
    wanted = r.uniform(0, 1, (g, g)) ** 3
    if seed % 2:
        wanted = np.outer(*2 * [r.integers(1, 3, g).astype(float)])  # groups of two kinds: by class
    if seed % 5 == 0:
        wanted *= r.random((g, g)) < 0.3
    np.fill_diagonal(wanted, 0)
    if not wanted.any():
        return
    found = best_rule._between(wanted, 0.0)
    assert found.bound <= found.seconds * (1 + 1e-6)
    assert found.seconds == pytest.approx(ideal(wanted), rel=1.5e-3)
    # What is divided is what was asked for.
    sent = found.straight.copy()
    np.add.at(sent, (found.source, found.target), found.amount)
    np.testing.assert_allclose(sent, wanted, atol=1e-6 * wanted.max())


def test_two_packed_groups_are_relieved_by_third_ones() -> None:
    """Two full groups exchange all they have: straight, over one bundle; at best over all of them."""
    made = fabrics.dragonfly(
        groups=10, nodes_per_group=16, gpus=1, ports=1, port_rate=1.0, switches=4, block_nodes=4, link_rate=1.0,
        pair_links=4, local_links=100.0,
    )  # fmt: skip
    layout = laid_out(made, 32, Placement())
    straight, best = answers(layout, Request("worst_pairs", 36), [Rule("minimal"), Rule("best")])
    assert straight.seconds == pytest.approx(16 * 36 / 4)
    # 16 sources at rate 1 over nine bundles of 4: ports bind.
    assert best.seconds == pytest.approx(36)
    assert best.reached == pytest.approx(best.goodput, rel=5e-3)


@thorough("placements of few groups are solved below")
def test_random_placements_of_many_groups_are_solved() -> None:
    made = fabrics.dragonfly(
        groups=24, nodes_per_group=16, gpus=4, ports=4, port_rate=25e9, switches=8, block_nodes=8, homes=4,
        link_rate=25e9, pair_links=1,
    )  # fmt: skip
    for name in ("random", "shuffled"):
        layout = laid_out(made, 1200, Placement(name, "", random.Random(1).randint(0, 99)))
        for pattern in ("alltoall", "permutation"):
            found = answers(layout, Request(pattern, 1 << 20), [Rule("minimal"), Rule("third_group"), Rule("best")])
            assert found[2].goodput >= max(found[0].goodput, found[1].goodput) * (1 - 1e-6)
            assert found[2].reached is not None
            assert found[2].reached >= max(found[0].goodput, found[1].goodput) * (1 - 1e-6)
