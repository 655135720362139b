"""The history's files: writers at once, a kill, compaction at any moment, retention, versions, an object store."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from linkgauge.errors import UsageError
from linkgauge.store import history_months
from linkgauge.store.history import FORMAT, MARK, History, day_after, rows_of
from linkgauge.store.history_sql import database
from thorough import most, thorough

KIND, DAY = "4x-GPU", "2026-01-02"
LATER = "2026-03-01"  # long enough after January for its files to be joined


def rows(run: str, end_ms: int = 1, count: int = 3, time_ns: float = 10.0) -> pa.Table:
    return rows_of({"run": run, "run_end_ms": end_ms, "node": f"n-{run}", "case_key": f"{case:016x}",
                    "launch_key": "k", "time_ns": time_ns} for case in range(count))  # fmt: skip


def append(history: History, run: str, end_ms: int = 1, day: str = DAY, **more: Any) -> None:
    history.append(rows(run, end_ms, **more), KIND, day, run, end_ms)


def counted(history: History) -> Counter[str]:
    """Rows by run, as SQL and as the reader without SQL see them."""
    with database(history) as found:
        by_sql = Counter(dict(found.execute("SELECT run, count(*) FROM results GROUP BY run").fetchall()))
    plain = Counter(run for part in history.parts() for run in history.read(part)["run"].to_pylist())
    assert by_sql == plain
    return by_sql


@pytest.fixture(params=["folder", "object store"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "folder":
        return History.open(str(tmp_path / "fleet"), make=True)
    # No rename, no folder of this machine: what object stores have in common.
    made = History(pafs.SubTreeFileSystem("", pafs._MockFileSystem()), "bucket/fleet", "mock")
    made.files.create_dir("bucket/fleet/results", recursive=True)
    write = made._write

    def with_folder(path: str, content: bytes) -> None:
        made.files.create_dir(f"{made.root}/{path}".rsplit("/", 1)[0], recursive=True)
        write(path, content)

    made._write = with_folder  # type: ignore[method-assign]
    return made


def test_a_run_is_there_once_whether_added_twice_or_compacted(history: History) -> None:
    for run in ("a", "b", "a"):
        append(history, run)
    assert counted(history) == {"a": 3, "b": 3}
    assert history.compact() == (2, 1)
    append(history, "a")  # by a script that does not know
    assert counted(history) == {"a": 3, "b": 3}
    assert history.compact() == (2, 1)
    assert len(history.parts()) == 1
    assert counted(history) == {"a": 3, "b": 3}


def test_a_run_that_was_resumed_replaces_what_it_was(history: History) -> None:
    append(history, "a", end_ms=1)
    append(history, "b")
    history.compact()
    append(history, "a", end_ms=2, count=5)
    assert counted(history) == {"a": 5, "b": 3}
    history.compact()
    assert len(history.parts()) == 1
    assert counted(history) == {"a": 5, "b": 3}


def test_a_compaction_that_is_killed_anywhere_loses_and_doubles_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [f"r{at}" for at in range(4)]
    for run in runs:
        append(history, run)
    removed = history._remove
    for last in range(len(runs)):  # killed before the first removal, the second, ...
        left = iter(range(last))

        def remove(part: Any, left: Any = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            removed(part)

        monkeypatch.setattr(history, "_remove", remove)
        with pytest.raises(KeyboardInterrupt):
            history.compact()
        assert counted(history) == dict.fromkeys(runs, 3)
    monkeypatch.setattr(history, "_remove", removed)
    history.compact()
    assert len(history.parts()) == 1
    assert counted(history) == dict.fromkeys(runs, 3)


def test_two_compactions_that_saw_different_files_double_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_remove", lambda part: None)
    for run in ("a", "b"):
        append(history, run)
    history.compact()
    for part in next(iter(history._places((), "", "9"))):
        if part.run == "b":
            history.files.delete_file(part.path)
    append(history, "c")
    seen = history._once
    monkeypatch.setattr(history, "_once", lambda parts: seen([one for one in parts if one.run]))
    history.compact()  # of a and c: it shares a with the other, and neither holds all
    monkeypatch.undo()
    for part in next(iter(history._places((), "", "9"))):
        if part.run:
            history.files.delete_file(part.path)
    assert counted(history) == {"a": 3, "b": 3, "c": 3}
    history.compact()
    assert len(history.parts()) == 1
    assert counted(history) == {"a": 3, "b": 3, "c": 3}


def add_months(history: History) -> dict[str, str]:
    """Add two runs a day of three nodes in two months and a later day; return each run's day."""
    days = [f"2026-{month:02}-{day:02}" for month in (1, 2) for day in (1, 2, 28)] + [LATER]
    made = {f"{day[5:]}-{number}": day for day in days for number in (1, 2)}
    for run, day in made.items():
        for node in "ab":
            same = {"run": run, "run_end_ms": 1, "node": node + run[-1], "launch_key": "k"}
            two = ({"case_key": "0", "rail": "rail 0", "time_ns": 1.0}, {"case_key": "1", "time_ns": 2.0})
            history.append(rows_of(same | one for one in two), f"{KIND}-{node}", day, run, 1)
    return made


