"""What the switches between nodes allow an alltoall, wherever its nodes are and whichever way its bytes go.

All n ranks of N nodes send each other m bytes. What must leave a set of switches is the least over all placements; what
can leave it is all of its links. A domain's nodes are in one group, and what they send each other passes no switch.
"""

from __future__ import annotations

import math

from linkgauge.expect.limit import Limit, limit
from linkgauge.expect.points import finite
from linkgauge.expect.query import Query
from linkgauge.model.quantity import percent
from linkgauge.system.model import Network
from linkgauge.system.units import show_rate


def network(q: Query, n: int, in_domain: int) -> list[Limit]:
    """Return the bounds of links between switches on an alltoall of n ranks; `in_domain` nodes are a domain at most."""
    described = q.system.network
    if described is None:
        return []
    if described.topology == "fat_tree":
        return _fat_tree(q, described, n, in_domain)
    return _groups(q, described, n)


def _groups(q: Query, network: Network, n: int) -> list[Limit]:
    """Return what the links between groups of a dragonfly allow."""
    group_rate, groups = global_rate_of_group(network), groups_of_nodes(network)
    per_group = network.value("nodes_per_group")
    if group_rate is None or groups is None or per_group is None:
        return []
    g, nodes, result = q.ranks, q.nodes, []
    if nodes > per_group:
        # Whoever sits in a full group sends at least to all outside it; scattered placements send more.
        leaving = n * (nodes - per_group) * g / (n - 1)
        value = groups * group_rate / leaving
        leave = percent(leaving / n, 1)
        basis = f"{groups:.0f} groups of {show_rate(group_rate)} of global links; {leave} leave their group"
        result.append(limit("network_global", value, basis))
    total = network.value("nodes")
    if total is not None and nodes >= total and groups > 1:
        # Full groups on one side, the last one with the rest on the other. A byte that crosses by a third group takes a
        # link between the sides too, so no routing does better.
        found = []
        for side in range(1, math.ceil(groups)):
            inside = min(side * per_group, total) * g
            across = side * (groups - side) * group_rate / (groups - 1)
            if 0 < inside < n:
                found.append((across * (n - 1) / (inside * (n - inside)), side, across))
        if found:
            value, side, across = min(found)
            words = f"{show_rate(across)} between {side} of {groups:.0f} groups and the others"
            result.append(limit("network_bisection", value, words))
    return [one for one in result if finite(one.value_bytes_per_s)]


def global_rate_of_group(network: Network) -> float | None:
    """Return the rate of a group's links to the other groups that nodes are in; None where figures lack.

    Where the links between two groups are stated, those; else every global port, as if all were cabled so. Dragonfly:
    switches of a group times global ports; dragonfly+: spine switches times them.
    """
    port = network.value("port_rate")
    if port is None or network.topology not in ("dragonfly", "dragonfly+"):
        return None
    pair, groups = network.value("links_per_group_pair"), groups_of_nodes(network)
    if pair is not None and groups is not None:
        return (groups - 1) * pair * port
    if network.topology == "dragonfly":
        local, each = network.value("switch_local_ports"), network.value("switch_global_ports")
        # All switches of a group are joined, unless it has rows and columns of them: then their number is stated.
        switches = network.value("switches_per_group") or (None if local is None else local + 1)
    else:
        switches, each = network.value("spine_switches_per_group"), network.value("spine_global_ports")
    return None if switches is None or each is None else switches * each * port


def groups_of_nodes(network: Network) -> float | None:
    """Return how many groups nodes are in: no more than there are groups, nor than the nodes fill; None if unknown."""
    groups, nodes, each = (network.value(name) for name in ("groups", "nodes", "nodes_per_group"))
    if groups is None or nodes is None or each is None:
        return groups
    return min(groups, math.ceil(nodes / each))


def _fat_tree(q: Query, network: Network, n: int, in_domain: int) -> list[Limit]:
    """Return what the uplinks of a fat tree's leaf switches allow, where it has fewer of them than links to nodes.

    A tree with as many uplinks carries whatever its nodes inject, so their NICs bound it already. The job's nodes may
    be spread over all leaf switches: one of these has an even part of them at least, and a full one at most.
    """
    leaf, total, uplinks = network.value("nodes_per_leaf"), network.value("nodes"), _uplinks(q, network)
    if leaf is None or total is None or uplinks is None or q.nodes <= leaf:
        return []
    g, nodes = q.ranks, q.nodes
    pods = math.ceil(total / (network.value("nodes_per_pod") or total))
    blocks = pods * math.ceil(math.ceil(total / pods) / leaf)
    # Of a leaf with so many of the job's nodes; others of a rank's domain may be elsewhere, which it reaches by NVLink.
    crossing = {
        here: here * g * max(0, nodes - here - min(in_domain - 1, nodes - here)) * g
        for here in (math.ceil(nodes / blocks), min(leaf, nodes - 1))
    }
    here = min(crossing, key=lambda one: crossing[one])
    if crossing[here] <= 0:
        return []
    basis = f"{here:.0f} nodes or more of a leaf switch share {show_rate(uplinks)} of uplinks"
    return [limit("network_global", uplinks * (n - 1) / crossing[here], basis)]


def _uplinks(q: Query, network: Network) -> float | None:
    """Return the rate of all uplinks of the leaf switches that a block of nodes is attached to; None if enough."""
    rates = [nic.port_rate.value for nic in q.system.of_kind("nic") if nic.port_rate is not None]
    leaf, over, up = (network.value(name) for name in ("nodes_per_leaf", "oversubscription", "leaf_up_ports"))
    port = network.value("port_rate")
    if leaf is None or not rates:
        return None
    if up is None:
        return None if over is None or over < 1 else leaf * sum(rates) / over
    if port is None:
        return None
    found = up * port * (network.value("switches_per_node") or 1)
    return found if found < leaf * sum(rates) else None
