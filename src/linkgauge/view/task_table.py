"""Tables of what a run reached: one row a task, for the terminal and for the report."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from linkgauge.model.device_words import numbers_text
from linkgauge.model.grouped import grouped
from linkgauge.view.alike import together
from linkgauge.view.answer import Best, TaskAnswer, short_where
from linkgauge.view.screen import Table
from linkgauge.view.units import percents, range_text, rate_text, time_text

TASK_NOTE = (
    "Latency: the median at the smallest size; half the round trip of a ping-pong, else the time of a whole window. "
    "Both ways: the sum of the two. algbw and busbw are as nccl-tests defines them. A range is over GPUs or pairs that "
    "the topology makes alike."
)


@dataclasses.dataclass(frozen=True)
class TaskWords:
    """One task in words: each figure with its mechanism and size, the share of its limit, and that limit.

    `peak` is busbw and `algbw` is filled for the collectives of nccl-tests; `limit` is in the terms of `peak`.
    """

    name: str
    brief_name: str
    latency: str
    latency_mechanism: str
    latency_size: str
    algbw: str = ""
    peak: str = ""
    peak_mechanism: str = ""
    peak_size: str = ""
    share: str = ""
    limit: str = ""


def task_words(task: TaskAnswer, unit: str) -> TaskWords:
    """Return a task's row; empty words for what it does not have."""
    fast, wide = task.fastest, task.widest
    latency = range_text(time_text(fast.low), time_text(fast.high)) + _whose(fast, task)
    timed = (task.name, task.brief_name, latency, fast.label, fast.sizes)
    if wide is None:
        return TaskWords(*timed)
    share = limit = ""
    if task.shares is not None and task.bound is not None and task.bound.goodput_bytes_per_s:
        share = percents(task.shares)
        limit = rate_text(task.bound.goodput_bytes_per_s * task.peak_factor, unit)
    return TaskWords(
        *timed,
        algbw=_rates(wide, unit, task.algorithm_factor) if task.algorithm_factor else "",
        peak=_rates(wide, unit, task.peak_factor) + _whose(wide, task),
        peak_mechanism=wide.label,
        peak_size=wide.sizes,
        share=share,
        limit=limit,
    )


def apart_lines(tasks: Sequence[TaskAnswer], unit: str) -> Iterator[str]:
    """Yield a line for each task in which one differs from the rest: `...: 0-3 185 GB/s`."""
    for task in tasks:
        by_devices = grouped((devices, time_text(value)) for devices, value in task.fastest.apart)
        for devices, value in task.widest.apart if task.widest is not None else ():
            by_devices.setdefault(devices, []).append(f"{rate_text(value * task.peak_factor, unit)} {unit}")
        found = [
            f"{together([devices], noun=task.noun)} {' and '.join(words)}" for devices, words in by_devices.items()
        ]
        if found:
            more = f" and {len(found) - 4} more" if len(found) > 4 else ""
            yield f"{task.name} differs on: {', '.join(found[:4])}{more}"


def _rates(best: Best, unit: str, factor: float) -> str:
    return range_text(rate_text(best.low * factor, unit), rate_text(best.high * factor, unit))


def _whose(best: Best, task: TaskAnswer) -> str:
    """Return of which device or pairs a figure is, where that is not all of the task's."""
    if best.where == task.where:
        return ""
    members = {row.devices for row in best.rows}
    where = numbers_text([one for (one,) in members]) if best.alone else short_where(members, best.where)
    return f" ({where})"


Column = tuple[str, bool, Callable[[TaskWords], str]]
"""A column's heading, whether it is of words, and its cell."""


def task_columns(collective: bool, unit: str) -> list[Column]:
    """Return the columns of a table of tasks: of nccl-tests' collectives, or of all others."""
    name = "collective" if collective else "path"
    rates: list[Column] = [(f"peak {unit}", False, lambda one: one.peak)]
    if collective:
        rates = [(f"algbw {unit}", False, lambda one: one.algbw), (f"busbw {unit}", False, lambda one: one.peak)]
    return [
        (name, True, lambda one: one.name),
        ("min latency", False, lambda one: one.latency),
        ("mechanism", True, lambda one: one.latency_mechanism),
        ("size", False, lambda one: one.latency_size),
        *rates,
        ("mechanism", True, lambda one: one.peak_mechanism),
        ("size", False, lambda one: one.peak_size),
        ("% of limit", True, lambda one: f"{one.share} of {one.limit}" if one.share else ""),
    ]


def task_tables(tasks: Sequence[TaskAnswer], unit: str, width: int) -> list[Table]:
    """Return the tasks as tables of the terminal: paths, then collectives with algbw and busbw.

    A narrow terminal has no room for the latency's mechanism and for the limit, and its headings take two lines.
    """
    kinds: list[tuple[list[Column], list[TaskWords]]] = []
    for collective in (False, True):
        words = [task_words(task, unit) for task in tasks if bool(task.algorithm_factor) == collective]
        (name, _, _), *rest = task_columns(collective, unit)
        if words:
            kinds.append(([(name, True, lambda one: one.brief_name), *rest], words))
    narrow = any(_room(columns, words) > width for columns, words in kinds)
    tables = []
    for every, words in kinds:
        path, latency, _, size, *rates, _ = every
        share: Column = ("% of limit", False, lambda one: one.share)
        columns = [path, latency, size, *rates, share] if narrow else every
        table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=narrow)
        shown = [column for column in columns if any(column[2](one) for one in words)]
        for heading, left, _ in shown:
            text = "\n".join(heading.rsplit(" ", 1)) if narrow else heading
            table.add_column(text, justify="left" if left else "right", overflow="fold", vertical="bottom")
        for one in words:
            table.add_row(
                *(Text(_dashed(cell(one)) if narrow and at else cell(one)) for at, (_, _, cell) in enumerate(shown))
            )
        tables.append(table)
    return tables


def _room(columns: Sequence[Column], words: Sequence[TaskWords]) -> int:
    """Return how many columns of a terminal a table takes in one line a row."""
    return sum(max(len(heading), *(len(cell(one)) for one in words)) + 2 for heading, _, cell in columns)


def _dashed(cell: str) -> str:
    """Return a range as a narrow cell has room for it: `85-87 %`; of several mechanisms that they are."""
    return "several" if ", " in cell and cell[0].isalpha() else re.sub(r"(?<=\d) to (?=\d)", "-", cell)
