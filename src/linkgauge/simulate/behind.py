"""Links between a node's GPUs and its ports, which may be full before these: PCIe behind a NIC, a switch of several."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from linkgauge.simulate.fabric import Behind
from linkgauge.system.graph import Arc, Graph
from linkgauge.system.model import System, rates_of

_FULL = 1 - 1e-9


def behind_ports(system: System, ports: int, port_rate: float) -> tuple[float, tuple[Behind, ...], tuple[Behind, ...]]:
    """Return what a port passes, and the links behind ports that bind beyond that: out of the node, and into it.

    Each GPU's bytes take the ways of fewest links to the NICs of its port, evenly; GPUs of one port send alike. What a
    port alone has lowers the ports' own rate, as far as it is so of all of them. A NIC that no described link joins to
    its GPU, and a link of unknown rate, limit nothing.
    """
    nics = [nic.name for nic in system.of_kind("nic")]
    nic_rate = ports * port_rate / len(nics)
    pairs = _pairs(system, nics, ports)
    rates = rates_of(system.links)
    graph = Graph(rates, passing=_passing(system))
    back = Graph({(b, a): rate for (a, b), rate in rates.items()}, passing=_passing(system))
    shares: dict[Arc, list[float]] = {}
    for port, ends in enumerate(pairs):
        for gpu, nic, part in ends:
            shares.setdefault((nic, ""), [0.0] * ports)[port] += part
            for arc, share in _even(graph, back, gpu, nic).items():
                shares.setdefault(arc, [0.0] * ports)[port] += part * share
    entering = {node.name: node.throughput.value for node in system.nodes if node.throughput is not None}
    limits = []
    for turned in (False, True):
        found = [(tuple(row), _rate(rates, arc, nic_rate, turned)) for arc, row in shares.items()]
        for vertex, most in entering.items():
            rows = [row for arc, row in shares.items() if arc[0 if turned else 1] == vertex]
            if rows:
                found.append((tuple(map(sum, zip(*rows, strict=True))), most))
        limits.append(found)
    # What each port passes alone, by the links that all of its bytes or a part of them take.
    alone = [
        min([port_rate, *(rate / row[port] for found in limits for row, rate in found if row[port] > 0)])
        for port in range(ports)
    ]
    widest = max(alone)
    out, into = (_binding(found, widest) for found in limits)
    return widest, out, into


def _passing(system: System) -> set[str]:
    """Return the vertices that pass traffic of others on to NICs: all but NICs."""
    return {node.name for node in system.nodes if node.kind != "nic"}


def _rate(rates: Mapping[Arc, float], arc: Arc, nic_rate: float, turned: bool) -> float:
    return nic_rate if arc[1] == "" else rates[arc[::-1] if turned else arc]


def _binding(found: Sequence[tuple[tuple[float, ...], float]], port_rate: float) -> tuple[Behind, ...]:
    """Return the links that are full before the ports are, each once."""
    kept = {(row, rate) for row, rate in found if rate < sum(row) * port_rate * _FULL}
    return tuple(Behind(rate, row) for row, rate in sorted(kept))


def _pairs(system: System, nics: Sequence[str], ports: int) -> list[list[tuple[str, str, float]]]:
    """Return for each port its GPUs, each with a NIC and the part of the port's bytes that goes there."""
    gpus = [device.name for device in system.devices]
    held = [gpus[port * len(gpus) // ports : (port + 1) * len(gpus) // ports] for port in range(ports)]
    if ports == 1:  # of all NICs: each GPU sends by those that are nearest
        near = {gpu: system.nearest(gpu, "nic") or tuple(nics) for gpu in gpus}
        return [[(gpu, nic, 1 / len(gpus) / len(near[gpu])) for gpu in gpus for nic in near[gpu]]]
    each = len(nics) // ports
    own: list[Sequence[str]] = [nics[port * each : (port + 1) * each] for port in range(ports)]
    if each == 1 and any(own[port][0] not in _near(system, held[port], nics) for port in range(ports)):
        own = _assigned(system, held, nics)
    return [[(gpu, nic, 1 / len(mine) / each) for gpu in mine for nic in theirs]
            for mine, theirs in zip(held, own, strict=True)]  # fmt: skip


def _near(system: System, gpus: Sequence[str], nics: Sequence[str]) -> set[str]:
    return set(itertools.chain.from_iterable(system.nearest(gpu, "nic") or nics for gpu in gpus))


def _assigned(system: System, held: Sequence[Sequence[str]], nics: Sequence[str]) -> list[Sequence[str]]:
    """Return a NIC for each port, so that all ways together have the fewest links."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    graph = Graph(rates_of(system.links), passing=_passing(system))
    far = len(system.nodes)
    cost = np.array([
        [sum(graph.hops(gpu).get(nic, far) for gpu in gpus) + 1e-6 * abs(port - place)
         for place, nic in enumerate(nics)]
        for port, gpus in enumerate(held)
    ])  # fmt: skip
    rows, columns = linear_sum_assignment(cost)
    return [[nics[column]] for _, column in sorted(zip(rows.tolist(), columns.tolist(), strict=True))]


def _even(graph: Graph, back: Graph, gpu: str, nic: str) -> dict[Arc, float]:
    """Return the part of what goes from a GPU to a NIC that each link has, evenly over the ways of fewest links."""
    ahead, behind = graph.hops(gpu), back.hops(nic)
    if nic not in ahead:
        return {}
    ways, onward = graph.counts(gpu), back.counts(nic)
    return {
        (tail, head): ways[tail] * onward[head] / ways[nic]
        for tail, head in graph.arcs
        if tail in ahead and head in behind and ahead[tail] + 1 + behind[head] == ahead[nic]
    }
