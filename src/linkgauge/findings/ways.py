"""Rules about the ways between devices: tiers, copy-engine caps, ways by hops, unused parts, staging."""

from __future__ import annotations

import math
from collections.abc import Iterable

from linkgauge.findings.elements import between_nodes
from linkgauge.findings.facts import Facts
from linkgauge.findings.filled import FILLED_SHARE, filled, nic_rate, one_way
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, Settings, keys, median, rate_text
from linkgauge.findings.rule import rule
from linkgauge.findings.wiring import Way
from linkgauge.model.device_words import device_words
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import percent
from linkgauge.model.transports import over_host
from linkgauge.stats.alike import members_text
from linkgauge.system.remembered import remembered

Pair = tuple[int, int]
Placed = dict[Pair, tuple[Measure, Way]]

LARGE = 1 << 20


@remembered
def placed_pairs(facts: Facts, patterns: tuple[str, ...], small: bool = False) -> list[Placed]:
    """Return pair sets inside one node with their ways: each setting's largest size (the smallest for `small`)."""
    wiring = facts.wiring
    if wiring is None:
        return []
    chosen: dict[Settings, dict[Pair, Measure]] = {}
    for pairs in facts.pair_sets:
        one = next(iter(pairs.values()))
        if one.pattern not in patterns or (one.size > 4096 if small else one.size < LARGE):
            continue
        held = chosen.get(one.settings)
        size = next(iter(held.values())).size if held else None
        if size is None or (one.size < size if small else one.size > size):
            chosen[one.settings] = pairs
    result = []
    for pairs in chosen.values():
        one = next(iter(pairs.values()))
        placed: Placed = {}
        for pair, measure in pairs.items():
            over = over_host(one.transport, one.case.path)
            way = wiring.way(*pair, over_host=over) if facts.on_one_node(measure) else None
            if way is not None:
                placed[pair] = (measure, way)
        if len(placed) >= 2:
            result.append(placed)
    return result


def _by_rate(placed: Placed, kinds: tuple[str, ...] = ("direct", "switch")) -> dict[float, list[Measure]]:
    rated = ((way.rate, measure) for measure, way in placed.values()
             if way.kind in kinds and way.rate is not None and measure.goodput)  # fmt: skip
    return dict(sorted(grouped(rated).items()))


def level_of(measures: Iterable[Measure]) -> float:
    """Return the median one-way goodput of measures in bytes per second."""
    return median(one_way(m) for m in measures)


@rule("measured levels beside links of different width")
def bandwidth_tiers(facts: Facts) -> Iterable[Finding]:
    """Measured levels beside the described links, where these differ among pairs."""
    for placed in placed_pairs(facts, ("unidirectional", "pingpong", "bidirectional")):
        groups = _by_rate(placed)
        if len(groups) < 2:
            continue
        one = next(iter(placed.values()))[0]
        texts = [
            f"{rate_text(rate)}: {rate_text(level_of(g))} ({percent(level_of(g) / rate)})" for rate, g in groups.items()
        ]
        yield Finding(
            "bandwidth_tiers",
            "note",
            f"{one.label} at {size_text(one.size)}",
            f"{one.label} has {len(groups)} tiers by the links between the pairs; share of the links' nominal "
            f"rate: {'; '.join(texts)}.",
            tuple(
                Evidence(f"{len(g)} pairs with {rate_text(rate)}: {rate_text(level_of(g))} each way", keys(g))
                for rate, g in groups.items()
            ),
            0.9,
            "Place what exchanges most on the pairs with the widest links.",
        )


@rule("a copy engine that cannot fill a wide link")
def copy_engine_cap(facts: Facts) -> Iterable[Finding]:
    """A copy engine that gives the same rate on links of different width, or less than a kernel on the same link."""
    kernels = {
        pair: one_way(measure)
        for placed in placed_pairs(facts, ("unidirectional", "bidirectional"))
        for pair, (measure, _) in placed.items()
        if measure.transport == "kernel"
    }
    for placed in placed_pairs(facts, ("unidirectional", "pingpong", "bidirectional")):
        one = next(iter(placed.values()))[0]
        groups = _by_rate(placed, ("direct",))
        if one.transport != "copy_engine" or not groups or one.case.routed:
            continue
        rates = list(groups)
        widest, level = rates[-1], level_of(groups[rates[-1]])
        share = level / widest
        alike = [rate for rate in rates[:-1] if widest >= 1.5 * rate and abs(level_of(groups[rate]) / level - 1) < 0.05]
        by_kernel = [
            kernels[p] for p, (m, w) in placed.items() if w.rate == widest and w.kind == "direct" and p in kernels
        ]
        evidence = [
            Evidence(f"links of {rate_text(r)}: {rate_text(level_of(g))} ({percent(level_of(g) / r)})", keys(g))
            for r, g in groups.items()
        ]
        if share > 0.65 or _staged(facts, level, widest) or level < FILLED_SHARE * rates[0]:
            continue  # what does not even fill the narrowest of them is not limited by links or engines
        if alike:
            why = f"it gives {rate_text(level)} on links of {rate_text(widest)} and of {rate_text(alike[-1])} alike"
        elif by_kernel and median(by_kernel) > max(1.25 * level, FILLED_SHARE * widest):
            why = f"a kernel reaches {rate_text(median(by_kernel))} on the same links where it gives {rate_text(level)}"
        else:
            continue
        yield Finding(
            "copy_engine_cap",
            "loss",
            f"copy engine of {one.pattern}",
            f"The copy engine cannot fill a wide link: {why}, {percent(share)} of the widest.",
            tuple(evidence),
            0.95 if alike else 0.85,
            "Copy by kernel instead (transport kernel; HSA_ENABLE_SDMA=0 or HSA_ENABLE_PEER_SDMA=0 on AMD), or split a "
            "copy over several streams and engines.",
            1 - share,
        )


