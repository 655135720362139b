"""Which transport for which pattern, devices and size: the best, its margin with interval, the settings to export."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.model.case import USUAL
from linkgauge.model.comparing import MECHANISM, held_apart
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS, USUAL_MEMORY
from linkgauge.model.quantity import change
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.result import Launch
from linkgauge.model.runtimes import RUNTIMES
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.environment import is_secret
from linkgauge.plan.library_settings import dialect, library_settings, runtime_settings
from linkgauge.stats.alike import class_rows, members_text, scope_of_case

MATTERS = 0.05
"""Below this margin at the near ends of both intervals it does not matter which of two is taken."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to use from one size to another, for all devices of a class (or of several that get the same advice).

    `members` are the devices of each case that it rests on, `devices` those of one of them. `margin` is by how much the
    next mechanism is slower at `margin_at` bytes, where of the range it loses most, `low` and `high` the interval; None
    where nothing else was measured. The next is the one that loses least there. `alike` are mechanisms between which it
    does not matter.
    """

    task: str
    devices: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
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

    @property
    def margin_words(self) -> str:
        """By how much the next is slower and where; empty where nothing else was measured."""
        if self.margin is None:
            return "equal within 5 %" if self.alike else ""
        if self.margin_at is None or self.size_from == self.size_to:
            return change(self.margin)
        return f"{change(self.margin)} at {size_text(self.margin_at)}"

    @property
    def interval_words(self) -> str:
        """The margin's 95 % interval; empty where there is none."""
        if self.low is None or self.high is None:
            return ""
        return f"{change(self.low).removesuffix(' %')} to {change(self.high)}"


@dataclasses.dataclass(frozen=True)
class _Pooled:
    """One mechanism at one size over a class: the median over its members, and what of them is seen of the noise."""

    name: str
    time_ns: float
    half_width: float
    fastest_ns: float
    slowest_ns: float
    members: tuple[Measure, ...]


_HELD = held_apart("size", "devices", *MECHANISM)


def advise(facts: Facts) -> list[Advice]:
    """Return advice for each task of which at least two mechanisms were measured, by task and size.

    Devices and pairs of one class are one task (docs/definitions.md, Classes): what their cases differ by is part of
    the interval, so that equal pairs never get different advice by noise. A size at which other users disturbed a
    mechanism is left out: that one may be the best.
    """
    judge = {id(measure) for measure in facts.undisturbed.measures}
    result: list[tuple[tuple[Any, ...], list[Advice]]] = []
    for key, members in _tasks(facts).items():
        by_size = grouped((measure.size, measure) for measure in members)
        by_size = {size: of for size, of in by_size.items() if judge.issuperset(map(id, of))}
        if len({_mechanism(facts, m) for of in by_size.values() for m in of}) < 2:
            continue
        pooled = {size: _pool(facts, of_size) for size, of_size in by_size.items()}
        result.append(((*key[:-1], members[0].ranks), _ranges(facts, pooled)))
    order = {name: place for place, name in enumerate(PATTERNS)}
    return _merged(sorted(result, key=lambda task: (order[task[0][_HELD.index("pattern")]], task[0][-1])), facts.noun)


def _tasks(facts: Facts) -> dict[tuple[Any, ...], list[Measure]]:
    """Group measures by what is done and the class of their devices.

    Where mechanisms take different ways (NVLink, the host's links), devices are alike if they are for both. A barrier
    between running kernels is none that a host could take in place of its own.
    """

    def kind(one: Measure) -> tuple[Any, ...]:
        inside = one.case.pattern == "barrier" and TRANSPORTS[one.transport].meets_kernels(one.case.variant)
        return (*one.task, inside, len(set(one.devices)) == 1)

    kinds = facts.grouped(kind)
    scopes = {key: {scope_of_case(one.case) for one in measures} for key, measures in kinds.items()}
    return grouped(
        ((*key[:-1], facts.classes.of(one.case, next(iter(scopes[key])) if len(scopes[key]) == 1 else "node")), one)
        for key, measures in kinds.items()
        for one in measures
    )


