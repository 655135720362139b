"""Rules about collectives: device counts out of line, far from the optimum, a rank that comes late."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable

import numpy as np

from linkgauge.expect.limit import Limit
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, Settings, keys, median, rate_text
from linkgauge.findings.rule import rule
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.quantity import percent
from linkgauge.model.transports import TRANSPORTS
from linkgauge.stats.arrival import Split, find_straggler, slow_transfer, split

_LARGE = 16 << 20
LEAST_OF_LIMIT = 0.4
"""What a library's large collective must reach of the lowest bound that the links set. Measured on healthy machines:
0.49 of it at the least (allreduce of 4 H200, where the bound counts reductions in the switch). Over PCIe healthy ones
reach less: 0.25 of 8 RTX 5090 (NVIDIA/nccl issue 1639), for host memory and processors take part."""


def _collectives(facts: Facts) -> list[Measure]:
    return [m for m in facts.measures if PATTERNS[m.pattern].collective and m.ranks > 1 and m.case.groups == 1]


@rule("device counts whose bandwidth is below the trend (5 of 8, 3 and 5 nodes)")
def device_counts(facts: Facts) -> Iterable[Finding]:
    """Counts of devices whose bus bandwidth lies well below that of both smaller and larger counts."""
    for depth, low, counts in _lines(facts):
        one = low[0]
        numbers = ", ".join(str(m.ranks) for m in low)
        around = "; ".join(f"{n}: {rate_text(m.bus)}" for n, m in sorted(counts.items()))
        yield Finding(
            "device_counts",
            "loss",
            f"{one.label} on {numbers} {facts.noun}s",
            f"{one.label} on {numbers} of {max(counts)} {facts.noun}s is {percent(depth)} below the trend: busbw "
            f"by count at {size_text(one.size)}: {around}.",
            tuple(Evidence(f"{m.ranks} {facts.noun}s: {rate_text(m.bus)}", (m.case_key,)) for m in low),
            0.9,
            "Use another count, or name the devices so that they have a ring of direct links; compare algorithms "
            "(NCCL_ALGO, NCCL_GRAPH_FILE).",
            depth,
        )


def _lines(facts: Facts) -> list[tuple[float, list[Measure], dict[int, Measure]]]:
    """Return for each setting with counts out of line: how far, those counts' measures, and all counts' measures."""
    groups: dict[tuple[Settings, int], dict[int, Measure]] = {}
    for measure in _collectives(facts):
        if measure.size_class >= _LARGE and measure.bus:
            best = groups.setdefault((measure.without("root"), measure.size_class), {})
            if measure.ranks not in best or measure.bus > (best[measure.ranks].bus or 0.0):
                best[measure.ranks] = measure
    worst: dict[Settings, tuple[float, list[Measure], dict[int, Measure]]] = {}
    for (settings, _), counts in groups.items():
        values = {n: m.bus or 0.0 for n, m in counts.items()}
        depths = {n: _depth(values, n) - 2 * counts[n].half_width for n in counts}
        # Where the links allow more to some counts than to others, what they allow is the measure.
        # The network's bounds stand far above what few ranks of a node can have of it: they set no measure.
        inside = {n: facts.bound(m) for n, m in counts.items() if facts.on_one_node(m)}
        bounds = {n: c.value_bytes_per_s for n, c in inside.items() if c is not None and c.value_bytes_per_s}
        if len(bounds) == len(counts):
            shares = {n: (m.goodput or 0.0) / bounds[n] for n, m in counts.items()}
            depths = {n: max(depth, _depth(shares, n) - 0.1) for n, depth in depths.items()}
        low = [counts[n] for n in sorted(counts) if depths[n] >= 0.25]
        if low:
            depth = max(depths[m.ranks] for m in low)
            if settings not in worst or depth > worst[settings][0]:
                worst[settings] = (depth, low, counts)
    return list(worst.values())


def _depth(values: dict[int, float], count: int) -> float:
    """How far a count's value lies below the lower of the best of smaller counts and the best of larger ones."""
    smaller = [value for n, value in values.items() if n < count]
    larger = [value for n, value in values.items() if n > count]
    if not smaller or not larger:
        return 0.0
    return 1 - values[count] / min(max(smaller), max(larger))


