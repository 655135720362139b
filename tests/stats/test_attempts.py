"""Of several attempts at a measurement the last one counts, whichever launch it was made in: for every reader alike."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from linkgauge.exchange.export import export
from linkgauge.findings.read import facts_of
from linkgauge.judge.subjects import load_subjects
from linkgauge.model.result import Result
from linkgauge.stats.attempts import counted, last_attempts
from linkgauge.stats.match import repeats_of
from linkgauge.stats.summary import results_of
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter
from linkgauge.store.run import Run, load
from linkgauge.view.results import Results
from results import result_of
from synthetic import make_run, usual_cases

CASES = usual_cases()[:3]


def retried(path: Path, status: str) -> Run:
    """A run whose first case ended with `status` and was then measured again, in a launch of its own."""
    case = CASES[0]
    make_run(path, cases=CASES, samples=20, statuses={case.case_key: (status, "broken once")}, compact=False)
    make_run(path / "again", cases=[case], samples=20, compact=False)
    folder, again = RunFolder.open(path), RunFolder.open(path / "again")
    with JournalWriter(folder.journal_path(1)) as journal:
        for record in again.launch_records(0):
            header = dict(record.header) | {"launch": 1} | ({"attempt": 1} if "attempt" in record.header else {})
            header |= {"planned_launch": 0} if record.kind == "case" else {}
            journal.append(record.kind, header, record.columns, durable=False)
            if record.kind == "case":
                folder.status_journal().append("status", header, durable=False)
    folder.compact(finish=True)
    folder.close()
    again.close()
    return load(path)


def row(planned: int, attempt: int, status: str | None, repeat: int = 0) -> Result:
    return result_of({"planned_launch": planned, "repeat": repeat, "attempt": attempt, "status": status})


def test_the_last_attempt_counts_whichever_launch_made_it_and_one_without_a_status_never() -> None:
    rows = [row(0, 0, "failed"), row(0, 1, "ok"), row(0, 2, None), row(0, 0, "ok", repeat=1), row(1, 0, "ok")]
    assert last_attempts(rows) == [rows[1], rows[3], rows[4]]
    assert last_attempts(reversed(rows)) == [rows[4], rows[3], rows[1]]


def test_an_attempt_replaces_those_of_its_own_planned_launch_alone() -> None:
    rows = [row(0, 0, "failed"), row(1, 0, "ok"), row(1, 1, "ok")]
    assert last_attempts(rows) == [rows[0], rows[2]]


def test_an_older_run_says_by_its_launches_what_its_statuses_do_not(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", cases=CASES, samples=20, info={"relaunched": {"0": 3}})
    assert set(load(path).cases["planned_launch"].to_pylist()) == {3}
    older = load(path).cases.drop_columns(["planned_launch"])
    pq.write_table(older.replace_schema_metadata(pq.read_schema(path / "cases.parquet").metadata),
                   path / "cases.parquet", write_page_checksum=True)  # fmt: skip
    assert set(load(path).cases["planned_launch"].to_pylist()) == {3}
    assert len(counted(load(path)).measured) == len(CASES)


@pytest.mark.parametrize("status", ["failed", "hung", "ok"])
def test_every_reader_takes_the_retry_and_nothing_of_what_it_replaced(tmp_path: Path, status: str) -> None:
    run = retried(tmp_path / "run", status)
    key = CASES[0].case_key
    facts = facts_of(run)
    assert not facts.failures
    assert [len(m.identities) for m in facts.measures if m.case_key == key] == [1]
    assert next(m for m in facts.measures if m.case_key == key).identities[0][1:] == (1, 0, 1)
    repeats = {name: entry for (name, _), entry in repeats_of(results_of(run)).items()}
    assert not repeats[key].failures
    assert len(repeats[key].median_ns) == 1
    results = Results(run)
    assert not results.others
    assert [one.repeats for one in results.rows if one.case_key == key] == [1]
    assert not load_subjects([run.path])[0].facts.failures


def test_an_export_and_a_comparison_take_the_retry_alone(tmp_path: Path) -> None:
    run = retried(tmp_path / "run", "ok")
    assert sum(line[:1].isdigit() for line in export(run, "osu").splitlines()) == len(CASES)
    repeats = {name: entry for (name, _), entry in repeats_of(results_of(run)).items()}
    assert repeats[CASES[0].case_key].identities == {(1, 0, 1)}
    assert repeats[CASES[1].case_key].identities == {(0, 0, 0)}
    assert sorted(len(group) for group in counted(run).measured) == [1] * len(CASES)