def _staged(facts: Facts, level: float, fabric: float) -> bool:
    """Whether a level is what host links give, where the fabric is much wider."""
    host = _host_rate(facts)
    return fabric >= 1.5 * host and level <= 1.1 * host and level < 0.5 * fabric


def _host_rate(facts: Facts) -> float:
    """The middle rate of the devices' host links; infinite where none is known."""
    hosts = list(facts.wiring.host_rates.values()) if facts.wiring else []
    return median(hosts) if hosts else math.inf


@rule("a way of fewest hops taken where a wider one exists")
def path_by_hops(facts: Facts) -> Iterable[Finding]:
    """Pairs whose rate is that of the way of fewest hops where a wider way exists."""
    wiring = facts.wiring
    if wiring is None:
        return
    for placed in placed_pairs(facts, ("unidirectional", "pingpong", "bidirectional")):
        one = next(iter(placed.values()))[0]
        found: list[tuple[Pair, Measure, float, float]] = []
        for pair, (measure, way) in placed.items():
            wide = wiring.widest_rates.get(pair)
            level = one_way(measure)
            if way.kind not in ("routed", "direct") or way.rate is None or wide is None or wide < 1.5 * way.rate:
                continue
            # That the transport could fill a wider way is shown by the pairs that have one.
            able = [
                one_way(m) for m, w in placed.values() if w.kind == "direct" and w.rate is not None and w.rate >= wide
            ]
            if 0.4 * way.rate <= level <= 1.02 * way.rate and able and median(able) > 1.2 * level:
                found.append((pair, measure, way.rate, wide))
        if not found:
            continue
        names = members_text([pair for pair, *_ in found], facts.noun)
        level = median(one_way(m) for _, m, *_ in found)
        wide = median(item[3] for item in found)
        yield Finding(
            "path_by_hops",
            "loss",
            f"{one.label} between {names}",
            f"{one.label} between {names} gets {rate_text(level)}, the rate of the way with fewest hops "
            f"({rate_text(found[0][2])}); a way of more hops allows {rate_text(wide)}.",
            tuple(
                Evidence(f"{device_words(pair, facts.noun)}: {rate_text(one_way(m))}", (m.case_key,))
                for pair, m, *_ in found
            ),
            0.85,
            "Relay such transfers through the devices on the wide way (dimension via), or place the exchange on "
            "other devices.",
            1 - level / wide,
        )


@rule("exactly one half, third or quarter of what the same way gives by other means")
def rail_unused(facts: Facts) -> Iterable[Finding]:
    """A level that is one of k of what the same way gives by other means: a rail, lane or engine that is not used."""
    levels: dict[tuple[bool, str, int], dict[str, list[tuple[Pair, Measure]]]] = {}
    for pairs in facts.pair_sets:
        for pair, measure in pairs.items():
            if (
                measure.size < LARGE
                or measure.pattern == "flag_pingpong"
                or measure.case.routed
                or over_host(measure.transport, measure.case.path)
            ):
                continue
            between = between_nodes(facts, pair)
            memory = "device" if measure.case.source_memory == "device" else "host"
            means = f"{facts.shown(measure.transport)} {memory} memory"
            # Inside a node host memory takes other wires: only between nodes does it tell of the same ones.
            if between or memory == "device":
                of_size = levels.setdefault((between, measure.pattern, measure.size), {})
                of_size.setdefault(means, []).append((pair, measure))
    explained = {m for f in (*copy_engine_cap(facts), *host_staging(facts)) for e in f.evidence for m in e.case_keys}
    worst: dict[tuple[bool, str], Finding] = {}
    for (between, name, size), by_means in levels.items():
        for mine, items in by_means.items():
            if any(m.case_key in explained for _, m in items):
                continue
            finding = _one_of_k(facts, name, size, mine, by_means, between)
            if finding is not None:
                held = worst.get((between, mine))
                if held is None or finding.effect > held.effect:
                    worst[(between, mine)] = finding
    yield from worst.values()


