"""`run --detect`: rounds until a shift is known, or until a comparison could show it; said before and as it goes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from linkgauge.judge.detecting import Detecting, planned_words
from linkgauge.model.case import Case
from linkgauge.plan.launches import LaunchSettings
from linkgauge.store.run import load
from program import linkgauge
from synthetic import make_case

CASES = [make_case("copy_engine", "unidirectional", 1 << 26, pair) for pair in ((0, 1), (1, 0))]
ONE, OTHER = (cast(LaunchSettings, name) for name in ("ring", "tree"))


def rounds_until_enough(kinds: dict[LaunchSettings, float], most: int, noise: float = 0.002) -> tuple[int, list[str]]:
    """How many rounds are measured of launches whose times have these factors, and what is said."""
    said: list[str] = []
    detecting = Detecting(0.005, said.append, limit_s=60.0)
    rng = np.random.default_rng(1)
    for repeat in range(most):
        drift = math.exp(0.01 * math.sin(repeat / 20))
        for settings, factor in kinds.items():
            for case in CASES:
                detecting.note(repeat, settings, case, 1e5 * drift * factor * math.exp(rng.normal(0, noise)))
        if detecting.enough():
            return repeat + 1, said
    return most, said


def test_a_shift_between_two_kinds_of_launches_ends_the_run_and_is_named() -> None:
    count, said = rounds_until_enough({ONE: 1.0, OTHER: 1.01}, 400)
    assert count < 200
    assert "slower" in said[-1]
    assert "with 95 % on this machine" in said[0]
    assert "given" in said[0]


def test_two_alike_sides_end_as_the_same() -> None:
    count, said = rounds_until_enough({ONE: 1.0, OTHER: 1.0}, 400)
    assert count < 400
    assert "same" in said[-1]


def test_one_kind_of_launch_ends_when_a_comparison_could_show_the_shift() -> None:
    quiet, _ = rounds_until_enough({ONE: 1.0}, 400, noise=0.0005)
    noisy, said = rounds_until_enough({ONE: 1.0}, 240, noise=0.1)
    assert quiet < 200
    assert noisy == 240
    assert len(said) == 1  # what it would take


def test_what_is_needed_is_said_before_anything_is_measured() -> None:
    lines = planned_words(0.003, 10.0, int(60e9))
    assert "to see 0.30 % with 95 %" in lines[0]
    assert lines[1].startswith("in the 1 m")
    assert len(planned_words(0.003, 10.0, None)) == 1


@pytest.fixture
def small() -> list[str]:
    return ["--threads", "--devices", "host:2", "--pattern", "pingpong", "--transport", "kernel", "--size", "4KiB",
            "--max-time", "1ms", "--warmup", "1"]  # fmt: skip


PLAN = """
repeat = 6
[[case]]
transport = "kernel"
pattern = "pingpong"
size = ["8", "4KiB"]
pairs = "first"
"""


class AfterTwo:
    """Has enough after two rounds."""

    def __init__(self) -> None:
        self.repeats: list[int] = []

    def note(self, repeat: int, settings: LaunchSettings, case: Case, time_ns: float) -> None:
        assert time_ns > 0
        self.repeats.append(repeat)

    def enough(self) -> bool:
        return len(set(self.repeats)) == 2


def test_a_run_ends_when_enough_is_known_and_plans_no_more(run_plan: Any) -> None:
    rounds = AfterTwo()
    measured = run_plan(PLAN, threads=True, rounds=rounds)
    assert measured.status == 0
    assert {row.repeat for row in load(measured.path).rows()} == {0, 1} == set(rounds.repeats)
    launches = json.loads((measured.path / "plan.json").read_text())["launches"]
    assert {launch["repeat"] for launch in launches} == {0, 1}
    assert load(measured.path).info["left"] == 0


def test_a_dry_run_says_what_the_shift_needs(small: list[str], tmp_path: Path) -> None:
    done = linkgauge("run", *small, "--detect", "0.3%", "--time-limit", "60s", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "to see 0.30 % with 95 %" in done.stdout
    assert "in the 1 m" in done.stdout


@pytest.mark.parametrize("text", ["0.3", "0%", "x"])
def test_a_shift_is_a_percentage(small: list[str], text: str, tmp_path: Path) -> None:
    done = linkgauge("run", *small, "--detect", text, cwd=tmp_path)
    assert done.returncode == 2
    assert "is not a percentage" in done.stderr
