"""What each step of an application takes by itself, from curves that were measured or that links allow.

- A message takes the half round trip of its size. By ccl on GPUs, one that a stream goes on to takes what one of many
  back to back does.
- Of four ranks or more, messages' curves are those of pairs side by side, where the run has them: that is how ranks
  share what lies between them. Copies that several ranks have at one step are as long as those of all devices at once;
  those within a device as long as alone. None takes less than its share of a copy that goes through as many bytes as
  all buffers of an iteration have, whose curve knows whether a cache holds them: between two copies of one buffer, a
  rank goes through all others. Messages and collectives are not so: their curves of few bytes are of other protocols.
- A collective that is begun and waited for later takes the time of such a one, if the run has it: MPI libraries take
  other algorithms there. Where all ranks come straight from another collective, or one waits for the other, it takes
  what one behind a barrier does, if the run has that; where a stream goes on from one to the next by itself (ccl on
  GPUs), what one of many back to back does. At an agreed time ranks come with cold caches and up to a
  microsecond apart, of which small ones take as much.
"""

from __future__ import annotations

import collections

import numpy as np

from linkgauge.apps.program import Program, touched_bytes
from linkgauge.apps.rows import COMPUTE, COPY, Collective
from linkgauge.expect.curves import BEGUN, BEHIND, STREAMED, Curve, Curves, of_algorithm, of_blocks
from linkgauge.expect.mechanism import Mechanism
from linkgauge.expect.slow_downs import Costs, SlowDown
from linkgauge.expect.under_way import ALONE
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.rank_bytes import sent_and_received

_COPY_CURVES = {"host_to_device": "host_to_device", "device_to_host": "device_to_host", "within_device": "local_copy"}
_FIRST_WINDOW = 16


class StepCosts:
    """Times in ns of a program's steps; each curve is looked for once. `slow` as `predict` takes it."""

    def __init__(self, program: Program, curves: Curves, mechanism: Mechanism, slow: Costs | None) -> None:
        """Note how many ranks have the copies of each step of the file."""
        self._program, self._curves, self._by, self._slow = program, curves, mechanism, slow
        self._count = len(program.ranks)
        self._through = [touched // 2 for touched in touched_bytes(program)]  # a copy of n bytes goes through 2 n
        self._messages: dict[int, tuple[float, float, float]] = {}
        self._copies: dict[tuple[str, bool], Curve] = {}
        self._collectives: dict[tuple[str, int, str], Curve | None] = {}
        self._slowed: dict[str, SlowDown] = {}  # by pattern
        self._sharers: dict[int, set[int]] = collections.defaultdict(set)
        for rank, one in enumerate(program.ranks):
            for step in one.steps[np.isin(one.rows[:, 0], (COPY, COMPUTE))].tolist():
                self._sharers[step].add(rank)

    def copy_ns(self, rank: int, at: int, name: str, size: int) -> float:
        """Of a copy by name, which is a rank's row `at`: beside those of other ranks that have the step too."""
        together = len(self._sharers[self._program.ranks[rank].steps.item(at)]) > 1
        key = (name, together)
        if key not in self._copies:
            counts = (self._count, 1) if together else (1, self._count)
            # The host's ends are pageable where the messages' buffers are (core/operation/application.cpp).
            hosts = ("pageable", "pinned") if self._by.memory[0] == "pageable" else ("pinned",)
            memories = [("device", "device")]
            if name != "within_device":
                memories = [(host, "device") if name == "host_to_device" else ("device", host) for host in hosts]
            pattern = _COPY_CURVES[name]
            by = self._by.copies or "copy_engine"
            # Of as many thread blocks where the run has them, else of what the kernel likes.
            of = [*dict.fromkeys((of_blocks(self._by.blocks), ""))]
            found = (self._curves.find(pattern, by, memory, counts, variant=one) for one in of for memory in memories)
            self._copies[key] = next(filter(None, found), None) or self._curves.need(pattern, by, memories[-1], counts)
        curve, through = self._copies[key], max(size, self._through[rank])
        return max(curve(size), size * curve(through) / through)

    def message_ns(self, size: int) -> tuple[float, float, float]:
        """Of a message: its time alone, that from one to the next, and how much longer they are both ways at once."""
        if size not in self._messages:
            curves, by = self._curves, (self._by.transport, self._by.memory)
            several = self._count >= 4
            alone = self._curve("pingpong", several)(size) / 2
            one_way = self._curve("unidirectional", several)(size)
            both = self._curve("bidirectional", several)(size)
            windowed = curves.find("unidirectional", *by, (2,), _FIRST_WINDOW)
            gap = one_way if windowed is None else min(one_way, windowed(size) / _FIRST_WINDOW)
            streamed = curves.find("unidirectional", *by, (2,), variant=STREAMED) if self._by.in_turn else None
            gap = gap if streamed is None else min(one_way, streamed(size))
            # The lower end of an interval may be 0 on a machine that others use.
            self._messages[size] = alone, gap, max(1.0, both / one_way) if one_way else 1.0
        return self._messages[size]

    def _curve(self, pattern: str, several: bool) -> Curve:
        by = (self._by.transport, self._by.memory)
        side_by_side = self._curves.find(f"pairs_{pattern}", *by, (self._count,)) if several else None
        return side_by_side or self._curves.need(pattern, *by, (2,))

    def collective_ns(self, wanted: Collective, *, behind: bool, streamed: bool = False) -> float:
        """Of a collective alone; `behind`: its ranks come straight from another one; `streamed`: a stream does."""
        size = wanted.size
        if wanted.distribution and PATTERNS[wanted.pattern].distributed:
            ranks = len(wanted.ranks)
            sent, received = sent_and_received(wanted.pattern, ranks, size, wanted.distribution)
            even, _ = sent_and_received(wanted.pattern, ranks, size, "")
            size = round(size * max(*sent, *received) / max(even))
        supposed = of_algorithm(self._by.algorithm)
        variants = [supposed] * bool(supposed) + [STREAMED] * streamed + [BEGUN] * wanted.begun + [BEHIND] * behind
        for variant in variants:
            found = self._collective_curve(wanted, variant)
            # Large ones behind a barrier or in a stream are not measured twice.
            if found is not None and (variant not in (BEHIND, STREAMED) or size <= found.sizes[-1]):
                return found(size)
        usual = self._collective_curve(wanted, "")
        assert usual is not None
        return usual(size)

    def _collective_curve(self, wanted: Collective, variant: str) -> Curve | None:
        key = (wanted.pattern, len(wanted.ranks), variant)
        if key not in self._collectives:
            of = (wanted.pattern, self._by.collectives, self._by.memory, (len(wanted.ranks),))
            self._collectives[key] = self._curves.find(*of, variant=variant) if variant else self._curves.need(*of)
        return self._collectives[key]

    def slow_down(self, pattern: str) -> SlowDown:
        """What a collective and stand-in kernels cost each other."""
        if self._slow is None:
            return ALONE
        if pattern not in self._slowed:
            by = self._by
            found = self._slow.find(pattern, by.collectives, by.copies or "copy_engine", by.blocks)
            self._slowed[pattern] = found or ALONE
        return self._slowed[pattern]
