"""What the library or the transport chose for the cases of a task, as a run's rows have it in their evidence."""

from __future__ import annotations

from collections.abc import Iterator

from linkgauge.stats.launches import json_object
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import size_text

_MOST_STRETCHES = 4
_OURS = ("grid", "way", "chunk")  # of a choice of the core's own transports


def chosen_text(row: Row) -> str:
    """Return what was chosen for one case: `RING SIMPLE, 24 channels, multicast`; empty where it is not known."""
    chosen = json_object(row.get("evidence")).get("chosen", {})
    words = " ".join(chosen[name] for name in ("algorithm", "protocol", "kernel") if chosen.get(name))
    ours = (f"{name} {chosen[name]}" for name in _OURS if chosen.get(name))
    words = ", ".join(part for part in (words, *ours) if part)
    channels = chosen.get("channels")
    parts = [words, f"{channels} channel{'s' if channels != 1 else ''}" if channels else ""]
    parts.append("multicast" if chosen.get("multicast") else "")
    return ", ".join(part for part in parts if part)


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
