"""What the library or the transport chose for the cases of a task, as a run's rows have it in their evidence."""

from __future__ import annotations

from collections.abc import Iterator

from linkgauge.model.shape import json_object
from linkgauge.stats.chosen import chosen_words
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import size_text

_MOST_STRETCHES = 4


def chosen_text(row: Row) -> str:
    """Return what was chosen for one case, in words; empty where it is not known."""
    return chosen_words(json_object(row.get("evidence")))


def chosen_ranges(results: Results, rows: list[Row]) -> Iterator[tuple[str, str, str]]:
    """Yield mechanism, sizes and choice of a task's rows: one for each stretch of sizes with one choice.

    Of many, as of a kernel's grids over the sizes, the last one and how many there are besides.
    """
    for label in dict.fromkeys(results.label(row) for row in rows):
        known = sorted(
            (row["size"], chosen_text(row)) for row in rows if results.label(row) == label and chosen_text(row)
        )
        stretches: list[tuple[int, int, str]] = []
        for size, text in known:
            if stretches and stretches[-1][2] == text:
                stretches[-1] = (stretches[-1][0], size, text)
            else:
                stretches.append((size, size, text))
        if len(stretches) > _MOST_STRETCHES:
            first, last, text = stretches[-1]
            stretches = [(first, last, f"{text} ({len(stretches) - 1} other choices at smaller sizes: --json)")]
        for first, last, text in stretches:
            sizes = size_text(first) if first == last else f"{size_text(first)} to {size_text(last)}"
            yield label, sizes, text
