"""A library's factor from a run on two nodes, planted and found; runs that cannot say it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import synthetic
from linkgauge import system as systems
from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.simulate import Request, of_system
from linkgauge.simulate.calibrate import calibrate
from linkgauge.store.run import load

SIZE = 2 << 20


def run_of(path: Path, factor: float, hosts: tuple[str, ...] = ("a", "a", "a", "a", "b", "b", "b", "b")) -> Path:
    """An alltoall of 2 MiB by ccl over 8 GPUs, as fast as Leonardo's ports allow on two nodes times a factor."""
    case = synthetic.make_case("ccl", "alltoall", SIZE, range(len(hosts)))

    def time_ns(_: Case) -> float:
        outside = 4 * SIZE / 12.5e9 + 2.03e-6  # four peers on the other node, one message's latency
        return outside / factor * 1e9

    return synthetic.make_run(
        path, cases=[case], time_ns=time_ns, noise=synthetic.Noise(), hosts=hosts, samples=60,
        launches=[{"launch_key": "0123456789abcdef"}],
    )  # fmt: skip


def test_a_planted_factor_is_found_and_shown_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path / "run", 0.75)
    fabric = of_system(systems.load("leonardo-booster"))
    found = calibrate(load(run), fabric, Request("alltoall", 1))
    assert found.factor == pytest.approx(0.75, rel=0.03)
    assert "ccl alltoall of 2097152 B on 2 nodes of 4 GPUs" in found.words
    arguments = ["--gpus", "1024", "--routing", "best", "--placement", "random", "--no-what-if", "--json"]
    status = run_command(["simulate", "leonardo-booster", *arguments, "--calibrate", str(run)])
    assert status == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["with_library"] == pytest.approx(answer["goodput"] * found.factor)
    assert answer["goodput"] == pytest.approx(12.5e9, rel=0.01)


def test_runs_that_cannot_say_it_are_refused(tmp_path: Path) -> None:
    fabric = of_system(systems.load("leonardo-booster"))
    fast = load(run_of(tmp_path / "fast", 3.0))
    with pytest.raises(UsageError, match="of another machine"):
        calibrate(fast, fabric, Request("alltoall", 1))
    with pytest.raises(UsageError, match="no case of allreduce on 2 to 8 nodes"):
        calibrate(fast, fabric, Request("allreduce", 1))
    alone = load(run_of(tmp_path / "alone", 0.5, ("a",) * 4))
    with pytest.raises(UsageError, match="no case of alltoall on 2 to 8 nodes"):
        calibrate(alone, fabric, Request("alltoall", 1))
