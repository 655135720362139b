"""What is joined, how near and by which way: every search over wires against ways listed, or counted by matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import linkgauge.system as systems
from linkgauge.expect import paths
from linkgauge.expect.graph import FABRIC, HOST, MACHINE, NODE, Wires, wires
from linkgauge.findings.wiring import Way, Wiring
from linkgauge.system import Figure, Link, Node, System, ancestors, draw
from linkgauge.system.classes import Classes
from linkgauge.system.draft import FoundDevice
from linkgauge.system.model import FABRIC_KINDS, is_fabric
from linkgauge.view.limits import Limits
from thorough import most
from ways_listed import by_matrix, fewest, hops_over, rate_over, ways_from

SCOPES = (FABRIC, NODE, HOST, MACHINE)
Arc = tuple[str, str]


def figure(rate: float | None) -> Figure | None:
    return None if rate is None else Figure(rate * 1e9, "B/s", "described", "test")


@st.composite
def odd_systems(draw: st.DrawFn) -> System:
    """Devices that pass traffic on or not, switches with or without a throughput, hosts and NICs, joined at random."""
    nodes = [Node(f"d{i}", "device", ordinal=i, routes=draw(st.booleans())) for i in range(draw(st.integers(1, 4)))]
    limits = st.sampled_from([None, 1, 2])
    nodes += [
        Node(f"s{i}", "switch", routes=True, throughput=figure(draw(limits))) for i in range(draw(st.integers(0, 2)))
    ]
    nodes += [Node(f"h{i}", "host") for i in range(draw(st.integers(0, 2)))]
    nodes += [Node(f"n{i}", "nic", port_rate=figure(4)) for i in range(draw(st.integers(0, 2)))]
    nodes = draw(st.permutations(nodes))
    links = []
    for _ in range(draw(st.integers(0, 10)) if len(nodes) > 1 else 0):
        a, b = draw(st.permutations(nodes))[:2]
        kind = draw(st.sampled_from(["nvlink", "xgmi", "pcie"]))
        rate, back = draw(st.sampled_from([None, 1, 2, 3])), draw(st.sampled_from([None, 1, 2]))
        links.append(Link(a.name, b.name, kind, data_rate=figure(rate), back_rate=figure(back if rate else None)))
    return System("odd", "odd", tuple(nodes), tuple(links))


def both_ways(links: Iterable[Link]) -> set[Arc]:
    return {arc for link in links for arc in ((link.a, link.b), (link.b, link.a))}


def kinds_of(system: System) -> dict[str, str]:
    return {node.name: node.kind for node in system.nodes}


def expect_paths(graph: Wires, source: str) -> None:
    """Hops, chosen ways, widest rates and loads from one device, against all ways listed."""
    listed = list(ways_from(graph.arcs, source))
    short = fewest(listed, graph.arcs, graph.inner)
    for target in set(graph.vertices) - {source}:
        found, wide = paths.shortest(graph, source, target), paths.widest(graph, source, target)
        if target not in short:
            assert found is None
            assert wide is None
            continue
        assert found == min(short[target])
        rate = max(rate_over(graph.arcs, way) for way in listed if way[-1] == target)
        assert wide is not None
        assert paths.rate_of(graph, wide) == rate
        kept = {arc: r for arc, r in graph.arcs.items() if r >= rate}
        assert wide == min(fewest(ways_from(kept, source), kept, graph.inner)[target])


def expect_loads(graph: Wires, a: str, b: str) -> None:
    """One demand, split evenly over all ways of fewest hops."""
    there = [way for way in ways_from(graph.arcs, a) if way[-1] == b]
    least = min((hops_over(way, graph.inner) for way in there), default=None)
    if least is None:
        with pytest.raises(ValueError, match="no path"):
            paths.loads(graph, {(a, b): 1.0})
        return
    short = [way for way in there if hops_over(way, graph.inner) == least]
    on = {arc: sum(arc in itertools.pairwise(way) for way in short) / len(short) for arc in graph.arcs}
    assert paths.loads(graph, {(a, b): 1.0}) == pytest.approx(on)


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@examples(120)
@given(odd_systems(), st.sampled_from(SCOPES))
def test_paths_agree_with_all_ways_listed(system: System, scope: str) -> None:
    graph = wires(system, scope)
    devices = list(graph.devices.values())
    for source in devices:
        expect_paths(graph, source)
        expect_paths(graph.reversed(), source)
    for a, b in itertools.permutations(devices, 2):
        expect_loads(graph, a, b)
    reached = {a: {way[-1] for way in ways_from(graph.arcs, a)} for a in devices}
    by_hardware = {a: {way[-1] for way in ways_from(graph.arcs, a, graph.routers)} for a in devices}
    for some in itertools.combinations(graph.devices, min(2, len(devices))):
        names = {graph.devices[ordinal] for ordinal in some}
        assert graph.joined(some) == all(names <= reached[name] for name in names)
        assert graph.joined(some, by_hardware=True) == all(names <= by_hardware[name] for name in names)
    inside = {arc for arc in graph.arcs if graph.network not in arc}
    found = graph.reached(devices, around=graph.network)
    assert found - {graph.network} == {way[-1] for a in devices for way in ways_from(inside, a)}


@examples(120)
@given(odd_systems())
def test_what_is_near_agrees_with_all_ways_listed(system: System) -> None:
    kinds, arcs = kinds_of(system), both_ways(system.links)
    off = both_ways(link for link in system.links if not is_fabric(link, kinds))
    forwarding = {name for name, kind in kinds.items() if kind != "device"}
    for source in kinds:
        for kind in set(kinds.values()):
            for over_fabric, some in ((True, ways_from(arcs, source)), (False, ways_from(off, source, forwarding))):
                there = [way for way in some if kinds[way[-1]] == kind and len(way) > 1]
                least = min(map(len, there), default=0)
                found = system.nearest(source, kind, over_fabric=over_fabric)
                assert len(set(found)) == len(found)
                assert set(found) == {way[-1] for way in there if len(way) == least}
    limits = Limits(SimpleNamespace(info={}))  # type: ignore[arg-type]
    limits.system = system
    hops = limits.hops
    names = system.names_by_ordinal
    for a in names:
        ways = list(ways_from(arcs, names[a]))
        for b in names:
            assert hops.get((a, b)) == min((len(way) - 1 for way in ways if way[-1] == names[b]), default=None)


@examples(120)
@given(odd_systems())
def test_the_table_of_links_and_the_parts_of_the_fabric_agree_with_all_ways_listed(system: System) -> None:
    kinds = kinds_of(system)
    fabric = both_ways(link for link in system.links if is_fabric(link, kinds))
    routers = {node.name for node in system.nodes if node.routes}
    hopped = both_ways(link for link in system.links if link.kind in FABRIC_KINDS)
    for a, row in zip(system.devices, draw.matrix(system), strict=True):
        ways = list(ways_from(hopped, a.name, routers))
        for b, cell in zip(system.devices, row, strict=True):
            least = min((len(way) - 1 for way in ways if way[-1] == b.name), default=None)
            if cell.endswith(("hops", "host")):
                assert cell == ("host" if least is None else f"{least} hops")
    classes, names = Classes(system), system.names_by_ordinal
    for count in range(2, len(names) + 1):
        for some in itertools.combinations(names, count):
            whole = {names[ordinal] for ordinal in some} <= {way[-1] for way in ways_from(fabric, names[some[0]])}
            assert classes.scope_of(some) == ("fabric" if whole else "host" if count == 2 else "node")


def wired(wiring: Wiring, fabric: bool) -> tuple[dict[Arc, float], set[str]]:
    """The arcs of one of a wiring's graphs, unknown rates infinite, in the order of links; and what passes traffic."""
    names = [node.name for node in wiring.system.nodes]
    arcs = {arc: wiring.rate(arc, fabric) for arc in itertools.permutations(names, 2) if wiring.links(arc, fabric)}
    nodes = {node.name: node for node in wiring.system.nodes}
    passing = {name for name, n in nodes.items() if n.kind == "switch" or (n.routes if fabric else n.kind == "host")}
    return {arc: math.inf if rate is None else rate for arc, rate in arcs.items()}, passing


