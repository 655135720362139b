"""The cases of a run whose times spread most, with their samples in order."""

from __future__ import annotations

import dataclasses

from linkgauge.model.patterns import pattern
from linkgauge.stats import series
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import size_text

_LEAST_SAMPLES = 30


@dataclasses.dataclass(frozen=True)
class Noisy:
    """One case: its row, its name, its series in ns per iteration with the warm-up, and how long that is."""

    row: Row
    name: str
    series: series.Floats
    cut: int


def noisiest(results: Results, count: int = 4) -> list[Noisy]:
    """Return the cases with the widest quartiles over their median, at most one a task, the widest first."""
    widest: list[tuple[float, Row, str]] = []
    for first, rows in results.panels:
        able = [row for row in rows if row["samples"] / row["repeats"] >= _LEAST_SAMPLES and row["median_ns"] > 0]
        if able:
            row = max(able, key=_spread)
            widest.append((_spread(row), row, results.title(first)))
    widest.sort(key=lambda item: -item[0])
    named = [(row, f"{results.label(row)} · {title} · {size_text(row['size'])}") for _, row, title in widest[:count]]
    return series_of_rows(results, named)


def series_of_rows(results: Results, named: list[tuple[Row, str]]) -> list[Noisy]:
    """Return the named rows with their series, in one pass over the samples; of several launches the first."""
    identities = {(row["case_key"], row["launch"], row["repeat"], row["attempt"]): (row, name) for row, name in named}
    nodes = series.one_node(results.run)
    found: dict[str, Noisy] = {}
    for identity, block in series.run_blocks(results.run):
        if identity not in identities:
            continue
        row, name = identities[identity]
        info = pattern(row["pattern"])
        keeping = (info, row["ranks"], row["root"], nodes.get(row["launch"], True), row["groups"])
        every, _ = series.headline(block.only(~block.alone), *keeping)
        measured, _ = series.headline(block.only(block.measured), *keeping)
        found[name] = Noisy(row, name, every, every.size - measured.size + int(row["warmup_cut"] or 0))
        if len(found) == len(identities):
            break
    return [found[name] for _, name in named if name in found]


def _spread(row: Row) -> float:
    return float((row["q3_ns"] - row["q1_ns"]) / row["median_ns"])
