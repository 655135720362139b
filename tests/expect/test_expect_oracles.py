"""Independent oracles: trees listed one by one, cuts counted one by one, scaling, relabelling, and the order of
kinds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
import scipy.optimize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import linkgauge.system as systems
from linkgauge.errors import UsageError
from linkgauge.expect import cuts, flows, limits
from linkgauge.expect.graph import Wires, wires
from linkgauge.model.patterns import PATTERNS
from linkgauge.system import Figure, Link, Node, System
from linkgauge.system.shipped import nodes
from thorough import most
from trees import arborescences


def examples(count: int) -> settings:
    """So many examples, however slow the machine is."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


COLLECTIVES = [name for name, info in PATTERNS.items() if info.collective and not info.latency_only]


def machine(
    bundles: Mapping[tuple[int, int], int], count: int, back: Mapping[tuple[int, int], int] | None = None
) -> System:
    """A system of `count` devices with bundles of 1 GB/s links; `back` gives other rates for the way back."""

    def rate(value: float) -> Figure:
        return Figure(value * 1e9, "B/s", "described", "test")

    nodes = tuple(Node(f"d{i}", "device", ordinal=i, routes=True) for i in range(count))
    links = tuple(
        Link(f"d{a}", f"d{b}", "xgmi", data_rate=rate(n), back_rate=rate(back[a, b]) if back else None)
        for (a, b), n in bundles.items()
    )
    return System("test", "test", nodes, links)


@st.composite
def machines(draw: st.DrawFn, most: int = 5, one_rate_both_ways: bool = True) -> System:
    """A joined machine of 2 to `most` devices with bundles of 1 to 4."""
    count = draw(st.integers(2, most))
    pairs = list(itertools.combinations(range(count), 2))
    tree = [(draw(st.integers(0, b - 1)), b) for b in range(1, count)]
    chosen = dict.fromkeys([*tree, *draw(st.lists(st.sampled_from(pairs), max_size=6))])
    bundles = {pair: draw(st.integers(1, 4)) for pair in chosen}
    back = None if one_rate_both_ways else {pair: draw(st.integers(1, 4)) for pair in chosen}
    return machine(bundles, count, back)


def alltoall(graph: Wires, names: Sequence[str]) -> float:
    rate = flows.alltoall(graph, dict.fromkeys(names, 1))
    assert rate is not None
    return rate.bound


def pack(graph: Wires, trees: Sequence[tuple[str, frozenset[tuple[str, str]]]], *, equal_roots: bool) -> float:
    """The linear program over listed trees; with `equal_roots` every root has the same total, which is returned."""
    arcs = list(graph.arcs)
    used = np.array([[arc in tree for _, tree in trees] for arc in arcs], dtype=float)
    room = np.array([graph.arcs[arc] for arc in arcs]) / 1e9
    if not equal_roots:
        done = scipy.optimize.linprog(-np.ones(len(trees)), A_ub=used, b_ub=room, method="highs")
        return -float(done.fun) * 1e9
    roots = list(dict.fromkeys(root for root, _ in trees))
    totals = np.array([[float(r == root) for r, _ in trees] + [-1.0] for root in roots])
    cost = np.zeros(len(trees) + 1)
    cost[-1] = -1
    done = scipy.optimize.linprog(
        cost,
        A_ub=np.hstack([used, np.zeros((len(arcs), 1))]),
        b_ub=room,
        A_eq=totals,
        b_eq=np.zeros(len(roots)),
        method="highs",
    )
    return -float(done.fun) * 1e9


def subsets(names: Sequence[str]) -> Iterator[set[str]]:
    for size in range(1, len(names)):
        for chosen in itertools.combinations(names, size):
            yield set(chosen)


def leaving(graph: Wires, side: set[str]) -> float:
    return sum(rate for (tail, head), rate in graph.arcs.items() if tail in side and head not in side)


def smallest_cut_between(graph: Wires, source: str, target: str) -> float:
    return min(leaving(graph, s) for s in subsets(graph.vertices) if source in s and target not in s)


