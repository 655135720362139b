"""The curves of a summary's rows, and what is derived from each: flat latency, n1/2, saturation, and fewest blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from linkgauge.model.comparing import held_apart, values_of
from linkgauge.model.grouped import grouped
from linkgauge.model.result import Measured
from linkgauge.stats.derived import Curve, CurveFigures, Figure, as_curve, curve_figures, fewest_blocks

LEAST_SIZES = 4
"""Fewer sizes are no curve: its figures would be the sizes."""
LEAST_BLOCKS = 3
_APART = held_apart("size")


@dataclasses.dataclass(frozen=True)
class SizeFigures:
    """What one curve over sizes says. `row` is one of its rows, for its dimensions."""

    row: Measured
    sizes: int
    figures: CurveFigures

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values: the curve's dimensions, sizes in bytes, rates in bytes per second."""
        return {"kind": "sizes", **_dimensions(self.row), "sizes": self.sizes, **dataclasses.asdict(self.figures)}


@dataclasses.dataclass(frozen=True)
class BlockFigures:
    """How few thread blocks of a kernel reach 95 % of the best rate that any number of them reached, at one size."""

    row: Measured
    size: int
    fewest: Figure
    best_bytes_per_s: float
    best_blocks: int
    tuned_bytes_per_s: float | None  # by the blocks that the transport chose itself, where that was measured

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values: the curve's dimensions but blocks, rates in bytes per second."""
        shown = {"kind": "blocks", **_dimensions(self.row)}
        shown.pop("blocks")
        fields = ("size", "best_bytes_per_s", "best_blocks", "tuned_bytes_per_s")
        return {**shown, **{name: getattr(self, name) for name in fields}, "fewest": dataclasses.asdict(self.fewest)}


def _dimensions(row: Measured) -> dict[str, Any]:
    dimensions = row.case.dimensions()
    told = {name: dimensions[name] for name in _APART}
    return told | {"library": row.library or None, "launch_key": row.launch_key or None}


def size_figures(rows: Iterable[Measured]) -> list[SizeFigures]:
    """Return the figures of every curve of LEAST_SIZES sizes or more among headline rows, in their order."""
    found = []
    for of_curve in _grouped(rows, ()).values():
        curve = _curve(of_curve)
        if len(curve.sizes) >= LEAST_SIZES:
            found.append(SizeFigures(of_curve[0], len(curve.sizes), curve_figures(curve)))
    return found


def block_figures(rows: Iterable[Measured]) -> list[BlockFigures]:
    """Return for every kernel copy that was measured with LEAST_BLOCKS numbers of blocks or more how few are enough."""
    found = []
    kernels = [row for row in rows if row.transport == "kernel" and row.goodput_bytes_per_s is not None]
    for of_kernel in _grouped(kernels, ("blocks",), by_size=True).values():
        chosen = sorted((row for row in of_kernel if row.case.blocks > 0), key=lambda row: row.case.blocks)
        if len({row.case.blocks for row in chosen}) < LEAST_BLOCKS:
            continue
        points = [(row.case.blocks, row.median_ns, row.interval_low_ns, row.interval_high_ns) for row in chosen]
        fewest = fewest_blocks(*np.array(points, np.float64).T)
        if fewest is None:
            continue
        best = min(chosen, key=lambda row: row.median_ns)
        tuned = [row.goodput for row in of_kernel if row.case.blocks == 0]
        found.append(BlockFigures(best, best.size, fewest, best.goodput, best.case.blocks, max(tuned, default=None)))
    return found


def _grouped(
    rows: Iterable[Measured], without: tuple[str, ...], *, by_size: bool = False
) -> dict[tuple[Any, ...], list[Measured]]:
    names = [name for name in _APART if name not in without] + (["size"] if by_size else [])
    return grouped(((*values_of(row.case, names), row.library, row.launch_key), row) for row in rows)


def _curve(rows: list[Measured]) -> Curve:
    """Return the curve of the rows' times; payload a byte from any row that has a goodput."""
    rated = next((row for row in rows if row.goodput_bytes_per_s and row.size > 0), None)
    payload = None if rated is None else rated.goodput * rated.median_ns / 1e9 / rated.size
    points = [(row.size, row.median_ns, row.interval_low_ns, row.interval_high_ns) for row in rows]
    return as_curve(points, payload)
