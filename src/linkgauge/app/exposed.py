"""How long a trace's GPUs wait for communication, printed: `linkgauge convert --exposed`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from linkgauge.app.listing import print_table
from linkgauge.apps.exposure import exposure_of
from linkgauge.apps.traces import ranks_of_traces
from linkgauge.model.quantity import percent
from linkgauge.view.units import time_text


def print_exposed(traces: Sequence[Path]) -> None:
    """Of the rank that computes longest: a line, a table by collective, and advice with what it saves at most."""
    found = exposure_of(ranks_of_traces(traces))
    whole = found.busy_ns + found.exposed_ns
    click.echo(f"rank {found.rank} computes {time_text(found.busy_ns)}, waits {time_text(found.exposed_ns)} for "
               f"communication ({percent(found.share)}), at least {time_text(found.least_ns)} in any order, and "
               f"{time_text(found.idle_ns)} for its host")  # fmt: skip
    rows = [{"collective": one.what, "count": one.count, "time": time_text(one.ns),
             "waiting for other ranks": "" if one.waited_ns is None else time_text(one.waited_ns),
             "exposed": time_text(one.exposed_ns), "of the time": percent(one.exposed_ns / whole if whole else 0.0)}
            for one in found.kinds]  # fmt: skip
    print_table("exposed communication", tuple(rows[0]), rows)
    words, saves_ns = found.advice
    all_ns = whole + found.idle_ns
    click.echo(f"{words} Saves at most {time_text(saves_ns)} of {time_text(all_ns)} ({percent(saves_ns / all_ns)})."
               if saves_ns else words)  # fmt: skip
