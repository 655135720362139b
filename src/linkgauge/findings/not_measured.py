"""What time limits left unmeasured: no failure, and no finding. `check`, `findings` and tickets say it so."""

from __future__ import annotations

from collections.abc import Iterator

from linkgauge.findings.facts import Facts
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import format_bytes as size_text


def not_measured(facts: Facts, run: str, of: str = "") -> Iterator[str]:
    """Yield what the time limit of a run or of its cases left unmeasured, and how to measure it.

    `run`: the run folder; `of`: what names it among several.
    """
    cut = grouped((facts.failed_words(one), one.size) for one in facts.failures if one.out_of_time)
    if cut:
        named = ", ".join(f"{words} at {', '.join(map(size_text, sorted(set(sizes))))}" for words, sizes in cut.items())
        count = _cases(sum(map(len, cut.values())))
        yield f"{count}{of} took longer than --max-time allows: {named}; a larger --max-time gives more time"
    if left := facts.info.get("left"):
        yield f"{_cases(left, 'planned ')}{of}, since the run's time was over: linkgauge run --resume {run}"


def _cases(count: int, kind: str = "") -> str:
    return f"{count} {kind}case{'s' if count > 1 else ''}"
