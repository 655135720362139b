"""Whose a small shift is: node, device, direction or link, by partners that cross; else it cannot be told."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from linkgauge.stats.whose import Cause, End, Pair, whose

ENDS = [(f"n{node}", gpu) for node in range(3) for gpu in range(3)]
ONE, OTHER = ENDS[1], ENDS[5]
ERROR = 0.0004
Slow = Callable[[End, End], bool]
PLANTED: dict[Cause, Slow] = {
    Cause("node", (("n0", ""),)): lambda s, t: "n0" in (s[0], t[0]),
    Cause("device", (ONE,)): lambda s, t: ONE in (s, t),
    Cause("sends", (ONE,)): lambda s, t: s == ONE,
    Cause("receives", (ONE,)): lambda s, t: t == ONE,
    Cause("link", (ONE, OTHER)): lambda s, t: {s, t} == {ONE, OTHER},
    Cause("direction", (ONE, OTHER)): lambda s, t: (s, t) == (ONE, OTHER),
}


def pairs(rng: np.random.Generator, slow: Slow, ends: list[End] = ENDS) -> list[Pair]:
    return [
        Pair(s, t, 0.003 * slow(s, t) + float(rng.normal(0, ERROR)), ERROR) for s, t in itertools.permutations(ends, 2)
    ]


@pytest.mark.parametrize("cause", PLANTED, ids=lambda cause: cause.kind)
def test_the_planted_cause_alone_is_named(cause: Cause) -> None:
    right = 0
    for seed in range(5):
        found = whose(pairs(np.random.default_rng(seed), PLANTED[cause]))
        right += found.told and found.causes == (cause,)
        assert all(shift > 0 for shift in found.shifts)
    assert right >= 4


def test_two_causes_are_both_named() -> None:
    found = whose(pairs(np.random.default_rng(1), lambda s, t: "n2" in (s[0], t[0]) or s == ONE))
    assert {cause.kind for cause in found.causes} == {"node", "sends"}


def test_noise_has_no_cause() -> None:
    accused = sum(bool(whose(pairs(np.random.default_rng(seed), lambda s, t: False)).causes) for seed in range(40))
    assert accused <= 4


def test_a_node_with_one_device_cannot_be_told_from_it() -> None:
    ends: list[End] = [(f"n{node}", 0) for node in range(6)]
    found = whose(pairs(np.random.default_rng(2), lambda s, t: "n0" in (s[0], t[0]), ends))
    assert not found.told
    assert {found.causes[0].kind, *(cause.kind for cause in found.rivals)} >= {"node", "device"}


def test_pairs_that_do_not_cross_cannot_be_told_apart() -> None:
    rng = np.random.default_rng(3)
    alone = [Pair((f"n{k}", 0), (f"m{k}", 0), 0.003 * (k == 0) + float(rng.normal(0, ERROR)), ERROR) for k in range(6)]
    found = whose(alone)
    assert not found.told
    assert len(found.rivals) >= 3


def test_the_order_of_the_pairs_and_names_change_nothing() -> None:
    made = pairs(np.random.default_rng(4), PLANTED[Cause("sends", (ONE,))])
    assert whose(made).causes == whose(made[::-1]).causes
    assert whose([]).causes == ()
