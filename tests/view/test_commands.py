"""The commands that read a run, through the command line: output, files, exit statuses, one line for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.store.run import Run

LOGS = Path(__file__).parent.parent / "store" / "logs"


def test_show(rich_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["show", str(rich_run.path)]) == 0
    output = capsys.readouterr().out
    assert "pingpong" in output
    assert "no heartbeat for 10 s" in output
    assert run_command(["show", str(rich_run.path), "--pattern", "alltoall", "--unit", "Gb/s"]) == 0
    output = capsys.readouterr().out
    assert "algbw, Gb/s" in output
    assert "busbw, Gb/s" in output
    assert "pingpong" not in output
    assert run_command(["show", str(rich_run.path), "--json"]) == 0
    assert {"median_ns", "goodput_bytes_per_s", "transport"} <= set(json.loads(capsys.readouterr().out)[0])


def test_long_texts_of_a_query_are_cut_on_a_terminal_alone(rich_run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """To fold a thousand of them took half a minute of the processor, and sixty lines for each."""
    sql = f"SELECT '{'x' * 3000}' AS word, * FROM range(1000)"
    assert run_command(["query", str(rich_run.path), sql]) == 0
    shown = capsys.readouterr().out
    assert "x..." in shown.replace("\n", "")
    assert shown.count("x") < 1000 * 1000
    assert run_command(["query", str(rich_run.path), sql, "-o", "csv"]) == 0
    assert "x" * 3000 in capsys.readouterr().out


def test_report_plot_query_export(rich_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(rich_run.path)
    report, figure, table = tmp_path / "r.html", tmp_path / "f.svg", tmp_path / "t.csv"
    assert run_command(["report", run, "-o", str(report)]) == 0
    assert report.stat().st_size > 500_000
    assert run_command(["plot", run, "--figure", "matrix", "--pattern", "unidirectional", "-o", str(figure)]) == 0
    assert "GB/s" in figure.read_text()
    assert run_command(["export", run, "--format", "csv", "-o", str(table)]) == 0
    assert table.read_text().startswith("case_key,")
    capsys.readouterr()
    assert run_command(["query", run, "SELECT count(*) AS n FROM cases", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["n"] == rich_run.cases.num_rows
    assert run_command(["query", run, "SELECT 'a,b' AS x", "-o", "csv"]) == 0
    assert capsys.readouterr().out == 'x\n"a,b"\n'


def test_import_then_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert run_command(["import", str(LOGS / "all_reduce.txt"), str(LOGS / "osu_bibw.txt"), "-o", str(run)]) == 0
    said = capsys.readouterr()
    assert "6 cases imported, 3 lines not" in said.out
    assert said.err.count("\n") == 4
    assert said.err.startswith("linkgauge: Which machine this is of is not known; name it with --system.")
    assert run_command(["show", str(run)]) == 0
    assert run_command(["report", str(run), "-o", str(tmp_path / "r.html")]) == 0
    assert "Imported, not measured by Linkgauge" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "{run}/nowhere"], "no such run folder"),
        (["show", "{run}", "--unit", "MiB"], "unknown unit"),
        (["show", "{run}", "--pattern", "pointer_chase"], "has no pattern 'pointer_chase'"),
        (["report", "{run}", "-o", "/proc/none/r.html"], "cannot write"),
        (["plot", "{run}", "--figure", "pie"], "unknown figure 'pie'"),
        (["plot", "{run}", "--figure", "goodput", "-o", "x.bmp"], "ends with one of"),
        (["plot", "{run}", "--figure", "goodput", "--size", "8MB"], "not a size"),
        (["plot", "{run}", "--figure", "goodput", "--on", "a,b"], "are not devices"),
        (["plot", "{run}", "--figure", "shares"], "no limits"),
        (["plot", "{run}", "--figure", "matrix", "--quantity", "hops"], "needs the system"),
        (["query", "{run}", "DROP TABLE cases"], "one SELECT"),
        (["export", "{run}", "--format", "xml"], "unknown format 'xml'"),
        (["import", "{run}/run.json", "-o", "{run}-x"], "not JSON of"),
        (["import", "{logs}/osu_bibw.txt", "-o", "{run}"], "exists already"),
        (["import", "{logs}/osu_bibw.txt", "-o", "{run}-x", "--pattern", "ping"], "--pattern is 'ping': "),
        (["import", "{logs}/osu_bibw.txt", "-o", "{run}-x", "--transport", "tcp"], "--transport is 'tcp'"),
        (["import", "{logs}/osu_bibw.txt", "-o", "{run}-x", "--ranks", "0"], "--ranks is 0: expected"),
    ],
)
def test_a_mistake_is_one_line(
    rich_run: Run, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [word.format(run=rich_run.path, logs=LOGS) for word in arguments]
    assert run_command(filled) in (2, 5)
    error = capsys.readouterr().err
    assert error.startswith("linkgauge: error: ")
    assert said in error
    assert error.count("\n") == 1
