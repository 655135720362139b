"""What jobs that go on at once take of each link and memory of a node, and what a fair share of it leaves one of them.

Each job alone takes of a part what its bytes there over its own time say. Where the parts can carry all jobs' together,
nothing that they share costs them anything; else each gets a max-min fair share of the part (Bertsekas and Gallager
1992, 6.5.2), and the measured job's operation takes as much longer as its share is less than it took alone.

What a part can carry is known no better than between two figures: its nominal rate, and what the measured job was seen
to take of it alone, or three quarters of the nominal rate where that is more. So a fair slow-down is a range. Not what
another took: a mechanism that fills the same wire with less payload has half of the wire, not of the other's payload.

Between nodes ports may serve service classes by weight. Where the weights are stated and each job on a part has a class
with one, classes share it by weighted max-min fairness first, and a class's jobs what is the class's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.sparse import csr_matrix

from linkgauge.errors import LinkgaugeError
from linkgauge.expect.graph import FABRIC, NODE, Wires, wires
from linkgauge.expect.network import Network, Part
from linkgauge.expect.paths import loads
from linkgauge.expect.query import hosts_for, memory_of
from linkgauge.expect.streams import passes_of_cores
from linkgauge.model.case import Case
from linkgauge.model.device_words import with_parts_named
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.model.transports import THROUGH_HOST, TRANSPORTS
from linkgauge.simulate.arrays import Floats
from linkgauge.simulate.fair import Classes, max_min
from linkgauge.stats.interference import Interference
from linkgauge.system.model import System

USUAL_SHARE = 0.75
"""Of a part's nominal rate, that payload reaches on the machines measured: 0.77 to 0.88 (docs/results/h200.md)."""


@dataclasses.dataclass(frozen=True)
class FairShare:
    """The slow-down that fair shares explain, from `low` to `high`, and the part where it is the largest.

    Both 1, and no part, where what the jobs share can carry them together. `unknown` is a part that both use of which
    it is not known what it carries: it may explain more.
    """

    low: float
    high: float
    part: Part | None
    unknown: Part | None = None
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)  # by service class, where shares go by them

    @property
    def words(self) -> str:
        """The part: `GPU 0 to nvswitch`, `memory of GPU 1`."""
        return part_words(self.part)

    @property
    def by_weights(self) -> str:
        """How shares go by service classes: ` by weights 3 of class 0 and 1 of class 3`; empty where they do not."""
        words = " and ".join(f"{weight:g} of class {name}" for name, weight in self.weights.items())
        return f" by weights {words}" if words else ""


def part_words(part: Part | None) -> str:
    """What a user calls a part; empty for none."""
    if part is None:
        return ""
    return with_parts_named(f"{part[0]} to {part[1]}" if part[1] else f"memory of {part[0]}")


def share_of(system: System | None, found: Interference, network: Network | None = None) -> FairShare | None:
    """What fair shares explain of what a case was seen to lose; None where that is not known.

    Of a case on several nodes, of the `network` between them; of others, of the `system` that a node is.
    """
    rates = {load.number: load.alone_ns for load in found.loads}
    loads = [(load.case, rates.get(number)) for number, load in enumerate(found.case.background.each, 1)]
    known = [(case, ns) for case, ns in loads if ns]
    if len(known) < len(loads):
        return None
    if found.case.devices_per_node:
        return None if network is None else _on_network(network, found, known)
    if system is None:
        return None
    return fair_share(system, found.case, found.alone_ns, known)


def _on_network(network: Network, found: Interference, others: Sequence[tuple[Case, float]]) -> FairShare | None:
    launch = found.identity[1]
    own = network.taken(found.case, launch)
    theirs = [(network.taken(case, launch), ns) for case, ns in others]
    parts = set(own or {}).union(*(one or {} for one, _ in theirs))
    classes = [case.service_class.text for case in (found.case, *(case for case, _ in others))]
    return explained(own, found.alone_ns, theirs, network.rates(parts), classes, network.class_weights)


def fair_share(
    system: System, measured: Case, alone_ns: float, others: Sequence[tuple[Case, float]]
) -> FairShare | None:
    """What fair shares explain of a job's slow-down beside others, each with the ns of an operation alone.

    All on one node of this system. None where it is not known which ways a job's bytes go.
    """
    own = taken(system, measured)
    theirs = [(taken(system, case), ns) for case, ns in others]
    return explained(own, alone_ns, theirs, _rates(system))


