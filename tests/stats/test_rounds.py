"""Rounds of a watch: slow ones that were planted are told of the node, the device or the case; trends, and none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from linkgauge.stats.rounds import CoreShares, OverRounds, _trend, over_rounds, slow_rounds
from linkgauge.store.run import load
from results import result_of
from synthetic import make_run, pair_cases

ROUNDS = 24


def watched(slow: dict[tuple[str, int], float], seed: int = 0, sigma: float = 0.01) -> list[OverRounds]:
    """All pairs of four devices over rounds; `slow` by case key and round."""
    rng = np.random.default_rng(seed)
    found = []
    for a in range(4):
        for b in range(4):
            key = f"{a}{b}"
            row = result_of({"case_key": key, "devices": [a, b] if a != b else [a], "median_ns": 1.0})
            times = 1000.0 * (1 + a) * rng.lognormal(0, sigma, ROUNDS)
            times *= [slow.get((key, number), 1.0) for number in range(ROUNDS)]
            began = np.arange(ROUNDS) * 3e11 + rng.uniform(0, 1e9)
            found.append(OverRounds(row, tuple(range(ROUNDS)), began, times, _trend(times, began)))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_a_clean_watch_has_no_slow_round(seed: int) -> None:
    assert slow_rounds(watched({}, seed)) == []


@pytest.mark.parametrize("seed", range(5))
def test_who_was_slow_is_told(seed: int) -> None:
    keys = [f"{a}{b}" for a in range(4) for b in range(4)]
    planted = {(key, 5): 1.5 for key in keys}
    planted |= {(key, 9): 1.3 for key in keys if "2" in key}
    planted |= {("13", 17): 2.0}
    found = slow_rounds(watched(planted, seed))
    assert [(one.repeat, one.who) for one in found] == [(5, "the node"), (9, "device 2"), (17, "")]
    assert [one.factor for one in found] == [pytest.approx(f, rel=0.05) for f in (1.5, 1.3, 2.0)]
    assert found[2].cases == ("13",)
    assert [one.began_ns for one in found] == sorted(one.began_ns for one in found)


def test_what_else_had_the_cores_in_a_slow_round_is_told() -> None:
    keys = [f"{a}{b}" for a in range(4) for b in range(4)]
    slow = watched({(key, number): 1.5 for key in keys for number in (5, 9, 14)})
    rng = np.random.default_rng(4)
    shares = {number: CoreShares(0.02 + rng.uniform(0, 0.01), 0.0) for number in range(ROUNDS) if number != 14}
    shares[5], shares[9] = CoreShares(0.4, 0.0), CoreShares(0.025, 0.12)
    told = {one.repeat: one.beside for one in slow_rounds(slow, shares)}
    assert told[5].startswith("other programs had 40 % of its cores, else ")
    assert told[9] == "a hypervisor took 12 % of its cores, else 0 %"
    assert told[14] == ""  # nobody looked
    assert {one.beside for one in slow_rounds(slow)} == {""}
    few = {number: CoreShares(0.9 if number == 5 else 0.0, 0.0) for number in range(5)}
    assert {one.beside for one in slow_rounds(slow, few)} == {""}  # five rounds say nothing of most


def test_a_trend_is_of_the_whole_watch() -> None:
    rng = np.random.default_rng(1)
    began = np.sort(rng.uniform(0, 8 * 3.6e12, 40))
    times = 500 * (1 + 0.2 * (began - began[0]) / (began[-1] - began[0])) * rng.lognormal(0, 0.005, 40)
    slope, low, high = _trend(times, began)
    assert low <= 0.2 / 1.1 * 1.02
    assert high >= 0.2 / 1.1 * 0.98
    assert slope == pytest.approx(0.2 / 1.1, rel=0.1)
    still = _trend(500 * rng.lognormal(0, 0.005, 40), began)
    assert still[1] < 0 < still[2]


def test_rounds_are_read_from_a_run_in_order_of_time(tmp_path: Any) -> None:
    run = load(make_run(tmp_path / "r", cases=pair_cases("unidirectional", 1 << 20)[:4], samples=8, repeats=7))
    found = over_rounds(run)
    assert len(found) == 4
    assert {case.repeats for case in found} == {tuple(range(7))}
    for case in found:
        assert (np.diff(case.began_ns) > 0).all()
        assert case.middle_ns == pytest.approx(np.median(case.times_ns))
    few = load(make_run(tmp_path / "few", cases=pair_cases("unidirectional", 1 << 20)[:4], samples=8, repeats=5))
    assert over_rounds(few) == []
