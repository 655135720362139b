"""What is called reached is reached, and what is called a bound is not passed: tiny systems against all trees listed.

The oracle lists every tree that a schedule may use, out of a device, over all devices and some of the switches that
repeat; a linear program packs them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from linkgauge.expect import flows, limits
from linkgauge.expect.graph import Wires, wires
from linkgauge.system import System, from_toml
from trees import arborescences
from ways_listed import hop_matrix

GB = 1e9
Arc = tuple[str, str]
Tree = tuple[str, Counter[Arc]]


def values(system: System, **case: object) -> dict[str, tuple[str, float]]:
    found = limits(system, case)
    return {c.rule: (c.kind, c.value_bytes_per_s) for c in found if c.value_bytes_per_s is not None}


def listed(graph: Wires, names: Sequence[str], root: str, repeating: frozenset[str] = frozenset()) -> list[Tree]:
    """Every tree out of `root` over all of `names` and some of the vertices that repeat, with the arcs that it uses.

    Its steps are ways through vertices that only pass on, which may lie on several steps, each time with a copy.
    """
    found: dict[frozenset[tuple[Arc, int]], None] = {}
    for size in range(len(repeating) + 1):
        for chosen in itertools.combinations(sorted(repeating), size):
            stations = [*names, *chosen]
            ways = {pair: _ways(graph, *pair, {*names, *repeating}) for pair in itertools.permutations(stations, 2)}
            steps = [pair for pair, found_ways in ways.items() if found_ways]
            for tree in arborescences(steps, stations, root):
                for taken in itertools.product(*(ways[step] for step in tree)):
                    found[frozenset(Counter(itertools.chain(*taken)).items())] = None
    return [(root, Counter(dict(used))) for used in found]


def _ways(graph: Wires, source: str, target: str, stations: set[str]) -> list[tuple[Arc, ...]]:
    found: list[tuple[Arc, ...]] = []
    queue: list[tuple[str, ...]] = [(source,)]
    while queue:
        path = queue.pop()
        for tail, head in graph.arcs:
            if tail == path[-1] and head == target:
                found.append(tuple(itertools.pairwise((*path, head))))
            elif tail == path[-1] and head not in path and head not in stations:
                queue.append((*path, head))
    return found


def pack(
    graph: Wires, out: Sequence[Tree], into: Sequence[Tree] = (), shares: Mapping[str, float] | None = None
) -> float:
    """The most that trees `out` carry in all, each root its share of it, or as much as trees `into` bring there."""
    columns = [*out, *into]
    used = np.array([[float(tree[arc]) for _, tree in columns] + [0.0] for arc in graph.arcs], dtype=float)
    room = np.array(list(graph.arcs.values())) / GB
    rows = [[float(i < len(out)) for i in range(len(columns))] + [-1.0]]
    for root in dict.fromkeys(root for root, _ in columns):
        if shares is not None:
            rows.append([float(r == root and i < len(out)) for i, (r, _) in enumerate(columns)] + [-shares[root]])
        if into:
            signs = [1.0 if i < len(out) else -1.0 for i in range(len(columns))]
            rows.append([(r == root) * sign for (r, _), sign in zip(columns, signs, strict=True)] + [0.0])
    cost = np.zeros(len(columns) + 1)
    cost[-1] = -1
    done = scipy.optimize.linprog(
        cost, A_ub=used, b_ub=room, A_eq=np.array(rows), b_eq=np.zeros(len(rows)), method="highs"
    )
    return -float(done.fun)


def gather(graph: Wires, names: Sequence[str], repeating: frozenset[str] = frozenset()) -> float:
    """An allgather's goodput in GB/s: trees out of every device, the same of each."""
    trees = [tree for root in names for tree in listed(graph, names, root, repeating)]
    return pack(graph, trees, shares=dict.fromkeys(names, 1 / len(names)))


def reduce_and_repeat(graph: Wires, names: Sequence[str], *, in_network: bool = False) -> float:
    """An allreduce's goodput in GB/s: what trees bring to a root, trees take from it to all."""
    nothing: frozenset[str] = frozenset()
    out = [t for v in names for t in listed(graph, names, v, graph.multicast if in_network else nothing)]
    turned = graph.reversed()
    back = [t for v in names for t in listed(turned, names, v, graph.reduction if in_network else nothing)]
    into = [(root, Counter({(b, a): count for (a, b), count in tree.items()})) for root, tree in back]
    return pack(graph, out, into)


