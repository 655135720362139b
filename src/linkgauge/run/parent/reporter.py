"""What is shown while a run goes on: events in, plain lines out. A terminal has a live display (app/progress.py)."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from linkgauge.model.background import beside_text
from linkgauge.model.case import Case
from linkgauge.model.device_words import device_words
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes, format_duration
from linkgauge.plan.curves import FULL

_PLAIN_EVERY_S = 5.0


def case_text(case: Case, shown: Mapping[str, str] | None = None, noun: str = "device") -> str:
    """A case in a few words: `kernel pingpong 64 KiB on GPU 0 - GPU 1`, `mpi halo shift:2 8 MiB on GPUs 0-7`.

    `shown`: what screens call transports, where that is not their name; `noun` what they call a device.
    """
    devices = f"on {device_words(case.devices, noun)}" + (f" via {noun} {case.via}" if case.via >= 0 else "")
    transport = (shown or {}).get(case.transport, case.transport) + (f"/{case.variant}" if case.variant else "")
    if PATTERNS[case.pattern].scripted:
        collectives = f" collectives={case.collectives}" if case.collectives else ""
        return f"{transport}{collectives} {case.app.label} {devices}"
    size = "full" if case.size_requested == FULL else format_bytes(case.size_requested)
    pattern = f"{case.pattern} {case.distribution}" if case.distribution else case.pattern
    return f"{transport} {pattern} {size} {devices}{beside_text(case.background.text, shown)}"


@dataclasses.dataclass
class RunState:
    """What a display shows. Estimated times in seconds."""

    cases_total: int
    cases_done: int = 0
    left_s: Callable[[], float] = lambda: 0.0  # of the cases left, by what such cases have taken so far
    ends_at: float | None = None  # of a time limit
    best: str = "-"
    best_goodput: float = 0.0
    failed: int = 0
    skipped: int = 0
    shown: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what transports are called
    noun: str = "device"

    def time_left_s(self, now: float) -> float:
        """What is left, the estimates corrected by how long such cases have really taken; within the limit."""
        left = self.left_s()
        return left if self.ends_at is None else min(left, max(self.ends_at - now, 0.0))


class Reporter:
    """Plain lines: one a few seconds, one for each case that did not end well, and notes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`, stderr by default."""
        self._stream = stream or sys.stderr
        self._said_at = 0.0
        self.state = RunState(0)

    def start(self, state: RunState) -> None:
        """The run begins."""
        self.state = state

    def note(self, text: str) -> None:
        """Say something that is not part of the progress."""
        print(f"linkgauge: {text}", file=self._stream, flush=True)

    def problem(self, text: str) -> None:
        """Say what went wrong; a reporter that says no notes says this."""
        self.note(text)

    def begin(self, case: Case) -> None:
        """A case begins."""

    def text(self, case: Case) -> str:
        """A case in a few words, its transport as screens call it."""
        return case_text(case, self.state.shown, self.state.noun)

    def look(self) -> None:
        """Some five times a second; a display must do nothing here that takes time from the ranks."""

    def case(self, case: Case, status: str, reason: str, goodput: float | None) -> None:
        """A case has its status."""
        state = self.state
        state.cases_done += 1
        if status == "skipped":
            state.skipped += 1
        elif status != "ok":
            state.failed += 1
            self.problem(f"{self.text(case)}: {status}: {reason}")
        if goodput is not None and goodput > state.best_goodput:
            state.best_goodput, state.best = goodput, f"{goodput / 1e9:.3g} GB/s ({self.text(case)})"
        self.shown(case)

    def shown(self, case: Case) -> None:
        """Show progress after a case."""
        now = time.monotonic()
        state = self.state
        if state.cases_total and now - self._said_at >= _PLAIN_EVERY_S:  # what is skipped beforehand is no progress
            self._said_at = now
            self.note(
                f"{state.cases_done}/{state.cases_total} cases, about {format_duration(state.time_left_s(now) * 1e9)} "
                f"left; {self.text(case)}; best {state.best}"
            )

    def stop(self) -> None:
        """The run has ended."""