def explained(
    own: Mapping[Part, float] | None, alone_ns: float, others: Sequence[tuple[Mapping[Part, float] | None, float]],
    rates: Mapping[Part, float], classes: Sequence[str] = (), weights: Mapping[str, float] | None = None,
) -> FairShare | None:  # fmt: skip
    """The same from bytes of one operation over each part; None where those of any job are not known.

    `classes`: of each job, the measured one first, its service class; `weights`: by class, as far as they are stated.
    """
    if own is None or any(theirs is None for theirs, _ in others):
        return None
    worst = FairShare(1.0, 1.0, None)
    for part, amount in own.items():
        demands = [amount / alone_ns * 1e9]
        demands += [(theirs or {}).get(part, 0.0) / ns * 1e9 for theirs, ns in others]
        nominal = rates.get(part, np.inf)
        if demands[0] <= 0 or not any(demands[1:]):
            continue
        if not np.isfinite(nominal) or np.isnan(demands).any():
            worst = dataclasses.replace(worst, unknown=part)
            continue
        seen = min(nominal, max(USUAL_SHARE * nominal, demands[0]))
        here = [name for name, demand in zip(classes, demands, strict=False) if demand > 0]
        stated = {name: (weights or {})[name] for name in sorted(set(here))} if set(here) <= set(weights or {}) else {}
        of = classes if stated else [""] * len(demands)
        low, high = (demands[0] / _own_share(demands, of, stated, most) for most in (max(nominal, seen), seen))
        if high > max(worst.high, 1.0 + 1e-9):
            worst = FairShare(float(low), float(high), part, worst.unknown, stated)
    return worst


def _own_share(
    demands: Sequence[float], classes: Sequence[str], weights: Mapping[str, float], capacity: float
) -> float:
    """What the first job has of a part: of its class's share by weight a max-min fair one."""
    asked = grouped((name, demand) for name, demand in zip(classes, demands, strict=True))
    of_classes = _shares([sum(each) for each in asked.values()], [weights.get(name, 1.0) for name in asked], capacity)
    own = asked[classes[0]]
    return float(_shares(own, [1.0] * len(own), float(of_classes[0]))[0])


def _shares(demands: Sequence[float], weights: Sequence[float], capacity: float) -> Floats:
    """Weighted max-min fair shares of one part, none larger than what is asked of it: a weight is as many flows."""
    wanted, count = np.array(demands), np.array(weights, dtype=float)
    flows = Classes(csr_matrix(np.ones((len(count), 1))), count, np.full(len(count), np.inf), np.array([capacity]))
    asking = wanted > 0
    return np.asarray(count * np.where(asking, max_min(flows, asking, np.where(asking, wanted / count, np.inf)), 0.0))


def _rates(system: System) -> dict[Part, float]:
    """Nominal rates of all parts, in bytes per second."""
    found: dict[Part, float] = {}
    for scope in (FABRIC, NODE):
        found |= wires(system, scope).arcs
    found |= {(node.name, ""): node.memory_rate.value for node in system.nodes if node.memory_rate is not None}
    return found


def taken(system: System, case: Case) -> dict[Part, float] | None:
    """Bytes of one operation over each part that they pass, reads and writes of memories together; None: not known.

    NaN: of a part that it takes, where it is not known how much.
    """
    info = PATTERNS[case.pattern]
    graph = wires(system, FABRIC)
    names = graph.devices
    if case.routed or case.path or not set(case.devices) <= set(names):
        return None
    if info.host_ways and not info.alone:
        return _over_host_links(system, case, names)
    if info.by_cores:
        return _of_cores(system, case, names[case.devices[0]])
    if info.computes:  # what its caches do not hold is the memory's
        return {(memory_of(system, names[device]).name, ""): math.nan for device in case.devices}
    if info.within_device:
        memories = (memory_of(system, names[device]).name for device in case.devices)
        return _summed(((memory, ""), 2.0 * case.size) for memory in memories)
    devices_only = case.source_memory == case.target_memory == "device"
    if not devices_only or case.transport in THROUGH_HOST or info.host_ways or case.source_device >= 0:
        return None
    try:
        pairs = _pairs(case, names)
    except LinkgaugeError:
        return None
    joined = graph if graph.joined(set(case.devices)) else wires(system, NODE)
    return _routed(system, joined, pairs)