def content(history: History, *span: str) -> list[tuple[object, ...]]:
    with database(history, (), *span) as found:
        columns = "run, run_end_ms, node, kind, day, case_key, rail, time_ns, bios"
        return sorted(found.execute(f"SELECT {columns} FROM results").fetchall(), key=repr)


@pytest.mark.parametrize("rows_a_range", most([1, 5, 1000], [5]))
def test_past_months_become_a_file_each_by_node_and_say_what_their_days_said(
    history: History, monkeypatch: pytest.MonkeyPatch, rows_a_range: int
) -> None:
    monkeypatch.setattr(history_months, "ROWS_A_RANGE", rows_a_range)
    days = add_months(history)
    before = content(history)
    history.compact()
    months = [part for part in history.parts() if part.month]
    # February ended one day before the last day, so that its days are still needed as such.
    assert [(part.kind, part.day) for part in months] == [(f"{KIND}-a", "2026-01"), (f"{KIND}-b", "2026-01")]
    assert len(history.parts()) == 2 + 2 * 4
    assert content(history) == before
    assert counted(history) == dict.fromkeys(days, 4)
    for part in months:
        file = pq.ParquetFile(history.files.open_input_file(part.path))
        nodes = file.read(columns=["node"])["node"].to_pylist()
        groups = [set(file.read_row_group(at, ["node"])["node"].to_pylist()) for at in range(file.num_row_groups)]
        assert nodes == sorted(nodes)
        assert sum(map(len, groups)) == len(set(nodes))  # none is in two
    assert history.compact() == (0, 0)
    for span in (("2026-01-02", "9"), ("", "2026-01-27"), ("2026-01-02", "2026-01-02"), ("2026-02-01", "9")):
        assert content(history, *span) == [row for row in before if span[0] <= str(row[4]) <= span[1]]
        plain = Counter(run for part in history.parts((), *span) for run in history.read(part)["run"].to_pylist())
        assert plain == {run: 4 for run, day in days.items() if span[0] <= day <= span[1]}


def test_runs_that_come_after_their_month_was_joined_count_once(history: History) -> None:
    append(history, "a")
    append(history, "b", day="2026-01-30")
    append(history, "later", day=LATER)
    history.compact()
    assert [part.month for part in history.parts()] == [True, False]
    append(history, "a")  # by a script that does not know
    append(history, "b", end_ms=2, count=5, day="2026-01-30")  # resumed
    append(history, "c", day="2026-01-03")
    expected = {"a": 3, "b": 5, "c": 3, "later": 3}
    assert counted(history) == expected
    history.compact()
    assert [part.month for part in history.parts()] == [True, False]
    assert counted(history) == expected


def test_a_months_compaction_that_is_killed_anywhere_loses_and_doubles_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [f"r{at}" for at in range(4)]
    for at, run in enumerate(runs):
        append(history, run, day=f"2026-01-{at + 1:02}")
    append(history, "later", day=LATER)
    removed = history._remove
    for last in range(len(runs)):
        left = iter(range(last))

        def remove(part: Any, left: Any = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            removed(part)

        monkeypatch.setattr(history, "_remove", remove)
        with pytest.raises(KeyboardInterrupt):
            history.compact()
        assert counted(history) == dict.fromkeys([*runs, "later"], 3)
    monkeypatch.setattr(history, "_remove", removed)
    history.compact()
    assert len(history.parts()) == 2
    assert counted(history) == dict.fromkeys([*runs, "later"], 3)


def test_programs_that_know_no_months_read_a_history_until_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "fleet")
    history = History.open(name, make=True)
    for day in (DAY, "2026-01-03"):
        append(history, f"r{day}", day=day)
    monkeypatch.setattr("linkgauge.store.history.FORMAT_VERSION", 1)
    assert counted(History.open(name)).total() == 6
    monkeypatch.undo()
    append(history, "later", day=LATER)
    history.compact()
    assert History.open(name).version == 2
    monkeypatch.setattr("linkgauge.store.history.FORMAT_VERSION", 1)
    with pytest.raises(UsageError, match="use a newer Linkgauge"):
        History.open(name)


def test_a_month_goes_with_its_last_day(history: History) -> None:
    add_months(history)
    history.compact()
    assert history.expire(30, datetime.date(2026, 3, 2)) == 0
    assert history.expire(29, datetime.date(2026, 3, 2)) == 2
    assert {row[4] for row in content(history)} == {"2026-02-01", "2026-02-02", "2026-02-28", LATER}


def test_old_days_go_and_others_stay(history: History) -> None:
    today = datetime.date(2026, 3, 1)
    for age in (0, 29, 30, 31, 400):
        append(history, f"r{age}", day=(today - datetime.timedelta(age)).isoformat())
    assert history.expire(30, today) == 2
    assert sorted(counted(history)) == ["r0", "r29", "r30"]


