"""The planted causes: each changes a made-up machine by one fault and says which finding would be right."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from planting import BEGINS_NS, LASTS_NS, MIB, SWEEP, World

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Finding
from linkgauge.findings.samples import Identity, RankSeries, Samples
from linkgauge.model.case import Case
from linkgauge.model.patterns import pattern
from linkgauge.stats.other_users import other_users
from linkgauge.system import catalog
from linkgauge.system.model import System
from linkgauge.system.shipped import nodes
from results import launches_of, measures_of, observation_of, results_of

Right = Callable[[Finding], bool]


@functools.cache
def system(name: str) -> System:
    return catalog.load(name)


# What is planted needs a pair; racks have 1260 pairs and more, so that they get one variant, not many.
SYSTEMS = tuple(name for name in nodes() if 2 <= len(system(name).devices) <= 16)


class MadeUp(Facts):
    """Facts of a machine of no known kind: what is known of real machines says nothing of made-up rates."""

    likeness = None


def facts_of(world: World) -> Facts:
    def series(identity: Identity) -> RankSeries | None:
        columns = world.samples_of.get(identity)
        return None if columns is None else RankSeries(**columns, host_clock=True)

    observations = list(map(observation_of, world.observations))
    return MadeUp(
        measures_of(world.rows),
        observations=observations,
        launches=launches_of(world.launches()),
        system=world.system,
        samples=Samples(series),
        used=other_users(results_of(world.rows), observations, world.system),
    )


def made_of_cores(facts: Facts) -> None:
    """Make all devices of `facts` host devices."""
    facts.launches = [
        dataclasses.replace(launch, ranks=tuple(dataclasses.replace(rank, device_kind="host") for rank in launch.ranks))
        for launch in facts.launches
    ]
    facts.__dict__.pop("devices", None)


@dataclasses.dataclass(frozen=True)
class Planted:
    world: World
    right: Right
    what: str


def _new(seed: int, names: tuple[str, ...], **settings: object) -> World:
    rng = np.random.default_rng(seed)
    return World(system(names[seed % len(names)]), rng, **settings)  # type: ignore[arg-type]


def clean(seed: int, loudness: float = 1.0) -> Planted:
    world = _new(seed, SYSTEMS, loudness=loudness)
    world.measure_all()
    return Planted(world, lambda f: f.severity == "note", f"clean {world.system.name}")


def _joined(world: World) -> list[tuple[int, int]]:
    """Pairs that one bundle of links, or switches, join."""
    ordinals = sorted(world.names)
    return [
        (a, b)
        for a in ordinals
        for b in ordinals
        if a != b
        and (
            world.fabric.has_edge(world.names[a], world.names[b])
            or any(world.system.node(n).kind == "switch" for n in world.way(a, b)[0][1:-1] if n in world.fabric)
        )
    ]


@functools.cache
def _has_links(name: str) -> bool:
    return bool(_joined(World(system(name), np.random.default_rng(0))))


def _pairs_of(case: Case) -> set[tuple[int, ...]]:
    """Return the ordered pairs whose links a case uses; none of a case on single devices."""
    if pattern(case.pattern).ranks != "2" and not pattern(case.pattern).collective:
        return set()
    if case.pattern in ("pingpong", "bidirectional"):
        return {case.devices[:2], case.devices[1::-1]}
    return set(itertools.permutations(case.devices, 2)) if len(case.devices) > 2 else {case.devices[:2]}


def slow_link(
    seed: int, loudness: float = 1.0, names: tuple[str, ...] = SYSTEMS, samples: int = 48, sweeps: bool = True
) -> Planted:
    """One bundle between two devices, or one device's port of a switch, at 50 to 90 % of its rate."""
    world = _new(seed, tuple(filter(_has_links, names)), samples=samples, loudness=loudness)
    rng, joined = world.rng, _joined(world)
    a, b = joined[int(rng.integers(len(joined)))]
    direct = world.fabric.has_edge(world.names[a], world.names[b])
    # On a system of a single pair only one direction can be told from the other.
    one_way = bool(rng.random() < 0.4) or len(world.names) == 2
    factor = 1 / float(rng.uniform(0.5, 0.9))

    def slowness(case: Case) -> float:
        worst = 1.0
        for x, y in _pairs_of(case):
            mine = list(world.way(x, y)[0])
            arcs = set(itertools.pairwise(mine)) if direct else set()
            if direct:
                hit = (world.names[a], world.names[b]) in arcs or (
                    not one_way and (world.names[b], world.names[a]) in arcs
                )
                # A longer way is slowed only where this bundle is its narrowest.
                if hit and len(mine) > 2:
                    hit = world.fabric[world.names[a]][world.names[b]]["rate"] <= world.way(x, y)[1]
            else:
                hit = x == a or (not one_way and y == a)
            worst = max(worst, factor if hit else 1.0)
        return worst

    world.slowness.append(slowness)
    world.measure_all(sweeps)
    if direct:
        subject = f"link GPU {min(a, b)} - GPU {max(a, b)}"
        return Planted(
            world,
            lambda f: f.rule == "slow_link" and f.subject == subject,
            f"{world.system.name}: link {a}-{b} x{1 / factor:.2f} {'one way' if one_way else 'both ways'}",
        )
    return Planted(
        world,
        lambda f: f.rule == "slow_port" and f.devices == (a,),
        f"{world.system.name}: port of {a} x{1 / factor:.2f} {'out' if one_way else 'both'}",
    )


