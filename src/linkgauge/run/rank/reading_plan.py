"""What of its devices a launch reads at each case's boundaries, so that observing costs a stated share of its time.

Rank 0 decides for all ranks, because all wait for the one that reads longest: they read the same at the same boundary,
and what is spent is time of the launch, not of a device. docs/definitions.md, Observing, has the rules.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from linkgauge.model.case import Case
from linkgauge.model.link_use import kind_of, leaves_fabric_idle, leaves_host_link_idle
from linkgauge.model.patterns import PATTERNS
from linkgauge.run.machine.observe import COUNTERS, LINKS, OTHER_PROCESSES, OTHERS_BUSY, PARTS, PCIE, STATE, Row

SHARES = {STATE: 0.8e-3, LINKS: 2.4e-3, PCIE: 0.3e-3, COUNTERS: 0.5e-3}
"""Of the launch's time, what each part may take: 0.4 % together."""
ODD_SHARE = 1e-3
"""What the links may take beyond that while something looks like another user."""
_LONG_NS = 500e6  # a window of links longer than this is worth a second reading
_IDLE, _MIXED = "idle", "mixed"
_POWER = 2.0  # times the least that was seen beside small cases: another's work (docs/definitions.md, Other users)
_SMALL = 1 << 20  # bytes: operations from here on warm a device up
_COOLS_NS = 250e6  # power is a mean over some 100 ms
_OTHERS = 0.1  # of the processors


class Readings(NamedTuple):
    """The parts to read before a case and after it."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class ReadingPlan:
    """The decisions of one launch, and what observing has cost it."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Begin now. `clock` gives ns; tests have their own."""
        self._clock = clock
        self._began_ns = clock()
        self._spent = dict.fromkeys((*PARTS, _MIXED), 0)  # the latter: of links, for what was odd
        self._cost: dict[str, float] = {}  # of one reading, as it was lately
        self._since: dict[int, object] = {}  # by device what its cases since its last reading of links have in common
        self._read_ns: dict[int, int] = {}
        self._odd = self._odd_pays = False
        self._least_power: dict[str, float] = {}
        self._state_ns: dict[int, int] = {}  # by device when its state was read last
        self._warm_ns: dict[int, int] = {}  # and when the last case ended that warms it up
        self._rested = self._small = False  # whether the case in hand found its devices cold, and leaves them so
        self._devices: tuple[int, ...] = ()
        self._reads_state = False
        self.total_ns = 0
        self._took: dict[str, int] = {}

    @property
    def lasts_ns(self) -> int:
        """For how long the launch has gone on."""
        return self._clock() - self._began_ns

    def next(self, case: Case, *, is_last: bool) -> Readings:
        """What to read beside the case that comes now. The first case's whole state is known, and the last one's."""
        self._odd_pays = False
        now = self._clock()
        self._rested = all(now - self._warm_ns.get(device, -_COOLS_NS) >= _COOLS_NS for device in case.devices)
        self._small = case.size < _SMALL and case.transport != "kernel" and not PATTERNS[case.pattern].computes
        if not self._cost:
            before, after = [STATE, LINKS, COUNTERS], [STATE, PCIE]
        else:
            before, after = [], [STATE] if self._allows(STATE) else []
            # What a device did while others were measured; else the case before has read it.
            if self._allows(STATE, 2) and any(now - self._state_ns.get(one, 0) >= _COOLS_NS for one in case.devices):
                before.append(STATE)
            if self._allows(COUNTERS):
                after.append(COUNTERS)
            if self._wants_links(case):
                before.append(LINKS)
            # Bytes of PCIe are counted in 32 bits: only a short window says how many there were.
            if leaves_host_link_idle(case) and self._allows(PCIE, 2):
                before, after = before if LINKS in before else [*before, PCIE], [*after, PCIE]
        self._note_links(case, LINKS in before)
        if is_last:
            after = list(PARTS)
        self._devices = tuple(set(case.devices))
        self._reads_state = STATE in after
        return Readings(tuple(before), tuple(part for part in after if part != PCIE or LINKS not in after))

    def _allows(self, part: str, times: float = 1) -> bool:
        cost = self._cost.get(part)
        return cost is not None and SHARES[part] * self.lasts_ns - self._spent[part] >= times * cost

    def _wants_links(self, case: Case) -> bool:
        own = _use_of(case)
        if any(device not in self._since for device in case.devices):
            return True  # the budget is repaid later
        wanted = float(self._odd)  # how many readings must be affordable for this one; 0: it is not wanted
        for device in set(case.devices):
            since = self._since[device]
            if since == own:
                long = self._clock() - self._read_ns.get(device, 0) > _LONG_NS
                times = 2.0 if long else 0.0
            else:  # a window that holds idle cases alone, or one kind alone, says most
                telling = _IDLE in (since, own) or case.path or case.algorithm
                times = 1.0 if telling else 3.0
            wanted = min(filter(None, (wanted, times)), default=0.0)
        if wanted and self._allows(LINKS, wanted):
            return True
        cost = self._cost.get(LINKS)
        if self._odd and cost is not None and ODD_SHARE * self.lasts_ns - self._spent[_MIXED] >= cost:
            self._odd_pays = True
        return self._odd_pays

    def _note_links(self, case: Case, is_read: bool) -> None:
        own = _use_of(case)
        for device in set(case.devices):
            if is_read:
                self._read_ns[device] = self._clock()
            fresh = is_read or self._since.get(device, own) == own
            self._since[device] = own if fresh else _MIXED

    def ended(self, costs: Iterable[Mapping[str, Sequence[int]]], rows: Iterable[Row] = ()) -> None:
        """The case has ended: what each rank's readings took, by part in ns, and what was observed."""
        longest: dict[str, list[int]] = {}
        for one in costs:
            for part, times in one.items():
                both = itertools.zip_longest(longest.get(part, ()), times, fillvalue=0)
                longest[part] = [max(pair) for pair in both]
        for part, times in longest.items():
            self.total_ns += sum(times)
            self._took[part] = self._took.get(part, 0) + sum(times)
            if part in PARTS and times:
                pays = _MIXED if part == LINKS and self._odd_pays else part
                self._spent[pays] += sum(times)
                mean = sum(times) / len(times)
                self._cost[part] = mean if part not in self._cost else 0.7 * self._cost[part] + 0.3 * mean
        now = self._clock()
        for device in self._devices:
            if not self._small:
                self._warm_ns[device] = now
            if self._reads_state:
                self._state_ns[device] = now
        odd = [self._is_odd(row) for row in rows]  # of all rows, because the least power is learned from each
        self._odd = any(odd)

    def _is_odd(self, row: Row) -> bool:
        if row["name"] == "power" and self._rested and (self._small or row["moment"] == "before"):
            subject, power = str(row["subject"]), float(row["value"])
            idle = self._least_power[subject] = min(power, self._least_power.get(subject, power))
            return power > _POWER * idle
        least = {OTHER_PROCESSES: 1.0, OTHERS_BUSY: _OTHERS}.get(str(row["name"]), math.inf)
        return float(row["value"]) >= least

    def record(self) -> dict[str, Any]:
        """What observing has cost the launch, in seconds, and which part of it how much."""
        parts = {part: ns / 1e9 for part, ns in self._took.items()}
        return {"seconds": self.total_ns / 1e9, "of_seconds": self.lasts_ns / 1e9, "parts": parts}


def _use_of(case: Case) -> object:
    return _IDLE if leaves_fabric_idle(case) else kind_of(case)
