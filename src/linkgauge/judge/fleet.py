"""Many nodes' runs of one plan side by side: each node and device against its siblings, and against itself before."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from linkgauge.findings.measure import Measure
from linkgauge.judge.standing import LEAST_NODES, LEAST_SCALE, Standing
from linkgauge.judge.subjects import Subject
from linkgauge.judge.verdicts import Verdict
from linkgauge.model.device_words import device_words
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import change
from linkgauge.stats.basics import robust_scale


@dataclasses.dataclass(frozen=True)
class Cell:
    """One mechanism and pattern on one run's node: by how much its cases take longer than its siblings'."""

    run: str
    task: str
    share: float
    cases: int


@dataclasses.dataclass(frozen=True)
class Moment:
    """One run of a host: by how much its cases take longer than the baseline's, or those of the host's first run.

    `start` as the run has it, ISO 8601 in UTC.
    """

    host: str
    run: str
    start: str
    share: float
    cases: int


def standings(subjects: Sequence[Subject]) -> list[Standing]:
    """Return nodes and devices, the slowest first; empty for fewer than four runs with shared cases.

    A case's time is taken against the middle of all nodes that measured it; a node's standing is the median over its
    cases, a device's or pair's that over the cases that it takes part in less its node's (a pair's from 1 MiB on, and
    only outliers are returned). The scale is the spread of the siblings' standings.
    """
    if len(subjects) < LEAST_NODES:
        return []
    nodes = _excesses(subjects)
    whole = [float(np.median(node.every)) if node.every else 0.0 for node in nodes]
    rows: list[tuple[int, str, tuple[int, ...], float, int]] = [
        (i, "node", (), value, len(nodes[i].every)) for i, value in enumerate(whole) if nodes[i].every
    ]
    result = _ranked(subjects, rows)
    for kind in ("device", "pair"):
        rows = [
            (i, kind, of, float(np.median(values)) - whole[i], len(values))
            for i, node in enumerate(nodes)
            for of, values in (node.devices if kind == "device" else node.pairs).items()
        ]
        result += [one for one in _ranked(subjects, rows) if kind == "device" or one.outlier]
    return sorted(result, key=lambda s: (not s.outlier, -s.score))


def cells(subjects: Sequence[Subject]) -> list[Cell]:
    """Return each node's tasks against its siblings' (the median over a task's cases); empty for fewer than four."""
    if len(subjects) < LEAST_NODES:
        return []
    return [
        Cell(subject.name, task, math.expm1(float(np.median(values))), len(values))
        for subject, node in zip(subjects, _excesses(subjects), strict=True)
        for task, values in node.tasks.items()
    ]


def moments(subjects: Sequence[Subject], known_ns: Mapping[tuple[str, str], float]) -> list[Moment]:
    """Return the runs of each host in the order in which they began, each against `known_ns`.

    `known_ns`: by case key and launch key the time in ns of a baseline. Where it is empty, a host's runs are held
    against its first, and hosts of one run are left out. A run's share is the median over the cases that both have.
    """
    in_order = sorted(subjects, key=lambda one: str(one.facts.info.get("start") or ""))
    by_host = grouped((subject.host or subject.name, subject) for subject in in_order)
    found = []
    for host, runs in by_host.items():
        reference = known_ns or (times_ns(runs[0]) if len(runs) > 1 else {})
        for run in runs:
            excess = [math.log(ns / reference[key]) for key, ns in times_ns(run).items() if key in reference]
            if excess:
                start = str(run.facts.info.get("start") or "")
                found.append(Moment(host, run.name, start, math.expm1(float(np.median(excess))), len(excess)))
    return found


def times_ns(subject: Subject) -> dict[tuple[str, str], float]:
    """Return the median time in ns of each case of a run, by case key and launch key."""
    return {(measure.case_key, measure.launch_key): measure.time_ns for measure in subject.facts.measures}


def _excesses(subjects: Sequence[Subject]) -> list[_Excesses]:
    """Each run's cases against the middle of all runs that have them, of cases that four or more have."""
    times = grouped((key, math.log(ns)) for subject in subjects for key, ns in times_ns(subject).items())
    middle = {key: float(np.median(values)) for key, values in times.items() if len(values) >= LEAST_NODES}
    nodes = [_Excesses() for _ in subjects]
    for subject, node in zip(subjects, nodes, strict=True):
        for measure in subject.facts.measures:
            key = (measure.case_key, measure.launch_key)
            if key in middle:
                node.add(measure, math.log(measure.time_ns) - middle[key])
    return nodes


class _Excesses:
    """How far a node's cases lie from the middle of all nodes, by device and pair.

    A device's are those of the cases with at most two devices where there are such: those of all devices say little
    of one.
    """

    def __init__(self) -> None:
        self.every: list[float] = []
        self.tasks: dict[str, list[float]] = {}
        self._few: dict[tuple[int, ...], list[float]] = {}
        self._many: dict[tuple[int, ...], list[float]] = {}
        self.pairs: dict[tuple[int, ...], list[float]] = {}

    def add(self, measure: Measure, excess: float) -> None:
        self.every.append(excess)
        self.tasks.setdefault(measure.label, []).append(excess)
        devices = sorted(set(measure.devices))
        for device in devices:
            (self._few if len(devices) <= 2 else self._many).setdefault((device,), []).append(excess)
        if len(devices) == 2 and measure.size >= 1 << 20:
            self.pairs.setdefault((devices[0], devices[1]), []).append(excess)

    @property
    def devices(self) -> dict[tuple[int, ...], list[float]]:
        return {**self._many, **self._few}


def _ranked(
    subjects: Sequence[Subject], rows: Sequence[tuple[int, str, tuple[int, ...], float, int]]
) -> list[Standing]:
    scale = max(LEAST_SCALE, robust_scale([value for *_, value, _ in rows])) if rows else 1.0
    result = []
    for index, kind, devices, value, count in rows:
        subject = subjects[index]
        host = subject.host or subject.name
        identity = subject.facts.identity_of(devices[0]).strip(" ()") if kind == "device" else ""
        words = f"{device_words(devices, subject.facts.noun)} of {host}" if devices else host
        result.append(Standing(kind, words, identity, subject.name, math.expm1(value), value / scale, count, devices))
    return result


def check_fleet(found: Sequence[Standing]) -> list[Verdict]:
    """Return a verdict for each node and device of the fleet."""
    verdicts = []
    for one in found:
        identity = f" ({one.identity})" if one.identity and one.kind == "device" else ""
        how = f"{one.score:.1f} deviations, {one.cases} cases"
        reason = f"its cases take {change(one.share, 1)} against its siblings' ({how})"
        verdicts.append(
            Verdict("fail" if one.outlier else "pass", f"{one.name}{identity}", reason, "the fleet", one.run,
                    devices=one.devices, shortfall=max(0.0, one.share / (1 + one.share)) if one.outlier else 0.0)
        )  # fmt: skip
    return verdicts
