"""The tidy table: one row a case, units in the columns' names, the same figures as everywhere."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.store.run import Run
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results
from linkgauge.view.tidy import TidyRow, tidy


def test_every_case_has_one_row_with_its_figures(rich: Results) -> None:
    rows = tidy(rich, Limits(rich.run)).to_pylist()
    measured = {row.case_key: row for row in rich.rows}
    assert sorted(row["case_key"] for row in rows) == sorted([*measured, *(row.case_key for row in rich.others)])
    for row in rows:
        known = measured.get(row["case_key"])
        if known is None:
            assert row["status"] != "ok"
            assert row["latency_us"] is row["goodput_gb_per_s"] is None
            continue
        assert row["latency_us"] == pytest.approx(known.latency_ns / 1e3)
        assert row["latency_low_us"] <= row["latency_us"] <= row["latency_high_us"]
        assert row["goodput_gb_per_s"] == pytest.approx(known.goodput_bytes_per_s / 1e9)
        if row["pattern"] in ("allreduce", "alltoall"):
            assert row["busbw_gb_per_s"] == pytest.approx(known.busbw_bytes_per_s / 1e9)
            assert row["algbw_gb_per_s"] == pytest.approx(known.algbw_bytes_per_s / 1e9)
        else:
            assert row["busbw_gb_per_s"] is row["algbw_gb_per_s"] is None


def test_a_limit_and_its_share_are_on_the_rate_that_is_shown(known_machine: Results) -> None:
    rows = tidy(known_machine, Limits(known_machine.run)).to_pylist()
    shared = [row for row in rows if row["percent_of_limit"] is not None]
    assert {"allreduce", "unidirectional"} <= {row["pattern"] for row in shared}
    for row in shared:
        rate = row["goodput_gb_per_s"] if row["busbw_gb_per_s"] is None else row["busbw_gb_per_s"]
        assert row["percent_of_limit"] == pytest.approx(100 * rate / row["limit_gb_per_s"])


def test_numbers_say_their_unit_in_their_name() -> None:
    fields = dataclasses.fields(TidyRow)
    assert 14 <= len(fields) <= 16
    endings = ("_us", "_gb_per_s", "_bytes")
    for field in fields:
        word = str(field.type).startswith("str")
        assert word or field.name.endswith(endings) or field.name in ("samples", "percent_of_limit")


def test_csv_and_parquet_hold_the_same_rows(rich_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet as pq

    path = str(rich_run.path)
    assert run_command(["export", path, "--tidy"]) == 0
    text = capsys.readouterr().out
    assert run_command(["export", path, "--tidy", "-o", str(tmp_path / "t.parquet")]) == 0
    table = pq.read_table(tmp_path / "t.parquet")
    assert tuple(table.column_names) == tuple(field.name for field in dataclasses.fields(TidyRow))
    plain = list(csv.DictReader(io.StringIO(text)))
    assert [row["case_key"] for row in plain] == table["case_key"].to_pylist()
    assert [float(row["latency_us"] or "nan") for row in plain] == pytest.approx(
        [float("nan") if value is None else value for value in table["latency_us"].to_pylist()], nan_ok=True
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--format", "parquet"], "-o results.parquet"), (["--tidy", "--format", "osu"], "csv or parquet")],
)
def test_a_form_that_cannot_be_is_named(
    rich_run: Run, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["export", str(rich_run.path), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_an_anonymous_parquet_names_nobody(rich_run: Run, tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    assert run_command(["export", str(rich_run.path), "--anonymous", "-o", str(out)]) == 0
    assert b"GPU-synthetic" not in out.read_bytes()
