"""Rules about how near devices lie: NUMA effects among pairs, PCIe anti-locality, PCIe links below their width."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from linkgauge.findings.facts import Facts
from linkgauge.findings.filled import filled, one_way
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, keys, median, rate_text
from linkgauge.findings.rule import rule
from linkgauge.findings.ways import level_of, placed_pairs
from linkgauge.findings.wiring import Way
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import percent
from linkgauge.stats.rank_sum import rank_sum_p_value

_FULL = 16 << 20  # from here on a copy over PCIe is no longer slowed by its start


_Shape = float | None | tuple[int, float | None]
"""Of neighbors the rate of their links in bytes per second, of remote pairs how many links and the narrowest one's."""


@rule("pairs that differ by where they lie: distance, width, route")
def numa_effects(facts: Facts) -> Iterable[Finding]:
    """Pairs that differ by where they lie: neighbor against remote, by width, and remote pairs by route."""
    for small in (True, False):
        for placed in placed_pairs(facts, ("pingpong", "unidirectional", "flag_pingpong"), small=small):
            one = next(iter(placed.values()))[0]
            groups = grouped((_kind(way), measure) for measure, way in placed.values())
            texts = _kinds(groups)
            if not texts:
                continue
            yield Finding(
                "numa_effects",
                "note",
                f"{one.label} at {size_text(one.size)}",
                f"Where devices lie matters to {one.label} at {size_text(one.size)}: {'; '.join(texts)}.",
                tuple(
                    Evidence(f"{kind} {_shape_text(shape)}: {median(m.time_ns for m in g) / 1e3:.4g} µs over {len(g)} "
                             "pairs", keys(g)) for (kind, shape), g in groups.items()
                ),
                0.85,
                "Order ranks so that neighbors in the program are neighbors in the machine (CUDA_VISIBLE_DEVICES, "
                "ROCR_VISIBLE_DEVICES).",
            )  # fmt: skip


def _shape_text(shape: _Shape) -> str:
    return f"over {shape[0]} links" if isinstance(shape, tuple) else f"with {rate_text(shape)}"


def _kind(way: Way) -> tuple[str, _Shape]:
    return ("neighbor", way.rate) if way.kind in ("direct", "switch") else ("remote", (way.hops, way.rate))


def _kinds(groups: dict[tuple[str, _Shape], list[Measure]]) -> list[str]:
    texts = []
    near = {shape: g for (kind, shape), g in groups.items() if kind == "neighbor"}
    far = {shape: g for (kind, shape), g in groups.items() if kind == "remote"}
    if near and far:
        a, b = (median(m.time_ns for g in side.values() for m in g) for side in (near, far))
        if b > 1.1 * a:
            texts.append(f"remote pairs take {b / a:.2g} times as long as neighbors")
    for side, words in (
        (near, "neighbors differ by the width of their links"),
        (far, "remote pairs differ by their route"),
    ):
        medians = [median(m.time_ns for m in g) for g in side.values()]
        if len(medians) > 1 and max(medians) > 1.1 * min(medians):
            texts.append(f"{words}, by a factor of {max(medians) / min(medians):.2g}")
    return texts


@rule("pairs over PCIe that are nearer and slower")
def anti_locality(facts: Facts) -> Iterable[Finding]:
    """Pairs over PCIe that are nearer and slower (Li et al., Section 3.2: pairs under one switch)."""
    for placed in placed_pairs(facts, ("unidirectional", "bidirectional", "pingpong")):
        one = next(iter(placed.values()))[0]
        hosts = list(facts.wiring.host_rates.values()) if facts.wiring else []
        by_hops: dict[int, list[Measure]] = {}
        rates: dict[str, float | None] = {}
        for pair, (measure, way) in placed.items():
            host = way if way.kind == "host" else (facts.wiring.host_ways.get(pair) if facts.wiring else None)
            if host is None:
                continue
            if way.kind != "host" and not (
                hosts and way.rate and way.rate >= 1.2 * median(hosts) and one_way(measure) <= 0.95 * median(hosts)
            ):
                by_hops = {}
                break
            by_hops.setdefault(host.hops, []).append(measure)
            rates[measure.case_key] = host.rate
        if len(by_hops) < 2:
            continue
        nearest = min(by_hops)
        near, far = by_hops[nearest], [m for hops, group in by_hops.items() if hops > nearest for m in group]
        if len(near) < 2 or len(far) < 3:
            continue
        if not all(filled(facts, far, [()] * len(far), [rates[m.case_key] for m in far])):
            continue  # what the links allow is not what holds them back
        a, b = level_of(near), level_of(far)
        rates_near, rates_far = (np.array([one_way(m) for m in group]) for group in (near, far))
        p_value = rank_sum_p_value(rates_near, rates_far, "less")
        if a > 0.9 * b or p_value > 0.01:
            continue
        yield Finding(
            "anti_locality",
            "loss",
            f"{one.label} over PCIe",
            f"Pairs under one PCIe switch are slower than pairs further apart: {rate_text(a)} against {rate_text(b)} "
            f"each way ({one.label} at {size_text(one.size)}).",
            (
                Evidence(f"{len(near)} near pairs ({nearest} links): {rate_text(a)} each way", keys(near)),
                Evidence(f"{len(far)} far pairs: {rate_text(b)} each way", keys(far)),
            ),
            0.95,
            "Switch ACS off on the PCIe switches (peer traffic then need not go up to the root), or pair devices of "
            "different switches.",
            1 - a / b,
        )


