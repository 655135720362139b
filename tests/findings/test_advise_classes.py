"""Advice over classes: equal pairs get one line, and only what the interval over the class shows changes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from linkgauge.app.cli import run_command
from linkgauge.findings.read import facts_of
from linkgauge.judge.advise import Advice, advise
from linkgauge.model.case import Case
from linkgauge.store.run import load
from linkgauge.system import catalog
from linkgauge.system.dump import to_json
from synthetic import Noise, make_run, pair_cases

QUIET = Noise(sigma=0.01, launch_sigma=0.0)


def scattered(times: Callable[[Case], float], sigma: float, seed: int) -> Callable[[Case], float]:
    """Each case is off by its own factor, as latencies of 8 B are: beyond its own interval, and by chance."""
    draw = np.random.default_rng(seed)
    return lambda case: times(case) * float(np.exp(sigma * draw.standard_normal()))


def advice(path: Path, system: str, devices: range, times: Callable[[Case], float]) -> list[Advice]:
    cases = [
        case
        for transport in ("copy_engine", "kernel")
        for case in pair_cases("unidirectional", 1 << 20, tuple(devices), transport)
        if case.ranks == 2
    ]
    info = {"system": json.loads(to_json(catalog.load(system)))}
    return advise(facts_of(load(make_run(path, cases=cases, samples=40, time_ns=times, noise=QUIET, info=info))))


@pytest.mark.parametrize("seed", range(4))
def test_equal_pairs_get_one_advice_whatever_the_noise(seed: int, tmp_path: Path) -> None:
    quicker = {"copy_engine": 8e3, "kernel": 10e3}
    times = scattered(lambda case: quicker[case.transport], 0.12, seed)
    (said,) = advice(tmp_path / "r", "hgx-h200-4", range(4), times)
    assert said.best == "copy_engine"
    assert said.task == "unidirectional on all pairs of GPUs 0-3"
    assert len(said.members) == 12
    assert len(set(said.case_keys)) == 12
    assert said.margin == pytest.approx(0.25, abs=0.12)
    assert said.low is not None
    assert said.high is not None
    # The pairs' differences are in the interval, though each pair's own is of 0.5 %.
    assert said.high - said.low > 0.05


def test_what_equal_pairs_do_not_agree_on_does_not_matter(tmp_path: Path) -> None:
    times = scattered(lambda case: 10e3, 0.15, 11)
    (said,) = advice(tmp_path / "r", "hgx-h200-4", range(4), times)
    assert {said.best, *said.alike} == {"copy_engine", "kernel"}


def test_one_slow_pair_changes_nothing(tmp_path: Path) -> None:
    def times(case: Case) -> float:
        slow = case.transport == "copy_engine" and case.devices == (2, 3)
        return {"copy_engine": 8e3, "kernel": 10e3}[case.transport] * (5 if slow else 1)

    (said,) = advice(tmp_path / "r", "hgx-h200-4", range(4), times)
    assert said.best == "copy_engine"
    assert said.margin == pytest.approx(0.25, abs=0.03)


def test_classes_that_differ_get_advice_of_their_own(tmp_path: Path) -> None:
    """On Summit copies between processors go another way than those within one."""

    def times(case: Case) -> float:
        near = case.devices[0] // 3 == case.devices[1] // 3
        return {"copy_engine": 8e3 if near else 20e3, "kernel": 10e3}[case.transport]

    near, far = advice(tmp_path / "r", "summit", range(6), times)
    assert (near.best, len(near.members)) == ("copy_engine", 12)
    assert (far.best, len(far.members)) == ("kernel", 18)


def test_columns_that_nothing_fills_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice(tmp_path / "r", "hgx-h200-4", range(4), lambda case: {"copy_engine": 8e3, "kernel": 10e3}[case.transport])
    assert run_command(["advise", str(tmp_path / "r")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["task", "sizes", "use", "next", "is", "slower", "by"]
    assert shown[2].startswith("Slower by:")