@examples(most(25, 8))
@given(machines(one_rate_both_ways=False))
def test_cuts_agree_with_all_cuts_counted(system: System) -> None:
    graph = wires(system)
    names = list(graph.devices.values())
    for a, b in itertools.permutations(names, 2):
        assert cuts.max_flow(graph, a, b).value == pytest.approx(smallest_cut_between(graph, a, b))
    weights = dict.fromkeys(names, 1)
    packed = min(leaving(graph, s) / len(s) for s in subsets(names))
    assert cuts.gather_all(graph, weights).value == pytest.approx(packed)
    for root in names:
        scattered = min(leaving(graph, set(names) - s) / len(s) for s in subsets(names) if root not in s)
        assert cuts.scatter(graph, root, weights).value == pytest.approx(scattered)
        broadcast = min(smallest_cut_between(graph, root, v) for v in names if v != root)
        assert cuts.broadcast(graph, root, names).value == pytest.approx(broadcast)
    every = min(smallest_cut_between(graph, a, b) for a, b in itertools.permutations(names, 2))
    assert cuts.smallest_pair_cut(graph, names).value == pytest.approx(every)


@examples(25)
@given(machines(one_rate_both_ways=False))
def test_packings_agree_with_trees_listed(system: System) -> None:
    graph = wires(system)
    names = list(graph.devices.values())
    trees = [(root, tree) for root in names for tree in arborescences(list(graph.arcs), names, root)]
    allgather = pack(graph, trees, equal_roots=True)
    assert cuts.gather_all(graph, dict.fromkeys(names, 1)).value == pytest.approx(allgather)
    for root in names:
        rooted = pack(graph, [tree for tree in trees if tree[0] == root], equal_roots=False)
        assert cuts.broadcast(graph, root, names).value == pytest.approx(rooted)


@examples(15)
@given(machines(most=4, one_rate_both_ways=False))
def test_allreduce_agrees_with_pairs_of_trees_listed(system: System) -> None:
    """A schedule of lambda_v is a packing of reducing trees into v and broadcasting trees out of v, equal in amount."""
    graph = wires(system)
    names, arcs = list(graph.devices.values()), list(graph.arcs)
    out = [(root, tree) for root in names for tree in arborescences(arcs, names, root)]
    turned = [(b, a) for a, b in arcs]
    into = [(root, frozenset((b, a) for a, b in tree)) for root in names for tree in arborescences(turned, names, root)]
    columns = out + into
    used = np.array([[arc in tree for _, tree in columns] for arc in arcs], dtype=float)
    room = np.array([graph.arcs[arc] for arc in arcs]) / 1e9
    equal = np.array(
        [[(r == root) * (1.0 if i < len(out) else -1.0) for i, (r, _) in enumerate(columns)] for root in names]
    )
    cost = np.array([-1.0] * len(out) + [0.0] * len(into))
    done = scipy.optimize.linprog(cost, A_ub=used, b_ub=room, A_eq=equal, b_eq=np.zeros(len(names)), method="highs")
    assert flows.allreduce_trees(graph, names) == pytest.approx(-float(done.fun) * 1e9)


@examples(20)
@given(machines(one_rate_both_ways=False))
def test_concurrent_flow_agrees_with_cuts_and_paths(system: System) -> None:
    """At most every cut over its demand; and equal to the program over all simple paths listed one by one."""
    graph = wires(system)
    names, arcs = list(graph.devices.values()), list(graph.arcs)
    demands = dict.fromkeys(itertools.permutations(names, 2), 1.0)
    found = flows.concurrent(graph, demands)
    assert found is not None
    assert alltoall(graph, names) == pytest.approx(found.bound)
    rate = found.bound
    assert found.reached == rate
    for side in subsets(names):
        assert rate <= leaving(graph, side) / (len(side) * (len(names) - len(side))) * (1 + 1e-9)
    listed = [(pair, path) for pair in demands for path in _simple_paths(arcs, *pair)]
    used = np.array(
        [[arc in list(itertools.pairwise(path)) for _, path in listed] + [0.0] for arc in arcs], dtype=float
    )
    equal = np.array([[float(p == pair) for p, _ in listed] + [-1.0] for pair in demands])
    cost = np.zeros(len(listed) + 1)
    cost[-1] = -1
    room = np.array([graph.arcs[arc] for arc in arcs]) / 1e9
    done = scipy.optimize.linprog(cost, A_ub=used, b_ub=room, A_eq=equal, b_eq=np.zeros(len(demands)), method="highs")
    assert rate == pytest.approx(-float(done.fun) * 1e9)


