"""Ceilings of cases over several nodes: what the NICs and the network between nodes allow."""

from __future__ import annotations

import math

from linkgauge.expect.collectives import gathered
from linkgauge.expect.points import finite, serial
from linkgauge.expect.query import Query
from linkgauge.expect.rules import Ceiling, ceiling
from linkgauge.system.model import Network
from linkgauge.system.units import show_rate


def several_nodes(q: Query) -> list[Ceiling]:
    """Return the ceilings of a case whose `devices` are those of each of `nodes` nodes.

    A point-to-point case pairs each device with its twin on the other node; its goodput is the node's sum, as
    De Sensi et al. draw it (SC'24, Fig. 7).
    """
    nics = list(q.system.of_kind("nic"))
    rates = [nic.port_rate.value for nic in nics if nic.port_rate is not None]
    if not nics or len(rates) < len(nics):
        return []
    bundle, nodes, g = sum(rates), q.nodes, q.ranks
    n = nodes * g
    words = f"{len(nics)} NICs, {show_rate(bundle)} a node"
    result: list[Ceiling] = []
    if q.pattern in ("pingpong", "unidirectional", "bidirectional", "ring_shift"):
        result.append(ceiling("nic_bundle", bundle, words))
        near = _nearest(q)
        if near is not None:
            result.append(ceiling("nic_nearest", near[0], near[1]))
    elif q.pattern == "alltoall":
        share = bundle / g
        result.append(ceiling("nic_share_asymptotic", share, f"{words} for {g} devices"))
        leaving = (nodes - 1) * g / (n - 1)
        result.append(ceiling("nic_bundle", share / leaving, f"{words}; {leaving:.1%} of the traffic leaves the node"))
        result.extend(_network(q, n))
    elif q.pattern == "allreduce":
        result.append(ceiling("nic_bundle", bundle, f"{words}; every byte must leave and enter a node once"))
        between = nodes * bundle / (2 * (nodes - 1))
        result.append(ceiling("allreduce_node_bytes", between, f"{words}, {nodes} nodes"))
        inside = _inside(q)
        if inside is not None:
            basis = f"inside {show_rate(inside)}, between nodes {show_rate(between)}"
            result.append(ceiling("allreduce_hierarchical", min(inside, between), basis))
    elif q.pattern in ("allgather", "reduce_scatter"):
        value = bundle * nodes / (nodes - 1)
        result.append(ceiling("nic_bundle", value, f"{words}; {nodes - 1} of {nodes} parts come from outside"))
    elif q.pattern in ("broadcast", "reduce"):
        result.append(ceiling("nic_bundle", bundle, words))
    elif q.pattern in ("scatter", "gather"):
        value = bundle * nodes / (nodes - 1)
        result.append(ceiling("nic_bundle", value, f"{words} of the root's node"))
    elif q.pattern in ("one_to_all", "all_to_one"):
        value = bundle * (n - 1) / ((nodes - 1) * g)
        result.append(ceiling("nic_bundle", value, f"{words} of the root's node"))
    return result


def _nearest(q: Query) -> tuple[float, str] | None:
    """Return the rate of the NICs nearest to the devices, each NIC counted once."""
    used: dict[str, float] = {}
    for name in q.names:
        for nic in q.system.nearest(name, "nic"):
            rate = q.system.node(nic).port_rate
            if rate is not None:
                used[nic] = rate.value
    return (sum(used.values()), f"NICs {', '.join(sorted(used))}") if used else None


def _inside(q: Query) -> float | None:
    """Return what reduce_scatter, then allgather, reach inside a node."""
    if len(q.names) < 2:
        return None
    graph = q.graph()
    if any(math.isinf(rate) for rate in graph.arcs.values()):
        return None
    return serial(*(gathered(q, turned)[0] for turned in (graph, graph.reversed())))


def global_rate_of_group(network: Network) -> float | None:
    """Return the rate of all global links of one group, every global port counted; None where figures lack.

    Dragonfly: switches of a group (all joined, so local ports + 1) times global ports; dragonfly+: spine switches
    times global ports.
    """
    port = network.value("port_rate")
    if port is None:
        return None
    if network.topology == "dragonfly":
        local, glob = network.value("switch_local_ports"), network.value("switch_global_ports")
        return None if local is None or glob is None else (local + 1) * glob * port
    if network.topology == "dragonfly+":
        spines, glob = network.value("spine_switches_per_group"), network.value("spine_global_ports")
        return None if spines is None or glob is None else spines * glob * port
    return None


def _network(q: Query, n: int) -> list[Ceiling]:
    network = q.system.network
    if network is None:
        return []
    if network.topology == "fat_tree":
        return _fat_tree(q, n)
    group_rate, groups, per_group = (
        global_rate_of_group(network),
        network.value("groups"),
        network.value("nodes_per_group"),
    )
    if group_rate is None or groups is None or per_group is None:
        return []
    g, nodes, result = q.ranks, q.nodes, []
    if nodes > per_group:
        # Whoever sits in a full group sends at least to all outside it; scattered placements send more.
        leaving = n * (nodes - per_group) * g / (n - 1)
        value = groups * group_rate / leaving
        basis = f"{groups:.0f} groups of {show_rate(group_rate)} of global links; {leaving / n:.1%} leave their group"
        result.append(ceiling("network_global", value, basis))
    total = network.value("nodes")
    if total is not None and nodes >= total and groups > 1:
        # Groups joined evenly: a pair of groups shares 1 / (groups - 1) of a group's global links.
        halves = (groups // 2) * (groups - groups // 2)
        across = halves * group_rate / (groups - 1)
        left = n * (groups // 2) / groups
        value = across / (left * (n - left) / (n - 1))
        if finite(value):
            result.append(ceiling("network_bisection", value, f"{show_rate(across)} between two halves of the groups"))
    return result


def _fat_tree(q: Query, n: int) -> list[Ceiling]:
    """Return what the uplinks of a fat tree's leaf switches allow, where it has fewer of them than links to nodes.

    A tree with as many uplinks carries whatever its nodes inject, so their NICs bound it already.
    """
    network = q.system.network
    assert network is not None
    over, leaf = network.value("oversubscription"), network.value("nodes_per_leaf")
    rates = [nic.port_rate.value for nic in q.system.of_kind("nic") if nic.port_rate is not None]
    if over is None or leaf is None or not rates or over < 1 or q.nodes <= leaf:
        return []
    uplinks = leaf * sum(rates) / over
    inside = leaf * q.ranks
    # Each of a full leaf's ranks sends to all ranks outside of it.
    value = uplinks * (n - 1) / (inside * (n - inside))
    basis = f"{leaf:.0f} nodes of a leaf switch share {show_rate(uplinks)} of uplinks"
    return [ceiling("network_global", value, basis)]