SWITCHED = ("dgx-2", "hgx-h100-8", "hgx-h200-8")


def slow_pair(seed: int, loudness: float = 1.0) -> Planted:
    """Two devices of a switch that alone reach 50 to 90 % of their rate, as a wrong route inside it makes them."""
    world = _new(seed, SWITCHED, loudness=loudness)
    rng, joined = world.rng, _joined(world)
    a, b = joined[int(rng.integers(len(joined)))]
    one_way = bool(rng.random() < 0.4)
    factor = 1 / float(rng.uniform(0.5, 0.9))

    def slowness(case: Case) -> float:
        used = _pairs_of(case)
        return factor if (a, b) in used or (not one_way and (b, a) in used) else 1.0

    world.slowness.append(slowness)
    world.measure_all()
    return Planted(
        world,
        lambda f: f.rule == "slow_pair" and set(f.devices) == {a, b},
        f"{world.system.name}: pair {a}-{b} x{1 / factor:.2f} {'one way' if one_way else 'both ways'}",
    )


NETWORKED = ("alps", "leonardo-booster", "lumi-g", "summit", "frontier", "v100-dgx-1")


def half_a_rail(seed: int, loudness: float = 1.0) -> Planted:
    """Device memory between nodes at one half of what host memory reaches: one of two rails (Merenda and Perchet,
    Fig. 6).
    """
    world = _new(seed, NETWORKED, hosts=("n0", "n1"), loudness=loudness)
    count = len(world.names)
    pairs = [(a, count + b) for a in range(min(count, 4)) for b in range(min(count, 4))]
    for a, b in pairs:
        for size in (1 << 20, 64 * MIB):
            world.add("mpi", "unidirectional", size, (a, b), source_memory="pinned", target_memory="pinned")
    world.slowness.append(lambda case: 2.0 if case.source_memory == "device" else 1.0)
    for a, b in pairs:
        for size in (1 << 20, 64 * MIB):
            world.add("mpi", "unidirectional", size, (a, b))
            world.add("mpi", "unidirectional", size, (b, a))
    return Planted(
        world, lambda f: f.rule == "rail_unused" and "half" in f.sentence, f"{world.system.name}: half a rail"
    )