def star(count: int, *, rate: str = "25 GB/s", back: str = "", throughput: str = "", host: bool = False) -> System:
    """Devices below one switch that repeats nothing, with PCIe to a host if asked for."""
    text = f'name = "star"\nsource = "made up"\n[[device]]\nname = "d0..{count - 1}"\n[[switch]]\nname = "s"\n'
    text += f'throughput = "{throughput}"\n' if throughput else ""
    text += f'[[link]]\nkind = "nvlink"\ndata_rate = "{rate}"\nfrom = ["d0..{count - 1}"]\nto = ["s"]\n'
    text += f'back_rate = "{back}"\n' if back else ""
    if host:
        text += '[[host]]\nname = "h"\n[[link]]\nkind = "pcie"\ndata_rate = "31.5 GB/s"\n'
        text += f'from = ["d0..{count - 1}"]\nto = ["h"]\n'
    return from_toml(text)


def test_a_switch_with_a_throughput_routes() -> None:
    """Five devices at 25 GB/s behind 60: no copy is faster than its link, and all that is exchanged passes the 60."""
    limited = star(5, throughput="60 GB/s", host=True)
    pair = values(limited, pattern="unidirectional", devices=(0, 1))
    assert pair["max_flow"] == ("upper bound", pytest.approx(25e9))
    assert [value for _, value in pair.values()] == pytest.approx([25e9] * len(pair))
    allreduce = values(limited, pattern="allreduce")
    assert allreduce["allreduce_bytes"] == ("upper bound", pytest.approx(5 * 25e9 / 8))
    # Each of 5 n - 1 = 4 parts arrives by the switch: 60 / 4 of them; an allreduce takes as much again.
    assert allreduce["allreduce_trees"] == ("achievable schedule", pytest.approx(7.5e9))
    assert values(limited, pattern="allgather")["tree_packing"] == ("upper bound", pytest.approx(15e9))
    assert values(limited, pattern="reduce_scatter")["tree_packing"] == ("upper bound", pytest.approx(15e9))
    assert values(limited, pattern="broadcast")["rooted_cut"] == ("upper bound", pytest.approx(15e9))


def test_the_entrance_of_a_switch_is_no_hop() -> None:
    limited, free = star(3, throughput="60 GB/s"), star(3)
    graph = wires(limited)
    assert hop_matrix(graph, range(3)) == [[0, 2, 2], [2, 0, 2], [2, 2, 0]]
    for rule in ("widest_path", "shortest_path"):
        basis = [{c.rule: c.basis for c in limits(s, {"pattern": "unidirectional", "devices": (0, 1)})}[rule]
                 for s in (limited, free)]  # fmt: skip
        assert basis == ["d0 - s - d1 (2 hops)"] * 2
    # 6 flows, 2 out of each device at 25 GB/s, and all 6 through the 60: 10 each, of which goodput counts 2.
    alltoall = values(limited, pattern="alltoall")
    assert alltoall["forwarding_index"][1] == pytest.approx(20e9)
    assert alltoall["concurrent_flow"][1] == pytest.approx(20e9)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    ("back", "throughput"), [("", "30 GB/s"), ("15 GB/s", ""), ("40 GB/s", ""), ("40 GB/s", "50 GB/s"), ("", "")]
)
def test_trees_through_a_switch_that_is_not_balanced(count: int, back: str, throughput: str) -> None:
    """Unlike directions, or a throughput below what enters: cuts alone promise what no trees reach."""
    system = star(count, back=back, throughput=throughput)
    graph = wires(system)
    names = list(graph.devices.values())
    allgather = gather(graph, names)
    scattered = gather(graph.reversed(), names)
    assert values(system, pattern="allgather")["tree_packing"][1] == pytest.approx(allgather * GB)
    assert values(system, pattern="reduce_scatter")["tree_packing"][1] == pytest.approx(scattered * GB)
    allreduce = values(system, pattern="allreduce")
    assert allreduce["reduce_scatter_allgather"][1] == pytest.approx(GB / (1 / allgather + 1 / scattered))
    assert allreduce["allreduce_trees"][1] == pytest.approx(reduce_and_repeat(graph, names) * GB)
    assert allreduce["reduce_scatter_allgather"][1] <= allreduce["allreduce_trees"][1] * (1 + 1e-9)
    for root in range(count):
        rooted = pack(graph, listed(graph, names, names[root]))
        assert values(system, pattern="broadcast", root=root)["rooted_cut"][1] == pytest.approx(rooted * GB)


