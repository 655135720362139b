"""Many nodes' runs of one plan side by side: each node and device against its siblings, outliers ranked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from linkgauge.findings.facts import Measure
from linkgauge.findings.subjects import Subject
from linkgauge.findings.verdicts import Verdict
from linkgauge.stats.basics import robust_scale

LEAST_NODES = 4
_LEAST_SHARE = 0.03
_LEAST_SCALE = 0.003


@dataclasses.dataclass(frozen=True)
class Standing:
    """One node or device of the fleet: how much slower than its siblings' its cases are, and at how many deviations."""

    kind: str  # node | device | pair
    name: str
    identity: str
    run: str
    share: float
    score: float
    cases: int

    @property
    def outlier(self) -> bool:
        """Whether it is slower than its siblings by 3 % and by five robust deviations."""
        return self.share >= _LEAST_SHARE and self.score >= 5


def standings(subjects: Sequence[Subject]) -> list[Standing]:
    """Return nodes and devices, the slowest first; empty for fewer than four runs with shared cases.

    A case's time is taken against the middle of all nodes that measured it; a node's standing is the median over its
    cases, a device's or pair's that over the cases that it takes part in less its node's (a pair's from 1 MiB on, and
    only outliers are returned). The scale is the spread of the siblings' standings.
    """
    if len(subjects) < LEAST_NODES:
        return []
    times: dict[tuple[str, str], dict[int, float]] = {}
    for index, subject in enumerate(subjects):
        for measure in subject.facts.measures:
            times.setdefault((measure.case_key, measure.launch_key), {})[index] = math.log(measure.time_ns)
    middle = {key: float(np.median(list(v.values()))) for key, v in times.items() if len(v) >= LEAST_NODES}
    nodes = [_Excesses() for _ in subjects]
    for index, subject in enumerate(subjects):
        for measure in subject.facts.measures:
            key = (measure.case_key, measure.launch_key)
            if key in middle:
                nodes[index].add(measure, math.log(measure.time_ns) - middle[key])
    whole = [float(np.median(node.every)) if node.every else 0.0 for node in nodes]
    rows = [(i, "node", "", value, len(nodes[i].every)) for i, value in enumerate(whole) if nodes[i].every]
    result = _ranked(subjects, rows)
    for kind in ("device", "pair"):
        rows = [
            (i, kind, name, float(np.median(values)) - whole[i], len(values))
            for i, node in enumerate(nodes)
            for name, values in (node.devices if kind == "device" else node.pairs).items()
        ]
        result += [one for one in _ranked(subjects, rows) if kind == "device" or one.outlier]
    return sorted(result, key=lambda s: (not s.outlier, -s.score))


class _Excesses:
    """How far a node's cases lie from the middle of all nodes, by device and pair.

    A device's are those of the cases with at most two devices where there are such: those of all devices say little
    of one.
    """

    def __init__(self) -> None:
        self.every: list[float] = []
        self._few: dict[str, list[float]] = {}
        self._many: dict[str, list[float]] = {}
        self.pairs: dict[str, list[float]] = {}

    def add(self, measure: Measure, excess: float) -> None:
        self.every.append(excess)
        devices = sorted(set(measure.devices))
        for device in devices:
            (self._few if len(devices) <= 2 else self._many).setdefault(str(device), []).append(excess)
        if len(devices) == 2 and measure.size >= 1 << 20:
            self.pairs.setdefault(f"{devices[0]}-{devices[1]}", []).append(excess)

    @property
    def devices(self) -> dict[str, list[float]]:
        return {**self._many, **self._few}


def _ranked(subjects: Sequence[Subject], rows: Sequence[tuple[int, str, str, float, int]]) -> list[Standing]:
    scale = max(_LEAST_SCALE, robust_scale([value for *_, value, _ in rows])) if rows else 1.0
    result = []
    for index, kind, name, value, count in rows:
        subject = subjects[index]
        host = subject.host or subject.name
        identity = subject.facts.identity_of(int(name)).strip(" ()") if kind == "device" else ""
        words = f"{kind} {name} of {host}" if name else host
        result.append(Standing(kind, words, identity, subject.name, math.expm1(value), value / scale, count))
    return result


def check_fleet(found: Sequence[Standing]) -> list[Verdict]:
    """Return a verdict for each node and device of the fleet."""
    verdicts = []
    for one in found:
        identity = f" ({one.identity})" if one.identity and one.kind == "device" else ""
        reason = (
            f"its cases take {one.share:+.1%} against its siblings' ({one.score:.1f} deviations, {one.cases} cases)"
        )
        verdicts.append(
            Verdict("short" if one.outlier else "holds", f"{one.name}{identity}", reason, "the fleet", one.run,
                    shortfall=max(0.0, one.share / (1 + one.share)) if one.outlier else 0.0)
        )  # fmt: skip
    return verdicts