def _pool(facts: Facts, measures: Sequence[Measure]) -> list[_Pooled]:
    """Return the mechanisms at one size, the quickest first, each over the devices that all of them have."""
    devices = grouped((_mechanism(facts, measure), measure.devices) for measure in measures)
    common = set.intersection(*map(set, devices.values()))
    rows = class_rows(
        [m for m in measures if not common or m.devices in common],
        key=lambda m: _mechanism(facts, m),
        value=lambda m: 1 / m.time_ns,
        half_width=lambda m: m.half_width,
    )
    pooled = [
        _Pooled(
            str(row.key),
            1 / row.middle,
            row.half_width,
            min(m.fastest_ns for m in row.members),
            max(m.slowest_ns for m in row.members),
            row.members,
        )
        for row in rows
    ]
    return sorted(pooled, key=lambda one: one.time_ns)


def _merged(found: Sequence[tuple[tuple[Any, ...], list[Advice]]], noun: str) -> list[Advice]:
    """Join tasks that differ only in the devices and get the same advice, with the widest of their intervals."""
    alike = grouped(
        ((key, tuple((a.size_from, a.size_to, a.best, a.second, a.exports) for a in advice)), advice)
        for key, advice in found
    )
    result: list[Advice] = []
    for (key, _), group in alike.items():
        everyone = tuple(dict.fromkeys(m for advice in group for a in advice for m in a.members))
        for parts in zip(*group, strict=True):
            margins = sorted((p.margin, p.margin_at) for p in parts if p.margin is not None and p.margin_at is not None)
            middle = margins[len(margins) // 2] if margins else (None, None)
            result.append(
                dataclasses.replace(
                    parts[0],
                    task=_task_words(key, everyone, noun),
                    members=everyone,
                    alike=tuple(sorted(set.intersection(*(set(p.alike) for p in parts)))),
                    margin=middle[0],
                    margin_at=middle[1],
                    low=min((p.low for p in parts if p.low is not None), default=None),
                    high=max((p.high for p in parts if p.high is not None), default=None),
                    case_keys=tuple(key for p in parts for key in p.case_keys),
                )
            )
    return result


_SAID = ("pattern", "source_memory", "target_memory", "cadence")


def _task_words(key: tuple[Any, ...], members: Sequence[tuple[int, ...]], noun: str) -> str:
    held, ranks = dict(zip(_HELD, key, strict=False)), key[-1]
    source, target, cadence = held["source_memory"], held["target_memory"], held["cadence"]
    words = [str(held["pattern"])]
    if (source, target) not in (("device", "device"), USUAL_MEMORY.get(words[0])):
        words.append(f"({source} to {target})")
    words.append(f"on {ranks} {noun}s" if ranks > 2 and len(members) > 1 else f"on {members_text(members, noun)}")
    settings = [
        name.replace("_", " ") if value is True else f"{name.replace('_', ' ')} {value}"
        for name, value in held.items()
        if name not in _SAID and value not in (None, USUAL[name])
    ]
    settings += [str(cadence)] if cadence not in (None, "isolated") else []
    return ", ".join([" ".join(words), *settings])


def _mechanism(facts: Facts, measure: Measure) -> str:
    """Name a mechanism by what a program that follows the advice must do as it did."""
    library = _launch(facts, measure).mpi_name if measure.transport == "mpi" and not measure.launch_name else ""
    return f"{facts.mechanism(measure)} {library}".strip()


def _launch(facts: Facts, measure: Measure) -> Launch:
    number = measure.identities[0][1]
    return next((launch for launch in facts.launches if launch.launch == number), Launch())


_CALLED = {
    "ccl": "collective library", "mpi": "MPI", "nvshmem": "NVSHMEM", "ucx": "UCX", "copy_engine": "peer copies",
    "kernel": "own kernels",
}  # fmt: skip
"""What a program can call, by the transport that measures it."""


def not_measured(facts: Facts) -> list[tuple[str, str]]:
    """Return what a program could call that a run measured nothing of, and why, where the run says so."""
    measured = {measure.transport for measure in facts.measures}
    absent = dict(facts.info.get("absent_transports") or {})
    kinds = (device.device_kind for device in facts.devices.values())
    runtime = next((RUNTIMES[kind] for kind in kinds if kind in RUNTIMES), None)
    found = []
    for transport, name in _CALLED.items():
        library = TRANSPORTS[transport].nic_library
        if transport in measured or (library and library.runtime and runtime and library.runtime != runtime.name):
            continue
        skipped = Counter(row.reason for row in facts.skipped if row.transport == transport)
        why = absent.get(transport) or next((reason for reason, _ in skipped.most_common(1)), "")
        word = runtime.ccl if transport == "ccl" and runtime and runtime.ccl else name
        asked = facts.shown(transport) if transport == "ccl" else transport
        found.append((word, str(why) or f"not in this plan: linkgauge run --transport {asked}"))
    return found


def _ranges(facts: Facts, by_size: dict[int, list[_Pooled]]) -> list[Advice]:
    ranges: list[list[tuple[int, list[_Pooled], set[str]]]] = []
    for size in sorted(by_size):
        order = by_size[size]
        alike = {one.name for one in order if not _matters(order[0], one)}
        if ranges and set.intersection(*(found for _, _, found in ranges[-1])) & alike:
            ranges[-1].append((size, order, alike))
        else:
            ranges.append([(size, order, alike)])
    return [_advice(facts, part) for part in ranges]


def _matters(best: _Pooled, other: _Pooled) -> bool:
    # Of fewer than six independent samples the interval reaches beyond all of them: nothing would ever matter.
    fastest = max(other.time_ns * (1 - other.half_width), other.fastest_ns)
    slowest = min(best.time_ns * (1 + best.half_width), best.slowest_ns)
    return fastest > slowest * (1 + MATTERS)


def _advice(facts: Facts, part: Sequence[tuple[int, list[_Pooled], set[str]]]) -> Advice:
    common = set.intersection(*(found for _, _, found in part))
    # Of those that are good everywhere in the range, the one that is fastest most often.
    wins = [next(one.name for one in order if one.name in common) for _, order, _ in part]
    best = max(sorted(common), key=wins.count)
    mine = [one for _, order, _ in part for one in order if one.name == best]
    losses: dict[str, tuple[float, int, _Pooled, _Pooled]] = {}
    for size, order, _ in part:
        own = next(one for one in order if one.name == best)
        for other in order:
            ratio = other.time_ns / own.time_ns
            if other.name not in common and (other.name not in losses or ratio > losses[other.name][0]):
                losses[other.name] = (ratio, size, own, other)
    second = min(losses, key=lambda name: losses[name][0], default="")
    margin = at = low = high = None
    if second:
        ratio, at, own, other = losses[second]
        a, b = (min(0.9, one.half_width) for one in (own, other))
        margin, low, high = ratio - 1, ratio * (1 - b) / (1 + a) - 1, ratio * (1 + b) / (1 - a) - 1
    members = tuple(dict.fromkeys(m.devices for one in mine for m in one.members))
    return Advice(
        task="",
        devices=members[0],
        members=members,
        size_from=part[0][0],
        size_to=part[-1][0],
        best=best,
        alike=tuple(sorted(common - {best})),
        margin=margin,
        margin_at=at,
        low=low,
        high=high,
        second=second,
        exports=_exports(facts, mine[len(mine) // 2].members[0]),
        case_keys=tuple(dict.fromkeys(m.case_key for one in mine for m in one.members)),
    )


def _exports(facts: Facts, measure: Measure) -> tuple[tuple[str, str], ...]:
    """Return the variables that make a library do what was measured: its memory's, the launch's, path and algorithm."""
    launch = _launch(facts, measure)
    env = launch.env if TRANSPORTS[measure.transport].library else {}
    asked = [(name, value) for name, value in env.items() if not is_secret(name)]  # of those the value is not known
    words = dialect(launch.mpi_vendor, str(launch.mpi.get("abi") or ""))
    settings, _ = library_settings(measure.case, words)
    kind = next((rank.device_kind for rank in launch.ranks), "host")
    return tuple(dict([*runtime_settings(measure.case, kind, words), *asked, *settings]).items())
