"""What a run ends with: its summary on the terminal, and its report."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from linkgauge.app.verbosity import QUIET, verbosity
from linkgauge.files import why_nothing_starts
from linkgauge.run.parent.reporter import Reporter

if TYPE_CHECKING:
    from linkgauge.store.run import Run

_LONGEST_REPORT_S = 1800


class MakingReport:
    """The report of a run, made meanwhile by a process of its own.

    Its libraries draw and compress for seconds, and may end their process by a trap or for memory; the run's end is
    the run's all the same.
    """

    def __init__(self, path: Path) -> None:
        """Begin the report of the run at `path`."""
        self._path = path
        command = [sys.executable, "-m", "linkgauge", "report", str(path)]
        nothing = subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        self._why = ""
        try:
            self._process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE)
        except OSError as error:
            self._why = why_nothing_starts(error) or str(error.strerror)

    def tell(self, reporter: Reporter) -> None:
        """Wait for it, and say where it is or in one line why there is none."""
        if why := self._why or self._ended():
            reporter.problem(f"no report: {why}; make it here or elsewhere with 'linkgauge report {self._path}'")
        else:
            if verbosity() != QUIET:
                print(f"report: {self._path / 'report.html'}", flush=True)

    def _ended(self) -> str:
        """Wait for its end; why it made none, or empty."""
        assert self._process is not None
        try:
            _, said = self._process.communicate(timeout=_LONGEST_REPORT_S)
            return _why(self._process.returncode, said.decode(errors="replace"))
        except subprocess.TimeoutExpired:
            return f"it was not made within {_LONGEST_REPORT_S // 60} minutes"
        finally:
            self._process.kill()
            self._process.wait()


def _why(status: int, said: str) -> str:
    if status == 0:
        return ""
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}, as a library does that lacks memory"
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("linkgauge: error: ") if lines else f"its process ended with status {status}"


def _print_verdict(run: Run) -> None:
    """Print the run in a sentence and its verdict, no more."""
    from linkgauge.view.answer import FirstLook
    from linkgauge.view.judged import findings_of
    from linkgauge.view.summary import sentence

    print(sentence(FirstLook.of(run), findings_of(run)))


def present(path: Path, reporter: Reporter, *, report: bool) -> None:
    """The summary table and the report of a run that has ended, where their parts are installed."""
    making = MakingReport(path) if report else None
    from linkgauge.view import screen  # after the measuring, which need not wait for it

    console = screen.console()
    try:
        from linkgauge.store.run import load

        if verbosity() == QUIET:
            _print_verdict(load(path))
        else:
            from linkgauge.view.summary import print_summary

            print_summary(load(path), console)
    except ImportError as error:
        reporter.problem(f"no summary: {error}; see the tables with 'linkgauge show {path}'")
    if verbosity() != QUIET:
        console.print(f"run folder: {path}", soft_wrap=True, markup=False, highlight=False)
    if making is not None:
        making.tell(reporter)
