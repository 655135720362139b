"""Placements: who gets which node, drawn by the seed, and lists of nodes as Slurm writes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.errors import UsageError
from linkgauge.simulate import fabric as fabrics
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.placement import node_numbers, parse_placement, place


def fabric(groups: int = 4, each: int = 8, nodes: int | None = None) -> Fabric:
    return fabrics.dragonfly(
        groups=groups, nodes_per_group=each, nodes=nodes, gpus=4, ports=4, port_rate=1.0, switches=4, block_nodes=2,
        link_rate=1.0, pair_links=2,
    )  # fmt: skip


def groups_of(made: Fabric, nodes: np.ndarray) -> list[int]:  # type: ignore[type-arg]
    return np.bincount(made.group_of(nodes), minlength=made.groups).tolist()


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["packed", "linear", "random", "shuffled", "spread", "interleaved", "over:3"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(0, 5),
)
def test_jobs_get_what_they_ask_for_and_no_node_twice(name: str, counts: list[int], seed: int) -> None:
    made = fabric()
    try:
        found = place(made, counts, parse_placement(name, seed))
    except UsageError:
        assert name == "over:3"
        return
    assert [len(nodes) for nodes in found] == counts
    every = np.concatenate(found)
    assert len(set(every.tolist())) == len(every)
    assert every.min() >= 0
    assert every.max() < made.nodes
    again = place(made, counts, parse_placement(name, seed))
    assert all((a == b).all() for a, b in zip(found, again, strict=True))


def test_each_name_does_what_it_says() -> None:
    made = fabric()
    assert groups_of(made, place(made, [12], parse_placement("packed"))[0]) == [8, 4, 0, 0]
    assert groups_of(made, place(made, [10], parse_placement("spread"))[0]) == [3, 3, 2, 2]
    assert groups_of(made, place(made, [9], parse_placement("groups:4,0,5"))[0]) == [4, 0, 5, 0]
    assert sorted(groups_of(made, place(made, [10], parse_placement("over:2", 7))[0])) == [0, 0, 5, 5]
    first, second = place(made, [3, 2], parse_placement("interleaved"))
    assert first.tolist() == [0, 2, 4]
    assert second.tolist() == [1, 3]
    assert place(made, [2, 2], parse_placement("linear"))[1].tolist() == [2, 3]
    # A packed second job begins in a group of its own.
    assert groups_of(made, place(made, [3, 3], parse_placement("packed"))[1]) == [0, 3, 0, 0]
    drawn = place(made, [20], parse_placement("random", 3))[0]
    assert (np.diff(drawn) > 0).all()
    assert (np.diff(place(made, [20], parse_placement("shuffled", 3))[0]) < 0).any()
    listed = place(made, [3], parse_placement("nodes:n[04-05],n09"))[0]
    assert listed.tolist() == [4, 5, 9]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,7", [0, 1, 2, 3, 7]), ("lrdn[0001-0003,0031],lrdn0040", [1, 2, 3, 31, 40]), ("nid001000", [1000]),
     ("a-b[1]", [1]), ("[2-3]", [2, 3])],
)  # fmt: skip
def test_lists_of_nodes(text: str, numbers: list[int]) -> None:
    assert node_numbers(text) == numbers


@pytest.mark.parametrize(
    ("name", "count", "words"),
    [
        ("packed", 33, "33 nodes requested"),
        ("packd", 1, "did you mean"),
        ("groups:9", 9, "9 nodes of group 0, which has 8"),
        ("groups:1,1", 3, "2 nodes in groups for a job of 3"),
        ("groups:1,x", 3, "whole numbers"),
        ("groups", 3, "expected"),
        ("packed:3", 3, "packed alone"),
        ("over:5", 3, "1 to 4"),
        ("over:1", 9, "8 free nodes"),
        ("nodes:40", 1, "no node 40"),
        ("nodes:1,1", 1, "twice"),
        ("nodes:3-1", 1, "no list of nodes"),
        ("nodes:0-999999999", 1, "more than 2000000"),
        ("nodes:!", 1, "no node"),
        ("nodes:1", 2, "list has 1"),
    ],
)
def test_what_cannot_be_is_said(name: str, count: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        place(fabric(), [count], parse_placement(name))


def test_a_last_group_may_be_smaller() -> None:
    made = fabric(nodes=27)
    assert made.group_nodes.tolist() == [8, 8, 8, 3]
    assert groups_of(made, place(made, [27], parse_placement("spread"))[0]) == [8, 8, 8, 3]


@pytest.mark.parametrize(
    "change",
    [{"groups": 10**9}, {"nodes_per_group": 10**9}, {"nodes_per_group": 9}, {"port_rate": 0.0}, {"link_rate": -1.0},
     {"pair_links": 0}, {"gpus": 6, "ports": 4}, {"groups": 0}, {"homes": 3}, {"rows": 3}, {"block_nodes": 0},
     {"groups": 100_000, "nodes_per_group": 8}],
)  # fmt: skip
def test_fabrics_that_cannot_be_are_refused_in_a_line(change: dict[str, int]) -> None:
    figures = {
        "groups": 4, "nodes_per_group": 8, "gpus": 4, "ports": 4, "port_rate": 1.0, "switches": 4, "block_nodes": 2,
        "link_rate": 1.0, "pair_links": 2, **change,
    }  # fmt: skip
    with pytest.raises(UsageError) as refused:
        fabrics.dragonfly(**figures)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
