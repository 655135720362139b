"""What a run ends with: its summary on the terminal, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linkgauge.errors import LinkgaugeError
from linkgauge.run.reporter import Reporter


def present(path: Path, reporter: Reporter, *, report: bool) -> None:
    """The summary table and the report of a run that has ended, where their parts are installed."""
    from rich.console import Console  # after the measuring, which need not wait for it

    console = Console()
    run: Any = None
    try:
        from linkgauge.store.run import load
        from linkgauge.view.summary import print_summary

        run = load(path)
        print_summary(run, console)
    except ImportError as error:
        reporter.note(f"no summary: {error}; see the tables with 'linkgauge show {path}'")
    console.print(f"run folder: {path}", soft_wrap=True, markup=False, highlight=False)
    if report and run is not None:
        make_report(run, path, reporter)


def make_report(run: Any, path: Path, reporter: Reporter) -> None:
    """The report of a loaded run in its folder `path`, where its parts are installed; otherwise why there is none."""
    from rich.console import Console

    console = Console()
    target = path / "report.html"
    try:
        from linkgauge.view.report import write_report

        write_report(run, target)
        console.print(f"report: {target}", soft_wrap=True, markup=False, highlight=False)
    except ImportError as error:
        reporter.note(
            f"no report: {error}; remedy: pip install 'linkgauge[report]', here or elsewhere, then "
            f"'linkgauge report {path}'"
        )
    except LinkgaugeError as error:
        reporter.note(f"no report: {error}")