def _pairs(case: Case, names: Mapping[int, str]) -> dict[tuple[str, str], float]:
    """Bytes from device to device, of all groups and messages of a window."""
    size = case.group_ranks
    found: dict[tuple[str, str], float] = {}
    if size == 1:  # messages of a device with itself are copies inside it
        end, total = names[case.devices[0]], PATTERNS[case.pattern].bytes_total
        return {(end, end): float(total(case.size, 1, case.window, case.distribution))}
    listed = pair_bytes(case.pattern, size, case.size, case.distribution, case.root)
    for group in range(case.groups):
        for source, target, moved in listed:
            ends = tuple(names[case.devices[group * size + rank]] for rank in (source, target))
            found[ends[0], ends[1]] = found.get((ends[0], ends[1]), 0.0) + float(moved) * case.window
    return found


def _routed(system: System, graph: Wires, pairs: Mapping[tuple[str, str], float]) -> dict[Part, float] | None:
    """The pairs' bytes over their ways of fewest hops, and through the memories at both ends."""
    apart = {ends: moved for ends, moved in pairs.items() if ends[0] != ends[1]}
    try:
        over = loads(graph, apart) if apart else {}
    except ValueError:
        return None
    ends = [((memory_of(system, end).name, ""), moved) for pair, moved in pairs.items() for end in pair]
    return {part: moved for part, moved in _summed([*over.items(), *ends]).items() if moved > 0}


COPY_ENGINE, MULTIPROCESSORS = "copy engine", "multiprocessors"


def engines(case: Case) -> frozenset[tuple[str, int]] | None:
    """Which engines of which devices a job keeps busy; None where that is a library's affair.

    A copy is the engine's of the device that begins it: the sender's or the receiver's of one-sided copies.
    """
    if TRANSPORTS[case.transport].own_way:
        return None if "device" in (case.source_memory, case.target_memory) else frozenset()
    if PATTERNS[case.pattern].by_cores:
        return frozenset()  # of no device
    if case.transport == "ccl":
        return frozenset((MULTIPROCESSORS, device) for device in case.devices)
    busy = set(case.devices)
    if case.transport not in THROUGH_HOST and not PATTERNS[case.pattern].host_ways and len(busy) > 1:
        size = case.group_ranks
        pulls = "pull" in case.variant.split("+") or ("push" not in case.variant and case.initiator == "receiver")
        listed = pair_bytes(case.pattern, size, case.size, case.distribution, case.root)
        ranks = {pair[1 if pulls else 0] for pair in listed}
        busy = {case.devices[group * size + rank] for group in range(case.groups) for rank in ranks}
    kind = MULTIPROCESSORS if case.transport == "kernel" else COPY_ENGINE
    return frozenset((kind, device) for device in busy)


def engines_in_common(case: Case) -> tuple[tuple[str, int], ...] | None:
    """Engines that a case and any of its loads keep busy, in order; None where one of them is a library's affair."""
    own = engines(case)
    others = [engines(load.case) for load in case.background.each]
    if own is None or None in others:
        return None
    return tuple(sorted(own & frozenset().union(*(one for one in others if one is not None))))


def _over_host_links(system: System, case: Case, names: Mapping[int, str]) -> dict[Part, float] | None:
    graph = wires(system, NODE)
    total: list[tuple[Part, float]] = []
    for device in case.devices:
        hosts = system.nearest(names[device], "host", over_fabric=False)
        if len(hosts) != 1 or case.source_node >= 0 or case.target_node >= 0:
            return None
        ways = [(hosts[0], names[device]) if way == "into" else (names[device], hosts[0])
                for way in PATTERNS[case.pattern].host_ways]  # fmt: skip
        for ends in ways:
            routed = _routed(system, graph, {ends: float(case.size)})
            if routed is None:
                return None
            total += routed.items()
    return _summed(total)


def _of_cores(system: System, case: Case, device: str) -> dict[Part, float] | None:
    """What the host's cores read and write in each memory; None where it is not known which that is."""
    nodes = {"source": case.source_node, "target": case.target_node}
    hosts = [hosts_for(system, device, nodes[end]) for end in passes_of_cores(case.variant)]
    if any(len(found) != 1 for found in hosts):
        return None
    return _summed(((found[0], ""), float(case.size)) for found in hosts)


def _summed(parts: Iterable[tuple[Part, float]]) -> dict[Part, float]:
    sums: dict[Part, float] = {}
    for part, amount in parts:
        sums[part] = sums.get(part, 0.0) + amount
    return sums
