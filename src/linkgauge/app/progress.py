"""The live display of a run on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from linkgauge.model.case import Case
from linkgauge.model.quantity import format_duration
from linkgauge.run.reporter import Reporter, RunState, case_text


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
        self._case = case_text(case)

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


def reporter_for(stream: TextIO | None = None) -> Reporter:
    """Live on a terminal, plain lines elsewhere."""
    stream = stream or sys.stderr
    return LiveReporter(stream) if stream.isatty() else Reporter(stream)