@rule("PCIe links below the width or generation that both ends can do", faults=True)
def pcie_below_width(facts: Facts) -> Iterable[Finding]:
    """PCIe links that trained below what both ends can, as discovery saw them or as host copies show."""
    system = facts.system
    if system is None:
        return
    for link in system.links:
        trained, possible = link.data_rate, link.possible_rate
        if link.kind == "pcie" and trained and possible and possible.value > 1.05 * trained.value:
            subject = f"PCIe link {link.a} - {link.b}"
            yield Finding(
                "pcie_below_width",
                "fault",
                subject,
                f"{subject} is trained at {rate_text(trained.value)} where both ends can do "
                f"{rate_text(possible.value)}.",
                (Evidence(f"trained: generation {link.version}, x{link.width} ({trained.source})"),),
                0.95,
                "Idle devices may lower their generation to save power: look under load (nvidia-smi -q -d PCIE). If it "
                "stays, reseat the device, look at slot, riser and the firmware's setting.",
                1 - trained.value / possible.value,
            )
    yield from _narrow_by_rate(facts)


def _narrow_by_rate(facts: Facts) -> Iterable[Finding]:
    wiring = facts.wiring
    if wiring is None:
        return
    wanted = ("host_to_device", "device_to_host")
    groups = facts.grouped(lambda m: m.settings if m.pattern in wanted and m.ranks == 1 and m.size >= _FULL else None)
    told: dict[int, list[Measure]] = {}
    # What any copy reached, its link can: one size or direction alone may be slow by where its buffer lies.
    best: dict[int, float] = {}
    for measure in (one for group in groups.values() for one in group):
        device = measure.devices[0]
        if rate := wiring.host_rates.get(device):
            best[device] = max(best.get(device, 0.0), (measure.goodput or 0.0) / rate)
    for group in groups.values():
        one = group[0]
        if "pinned" not in (one.case.source_memory, one.case.target_memory):
            continue
        size = max(m.size for m in group)
        measures = [m for m in group if m.size == size and m.goodput]
        known = [(m, wiring.host_rates[m.devices[0]]) for m in measures if m.devices[0] in wiring.host_rates]
        shares = [(m.goodput or 0.0) / rate for m, rate in known]
        for parts in (2, 4):
            # Payload is 80 to 95 % of a PCIe link's data rate: half of that is a band that full width never falls into.
            most = max((best[m.devices[0]] for m, _ in known), default=0.0)
            if known and 0.78 / parts <= median(shares) <= 0.96 / parts and most < 1.1 / parts:
                told.setdefault(parts, []).extend(m for m, _ in known)
    for parts, measures in told.items():
        shares = [(m.goodput or 0.0) / wiring.host_rates[m.devices[0]] for m in measures]
        yield Finding(
            "pcie_below_width",
            "loss",
            "host links of all devices",
            f"Copies between host and every device reach {percent(median(shares))} of the described link: as if "
            f"1/{parts} of its width or one generation less were in use.",
            (Evidence(f"{len(measures)} cases: {rate_text(median(m.goodput or 0.0 for m in measures))}",
                      keys(measures)),),
            0.7,
            "Compare with the link as trained (nvidia-smi -q -d PCIE, lspci -vv LnkSta) and with the memory node of "
            "the buffers (--bind).",
            1 - 1 / parts,
        )  # fmt: skip
