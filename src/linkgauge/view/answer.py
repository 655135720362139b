"""What a run says at first sight: the best of each task, and which mechanism to use for which sizes."""

from __future__ import annotations

import dataclasses

from linkgauge.view.ceilings import CeilingLine, Ceilings
from linkgauge.view.results import Results, Row, best_of
from linkgauge.view.units import size_text


@dataclasses.dataclass(frozen=True)
class TaskAnswer:
    """The best of one task: the row of the lowest time at its smallest size, and that of the highest goodput."""

    title: str
    fastest: Row
    widest: Row | None  # None for patterns without goodput
    bound: CeilingLine | None  # the least bound on the widest row's goodput


def answers(results: Results, ceilings: Ceilings) -> list[TaskAnswer]:
    """Return the best of each task that is a curve."""
    found = []
    for first, rows in results.panels:
        smallest = min(row["size"] for row in rows)
        fastest = min((row for row in rows if row["size"] == smallest), key=lambda row: row["median_ns"])
        rated = [row for row in rows if row["goodput_bytes_per_s"] is not None]
        widest = max(rated, key=lambda row: row["goodput_bytes_per_s"]) if rated else None
        bound = ceilings.least_bound(widest) if widest is not None else None
        found.append(TaskAnswer(results.title(first), fastest, widest, bound))
    return found


@dataclasses.dataclass(frozen=True)
class Use:
    """For which sizes which mechanisms are best: several where their intervals overlap at every one of the sizes."""

    sizes: str
    labels: tuple[str, ...]
    margin: float | None  # least share by which the next one is slower; None where there is no other


def best_ranges(results: Results, rows: list[Row]) -> list[Use]:
    """Return the ranges of sizes over which the same mechanism is best, or cannot be told from the best."""
    ranges: list[tuple[list[int], list[str]]] = []
    order = list(results.mechanisms.values())
    for size in sorted({row["size"] for row in rows}):
        best, near = best_of([row for row in rows if row["size"] == size])
        if best is None:
            continue
        labels = sorted({results.label(row) for row in (best, *near)}, key=order.index)
        common = [label for label in ranges[-1][1] if label in labels] if ranges else []
        # What cannot be told from the best does not become it: a range goes on only with this size's own best.
        if results.label(best) in common:
            ranges[-1] = ([*ranges[-1][0], size], common)
        else:
            ranges.append(([size], labels))
    uses = []
    for place, (sizes, labels) in enumerate(ranges):
        margins = [_margin(results, [row for row in rows if row["size"] == size], labels) for size in sizes]
        known = [margin for margin in margins if margin is not None]
        if len(ranges) == 1:
            words = "all sizes"
        elif place == 0:
            words = f"up to {size_text(sizes[-1])}"
        elif place == len(ranges) - 1:
            words = f"from {size_text(sizes[0])}"
        else:
            words = size_text(sizes[0]) + (f" to {size_text(sizes[-1])}" if len(sizes) > 1 else "")
        uses.append(Use(words, tuple(labels), min(known) if known else None))
    return uses


def _margin(results: Results, rows: list[Row], labels: list[str]) -> float | None:
    """Return by which share the best of the others is slower than the best of `labels`."""
    own = [row["median_ns"] for row in rows if results.label(row) in labels]
    others = [row["median_ns"] for row in rows if results.label(row) not in labels]
    return min(others) / min(own) - 1 if own and others else None
