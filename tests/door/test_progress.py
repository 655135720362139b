"""Long work shows itself: what a command says of its stages, by a fake clock, on a terminal and elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from linkgauge.app import cli, verbosity
from linkgauge.app.command_line import command
from linkgauge.app.progress import SAID_EVERY_S, Stages
from linkgauge.model.case import Case
from linkgauge.run.parent.reporter import Reporter, RunState


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stages_of(stream: io.StringIO) -> tuple[Stages, Clock]:
    clock = Clock()
    return Stages("crosscheck", stream, clock, watched=False), clock


def pass_time(stages: Stages, clock: Clock, seconds: float) -> None:
    for _ in range(round(seconds * 4)):
        clock.now += 0.25
        stages.look()


def test_a_line_at_least_every_ten_seconds_and_no_more() -> None:
    stream = io.StringIO()
    stages, clock = stages_of(stream)
    with stages:
        stages.stage("computing limits", 40, "cases")
        pass_time(stages, clock, 9.5)
        assert stream.getvalue() == ""
        pass_time(stages, clock, 0.5)
        assert stream.getvalue() == "linkgauge: computing limits: 0 of 40 cases, 10 s\n"
        for _ in range(10):
            stages.advance()
        pass_time(stages, clock, 90)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1 + 90 / SAID_EVERY_S
    # Ten of forty in 100 s: thirty are left.
    assert lines[-1] == "linkgauge: computing limits: 10 of 40 cases, about 5 m 00 s left"


def test_what_is_said_otherwise_counts_too() -> None:
    stream = io.StringIO()
    stages, clock = stages_of(stream)
    with stages:
        stages.note("9 to 31 rounds of 12 rows, about 3 m 36 s for 9")
        stages.stage("searching", at_most_s=600.0)
        pass_time(stages, clock, 8)
        stages.note("round 1: Linkgauge 4.0 s, osu 3.9 s; 0 of 12 rows settled")
        pass_time(stages, clock, 9)
    assert stream.getvalue().splitlines() == [
        "linkgauge: 9 to 31 rounds of 12 rows, about 3 m 36 s for 9",
        "linkgauge: round 1: Linkgauge 4.0 s, osu 3.9 s; 0 of 12 rows settled",
    ]
    assert stages.words() == "searching: 17 s of at most 600 s"


def test_what_counts_itself_is_estimated_from_where_it_was_resumed() -> None:
    stages, clock = stages_of(io.StringIO())
    with stages:
        stages.told("round 11, Linkgauge", 10, 30)
        clock.now += 20
        stages.told("round 11, osu", 10, 30)
        assert stages.words() == "round 11, osu: 10 of 30, 20 s"
        clock.now += 20
        stages.told("round 12, Linkgauge", 11, 30)
        assert stages.words() == "round 12, Linkgauge: 11 of 30, about 12 m 40 s left"


def test_a_terminal_has_a_bar_and_notes_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    stages, clock = stages_of(stream)
    with stages:
        stages.stage("simulating 64 GPUs", 4)
        stages.advance()
        pass_time(stages, clock, 0.5)
        stages.note("kept from before")
    shown = stream.getvalue()
    assert "simulating 64 GPUs: 1 of 4" in shown
    assert "linkgauge: kept from before" in shown
    assert "\x1b[" in shown  # it is drawn over, and taken away


def test_a_command_that_only_waits_shows_itself_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread looks by itself; the line's time is the clock's, not the test's."""
    monkeypatch.setattr("linkgauge.app.progress._LOOKED_EVERY_S", 0.001)
    stream, clock = io.StringIO(), Clock()
    with Stages("doctor", stream, clock) as stages:
        stages.stage("checking 4 nodes at once", at_most_s=180.0)
        clock.now += SAID_EVERY_S
        until = time.monotonic() + 60
        while not stream.getvalue() and time.monotonic() < until:
            time.sleep(0.001)
    assert stream.getvalue() == "linkgauge: checking 4 nodes at once: 10 s of at most 180 s\n"


def told_with(*words: str, body: Callable[[], None]) -> None:
    @command("probe")
    @verbosity.verbosity_options("Print each stage.")
    def probe() -> None:
        body()

    assert cli.run_command(words, root=probe) == 0


def test_quiet_says_nothing_but_problems_and_verbose_says_every_stage() -> None:
    case = Case("mpi", "pingpong", 8, 8, (0, 1))
    said: dict[str, str] = {}

    def body() -> None:
        stream = io.StringIO()
        from linkgauge.app.progress import reporter_for

        stages, clock = stages_of(stream)
        with stages:
            stages.stage("searching", 3)
            pass_time(stages, clock, 60)
        reporter: Reporter = reporter_for(stream)
        reporter.start(RunState(2))
        reporter.note("cores are shared")
        reporter.case(case, "ok", "", 1e9)
        reporter.case(case, "failed", "no memory", None)
        said[str(verbosity.verbosity())] = stream.getvalue()

    told_with("-q", body=body)
    told_with("-v", body=body)
    assert said["-1"] == "linkgauge: mpi pingpong 8 B on device 0 - device 1: failed: no memory\n"
    verbose = said["1"].splitlines()
    assert verbose[0] == "linkgauge: searching"
    assert "linkgauge: 1/2 mpi pingpong 8 B on device 0 - device 1: ok, 1 GB/s" in verbose
    assert "linkgauge: cores are shared" in verbose


def test_quiet_and_verbose_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["run", "-q", "-v", "--dry-run"]) == 2
    assert "--quiet and --verbose exclude each other" in capsys.readouterr().err


def test_a_quiet_run_prints_its_verdict_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "run",
        "-q",
        "--devices",
        "host:2",
        "--threads",
        "--transport",
        "staging",
        "--pattern",
        "pingpong",
        "--size",
        "8",
    ]
    assert cli.run_command([*words, "--stop-rule", "count", "--stop-samples", "5", "--no-report", "--out",
                            str(tmp_path / "run")]) == 0  # fmt: skip
    shown = capsys.readouterr()
    assert shown.err == ""
    (line,) = shown.out.splitlines()
    assert line.endswith(".")
    assert isinstance(click.unstyle(line), str)
