"""What slows a case beside its loads: planted parts are named, and jobs that cost each other nothing are left alone.

The generator knows by hand which part two jobs meet in, and draws samples by turns with noise and drift; it shares no
code with the rule or with fair shares.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from cluster.layout import Layout
from expect.test_network import case as between
from expect.test_network import network
from expect.test_network import seen as seen_between
from linkgauge.findings import rules
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Finding
from linkgauge.model.case import Case, LoadCase, Loads
from linkgauge.model.worded import ServiceClass
from linkgauge.stats.interference import Interference, LoadRate, SlowDown, slow_down
from linkgauge.system import catalog
from results import launches_of

M = 256 << 20
WINDOWS = [0, 1, 3, 7, 12, 17, 22, 27, 32, 38, 45, 54, 64, 76, 91]
SEEDS = 100


@dataclasses.dataclass(frozen=True)
class Planted:
    """Two jobs on a described machine: their rates alone in bytes/s, the slow-down, and what is to be told of it."""

    system: str
    measured: Case
    load: Case
    rates: tuple[float, float]
    factor: float
    rule: str
    subject: tuple[str, ...]  # words, all of which are in it


def job(transport: str, pattern: str, *devices: int, size: int = M, **settings: object) -> Case:
    return dataclasses.replace(Case(transport, pattern, size, size, devices), **settings)  # type: ignore[arg-type]


def fair(capacity: float, one: float, other: float) -> float:
    """The slow-down of the one of two that share a capacity in bytes/s: by hand, for two."""
    if one + other <= capacity:
        return 1.0
    return one / max(capacity / 2, capacity - other)


def same_port(rng: np.random.Generator) -> Planted:
    """Out of one GPU's port of 450 GB/s, to two others."""
    source, one_target, other_target = rng.permutation(8)[:3].tolist()
    most = 450e9 * rng.uniform(0.78, 0.88)
    paced = most * rng.uniform(0.5, 1.0)
    one = job("kernel", "unidirectional", source, one_target)
    other = job("copy_engine", "unidirectional", source, other_target)
    return Planted("hgx-h200-8", one, other, (most, paced), fair(most, most, paced), "slowed_by_share",
                   (f"GPU {source}",))  # fmt: skip


def same_link(rng: np.random.Generator) -> Planted:
    """The one NVLink 2 between two GPUs of a hypercube, 25 GB/s, or the two of a bonded pair."""
    a, b, links = [(0, 1, 1), (0, 3, 2), (4, 5, 1), (4, 7, 2), (2, 3, 2)][int(rng.integers(5))]
    most = links * 25e9 * rng.uniform(0.9, 0.97)
    return Planted("v100-dgx-1", job("kernel", "unidirectional", a, b), job("copy_engine", "unidirectional", a, b),
                   (most, most), 2.0, "slowed_by_share", (f"GPU {a} to GPU {b}",))  # fmt: skip


def same_host_link(rng: np.random.Generator) -> Planted:
    """Into one GPU from the host twice, by one mechanism or two."""
    device = int(rng.integers(8))
    most = 64e9 * rng.uniform(0.8, 0.88)
    settings = {"source_memory": "pinned"}
    one = job("copy_engine", "host_to_device", device, **settings)
    other = job("kernel", "host_to_device", device, **settings)
    return Planted("hgx-h200-8", one, other, (most, most), 2.0, "slowed_by_share", (f"GPU {device}",))


def same_memory(rng: np.random.Generator) -> Planted:
    """A copy inside one GPU by its engine beside one by a kernel: 4.8 TB/s are read and written."""
    device = int(rng.integers(8))
    most = 2.4e12 * rng.uniform(0.8, 0.9)
    return Planted("hgx-h200-8", job("copy_engine", "local_copy", device), job("kernel", "local_copy", device),
                   (most, most), 2.0, "slowed_by_share", (f"memory of GPU {device}",))  # fmt: skip


def same_copy_engine(rng: np.random.Generator) -> Planted:
    """Copies queued to one engine, which no link would slow: a small one waits for large ones."""
    source, *targets = rng.permutation(8)[:3].tolist()
    one = job("copy_engine", "unidirectional", source, targets[0], size=1 << 20)
    other = job("copy_engine", "unidirectional", source, targets[1])
    return Planted("hgx-h200-8", one, other, (80e9, 200e9), rng.uniform(3, 20), "slowed_by_engines",
                   ("copy engine", f"device {source}"))  # fmt: skip


def same_multiprocessors(rng: np.random.Generator) -> Planted:
    """NCCL beside kernels that copy in the device's own memory."""
    device = int(rng.integers(4))
    one = job("ccl", "allreduce", 0, 1, 2, 3, datatype="float32", op="sum")
    other = job("kernel", "local_copy", device, blocks=64)
    return Planted("hgx-h200-8", one, other, (220e9, 1000e9), rng.uniform(1.3, 2.2), "slowed_by_engines",
                   ("multiprocessors", f"device {device}"))  # fmt: skip


def nothing_in_common(rng: np.random.Generator) -> Planted:
    """Two pairs that meet nowhere, and yet."""
    a, b, c, d = rng.permutation(8)[:4].tolist()
    one, other = job("kernel", "unidirectional", a, b), job("copy_engine", "unidirectional", c, d)
    return Planted("hgx-h200-8", one, other, (370e9, 370e9), rng.uniform(1.2, 3), "slowed_unexplained", ("side by",))


KINDS = (same_port, same_link, same_host_link, same_memory, same_copy_engine, same_multiprocessors, nothing_in_common)


