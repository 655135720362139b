"""Bars on the terminal: how many fit, and of each what is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from linkgauge.view.screen import text_of
from linkgauge.view.units import count_text

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.judge.bars import Fit, JudgedBar

_STYLES: dict[Fit, str] = {
    "impossible": "bold red", "too high": "yellow", "toothless": "yellow", "about right": "green", "unknown": "dim"
}  # fmt: skip


def print_bars(out: Console, judged: Sequence[JudgedBar]) -> None:
    """Print the counts, and a line of each bar with its reason, in the file's order."""
    counts = Counter(one.fit for one in judged)
    told = ", ".join(f"{counts[fit]} {fit}" for fit in _STYLES if counts[fit])
    out.print(text_of(f"{count_text(len(judged), 'bar')}: {told}.", "bold"))
    for one in judged:
        out.print()
        bar = one.bar
        what = ", ".join(filter(None, (bar.system, bar.pattern, f"{bar.nodes} nodes" if bar.nodes > 1 else "")))
        out.print(Text(f"{one.fit}  ", style=_STYLES[one.fit]) + text_of(f"{bar.text} ({what})"))
        out.print(Text("      ") + text_of(f"{one.why}."), soft_wrap=True)
