"""Windows of a device: between two readings of a counter, with what it grew by and which cases ran meanwhile.

What is expensive is read at some boundaries only, so that a window may hold several cases; runs up to 0.2 read all
before and after each case, so that each window holds one. Pure: from rows and observations, no I/O.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.model.grouped import grouped
from linkgauge.model.link_use import kind_of, reaches_elsewhere
from linkgauge.model.result import Identity, Observation, Row
from linkgauge.run.machine.observe import CASE_TIME

_STILL = ("ok", "skipped")
"""Of cases that end otherwise nobody knows what they moved."""


@dataclasses.dataclass(frozen=True)
class Window:
    """From one reading of a device to the next: how much each counter that both have grew by, and the cases meanwhile.

    `is_known`: whether these cases are all that ran there, and how they ended.
    """

    device: int
    subject: str
    start_ns: float
    end_ns: float
    grown: Mapping[str, float]
    units: Mapping[str, str]
    rows: tuple[Row, ...]
    is_known: bool

    @property
    def lasts_ns(self) -> float:
        """Return how long it took."""
        return max(1.0, self.end_ns - self.start_ns)

    @property
    def measured(self) -> tuple[Row, ...]:
        """The cases that moved something."""
        return tuple(row for row in self.rows if row.status == "ok")

    @property
    def of_one_kind(self) -> bool:
        """Whether its cases differ in their sizes alone."""
        return self.is_known and len({kind_of(row.case) for row in self.measured}) == 1


@dataclasses.dataclass
class _Seen:
    """What was observed of a device in a launch: readings by counter and time, and when its cases ran."""

    subject: str
    readings: dict[str, dict[int, float]] = dataclasses.field(default_factory=dict)
    units: dict[str, str] = dataclasses.field(default_factory=dict)
    cases: dict[Identity, list[Observation]] = dataclasses.field(default_factory=dict)


def _seen_of(known: Mapping[Identity, Row], observations: Iterable[Observation]) -> dict[tuple[int, int], _Seen]:
    found: dict[tuple[int, int], _Seen] = {}
    for one in observations:
        row = known.get(one.identity)
        if row is None or not is_device(one.subject) or not 0 <= one.rank < len(row.devices):
            continue
        seen = found.setdefault((row.devices[one.rank], one.identity[1]), _Seen(one.subject))
        seen.cases.setdefault(one.identity, []).append(one)
        if one.name != CASE_TIME:
            seen.readings.setdefault(one.name, {})[one.when_ns] = one.value
            seen.units[one.name] = one.unit
    return found


def is_device(subject: str) -> bool:
    """Whether an observation's subject is a device, such as cuda:0; a name of a network interface may have a colon."""
    kind, _, ordinal = subject.partition(":")
    return kind.isalpha() and ordinal.isdecimal()


def span_of(values: Sequence[Observation]) -> tuple[float, float] | None:
    """When a case ran: as its rank says, or, in older runs, from the readings before it to those after it."""
    for one in values:
        if one.name == CASE_TIME:
            return one.when_ns - one.value, float(one.when_ns)
    before = {one.name: one for one in reversed(values) if one.moment == "before"}
    after = {one.name: one for one in values if one.moment == "after"}
    both = before.keys() & after.keys()
    if not both:
        return None
    start = float(max(before[name].when_ns for name in both))
    return start, max(start, float(min(after[name].when_ns for name in both)))


def windows_of(known: Mapping[Identity, Row], observations: Iterable[Observation]) -> list[Window]:
    """Return the windows of all devices in order of time; those without a case, between two of older runs, are none.

    `known`: all rows of the run. A case that may have used the device from another makes its windows unknown.
    """
    seen_of = _seen_of(known, observations)
    strangers = _reaching(known, seen_of)
    found = []
    for (device, launch), seen in seen_of.items():
        cases = sorted(
            (*span, identity) for identity, values in seen.cases.items() if (span := span_of(values)) is not None
        )
        starts = [start for start, *_ in cases]
        spans: dict[tuple[int, int], dict[str, float]] = {}
        for name, values in seen.readings.items():
            at = sorted(values)
            for start, end in itertools.pairwise(at):
                spans.setdefault((start, end), {})[name] = values[end] - values[start]
        for (start, end), grown in spans.items():
            first = bisect.bisect_left(starts, start)
            first -= first > 0 and cases[first - 1][1] > start
            within = [known[identity] for _, _, identity in cases[first : bisect.bisect_left(starts, end)]]
            if within:
                still = all(row.status in _STILL for row in within)
                stranger = any(begins < end and ends > start for begins, ends in strangers.get((device, launch), ()))
                units = {name: seen.units[name] for name in grown}
                found.append(Window(device, seen.subject, float(start), float(end), grown, units, tuple(within),
                                    still and not stranger))  # fmt: skip
    return sorted(found, key=lambda one: (one.start_ns, one.device))


def _reaching(
    known: Mapping[Identity, Row], seen_of: Mapping[tuple[int, int], _Seen]
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """By device and launch when cases of other devices may have used it: their buffers may lie there."""
    spans = [(known[identity], device, launch, span_of(values)) for (device, launch), seen in seen_of.items()
             for identity, values in seen.cases.items()
             if reaches_elsewhere(known[identity].case) or known[identity].case.routed]  # fmt: skip
    return grouped(
        ((other, launch), span) for row, device, launch, span in spans if span is not None
        for other, there in seen_of if there == launch and other != device and other not in row.devices
    )  # fmt: skip
