"""Intervals of predictions hold nine of ten truths: on errors that were measured, and on errors that are drawn."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from linkgauge.expect.application import Predicted
from linkgauge.expect.coverage import (
    COMPUTING_ON_HOST,
    FEWEST,
    LEVEL,
    USUAL_ON_GPU,
    USUAL_ON_HOST,
    Miss,
    Misses,
    factor_of,
    gain,
)
from linkgauge.expect.mechanism import Mechanism
from linkgauge.expect.slow_downs import SlowDown
from linkgauge.expect.under_way import OverlapTime

STORED = Path(__file__).parent.parent.parent / "docs" / "results" / "data"
MPI, STAGING = Mechanism("mpi", "mpi"), Mechanism("staging", "staging")


def misses(factors: list[float], by: Mechanism = MPI, ranks: int = 2) -> list[Miss]:
    return [Miss(f"app{number}", ranks, by, factor) for number, factor in enumerate(factors)]


def took(ns: float, computing: float = 0.0) -> Predicted:
    return Predicted((ns, ns / 2), ({"compute": computing, "message": ns - computing}, {"message": ns / 2}))


def test_a_run_by_its_own_errors_has_as_many_in_their_intervals_whatever_these_are() -> None:
    """So it shows nothing: 24 of 26, of any errors that differ."""
    drawn = random.Random(1)
    for width in (0.01, 1.0, 3.0):
        factors = [math.exp(drawn.gauss(0, width)) for _ in range(26)]
        known = Misses(misses(factors), on_host=True)
        held = [known.interval(f"app{number}", 2, MPI, took(1000.0)).holds(1000.0 * factor)
                for number, factor in enumerate(factors)]  # fmt: skip
        assert sum(held) == 24


def test_what_the_command_stated_held_nine_of_ten_measured_times() -> None:
    """By the curves and errors of another run of the same machine and library: A and B on two cores that others used, C
    and D on two that nobody did, E with another MPI library. A run by its own: the stored interval is what the other
    applications' errors make."""
    rows = [json.loads(line) for line in (STORED / "prediction-coverage.jsonl").read_text().splitlines()]
    of_set: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_set.setdefault(row["set"], []).append(row)
    assert {name: len(held) for name, held in of_set.items()} == dict.fromkeys(
        ("A by A", "B by B", "B by A", "A by B", "C by C", "D by D", "D by C", "C by D", "E by E"), 104
    )
    for pair in (("B by A", "A by B"), ("D by C", "C by D")):
        both = [row for name in pair for row in of_set[name]]
        assert sum(row["low_ns"] <= row["measured_ns"] <= row["high_ns"] for row in both) >= LEVEL * len(both)
    for name in ("A by A", "B by B", "C by C", "D by D"):
        mine = [(row, Mechanism(row["transport"], row["transport"])) for row in of_set[name]]
        known = Misses(
            (Miss(row["app"], 2, by, row["measured_ns"] / row["predicted_ns"]) for row, by in mine), on_host=True
        )
        for row, by in mine:
            if row["predicted_ns"] > 10_000:  # stored in whole ns
                factor = known.within(row["app"], 2, by).factor
                assert row["high_ns"] / row["predicted_ns"] == pytest.approx(factor, rel=1e-3)


@pytest.mark.parametrize("tail", [0.1, 1.0])
def test_drawn_errors_lie_in_their_intervals(tail: float) -> None:
    """Whatever their distribution: of 400 runs of 26 applications, one of which is not known."""
    drawn = random.Random(7)
    held = 0
    for _ in range(400):
        factors = [2.718 ** (drawn.gauss(0, 0.1) / max(drawn.random(), 0.01) ** tail) for _ in range(26)]
        known = Misses(misses(factors[:-1]), on_host=True)
        held += known.interval("another", 2, MPI, took(1000.0)).holds(1000.0 * factors[-1])
    assert held >= (LEVEL - 0.03) * 400


def test_an_application_does_not_tell_its_own_interval() -> None:
    known = Misses(misses([1.1] * 20 + [50.0]), on_host=False)
    assert known.within("app20", 2, MPI).factor == pytest.approx(1.1)
    assert known.within("app20 n=64", 2, MPI).factor == pytest.approx(1.1)


def test_what_is_most_alike_tells_where_there_is_enough_of_it() -> None:
    """Too long is as wrong as too short; several mechanisms of one application count once, by the largest."""
    few = misses([1 / 3] * (FEWEST - 1))
    known = Misses([*few, *misses([1.2] * FEWEST, STAGING)], on_host=True)
    assert known.within("x", 2, STAGING).factor == pytest.approx(1.2)
    assert known.within("x", 2, MPI).factor == pytest.approx(3.0)
    assert "by all mechanisms" in known.within("x", 2, MPI).of
    assert "other numbers of ranks" in known.within("x", 4, MPI).of
    for on_host, usual in ((True, USUAL_ON_HOST), (False, USUAL_ON_GPU)):
        found = Misses(few, on_host=on_host).within("x", 2, MPI)
        assert found.factor == usual
        assert "linkgauge run --plan applications" in found.of


