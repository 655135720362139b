"""How long a trace's GPUs wait for communication, printed: `linkgauge convert --exposed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from linkgauge.app.listing import print_table
from linkgauge.apps.exposure import Advice, exposure_of
from linkgauge.apps.traces import ranks_of_traces
from linkgauge.expect.slow_downs import SlowDown, SlowDowns
from linkgauge.model.quantity import percent
from linkgauge.stats.interference import interferences
from linkgauge.store.run import load
from linkgauge.view.units import time_text


def print_exposed(traces: Sequence[Path], program_ns: float = 0.0, overlap: Path | None = None) -> None:
    """Of the rank that computes longest: a line, a table by collective, and advice with what it saves."""
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
    click.echo(advice_text(found.advice(program_ns, None if overlap is None else beside_computing(overlap))))


def beside_computing(overlap: Path) -> Callable[[str], SlowDown | None]:
    """What products of matrices and collectives of a pattern by the vendor's library cost each other in a run."""
    slow = SlowDowns(interferences(load(overlap)))
    return slow.beside_computing


def advice_text(advice: Advice) -> str:
    """A sentence with what it saves, or that it may save nothing."""
    if not advice.of_ns:
        return advice.words
    ends = (percent(max(0.0, ns) / advice.of_ns) for ns in (advice.low_ns, advice.high_ns))
    most = f"{time_text(advice.high_ns)} of {time_text(advice.of_ns)}"
    if advice.promised:
        return f"{advice.words} Saves {time_text(advice.low_ns)} to {most} ({' to '.join(ends)})."
    return f"No gain can be promised: {advice.why_not}. At most {most} ({[*ends][1]}), by this: {advice.words}"
