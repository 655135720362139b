"""What state a device was in at a case's boundaries: clocks, power, heat, throttling, error and byte counters.

Read by the rank that drives the device, outside of the timed part, in parts as the launch's plan of readings says
(run/rank/reading_plan.py). A question that the driver does not answer is asked once; that it refused, and why, is kept
in the launch's record.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

Row = dict[str, Any]
# NVML's bits of reasons that lower a clock for power or heat, not by choice or for idleness (nvml.h,
# nvmlClocksEventReason*): power cap, hardware slowdown, thermal in software and hardware, power brake.
THROTTLE_BITS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "temperature (software)",
                 0x40: "temperature (hardware)", 0x80: "power brake"}  # fmt: skip
THROTTLE_REASONS = "throttle_reasons"
# Counters of time that only grow while a clock is held down, unlike the reasons, which tell of the moment.
VIOLATIONS = {"power_violation": "power cap", "thermal_violation": "temperature"}
OTHER_PROCESSES = "other_processes"
OTHERS_BUSY, OTHERS_COPY = "others_busy", "others_copy_time"
"""The share of a device's processors that others kept busy lately; for how long their copies kept its engines busy."""
CLOCK_OFFSET, CLOCK_OFFSET_UNCERTAINTY = "clock_offset", "clock_offset_uncertainty"
COUNTED_ERRORS = "errors"
NVLINK_SENT, NVLINK_RECEIVED = "nvlink_data_tx_bytes", "nvlink_data_rx_bytes"
"""Payload of all links of a device together."""
STATE, LINKS, PCIE, COUNTERS = PARTS = ("state", "links", "pcie", "counters")
"""Parts of a device that are read apart, by what they cost: its state takes a tenth of a millisecond; bytes of all its
links, or of PCIe alone; counters of errors and heat."""
NODE = "node"
"""Of costs: what was read of the node, and what opening a reader took."""
CASE_TIME = "case_time"
"""For how long a case was in hand on a rank, up to the row's moment: which cases lie between two readings."""


@dataclasses.dataclass(frozen=True)
class Value:
    """One value that was read. `unit`: Hz, W, C, B, ns, lanes, errors, or empty."""

    name: str
    value: float
    unit: str


class Reader(Protocol):
    """Reads one device, of which it knows some `parts`."""

    subject: str
    parts: Sequence[str]

    def read(self, part: str = "") -> list[Value]:
        """The values of this moment, of one part or of all."""

    def refused(self) -> dict[str, str]:
        """What could not be read: name -> the reason, for the launch's record."""

    def own(self, pids: Iterable[int]) -> None:
        """Say which processes of this host are the run's: all others are other processes."""

    def users(self) -> list[int] | None:
        """Processes with a context on it, as its driver numbers them; None: it lists none."""

    def busy(self) -> float | None:
        """The share of the last moments in which it worked; None: not known."""

    def engine_ns(self, pids: Iterable[int]) -> int:
        """For how long these processes have kept its engines busy, where the driver counts that."""


class NicReader(Protocol):
    """Reads all network cards of a node."""

    def read(self, *, priorities: bool = False) -> list[tuple[str, list[Value]]]:
        """Subjects and their values of this moment; of each priority too, if asked."""


