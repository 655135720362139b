"""Queries read and do nothing else; exports come back through the importers with the same figures."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import linkgauge
from linkgauge.errors import UsageError
from linkgauge.exchange import query as queries
from linkgauge.exchange.export import export
from linkgauge.exchange.importers import Hints, import_files
from linkgauge.exchange.query import query
from linkgauge.stats.summary import summarize
from linkgauge.store.run import Run
from synthetic import Noise, make_case, make_run, usual_cases

PATTERNS = ("pingpong", "unidirectional", "bidirectional", "alltoall", "allreduce", "allgather", "gather", "broadcast")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    cases = usual_cases(transports=("ccl", "mpi"), patterns=PATTERNS, sizes=(4096, 1 << 20))
    path = tmp_path_factory.mktemp("exported") / "run"
    info = {
        "settings": {"HOSTNAME": "secret-host-7", "NCCL_DEBUG": "WARN"},
        "requested": {"command": ["linkgauge", "run", "--out", "/home/eve/x"]},
    }
    make_run(
        path,
        cases=cases,
        samples=40,
        host="secret-host-7",
        info=info,
        noise=Noise(sigma=0.001),
        skipped=[(make_case("kernel", "alltoall", 8), "secret-host-7 has no peer access")],
    )
    return linkgauge.load(path)


def test_every_table_can_be_queried(run: Run) -> None:
    pytest.importorskip("duckdb")
    assert query(run, "SELECT count(*) AS n FROM samples").to_pylist() == [{"n": run.samples.num_rows}]
    assert query(run, "SELECT count(*) AS n FROM cases JOIN summary USING (case_key, launch)").to_pylist()[0]["n"] > 0
    assert query(run, "SELECT unnest(ranks).host AS host FROM launches").to_pylist()[0] == {"host": "secret-host-7"}
    assert query(run, "SELECT * FROM observations").num_rows == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('/*')",
        "COPY cases TO '{out}'",
        "ATTACH '{out}' AS x",
        "CREATE TABLE t AS SELECT 1",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access=true",
        "SELECT 1; SELECT 2",
        "DELETE FROM cases",
        "SELECT",
        "",
        "SELECT * FROM nowhere",
        "SELECT * FROM read_parquet('{run}/samples/*.parquet')",
        "EXPORT DATABASE '{out}'",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "SELECT * FROM sql",
        "SELECT * FROM run",
        "SELECT getenv('HOME')",
    ],
)
def test_a_query_reaches_nothing_else(run: Run, tmp_path: Path, sql: str) -> None:
    pytest.importorskip("duckdb")
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    filled = sql.format(file=tmp_path / "secret.csv", out=tmp_path / "out", run=run.path)
    with pytest.raises(UsageError) as caught:
        query(run, filled)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv"]


def means(rows: list[dict[str, Any]], transport: str) -> dict[tuple[str, int], float]:
    """The mean time of each out-of-place case of the headline rows."""
    return {
        (row["pattern"], row["size"]): row["mean_ns"]
        for row in rows
        if row["lane"] == -1 and row["status"] == "ok" and row["transport"] == transport and not row["in_place"]
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("DATE '294247-01-01'", "294247-01-01"),
        ("DATE '4000-01-01 (BC)'", "4000-01-01 (BC)"),
        ("'infinity'::TIMESTAMP", "infinity"),
        ("TIMESTAMP '290000-01-01'", "290000-01-01 00:00:00"),
        ("INTERVAL 1000000 YEAR", "1000000 years"),
        ("[DATE '200000-01-01']", "[200000-01-01]"),
        ("MAP {'a': DATE '200000-01-01'}", "{a=200000-01-01}"),
        ("TIME '24:00:00'", "24:00:00"),
    ],
)
def test_times_beyond_pythons_are_text(run: Run, value: str, text: str) -> None:
    (row,) = query(run, f'SELECT 1 AS x, {value} AS x, 2 AS "a""b"').to_pylist()
    assert row == {"x": text, 'a"b': 2}


def test_a_query_that_is_not_utf8_is_named(run: Run) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        query(run, "SELECT '\udc80'")


def test_a_misspelled_column_is_named_with_those_there_are(run: Run) -> None:
    with pytest.raises(UsageError, match=r'"patterns" not found.*"pattern".*tables are cases'):
        query(run, "SELECT patterns FROM cases")


def test_a_query_leaves_no_file_where_it_runs(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queries, "MOST_MEMORY", "32MiB")
    monkeypatch.setattr(queries, "MOST_S", 2.0)
    with pytest.raises(UsageError, match="ask for less"):
        query(run, "SELECT x FROM range(200000000) t(x) ORDER BY hash(x)")
    assert list(tmp_path.iterdir()) == []


def test_times_finer_than_pythons_are_text(run: Run) -> None:
    fine = "TIMESTAMP_NS '2020-01-01 00:00:00.123456789'"
    (row,) = query(
        run, f"SELECT {fine} AS a, [{fine}] AS b, {{'c': {fine}}} AS d, TIMESTAMP '2020-01-01' AS e"
    ).to_pylist()
    text = "2020-01-01 00:00:00.123456789"
    assert row == {"a": text, "b": f"['{text}']", "d": f"{{'c': '{text}'}}", "e": "2020-01-01 00:00:00"}


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM range(30000000)", "more than 1,000 rows"),
        ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t", "more than 1 s"),
        ("SELECT count(*) FROM range(300000000) a, range(30000000) b", "more than (64MiB of memory|1 s)"),
        ("SELECT list(range) FROM range(300000000)", "more than (64MiB of memory|1 s)"),
    ],
)
def test_a_query_without_an_end_has_limits(run: Run, monkeypatch: pytest.MonkeyPatch, sql: str, words: str) -> None:
    monkeypatch.setattr(queries, "MOST_ROWS", 1000)
    monkeypatch.setattr(queries, "MOST_S", 1.0)
    monkeypatch.setattr(queries, "MOST_MEMORY", "64MiB")
    with pytest.raises(UsageError, match=f"^SQL: .*{words}: ask for less.*--no-limit$"):
        query(run, sql)


def test_a_query_may_be_without_limits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_ROWS", 10)
    assert query(run, "SELECT * FROM range(1000)", limited=False).num_rows == 1000


def test_nccl_tests_form_comes_back(run: Run, tmp_path: Path) -> None:
    text = export(run, "nccl-tests")
    parts = [part for part in text.split("# Collective test starting")[1:] if ", NCCL" in part]
    found = {}
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.txt").write_text("# Collective test starting" + part)
        import_files([tmp_path / f"{number}.txt"], tmp_path / f"run{number}", Hints())
        found |= means(summarize(linkgauge.load(tmp_path / f"run{number}")).to_pylist(), "ccl")
    expected = {
        key: value for key, value in means(summarize(run).to_pylist(), "ccl").items() if key[0] not in PATTERNS[:3]
    }
    assert found == pytest.approx(expected, rel=1e-3)
    assert len(found) == 10


@pytest.mark.parametrize(("form", "name"), [("nccl-tests", "allreduce"), ("osu", "broadcast")])
def test_what_differs_in_one_dimension_has_a_table_of_its_own(tmp_path: Path, form: str, name: str) -> None:
    cases = [
        make_case("ccl", name, size, (0, 1), buffer=buffer) for size in (1024, 4096) for buffer in ("", "registered")
    ]
    text = export(linkgauge.load(make_run(tmp_path / "run", cases=cases, samples=20)), form)
    rows = [line for line in text.splitlines() if line.split()[:1] in (["1024"], ["4096"])]
    assert len(rows) == 4
    assert text.count(", buffer registered") == text.count(", buffer default") == 1


def test_osu_form_comes_back(run: Run, tmp_path: Path) -> None:
    parts = ["# OSU" + part for part in export(run, "osu").split("# OSU")[1:] if "Linkgauge, mpi" in part]
    (tmp_path / "osu.txt").write_text("".join(parts))
    result = import_files([tmp_path / "osu.txt"], tmp_path / "run", Hints(ranks=4, window=1))
    assert not result.problems
    found = means(summarize(linkgauge.load(tmp_path / "run")).to_pylist(), "mpi")
    expected = means(summarize(run).to_pylist(), "mpi")
    assert found == pytest.approx(expected, rel=2e-3)
    assert len(found) == 2 * len(PATTERNS)


def test_csv_and_json_hold_the_summary(run: Run) -> None:
    table = summarize(run)
    rows = list(csv.DictReader(io.StringIO(export(run, "csv"))))
    assert len(rows) == table.num_rows
    assert [row["case_key"] for row in rows] == table["case_key"].to_pylist()
    data = json.loads(export(run, "json"))
    assert len(data["summary"]) == table.num_rows
    assert data["info"]["settings"]["NCCL_DEBUG"] == "WARN"
    with pytest.raises(UsageError, match="expected one of csv"):
        export(run, "xlsx")


@pytest.mark.parametrize("form", ["csv", "json", "nccl-tests", "osu"])
def test_anonymous_exports_name_nobody(run: Run, form: str) -> None:
    text = export(run, form, anonymous=True)
    for secret in ("secret-host-7", "GPU-", "1650000000", "0000:1b", "/home/eve", str(run.path)):
        assert secret not in text, secret
    assert "4096" in text
    assert form != "json" or "NCCL_DEBUG" in text


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    make_run(tmp_path / "run", cases=[], skipped=[(make_case("mpi", "pingpong", 8, variant="=cmd|'/c'!A1"), "@SUM(1)")])
    cells = next(csv.DictReader(io.StringIO(export(linkgauge.load(tmp_path / "run"), "csv"))))
    assert cells["variant"].startswith("'=")
    assert cells["reason"].startswith("'@")


def test_a_run_without_such_cases_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "run", cases=[make_case("kernel", "local_copy", 4096)], samples=10)
    with pytest.raises(UsageError, match="form of osu"):
        export(linkgauge.load(tmp_path / "run"), "osu")
