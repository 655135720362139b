"""Intervals of predictions hold nine of ten truths: on errors that were measured, and on errors that are drawn."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from linkgauge.expect.application import Predicted
from linkgauge.expect.coverage import FEWEST, LEVEL, USUAL_ON_GPU, USUAL_ON_HOST, Miss, Misses, factor_of
from linkgauge.expect.mechanism import Mechanism

STORED = Path(__file__).parent.parent.parent / "docs" / "results" / "data"
MPI, STAGING = Mechanism("mpi", "mpi"), Mechanism("staging", "staging")


def misses(factors: list[float], by: Mechanism = MPI, ranks: int = 2) -> list[Miss]:
    return [Miss(f"app{number}", ranks, by, factor) for number, factor in enumerate(factors)]


def took(ns: float, computing: float = 0.0) -> Predicted:
    return Predicted((ns, ns / 2), ({"compute": computing, "message": ns - computing}, {"message": ns / 2}))


def test_the_stored_cases_of_a_machine_lie_in_their_intervals() -> None:
    """208 cases on 16 shared cores, each by the errors of the run's other applications."""
    rows = [json.loads(line) for line in (STORED / "applications-host.jsonl").read_text().splitlines()]
    by = {name: Mechanism(name, name) for name in {row["transport"] for row in rows}}
    factors = [row["measured_us"] / row["predicted_us"] for row in rows]
    known = Misses(
        (Miss(row["app"], row["ranks"], by[row["transport"]], factor)
         for row, factor in zip(rows, factors, strict=True)),
        on_host=True,
    )  # fmt: skip
    held = [
        known.interval(row["app"], row["ranks"], by[row["transport"]], took(row["predicted_us"])).holds(
            row["measured_us"]
        )
        for row in rows
    ]
    assert len(held) >= 200
    assert sum(held) >= LEVEL * len(held)


def test_what_the_command_stated_held_nine_of_ten_measured_times() -> None:
    """Two runs on two cores that others used, at a load of 16: A and B, each predicted by its own curves and errors and
    by the other's. Where a run tells itself, the stored interval is what the other applications' errors make."""
    rows = [json.loads(line) for line in (STORED / "prediction-coverage.jsonl").read_text().splitlines()]
    of_set: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_set.setdefault(row["set"], []).append(row)
    assert {name: len(held) for name, held in of_set.items()} == dict.fromkeys(
        ("A by A", "B by B", "B by A", "A by B"), 104
    )
    for pair in (("A by A", "B by B"), ("B by A", "A by B")):
        both = [row for name in pair for row in of_set[name]]
        assert sum(row["low_ns"] <= row["measured_ns"] <= row["high_ns"] for row in both) >= LEVEL * len(both)
    for name in ("A by A", "B by B"):
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


def test_what_is_computed_takes_as_long_as_it_says() -> None:
    known = Misses(misses([2.0] * FEWEST), on_host=True)
    found = known.interval("x", 2, MPI, took(1000.0, computing=900.0))
    assert (found.low_ns, found.high_ns) == (950.0, 1100.0)
    assert factor_of(1100.0, took(1000.0, computing=900.0)) == pytest.approx(2.0)
    assert 0 < factor_of(500.0, took(1000.0, computing=900.0)) < 0.1
