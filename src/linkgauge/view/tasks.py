"""The best of each task as a row of words, for the report's table and the terminal's."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from linkgauge.view.alike import together
from linkgauge.view.answer import Best, TaskAnswer
from linkgauge.view.units import percents, rate_text, size_text, time_text

NOTE = (
    "Times: medians at the smallest size; of a ping-pong half the round trip, else of a whole window. Both ways: their "
    "sum. A range is over devices or pairs that the system's graph makes alike."
)
_WIDE = 118  # columns of a terminal


@dataclasses.dataclass(frozen=True)
class TaskWords:
    """One task in words: each figure with its mechanism and size, the share of its least bound, and that bound."""

    name: str
    time: str
    time_by: str
    time_at: str
    rate: str
    rate_by: str
    rate_at: str
    share: str
    bound: str


def task_words(task: TaskAnswer, unit: str) -> TaskWords:
    """Return a task's row; empty words for what it does not have."""
    fast, wide = task.fastest, task.widest
    timed = (task.name, _times(fast) + _where(fast, task), fast.label, size_text(fast.size))
    if wide is None:
        return TaskWords(*timed, "", "", "", "", "")
    rate = _range([rate_text(value, unit) for value in (wide.low, wide.high)]) + _where(wide, task)
    share = bound = ""
    if task.shares is not None and task.bound is not None:
        share = percents(task.shares)
        bound = f"{rate_text(task.bound.goodput_bytes_per_s, unit)}"
    return TaskWords(*timed, rate, wide.label, size_text(wide.size), share, bound)


def apart_lines(tasks: Sequence[TaskAnswer], unit: str) -> Iterator[str]:
    """Yield a line for each task in which one differs from the rest: `...: 0-3 185 GB/s`."""
    for task in tasks:
        told = [f"{together([devices])} {time_text(value)}" for devices, value in task.fastest.apart]
        if task.widest is not None:
            told += [f"{together([devices])} {rate_text(value, unit)} {unit}" for devices, value in task.widest.apart]
        if told:
            more = f" and {len(told) - 4} more" if len(told) > 4 else ""
            yield f"apart from the rest of {task.name}: {', '.join(told[:4])}{more}"


def _times(best: Best) -> str:
    """Return a range of times with one unit where both have the same: `7.09 to 8.32 µs`."""
    low, high = time_text(best.low), time_text(best.high)
    if low != high and low.split()[-1] == high.split()[-1]:
        low = low.split()[0]
    return _range([low, high])


def _where(best: Best, task: TaskAnswer) -> str:
    """Return of which device or pairs a figure is, where that is not all of the task's."""
    return f" ({best.where.removeprefix('device ')})" if best.where != task.where else ""


def _range(ends: list[str]) -> str:
    return " to ".join(dict.fromkeys(ends))


def task_table(tasks: Sequence[TaskAnswer], unit: str, width: int) -> Table:
    """Return the tasks as a table of the terminal; in a narrow one the lowest time is the middle one, and alone."""
    words = [task_words(task, unit) for task in tasks]
    bounded = any(one.share for one in words)
    wide = width >= _WIDE
    columns: list[tuple[str, bool, list[str]]] = [
        ("task", True, [one.name for one in words]),
    ]
    if not wide:
        middle = [time_text(statistics.median(task.fastest.values)) for task in tasks]
        columns.append(("time", False, middle))
    else:
        columns.append(("lowest time", False, [one.time for one in words]))
        columns.append(("by", True, [one.time_by for one in words]))
        columns.append(("at", False, [one.time_at for one in words]))
    columns.append((f"highest {unit}" if wide else unit, False, [one.rate for one in words]))
    columns.append(("by", True, [one.rate_by for one in words]))
    columns.append(("at", False, [one.rate_at for one in words]))
    if bounded and wide:
        columns.append(("of bound", True, [f"{one.share} of {one.bound}" if one.share else "" for one in words]))
    elif bounded:
        columns.append(("share", False, [one.share for one in words]))
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=not wide)
    for name, left, _ in columns:
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for cells in zip(*(cells for _, _, cells in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table
