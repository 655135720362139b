"""When a run ends before its last case: by a signal, by its time limit, or with its batch system's job."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from linkgauge import interrupts
from linkgauge.run.launchers import job_is_over
from linkgauge.run.parent.launch import Launch
from linkgauge.run.parent.launch_end import LaunchEnd
from linkgauge.run.parent.prepared import TimeLimit

if TYPE_CHECKING:
    from types import FrameType

_REST_S = 0.2  # between looks whether a signal came, while the next round of a watch is waited for
# How long after ranks that died of SIGTERM one to this process may come.
_SIGNAL_PATIENCE_S = 2.0
# A batch system kills 30 s after its SIGTERM, an impatient user sooner: a run ends within 5 s of a signal.
_LAST_CASE_S = 1.5  # for the case in hand to end
_LAST_WAIT_S = 3.0  # for whatever else the run waits for, such as a look at its nodes


class Ending:
    """Whether a run is to end, and the end of the launch in hand with it."""

    def __init__(self, limit: TimeLimit | None, problem: Callable[[str], None]) -> None:
        """Take the time limit, and who is to hear that the batch system's job is over."""
        self._limit = limit
        self._problem = problem
        self._signaled_at = 0.0
        self._signals = 0
        self._launch: Launch | None = None
        self.signal = 0
        """The first signal that came; 0: none."""
        self.out_of_time = False
        self.turn_ends = 0.0  # with a time limit: when the launch in hand has to end

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        """Take signals while a run measures. KeyboardInterrupt that is of one ends in silence: `signal` says which."""
        ending = {signal.SIGINT, signal.SIGTERM, *interrupts.heeded()}
        previous = {number: signal.signal(number, self._on_signal) for number in ending}
        previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_last_wait)
        try:
            yield
        except KeyboardInterrupt:
            if not self.signal:
                raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in previous.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def ends(self, launch: Launch) -> Iterator[None]:
        """Have signals end this launch."""
        self._launch = launch
        try:
            yield
        finally:
            self._launch = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self.signal = self.signal or number
        if self._signals == 1:
            self._signaled_at = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, _LAST_WAIT_S, _REST_S)
        if self._launch is not None:
            if self._signals == 1:
                self._launch.stop()
            else:
                self._launch.abort()

    def _on_last_wait(self, number: int, frame: FrameType | None) -> None:
        """Leave what the run still waits for. A launch is left to end its own processes, which takes a moment."""
        if self._launch is None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt(interrupts.words(self.signal))

    @property
    def signaled(self) -> bool:
        """Whether a signal came, or the job is over."""
        return self._signals > 0

    def is_due(self) -> bool:
        """Whether no further case is to begin."""
        if self._limit is not None and time.monotonic() >= self._limit.last_end:
            self.out_of_time = True
        return self.signaled or self.out_of_time

    def turn_is_over(self) -> bool:
        """Whether the launch in hand has had its share of the time."""
        return self._limit is not None and time.monotonic() >= self.turn_ends

    def rest_until(self, due: float) -> None:
        """Wait, as long as the run is not to end."""
        while (left := due - time.monotonic()) > 0 and not self.is_due():
            time.sleep(min(left, _REST_S))

    def look(self, have_met: bool) -> None:
        """End the launch in hand where that is due: after its case, or at once where the time for that is over.

        `have_met`: ranks that have not cannot be asked to end after the case in hand.
        """
        if self._launch is None or not self.is_due():
            return
        now = time.monotonic()
        over = self._limit is not None and now >= self._limit.cut
        over |= self.signaled and now >= self._signaled_at + _LAST_CASE_S
        if over or not have_met:
            self._launch.abort()
        else:
            self._launch.stop()

    def ended_with(self, end: LaunchEnd) -> bool:
        """Whether a launch's ranks died of what ends the run, so that no case is to blame.

        A batch system that ends a job sends SIGTERM to the ranks and to this process, and whose comes first is chance;
        or to the ranks alone, and has no such job any more.
        """
        if end.status != "crashed":
            return False
        until = time.monotonic() + (_SIGNAL_PATIENCE_S if end.evidence.get("signal") == signal.SIGTERM else 0)
        while not self.signaled and time.monotonic() < until:
            time.sleep(0.05)
        return self.signaled or self.without_its_job()

    def without_its_job(self) -> bool:
        """Whether the batch system has ended the job, which then ends the run as a signal does."""
        if job_is_over():
            self._problem("the batch system has ended the job that this run is in")
            self._signals, self.signal = self._signals + 1, self.signal or signal.SIGTERM
        return self.signaled
