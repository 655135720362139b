"""Detours of cores: planted ones are found with their period, and the command says what it saw."""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest

from linkgauge.app import cli
from linkgauge.doctor import noise
from linkgauge.doctor.noise import CoreNoise, _told, core_noise


def test_a_timer_among_random_detours_has_its_period() -> None:
    rng = np.random.default_rng(2)
    timer = np.arange(250) * 4e6 + rng.normal(0, 2e3, 250)
    found = _told(3, timer, np.full(250, 5e3), 10**9)
    assert found.period_ns == pytest.approx(4e6, rel=0.01)
    assert (found.count, found.share) == (250, pytest.approx(250 * 5e3 / 1e9))
    # A daemon's 100 ms among many short ones at random.
    starts = np.concatenate([np.sort(rng.uniform(0, 5e9, 400)), np.arange(50) * 1e8 + 3e6])
    lengths = np.concatenate([rng.uniform(1e3, 3e3, 400), np.full(50, 2e5)])
    order = np.argsort(starts)
    found = _told(0, starts[order], lengths[order], 5 * 10**9)
    assert found.period_ns == pytest.approx(1e8, rel=0.02)
    assert found.longest_ns == 2e5


@pytest.mark.parametrize("seed", range(10))
def test_what_comes_at_random_has_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert _told(0, np.sort(rng.uniform(0, 5e9, 300)), rng.uniform(1e3, 9e3, 300), 5 * 10**9).period_ns is None


def test_a_core_that_another_thread_wants_is_seen_to_be_taken() -> None:
    """Two that want one core have half of it each: seen from the one, the other is a detour."""
    core = min(os.sched_getaffinity(0))
    over = threading.Event()

    def busy() -> None:
        os.sched_setaffinity(0, {core})
        while not over.is_set():
            np.dot(_SQUARE, _SQUARE)  # without Python's lock

    other = threading.Thread(target=busy)
    other.start()
    try:
        (found,) = core_noise(0.8, [core])
    finally:
        over.set()
        other.join()
    assert found.core == core
    assert found.share > 0.15
    assert found.noisy


_SQUARE = np.ones((300, 300))


def test_the_command_says_what_it_saw(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.run_command(["doctor", "--noise", "100ms", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["core"] for row in rows} == os.sched_getaffinity(0)
    seen = [CoreNoise(0, 1.0, 250, 0.002, 5e3, 9e3, 4e6), CoreNoise(1, 1.0, 10, 0.2, 5e3, 2e7, None)]
    monkeypatch.setattr(noise, "core_noise", lambda seconds: seen)
    assert cli.run_command(["doctor", "--noise", "1s"]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 cores" in said
    assert "20.00 %" in said
    assert "4 ms" not in said  # the quiet one is not listed beside it
    for wrong in (["--noise", "1ms"], ["--noise", "1s", "--hosts", "a"], ["--noise", "soon"]):
        assert cli.run_command(["doctor", *wrong]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
