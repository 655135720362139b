"""Which transport for which pattern, devices and size: the best, its margin with interval, the settings to export."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from linkgauge.findings.facts import Facts, Measure, size_text
from linkgauge.plan.case import Case
from linkgauge.plan.library_settings import library_settings
from linkgauge.plan.patterns import PATTERNS
from linkgauge.stats.launches import environment_of, json_object

MATTERS = 0.05
"""Below this margin at the near ends of both intervals it does not matter which of two is taken."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to use from one size to another.

    `margin` is by how much the next mechanism is slower at `margin_at` bytes, where of the range it loses most, `low`
    and `high` the interval; None where nothing else was measured. The next is the one that loses least there. `alike`
    are mechanisms between which it does not matter.
    """

    task: str
    devices: tuple[int, ...]
    size_from: int
    size_to: int
    best: str
    alike: tuple[str, ...]
    margin: float | None
    margin_at: int | None
    low: float | None
    high: float | None
    second: str
    exports: tuple[tuple[str, str], ...]
    case_keys: tuple[str, ...]

    @property
    def sizes(self) -> str:
        """The range in words."""
        if self.size_from == self.size_to:
            return size_text(self.size_from)
        return f"{size_text(self.size_from)} to {size_text(self.size_to)}"


def advise(facts: Facts) -> list[Advice]:
    """Return advice for each task of which at least two mechanisms were measured, by task and size."""
    tasks: dict[tuple[Any, ...], dict[int, list[Measure]]] = {}
    for measure in facts.measures:
        names = (
            "pattern",
            "source_memory",
            "target_memory",
            "window",
            "root",
            "datatype",
            "op",
            "in_place",
            "cadence",
            "arrival",
        )
        key = (*(measure.dims[name] for name in names), measure.devices)
        tasks.setdefault(key, {}).setdefault(measure.size, []).append(measure)
    result: list[tuple[tuple[Any, ...], list[Advice]]] = []
    for key, by_size in tasks.items():
        if len({_mechanism(facts, m) for group in by_size.values() for m in group}) < 2:
            continue
        result.append((key, _ranges(facts, "", by_size)))
    order = {name: place for place, name in enumerate(PATTERNS)}
    return _merged(sorted(result, key=lambda task: (order[task[0][0]], len(task[0][-1]))))


def _merged(found: Sequence[tuple[tuple[Any, ...], list[Advice]]]) -> list[Advice]:
    """Join tasks that differ only in the devices and get the same advice, with the widest of their intervals."""
    alike: dict[tuple[Any, ...], list[tuple[tuple[Any, ...], list[Advice]]]] = {}
    for key, advice in found:
        said = tuple((a.size_from, a.size_to, a.best, a.second, a.exports) for a in advice)
        alike.setdefault((key[:-1], len(key[-1]), said), []).append((key, advice))
    result: list[Advice] = []
    for group in alike.values():
        task = _task_words(group[0][0][:-1], [key[-1] for key, _ in group])
        for parts in zip(*(advice for _, advice in group), strict=True):
            margins = sorted((p.margin, p.margin_at) for p in parts if p.margin is not None and p.margin_at is not None)
            middle = margins[len(margins) // 2] if margins else (None, None)
            result.append(
                dataclasses.replace(
                    parts[0],
                    task=task,
                    alike=tuple(sorted(set.intersection(*(set(p.alike) for p in parts)))),
                    margin=middle[0],
                    margin_at=middle[1],
                    low=min((p.low for p in parts if p.low is not None), default=None),
                    high=max((p.high for p in parts if p.high is not None), default=None),
                    case_keys=tuple(key for p in parts for key in p.case_keys),
                )
            )
    return result


def _task_words(key: tuple[Any, ...], groups: Sequence[tuple[int, ...]]) -> str:
    pattern, source, target, window, _, _, _, in_place, cadence, _ = key
    devices = groups[0]
    words = [str(pattern)]
    if (source, target) != ("device", "device"):
        words.append(f"({source} to {target})")
    if len(devices) > 2:
        words.append(f"on {len(devices)} devices")
    else:
        shown = ", ".join("-".join(map(str, group)) for group in sorted(groups)[:6])
        words.append(f"on {shown}{f' and {len(groups) - 6} more' if len(groups) > 6 else ''}")
    words += [f"window {window}"] if window and window > 1 else []
    words += ["in place"] if in_place else []
    words += [str(cadence)] if cadence not in (None, "isolated") else []
    return " ".join(words)


_PLAIN = ("path", "algorithm", "buffer")
_COUNTED = ("initiator", "host_leg", "chunk", "blocks", "via", "managed")


def _mechanism(facts: Facts, measure: Measure) -> str:
    """Name a mechanism by what a program that follows the advice must do as it did."""
    words = [str(measure.transport), str(measure.variant or "")]
    words += [str(measure.dims[name]) for name in _PLAIN if measure.dims.get(name)]
    varying = _varying(facts, measure.transport)
    words += [
        f"{name} {measure.dims[name]}"
        for name in _COUNTED
        if name in varying and measure.dims[name] not in ("", 0, -1, None)
    ]
    words.append(measure.launch_name or (_library(facts, measure) if measure.transport == "mpi" else ""))
    return " ".join(word for word in words if word)


def _varying(facts: Facts, transport: str) -> frozenset[str]:
    key = ("advise", transport)
    if key not in facts.kept:
        own = [measure for measure in facts.measures if measure.transport == transport]
        facts.kept[key] = frozenset(name for name in _COUNTED if len({m.dims.get(name) for m in own}) > 1)
    varying: frozenset[str] = facts.kept[key]
    return varying


def _launch(facts: Facts, measure: Measure) -> dict[str, Any]:
    number = measure.identities[0][1]
    return next((dict(launch) for launch in facts.launches if launch.get("launch") == number), {})


def _library(facts: Facts, measure: Measure) -> str:
    mpi = json_object(_launch(facts, measure).get("mpi"))
    return str(mpi.get("name") or "")


def _ranges(facts: Facts, task: str, by_size: dict[int, list[Measure]]) -> list[Advice]:
    ranges: list[list[tuple[int, list[Measure], set[str]]]] = []
    for size in sorted(by_size):
        order = sorted(by_size[size], key=lambda m: m.time_ns)
        alike = {_mechanism(facts, m) for m in order if not _matters(order[0], m)}
        if ranges and set.intersection(*(found for _, _, found in ranges[-1])) & alike:
            ranges[-1].append((size, order, alike))
        else:
            ranges.append([(size, order, alike)])
    return [_advice(facts, task, part) for part in ranges]


def _matters(best: Measure, other: Measure) -> bool:
    # Of fewer than six independent samples the interval reaches beyond all of them: nothing would ever matter.
    fastest = max(other.time_ns * (1 - other.half_width), other.fastest_ns)
    slowest = min(best.time_ns * (1 + best.half_width), best.slowest_ns)
    return fastest > slowest * (1 + MATTERS)


def _advice(facts: Facts, task: str, part: Sequence[tuple[int, list[Measure], set[str]]]) -> Advice:
    common = set.intersection(*(found for _, _, found in part))
    # Of those that are good everywhere in the range, the one that is fastest most often.
    wins = [next(_mechanism(facts, m) for m in order if _mechanism(facts, m) in common) for _, order, _ in part]
    best = max(sorted(common), key=wins.count)
    mine = next(m for m in part[len(part) // 2][1] if _mechanism(facts, m) == best)
    losses: dict[str, tuple[float, int, Measure, Measure]] = {}
    for size, order, _ in part:
        own = next(m for m in order if _mechanism(facts, m) == best)
        for other in order:
            name, ratio = _mechanism(facts, other), other.time_ns / own.time_ns
            if name not in common and (name not in losses or ratio > losses[name][0]):
                losses[name] = (ratio, size, own, other)
    second = min(losses, key=lambda name: losses[name][0], default="")
    margin = at = low = high = None
    if second:
        ratio, at, own, other = losses[second]
        a, b = (min(0.9, m.half_width) for m in (own, other))
        margin, low, high = ratio - 1, ratio * (1 - b) / (1 + a) - 1, ratio * (1 + b) / (1 - a) - 1
    return Advice(
        task,
        mine.devices,
        part[0][0],
        part[-1][0],
        best,
        tuple(sorted(common - {best})),
        margin,
        at,
        low,
        high,
        second,
        _exports(facts, mine),
        tuple(m.case_key for _, order, _ in part for m in order if _mechanism(facts, m) == best),
    )


def _exports(facts: Facts, measure: Measure) -> tuple[tuple[str, str], ...]:
    """Return the variables that make a library do what was measured: the launch's, and those of path and algorithm."""
    launch = _launch(facts, measure)
    asked = list(environment_of(launch.get("env")).items()) if measure.transport in ("mpi", "ccl") else []
    record = facts.records.get(measure.case_key)
    if record is None:
        return tuple(asked)
    abi = str(json_object(launch.get("mpi")).get("abi") or "")
    settings, _ = library_settings(Case.from_dimensions(dict(record)), abi)
    return tuple(dict([*asked, *settings]).items())
