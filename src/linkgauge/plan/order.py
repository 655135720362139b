"""In which order cases are measured: shuffled by a stored seed, or by value where time is short.

The order of value (docs/reference/plans.md, Order and time limit): rounds, and within a round the shorter case
first. So every
transport and pattern has had its most telling case before any has a second size.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from linkgauge.model.case import Case
from linkgauge.model.grouped import grouped
from linkgauge.plan.curves import FULL, Step


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


def bucket_of(case: Case) -> tuple[str, str]:
    """What a short time must tell something of: a transport and pattern."""
    return case.transport, case.pattern


def value_rounds(cases: Sequence[Case], estimates_s: Sequence[float], share_s: float = float("inf")) -> list[int]:
    """The round of each case: round 0 holds the most telling ones, and every bucket has its turn in each round.

    A bucket is a transport and pattern. In round 0 it has one case: the largest size whose estimate is within
    `share_s` (else the smallest size), with its first settings on its first set of devices. A round later comes the
    smallest size, and so do the second settings and the second set; then the sizes between, coarse ones first, and
    twice as many further settings and sets in each round.
    """
    rounds = [0] * len(cases)
    for members in grouped((bucket_of(case), index) for index, case in enumerate(cases)).values():
        size_level = _size_levels(members, cases, estimates_s, share_s)
        set_level = _turns([cases[index].devices for index in members])
        setting_level = _turns([_settings_of(cases[index]) for index in members])
        for index in members:
            case = cases[index]
            rounds[index] = (
                size_level[case.size_requested] + set_level[case.devices] + setting_level[_settings_of(case)]
            )
    return rounds


def _size_levels(
    members: Sequence[int], cases: Sequence[Case], estimates_s: Sequence[float], share_s: float
) -> dict[int, int]:
    longest_s: dict[int, float] = defaultdict(float)
    for index in members:
        size = cases[index].size_requested
        longest_s[size] = max(longest_s[size], estimates_s[index])
    at_full = longest_s.pop(FULL, None) is not None
    sizes = sorted(longest_s)
    if not sizes:
        return {FULL: 0}
    levels = {size: level + 1 for size, level in zip(sizes, coarse_first(len(sizes)), strict=True)}
    levels[max((size for size in sizes if longest_s[size] <= share_s), default=sizes[0])] = 0
    if at_full:
        levels[FULL] = 1  # what the curve must tell first
    return levels


def _settings_of(case: Case) -> tuple[object, ...]:
    """Every dimension but size and devices."""
    return tuple(
        str(value) for name, value in case.dimensions().items() if name not in ("size", "size_requested", "devices")
    )


def _turns(values: Iterable[Hashable]) -> dict[Hashable, int]:
    """The first value comes at once, the second a round later, then two, four, ... a round."""
    return {value: place.bit_length() for place, value in enumerate(dict.fromkeys(values))}


def shuffled(
    cases: Sequence[Case],
    seed: int,
    launch: int,
    rounds: Mapping[str, int] | None = None,
    steps: Mapping[str, Step] | None = None,
) -> list[Case]:
    """The order inside launch number `launch`: shuffled by the seed; with `rounds`, by case_key, inside each only.

    Curves stay whole: their cases (of `steps`, by case_key) come one after the other by size, before those that are
    measured where they are full. The same seed, launch and cases give the same order.
    """
    generator = random.Random(f"{seed}/{launch}")
    curves: dict[str, list[Case]] = defaultdict(list)
    single: list[Case] = []
    at_full: list[tuple[Case, str]] = []
    for case in sorted(cases, key=lambda case: case.case_key):
        step = (steps or {}).get(case.case_key)
        if step is None:
            single.append(case)
        elif step.until is None:
            at_full.append((case, step.curve))
        else:
            curves[step.curve].append(case)
    # A case at a full curve draws its curve before it, so that curves and matrices are spread over the launch alike.
    units: list[tuple[Case | None, str]] = [(case, "") for case in single]
    units += [*at_full, *((None, curve) for curve in sorted(curves))]
    generator.shuffle(units)
    ordered: list[Case] = []
    for unit, curve in units:
        ordered += sorted(curves.pop(curve, []), key=lambda case: case.size_requested)
        ordered += [] if unit is None else [unit]
    if rounds is not None:
        ordered.sort(key=lambda case: rounds[case.case_key])
    return ordered
