"""Graphs of up to a thousand devices: what is alike is worked out once, and what is too large is bounded in words."""

from __future__ import annotations

import itertools
import random

import networkx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkgauge.expect import cuts, flows, limits, paths
from linkgauge.expect.alike import alike, alike_but
from linkgauge.expect.graph import Wires, wires
from linkgauge.system import System, from_toml

GB = 1e9


def links(kind: str, ends: str, rate: float) -> str:
    return f'[[link]]\nkind = "{kind}"\ndata_rate = "{rate} GB/s"\n{ends}\n'


def mesh(devices: int) -> System:
    text = f'name = "mesh"\nsource = "made up"\n[[device]]\nname = "g0..{devices - 1}"\n'
    return from_toml(text + links("nvlink", f'mesh = ["g0..{devices - 1}"]', 25))


def fat_tree(leaves: int, per_leaf: int, up: float) -> System:
    """Devices at 50 GB/s below leaf switches, each joined to one spine."""
    text = f'name = "tree"\nsource = "made up"\n[[device]]\nname = "g0..{leaves * per_leaf - 1}"\n'
    text += f'[[switch]]\nname = "leaf0..{leaves - 1}"\n[[switch]]\nname = "spine"\n'
    for leaf in range(leaves):
        first = leaf * per_leaf
        text += links("nvlink", f'from = ["g{first}..{first + per_leaf - 1}"]\nto = ["leaf{leaf}"]', 50)
    return from_toml(text + links("nvlink", f'from = ["leaf0..{leaves - 1}"]\nto = ["spine"]', up))


def drawn(devices: int, seed: int) -> System:
    """A ring with chords, no two links of one rate in one direction: nothing is alike."""
    chance = random.Random(seed)
    rates = iter(chance.sample(range(10, 10_000), 8 * devices))
    text = f'name = "drawn"\nsource = "made up"\n[[device]]\nname = "g0..{devices - 1}"\n'
    pairs = {(a, (a + 1) % devices) for a in range(devices)}
    pairs |= {tuple(sorted(chance.sample(range(devices), 2))) for _ in range(devices // 2)}
    for a, b in sorted({tuple(sorted(pair)) for pair in pairs}):
        text += links("nvlink", f'back_rate = "{next(rates)} GB/s"\na = "g{a}"\nb = "g{b}"', next(rates))
    return from_toml(text)


def values(system: System, pattern: str) -> dict[str, float]:
    return {c.rule: (c.value_bytes_per_s or 0.0) / GB for c in limits(system, {"pattern": pattern})}


def test_a_mesh_of_64_by_hand() -> None:
    system, ports = mesh(64), 63 * 25
    assert values(system, "alltoall") == pytest.approx(
        dict.fromkeys(("concurrent_flow", "injection", "forwarding_index", "sc24_forwarding_index"), ports)
    )
    allgather = values(system, "allgather")
    assert allgather == pytest.approx({"tree_packing": 64 * 25, "ring_in_order": 64 / 63 * (25 + 62 * 12.5)})
    allreduce = values(system, "allreduce")
    assert allreduce["allreduce_bytes"] == pytest.approx(64 * ports / (2 * 63))
    for rule in ("allreduce_trees", "reduce_scatter_allgather"):
        assert allreduce[rule] == pytest.approx(allreduce["allreduce_bytes"])
    assert values(system, "broadcast") == pytest.approx({"rooted_cut": ports})


def test_a_tree_of_256_by_hand() -> None:
    """16 leaves of 16 devices at 50 GB/s with 400 of 800 going up: 240 x 16 of the messages of a leaf leave it."""
    system = fat_tree(16, 16, 400)
    alltoall = values(system, "alltoall")
    assert alltoall["concurrent_flow"] == pytest.approx(255 * 400 / (16 * 240))
    assert alltoall["forwarding_index"] == pytest.approx(alltoall["concurrent_flow"])
    assert values(system, "ring_shift")["concurrent_flow"] == pytest.approx(50)
    assert values(system, "allreduce")["allreduce_trees"] == pytest.approx(256 * 50 / (2 * 255))


def test_a_thousand_devices_that_are_alike_take_few_variables() -> None:
    graph = wires(fat_tree(32, 32, 800))
    names = tuple(graph.devices.values())
    like = alike(graph, names, dict.fromkeys(names, 1))
    (flow,) = like.flows
    assert flow.count == 1024
    # The source, its leaf, the others there, the spine, the other leaves and their devices: 5 links, both ways.
    assert len(flow.sizes) == 6
    assert len(flow.groups) == 10
    assert len(like.arcs) == 4
    smaller = wires(fat_tree(8, 8, 800))
    names = tuple(smaller.devices.values())
    ring = dict.fromkeys(zip(names, (*names[1:], names[0]), strict=True), 1.0)
    assert [flow.count for flow in flows.of_demands(smaller, ring)[0].flows] == [8] * 8


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(4, 9), st.integers(0, 10_000))
def test_what_is_not_solved_is_bounded_from_both_sides(devices: int, seed: int) -> None:
    system = drawn(devices, seed)
    case = {"pattern": "alltoall"}
    best = {c.rule: c.value_bytes_per_s or 0.0 for c in limits(system, case)}["concurrent_flow"]
    ring = {c.rule: c for c in limits(system, {"pattern": "allgather"})}["ring_in_order"].value_bytes_per_s or 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flows, "MOST_OF_FLOWS", 8)
        patch.setattr(flows, "MOST_OF_TREES", 8)
        again = from_toml_like(system)
        graph = wires(again)
        names = tuple(graph.devices.values())
        rate = flows.alltoall(graph, dict.fromkeys(names, 1))
        assert rate is not None
        assert rate.reached * (devices - 1) <= best * (1 + 1e-9)
        assert rate.bound * (devices - 1) >= best * (1 - 1e-9)
        (found,) = (c for c in limits(again, case) if c.rule == "concurrent_flow" and c.kind == "upper bound")
        assert "links that" in found.basis
        assert "variables is not solved" in found.basis
        allgather = {c.rule: c for c in limits(again, {"pattern": "allgather"})}
        assert (allgather["ring_in_order"].value_bytes_per_s or 0.0) <= ring * (1 + 1e-9)
        allreduce = {c.rule: c for c in limits(again, {"pattern": "allreduce"})}
        phases = allreduce["reduce_scatter_allgather"].value_bytes_per_s
        if phases != pytest.approx(allreduce["allreduce_bytes"].value_bytes_per_s):
            assert "is not solved" in allreduce["allreduce_trees"].basis
        assert allreduce["allreduce_trees"].value_bytes_per_s == phases