def shares_of_limits(facts: Facts) -> list[tuple[float, Measure, Limit]]:
    """Return of each library's collective on one node what it reaches of its lowest bound, at its largest size.

    From 64 MiB on, for each setting and set of devices; empty where the system is not known, and where no library can
    come near the bound.
    """
    top: dict[tuple[Settings, tuple[int, ...]], Measure] = {}
    for measure in _collectives(facts) if facts.system is not None else ():
        if (
            not TRANSPORTS[measure.transport].collects(measure.case.variant)
            or measure.size < 4 * _LARGE
            or not facts.on_one_node(measure)
            or measure.goodput is None
            or facts.goes_around(measure)
        ):
            continue
        key = (measure.without(), tuple(sorted(measure.devices)))
        if key not in top or measure.size > top[key].size:
            top[key] = measure
    bounds = ((measure, _near_bound(facts, measure)) for measure in top.values())
    return [((measure.goodput or 0.0) / (least.value_bytes_per_s or 1.0), measure, least)
            for measure, least in bounds if least is not None]  # fmt: skip


def _near_bound(facts: Facts, measure: Measure) -> Limit | None:
    """Return the lowest bound that a library can come near, None where none is known.

    A bound counts all ways between the devices, and a library takes fewer: it relays through no device that takes no
    part, nor a message from rank to rank through any, and does not share one over NVLink and PCIe.
    """
    bound, wiring = facts.bound(measure), facts.wiring
    if bound is None or wiring is None:
        return bound
    devices = facts.ordinals(measure)
    ways = {pair: wiring.fabric_ways.get(pair) for pair in itertools.permutations(sorted(set(devices)), 2)}
    kinds = {"host" if way is None else way.kind for way in ways.values()}
    if kinds <= {"switch"}:
        return bound
    joined = new = {devices[0]}
    while new:
        new = {b for a, b in wiring.fabric_ways if a in new} - joined
        joined = joined | new
    traits = PATTERNS[measure.pattern]
    if joined != set(devices) or (traits.to_each and kinds != {"direct"}):
        return None
    if "host" in kinds and measure.pattern == "allreduce" and measure.bus and measure.goodput:
        # Hosts could add, and so the bound is a cut's: no library has them do so.
        alone = (bound.value_bytes_per_s or 0.0) * measure.goodput / measure.bus
        return dataclasses.replace(bound, rule="allreduce_bytes", value_bytes_per_s=alone)
    if not traits.to_next:
        return bound
    nexts = [ways[pair] for pair in zip(devices, (*devices[1:], devices[0]), strict=True) if pair in ways]
    rates = [way.rate for way in nexts if way is not None and way.kind != "routed" and way.rate is not None]
    if len(rates) < len(devices):
        return None
    return dataclasses.replace(bound, rule="shortest_path", value_bytes_per_s=min(rates, default=0.0))


@rule("a library's collective far from what the links allow")
def collective_below_limit(facts: Facts) -> Iterable[Finding]:
    """A library's collective at large sizes well below the lowest bound that the links set."""
    told = {(m.settings, m.ranks) for _, low, _ in _lines(facts) for m in low}
    low = grouped(
        ((m.transport, m.case.variant, m.pattern, m.case.algorithm), (share, m, least))
        for share, m, least in shares_of_limits(facts)
        # Where a count falls out of line, that is what is odd about it.
        if share < LEAST_OF_LIMIT and (m.settings, m.ranks) not in told
    )
    for items in low.values():
        share, one, bound = min(items, key=lambda item: item[0])
        counts = ", ".join(str(n) for n in sorted({m.ranks for _, m, _ in items}))
        yield Finding(
            "collective_below_limit",
            "loss",
            f"{one.label} on {counts} {facts.noun}s",
            f"{one.label} on {one.ranks} {facts.noun}s reaches {percent(share)} of what the links allow at "
            f"{size_text(one.size)}: {rate_text(one.goodput)} of {rate_text(bound.value_bytes_per_s)} ({bound.rule}).",
            tuple(Evidence(f"{m.label} on {m.ranks} {facts.noun}s: {rate_text(m.goodput)}, {percent(s)} of {c.rule}",
                           (m.case_key,)) for s, m, c in items),
            0.7,
            "Compare with the direct algorithms (transport kernel, copy_engine) and with other settings of the "
            "library; a limit need not be reachable, see 'linkgauge expect' for schedules that are.",
            1 - share,
        )  # fmt: skip