def _simple_paths(arcs: Sequence[tuple[str, str]], source: str, target: str) -> Iterator[tuple[str, ...]]:
    def go(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if path[-1] == target:
            yield path
            return
        for tail, head in arcs:
            if tail == path[-1] and head not in path:
                yield from go((*path, head))

    yield from go((source,))


def values(system: System, **case: object) -> dict[str, tuple[str, float]]:
    found = limits(system, case)
    return {c.rule: (c.kind, c.value_bytes_per_s) for c in found if c.value_bytes_per_s is not None}


@examples(6)
@given(machines(), st.sampled_from([2, 5]))
def test_scaling_all_links_scales_all_results(system: System, factor: int) -> None:
    def scaled(link: Link) -> Link:
        assert link.data_rate is not None
        return Link(
            link.a, link.b, link.kind, data_rate=Figure(link.data_rate.value * factor, "B/s", "described", "test")
        )

    larger = System("test", "test", system.nodes, tuple(scaled(link) for link in system.links))
    for pattern in COLLECTIVES:
        small, large = values(system, pattern=pattern), values(larger, pattern=pattern)
        assert small.keys() == large.keys()
        for rule in small:
            assert large[rule][1] == pytest.approx(small[rule][1] * factor), (pattern, rule)


@examples(6)
@given(machines(), st.randoms(use_true_random=False))
def test_relabelling_changes_nothing(system: System, chance: random.Random) -> None:
    """The same wires under other names, in another order, with the ranks still on the same devices."""
    order = list(range(len(system.nodes)))
    chance.shuffle(order)
    new = {f"d{i}": f"x{order[i]}" for i in range(len(order))}
    nodes = [Node(new[n.name], "device", ordinal=n.ordinal, routes=True) for n in system.nodes]
    chance.shuffle(nodes)
    links = [Link(new[link.b], new[link.a], link.kind, data_rate=link.data_rate) for link in system.links]
    chance.shuffle(links)
    other = System("test", "test", tuple(nodes), tuple(links))
    for pattern in COLLECTIVES:
        before, after = values(system, pattern=pattern), values(other, pattern=pattern)
        assert before.keys() == after.keys()
        for rule in before:
            assert after[rule][1] == pytest.approx(before[rule][1]), (pattern, rule)


@examples(10)
@given(machines())
def test_what_is_constructive_is_below_every_bound(system: System) -> None:
    for pattern in COLLECTIVES:
        found = values(system, pattern=pattern)
        bounds = [value for kind, value in found.values() if kind == "upper bound"]
        assert bounds
        for rule, (kind, value) in found.items():
            if kind == "achievable schedule":
                assert value <= min(bounds) * (1 + 1e-9), (pattern, rule)


# The largest is slow, and of those that differ in rates alone one will do. One device alone sends nothing to others.
SAME = (
    "hgx-h100",
    "hgx-b",
    "hgx-a100-8-40gb",
    "hgx-a100-4-40gb",
    "dgx-a100",
    "frontier",
    "p100",
    "summitdev",
    "gh200-4",
)
SAME += ("gb200", "gb300-tray", "gb300-nvl72", "mi32", "mi35", "l40s", "rtx-pro", "gaudi2", "gh200-1")
DISTINCT = [n for n in nodes() if not n.startswith(SAME)]


@pytest.mark.parametrize("transport", [None, "ccl", "staging", "mpi"])
def test_one_device_alone_has_limits_of_its_memory(transport: str | None) -> None:
    for pattern in COLLECTIVES:
        if PATTERNS[pattern].why_not(1, 1, 0):
            continue
        found = limits(systems.load("gh200-1"), {"pattern": pattern, "transport": transport})
        assert all((one.value_bytes_per_s or 0.0) > 0 for one in found), pattern


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("transport", most([None, "ccl", "staging", "mpi"], [None, "staging"]))
def test_constructive_values_of_described_systems_are_below_their_bounds(name: str, transport: str | None) -> None:
    system = systems.load(name)
    for pattern in (*COLLECTIVES, "pingpong", "bidirectional", "host_to_device", "local_copy"):
        case: dict[str, object] = {"pattern": pattern, "transport": transport}
        if PATTERNS[pattern].ranks != "any":
            case["devices"] = (0, len(system.devices) - 1)[: 1 if PATTERNS[pattern].ranks == "1" else 2]
        found = [c for c in limits(system, case) if c.value_bytes_per_s is not None]
        bounds = [c.value_bytes_per_s or 0.0 for c in found if c.kind == "upper bound" and c.without is None]
        assert bounds, (pattern, "has no bound")
        for c in found:
            assert c.value_bytes_per_s is not None
            assert c.value_bytes_per_s > 0
            if c.kind in ("achievable schedule", "typical"):
                assert c.value_bytes_per_s <= min(bounds) * (1 + 1e-6), (pattern, c)


@examples(8)
@given(st.integers(2, 5), st.integers(2, 4), st.integers(1, 5))
def test_merging_switch_planes_changes_nothing(devices: int, planes: int, rate: int) -> None:
    """`planes` switches, each with a link from every device: the merged graph against the program on all of them."""
    text = (
        f'name = "s"\nsource = "t"\n[[device]]\nname = "d0..{devices - 1}"\n[[switch]]\nname = "s0..{planes - 1}"\n'
        f'[[link]]\nkind = "nvlink"\ndata_rate = "{rate} GB/s"\nfrom = ["d0..{devices - 1}"]\n'
        f'to = ["s0..{planes - 1}"]\n'
    )
    graph = wires(systems.from_toml(text))
    assert len(graph.vertices) == devices + 1
    arcs = {(f"d{i}", f"s{p}"): rate * 1e9 for i in range(devices) for p in range(planes)}
    arcs |= {(b, a): value for (a, b), value in arcs.items()}
    apart = graph.with_arcs(arcs)
    names = list(graph.devices.values())
    assert alltoall(graph, names) == pytest.approx(alltoall(apart, names))
    assert flows.allreduce_trees(graph, names) == pytest.approx(flows.allreduce_trees(apart, names))
    weights = dict.fromkeys(names, 1)
    assert cuts.gather_all(graph, weights).value == pytest.approx(cuts.gather_all(apart, weights).value)


def test_ranks_that_share_a_device_add_no_wires() -> None:
    """Two ranks on each of two devices: per-pair traffic on the one link is four times one pair's."""
    pair = machine({(0, 1): 1}, 2)
    found = values(pair, pattern="alltoall", devices=(0, 0, 1, 1))
    # (n - 1) m / t with n = 4; each direction carries 4 m.
    assert found["concurrent_flow"][1] == pytest.approx(3 * 1e9 / 4)
    assert found["injection"][1] == pytest.approx(3 * 1e9 / 4)


def test_throughput_of_a_vertex_limits_what_enters_it() -> None:
    text = (
        'name = "s"\nsource = "t"\n[[device]]\nname = "d0..3"\n[[switch]]\nname = "s0"\nthroughput = "2 GB/s"\n'
        '[[link]]\nkind = "nvlink"\ndata_rate = "1 GB/s"\nfrom = ["d0..3"]\nto = ["s0"]\n'
    )
    limited = systems.from_toml(text)
    free = systems.from_toml(text.replace('throughput = "2 GB/s"\n', ""))
    ring = {"pattern": "ring_shift"}
    assert values(free, **ring)["concurrent_flow"][1] == pytest.approx(1e9)
    assert values(limited, **ring)["concurrent_flow"][1] == pytest.approx(0.5e9)
    assert values(limited, pattern="unidirectional", devices=(0, 1))["max_flow"][1] == pytest.approx(1e9)


@examples(12)
@given(st.integers(2, 4), st.lists(st.lists(st.integers(1, 3), min_size=4, max_size=4), min_size=2, max_size=4))
def test_merging_unlike_planes_changes_nothing(devices: int, planes: list[list[int]]) -> None:
    """Planes whose links differ from device to device: merged only where that is exact, so every answer stays."""
    text = f'name = "s"\nsource = "t"\n[[device]]\nname = "d0..{devices - 1}"\n'
    text += f'[[switch]]\nname = "s0..{len(planes) - 1}"\n'
    arcs = {}
    for plane, rates in enumerate(planes):
        for device in range(devices):
            text += f'[[link]]\nkind = "nvlink"\ndata_rate = "{rates[device]} GB/s"\na = "d{device}"\nb = "s{plane}"\n'
            arcs[f"d{device}", f"s{plane}"] = arcs[f"s{plane}", f"d{device}"] = rates[device] * 1e9
    graph = wires(systems.from_toml(text))
    apart = graph.with_arcs(arcs)
    names = list(graph.devices.values())
    assert alltoall(graph, names) == pytest.approx(alltoall(apart, names))
    assert flows.allreduce_trees(graph, names) == pytest.approx(flows.allreduce_trees(apart, names))
    assert cuts.max_flow(graph, "d0", "d1").value == pytest.approx(cuts.max_flow(apart, "d0", "d1").value)


@pytest.mark.parametrize("pattern", ["allreduce", "allgather", "alltoall", "broadcast", "ring_shift"])
def test_groups_are_bounded_by_the_one_that_can_least(pattern: str) -> None:
    """Of every rule the lowest of the groups alone, as the bound of each; no schedule of one alone is promised."""
    system = systems.load("v100-dgx-1")  # not all alike: 0-3 are joined by one and two links, 0 and 5 by none
    devices, groups = [0, 1, 2, 6, 3, 5, 4, 7], 2
    case = {"pattern": pattern, "transport": "ccl", "size": 256 << 20}
    alone = []
    for first in (0, 4):
        found = limits(system, {**case, "devices": devices[first : first + 4]})
        alone.append({c.rule: c.value_bytes_per_s for c in found if c.kind == "upper bound" and c.value_bytes_per_s})
    both = limits(system, {**case, "devices": devices, "groups": groups})
    assert both
    assert {c.kind for c in both} == {"upper bound"}
    rules = set(alone[0]) | set(alone[1])
    assert {c.rule: c.value_bytes_per_s for c in both} == {
        rule: min(one[rule] for one in alone if rule in one) for rule in rules
    }
    assert all("each group alone" in c.basis for c in both)
    with pytest.raises(UsageError, match="8 devices are not 3 equal groups"):
        limits(system, {**case, "devices": devices, "groups": 3})


def test_a_matrix_of_traffic_is_bounded_by_the_port_with_the_most_of_it() -> None:
    """Behind one switch nothing but ports counts: of all rows and columns the one with the most bytes."""
    system, n, port = systems.load("hgx-h200-8"), 8, 450e9

    def bound(pattern: str, distribution: str) -> float:
        case = {"pattern": pattern, "transport": "kernel", "size": 1 << 26, "distribution": distribution}
        return min(c.value_bytes_per_s or 0.0 for c in limits(system, case) if c.rule == "concurrent_flow")

    assert bound("alltoallv", "") == pytest.approx(bound("alltoall", ""), rel=1e-6)
    for exponent in (0.5, 1.0, 2.0):
        weights = [1 / (j + 1) ** exponent for j in range(n)]
        whole = sum(weights) * (n - 1)  # the diagonal is left out of each column
        sums = [(n - 1) * w for w in weights] + [sum(weights) - w for w in weights]
        expected = port * whole / (n * max(sums))
        assert bound("alltoallv", f"zipf:{exponent}") == pytest.approx(expected, rel=1e-4), exponent
    # Every rank of a 2x2x2 torus sends to each of its three neighbors twice.
    assert bound("halo", "2x2x2") == pytest.approx(port, rel=1e-6)
    assert bound("halo", "8:open") == pytest.approx(port, rel=1e-6)