def from_toml_like(system: System) -> System:
    """The same system, of which nothing has been worked out."""
    return System(system.name, system.title, system.nodes, system.links)


def apart(graph: Wires, names: tuple[str, ...]) -> np.ndarray:
    """A number of its own for each vertex in each flow, so that nothing is alike."""
    return np.arange(1.0, len(names) * len(graph.vertices) + 1).reshape(len(names), -1)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from([20, 50, 75, 200]))
def test_one_of_each_class_gives_what_all_give(leaves: int, per_leaf: int, up: int) -> None:
    graph = wires(fat_tree(leaves + 1, per_leaf, up))
    names = tuple(graph.devices.values())
    whole = alike_but(graph, names, apart(graph, names))
    assert len(list(whole.flows)) == len(names)
    wanted = paths.exchanged(graph, dict.fromkeys(names, 1))
    every, once = flows._concurrent(graph, whole, wanted), flows.alltoall(graph, dict.fromkeys(names, 1))
    assert every is not None
    assert once is not None
    assert once.bound == pytest.approx(every.bound)


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_cuts_of_32_bits_are_those_of_any(chance: random.Random) -> None:
    count = chance.randint(2, 7)
    arcs: dict[tuple[int, int], int | None] = {
        pair: None if chance.random() < 0.1 else chance.randint(0, 9)
        for pair in itertools.permutations(range(count), 2)
        if chance.random() < 0.6
    }
    value, side = cuts._minimum_cut(arcs, 0, 1)
    graph = networkx.DiGraph([(0, 0)])
    graph.add_nodes_from(range(count))
    for (a, b), rate in arcs.items():
        graph.add_edge(a, b, **({} if rate is None else {"capacity": rate}))
    try:
        expected = networkx.minimum_cut_value(graph, 0, 1)
    except networkx.NetworkXUnbounded:
        assert value is None
        return
    assert value == expected
    longer = cuts._minimum_cut({a: r if r is None else r << 40 for a, r in arcs.items()}, 0, 1)
    assert longer == (expected << 40, side)
    assert 0 in side
    assert 1 not in side
    assert sum(rate or 0 for (a, b), rate in arcs.items() if a in side and b not in side) == expected
