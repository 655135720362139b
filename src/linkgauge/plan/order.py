"""In which order cases are measured: shuffled by a stored seed, or by value where time is short."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from linkgauge.plan.case import Case


def coarse_first(count: int) -> list[int]:
    """Indices 0..count-1 with a level each by which coarse positions come first: ends 0, middle 1, quarters 2, ...

    Returns the level of every index.
    """
    levels = [-1] * count
    if count == 0:
        return levels
    levels[0] = levels[-1] = 0
    segments, level = [(0, count - 1)], 1
    while any(value < 0 for value in levels):
        following = []
        for low, high in segments:
            middle = (low + high) // 2
            if low < middle < high:
                levels[middle] = level
                following += [(low, middle), (middle, high)]
        segments, level = following, level + 1
    return levels


def value_rounds(cases: Sequence[Case]) -> list[int]:
    """The round of each case: round 0 holds the most telling ones, and every bucket has its turn in each round.

    A bucket is one transport, variant and pattern (with its other settings). Within it the smallest and the largest
    size on the first set of devices come first, then the sizes between and the further sets of devices by turns.
    """
    buckets: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, case in enumerate(cases):
        buckets[(case.transport, case.variant, case.pattern, case.path, case.algorithm, case.cadence)].append(index)
    rounds = [0] * len(cases)
    for members in buckets.values():
        sizes = sorted({cases[index].size_asked for index in members})
        size_level = dict(zip(sizes, coarse_first(len(sizes)), strict=True))
        sets = list(dict.fromkeys(cases[index].devices for index in members))
        set_level = {devices: place.bit_length() for place, devices in enumerate(sets)}
        for index in members:
            rounds[index] = size_level[cases[index].size_asked] + set_level[cases[index].devices]
    return rounds


def shuffled(cases: Sequence[Case], seed: int, launch: int, *, by_value: bool) -> list[Case]:
    """The order inside launch number `launch`: shuffled by the seed; by value, shuffled inside each round only.

    The same seed, launch and cases give the same order.
    """
    generator = random.Random(f"{seed}/{launch}")
    ordered = sorted(cases, key=lambda case: case.case_key)
    generator.shuffle(ordered)
    if by_value:
        rounds = dict(zip((case.case_key for case in cases), value_rounds(cases), strict=True))
        ordered.sort(key=lambda case: rounds[case.case_key])
    return ordered
