"""What is shown while something long goes on: the live display of a run, and the stages of every other command."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

from linkgauge.app.verbosity import QUIET, USUAL, VERBOSE, verbosity
from linkgauge.model.case import Case
from linkgauge.model.quantity import format_duration
from linkgauge.run.parent.reporter import Reporter, RunState


class LiveReporter(Reporter):
    """A live display on a terminal: bar, case in hand, best so far, time left. Drawn four times a second at most."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Draw on `stream`, stderr by default."""
        super().__init__(stream)
        # Here, since a run that nobody watches starts sooner without.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._console = Console(file=self._stream)
        self._progress: Any = Progress(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]} left"),
            TextColumn("{task.fields[case]}"),
            TextColumn("best {task.fields[best]}"),
            console=self._console,
            auto_refresh=False,  # no thread of its own: the ranks need the cores
            transient=True,
        )
        self._task: Any = None
        self._drawn_at = 0.0
        self._case = ""

    def start(self, state: RunState) -> None:
        """Put the display up."""
        super().start(state)
        self._task = self._progress.add_task("", total=max(state.cases_total, 1), left="?", case="starting", best="-")
        self._progress.start()

    def note(self, text: str) -> None:
        """Print above the display."""
        self._console.print(f"linkgauge: {text}", markup=False, highlight=False)

    def begin(self, case: Case) -> None:
        """Show the case in hand at the next drawing."""
        self._case = self.text(case)

    def look(self) -> None:
        """Draw, four times a second at most."""
        now = time.monotonic()
        if self._task is None or now - self._drawn_at < 0.25:
            return
        self._drawn_at = now
        state = self.state
        self._progress.update(
            self._task,
            completed=state.cases_done,
            left=format_duration(state.time_left_s(now) * 1e9),
            case=self._case,
            best=state.best,
        )
        self._progress.refresh()

    def shown(self, case: Case) -> None:
        """Nothing: `look` draws."""

    def stop(self) -> None:
        """Take the display down."""
        self._progress.stop()
        self._task = None


class QuietReporter(Reporter):
    """Says only what went wrong with a case."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def problem(self, text: str) -> None:
        """Say what went wrong."""
        super().note(text)

    def shown(self, case: Case) -> None:
        """Show no progress."""


class VerboseReporter(Reporter):
    """A line for each case, with its status and goodput."""

    def case(self, case: Case, status: str, reason: str, goodput: float | None) -> None:
        """Count it, and say how it ended."""
        super().case(case, status, reason, goodput)
        if status in ("ok", "skipped"):
            rate = "" if goodput is None else f", {goodput / 1e9:.3g} GB/s"
            why = f": {reason}" if status == "skipped" and reason else ""
            self.note(f"{self.state.cases_done}/{self.state.cases_total} {self.text(case)}: {status}{why}{rate}")

    def shown(self, case: Case) -> None:
        """Show no other progress."""


def reporter_for(stream: TextIO | None = None) -> Reporter:
    """Live on a terminal, plain lines elsewhere; less with `-q`, a line a case with `-v`."""
    stream = stream or sys.stderr
    if (asked := verbosity()) != USUAL:
        return QuietReporter(stream) if asked == QUIET else VerboseReporter(stream)
    return LiveReporter(stream) if stream.isatty() else Reporter(stream)


SAID_EVERY_S = 10.0
_DRAWN_EVERY_S = 0.5
_LOOKED_EVERY_S = 2.0


class Stages:
    """What a long command is doing, by stages: a bar on a terminal, elsewhere a line at least every 10 s.

    A thread looks twice a second at a terminal, else every two seconds: the command itself computes, or waits for
    processes.
    """

    def __init__(
        self,
        name: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        watched: bool = True,
    ) -> None:
        """For the command `name`, on `stream` (stderr by default). `watched`: whether a thread looks."""
        self._name, self._stream, self._clock = name, stream or sys.stderr, clock
        self._level = verbosity()
        self._lock = threading.RLock()  # a signal may come amid a line
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True) if watched else None
        self._what, self._unit = "", ""
        self._done, self._first, self._total = 0, 0, 0
        self._at_most_s: float | None = None
        self._said_at = self._began = clock()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Stages:
        """Begin."""
        if self._level == QUIET:
            return self
        if self._stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                BarColumn(bar_width=24), TextColumn("{task.fields[words]}", markup=False),
                console=Console(file=self._stream), auto_refresh=False, transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("", total=None, words=self._name)
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End: take the bar down."""
        self._over.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        if self._bar is not None:
            self._bar.stop()

    def _watch(self) -> None:
        while not self._over.wait(_LOOKED_EVERY_S if self._bar is None else _DRAWN_EVERY_S):
            self.look()

    def stage(self, what: str, total: int = 0, unit: str = "", *, at_most_s: float | None = None) -> None:
        """Something begins that has `total` parts (0: unknown), each a `unit`, or takes `at_most_s`."""
        with self._lock:
            self._what, self._unit, self._total, self._at_most_s = what, unit, total, at_most_s
            self._done = self._first = 0
            self._began = self._clock()
        if self._level == VERBOSE:
            self.note(what)

    def advance(self) -> None:
        """One more part of the stage is done."""
        self._done += 1

    def doing(self, what: str) -> None:
        """The stage continues with something else."""
        with self._lock:
            if what != self._what and self._level == VERBOSE:
                self.note(what)
            self._what = what

    def told(self, what: str, done: int, total: int) -> None:
        """The same for what counts itself: what it does now, and how many of how many parts are done."""
        with self._lock:
            if self._total != total:
                self.stage(what, total)
                self._first = done
            self.doing(what)
            self._done = done

    def words(self) -> str:
        """Where it is: the stage, how much of it is done, how long it has taken, and about how much is left."""
        taken = self._clock() - self._began
        parts = [f"{self._done} of {self._total} {self._unit}".rstrip()] if self._total else []
        if self._total and self._done > self._first:
            left = taken / (self._done - self._first) * max(self._total - self._done, 0)
            parts.append(f"about {format_duration(left * 1e9)} left")
        else:
            limit = "" if self._at_most_s is None else f" of at most {self._at_most_s:.0f} s"
            parts.append(f"{taken:.0f} s{limit}")
        return f"{self._what}: {', '.join(parts)}"

    def look(self) -> None:
        """Draw the bar, or say a line if none was said for 10 s."""
        with self._lock:
            if self._level == QUIET or not self._what:
                return
            if self._bar is not None:
                self._bar.start()
                done, total = (
                    (self._done, self._total) if self._total else (self._clock() - self._began, self._at_most_s)
                )
                self._bar.update(self._task, completed=done, total=total, words=self.words())
                self._bar.refresh()
            elif self._clock() - self._said_at >= SAID_EVERY_S:
                self.note(self.words())

    def note(self, text: str) -> None:
        """Say a line, above the bar where there is one."""
        if self._level == QUIET:
            return
        with self._lock:
            self._said_at = self._clock()
            if self._bar is not None:
                self._bar.console.print(f"linkgauge: {text}", markup=False, highlight=False, soft_wrap=True)
            else:
                print(f"linkgauge: {text}", file=self._stream, flush=True)
