"""An alltoall as one product of ranks against the same as listed flows: domains, rails, and tori with single ways."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge import system as systems
from linkgauge.simulate import fabric as fabrics
from linkgauge.simulate import of_system
from linkgauge.simulate.answer import answers, laid_out
from linkgauge.simulate.demand import demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import Rule
from linkgauge.simulate.stage import Request, Stage, Term
from linkgauge.simulate.torus import torus_links
from thorough import most


def as_flows(layout: Layout, term: Term) -> Stage:
    pairs = [(i, j) for i in range(layout.ranks) for j in range(layout.ranks) if i != j]
    source, target = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    return Stage(source=source, target=target, bytes=term.a[source] * term.b[target])


def layouts(data: st.DataObject) -> Layout:
    ports = data.draw(st.sampled_from([1, 2, 4]))
    domain = data.draw(st.sampled_from([1, 2, 3]))
    homes = data.draw(st.sampled_from([1, ports]))
    common = {
        "gpus": ports * data.draw(st.sampled_from([1, 2])), "ports": ports, "port_rate": 1.0, "homes": homes,
        "domain_nodes": domain, "domain_rate": 4.0, "forwarded": data.draw(st.booleans()), "link_rate": 1.0,
    }  # fmt: skip
    kind = data.draw(st.sampled_from(["dragonfly", "dragonfly+", "fat_tree"]))
    made: Fabric
    if kind == "dragonfly":
        made = fabrics.dragonfly(groups=3, nodes_per_group=6, switches=3 * homes, block_nodes=2, pair_links=2,
                                 **common)  # type: ignore[arg-type]  # fmt: skip
    elif kind == "dragonfly+":
        made = fabrics.dragonfly_plus(groups=3, nodes_per_group=6, leaves=3 * homes, spines=2, up_links=2.0,
                                      block_nodes=2, pair_links=2, **common)  # type: ignore[arg-type]  # fmt: skip
    else:
        made = fabrics.fat_tree(nodes=18, pods=3, block_nodes=2, spines=2, up_links=2.0, core_links=1.0,
                                **common)  # type: ignore[arg-type]  # fmt: skip
    count = data.draw(st.integers(1, made.nodes))
    per_node = data.draw(st.integers(1, made.gpus))
    ranks = data.draw(st.integers((count - 1) * per_node + 1, count * per_node))
    nodes = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(made.nodes)[:count]
    return Layout.of(made, nodes.astype(np.int64), max(2, ranks) if count * per_node > 1 else ranks, per_node)


@settings(max_examples=most(300, 100), deadline=None)
@given(st.data())
def test_a_product_asks_for_what_its_flows_ask_for(data: st.DataObject) -> None:
    layout = layouts(data)
    if layout.ranks < 2:
        return
    weights = np.random.default_rng(1).uniform(0.5, 2.0, (2, layout.ranks))
    term = Term(weights[0], weights[1])
    whole, listed = demand(layout, Stage(terms=(term,))), demand(layout, as_flows(layout, term))
    names = ["port_out", "port_in", "out", "into", "local_out", "local_in"]
    if layout.fabric.kind == "dragonfly":
        names.append("local")
    if not layout.fabric.forwarded:  # who hands on to another rail is spread over that rail's GPUs
        names += ["domain_out", "domain_in"]
    for name in names:
        np.testing.assert_allclose(getattr(whole, name), getattr(listed, name), atol=1e-6, err_msg=name)
    assert whole.farthest == listed.farthest


def test_what_stays_in_a_domain_loads_no_port() -> None:
    made = fabrics.fat_tree(nodes=8, gpus=4, ports=4, port_rate=1.0, block_nodes=4, link_rate=1.0, spines=2,
                            up_links=4, domain_nodes=2, domain_rate=10.0)  # fmt: skip
    one = laid_out(made, 8, Placement())
    asked = demand(one, Stage(terms=(Term(np.ones(8), np.ones(8)),)))
    assert not asked.port_out.any()
    np.testing.assert_allclose(asked.domain_out, 7.0)
    assert asked.farthest == "same_domain"


def one_by_one(shape: tuple[int, ...], flows: list[tuple[int, int, float]]) -> dict[tuple[int, ...], float]:
    """Load of each link (axis, way, node...) of a torus, each flow stepped along."""
    loads: dict[tuple[int, ...], float] = defaultdict(float)
    for source, target, size in flows:
        at = list(np.unravel_index(source, shape))
        end = np.unravel_index(target, shape)
        for axis, side in enumerate(shape):
            ahead = int(end[axis] - at[axis]) % side
            back = (side - ahead) % side
            ways = [(1, ahead)] if 0 < ahead < back else [(-1, back)] if 0 < back < ahead else []
            if ahead == back and ahead:
                ways = [(1, ahead), (-1, back)]
            for way, hops in ways:
                step = list(at)
                for _ in range(hops):
                    loads[(axis, way, *map(int, step))] += size / len(ways)
                    step[axis] = (step[axis] + way) % side
            at[axis] = end[axis]
    return loads


@pytest.mark.parametrize("shape", [(4,), (5, 3), (4, 2, 3), (2, 2, 2)])
def test_a_torus_carries_what_its_flows_stepped_along_do(shape: tuple[int, ...]) -> None:
    made = fabrics.torus(shape=shape, gpus=2, port_rate=1.0, link_rate=1.0)
    nodes = np.random.default_rng(3).permutation(made.nodes)[: max(2, made.nodes - 1)].astype(np.int64)
    layout = Layout.of(made, nodes, 2 * len(nodes) - 1)
    weights = np.random.default_rng(4).uniform(0.5, 2.0, (2, layout.ranks))
    term = Term(weights[0], weights[1])
    flows = [
        (int(nodes[i // 2]), int(nodes[j // 2]), float(term.a[i] * term.b[j]))
        for i, j in itertools.permutations(range(layout.ranks), 2)
    ]
    wanted = one_by_one(shape, flows)
    for stage in (Stage(terms=(term,)), as_flows(layout, term)):
        for one in torus_links(layout, stage):
            _, axis, way = one.name.split()
            for place in itertools.product(*map(range, shape)):
                key = (int(axis), 1 if way == "ahead" else -1, *place)
                assert one.load[place] == pytest.approx(wanted.get(key, 0.0), abs=1e-9), key


def test_a_described_torus_and_a_three_level_tree(tmp_path: Path) -> None:
    node = 'name = "here"\nsource = "a test"\n[[device]]\nname = "gpu0..3"\n[[nic]]\nname = "nic0..3"\n' \
        'port_rate = "100 Gb/s"\n[network]\n'  # fmt: skip
    file = tmp_path / "here.toml"
    file.write_text(node + 'topology = "torus"\nside_x = 4\nside_y = 4\nport_rate = "100 Gb/s"\n')
    made = of_system(systems.load(file))
    assert made.shape == (4, 4)
    assert made.port_rate == pytest.approx(50e9)
    (found,) = answers(laid_out(made, 64, Placement()), Request("alltoall", 1 << 20), [Rule("minimal")])
    assert found.bindings[0].name.startswith("torus")
    file.write_text(
        node + 'topology = "fat_tree"\nnodes = 64\nnodes_per_leaf = 4\nswitches_per_node = 4\noversubscription = 2\n'
        'port_rate = "100 Gb/s"\nnodes_per_pod = 16\nspine_switches = 2\ncore_links_per_spine = 2\n'
    )
    made = of_system(systems.load(file))
    assert (made.groups, made.leaves, made.up_links) == (4, 16, 2.0)
    (found,) = answers(laid_out(made, 256, Placement()), Request("worst_pairs", 1 << 20), [Rule("best")])
    # 64 GPUs of a pod share 2 spines' 2 links up each.
    assert found.goodput == pytest.approx(100e9 / 8 * 4 / 64)
    assert found.bindings[0].name == "pod up"
