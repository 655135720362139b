"""`health`: what it states to find it finds, of noise and others' load it names nothing; its line fits a scheduler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linkgauge.app import health as command
from linkgauge.app import new_run
from linkgauge.app.cli import run_command
from linkgauge.app.health import Health, Look
from linkgauge.app.request import Request
from linkgauge.errors import Exit
from linkgauge.judge import health
from linkgauge.judge.health import (
    FALSE_ALARM,
    Known,
    confirmed,
    excused,
    is_usual,
    known_of,
    line_of,
    not_reached,
    of_this_node,
    power_for,
)
from linkgauge.judge.history import add
from linkgauge.judge.subjects import Subject, load_subjects
from linkgauge.judge.verdicts import Verdict
from linkgauge.model.quantity import parse_duration
from linkgauge.model.result import Measured
from linkgauge.plan.launches import measuring_s
from linkgauge.run.parent import one_look
from linkgauge.store.history import History
from synthetic import Noise, link_model, make_run, pair_cases
from thorough import most

PAIRS = [case for case in pair_cases("unidirectional", 1 << 26) if len(set(case.devices)) == 2]
QUIET = Noise(0.01, 0.0, 0.01)


def run(
    path: Path, seed: int, slow: dict[tuple[int, int], float] | None = None, host: str = "n0",
    observations: Sequence[dict[str, Any]] = (),
) -> Subject:  # fmt: skip
    end = f"2099-01-{seed % 28 + 1:02d}T00:00:00+00:00"
    made = make_run(path, cases=PAIRS, seed=seed, samples=30, time_ns=link_model(slow), host=host, noise=QUIET,
                    info={"id": path.name, "start": end, "end": end}, observations=observations)  # fmt: skip
    return load_subjects([made])[0]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    root = tmp_path_factory.mktemp("health")
    found = History.open(str(root / "fleet"), make=True)
    for seed in range(8):
        add(found, run(root / f"r{seed}", seed))
    return found


def infos(subject: Subject) -> list[dict[str, Any]]:
    return [{"uuid": one.device_uuid, "name": one.device_name, "kind": one.device_kind}
            for one in subject.facts.devices.values()]  # fmt: skip


def test_a_slow_link_is_named_against_the_nodes_own_runs_and_a_run_like_them_holds(
    history: History, tmp_path: Path
) -> None:
    bad = run(tmp_path / "bad", 20, {(0, 2): 0.8})
    known = known_of(history, "n0", infos(bad), ())
    assert known.source == "its own 8 runs"
    assert len(known.keys) == len(PAIRS)
    verdicts = health.against_history(bad, known, "n0", ())
    assert [one.devices for one in verdicts if one.outcome == "fail"] == [(0, 2)]
    line, status = line_of(verdicts, [])
    assert status == Exit.FAIL
    assert len(line) < 100
    assert "GPU 0 - GPU 2 unidirectional 2" in line  # 20 % of the rate, within the noise
    assert "below its own 8 runs" in line
    for seed in range(30, 36):
        good = health.against_history(run(tmp_path / f"good{seed}", seed), known, "n0", ())
        assert {one.outcome for one in good} == {"pass"}


def test_a_node_without_runs_of_its_own_is_held_against_others_of_its_kind(tmp_path: Path) -> None:
    kind = History.open(str(tmp_path / "fleet"), make=True)
    for node in range(1, 7):
        add(kind, run(tmp_path / f"r{node}", node, host=f"n{node}"))
    bad = run(tmp_path / "bad", 20, {(1, 3): 0.7})
    known = known_of(kind, "n0", infos(bad), ())
    assert known.source == "6 nodes of its kind"
    assert [one.devices for one in health.against_history(bad, known, "n0", ()) if one.outcome == "fail"] == [(1, 3)]


def made_known(noise: float, runs: int, cases: int, seed: int = 1) -> Known:
    times = np.exp(np.random.default_rng(seed).normal(0, noise, (cases, runs)))
    return Known("its own runs", tuple(((f"{n}",), "", "") for n in range(cases)), times)


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.06])
def test_the_stated_loss_is_found_with_the_stated_chance_and_nothing_else_is(noise: float) -> None:
    """By drawing runs: a case with the loss fails in both looks 95 times of 100, cases without it hardly ever."""
    cases, runs, drawn = 20, 12, np.random.default_rng(7)
    found = false = 0
    trials = 200
    for seed in range(trials):
        known = made_known(noise, runs, cases, seed)
        power = power_for(known, 0.0001, 1)
        variance, counts, freedom = health._variances(known)
        reach = health._reach(np.sqrt(variance * (1 + 1 / counts)), freedom)
        usual = np.log(known.times).mean(axis=1)
        looks = drawn.normal(0, noise, (2, cases)) - usual
        false += bool(((looks[0] >= reach) & (looks[1] >= reach)).any())
        looks[:, 0] -= math.log(1 - power.loss)
        found += bool((looks[:, 0] >= reach[0]).all())
    assert found >= 0.93 * trials
    assert false <= max(1, 5 * FALSE_ALARM * trials)


def test_repeats_are_as_few_as_find_the_loss() -> None:
    quiet, loud = made_known(0.005, 12, 20), made_known(0.04, 12, 20)
    assert power_for(quiet, 0.1).repeats == 1
    more = power_for(loud, 0.2)
    assert 1 < more.repeats <= health.MOST_REPEATS
    assert more.loss <= 0.2
    assert power_for(loud, 0.2, more.repeats - 1).loss > 0.2
    assert power_for(Known(), 0.1).words == (
        "finds a loss of 9 % with 95 % probability, measuring once (noise 2.0 % assumed)"
    )


def test_a_partners_slow_link_is_not_the_nodes(history: History, tmp_path: Path) -> None:
    hosts = ["n0", "p1", "p2"]
    made = make_run(tmp_path / "run", cases=pair_cases("unidirectional", 1 << 20, (0, 1, 2), "mpi"), samples=10,
                    hosts=hosts)  # fmt: skip
    (subject,) = load_subjects([made])

    def of(outcome: str, devices: tuple[int, ...]) -> Verdict:
        return subject.verdict(outcome, f"{devices}", "", "", devices=devices)  # type: ignore[arg-type]

    one = of_this_node([of("fail", (0, 1)), of("pass", (0, 2)), of("fail", (1, 2))], subject, "n0", ("p1", "p2"))
    assert [verdict.outcome for verdict in one] == ["unknown", "pass"]
    both = of_this_node([of("fail", (0, 1)), of("fail", (2, 0))], subject, "n0", ("p1", "p2"))
    assert [verdict.outcome for verdict in both] == ["fail", "fail"]
    assert [v.outcome for v in of_this_node([of("fail", (0, 1))], subject, "n0", ("p1",))] == ["fail"]


def test_a_node_that_reaches_no_partner_is_unknown_and_says_why(history: History, tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", 20)
    held = health.against_history(alone, known_of(history, "n0", infos(alone), ()), "n0", ())
    alone.facts.info["nodes_left_out"] = {"p1": "no route to host"}  # type: ignore[index]
    line, status = line_of([*held, *not_reached(alone, ("p1", "p2"))], [])
    assert (line, status) == ("UNKNOWN: path to p1 or p2: no route to host", Exit.UNKNOWN)
    assert not_reached(alone, ()) == []
    assert not_reached(alone, ("n0",)) == []


@pytest.mark.parametrize("shared", [True, False])
def test_run_folders_lie_where_partners_see_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fleet = str(tmp_path / "fleet") if shared else None
    look = Look(Health(history=fleet), Request(), "n0", ("p1",), 0.0, lambda _: None, Clock())
    with look.folder() as folder:
        assert folder.is_dir()
        assert folder.is_relative_to(tmp_path / ("fleet" if shared else "here"))
        if fleet is not None:
            assert History.open(fleet).parts() == []
    assert not folder.exists()


def test_a_look_that_took_longer_than_its_budget_says_what_took_it() -> None:
    spent = {"looking at the hardware": 9.0, "measuring": 41.0, "judging": 12.0, "waiting for another look": 0.0}
    said = command.over_budget(65.0, 30.0, spent)
    assert said == ("the look took 65.0 s, more than its 30 s: measuring 41.0 s, judging 12.0 s, "
                    "looking at the hardware 9.0 s")  # fmt: skip
    assert command.over_budget(29.9, 30.0, spent) == ""


def test_only_what_both_looks_find_fails() -> None:
    def verdict(outcome: str, key: str) -> Verdict:
        return Verdict(outcome, key, "slow", "history", case_key=key)  # type: ignore[arg-type]

    first = [verdict("fail", "a"), verdict("fail", "b"), verdict("fail", "c"), verdict("pass", "d")]
    second = [verdict("fail", "a"), verdict("pass", "b"), verdict("fail", "d")]
    ends = {one.what: one.outcome for one in confirmed(first, second)}
    assert ends == {"a": "fail", "b": "pass", "c": "unknown", "d": "pass"}


def test_what_others_used_in_the_second_look_is_unknown_and_says_so() -> None:
    first = [Verdict("fail", "a", "20 % below", "history", case_key="a", shortfall=0.1)]
    used = Verdict("unknown", "the network cards of n0", "were used", "findings", kind="finding")
    (_, one) = confirmed(first, [used])
    assert (one.outcome, one.reason) == ("unknown", "20 % below; others used it in the second look")
    assert "too short" in confirmed(first, [])[0].reason
    assert not is_usual(confirmed(first, []))
    assert is_usual([Verdict("pass", "a", "", "")])


def waits(share: float, subject: Subject, stolen: float = 0.0) -> list[dict[str, Any]]:
    """What is observed of a rank that waited for this share of the measured time of its shortest case."""
    measured = [one for one in subject.facts.rows if isinstance(one, Measured) and one.is_headline]
    least = min(one.median_ns * (one.operations_total or 0) for one in measured)
    values = {"cores_waited": share * least, "cores_all": 1e9, "cores_stolen": stolen * 1e9}
    return [{"rank": 0, "subject": "cores", "moment": moment, "when_ns": at, "name": name, "unit": "ns",
             "value": 5e9 + at * value}
            for at, moment in enumerate(("before", "after")) for name, value in values.items()]  # fmt: skip


@pytest.mark.parametrize(
    ("waited", "stolen", "outcome"),
    [(0.0, 0.0, "fail"), (0.02, 0.0, "fail"), (0.3, 0.0, "unknown"), (0.0, 0.3, "unknown"), (0.0, 0.02, "fail")],
)
def test_what_a_wait_for_a_core_explains_is_no_failure(
    history: History, tmp_path: Path, waited: float, stolen: float, outcome: str
) -> None:
    """A link at 80 % of its rate: a fifth more time is explained by waits for 15 % of it, not by those for 2 %."""
    plain = run(tmp_path / "plain", 20, {(0, 2): 0.8})
    bad = run(tmp_path / "bad", 20, {(0, 2): 0.8}, observations=waits(waited, plain, stolen))
    known = known_of(history, "n0", infos(bad), ())
    verdicts = excused(health.against_history(bad, known, "n0", ()), bad)
    found = {one.devices: one for one in verdicts if one.outcome != "pass"}
    assert {devices: one.outcome for devices, one in found.items()} == {(0, 2): outcome}
    assert not is_usual(verdicts)
    line, status = line_of(verdicts, [])
    assert status == (Exit.FAIL if outcome == "fail" else Exit.UNKNOWN)
    assert found[0, 2].reason.endswith("waited for a core") == (outcome == "unknown")
    assert line.startswith(f"{outcome.upper()}: GPU 0 - GPU 2 unidirectional")


def test_of_a_node_whose_cores_others_have_nothing_fails(history: History, tmp_path: Path) -> None:
    """Looks in which each case is slow by what its rank waited: none fails, and none is one of those to come."""
    known = known_of(history, "n0", infos(run(tmp_path / "plain", 99)), ())
    for seed in most(range(50), range(0, 50, 7)):  # of the least to the most that is waited
        slow = 0.4 + 0.5 * seed / 50  # of the time that is left
        every = {(a, b): slow for a in range(4) for b in range(4) if a != b}
        plain = run(tmp_path / f"p{seed}", seed + 100, every)
        busy = run(tmp_path / f"b{seed}", seed + 100, every, observations=waits((1 - slow) / 1.6, plain))
        verdicts = excused(health.against_history(busy, known, "n0", ()), busy)
        assert "fail" not in {one.outcome for one in verdicts}


class Clock:
    """A clock that only moves when it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_parts_of_a_look_together_take_the_budget(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each launch takes all of the time that it gets, and judging all that is kept for it."""
    known = known_of(history, "n0", infos(run(tmp_path / "plain", 20)), ())
    clock, limits = Clock(), list[float]()

    class Judged(Look):
        def known(self) -> Known:
            return known

        def repeat_s(self) -> float:
            return 5.0

    def measured(request: Request) -> int:
        assert request.execution.time_limit is not None
        assert request.execution.out is not None
        limits.append(parse_duration(request.execution.time_limit) / 1e9)
        run(request.execution.out, 20 + len(limits), {(0, 2): 0.7})
        clock.now += limits[-1] + command._JUDGING_S
        return 0

    monkeypatch.setattr(new_run, "new_run", measured)
    look = Judged(Health(), Request(), "n0", (), clock.now + 60.0, lambda _: None, clock)
    clock.now += 8.0  # the doctor's checks, and another look's turn
    _, verdicts, _ = look.measured(tmp_path, healthy=True)
    assert {one.devices for one in verdicts if one.outcome == "fail"} == {(0, 2)}  # by its siblings as well
    assert len(limits) == 2
    assert clock.now == pytest.approx(160.0, abs=0.01)


def test_no_more_launches_share_a_time_limit_than_have_time_to_start() -> None:
    for limit_s, each_s, launches in ((5.0, 3.0, 1), (20.0, 3.0, 4), (20.0, 6.0, 2), (20.0, 60.0, 1), (600.0, 3.0, 9)):
        repeats = command._repeats_within(limit_s, each_s)
        assert repeats == launches
        assert repeats == 1 or measuring_s(limit_s) / repeats >= each_s


def test_a_look_that_had_no_turn_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(one_look, "place_of", lambda _: tmp_path / "lock")
    monkeypatch.setattr(command, "_TURN", 0.0)
    with one_look.one_look(0.0, print):
        assert run_command(["health", "--devices", "host:2", "--budget", "5s"]) == Exit.UNKNOWN
    assert capsys.readouterr().out == "UNKNOWN: another look on this machine took half of the budget\n"


def test_a_look_whose_time_is_over_names_no_folder_that_it_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(one_look, "place_of", lambda _: tmp_path / "lock")
    monkeypatch.setattr(command.Look, "_limit_s", lambda *_: 0.05)
    assert run_command(["health", "--devices", "host:2"]) == Exit.UNKNOWN
    said = capfd.readouterr()
    assert said.out == "UNKNOWN: no path was measured within the budget\n"
    assert "cases are not measured (time limit)\n" in said.err
    assert "resume" not in said.err


def test_a_line_is_short_whatever_it_states() -> None:
    long = Verdict("fail", "x" * 200, "y" * 50, "z", shortfall=0.2)
    for verdicts, troubles in (([long, long], []), ([], ["t" * 300]), ([Verdict("unknown", "u" * 200, "", "")], [])):
        line, status = line_of(verdicts, troubles)
        assert len(line) < 100
        assert "\n" not in line
        assert status in (Exit.FAIL, Exit.UNKNOWN)
    good = line_of([Verdict("pass", "a", "", "")], [], "its own 8 runs")
    assert good == ("PASS: 1 check, against its own 8 runs", 0)
    assert line_of([], [], unmeasured="no path was measured") == ("UNKNOWN: no path was measured", Exit.UNKNOWN)


def test_a_budget_that_is_too_short_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["health", "--budget", "1s"]) == 2  # another name of --time-limit
    assert "--time-limit '1s': expected 5s or more" in capsys.readouterr().err
    assert run_command(["health", "--time-limit", "2s"]) == 2
    assert "--time-limit '2s'" in capsys.readouterr().err