@rule(
    "a rank that comes late to collectives, or finishes last",
    reads_samples=True,
    faults=True,
    tells=("straggler", "slow_transfer"),
)
def straggler(facts: Facts) -> Iterable[Finding]:
    """A rank that the others wait for, in most of the collectives that it takes part in."""
    named: dict[int, list[tuple[Measure, float, float]]] = {}
    slow: dict[int, list[Measure]] = {}
    seen: Counter[int] = Counter()
    for measure in _collectives(facts):
        if measure.case.arrival == "skewed" or measure.case.ranks_per_device != 1:
            continue  # lateness was asked for
        parts = _split(facts, measure)
        if parts is None:
            continue
        seen.update(measure.devices)
        late = find_straggler(parts, uncertainty_ns=_uncertainty(facts, measure))
        if late is not None:
            named.setdefault(measure.devices[late.rank], []).append((measure, late.lateness_ns, late.cost_share))
        elif not PATTERNS[measure.pattern].rooted and (rank := slow_transfer(parts)) is not None:
            slow.setdefault(measure.devices[rank], []).append(measure)
    for device, items in named.items():
        share = len(items) / seen[device]
        if len(items) < 3 or share < 0.2:
            continue
        lateness, cost = median(i[1] for i in items), max(i[2] for i in items)
        yield Finding(
            "straggler",
            "fault",
            f"rank of {facts.name_of(device)}",
            f"The others wait for the rank of {facts.name_of(device)}{facts.identity_of(device)}: it comes last "
            f"in {len(items)} of {seen[device]} collectives, {time_text(lateness)} after the next, up to "
            f"{percent(cost)} of the operation.",
            tuple(
                Evidence(f"{m.label} at {size_text(m.size)}: {time_text(late)} late, {percent(c)}", (m.case_key,))
                for m, late, c in items[:12]
            ),
            min(0.98, 0.85 + 0.13 * share),
            "Look at what else runs on that rank's cores (binding, interrupts, daemons), at its clock, and at its "
            "device's state.",
            cost,
            (device,),
        )
    for device, measures in slow.items():
        if len(measures) >= 3 and len(measures) >= 0.5 * seen[device] and device not in named:
            yield Finding(
                "slow_transfer",
                "note",
                f"rank of {facts.name_of(device)}",
                f"The rank of {facts.name_of(device)} is the last to finish in {len(measures)} of {seen[device]} "
                "collectives, though it starts with the others.",
                (Evidence("its transfer ends last", keys(measures[:12])),),
                0.7,
                "Compare its links and its device with their siblings.",
                0.0,
                (device,),
            )


def _split(facts: Facts, measure: Measure) -> Split | None:
    held = [s for identity in measure.identities if (s := facts.samples.of(identity)) is not None and s.host_clock]
    parts = [p for s in held if (p := s.matrix(measure.ranks)) is not None]
    if not parts:
        return None
    starts, lengths, scheduled = (np.concatenate([p[i] for p in parts]) for i in range(3))
    if (scheduled <= 0).any():
        return None
    return split(starts, lengths, scheduled)


def _uncertainty(facts: Facts, measure: Measure) -> float:
    """How far two ranks' arrivals may be wrong against each other, in ns: infinite where that is not known.

    Starts were scheduled by the offset found before the case, or within a long one by the one found last, and by its
    end are wrong by no more than what the offset after it differs by and is uncertain. All are against the first node,
    hence the sum of the two worst nodes'.
    """
    hosts = {facts.host_of(device) for device in measure.devices}
    if len(hosts) <= 1:
        return 0.0
    worst: dict[str, float] = {}
    for identity in measure.identities:
        values = facts.clock_comparisons.get(identity, {})
        for rank, device in enumerate(measure.devices):
            held = values.get(rank, {})
            try:
                moved = abs(held["clock_offset", "after"] - held["clock_offset", "before"])
                uncertain = max(held["clock_offset_uncertainty", "before"],
                                held.get(("clock_offset_uncertainty", "within"), 0.0))  # fmt: skip
                wrong = max(uncertain, moved + held["clock_offset_uncertainty", "after"])
            except KeyError:
                return float("inf")
            host = facts.host_of(device)
            worst[host] = max(worst.get(host, 0.0), wrong)
    return sum(sorted(worst.values())[-2:]) if worst else float("inf")
