"""Small shifts on the terminal: who is slower or faster, within which bounds, and what the rounds could see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from linkgauge.model.quantity import change
from linkgauge.view.screen import table_of, text_of
from linkgauge.view.units import count_text

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.judge.small_shifts import Shifts

_WORDS = {"slower": "worse", "faster": "better"}  # as 'compare' has them


def print_shifts(out: Console, found: Shifts, limit: int) -> None:
    """Print the pools, those that are called first, and the power."""
    out.print(text_of(f"{count_text(found.rounds, 'round')} by turns. Shifts are of times: + is slower."))
    if not found.by_turns:
        out.print(text_of("The sides were not measured by turns: what drifted between them is part of the shift."))
    for line in found.power:
        out.print(text_of(line))
    for line in found.causes:
        out.print(text_of(f"Slower, by pairs that cross: {line}."))
    table = table_of("pooled", "cases", "verdict", "shift", "at all looks")
    order = sorted(found.named, key=lambda one: one.shift.verdict not in _WORDS)
    for one in order[:limit]:
        shift = one.shift
        # Without any bound the low one is that of no time at all.
        bounds = [change(value, 2) if math.isfinite(value) and value > -1 else "-" for value in (shift.low, shift.high)]
        share = change(shift.share, 2) if math.isfinite(shift.share) else "-"
        table.add_row(
            text_of(one.name), str(one.cases), _WORDS.get(shift.verdict, shift.verdict), share, " to ".join(bounds)
        )
    if found.named:
        out.print(table)
