"""Limits reach the charts by name, counted as the shown figure is; a system that cannot be read stops nothing."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import linkgauge
from linkgauge.app.cli import run_command
from linkgauge.errors import RunFolderError
from linkgauge.system.catalog import load
from linkgauge.system.dump import to_data
from linkgauge.view.judged import findings_of
from linkgauge.view.limits import Limits
from linkgauge.view.report import report_html
from linkgauge.view.results import Results
from synthetic import make_case, make_run
from thorough import thorough

CASES = [make_case("copy_engine", p, 1 << 30) for p in ("pingpong", "unidirectional", "bidirectional", "allreduce")]


FURTHER: tuple[Any, ...] = ({"format": "nonsense"}, {}, {"a": {"b": {}}})
MORE = thorough("the reader of systems has tests of its own, of each mistake")


def run_on(path: Path, system: Any) -> linkgauge.store.run.Run:  # type: ignore[name-defined]
    return linkgauge.load(make_run(path, cases=CASES, samples=30, info={"system": system}))


def test_limits_are_those_of_the_system(tmp_path: Path) -> None:
    run = run_on(tmp_path / "run", to_data(load("hgx-h200-4")))
    results, limits = Results(run), Limits(run)
    rows = {row.pattern: row for row in results.rows}
    one_way = limits.limit_of(rows["unidirectional"])
    both = limits.limit_of(rows["bidirectional"])
    assert one_way is not None
    assert both is not None
    # The headline of a bidirectional case is the sum of its ways, so its limits are doubled.
    assert both.goodput_bytes_per_s == pytest.approx(2 * (one_way.goodput_bytes_per_s or 0))
    assert one_way.goodput_bytes_per_s == pytest.approx(450e9)
    for row in results.rows:
        kinds = {line.kind for line in limits.of(row)}
        assert "upper bound" in kinds
        assert all(line.rule and line.basis for line in limits.of(row))
    assert "measured" in {line.kind for row in results.rows for line in limits.of(row)}
    assert "450 (max_flow)" in report_html(run, findings=())


@pytest.mark.parametrize("system", [{"links": 4}, *(pytest.param(one, marks=MORE) for one in FURTHER)])
def test_a_system_that_cannot_be_read_stops_nothing(tmp_path: Path, system: Any) -> None:
    run = run_on(tmp_path / "run", system)
    limits = Limits(run)
    assert all(limits.of(row) == [] for row in Results(run).rows)
    assert "No limits" in report_html(run, findings=())


def test_a_system_that_is_none_is_refused_at_the_door(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"run.json: system is list: expected an object or table"):
        run_on(tmp_path / "run", [1])


def test_a_rule_that_fails_is_said_and_stops_nothing(rich_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(run: object) -> None:
        raise ZeroDivisionError("division by zero\nand more")

    monkeypatch.setattr("linkgauge.findings.judge", failing)
    loaded = linkgauge.load(rich_run.path)
    (said,) = findings_of(loaded)
    assert "ZeroDivisionError division by zero" in said.sentence
    assert "no findings" in report_html(loaded)


def test_show_carries_limits_and_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below a curve its rules with their kinds, beside a pair's goodput its share of the least bound."""
    cases = [make_case("kernel", "unidirectional", 1 << 28, pair) for pair in itertools.permutations(range(4), 2)]
    info = {"system": to_data(load("hgx-h200-4"))}
    path = make_run(tmp_path / "r", cases=cases, samples=8, time_ns=lambda case: case.size / 360.0, info=info)
    assert run_command(["show", str(path), "--all"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "limits at 256 MiB, GB/s: max_flow (upper bound) 450" in shown
    assert "widest_path (achievable schedule) 150" in shown
    assert "% of limit" in shown
    shares = {float(share) / 100 / (float(rate) / 450) for rate, share in re.findall(r"(\d{3}) (\d{2})\b(?! %)", shown)}
    assert len(re.findall(r"\d{3} \d{2}\b(?! %)", shown)) == 12
    assert all(abs(ratio - 1) < 0.01 for ratio in shares)
    bare = make_run(tmp_path / "bare", cases=cases, samples=8)
    assert run_command(["show", str(bare), "--all"]) == 0
    assert "limits at" not in capsys.readouterr().out