def test_a_library_whose_switches_repeat_is_bounded_by_cuts_alone() -> None:
    """Of a switch that repeats 60 GB/s may leave many times: 15 would be no bound of what multicast reaches."""
    plain = star(5, throughput="60 GB/s")
    nodes = [dataclasses.replace(n, multicast=True, reduction=True) if n.name == "s" else n for n in plain.nodes]
    able = dataclasses.replace(plain, nodes=tuple(nodes))
    graph = wires(able)
    names = list(graph.devices.values())
    reached = flows.packed_trees(graph, dict.fromkeys(names, 1), repeaters=graph.multicast)
    assert reached is not None
    assert values(able, pattern="allgather", transport="ccl")["tree_packing"] == (
        "upper bound",
        pytest.approx(5 * reached),
    )
    assert 5 * reached == pytest.approx(31.25e9)
    assert values(able, pattern="allgather", transport="kernel")["tree_packing"] == ("upper bound", pytest.approx(15e9))


def test_a_staged_pingpong_goes_both_ways() -> None:
    """10 GB/s there and 40 back: m over half of the round trip is 16, whoever starts."""
    text = 'name = "odd"\nsource = "made up"\n[[device]]\nname = "d0..1"\n[[host]]\nname = "h"\n'
    for name, out, back in (("d0", 10, 40), ("d1", 40, 10)):
        text += f'[[link]]\nkind = "pcie"\ndata_rate = "{out} GB/s"\nback_rate = "{back} GB/s"\na = "{name}"\nb = "h"\n'
    odd = from_toml(text)
    for devices in ((0, 1), (1, 0)):
        found = values(odd, pattern="pingpong", transport="staging", devices=devices)
        assert found["staging_pipelined"] == ("upper bound", pytest.approx(16e9))
        # Store and forward: both legs at 10 there, both at 40 back.
        assert found["staging_legs"] == ("achievable schedule", pytest.approx(8e9))
        found = values(odd, pattern="pingpong", transport="copy_engine", devices=devices)
        for rule in ("max_flow", "widest_path", "shortest_path"):
            assert found[rule][1] == pytest.approx(16e9)
    one_way = values(odd, pattern="unidirectional", transport="staging", devices=(1, 0))
    assert one_way["staging_pipelined"][1] == pytest.approx(40e9)


def test_paths_of_a_pingpong_may_differ_there_and_back() -> None:
    """Widest there by way of d2, back directly: 30 and 12 GB/s."""
    text = 'name = "three"\nsource = "made up"\n[[device]]\nname = "d0..2"\n'
    for a, b, there, back in (("d0", "d1", 10, 12), ("d0", "d2", 30, 5), ("d2", "d1", 30, 5)):
        text += (
            f'[[link]]\nkind = "xgmi"\ndata_rate = "{there} GB/s"\nback_rate = "{back} GB/s"\na = "{a}"\nb = "{b}"\n'
        )
    three = from_toml(text)
    found = {c.rule: c for c in limits(three, {"pattern": "pingpong", "devices": (0, 1)})}
    assert found["widest_path"].value_bytes_per_s == pytest.approx(2e9 / (1 / 30 + 1 / 12))
    assert "d0 - d2 - d1 (2 hops) at 30 GB/s, back d1 - d0 at 12 GB/s" in found["widest_path"].basis
    assert found["shortest_path"].value_bytes_per_s == pytest.approx(2e9 / (1 / 10 + 1 / 12))


@pytest.mark.parametrize("name", ["network", "s<", "plain"])
def test_a_switch_may_be_called_anything(name: str) -> None:
    """Names of vertices that the graph adds are never those of the description."""
    text = 'name = "named"\nsource = "made up"\n[[device]]\nname = "d0..1"\n[[switch]]\nname = "NAME"\n'
    text += '[[switch]]\nname = "s"\nthroughput = "40 GB/s"\n[[nic]]\nname = "n"\nport_rate = "55 GB/s"\n'
    for a, b, rate in (("d0", "NAME", 18), ("d1", "NAME", 73), ("d0", "n", 60), ("d0", "s", 1), ("d1", "s", 1)):
        text += f'[[link]]\nkind = "pcie"\ndata_rate = "{rate} GB/s"\na = "{a}"\nb = "{b}"\n'
    for pattern in ("unidirectional", "bidirectional", "allreduce", "allgather", "alltoall"):
        case: dict[str, Any] = {"pattern": pattern, "transport": "ccl", "devices": (0, 1)}
        found = values(from_toml(text.replace("NAME", name)), **case)
        plain = values(from_toml(text.replace("NAME", "other")), **case)
        assert found == {rule: (kind, pytest.approx(value)) for rule, (kind, value) in plain.items()}
        if pattern == "unidirectional":
            assert found["max_flow"][1] == pytest.approx(19e9)


