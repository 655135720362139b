"""Fills the history of a node with runs like one that was measured."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from linkgauge.store.history import History

RUNS = 8


def fill(history: History, noise: float, factor: float = 1.0) -> None:
    """Make RUNS runs of each run in a history.

    Their times are drawn around `factor` times the measured ones, `noise` of logarithms. One takes the place of the
    measured run, because of a run's files that with the latest end counts.
    """
    drawn = np.random.default_rng(1)
    for part in history.parts():
        rows = history.read(part)
        for number in range(RUNS):
            spread = factor * np.exp(drawn.normal(0, noise, rows.num_rows))
            run, end = f"{part.run[:20]}-{number}" if number else part.run, part.end_ms + 1 - number
            made = rows
            for name, values in (("time_ns", pa.array(rows["time_ns"].to_numpy() * spread)),
                                 ("run", pa.array([run] * rows.num_rows)),
                                 ("run_end_ms", pa.array([end] * rows.num_rows))):  # fmt: skip
                made = made.set_column(made.schema.get_field_index(name), name, values)
            history.append(made, part.kind, part.day, run, end)
