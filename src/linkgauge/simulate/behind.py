"""Links between a node's GPUs and its ports, which may be full before these: PCIe behind a NIC, a switch of several."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from linkgauge.simulate.arrays import Floats, Ints
from linkgauge.simulate.fabric import Behind
from linkgauge.system.graph import Arc, Graph
from linkgauge.system.model import System, rates_of

_FULL = 1 - 1e-9


def behind_ports(system: System, ports: int, port_rate: float) -> tuple[float, tuple[Behind, ...], tuple[Behind, ...]]:
    """Return what a port passes, and the links behind ports that bind beyond that: out of the node, and into it.

    Each GPU's bytes take the ways of fewest links to the NICs of its port, evenly. What all bytes of a port pass, and
    no others, lowers the ports' own rate, as far as it is so of all of them. A NIC that no described link joins to its
    GPU, and a link of unknown rate, limit nothing.
    """
    nics = [nic.name for nic in system.of_kind("nic")]
    gpus = [device.name for device in system.devices]
    of_port = np.arange(len(gpus)) * ports // len(gpus)
    nic_rate = ports * port_rate / len(nics)
    rates = rates_of(system.links)
    graph = Graph(rates, passing=_passing(system))
    back = Graph({(b, a): rate for (a, b), rate in rates.items()}, passing=_passing(system))
    shares: dict[Arc, Floats] = {}
    for gpu, (name, ends) in enumerate(zip(gpus, _nics(system, gpus, nics, ports), strict=True)):
        for nic in ends:
            for arc, share in {(nic, ""): 1.0, **_even(graph, back, name, nic)}.items():
                shares.setdefault(arc, np.zeros(len(gpus)))[gpu] += share / len(ends)
    entering = {node.name: node.throughput.value for node in system.nodes if node.throughput is not None}
    limits: list[list[tuple[Floats, float]]] = []
    for turned in (False, True):
        found = [(row, rates[arc[::-1] if turned else arc] if arc[1] else nic_rate) for arc, row in shares.items()]
        for vertex, most in entering.items():
            rows = [row for arc, row in shares.items() if arc[0 if turned else 1] == vertex]
            if rows:
                found.append((np.sum(rows, axis=0), most))
        limits.append(found)
    alone = [port_rate] * ports
    for row, rate in itertools.chain(*limits):
        (used,) = np.nonzero(row)
        port = int(of_port[used[0]])
        # A link of one port's GPUs alone, which all of its bytes pass alike, is as good as a slower port.
        if np.ptp(row[of_port == port]) == 0 and len(used) == int((of_port == port).sum()) and (
            of_port[used] == port
        ).all():  # fmt: skip
            alone[port] = min(alone[port], rate / float(row[used[0]]))
    widest = max(alone)
    out, into = (_binding(found, of_port, widest) for found in limits)
    return widest, out, into


def _passing(system: System) -> set[str]:
    """Return the vertices that pass traffic of others on to NICs: all but NICs."""
    return {node.name for node in system.nodes if node.kind != "nic"}


def _binding(found: Sequence[tuple[Floats, float]], of_port: Ints, port_rate: float) -> tuple[Behind, ...]:
    """Return the links that may be full before the ports are, each once."""
    kept = set()
    for row, rate in found:
        most = np.zeros(int(of_port.max()) + 1)
        np.maximum.at(most, of_port, row)
        if rate < most.sum() * port_rate * _FULL:
            kept.add((tuple(row.tolist()), rate))
    return tuple(Behind(rate, row) for row, rate in sorted(kept))


def _nics(system: System, gpus: Sequence[str], nics: Sequence[str], ports: int) -> list[Sequence[str]]:
    """Return the NICs that each GPU's bytes go to: those of its port."""
    if ports == 1:  # of all NICs: each GPU sends by those that are nearest
        return [system.nearest(gpu, "nic") or nics for gpu in gpus]
    each, a_port = len(nics) // ports, len(gpus) // ports
    held = [gpus[port * a_port : (port + 1) * a_port] for port in range(ports)]
    own: list[Sequence[str]] = [nics[port * each : (port + 1) * each] for port in range(ports)]
    if each == 1 and any(own[port][0] not in _near(system, held[port], nics) for port in range(ports)):
        own = _assigned(system, held, nics)
    return [own[gpu // a_port] for gpu in range(len(gpus))]


def _near(system: System, gpus: Sequence[str], nics: Sequence[str]) -> set[str]:
    return set(itertools.chain.from_iterable(system.nearest(gpu, "nic") or nics for gpu in gpus))


def _assigned(system: System, held: Sequence[Sequence[str]], nics: Sequence[str]) -> list[Sequence[str]]:
    """Return a NIC for each port, so that all ways together have the fewest links."""
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
