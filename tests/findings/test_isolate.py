"""`isolate`: one slow node of many is named in a stated number of rounds, with the noise of stored runs."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest

from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.judge.isolate import HALVES, PAIRS, Search, rounds_for
from patience import PATIENCE_S
from synthetic import make_case
from thorough import most

NOISE = json.loads((Path(__file__).parents[2] / "docs/results/data/isolate.json").read_text())["noise"]
LOSS, ASSUMED = 0.2, 0.03
TRIALS = most(100, 20)


def searched(nodes: int, by: str, seed: int, slow: bool, gone: float = 0.0) -> tuple[Search, str]:
    drawn = np.random.default_rng(seed)
    names = [f"n{number}" for number in range(nodes)]
    bad = names[drawn.integers(nodes)] if slow else ""
    search = Search(names, LOSS, ASSUMED, by, seed)
    while not search.ended:
        lost = {name for name in search.left if name != bad and drawn.random() < gone}
        groups = search.groups()
        assert len({name for group in groups for name in group}) == sum(map(len, groups))  # disjoint
        assert len({len(group) for group in groups}) == 1  # a collective's time depends on the number of its ranks
        longer = -math.log(1 - LOSS)
        times = {group: None if lost & {*group} else math.exp(drawn.choice(NOISE) + longer * (bad in group))
                 for group in groups}  # fmt: skip
        for name in lost:
            search.drop(name, "lost")
        search.observe(times)
    return search, bad


@pytest.mark.parametrize("by", [HALVES, PAIRS])
@pytest.mark.parametrize("gone", [0.0, 0.002])
def test_one_slow_node_of_64_is_found_within_twice_log2_n_rounds(by: str, gone: float) -> None:
    found, false = 0, 0
    for seed in range(TRIALS):
        search, bad = searched(64, by, seed, slow=True, gone=gone)
        assert search.rounds <= 2 * math.log2(64)
        found += search.slow == [bad]
        false += bool(set(search.slow) - {bad})
    assert found >= 0.95 * TRIALS
    assert false <= 0.02 * TRIALS


@pytest.mark.parametrize("by", [HALVES, PAIRS])
def test_of_sound_nodes_none_is_named(by: str) -> None:
    false = sum(bool(searched(64, by, seed, slow=False)[0].slow) for seed in range(TRIALS))
    assert false <= 0.02 * TRIALS


@pytest.mark.parametrize("nodes", [1024, most(10_000, 2_000)])
def test_one_of_many_is_found(nodes: int) -> None:
    ends = [searched(nodes, HALVES, seed, slow=True) for seed in range(most(20, 2))]
    assert all(search.slow == [bad] for search, bad in ends)
    assert all(search.rounds <= 2 * math.ceil(math.log2(nodes)) for search, _ in ends)


@pytest.mark.parametrize("nodes", [5, 9, 63, 65])
def test_of_an_odd_number_of_nodes_any_may_be_the_slow_one(nodes: int) -> None:
    ends = [searched(nodes, HALVES, seed, slow=True) for seed in range(most(100, 40))]
    # Of five nodes two rounds of six may miss the slow one: fewer are found than of many.
    assert sum(search.slow == [bad] for search, bad in ends) >= (0.8 if nodes < 8 else 0.95) * len(ends)
    assert sum(bool(set(search.slow) - {bad}) for search, bad in ends) <= 0.02 * len(ends)


def test_two_slow_nodes_are_both_found_by_pairs() -> None:
    names = [f"n{number}" for number in range(32)]
    search = Search(names, LOSS, ASSUMED, PAIRS, seed=3)
    while not search.ended:
        search.observe({group: 1.3 if {"n3", "n9"} & {*group} else 1.0 for group in search.groups()})
    assert sorted(search.slow) == ["n3", "n9"]


def test_rounds_grow_with_the_logarithm_and_with_noise() -> None:
    assert rounds_for(64, 0.2, 0.001, HALVES).usual == 8  # log2(65), and one for being sure
    assert rounds_for(1024, 0.2, 0.001, HALVES).usual == 12
    assert rounds_for(1024, 0.2, 0.06, HALVES).usual > 12
    assert rounds_for(1024, 0.2, 0.3, HALVES) == rounds_for(1024, 0.01, 0.3, HALVES)  # no more than 2 log2 N
    assert rounds_for(1024, 0.2, 0.03, HALVES).most == 20
    assert rounds_for(10_000, 0.2, 0.03, PAIRS) == rounds_for(8, 0.2, 0.03, PAIRS)


def test_a_round_that_could_not_be_measured_tells_nothing_and_too_few_nodes_are_refused() -> None:
    search = Search(["a", "b", "c", "d"], LOSS, ASSUMED)
    before = search.probabilities()
    first, second = search.groups()
    search.observe({first: None, second: 1.0})
    assert search.probabilities() == before
    with pytest.raises(UsageError, match="expected 4 or more"):
        Search(["a", "b"], LOSS, ASSUMED)


def test_too_few_nodes_are_refused_before_a_job_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("linkgauge.app.isolate.enter_allocation", lambda _: pytest.fail("a job was requested"))
    assert run_command(["isolate", "--nodes", "1", "--out", str(tmp_path / "r")]) == 2
    assert "1 node: expected 4 or more" in capsys.readouterr().err
    assert run_command(["isolate", "--nodes", "8", "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_plan_of_many_ranks_takes_as_long_as_they_are_many() -> None:
    began = time.monotonic()
    assert make_case("mpi", "allreduce", 8, tuple(range(200_000))).ranks_needed == 1
    assert time.monotonic() - began < PATIENCE_S
