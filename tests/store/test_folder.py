"""The run folder: journals and tables give the same run, at every moment of a compaction, and strangers do no harm."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import linkgauge
from linkgauge.errors import FORMER_PATTERNS, LinkgaugeError, RunFolderError, UsageError
from linkgauge.model.case import LATER_DIMENSIONS, Loads
from linkgauge.model.stop_rule import StopRule
from linkgauge.store import older, schema
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter, read_journal
from linkgauge.store.run import Run
from patience import PATIENCE_S
from synthetic import make_case, make_run, usual_cases

CASES = usual_cases(transports=("ccl", "staging"), patterns=("pingpong", "allreduce"), sizes=(8, 4096))
SKIPPED = [(make_case("kernel", "allreduce", 4096), "no peer access between device 0 and 1")]
OBSERVED = [
    {
        "rank": 0,
        "subject": "GPU-0",
        "moment": "before",
        "when_ns": 5,
        "name": "sm_clock",
        "value": 1980.0,
        "unit": "MHz",
    }
]


def small_run(path: Path, **settings: Any) -> Path:
    return make_run(path, cases=CASES, samples=20, repeats=2, skipped=SKIPPED, observations=OBSERVED, **settings)


def file_of(path: Path, name: str) -> Path:
    """A file of a table: of one of a file a launch that of the first."""
    return path / (f"{name}/launch-00000.parquet" if name in schema.BY_LAUNCH else f"{name}.parquet")


def content(path: Path) -> dict[str, list[dict[str, Any]]]:
    run = linkgauge.load(path)
    order = {
        "launches": ["launch"],
        "cases": list(schema.IDENTITY),
        "samples": [*schema.IDENTITY, "rank", "sample"],
        "observations": list(schema.IDENTITY),
    }
    read: dict[str, list[dict[str, Any]]] = {}
    for name, keys in order.items():
        table: pa.Table = getattr(run, name)
        read[name] = sorted(table.to_pylist(), key=lambda row: [row[key] for key in keys])
    return read


def test_journals_and_tables_give_the_same_run(tmp_path: Path) -> None:
    in_progress, finished = small_run(tmp_path / "a", compact=False), small_run(tmp_path / "b")
    assert content(in_progress) == content(finished)
    assert not list((finished / "journal").iterdir())
    read = content(finished)
    assert len(read["cases"]) == 2 * len(CASES) + 1
    assert len(read["samples"]) == sum(case.ranks for case in CASES) * 25 * 2
    assert len(read["observations"]) == 2 * len(CASES)
    assert [row["status"] for row in read["cases"] if row["transport"] == "kernel"] == ["skipped"]


def test_rows_are_the_cases_that_were_written(tmp_path: Path) -> None:
    rows = list(linkgauge.load(small_run(tmp_path / "run")).rows())
    assert {row.case for row in rows} == {*CASES, SKIPPED[0][0]}
    assert all(row.case.case_key == row.case_key for row in rows)


@pytest.mark.parametrize("compact", [True, False])
def test_a_run_from_before_a_dimension_came_is_read_as_one_that_did_not_use_it(tmp_path: Path, compact: bool) -> None:
    path = small_run(tmp_path / "run", compact=compact)
    before = content(path)["cases"]
    if compact:
        table = pq.read_table(path / "cases.parquet")
        pq.write_table(table.drop_columns(list(LATER_DIMENSIONS)), path / "cases.parquet")
    else:
        _without_later_dimensions(path)
    assert content(path)["cases"] == before
    assert all(row.case.case_key == row.case_key for row in linkgauge.load(path).rows())


def _without_later_dimensions(path: Path) -> None:
    """Write the journals anew as an older Linkgauge would have."""
    for launch, file in RunFolder.open(path).launch_journals().items():
        records = list(RunFolder.open(path).launch_records(launch))
        file.unlink()
        with JournalWriter(file) as writer:
            for record in records:
                dimensions = record.header.get("case") or {}
                for name in set(LATER_DIMENSIONS) & set(dimensions):
                    del dimensions[name]
                writer.append(record.kind, record.header, record.columns)


def test_launches_are_compacted_one_by_one(tmp_path: Path) -> None:
    whole = content(small_run(tmp_path / "whole"))
    source = small_run(tmp_path / "source", compact=False)
    second = (source / "journal" / "launch-00001.lgj").read_bytes()
    (source / "journal" / "launch-00001.lgj").unlink()
    folder = RunFolder.open(source)
    folder.compact()
    (source / "journal" / "launch-00001.lgj").write_bytes(second)
    assert content(source) == whole
    folder.compact(finish=True)
    assert content(source) == whole


def test_only_the_parents_word_is_a_status(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {})
    case = CASES[0]
    told = {
        "case_key": case.case_key,
        "launch": 0,
        "repeat": 0,
        "attempt": 0,
        "case": case.dimensions(),
        "status": "ok",
    }
    with JournalWriter(folder.journal_path(0)) as journal:
        journal.append("case", told | {"verified": True})
    assert [row.status for row in linkgauge.load(folder.path).rows()] == [None]
    assert folder.confirm_unjudged() == 1
    assert folder.confirm_unjudged() == 0
    folder.status_journal().append("status", told | {"status": "hung", "reason": "no heartbeat for 10 s"})
    folder.compact(finish=True)
    (row,) = linkgauge.load(folder.path).rows()
    assert (row.status, row.reason, row.verified) == ("hung", "no heartbeat for 10 s", True)
    assert folder.confirm_unjudged() == 0
    folder.close()


def test_create_refuses_what_is_there(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", {"seed": 1})
    with pytest.raises(UsageError, match="exists already"):
        RunFolder.create(tmp_path / "run", {})
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError):
        RunFolder.create(tmp_path / "file" / "run", {})


def test_update_info_is_seen_by_readers(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {"seed": 1})
    folder.update_info({"end": "now"})
    assert linkgauge.load(folder.path).info["end"] == "now"
    with pytest.raises(ValueError, match="format_version"):
        folder.update_info({"format_version": 1})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "object or table"),
        ("{}", "has no 'format'"),
        ("[" * 100_000, "nested more than"),
        ('{"format":"linkgauge-run","format_version":99}', "format 99"),
        ('{"format":"linkgauge-run","format_version":0}', "format_version is 0"),
        ('{"format":"linkgauge-run","format_version":"1"}', "format_version is '1'"),
        ('{"format":"linkgauge-run","format_version":true}', "format_version is True"),
    ],
)
def test_a_wrong_run_json_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunFolderError, match=said) as caught:
        linkgauge.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_what_is_no_run_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, said in ((tmp_path / "no", "no such"), (tmp_path / "file", "not a folder"), (tmp_path, "no run.json")):
        with pytest.raises(RunFolderError, match=said):
            linkgauge.load(path)


def test_a_migrated_folder_remembers_of_which_format_its_keys_are() -> None:
    info = {"format": schema.FORMAT, "format_version": 1}
    migrated = {"format": schema.FORMAT, "format_version": schema.FORMAT_VERSION, "keys_of_format": 1}
    assert schema.migrate(info, "x") == migrated
    assert info["format_version"] == 1


def read_everything(path: Path) -> None:
    run = Run(path)
    _ = (run.cases, run.samples, run.launches, run.observations, list(run.rows()))


@pytest.mark.parametrize("name", schema.TABLES)
def test_a_damaged_table_is_one_line(tmp_path: Path, name: str) -> None:
    path = small_run(tmp_path / "run")
    table = file_of(path, name)
    whole = table.read_bytes()
    rng = np.random.default_rng(3)
    for length in [0, 1, 4, len(whole) // 2, len(whole) - 1, *rng.integers(0, len(whole), 10)]:
        table.write_bytes(whole[:length])
        with pytest.raises(RunFolderError) as caught:
            read_everything(path)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_changed_bit_of_the_samples_is_no_other_time(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run")
    table, read = file_of(path, "samples"), Run(path).samples
    whole = table.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for at in np.random.default_rng(5).integers(4, footer, 60):  # pages and their heads
        table.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            assert Run(path).samples.equals(read)  # of a page's head some bits say nothing of the data
        except RunFolderError as error:
            assert "samples" in str(error)  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize("name", schema.TABLES)
def test_a_table_of_other_columns_is_refused(tmp_path: Path, name: str) -> None:
    path = small_run(tmp_path / "run")
    file = file_of(path, name)
    table = pq.ParquetFile(file).read()
    pq.write_table(table.drop_columns([table.column_names[-1]]), file)
    with pytest.raises(RunFolderError, match="is missing"):
        read_everything(path)
    wrong = table.set_column(0, table.column_names[0], pa.array([True] * table.num_rows))
    pq.write_table(wrong, file)
    with pytest.raises(RunFolderError, match="expected"):
        read_everything(path)


@pytest.mark.parametrize(("column", "value"), [("ns", -1), ("iterations", 0), ("rank", -5), ("ns", None)])
def test_samples_that_no_clock_gives_are_refused(tmp_path: Path, column: str, value: int | None) -> None:
    path = small_run(tmp_path / "run")
    file = file_of(path, "samples")
    table = pq.ParquetFile(file).read()
    at = table.column_names.index(column)
    values = [value, *table[column].to_pylist()[1:]]
    pq.write_table(table.set_column(at, column, pa.array(values, table.schema.field(column).type)), file)
    with pytest.raises(RunFolderError, match=column):
        read_everything(path)


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    source = small_run(tmp_path / "source")
    secret = tmp_path / "secret"
    secret.mkdir()
    for name in ("run.json", "samples", "samples/launch-00001.parquet", "cases.parquet", "journal"):
        path = tmp_path / f"copy-{Path(name).name}"
        shutil.copytree(source, path)
        target = secret / Path(name).name
        (path / name).rename(target)
        (path / name).symlink_to(target)
        with pytest.raises(RunFolderError, match="symbolic link"):
            read_everything(path)


def damage_header(path: Path, **changes: Any) -> None:
    folder = RunFolder.create(path, {})
    case = CASES[0]
    header = {
        "case_key": case.case_key,
        "launch": 0,
        "repeat": 0,
        "attempt": 0,
        "case": case.dimensions(),
        "status": "ok",
    }
    with JournalWriter(folder.journal_path(0)) as journal:
        journal.append("case", header | changes)
    folder.status_journal().append("status", header | changes)
    folder.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"launch": 1},
        {"launch": "x"},
        {"case_key": 5},
        {"repeat": None},
        {"attempt": 1 << 40},
        {"status": "fine"},
        {"case": {}},
        {"case": CASES[0].dimensions() | {"size": "many"}},
        {"case": CASES[0].dimensions() | {"size": 1 << 80}},
        {"case": CASES[0].dimensions() | {"devices": 3}},
        {"case": CASES[0].dimensions() | {"devices": ["a"]}},
        {"case": 17},
        {"lanes": 4},
        {"bytes_total": "x"},
        {"verified": "yes"},
        {"case_key": "../../../etc/passwd", "case": None},
    ],
)
def test_nonsense_in_a_journal_is_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    damage_header(tmp_path / "run", **changes)
    with pytest.raises(LinkgaugeError) as caught:
        read_everything(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_worker_needs_neither_pyarrow_nor_pandas() -> None:
    import subprocess

    modules = "linkgauge, linkgauge.store.journal, linkgauge.store.folder"
    code = f"import sys, {modules}; print([m for m in ('pyarrow', 'pandas') if m in sys.modules])"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    output = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert json.loads(output.stdout.replace("'", '"')) == []


def test_what_ended_processes_left_half_written_goes_and_all_else_stays(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", cases=[make_case("mpi", "pingpong", 8)], samples=5, compact=False)
    (path / "samples").mkdir()
    stay = ["report.html", "notes.json", "journal/launch-00003.lgj.old", "samples/launch-00009.txt", ".hidden"]
    go = [
        ".run.json.a1_b", ".plan.json.xyz", ".cases.parquet.new", ".launches.parquet.new",
        "samples/.launch-00003.parquet.new", "journal/launch-00000.json", "journal/launch-00000.beats",
        "journal/choices-00001.lgj", "journal/choices-00001.json",
    ]  # fmt: skip
    for name in (*stay, *go):
        (path / name).write_text("x")
    folders = ["journal/launch-00004.links", "journal/launch-00006.lgj"]  # of ranks that load an MPI library by a link
    for name in (*folders, "journal/others"):
        (path / name / "lib").mkdir(parents=True)
        (path / name / "lib" / "libmpi.so.12").symlink_to(path / "notes.json")
    go += [f"{name}{below}" for name in folders for below in ("", "/lib", "/lib/libmpi.so.12")]
    before = {file.relative_to(path) for file in path.rglob("*")}
    RunFolder.open(path).clear_unfinished()
    assert before - {file.relative_to(path) for file in path.rglob("*")} == {Path(name) for name in go}


def test_what_format_2_called_otherwise_is_read_by_the_present_names(tmp_path: Path) -> None:
    """A run with the former names of columns, patterns, loads and moments, in tables and in a journal."""
    loaded = make_case("copy_engine", "host_device_bidirectional", 4096, (0, 1))
    loaded = dataclasses.replace(
        loaded, background=Loads.of_text("kernel host_stream 64KiB on=0"), stop=StopRule(time_ns=7_000_000)
    )
    path = make_run(tmp_path / "run", cases=[loaded, make_case("kernel", "pointer_chase", 4096, (0,))], samples=3)
    before = [(row.case, row.status) for row in linkgauge.load(path).rows()]
    table = pq.read_table(path / "cases.parquet")
    former = {new: old for old, new in older.COLUMNS.items()}
    words = {new: old for old, new in FORMER_PATTERNS.items()}
    for name in ("pattern", "background"):
        at = table.schema.get_field_index(name)
        texts = [" ".join(words.get(word, word) for word in text.split(" ")) for text in table[name].to_pylist()]
        table = table.set_column(at, name, pa.array(texts, pa.string()))
    assert "host_device_both" in table["pattern"].to_pylist()
    assert "kernel cpu_stream 64KiB on=0" in table["background"].to_pylist()
    metadata = table.schema.metadata
    table = table.rename_columns([former.get(name, name) for name in table.column_names])
    pq.write_table(table.replace_schema_metadata(metadata), path / "cases.parquet")
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, "format_version": 2}))
    after = linkgauge.load(path)
    assert [(row.case, row.status) for row in after.rows()] == before
    assert {row.case_key for row in after.rows()} == {case.case_key for case, _ in before}
    assert set(after.samples["case_key"].to_pylist()) == {case.case_key for case, _ in before}
    assert before[0][0].stop.time_ns == 7_000_000
    assert not RunFolder.open(path).resumable
    assert older.dimensions({"beside": "", "pattern": "floor", "stop_time_ns": 5}) == {
        "background": "", "pattern": "empty_op", "max_time_ns": 5
    }  # fmt: skip


@pytest.mark.parametrize("compact", [True, False])
def test_what_format_3_called_otherwise_is_read_by_the_present_names(tmp_path: Path, compact: bool) -> None:
    """Its tables, or its journals, whose identities name the size of a full curve too, and its plan."""
    path = make_run(tmp_path / "run", cases=[make_case("kernel", "allgather", 4100, (0, 1, 2))], samples=3,
                    compact=compact)  # fmt: skip
    before = [(row.case, row.status) for row in linkgauge.load(path).rows()]
    assert [(case.size, case.size_requested) for case, _ in before] == [(4092, 4100)]
    if compact:
        table = pq.read_table(path / "cases.parquet")
        former = {new: old for old, new in older.COLUMNS.items()}
        table = table.rename_columns([former.get(name, name) for name in table.column_names])
        pq.write_table(table, path / "cases.parquet")
    for file in () if compact else (path / "journal").iterdir():
        records = list(read_journal(file, damaged=[]))
        file.unlink()
        with JournalWriter(file) as writer:
            for record in records:
                if dimensions := record.header.get("case"):
                    record.header["size_asked"] = dimensions["size_asked"] = dimensions.pop("size_requested")
                writer.append(record.kind, record.header, record.columns)
    info = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**info, "format_version": 3}))
    after = linkgauge.load(path)
    assert [(row.case, row.status) for row in after.rows()] == before
    assert set(after.samples["case_key"].to_pylist()) == {case.case_key for case, _ in before}
    with pytest.raises(UsageError, match="an older Linkgauge made this run: read it"):
        RunFolder.open(path).check_resumable()


def test_a_folder_without_its_cases_is_no_run_that_measured_nothing(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run")
    (path / "cases.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"cases\.parquet is missing"):
        read_everything(path)


def test_what_run_json_called_otherwise_is_read_by_the_present_names(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", samples=3)
    info = json.loads((path / "run.json").read_text())
    requested = info.pop("requested")
    for name, stored in (("asked", {"asked": requested}), ("requested", {"requested": requested})):
        (path / "run.json").write_text(json.dumps({**info, **stored}))
        assert linkgauge.load(path).info["requested"] == requested, name
    (path / "run.json").write_text(json.dumps({**info, "asked": {"every_s": "often"}}))
    with pytest.raises(RunFolderError, match="every_s"):
        linkgauge.load(path)


def test_a_case_with_a_word_that_is_no_setting_is_refused_as_the_folder_is_read(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", samples=3)
    table = pq.read_table(path / "cases.parquet")
    at = table.column_names.index("settings")
    wrong = pa.array(["UCX_TLS"] * table.num_rows)
    pq.write_table(table.set_column(at, table.schema.field(at), wrong), path / "cases.parquet")
    with pytest.raises(RunFolderError, match=r"run: 'UCX_TLS' is no setting of a library"):
        list(linkgauge.load(path).rows())