class Observer:
    """The observations of one rank: rows as docs/reference/run-folder.md has them, without the identity."""

    def __init__(
        self,
        reader: Reader | None,
        nics: NicReader | None = None,
        node: Sequence[tuple[str, str, Callable[[], list[Value]]]] = (),
        opening_ns: int = 0,
    ) -> None:
        """Observe through `reader`, the node's network cards through `nics`, and what `node` reads of it.

        The latter by part and subject: NODE at each look at the node, or with that part of a device. Nothing where they
        are None. `opening_ns`: what opening the reader took.
        """
        self._reader = reader
        self._nics = nics
        self._node = node
        self._rows: list[Row] = []
        self._costs: dict[str, list[int]] = {NODE: [opening_ns]} if opening_ns else {}
        self._counted: dict[str, tuple[int, float]] = {}  # when each counter was read last, and what it was
        self._case_ns = self._taken_ns = 0

    def look(
        self,
        moment: str,
        place: int,
        parts: Sequence[str] = PARTS,
        *,
        nics: bool = False,
        priorities: bool = False,
        node: bool = False,
    ) -> None:
        """Read some parts of the device. `moment`: before or after; `place`: the rank's in the case, below 0 where it
        has none.

        `nics`: the node's network cards too, last before the case and first after it, with their `priorities`.
        `node`: what is read of the node.
        """
        ended_ns = time.monotonic_ns()
        looks = list(self._of_device(parts)) if place >= 0 else []
        looks += [one for one in self._node if node and (one[0] == NODE or one[0] in parts)]
        if nics and self._nics is not None:
            began = time.monotonic_ns()
            looks += [
                (NODE, subject, functools.partial(list, values))
                for subject, values in self._nics.read(priorities=priorities)
            ]
            self._costs.setdefault(NODE, []).append(time.monotonic_ns() - began)
        for part, subject, read in looks if moment == "before" else reversed(looks):
            self.note(moment, place, subject, read, part)
        if moment == "before":
            self._case_ns = time.monotonic_ns()
        elif self._reader is not None and place >= 0:
            lasted = Value(CASE_TIME, ended_ns - self._case_ns, "ns")
            self._rows.append(row_of(place, self._reader.subject, moment, ended_ns, lasted))

    def _of_device(self, parts: Sequence[str]) -> Iterator[tuple[str, str, Callable[[], list[Value]]]]:
        if self._reader is not None:
            for part in self._reader.parts:
                # Where links are read, PCIe's bytes are read with them.
                if part in parts and not (part == PCIE and LINKS in parts):
                    yield part, self._reader.subject, functools.partial(self._reader.read, part)

    def note(self, moment: str, place: int, subject: str, read: Callable[[], list[Value]], part: str = NODE) -> None:
        """Keep what `read` gives of `subject`, with the time before it was asked, and what it took as of `part`."""
        when_ns = time.monotonic_ns()
        values = read()
        if self._reader is not None and subject == self._reader.subject:
            self._rows += self._read_earlier(moment, place, subject, when_ns, values)
        self._rows += [row_of(place, subject, moment, when_ns, value) for value in values]
        self._costs.setdefault(part, []).append(time.monotonic_ns() - when_ns)

    def _read_earlier(
        self, moment: str, place: int, subject: str, when_ns: int, values: Iterable[Value]
    ) -> Iterator[Row]:
        """Yield the readings since which counters have risen: what rose belongs into the evidence of the case after
        which it was seen."""
        for value in values:
            if value.unit == COUNTED_ERRORS or value.name in VIOLATIONS:
                at_ns, earlier = self._counted.get(value.name, (when_ns, value.value))
                if moment == "after" and earlier < value.value and at_ns < self._taken_ns:
                    yield row_of(place, subject, "before", at_ns, dataclasses.replace(value, value=earlier))
                self._counted[value.name] = when_ns, value.value

    def taken(self) -> list[Row]:
        """The rows since the last call."""
        rows, self._rows = self._rows, []
        self._taken_ns = time.monotonic_ns()
        return rows

    def costs(self) -> dict[str, list[int]]:
        """What each reading since the last call took, in ns, by part; NODE: of what is no device's."""
        costs, self._costs = self._costs, {}
        return costs


def row_of(place: int, subject: str, moment: str, when_ns: int, value: Value) -> Row:
    """A value of a case as docs/reference/run-folder.md has it, without the identity."""
    return {"rank": place, "subject": subject, "moment": moment, "when_ns": when_ns, "name": value.name,
            "value": value.value, "unit": value.unit}  # fmt: skip


def notable(rows: Iterable[Row]) -> dict[str, Any]:
    """What of a case's observations belongs into its evidence: `throttled` and `errors_rose`, by subject.

    Throttled: a reason after the case that was none of choice, or a time of violation that grew while it ran.
    """
    before: dict[tuple[str, str], float] = {}
    throttled: dict[str, list[str]] = {}
    rose: dict[str, dict[str, float]] = {}
    for row in rows:
        key = (str(row["subject"]), str(row["name"]))
        if row["moment"] == "before":
            before[key] = row["value"]
            continue
        grown = row["value"] - before.get(key, row["value"])
        words: Sequence[str] = ()
        if row["name"] == THROTTLE_REASONS:
            words = [word for bit, word in THROTTLE_BITS.items() if int(row["value"]) & bit]
        elif row["name"] in VIOLATIONS and grown > 0:
            words = [VIOLATIONS[row["name"]]]
        elif row["unit"] == COUNTED_ERRORS and grown > 0:
            rose.setdefault(key[0], {})[key[1]] = grown
        if words:
            throttled[key[0]] = list(dict.fromkeys([*throttled.get(key[0], ()), *words]))
    return {name: of for name, of in (("throttled", throttled), ("errors_rose", rose)) if of}