def slow_nic(seed: int, loudness: float = 1.0) -> Planted:
    """One NIC at a half or less, on one of three nodes with one NIC a device."""
    world = _new(seed, ("alps", "leonardo-booster"), hosts=("n0", "n1", "n2"), loudness=loudness)
    count = len(world.names)
    bad = int(world.rng.integers(3 * count))
    factor = 1 / float(world.rng.uniform(0.4, 0.85))
    world.slowness.append(lambda case: factor if bad in case.devices else 1.0)
    for a in range(3 * count):
        for b in range(3 * count):
            if a // count != b // count:
                world.add("mpi", "unidirectional", 64 * MIB, (a, b))
    host = world.hosts[bad // count]

    def right(f: Finding) -> bool:
        return f.rule == "slow_nic" and host in f.subject and f.subject.endswith(str(bad % count))

    return Planted(world, right, f"{world.system.name}: NIC of device {bad}")


PCIE = ("p100-dgx-1", "v100-dgx-1", "dgx-2")


def anti_locality(seed: int, loudness: float = 1.0) -> Planted:
    """Pairs under one PCIe switch at 50 to 80 % of the others (Li et al.: 9.3 to 10.5 against 17 to 18 GB/s, both
    ways).
    """
    world = _new(seed, PCIE, loudness=loudness)
    factor = 1 / float(world.rng.uniform(0.5, 0.8))
    world.slowness.append(
        lambda case: factor if case.path == "pcie" and len(world.way(*case.devices[:2], True)[0]) == 3 else 1.0
    )
    for a in sorted(world.names):
        for b in sorted(world.names):
            if a < b:
                world.add("copy_engine", "bidirectional", 64 * MIB, (a, b), path="pcie")
    world.measure_all(sweeps=False)
    return Planted(world, lambda f: f.rule == "anti_locality", f"{world.system.name}: anti-locality x{1 / factor:.2f}")


def protocol_step(seed: int, loudness: float = 1.0) -> Planted:
    """One transport's ping-pong takes longer by 0.5 to 2 times from some size on, seen at every power of two or, with
    four sizes on either side, at every power of eight.
    """
    world = _new(seed, SYSTEMS, loudness=loudness)
    transport = str(world.rng.choice(["copy_engine", "kernel", "mpi"]))
    finely = bool(world.rng.random() < 0.5)
    sizes = tuple(1 << power for power in range(3, 31)) if finely else SWEEP
    at = int(world.rng.choice(SWEEP[2:6] if finely else SWEEP[4:6]))
    extra = float(world.rng.uniform(0.5, 2.0))
    below = max(size for size in sizes if size < at)

    def step(case: Case) -> float:
        if case.pattern != "pingpong" or case.transport != transport or case.size < at:
            return 0.0
        return extra * world.clean_time(Case(case.transport, case.pattern, below, below, case.devices))

    world.extra_ns.append(step)
    world.measure_all()
    for size in set(sizes) - set(SWEEP):
        world.add(transport, "pingpong", size, world.first_pair)
    size = {512: "512 B", 4096: "4 KiB", 32768: "32 KiB", 262144: "256 KiB"}[at]
    return Planted(
        world,
        lambda f: f.rule == "latency_step" and transport in f.subject and f.subject.endswith(size),
        f"{world.system.name}: {transport} steps by {extra:.2f} at {at}",
    )


def drift(seed: int, loudness: float = 1.0) -> Planted:
    """All cases of one device, or of the run, get slower while they are measured."""
    world = _new(seed, SYSTEMS, samples=240, loudness=loudness)
    share = float(world.rng.uniform(0.06, 0.25))
    device = int(world.rng.integers(min(8, len(world.names))))
    everywhere = bool(world.rng.random() < 0.5)

    def change(case: Case, index: np.ndarray) -> np.ndarray:
        hit = everywhere or device in case.devices
        return 1 + share * index / index[-1] if hit else np.ones(index.size)

    world.over_time.append(change)
    devices = sorted(world.names)[:8]
    for a in devices:
        for b in devices:
            if a != b:
                world.add("copy_engine", "unidirectional", 64 * MIB, (a, b))
    for size in SWEEP[1:]:
        world.add("ccl", "allreduce", size, tuple(devices))
    return Planted(world, lambda f: f.rule == "drifting", f"{world.system.name}: drift {share:.2f}")


def straggler(seed: int, loudness: float = 1.0) -> Planted:
    """One rank comes late to every collective by 20 to 60 % of a short one."""
    world = _new(seed, tuple(name for name in SYSTEMS if len(system(name).devices) > 2), loudness=loudness)
    devices = sorted(world.names)[:8]
    late = int(world.rng.integers(len(devices)))
    lateness = float(world.rng.uniform(3_000, 12_000))

    def how(case: Case) -> np.ndarray:
        ranks = np.zeros(case.ranks)
        if pattern(case.pattern).collective and late in case.devices:
            ranks[case.devices.index(late)] = lateness
        return ranks

    world.lateness.append(how)
    world.measure_all()
    return Planted(
        world, lambda f: f.rule == "straggler" and f.devices == (late,), f"{world.system.name}: straggler {late}"
    )


def slow_host_link(seed: int, loudness: float = 1.0) -> Planted:
    """One device's PCIe link at a half or a quarter."""
    world = _new(seed, tuple(name for name in SYSTEMS if len(system(name).devices) >= 4), loudness=loudness)
    bad = int(world.rng.integers(len(world.names)))
    factor = float(world.rng.choice([2.0, 4.0]))
    world.slowness.append(
        lambda case: factor if case.pattern in ("host_to_device", "device_to_host") and bad in case.devices else 1.0
    )
    world.measure_all()
    return Planted(
        world, lambda f: f.rule == "slow_host_link" and f.devices == (bad,), f"{world.system.name}: host link of {bad}"
    )


def engine_cap(seed: int, loudness: float = 1.0) -> Planted:
    """Copy engines that stop at 50 GB/s where links are wider (Schieffer et al., Fig. 7)."""
    world = _new(seed, ("lumi-g", "frontier"), loudness=loudness)

    def slowness(case: Case) -> float:
        if case.transport != "copy_engine" or case.pattern not in ("unidirectional", "pingpong"):
            return 1.0
        return max(1.0, world.way(*case.devices[:2])[1] * 0.9 / 49e9)

    world.slowness.append(slowness)
    world.measure_all()
    return Planted(world, lambda f: f.rule == "copy_engine_cap", f"{world.system.name}: cap")


def staged(seed: int, loudness: float = 1.0) -> Planted:
    """A library that goes through the host between devices that are joined by much wider links."""
    world = _new(
        seed, ("alps", "hgx-h100-8", "hgx-h200-4", "leonardo-booster", "dgx-2", "gb200-tray"), loudness=loudness
    )
    ordinals = sorted(world.names)
    host = np.median([world.host_rate(d) for d in ordinals])
    if world.way(0, 1)[1] < 1.6 * host:
        return staged(seed + 1, loudness)

    def slowness(case: Case) -> float:
        return (
            world.way(*case.devices[:2])[1] * 0.82 / (0.7 * host)
            if case.transport == "mpi" and pattern(case.pattern).ranks == "2"
            else 1.0
        )

    world.slowness.append(slowness)
    for a in ordinals:
        for b in ordinals:
            if a != b:
                world.add("mpi", "unidirectional", 64 * MIB, (a, b))
    world.measure_all()
    return Planted(world, lambda f: f.rule == "host_staging" and "mpi" in f.subject, f"{world.system.name}: staged")


def five_of_eight(seed: int, loudness: float = 1.0) -> Planted:
    """Allreduce on one count of devices at a tenth to six tenths (Li et al., Fig. 21: five of eight)."""
    world = _new(seed, ("p100-dgx-1", "v100-dgx-1", "dgx-2", "hgx-h100-8", "lumi-g", "mi300x-8"), loudness=loudness)
    count = int(world.rng.choice([3, 5, 6]))
    factor = 1 / float(world.rng.uniform(0.1, 0.6))
    world.slowness.append(lambda case: factor if case.pattern == "allreduce" and case.ranks == count else 1.0)
    world.measure_all()

    def right(f: Finding) -> bool:
        return f.rule == "device_counts" and f"on {count} " in f.subject

    return Planted(world, right, f"{world.system.name}: {count} devices")


def falling(seed: int, loudness: float = 1.0) -> Planted:
    """One transport's ping-pong takes 1.4 to 3 times as long from some large size on."""
    world = _new(seed, SYSTEMS, loudness=loudness)
    transport = str(world.rng.choice(["copy_engine", "kernel", "mpi"]))
    at = int(world.rng.choice(SWEEP[-2:]))  # at smaller sizes overhead still hides what the wires lose
    factor = float(world.rng.uniform(1.4, 3.0))
    world.slowness.append(
        lambda case: factor if (case.pattern, case.transport) == ("pingpong", transport) and case.size >= at else 1.0
    )
    world.measure_all()
    return Planted(
        world,
        lambda f: f.rule == "falling_goodput" and f.subject.startswith(f"{transport} pingpong"),
        f"{world.system.name}: {transport} falls by {factor:.2f} at {at}",
    )


def bad_choice(seed: int, loudness: float = 1.0) -> Planted:
    """A library's own choice for allreduce takes 1.15 to 2 times what another algorithm takes, at two sizes or more."""
    world = _new(seed, tuple(name for name in SYSTEMS if len(system(name).devices) > 2), loudness=loudness)
    first = int(world.rng.integers(1, len(SWEEP) - 2))
    sizes = SWEEP[first : first + int(world.rng.integers(2, 5))]
    factor = 1 / float(world.rng.uniform(1.15, 2.0))
    world.slowness.append(lambda case: factor if case.algorithm == "RING" and case.size_requested in sizes else 1.0)
    world.measure_all()
    group = tuple(sorted(world.names)[:8])
    for size in SWEEP[1:]:
        world.add("ccl", "allreduce", size, group, algorithm="RING")
    return Planted(
        world,
        lambda f: f.rule == "library_choice" and "allreduce" in f.subject,
        f"{world.system.name}: RING better by {1 / factor:.2f} at {sizes}",
    )


def far(seed: int, loudness: float = 1.0) -> Planted:
    """A library's allreduce at 12 to 50 % of what it reaches elsewhere, on every count of devices."""
    world = _new(seed, tuple(name for name in SYSTEMS if len(system(name).devices) > 2), loudness=loudness)
    factor = 1 / float(world.rng.uniform(0.12, 0.5))
    world.slowness.append(lambda case: factor if case.pattern == "allreduce" else 1.0)
    world.measure_all()
    return Planted(
        world,
        lambda f: f.rule == "collective_below_limit" and "allreduce" in f.subject,
        f"{world.system.name}: allreduce x{1 / factor:.2f}",
    )


def narrow_host(seed: int, loudness: float = 1.0) -> Planted:
    """Every device's PCIe link at a half or a quarter of its described rate."""
    silent = ("gaudi2-8", "gaudi3-8", "mi300a-4")  # their links with the host are not described, or in the package
    able = tuple(name for name in SYSTEMS if len(system(name).devices) >= 4 and name not in silent)
    world = _new(seed, able, loudness=loudness)
    factor = float(world.rng.choice([2.0, 4.0]))
    world.slowness.append(lambda case: factor if case.pattern in ("host_to_device", "device_to_host") else 1.0)
    world.measure_all()
    return Planted(world, lambda f: f.rule == "pcie_below_width", f"{world.system.name}: all host links /{factor:g}")


def spikes(seed: int, loudness: float = 1.0) -> Planted:
    """Every so many samples one takes 1.6 to 3 times as long, in every case."""
    world = _new(seed, SYSTEMS, samples=240, loudness=loudness)
    period, height = int(world.rng.integers(10, 25)), float(world.rng.uniform(1.6, 3.0))
    world.over_time.append(lambda case, index: np.where(index % period == period // 2, height, 1.0))
    devices = sorted(world.names)[:8]
    for a in devices:
        for b in devices:
            if a != b:
                world.add("copy_engine", "unidirectional", 64 * MIB, (a, b))
    return Planted(world, lambda f: f.rule == "periodic_spikes", f"{world.system.name}: spikes of {height:.1f}")


def _matrices(world: World, size: int = 256 * MIB) -> None:
    """All ordered pairs by three transports more, as the default plan has them."""
    for a, b in itertools.permutations(sorted(world.names)[:8], 2):
        for transport in ("kernel", "ccl", "mpi"):
            world.add(transport, "unidirectional", size, (a, b))


def slow_from(seed: int, loudness: float = 1.0) -> Planted:
    """A device whose cases all take 10 to 40 % longer from a moment in the middle of the run on."""
    # With two devices, or pairs that have few like them, it cannot be told from slow links.
    able = tuple(name for name in SYSTEMS if len(system(name).devices) >= 4 and name != "v100-dgx-1")
    world = _new(seed, able, loudness=loudness)
    device = int(world.rng.integers(min(8, len(world.names))))
    factor = 1 + float(world.rng.uniform(0.1, 0.4))
    moment = BEGINS_NS + LASTS_NS * float(world.rng.uniform(0.35, 0.65))
    world.from_moment.append(lambda case, at: factor if device in case.devices and at >= moment else 1.0)
    world.measure_all()
    _matrices(world)
    return Planted(
        world,
        lambda f: f.rule == "slow_from" and f.devices == (device,),
        f"{world.system.name}: device {device} x{1 / factor:.2f} from {(moment - BEGINS_NS) / 1e9:.0f} s on",
    )


def timer(seed: int, loudness: float = 1.0) -> Planted:
    """Something that delays whatever runs on the node by 30 to 60 us, every 7 to 15 ms."""
    able = tuple(name for name in SYSTEMS if len(system(name).devices) > 2)  # two devices: too few cases
    world = _new(seed, able, samples=240, sigma=0.005, loudness=loudness)
    period, delay = float(world.rng.uniform(7e6, 15e6)), float(world.rng.uniform(30e3, 60e3))
    world.ticks.append(lambda case, at, lasts: delay * (math.floor((at + lasts) / period) - math.floor(at / period)))
    world.measure_all()
    _matrices(world, 16 * MIB)

    def right(f: Finding) -> bool:
        return (
            f.rule == "periodic_spikes" and f.subject == "the node" and _period_of(f) == pytest.approx(period, rel=0.01)
        )

    return Planted(world, right, f"{world.system.name}: {delay / 1e3:.0f} us every {period / 1e6:.1f} ms")


def _period_of(finding: Finding) -> float:
    """The period in ns that a finding's sentence tells in ms."""
    found = re.match(r"Every ([0-9.]+) ms ", finding.sentence)
    return float(found[1]) * 1e6 if found else 0.0


CAUSES = {
    "slow_link": slow_link, "slow_pair": slow_pair, "half_a_rail": half_a_rail, "slow_nic": slow_nic,
    "anti_locality": anti_locality,
    "protocol_step": protocol_step, "drift": drift, "straggler": straggler, "slow_host_link": slow_host_link,
    "engine_cap": engine_cap, "staged": staged, "five_of_eight": five_of_eight,
    "falling": falling, "bad_choice": bad_choice, "far": far, "narrow_host": narrow_host, "spikes": spikes,
    "slow_from": slow_from, "timer": timer,
}  # fmt: skip

CONSEQUENCES = {
    "slow_link": ("collective_below_limit", "device_counts"), "slow_pair": ("collective_below_limit", "device_counts"),
    "five_of_eight": ("collective_below_limit",),
    "bad_choice": ("falling_goodput", "latency_step"), "far": ("device_counts",),
    "falling": ("latency_step",), "protocol_step": ("falling_goodput",),
    "half_a_rail": ("host_staging",), "slow_host_link": ("pcie_below_width",), "straggler": ("latency_step",),
}  # fmt: skip
"""Rules that may tell a further truth of a planted cause: these findings are no mistakes, only not the cause."""
