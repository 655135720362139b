"""The rate that a share of a class of cases is of, by a described system alone: the links of its way, or a limit."""

from __future__ import annotations

from linkgauge.expect import limits
from linkgauge.expect.limit import Limit
from linkgauge.findings.wiring import Wiring
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import over_host
from linkgauge.system.model import System


def nominal(
    system: System,
    transport: str,
    pattern: str,
    ranks: int,
    size: int,
    algorithm: str = "",
    nodes: int = 1,
    pair: tuple[int, int] = (0, 1),
) -> tuple[str, float, str] | None:
    """The kind of link, the rate in B/s, and which limit it is, in words; None where the description sets none.

    As `check` takes them (findings/known.py): of the first device, a pair, or the first `ranks` devices of each of so
    many nodes.
    """
    traits = PATTERNS[pattern]
    if nodes > 1:
        between = lowest(system, transport, pattern, ranks, size, nodes, algorithm)
        if between is None or between.value_bytes_per_s is None:
            return None
        return system.links[0].kind, between.value_bytes_per_s, f"{between.rule}: {between.basis}"
    if traits.within_device:
        rate = system.devices[0].memory_rate
        return None if rate is None else ("memory", rate.value / 2, "half of the memory's rate, read and written")
    wiring = Wiring(system)
    if len(traits.host_ways) == 1:
        kinds = [link.kind for link in system.links_of(system.devices[0].name) if link.kind in ("pcie", "c2c")]
        if not kinds or not wiring.host_rates.get(0):
            return None
        return kinds[0], wiring.host_rates[0], "the device's link towards the host"
    if traits.pair:
        way = wiring.way(*pair, over_host(transport, "")) if len(system.devices) > 1 else None
        if way is None or way.rate is None:
            return None
        return wiring.bounding_kind(way), way.rate * traits.ways, "the links from one device to the other"
    least = lowest(system, transport, pattern, ranks, size, algorithm=algorithm)
    if least is None or least.value_bytes_per_s is None:
        return None
    return system.links[0].kind if ranks > 1 else "memory", least.value_bytes_per_s, f"{least.rule}, {least.basis}"


def lowest(
    system: System, transport: str, pattern: str, ranks: int, size: int, nodes: int = 1, algorithm: str = ""
) -> Limit | None:
    """The lowest upper bound of the first `ranks` devices of each of so many nodes; None where no rule gives one."""
    case = {"pattern": pattern, "transport": transport, "devices": range(ranks), "size": size, "nodes": nodes}
    found = limits(system, {**case, "algorithm": algorithm})
    bounds = [one for one in found if one.kind == "upper bound" and one.value_bytes_per_s]
    return min(bounds, key=lambda one: one.value_bytes_per_s or 0.0, default=None)
