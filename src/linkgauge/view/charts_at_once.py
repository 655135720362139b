"""Every ordered pair of devices while all others are busy: a tournament's rounds and mpiGraph's shifts, as matrices.

In a round each device has one other (`pairs_unidirectional` and its like, a lane each); in shift k each sends to the
one k places on, all at once, and receives from the one k places before (mpiGraph: Moody, LLNL). The former's cells are
of one flow a device, the latter's of one each way: what the two differ by is what sending costs receiving.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from linkgauge.model.comparing import held_apart, values_of
from linkgauge.model.result import Measured
from linkgauge.model.values import shift_of
from linkgauge.stats.series import run_blocks
from linkgauge.view.results import Results

ROUNDS, SHIFTS = "rounds", "shifts"
WORDS = {
    ROUNDS: "a tournament's rounds: disjoint pairs at once",
    SHIFTS: "shifts: each sends to the one 1, 2, ... places on, and receives, at once; by the sender's time",
}
_LANE = re.compile(r"(\d+)->(\d+)")
_SIDE_BY_SIDE = ("pairs_unidirectional", "pairs_bidirectional")
_SETTINGS = held_apart("devices", "distribution")
_LEAST_CASES = 2


def all_at_once(results: Results) -> list[tuple[str, list[Measured]]]:
    """Return sets of pairs that were measured with all others busy, ROUNDS or SHIFTS each: rows of a pair each.

    A set is of one pattern, mechanism and size, of two rounds or shifts at least.
    """
    found: dict[tuple[Any, ...], dict[tuple[int, ...], Measured]] = {}
    cases: dict[tuple[Any, ...], set[Any]] = {}
    for kind, whole, one in (*_rounds(results), *_shifts(results)):
        key = (kind, *values_of(whole.case, _SETTINGS), results.label(whole))
        found.setdefault(key, {})[one.devices] = one
        cases.setdefault(key, set()).add(whole.identity)
    several = [key for key in found if len(cases[key]) >= _LEAST_CASES]
    return [(str(key[0]), list(found[key].values())) for key in several]


def _rounds(results: Results) -> Iterator[tuple[str, Measured, Measured]]:
    for row in results.lanes:
        named = _LANE.fullmatch(row.lane_name)
        if row.pattern in _SIDE_BY_SIDE and named and row.goodput_bytes_per_s:
            source, target = (row.devices[int(rank)] for rank in named.groups())
            yield ROUNDS, row, _of_pair(row, source, target)


def _shifts(results: Results) -> Iterator[tuple[str, Measured, Measured]]:
    shifts = {}
    for row in results.rows:
        places = shift_of(row.case.distribution)
        if row.pattern == "halo" and places is not None and row.case.ranks_per_device == 1:
            shifts[row.identity] = row, places
    if not shifts:
        return
    for identity, block in run_blocks(results.run):
        if identity not in shifts:
            continue
        row, places = shifts[identity]
        devices = row.devices
        for rank, source in enumerate(devices):
            own = block.only(block.measured & (block.rank == rank))
            if own.ns.size:
                time = float(np.median(own.ns / own.iterations))
                pair = _of_pair(row, source, devices[(rank + places) % len(devices)])
                goodput = row.case.window * row.size / time * 1e9
                yield SHIFTS, row, dataclasses.replace(pair, goodput_bytes_per_s=goodput)


def _of_pair(row: Measured, source: int, target: int) -> Measured:
    """Return a row as that of one pair of its devices."""
    return dataclasses.replace(row, case=dataclasses.replace(row.case, devices=(source, target)))