def _one_of_k(
    facts: Facts, name: str, size: int, mine: str, means: dict[str, list[tuple[Pair, Measure]]], between: bool
) -> Finding | None:
    items = means[mine]
    for other, theirs in means.items():
        if other == mine or not _fills(facts, theirs):
            continue  # what the way gives is not known
        best = {pair: one_way(m) for pair, m in theirs}
        ratios = [one_way(m) / best[pair] for pair, m in items if best.get(pair)]
        if len(ratios) < 2:
            continue
        ratio = median(ratios)
        steady = [abs(r / ratio - 1) < 0.05 for r in ratios]
        for parts in (2, 3, 4):
            if abs(ratio * parts - 1) < 0.025 and sum(steady) >= 0.9 * len(steady):
                where = "between nodes" if between else "inside the node"
                level = median(one_way(m) for _, m in items)
                fraction = {2: "one half", 3: "one third", 4: "one quarter"}[parts]
                return Finding(
                    "rail_unused",
                    "loss",
                    f"{mine} {where}",
                    f"{name} of {mine} {where} reaches {fraction} of what {other} reaches on the same way "
                    f"({percent(ratio, 1)}): one of {parts} rails, lanes or engines is used.",
                    (
                        Evidence(f"{mine} at {size_text(size)}: {rate_text(level)}", keys(m for _, m in items)),
                        Evidence(f"{other}: {rate_text(median(best.values()))}", keys(m for _, m in theirs)),
                    ),
                    0.9,
                    _unused_fix(between),
                    1 - ratio,
                )
    return None


def _fills(facts: Facts, items: list[tuple[Pair, Measure]]) -> bool:
    """Whether these pairs reach what their links allow, so that one of k of it is one of k links."""
    rates: list[float | None] = []
    for pair, _ in items:
        if between_nodes(facts, pair):
            rates.append(nic_rate(facts, pair))
        else:
            way = facts.wiring.way(*pair) if facts.wiring else None
            rates.append(way.rate if way else None)
    measures = [m for _, m in items]
    return all(filled(facts, measures, [(rate,) for rate in rates], rates))


def _unused_fix(between: bool) -> str:
    if between:
        return (
            "Let the library use all rails for device memory (UCX_MAX_RNDV_RAILS, NCCL_IB_HCA naming every NIC, "
            "NCCL_CROSS_NIC), and check that each NIC's port is up."
        )
    return (
        "Use several channels, streams or engines (NCCL_MIN_P2P_NCHANNELS; of RCCL "
        "NCCL_NCHANNELS_PER_PEER, HSA_ENABLE_SDMA=0)."
    )


@rule("device memory that goes through the host where a direct way exists")
def host_staging(facts: Facts) -> Iterable[Finding]:
    """Device memory that travels at the rate of host links where a direct way is much wider."""
    for placed in placed_pairs(facts, ("unidirectional", "pingpong", "bidirectional")):
        one = next(iter(placed.values()))[0]
        if (
            over_host(one.transport, one.case.path)
            or one.case.source_memory != "device"
            or one.case.target_memory != "device"
            or one.case.routed
        ):
            continue
        host = _host_rate(facts)
        wide = [(m, w.rate) for m, w in placed.values()
                if w.kind in ("direct", "switch") and w.rate is not None and w.rate >= 1.5 * host]  # fmt: skip
        staged = [(m, rate) for m, rate in wide if one_way(m) <= 1.1 * host and one_way(m) < 0.5 * rate]
        if len(wide) < 2 or len(staged) < 0.75 * len(wide):
            continue
        level, rate = median(one_way(m) for m, _ in staged), median(r for _, r in staged)
        settings = _settings(facts, one)
        yield Finding(
            "host_staging",
            "loss",
            f"{facts.shown(one.transport)} {one.pattern}",
            f"{one.label} moves device memory at {rate_text(level)}, what host links give ({rate_text(host)}), "
            f"although the direct links allow {rate_text(rate)}: the bytes go through the host.",
            (Evidence(f"{len(staged)} of {len(wide)} directly joined pairs at {size_text(one.size)}",
                      keys(m for m, _ in staged)),),
            0.9,
            _staging_fix(one.transport) + (f" Settings of the launch: {settings}." if settings else ""),
            1 - level / rate,
        )  # fmt: skip


def _settings(facts: Facts, measure: Measure) -> str:
    launches = {identity[1] for identity in measure.identities}
    variables = (pair for launch in facts.launches if launch.launch in launches for pair in launch.env.items())
    return ", ".join(dict.fromkeys(
        f"{name}={value}" for name, value in variables
        if any(word in name for word in ("P2P", "IPC", "TLS", "GDR", "CUDA", "GPU", "SHM"))
    ))  # fmt: skip


def _staging_fix(transport: str) -> str:
    if transport == "mpi":
        return (
            "Use a GPU-aware build of the MPI library with CUDA IPC (UCX_TLS must include cuda_ipc or rocm_ipc, "
            "MPICH_GPU_SUPPORT_ENABLED=1), and GDRCopy for small messages; 'linkgauge doctor' says what is missing."
        )
    if transport == "ccl":
        return "Unset NCCL_P2P_DISABLE, raise NCCL_P2P_LEVEL, and check that containers share IPC and that ACS is off."
    return (
        "Switch peer access on, and check that IOMMU and ACS settings and the container allow it ('linkgauge doctor')."
    )
