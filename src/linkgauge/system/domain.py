"""Nodes that NVLink joins: what each device can exchange with its domain, and a domain as one system."""

from __future__ import annotations

import dataclasses
import math

from linkgauge.system.model import FABRIC_KINDS, Figure, Link, Node, System, is_fabric, rates_of
from linkgauge.system.remembered import remembered
from linkgauge.system.units import RATE

_DOMAIN = "domain"


def rates_into_domain(system: System) -> dict[str, tuple[float, float]] | None:
    """Return what each device can send to, and get from, the other devices of its node or domain, in bytes per second.

    That is the sum of its links: those between devices alone where they join all devices of the node, else its host
    links as well. None where the rate of one of these links is unknown, or a device has none.
    """
    names = {device.name for device in system.devices}
    joined = any(names <= set(part) for part in system.fabric.parts([node.name for node in system.nodes]))
    nics = {nic.name for nic in system.of_kind("nic")}
    found = {}
    for name in names:
        links = [link for link in system.links_of(name) if link.other(name) not in nics]
        used = [link for link in links if not joined or is_fabric(link, system.kinds)]
        rates = rates_of(used)
        out = math.fsum(rate for (tail, _), rate in rates.items() if tail == name)
        into = math.fsum(rate for (_, head), rate in rates.items() if head == name)
        if not (0 < out < math.inf and 0 < into < math.inf):
            return None
        found[name] = out, into
    return found


@remembered
def domain_of(system: System, count: int) -> System:
    """Return so many nodes of one domain as a single system; `gpu0@3` is gpu0 of the node counted 3 from 0.

    How a domain's nodes are joined is described nowhere, so each device has one link to a switch without limits, of all
    that it can exchange with its domain. That allows at least what any wiring of the same links does. Ordinals count
    through the nodes: `ordinals_of_domain`.
    """
    stated = system.network.value("domain_rate") if system.network is not None else None
    rates = rates_into_domain(system)
    kinds = system.kinds
    fabric = [link for link in system.links if is_fabric(link, kinds)]
    fabric_switches = {end for link in fabric for end in (link.a, link.b) if kinds[end] == "switch"}
    flags = [system.node(name) for name in fabric_switches]
    center = Node(
        _free_name(system), "switch", multicast=any(node.multicast for node in flags),
        reduction=any(node.reduction for node in flags), routes=True,
    )  # fmt: skip
    kept = [node for node in system.nodes if node.name not in fabric_switches]
    inside = [link for link in system.links if not {link.a, link.b} & fabric_switches and not is_fabric(link, kinds)]
    kind = fabric[0].kind if fabric else FABRIC_KINDS[0]
    # A NIC that no link is described of may be reached by any device as fast as it is.
    loose = [nic.name for nic in system.of_kind("nic") if not any(system.links_of(nic.name))]
    inside += [Link(device.name, nic, "pcie") for nic in loose for device in system.devices]
    nodes, links = [center], []
    for number in range(count):
        at = f"@{number}"
        for node in kept:
            ordinal = node.ordinal if node.kind != "device" else _moved(system, _ordinal(system, node), number)
            nodes.append(dataclasses.replace(node, name=node.name + at, ordinal=ordinal))
        links += [dataclasses.replace(link, a=link.a + at, b=link.b + at) for link in inside]
        for device in system.devices:
            out, into = (stated, stated) if stated else (None, None) if rates is None else rates[device.name]
            links.append(Link(device.name + at, center.name, kind, data_rate=_figure(out), back_rate=_figure(into)))
    return dataclasses.replace(
        system, nodes=tuple(nodes), links=tuple(links), published=(), caps=(), title=f"{count} nodes of {system.title}"
    )


def ordinals_of_domain(system: System, devices: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the ordinals that these devices of each of a domain's nodes have in `domain_of`, node by node."""
    return tuple(_moved(system, device, number) for number in range(count) for device in devices)


def _ordinal(system: System, device: Node) -> int:
    return next(ordinal for ordinal, name in system.names_by_ordinal.items() if name == device.name)


def _moved(system: System, ordinal: int, number: int) -> int:
    return number * (max(system.names_by_ordinal) + 1) + ordinal


def _figure(rate: float | None) -> Figure | None:
    return None if rate is None else Figure(rate, RATE, "described", "links of the device together")


def _free_name(system: System) -> str:
    name = _DOMAIN
    while any(node.name.startswith(f"{name}@") or node.name == name for node in system.nodes):
        name += "'"
    return name
