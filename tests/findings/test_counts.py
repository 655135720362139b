"""What `check` counts, what it does not judge, and what commands print and return where there is nothing."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.judge.check import check
from linkgauge.judge.subjects import load_subjects
from linkgauge.model.case import Case
from linkgauge.model.patterns import GROUPS, group_of
from linkgauge.system.catalog import load
from linkgauge.system.dump import to_data
from linkgauge.view.terminal import verdict_words
from synthetic import make_case, make_run

SIZE = 1 << 28
PAIRS = [make_case("kernel", "unidirectional", SIZE, pair) for pair in itertools.permutations(range(4), 2)]
LARGE = make_case("ccl", "allreduce", SIZE, (0, 1, 2, 3))
INFO = {"system": to_data(load("hgx-h200-4"))}


def run_of(path: Path, rate: Callable[[Case], float], **more: object) -> Path:
    """Make a run of all pairs and an allreduce; `rate` in bytes per ns."""
    cases = [*PAIRS, LARGE]
    return make_run(path, cases=cases, samples=30, time_ns=lambda case: case.size / rate(case), info=INFO, **more)


def counts(path: Path) -> tuple[int, dict[str, int]]:
    checked = check(load_subjects([path]), "").checked
    judged = checked.checks()
    return judged.total(), {name: judged[name] for name in ("pass", "fail", "unknown")}


def test_as_many_checks_are_counted_whatever_they_give(tmp_path: Path) -> None:
    well = counts(run_of(tmp_path / "well", lambda _: 145.0))
    slow_collective = counts(run_of(tmp_path / "slow", lambda case: 40.0 if case.pattern == "allreduce" else 145.0))
    slow_pairs = counts(run_of(tmp_path / "pairs", lambda case: 100.0 if 3 in case.devices[:2] else 145.0))
    assert well[0] == slow_collective[0] == slow_pairs[0]
    assert well[1]["fail"] == 0 < slow_collective[1]["fail"]
    assert slow_pairs[1]["fail"] > 0


def test_what_the_stop_rules_time_ended_was_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = PAIRS[0]
    path = run_of(
        tmp_path / "cut", lambda _: 145.0, statuses={cut.case_key: ("timeout", "only 3 samples")},
    )  # fmt: skip
    assert run_command(["check", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("PASS: ")
    unmeasured = "Not measured: 1 case took longer than --max-time allows: kernel unidirectional at 256 MiB"
    assert f"{unmeasured}; a larger --max-time gives more time." in said
    assert run_command(["check", str(path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["not_measured"]) == 1
    # The other screens agree: no failure and no fault.
    assert run_command(["findings", str(path), "--exit-code"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("No problems found")
    assert unmeasured in said
    assert run_command(["show", str(path)]) == 0
    said = capsys.readouterr().out
    assert "1 case not measured: out of time. No problems found." in said
    assert "not measured: a larger --max-time gives a case more time" in said
    assert "1 not measured" in said
    assert not {"fault", "failed"} & {word.strip(":.,") for word in said.lower().split()}
    assert run_command(["ticket", str(path)]) == 0
    assert "Not measured: 1 case took longer than --max-time allows" in capsys.readouterr().out


def test_cases_that_the_runs_time_left_are_counted_on_the_first_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = {PAIRS[0].case_key: ("timeout", "only 3 samples")}
    path = run_of(tmp_path / "left", lambda _: 145.0, statuses=cut)
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(info | {"left": 40}))
    assert run_command(["show", str(path)]) == 0
    assert "41 cases not measured: out of time." in capsys.readouterr().out
    assert run_command(["check", str(path)]) == 0
    assert "Not measured: 40 planned cases" in capsys.readouterr().out


def test_nothing_measured_is_unknown_and_a_failure_stays_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = {case.case_key: ("timeout", "only 3 samples") for case in (*PAIRS, LARGE)}
    assert run_command(["check", str(run_of(tmp_path / "all", lambda _: 145.0, statuses=every))]) == 3
    assert capsys.readouterr().out.startswith("UNKNOWN: 13 cases not measured")
    failed = {PAIRS[0].case_key: ("failed", "an error")}
    path = run_of(tmp_path / "failed", lambda _: 145.0, statuses=failed)
    assert run_command(["check", str(path)]) == 1
    assert capsys.readouterr().out.startswith("FAIL: 1 case failed; 12 of 12 checks passed")
    assert verdict_words(check(load_subjects([path]), "").checked).startswith("FAIL: ")


def test_cases_that_the_time_limit_left_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_of(tmp_path / "left", lambda _: 145.0)
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, "left": 7}))
    assert run_command(["check", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"Not measured: 7 planned cases, since the run's time was over: linkgauge run --resume {path}." in said


@pytest.mark.parametrize("command", ["findings", "check", "advise"])
def test_csv_without_rows_has_its_header(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run(tmp_path / "r", cases=[make_case("kernel", "empty_op", 0, (0,))], samples=30)
    run_command([command, str(path), "-o", "csv"])
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows
    assert len(rows[0]) > 5


def test_export_and_query_without_rows_print_their_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(make_run(tmp_path / "none", cases=[]))
    for words in (["export", path, "--format", "csv"], ["query", path, "SELECT * FROM summary", "-o", "csv"]):
        assert run_command(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("case_key,launch,")


def test_a_prediction_of_nothing_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run(tmp_path / "r", cases=[make_case("kernel", "pingpong", 8, (0, 1))], samples=30)
    for more in ([], ["--json"]):
        assert run_command(["predict", "tensor_parallel", "--from", str(path), "--ranks", "4", *more]) == 3
        said = capsys.readouterr().out
        assert "not predicted" in said or json.loads(said)[0]["predicted_ns"] is None


def test_each_group_of_patterns_is_known_once() -> None:
    cases = (("pingpong", (0, 1)), ("allreduce", (0, 1)), ("host_to_device", (0,)), ("local_copy", (0,)))
    assert tuple(group_of(*case) for case in cases) == GROUPS
    assert group_of("pingpong", (1, 1)) == group_of("gemm", (0,)) == ""


def test_not_judged_and_not_measured_name_the_same_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_of(tmp_path / "r", lambda _: 145.0)
    assert run_command(["findings", str(path)]) == 0
    assert "not measured: host copies, memory" in capsys.readouterr().out


def test_two_plain_runs_say_what_could_have_shown_and_what_tells_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, repeats in (("a", 1), ("b", 1), ("many-a", 5), ("many-b", 5)):
        run_of(tmp_path / name, lambda _: 145.0, repeats=repeats)
    run_command(["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    said = capsys.readouterr().out
    assert "Compared: 13 cases, one launch a run: too few to tell a change from chance. A shift below " in said
    assert said.count("To tell: linkgauge run --repeat 5, for both runs.") == said.count("--repeat 5") == 1
    run_command(["compare", str(tmp_path / "many-a"), str(tmp_path / "many-b")])
    assert "too few" not in capsys.readouterr().out
