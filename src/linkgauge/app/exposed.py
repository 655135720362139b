"""How long a trace's GPUs wait for communication, printed: `linkgauge convert --exposed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from linkgauge.app.listing import print_table
from linkgauge.apps.exposure import MOST_OF_PROFILED, QUICKER, Advice, Exposure, exposure_of
from linkgauge.apps.traces import ranks_of_traces
from linkgauge.errors import UsageError
from linkgauge.expect.slow_downs import SlowDown, SlowDowns
from linkgauge.model.quantity import percent
from linkgauge.stats.interference import interferences
from linkgauge.store.run import load
from linkgauge.view.units import time_text


def print_exposed(traces: Sequence[Path], program_ns: float = 0.0, overlap: Path | None = None) -> None:
    """Of the rank that computes longest: a line, a table by collective, and advice with what it saves."""
    beside = None if overlap is None else beside_computing(overlap)
    found = exposure_of(ranks_of_traces(traces))
    if program_ns:
        _check_program_time(found, program_ns)
    whole = found.busy_ns + found.exposed_ns
    click.echo(f"rank {found.rank} computes {time_text(found.busy_ns)}, waits {time_text(found.exposed_ns)} for "
               f"communication ({percent(found.share)} of both), at least {time_text(found.least_ns)} in any order, "
               f"and {time_text(found.idle_ns)} for its host")  # fmt: skip
    rows = [{"collective": one.what, "count": one.count, "time": time_text(one.ns),
             "waiting for other ranks": "" if one.waited_ns is None else time_text(one.waited_ns),
             "exposed": time_text(one.exposed_ns), "of both": percent(one.exposed_ns / whole if whole else 0.0)}
            for one in found.kinds]  # fmt: skip
    print_table("exposed communication", tuple(rows[0]), rows)
    click.echo(advice_text(found.advice(program_ns, beside)))


def _check_program_time(found: Exposure, program_ns: float) -> None:
    """UsageError for a time in which the same steps cannot run."""
    low_ns, high_ns = QUICKER * found.busy_ns, MOST_OF_PROFILED * found.profiled_ns
    if not low_ns <= program_ns <= high_ns:
        raise UsageError(
            f"--program-time {time_text(program_ns)}: the trace's GPU computes {time_text(found.busy_ns)}, and all "
            f"took {time_text(found.profiled_ns)}: expected {time_text(low_ns)} to {time_text(high_ns)}, for the same "
            "steps"
        )


def beside_computing(overlap: Path) -> Callable[[str], SlowDown | None]:
    """What products of matrices and collectives of a pattern by the vendor's library cost each other in a run."""
    slow = SlowDowns(interferences(load(overlap)))
    if slow.beside_computing("") is None:
        raise UsageError(
            f"--overlap {overlap}: no collective of the vendor's library beside gemm in it: expected a run of "
            "'linkgauge run --plan overlap' on GPUs"
        )
    return slow.beside_computing


def advice_text(advice: Advice) -> str:
    """A sentence with what it saves, or that it may save nothing."""
    if not advice.of_ns:
        return advice.words
    ends = (percent(max(0.0, ns) / advice.of_ns) for ns in (advice.low_ns, advice.high_ns))
    which = "profiled" if advice.profiled else "without the profiler"
    most = f"{time_text(advice.high_ns)} of {time_text(advice.of_ns)} {which}"
    if advice.promised:
        return f"{advice.words} Saves {time_text(advice.low_ns)} to {most} ({' to '.join(ends)} of that)."
    return f"No gain can be promised: {advice.why_not}. At most {most} ({[*ends][1]} of that), by this: {advice.words}"