def test_a_path_takes_one_of_two_equal_switches() -> None:
    """Through PCIe switches a path takes one; the planes of a fabric are one way, over which hardware spreads."""
    text = 'name = "two"\nsource = "made up"\n[[device]]\nname = "d0..1"\n[[switch]]\nname = "s0..1"\n'
    text += '[[link]]\nkind = "KIND"\ndata_rate = "10 GB/s"\nfrom = ["d0..1"]\nto = ["s0..1"]\n'
    case = {"pattern": "unidirectional", "devices": (0, 1)}
    pcie = values(from_toml(text.replace("KIND", "pcie")), **case)
    assert pcie["widest_path"][1] == pcie["shortest_path"][1] == 10e9
    assert pcie["max_flow"][1] == 20e9
    assert values(from_toml(text.replace("KIND", "nvlink")), **case)["widest_path"][1] == 20e9


def butterfly(links: Sequence[str], count: int, switches: str) -> System:
    text = f'name = "butterfly"\nsource = "made up"\n[[device]]\nname = "d0..{count - 1}"\n'
    text += "".join(f'[[switch]]\nname = "{s}"\nmulticast = true\nreduction = true\n' for s in switches)
    text += "".join(f'[[link]]\nkind = "nvlink"\ndata_rate = "1 GB/s"\na = "{a}"\nb = "{b}"\n' for a, b in
                    (link.split("-") for link in links))  # fmt: skip
    return from_toml(text)


@pytest.mark.parametrize(
    "links",
    [
        ["d0-w", "d0-x", "w-d1", "x-d2", "w-y", "x-y", "y-z", "z-d1", "z-d2"],
        ["d0-w", "d1-w", "d1-x", "d2-x", "w-y", "x-y", "y-z", "z-d0", "z-d2"],
    ],
)
def test_switches_that_repeat_do_not_mix(links: list[str]) -> None:
    """On a butterfly codes reach what trees do not; what is called reached is what trees reach."""
    system = butterfly(links, 3, "wxyz")
    graph = wires(system)
    names = list(graph.devices.values())
    expected = reduce_and_repeat(graph, names, in_network=True)
    found = values(system, pattern="allreduce", transport="ccl")
    assert found["allreduce_in_network"] == ("achievable schedule", pytest.approx(expected * GB))
    assert found["allreduce_trees"][1] == pytest.approx(reduce_and_repeat(graph, names) * GB)


@st.composite
def switched(draw: st.DrawFn) -> System:
    """Two or three devices and one or two switches with unlike directions; some repeat or have a throughput."""
    devices, switches = draw(st.integers(2, 3)), draw(st.integers(1, 2))
    rate = st.integers(1, 4)
    text = f'name = "drawn"\nsource = "made up"\n[[device]]\nname = "d0..{devices - 1}"\n'
    for index in range(switches):
        text += f'[[switch]]\nname = "s{index}"\n'
        text += "multicast = true\nreduction = true\n" if draw(st.booleans()) else ""
        text += f'throughput = "{draw(rate)} GB/s"\n' if draw(st.booleans()) else ""
    names = [f"d{index}" for index in range(devices)] + [f"s{index}" for index in range(switches)]
    for a, b in itertools.combinations(names, 2):
        if b == "s0" or draw(st.booleans()):
            text += f'[[link]]\nkind = "nvlink"\ndata_rate = "{draw(rate)} GB/s"\nback_rate = "{draw(rate)} GB/s"\n'
            text += f'a = "{a}"\nb = "{b}"\n'
    return from_toml(text)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(switched())
def test_drawn_systems_agree_with_trees_listed(system: System) -> None:
    graph = wires(system)
    names = list(graph.devices.values())
    assume(sum(len(listed(graph, names, root, graph.multicast)) for root in names) < 2000)
    allgather, scattered = gather(graph, names), gather(graph.reversed(), names)
    assert values(system, pattern="allgather")["tree_packing"][1] == pytest.approx(allgather * GB)
    assert values(system, pattern="reduce_scatter")["tree_packing"][1] == pytest.approx(scattered * GB)
    plain = values(system, pattern="allreduce", transport="kernel")
    assert plain["reduce_scatter_allgather"][1] == pytest.approx(GB / (1 / allgather + 1 / scattered))
    assert plain["allreduce_trees"][1] == pytest.approx(reduce_and_repeat(graph, names) * GB)
    library = values(system, pattern="allreduce", transport="ccl")
    if "allreduce_in_network" in library:
        expected = reduce_and_repeat(graph, names, in_network=True)
        assert library["allreduce_in_network"][1] == pytest.approx(expected * GB)