_WRITER = """
import sys
sys.path.insert(0, {tests!r})
from store.test_history import append
from linkgauge.store.history import History
history = History.open({name!r}, make=True)
for at in range(10_000):
    append(history, f"{who}-{{at}}", day=({day!r}, {later!r}, "2026-01-03")[at % 3])
    print(at, flush=True)
    if {compacts} and at % 5 == 4:
        history.compact()
"""


@thorough("a history's lock, and compactions that are killed, have tests of their own")
def test_two_writers_a_compaction_and_a_kill_lose_nothing(tmp_path: Path) -> None:
    name = str(tmp_path / "fleet")
    writers = []
    for who, compacts in (("one", False), ("other", False), ("third", True)):
        program = _WRITER.format(tests=str(Path(__file__).parent.parent), name=name, who=who, compacts=compacts,
                                 day=DAY, later=LATER)  # fmt: skip
        writers.append(subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True))
    done: Counter[str] = Counter()
    for who, writer in zip(("one", "other", "third"), writers, strict=True):
        assert writer.stdout is not None
        for _ in range(12):
            done[f"{who}-{int(writer.stdout.readline())}"] = 3
    for who, writer in zip(("one", "other", "third"), writers, strict=True):
        os.kill(writer.pid, signal.SIGKILL)
        assert writer.stdout is not None
        done.update({f"{who}-{int(line)}": 3 for line in writer.stdout if line.endswith("\n")})
        writer.stdout.close()
        writer.wait()
    history = History.open(name)
    found = counted(history)
    assert {run: found[run] for run in done} == done
    # At most the one that each was at when it was killed is there besides, and whole.
    assert len(found) <= len(done) + len(writers)
    assert set(found.values()) == {3}
    history.compact()
    assert counted(history) == found
    assert [part.month for part in history.parts()] == [True, False]


def test_what_a_kill_leaves_half_written_stops_no_reader_and_goes(tmp_path: Path) -> None:
    history = History.open(str(tmp_path / "fleet"), make=True)
    append(history, "a")
    append(history, "b")
    folder = Path(history.parts()[0].path).parent
    half = folder / ".c.1.parquet.0badcafe"
    half.write_bytes(b"PAR1 and no more")
    assert counted(history) == {"a": 3, "b": 3}
    history.compact()
    assert half.exists()  # it may be of a writer that is at it
    os.utime(half, (0, 0))
    history.compact()
    assert not half.exists()
    assert counted(history) == {"a": 3, "b": 3}


def test_a_newer_version_is_refused_and_columns_that_a_file_lacks_are_null(tmp_path: Path) -> None:
    name = str(tmp_path / "fleet")
    history = History.open(name, make=True)
    append(history, "a")
    table = rows("b").drop_columns(["bios", "rail"])
    pq.write_table(table, Path(history.parts()[0].path).with_name("b.1.parquet"))
    history.version = 0  # that of its oldest files
    with database(history) as found:
        assert found.execute("SELECT count(*), count(bios) FROM results").fetchone() == (6, 0)
    history.compact()
    assert counted(history) == {"a": 3, "b": 3}
    (tmp_path / "fleet" / MARK).write_text(json.dumps({"format": FORMAT, "format_version": 99}))
    with pytest.raises(UsageError, match="use a newer Linkgauge"):
        History.open(name)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "linkgauge-run", "format_version": 1}'])
def test_what_is_no_history_is_refused_in_a_line(tmp_path: Path, content: str) -> None:
    with pytest.raises(UsageError, match="makes one"):
        History.open(str(tmp_path))
    (tmp_path / MARK).write_text(content)
    with pytest.raises(UsageError, match="not of a history"):
        History.open(str(tmp_path))


def test_sql_reaches_no_other_file(tmp_path: Path) -> None:
    from linkgauge.exchange.query import query

    history = History.open(str(tmp_path / "fleet"), make=True)
    append(history, "a")
    assert query(history, "SELECT count(*) AS n FROM results").to_pylist() == [{"n": 3}]
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    for sql in (f"SELECT * FROM read_csv('{other}')", f"SELECT * FROM '{other}'", f"COPY results TO '{other}'"):
        with pytest.raises(UsageError):
            query(history, sql)


@pytest.mark.parametrize("days", [1_000_000, (1 << 63) - 1])
def test_more_days_than_the_calendar_has_remove_nothing(tmp_path: Path, days: int) -> None:
    history = History.open(str(tmp_path / "fleet"), make=True)
    append(history, "r")
    assert history.expire(days, datetime.date(2026, 3, 1)) == 0
    assert day_after(datetime.date(2026, 3, 1), -days) == datetime.date.min
    assert day_after(datetime.date(9999, 3, 1), days) == datetime.date.max
    assert day_after(datetime.date(2026, 3, 1), -3) == datetime.date(2026, 2, 26)


def test_folders_of_days_that_are_none_are_no_days(tmp_path: Path) -> None:
    history = History.open(str(tmp_path / "fleet"), make=True)
    append(history, "r")
    for folder in ("day=2026-02-30", "day=0000-01-01", "month=2026-13", "month=0000-01"):
        path = tmp_path / "fleet/results/kind=k" / folder / "r.1.parquet"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
    history.compact()
    assert sorted(counted(history)) == ["r"]
