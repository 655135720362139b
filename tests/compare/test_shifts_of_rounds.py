"""`compare --detect` and `check --detect` on stored rounds: who is called, and what they say they could see."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import linkgauge
from linkgauge.judge.small_shifts import among_nodes, between_runs, node_verdicts
from linkgauge.model.case import Case
from linkgauge.store.run import Run
from synthetic import Noise, make_case, make_run
from thorough import thorough

SHIFTS = thorough("the command below names a shift of the same rounds")

CASES = [make_case("copy_engine", "unidirectional", 1 << 26, pair) for pair in ((0, 1), (1, 0), (2, 3))]
ROUNDS = 130


def run_of(path: Path, seed: int, factor: float = 1.0, host: str = "n0", rounds: int = ROUNDS) -> Path:
    def time_ns(case: Case) -> float:
        return 100_000.0 * (1 + case.devices[0]) * factor

    return make_run(
        path, cases=CASES, seed=seed, samples=8, warmup=1, repeats=rounds, time_ns=time_ns, noise=Noise(sigma=0.004),
        host=host, info={"id": f"{host}-{seed}", "start": f"2026-01-01T00:00:{seed:02d}+00:00"},
    )  # fmt: skip


@SHIFTS
def test_a_side_that_is_slower_is_called_and_one_that_is_not_is_not(tmp_path: Path) -> None:
    a, b, c = (linkgauge.load(run_of(tmp_path / str(k), k, 1.006 if k == 2 else 1.0)) for k in range(3))
    found = between_runs([a], [c], 0.005)
    assert found.rounds == ROUNDS
    assert found.named[0].shift.verdict == "slower"
    assert found.named[0].shift.low < 0.006 < found.named[0].shift.high
    assert not any(one.shift.since for one in between_runs([a], [b], 0.005).named)
    assert "To see 0.50 % with 95 %" in " ".join(found.power)


@SHIFTS
def test_the_slow_node_alone_fails(tmp_path: Path) -> None:
    runs = [linkgauge.load(run_of(tmp_path / str(k), k, 1.006 if k == 3 else 1.0, f"n{k}")) for k in range(5)]
    found = among_nodes(runs, 0.005)
    assert found is not None
    assert [one.name for one in found.slower] == ["n3"]
    assert [one.host for one in node_verdicts(found, 0.005) if one.outcome == "fail"] == ["n3"]
    assert among_nodes(runs[:3], 0.005) is None


def test_few_rounds_say_that_they_are_few(tmp_path: Path) -> None:
    a, b = (linkgauge.load(run_of(tmp_path / str(k), k, rounds=6)) for k in range(2))
    found = between_runs([a], [b], 0.003)
    assert {one.shift.verdict for one in found.named} == {"cannot tell"}
    assert "6 rounds: too few" in found.power[0]


@thorough("stats/test_small_shifts.py names the slow one of many")
def test_whose_a_shift_is_comes_from_the_pairs_that_cross(tmp_path: Path) -> None:
    """Of all ordered pairs of four devices those are slower that device 2 sends: that direction alone is named."""
    ways = [make_case("copy_engine", "unidirectional", 1 << 26, pair) for pair in itertools.permutations(range(4), 2)]

    def run(name: str, factor: float) -> Run:
        return linkgauge.load(make_run(
            tmp_path / name, cases=ways, seed=len(name), samples=4, warmup=1, repeats=40, noise=Noise(sigma=0.002),
            time_ns=lambda case: 100_000.0 * (factor if case.devices[0] == 2 else 1.0), host="n0", info={"id": name},
        ))  # fmt: skip

    found = between_runs([run("before", 1.0)], [run("after", 1.01)], 0.005)
    assert len(found.causes) == 1
    assert found.causes[0].startswith("what")
    assert "2 sends: +" in found.causes[0]
    assert between_runs([run("one", 1.0)], [run("another", 1.0)], 0.005).causes == ()


@pytest.mark.parametrize("count", [1, 3])
def test_sides_must_come_by_turns(tmp_path: Path, count: int) -> None:
    from click.testing import CliRunner

    from linkgauge.app.judging import compare_command

    paths = [str(run_of(tmp_path / str(k), k, rounds=1)) for k in range(count)]
    done = CliRunner().invoke(compare_command, ["--detect", "0.3%", *paths])
    assert done.exit_code != 0


def test_the_command_prints_the_verdict_and_the_power(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from linkgauge.app.judging import compare_command

    paths = [str(run_of(tmp_path / str(k), k, 1.01 if k % 2 else 1.0)) for k in range(2)]
    done = CliRunner().invoke(compare_command, ["--detect", "0.5%", *paths])
    assert "all cases" in done.output
    assert "worse" in done.output
    assert "With 95 %" in done.output
