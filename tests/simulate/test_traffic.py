"""Stages against the core's own schedules on small counts, and against what each algorithm must move."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from linkgauge.errors import UsageError
from linkgauge.model.rank_bytes import pair_bytes, sent_and_received
from linkgauge.simulate import fabric as fabrics
from linkgauge.simulate.answer import answers, laid_out
from linkgauge.simulate.domains import parents
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import Rule
from linkgauge.simulate.stage import Request, Stage
from linkgauge.simulate.traffic import TRAFFIC, class_terms, stages, zipf

core: Any = importlib.import_module("linkgauge._core")


def layout_of(ranks: int, gpus: int = 1) -> Layout:
    fabric = fabrics.endpoints("nodes", nodes=-(-ranks // gpus), gpus=gpus, ports=gpus, port_rate=1.0)
    return Layout.of(fabric, np.arange(fabric.nodes), ranks)


def table_of(made: list[Stage], n: int) -> NDArray[np.float64]:
    """Bytes of every pair over all stages."""
    table = np.zeros((n, n))
    for stage in made:
        for term in stage.terms:
            table += stage.times * np.outer(term.a, term.b)
        np.add.at(table, (stage.source, stage.target), stage.times * stage.bytes)
    np.fill_diagonal(table, 0.0)
    return table


def listed(pairs: list[tuple[int, int, int]], n: int) -> NDArray[np.float64]:
    table = np.zeros((n, n))
    for source, target, size in pairs:
        table[source, target] += size
    np.fill_diagonal(table, 0.0)
    return table


@pytest.mark.parametrize("n", [2, 3, 5, 8, 12])
@pytest.mark.parametrize(
    ("pattern", "algorithm"),
    [("alltoall", ""), ("allreduce", "rooted"), ("allgather", "direct"), ("reduce_scatter", "direct"),
     ("broadcast", "direct"), ("reduce", "direct"), ("gather", "direct"), ("scatter", "direct"), ("ring_shift", ""),
     ("all_to_one", ""), ("one_to_all", "")],
)  # fmt: skip
def test_pairs_are_those_of_the_measured_schedule(pattern: str, algorithm: str, n: int) -> None:
    size = 960 * n
    root = n - 1 if pattern in ("broadcast", "reduce", "gather", "scatter", "all_to_one", "one_to_all") else 0
    ours = table_of(stages(layout_of(n), Request(pattern, size, algorithm, root=root)), n)
    np.testing.assert_allclose(ours, listed(core.pair_bytes(pattern, n, size, root=root), n))


@pytest.mark.parametrize(
    ("pattern", "distribution"),
    [("alltoallv", "uniform"), ("alltoallv", "blocks:3"), ("alltoallv", "moe:12:2"), ("halo", "3x2x2"),
     ("halo", "12:open"), ("halo", "4x3:all")],
)  # fmt: skip
def test_distributions_are_the_cores(pattern: str, distribution: str) -> None:
    n, size = 12, 1 << 16
    ours = table_of(stages(layout_of(n), Request(pattern, size, "", distribution)), n)
    np.testing.assert_allclose(ours, listed(pair_bytes(pattern, n, size, distribution), n))


def test_zipf_over_many_ranks_is_the_cores_to_a_unit_a_pair() -> None:
    n, size = 80, 1 << 20
    term = zipf(n, size, "1.1")
    ours = np.outer(term.a, term.b)
    np.fill_diagonal(ours, 0.0)
    theirs = listed(pair_bytes("alltoallv", n, size, "zipf:1.1"), n)
    assert np.abs(ours - theirs).max() <= 17
    sent, received = sent_and_received("alltoallv", n, size, "zipf:1.1")
    np.testing.assert_allclose(ours.sum(axis=1), sent, rtol=1e-4)
    np.testing.assert_allclose(ours.sum(axis=0), received, rtol=1e-4)


def test_a_matrix_of_classes_has_the_mean_and_the_ratios_asked_for() -> None:
    n, size = 10, 1000
    table = sum(np.outer(term.a, term.b) for term in class_terms(n, size, "4,1;1,4"))
    assert isinstance(table, np.ndarray)
    np.fill_diagonal(table, 0.0)
    assert table.sum() == pytest.approx(n * (n - 1) * size)
    assert table[0, 1] == pytest.approx(4 * table[0, 9])


def through(made: list[Stage], n: int) -> NDArray[np.float64]:
    """Bytes that leave each node of one GPU."""
    found: NDArray[np.float64] = table_of(made, n).sum(axis=1)
    return found


@pytest.mark.parametrize("n", [2, 3, 4, 8, 16])
def test_rings_send_what_any_ring_must(n: int) -> None:
    m = 1 << 20
    np.testing.assert_allclose(through(stages(layout_of(n), Request("allreduce", m, "ring")), n), 2 * (n - 1) / n * m)
    np.testing.assert_allclose(through(stages(layout_of(n), Request("allgather", m, "ring")), n), (n - 1) / n * m)
    np.testing.assert_allclose(
        through(stages(layout_of(n), Request("allreduce", m, "hierarchical")), n), 2 * (n - 1) / n * m
    )


@pytest.mark.parametrize("n", [2, 4, 8, 64])
def test_halving_and_doubling_move_what_they_must(n: int) -> None:
    m = 1 << 20
    halving = through(stages(layout_of(n), Request("allreduce", m, "halving")), n)
    np.testing.assert_allclose(halving, 2 * (n - 1) / n * m)
    doubling = through(stages(layout_of(n), Request("allreduce", m, "doubling")), n)
    np.testing.assert_allclose(doubling, np.log2(n) * m)


@pytest.mark.parametrize("n", [2, 3, 6, 8, 12])
def test_rounds_of_pairs_are_an_alltoall_and_each_rank_has_one_partner_a_round(n: int) -> None:
    layout = layout_of(n)
    rounds = stages(layout, Request("alltoall", 5, "pairwise"))
    assert len(rounds) == n - 1
    for one in rounds:
        assert sorted(one.source.tolist()) == sorted(one.target.tolist()) == list(range(n))
    np.testing.assert_allclose(table_of(rounds, n), table_of(stages(layout, Request("alltoall", 5)), n))


def test_rounds_take_no_less_than_all_at_once_and_longer_where_pairs_are_unlike() -> None:
    fabric = fabrics.fat_tree(
        nodes=8, gpus=1, ports=1, port_rate=1.0, block_nodes=2, link_rate=1.0, spines=1, up_links=1
    )
    layout = laid_out(fabric, 8, Placement())
    names = ("at_once", "pairwise")
    seconds = {name: answers(layout, Request("alltoall", 3, name), [Rule("best")])[0].seconds for name in names}
    # A switch's uplink has 2 x 6 blocks of 3 bytes at once; by rounds it rests while the two nodes below it exchange.
    assert seconds == pytest.approx({"at_once": 36.0, "pairwise": 36.0 + 3.0})


@pytest.mark.parametrize("n", list(range(2, 40)))
def test_trees_reach_all_from_one_root_and_no_node_has_more_than_two_children(n: int) -> None:
    up = parents(n)
    assert (up == -1).sum() == 1
    assert np.bincount(up[up >= 0]).max() <= 2
    at = np.arange(n)
    for _ in range(2 * n.bit_length()):
        at = np.where(up[at] >= 0, up[at], at)
    assert len(set(at.tolist())) == 1
    # Both trees together: as many bytes as the collective must move, each way.
    table = table_of(stages(layout_of(n), Request("allreduce", 1024, "tree")), n)
    assert table.sum() == pytest.approx(2 * (n - 1) * 1024)
    np.testing.assert_allclose(table, table.T)


def test_a_ring_over_nodes_uses_each_port_of_a_node_alike() -> None:
    layout = layout_of(16, gpus=4)
    (stage,) = stages(layout, Request("allreduce", 1 << 20, "ring"))
    sent = np.zeros(16)
    np.add.at(sent, stage.source, stage.bytes)
    np.testing.assert_allclose(sent, 2 * 15 / 16 * (1 << 20) / 4)


@pytest.mark.parametrize("pattern", ["permutation", "random_pairs", "worst_pairs"])
def test_permutations_send_once_and_receive_once(pattern: str) -> None:
    (stage,) = stages(layout_of(31), Request(pattern, 5, seed=3))
    assert len(set(stage.source.tolist())) == len(stage.source) == len(set(stage.target.tolist()))
    assert (stage.source != stage.target).all()
    again = stages(layout_of(31), Request(pattern, 5, seed=3))[0]
    np.testing.assert_array_equal(stage.target, again.target)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("alltoal", 8), "did you mean"),
        (Request("alltoall", 8, "ring"), "expected one of at_once, pairwise"),
        (Request("alltoallv", 8, "ring"), "leave --algorithm out"),
        (Request("allreduce", 8, "rong"), "expected one of ring"),
        (Request("allreduce", 8, "halving"), "power of two"),
        (Request("alltoallv", 8, "", "classes:1,2"), "square of numbers"),
        (Request("alltoallv", 8, "", "classes:0,0;0,0"), "not all 0"),
        (Request("all_to_one", 8, root=12), "0 to 11"),
    ],
)
def test_what_cannot_be_is_said(request_: Request, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        stages(layout_of(12), request_)


def test_every_pattern_and_algorithm_moves_something() -> None:
    for pattern, by_name in TRAFFIC.items():
        for algorithm in by_name:
            assert table_of(stages(layout_of(16), Request(pattern, 1 << 12, algorithm)), 16).sum() > 0
