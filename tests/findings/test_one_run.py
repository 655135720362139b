"""`check RUN --against RUN`: by the spread that healthy runs of one machine were seen to have."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from run_extracts import CORPUS, rebuild

import synthetic
from linkgauge.app.cli import run_command
from linkgauge.findings.measure import Measure
from linkgauge.findings.read import facts_of
from linkgauge.judge.one_run import LEAST_SIZE, SPREADS, SPREADS_BY
from linkgauge.model.case import Case
from linkgauge.model.patterns import group_of
from synthetic import Noise, make_case, make_run, pair_cases
from thorough import thorough

QUIET = Noise(sigma=0.01, launch_sigma=0.002)
Slow = Callable[[Case], float]


def plan() -> list[Case]:
    pairs = [c for c in pair_cases("unidirectional", 1 << 28, transport="copy_engine") if c.ranks == 2]
    host = [make_case("copy_engine", "host_to_device", 1 << 28, (d,), source_memory="pinned") for d in range(4)]
    return [*pairs, *host, make_case("copy_engine", "unidirectional", 1 << 20, (0, 1))]


def run(path: Path, seed: int, slow: Slow = lambda case: 1.0, cases: list[Case] | None = None) -> Path:
    return make_run(path, cases=plan() if cases is None else cases, seed=seed, samples=40, noise=QUIET,
                    time_ns=lambda case: case.size / 390.0 * slow(case))  # fmt: skip


def checked(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = run_command(["check", *map(str, words), "--no-findings", "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_further_run_holds_and_small_sizes_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = checked(capsys, run(tmp_path / "b", 2), "--against", run(tmp_path / "a", 1))
    assert status == 0
    assert said["pass"] == sum(case.size >= LEAST_SIZE for case in plan())
    assert len(plan()) == said["pass"] + 1


def test_a_slow_pair_falls_short_where_a_host_copy_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tenth is beyond what pairs differ by between runs, and usual of host copies."""

    def slow(case: Case) -> float:
        return 1.1 if case.devices in ((0, 1), (2,)) else 1.0

    status, said = checked(capsys, run(tmp_path / "b", 2, slow), "--against", run(tmp_path / "a", 1))
    assert status == 1
    failed = [one for one in said["verdicts"] if one["outcome"] == "fail"]
    assert [one["devices"] for one in failed] == [[0, 1]]
    assert failed[0]["shortfall"] == pytest.approx(1 - 1 / 1.1, abs=0.02)
    assert "4 % more is no difference" in failed[0]["reason"]
    assert failed[0]["source"] == str(tmp_path / "a")


def test_a_margin_goes_before_the_stored_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run(tmp_path / "b", 2, lambda case: 1.1), "--against", run(tmp_path / "a", 1)]
    assert checked(capsys, *runs)[0] == 1
    assert checked(capsys, *runs, "--margin", "0.2")[0] == 0


def test_what_the_other_run_has_and_this_one_lacks_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = checked(capsys, run(tmp_path / "b", 2, cases=plan()[1:]), "--against", run(tmp_path / "a", 1))
    assert (status, said["unknown"]) == (3, 1)


def test_devices_are_matched_by_ordinal_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUs 0 and 1 change places; the pair 0-2 is slow by its slot, whichever GPU is there."""

    def slow(case: Case) -> float:
        return 1.2 if case.devices == (0, 2) else 1.0

    first = run(tmp_path / "a", 1, slow)
    made = synthetic.device
    monkeypatch.setattr(
        synthetic,
        "device",
        lambda ordinal, host: made(ordinal, host) | {"uuid": made((1, 0, 2, 3)[ordinal], host)["uuid"]},
    )
    second = run(tmp_path / "b", 2, slow)
    assert checked(capsys, second, "--against", first)[0] == 1
    assert checked(capsys, second, "--against", first, "--by-ordinal")[0] == 0


def test_a_run_is_not_judged_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path / "a", 1)
    assert run_command(["check", str(path), "--against", str(path)]) == 2
    assert "are the same run" in capsys.readouterr().err


def test_runs_that_share_no_case_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = run(tmp_path / "a", 1, cases=plan()[:2]), run(tmp_path / "b", 2, cases=plan()[2:4])
    assert run_command(["check", str(second), "--against", str(first)]) == 2
    assert "share no case of 32 MiB or more" in capsys.readouterr().err


def largest_spread(runs: Sequence[Sequence[Measure]]) -> dict[tuple[str, str], float]:
    """By transport and group the most that a case's time grew between any two runs of one machine, as a logarithm."""
    times: dict[tuple[str, str], list[Measure]] = {}
    for measures in runs:
        for one in measures:
            if one.size >= LEAST_SIZE:
                times.setdefault((one.case_key, one.launch_key), []).append(one)
    most: dict[tuple[str, str], float] = {}
    for some in times.values():
        kind = some[0].transport, group_of(some[0].pattern, some[0].devices)
        ratio = math.log(max(one.time_ns for one in some) / min(one.time_ns for one in some))
        most[kind] = max(ratio, most.get(kind, 0.0))
    return most


@thorough("the stored spread changes with the corpus alone")
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["h200x2-default-1", "h200x2-default-2"], id="two"),
        pytest.param(
            [f"h200x4-default-{i}" for i in range(1, 6)], id="four", marks=thorough("two runs of two GPUs are here")
        ),
    ],
)
def test_the_stored_spread_is_what_healthy_runs_have_and_half_as_much_again(tmp_path: Path, names: list[str]) -> None:
    found = largest_spread([facts_of(rebuild(CORPUS / f"{n}.xz", tmp_path / n)).measures for n in names])
    assert len(found) > 8
    for (transport, group), most in found.items():
        stored = SPREADS_BY.get((transport, group), SPREADS[group])
        assert 1.4 * most < stored, (transport, group, most)
    if len(names) > 2:  # and not much more than that
        assert SPREADS_BY["kernel", "collectives"] < 1.7 * found["kernel", "collectives"]
        assert math.expm1(SPREADS["pairs"]) < 2 * found["ccl", "pairs"]