def expect_way(way: Way, arcs: Mapping[Arc, float], passing: set[str], hops: int, rate: float) -> None:
    path = (*(tail for tail, _ in way.arcs), way.arcs[-1][1])
    assert all(head == tail for (_, head), (tail, _) in itertools.pairwise(way.arcs))
    assert set(path[1:-1]) <= passing
    assert (way.hops, rate_over(arcs, path)) == (hops, rate)


@examples(120)
@given(odd_systems())
def test_the_ways_of_findings_agree_with_all_ways_listed(system: System) -> None:
    wiring, kinds = Wiring(system), kinds_of(system)
    for fabric, ways in ((True, wiring.fabric_ways), (False, wiring.host_ways)):
        arcs, passing = wired(wiring, fabric)
        for a, source in wiring.names.items():
            listed = list(ways_from(arcs, source, passing))
            short = fewest(listed, arcs)
            for b, target in wiring.names.items():
                if a == b or target not in short:
                    assert (a, b) not in ways
                    continue
                way = ways[a, b]
                assert (*(tail for tail, _ in way.arcs), target) in short[target]
                expect_way(way, arcs, passing, len(short[target][0]) - 1, rate_over(arcs, short[target][0]))
                if fabric:
                    widest = max(rate_over(arcs, way) for way in listed if way[-1] == target)
                    assert wiring.widest_rates.get((a, b), math.inf) == widest
    between = both_ways(link for link in system.links if link.kind in FABRIC_KINDS)
    into = both_ways(link for link in system.links if link.kind not in FABRIC_KINDS)
    into |= {arc for arc in between if kinds[arc[1]] != "device"}
    for ordinal, name in wiring.names.items():
        there = [way for way in ways_from(into, name) if kinds[way[-1]] == "nic"]
        least = min(map(len, there), default=0)
        assert (ordinal in wiring.nics) == bool(there)
        assert not there or wiring.nics[ordinal] in {way[-1] for way in there if len(way) == least}