def test_what_is_computed_takes_nearly_as_long_as_it_says() -> None:
    known = Misses(misses([2.0] * FEWEST), on_host=True)
    found = known.interval("x", 2, MPI, took(1000.0, computing=900.0))
    aside = 900.0 * COMPUTING_ON_HOST
    assert (found.low_ns, found.high_ns) == pytest.approx((950.0 - aside, 1100.0 + aside))
    assert factor_of(1100.0, took(1000.0, computing=900.0)) == pytest.approx(2.0)
    assert 0 < factor_of(500.0, took(1000.0, computing=900.0)) < 0.1


def kinds(**ns: float) -> Predicted:
    return Predicted((sum(ns.values()),), (ns,))


def test_what_a_change_leaves_alone_has_no_error_in_its_gain() -> None:
    as_it_is = kinds(compute=40.0, message=1000.0, collective=60.0)
    assert gain(as_it_is, as_it_is, 1.5) == (0.0, 0.0)
    assert gain(as_it_is, kinds(compute=40.0, message=1000.0, collective=30.0), 1.5) == pytest.approx((10, 40))
    assert gain(as_it_is, kinds(compute=40.0, message=1000.0, collective=90.0), 1.5) == pytest.approx((-75, 0))


@pytest.mark.parametrize("factor", [1.0, 1.2, 2.0, 45.0])
def test_a_gain_leaves_at_least_what_is_computed(factor: float) -> None:
    drawn = random.Random(3)
    for _ in range(200):
        before, after = (kinds(compute=40.0, message=drawn.random() * 100, collective=drawn.choice((0, 50, 90)))
                         for _ in range(2))  # fmt: skip
        low, high = gain(before, after, factor)
        assert low - 0.5 <= before.time_ns - after.time_ns <= high + 0.5  # rounding
        assert high <= before.time_ns - 40.0 + 1e-9


@pytest.mark.parametrize(
    ("hidden", "ends"), [((0.0, 0.0), (-10, -10)), ((30.0, 10.0), (-10, 10)), ((10.0, 30.0), (-30, -10))]
)
def test_what_is_hidden_may_cost_computing_as_much(hidden: tuple[float, float], ends: tuple[float, float]) -> None:
    """Buckets of a DDP step on two H100 were predicted to cost up to 0.96 ms, and saved 0.35."""
    before, after = (
        Predicted(
            (time,), ({"compute": 80.0, "collective": time - 80.0},), (OverlapTime(collective=time - 80.0 + more),)
        )
        for time, more in zip((100.0, 110.0), hidden, strict=True)
    )
    assert gain(before, after, 1.0) == pytest.approx(ends)


def test_a_measured_slow_down_is_in_the_time_already() -> None:
    of = (SlowDown(1.2, 1.1, "measured"),)
    before, after = (
        Predicted((ns,), ({"compute": 80.0, "collective": ns - 80.0},), (OverlapTime(collective=more, by=of),))
        for ns, more in ((100.0, 60.0), (110.0, 20.0))
    )
    assert gain(before, after, 1.0) == gain(*(Predicted(one.ranks_ns, one.kinds_ns) for one in (before, after)), 1.0)


def test_the_ratio_of_two_predictions_is_as_sure_as_one() -> None:
    """Nearly: of an application by two mechanisms, whose curves have nothing in common; stored cases of six runs."""
    stored = [json.loads(line) for line in (STORED / "applications-host.jsonl").read_text().splitlines()]
    by = {name: Mechanism(name, name) for name in {row["transport"] for row in stored}}
    errors = {(row["app"], row["ranks"], row["transport"]): row["measured_us"] / row["predicted_us"] for row in stored}
    known = Misses((Miss(app, ranks, by[name], error) for (app, ranks, name), error in errors.items()), on_host=True)
    held = [
        1 / factor <= errors[app, ranks, other] / error <= factor
        for (app, ranks, name), error in errors.items()
        for factor in (known.within(app, ranks, by[name]).factor,)
        for other in by
        if other != name and (app, ranks, other) in errors
    ]
    of: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in map(json.loads, (STORED / "prediction-coverage.jsonl").read_text().splitlines()):
        of.setdefault((row["set"], row["app"]), []).append(row)
    for rows in of.values():
        for one, other in itertools.permutations(rows, 2):
            factor = max(one["high_ns"] / one["predicted_ns"], one["predicted_ns"] / one["low_ns"])
            ratio = other["measured_ns"] / other["predicted_ns"] / (one["measured_ns"] / one["predicted_ns"])
            held.append(1 / factor <= ratio <= factor)
    assert len(held) > 3000
    assert sum(held) >= (LEVEL - 0.01) * len(held)