def seen(rng: np.random.Generator, planted: Planted) -> Interference:
    """The jobs as they were measured: window after window by turns, noise with memory, drift, delayed samples."""
    n = 110
    drift = rng.uniform(1.0, 1.1 if planted.factor > 1 else 1.4)
    sigma = rng.uniform(0.003, 0.04)
    series = np.empty((2, n))
    clock = 0
    noise = rng.standard_normal(2 * n)
    for at in range(1, 2 * n):
        noise[at] = 0.6 * noise[at - 1] + 0.8 * noise[at]
    for turn, (begin, end) in enumerate(zip(WINDOWS, [*WINDOWS[1:], n], strict=True)):
        for kind in (0, 1) if turn % 2 == 0 else (1, 0):
            slow = 1 + (drift - 1) * np.arange(clock, clock + end - begin) / (2 * n)
            series[kind, begin:end] = slow * np.exp(sigma * noise[clock : clock + end - begin])
            clock += end - begin
    series *= np.where(rng.random((2, n)) < 0.02, rng.uniform(1, 5), 1.0)
    rates = planted.rates
    alone = series[1] * planted.measured.size / rates[0] * 1e9
    beside = series[0] * planted.measured.size / rates[0] * 1e9 * planted.factor
    middle, windows = slow_down(beside, alone, WINDOWS)
    case = dataclasses.replace(planted.measured, background=Loads.of([LoadCase(planted.load)]))
    load_ns = planted.load.size / rates[1] * 1e9 * rng.uniform(0.97, 1.03)
    return Interference(case, (case.case_key, 0, 0, 0), float(np.median(alone)), float(np.median(beside)), windows,
                        (middle,), middle.factor, (LoadRate(1, load_ns, None),))  # fmt: skip


def told(planted: Planted, found: Interference) -> list[Finding]:
    facts = Facts([], system=catalog.load(planted.system), interferences=lambda: [found])
    return rules.apply(facts, only=["interference"])


def test_the_shared_part_is_named() -> None:
    right, wrong = 0, []
    for seed, kind in zip(range(SEEDS), itertools.cycle(KINDS), strict=False):
        rng = np.random.default_rng(seed)
        planted = kind(rng)
        findings = told(planted, seen(rng, planted))
        mine = (f for f in findings if f.rule == planted.rule)
        as_planted = [f for f in mine if all(word in f.subject for word in planted.subject)]
        if len(findings) == len(as_planted) == 1:
            right += 1
        else:
            wrong.append((seed, kind.__name__, planted.factor, [(f.rule, f.subject) for f in findings]))
    assert right >= 95, wrong


def test_jobs_that_cost_nothing_are_not_accused() -> None:
    accused = []
    for seed, kind in zip(range(1000, 1000 + SEEDS), itertools.cycle(KINDS), strict=False):
        rng = np.random.default_rng(seed)
        planted = dataclasses.replace(kind(rng), factor=1.0)
        accused += [(seed, f.sentence) for f in told(planted, seen(rng, planted))]
    assert len(accused) <= 2, accused


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_of_host_devices_is_a_note(kind: Callable[[np.random.Generator], Planted]) -> None:
    """Without a system nothing is said but of cores, which other programs use as well."""
    rng = np.random.default_rng(5)
    planted = kind(rng)
    found = seen(rng, dataclasses.replace(planted, factor=2.0))
    assert rules.apply(Facts([], interferences=lambda: [found]), only=["interference"]) == []
    ranks = [{"rank": r, "host": "one", "device_ordinal": r, "device_kind": "host"} for r in range(8)]
    facts = Facts([], launches=launches_of([{"launch": 0, "ranks": ranks}]), interferences=lambda: [found])
    findings = rules.apply(facts, only=["interference"])
    assert [(f.rule, f.severity) for f in findings] == [("slowed_by_engines", "note")]
    assert "cores and memory" in findings[0].subject


def test_what_the_library_does_is_not_guessed() -> None:
    rng = np.random.default_rng(1)
    planted = nothing_in_common(rng)
    planted = dataclasses.replace(planted, load=dataclasses.replace(planted.load, transport="mpi"), factor=1.5)
    (finding,) = told(planted, seen(rng, planted))
    assert finding.rule == "slowed_unexplained"
    assert "not known" in finding.sentence


def test_what_is_said_reads_well() -> None:
    rng = np.random.default_rng(3)
    planted = same_copy_engine(rng)
    (finding,) = told(planted, seen(rng, planted))
    assert finding.severity == "loss"
    load = LoadCase(planted.load).text
    says = f"with background load {load}: what they share of links and memories can carry both; both use the"
    assert says in finding.sentence


def test_classes_by_whose_weights_ports_share_are_named() -> None:
    """Class 0 has a quarter of an uplink beside class 3: that it takes four times as long is its share."""
    links = network(Layout(((2, 2),), rate=80e6, switch_rate=80e6))
    alone = (1 << 20) / 10e6
    own, load = (
        between("ring_shift", ends, service_class=ServiceClass.of_text(name))
        for ends, name in (((0, 2), "0"), ((1, 3), "3"))
    )
    for weights, words in (
        ({"0": 1.0, "3": 3.0}, "whose fair share by weights 1 of class 0 and 3 of class 3 explains 4 to 4"),
        ({}, "which engines a library of theirs uses is not known"),
    ):
        links.class_weights = weights
        found = dataclasses.replace(seen_between(own, alone, [(load, alone)]),
                                    slow_downs=(SlowDown(0.5, 3.9, (3.8, 4.0)),))  # fmt: skip
        (finding,) = rules.apply(Facts([], network=links, interferences=lambda found=found: [found]),
                                 only=["interference"])  # fmt: skip
        assert finding.rule == ("slowed_by_share" if weights else "slowed_unexplained")
        assert words in finding.sentence