@pytest.mark.parametrize("name", most(systems.names(), systems.names()[::4]))
def test_paths_of_described_systems_agree_with_matrices(name: str) -> None:
    system = systems.load(name)
    for scope in SCOPES:
        graph = wires(system, scope)
        vertices, devices = graph.vertices, list(graph.devices.values())[:16]
        hops, short, widest = by_matrix(graph.arcs, vertices)
        for a, b in itertools.permutations(devices, 2):
            there = vertices.index(a), vertices.index(b)
            path, wide = paths.shortest(graph, a, b), paths.widest(graph, a, b)
            if math.isinf(hops[there]):
                assert path is wide is None
                continue
            assert path is not None
            assert wide is not None
            assert (paths.length(graph, path), paths.rate_of(graph, path)) == (hops[there], short[there])
            assert paths.rate_of(graph, wide) == widest[there]
    wiring = Wiring(system)
    devices = list(wiring.names.values())
    for fabric, ways in ((True, wiring.fabric_ways), (False, wiring.host_ways)):
        arcs, passing = wired(wiring, fabric)
        names = list(dict.fromkeys([*devices, *(end for arc in arcs for end in arc)]))
        hops, short, widest = by_matrix(arcs, names, passing)
        count = len(devices)  # they are the first of the names
        assert len(ways) == np.isfinite(hops[:count, :count]).sum() - count
        for (i, j), way in ways.items():
            ends = names.index(wiring.names[i]), names.index(wiring.names[j])
            expect_way(way, arcs, passing, int(hops[ends]), short[ends])
            if fabric:
                assert wiring.widest_rates.get((i, j), math.inf) == widest[ends]


@examples(60)
@given(st.data())
def test_devices_by_common_ancestors_are_those_joined_by_others(data: st.DataObject) -> None:
    """Each device behind the switch of all that it meets there, also by way of others; numbered by their last."""
    count = data.draw(st.integers(1, 6))
    devices = [FoundDevice(f"0000:{i:02x}:00.0", Node(f"gpu{i}", "device"), None) for i in range(count)]
    met = [pair for pair in itertools.combinations(range(count), 2) if data.draw(st.booleans())]
    levels = [[a, b, 20 if (a, b) in met else 50] for a, b in itertools.combinations(range(count), 2)]
    answers: dict[str, Any] = {"devices": [{"pci": d.address} for d in devices], "ancestors": levels}
    joined = np.eye(count, dtype=bool)
    for a, b in met:
        joined[a, b] = joined[b, a] = True
    for _ in range(count):
        joined = joined @ joined
    groups = sorted({tuple(np.flatnonzero(row)) for row in joined if row.sum() > 1}, key=lambda group: group[-1])
    behind = {int(member): f"switch {number}" for number, group in enumerate(groups) for member in group}
    assert [d.behind for d in ancestors.placed(devices, answers, {})] == [behind.get(i) for i in range(count)]
