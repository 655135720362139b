"""What a run folder's door refuses, in one line that says what would be right, and what it makes harmless."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import linkgauge
from linkgauge.errors import RunFolderError
from linkgauge.model.shape import clean, clean_line, parsed
from linkgauge.stats.summary import summarize
from linkgauge.store.shapes import EVIDENCE, INFO
from synthetic import make_case, make_run
from thorough import thorough

CASES = [make_case("ccl", "allreduce", 4096), make_case("mpi", "pingpong", 8), make_case("mpi", "broadcast", 8)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    seen = {
        "rank": 0,
        "subject": "GPU-0",
        "moment": "before",
        "when_ns": 5,
        "name": "power",
        "value": 90.0,
        "unit": "W",
    }
    return make_run(tmp_path / "run", cases=CASES, samples=8, observations=[seen])


def change(file: Path, how: Callable[[pa.Table], pa.Table]) -> None:
    """A Parquet file with its contents changed; whose launches they are stays."""
    table = pq.ParquetFile(file).read()
    pq.write_table(how(table).replace_schema_metadata(table.schema.metadata), file)


def setting(column: str, value: Any, row: int = 0) -> Callable[[pa.Table], pa.Table]:
    def how(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = value
        at = table.schema.get_field_index(column)
        return table.set_column(at, table.schema.field(column), pa.array(values, table.schema.field(column).type))

    return how


def read(folder: Path) -> None:
    run = linkgauge.load(folder)
    summarize(run)
    _ = (run.observations, list(run.rows()))


def twice(table: pa.Table, other: pa.Table | None = None) -> pa.Table:
    return pa.concat_tables([table, other or table]).combine_chunks()


@pytest.mark.parametrize(
    ("file", "how", "said"),
    [
        ("cases.parquet", setting("groups", 0), "groups: wrong value 0"),
        ("cases.parquet", setting("groups", 3), "4 ranks in 3 groups"),
        ("cases.parquet", setting("ranks", -1), "-1 ranks with 4 devices"),
        ("cases.parquet", setting("ranks", 9), "9 ranks with 4 devices"),
        ("cases.parquet", setting("devices", []), "without devices"),
        ("cases.parquet", setting("devices", [0, 1, None, 3]), "without devices"),
        ("cases.parquet", setting("devices", [0, 1, 2, -3]), "at least 0"),
        ("cases.parquet", setting("root", 4, 2), "root 4 of 4 ranks"),
        ("cases.parquet", setting("pattern", "all"), "pattern: 'all' is not stored so"),
        ("cases.parquet", setting("pattern", "pingpong"), "a pingpong of 4 ranks"),
        ("cases.parquet", setting("size", -8), "size: wrong value -8"),
        ("cases.parquet", setting("status", "fine"), "status is 'fine': expected one of ok"),
        ("cases.parquet", setting("distribution", "file:/dev/zero"), "'file:/dev/zero' is not stored so"),
        ("cases.parquet", setting("evidence", "{"), "evidence of a case: not JSON"),
        ("cases.parquet", setting("evidence", "[" * 50_000), "nested more than"),
        ("cases.parquet", setting("evidence", '{"left_out": 3}'), "left_out is 3: expected an object or table"),
        ("cases.parquet", setting("evidence", '{"curve": {"id": "x"}}'), "curve has no 'time_ns'"),
        ("cases.parquet", setting("reason", "x" * (1 << 21)), "longer than 1 MiB"),
        ("cases.parquet", setting("lanes", ["x"] * 9), "9 lanes of 4 ranks"),
        ("cases.parquet", lambda table: table.append_column("size", table["size"]), "'size' is there 2 times"),
        ("cases.parquet", lambda table: table.drop_columns(["size"]), "'size' is missing"),
        ("launches.parquet", setting("ranks", [None]), "a rank that is missing"),
        ("launches.parquet", setting("env", '{"NCCL_ALGO": 3}'), "NCCL_ALGO is 3: expected a text"),
        ("launches.parquet", setting("clock", '{"resolution_ns": -1}'), "a number from 0.001"),
        ("samples/launch-00000.parquet", setting("rank", 1 << 30), "rank of samples is"),
        ("samples/launch-00000.parquet", setting("rank", 4), "rank of samples is 4: expected below 4 in case"),
        ("samples/launch-00000.parquet", setting("rank", 9, -20), "rank of samples is 9: expected below"),
        ("samples/launch-00000.parquet", setting("lane", 1), "lane of samples is 1: expected below 1 in case"),
        ("observations/launch-00000.parquet", setting("rank", 7), "rank of observations is 7: expected below 4"),
        ("samples/launch-00000.parquet", setting("ns", -1), "ns of samples is -1: expected at least 0"),
        ("samples/launch-00000.parquet", setting("phase", "late"), "phase is 'late': expected warmup or sample"),
        ("samples/launch-00000.parquet", lambda table: table.slice(0, 0), ""),
        ("samples/launch-00000.parquet", twice, "of rank 0 is there twice in case"),
        ("samples/launch-00000.parquet", lambda table: twice(table.slice(5, 1), table), "sample 5 of rank 0 is there"),
        ("samples/launch-00000.parquet", lambda table: twice(table, table.slice(9, 1)), "is there twice in case"),
        ("samples/launch-00000.parquet", lambda table: table.take(list(range(table.num_rows))[::-1]), ""),
        ("cases.parquet", twice, "has two rows in cases: expected one"),
        ("launches.parquet", twice, "launch 0 has two rows in launches: expected one"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    folder: Path, file: str, how: Callable[[pa.Table], pa.Table], said: str
) -> None:
    change(folder / file, how)
    if not said:
        read(folder)
        return
    with pytest.raises(RunFolderError) as caught:
        read(folder)
    assert said in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("versions", [1], "versions is list: expected an object or table"),
        ("versions", {"numpy": 2}, "versions.numpy is 2: expected a text"),
        ("devices", {"kind": "tpu"}, "devices.kind is 'tpu': expected one of"),
        ("devices", {"ordinals": [0, -1]}, "devices.ordinals[1] is -1"),
        ("devices", {"infos": [{"uuid": {}}]}, "devices.infos[0].uuid is dict"),
        ("machine", "mine", "machine is 'mine'"),
        ("relaunched", {"x": 1}, "a name in relaunched is 'x'"),
        ("seed", True, "seed is True: expected a whole number"),
        ("mpi_fallbacks", "x", "mpi_fallbacks is 'x'"),
        ("nodes", [{"cores": 1}], "nodes[0] has no 'host'"),
        ("nodes", [{"host": "n0", "network": {"interfaces": [], "rdma": [1]}}], "nodes[0].network.rdma[0] is 1"),
        ("counts", 10**30, "expected a finite number of at most 63 bits"),
    ],
)
def test_run_json_is_typed(folder: Path, key: str, value: Any, said: str) -> None:
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, key: value}))
    with pytest.raises(RunFolderError) as caught:
        linkgauge.load(folder)
    assert said in str(caught.value)
    assert f"{folder}/run.json" in str(caught.value)


def test_texts_come_clean_out_of_the_door(folder: Path) -> None:
    evil = "a\x1b[31m\u202eb\x00"
    plain = "a\ufffd[31m\ufffdb\ufffd"
    change(folder / "cases.parquet", setting("reason", evil + "\n"))
    change(folder / "cases.parquet", setting("lanes", [evil]))
    change(
        folder / "cases.parquet", setting("evidence", json.dumps({"chosen": {"algorithm": evil, "\ud800": "\udfff"}}))
    )
    change(folder / "launches.parquet", setting("env", json.dumps({evil: evil})))
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "origin": {"\ud83d": evil}}))
    run = linkgauge.load(folder)
    row = run.cases.to_pylist()[0]
    assert row["reason"] == plain + " "
    assert row["lanes"] == [plain]
    assert json.loads(row["evidence"]) == {"chosen": {"algorithm": plain, "\ufffd": "\ufffd"}}
    assert json.loads(run.launches["env"][0].as_py()) == {plain: plain}
    assert run.info["origin"] == {"\ufffd": plain}
    json.dumps(run.info, ensure_ascii=False).encode()


def test_clean_keeps_what_people_write() -> None:
    for text in ("", "µs — ä 日本 🙂", "two\nlines\tand a tab", "[bold]"):
        assert clean(text) == text
    assert clean("\r\x7f\x9b\u2028\ud800\uffff") == "\ufffd" * 6
    assert clean_line("a\n\tb\x1b ") == "a b\ufffd"


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000, "NaN", '{"a":' * 60 + "1" + "}" * 60, "\xff", ""])
def test_json_that_cannot_be_is_one_line(text: str) -> None:
    for shape in (EVIDENCE, INFO):
        with pytest.raises(RunFolderError, match="it: "):
            parsed(text, shape, "it", RunFolderError)


@thorough("counts above a bound are in the tests beside")
def test_rows_that_are_packed_into_nothing_are_not_unpacked(folder: Path) -> None:
    """10^8 rows that are alike take a few kB in Parquet, and 6 GB of memory."""
    file = folder / "samples" / "launch-00000.parquet"
    table = pq.ParquetFile(file).read()
    rows = table.take(pa.array([0] * 1_000_000))
    with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(rows)
    assert file.stat().st_size < 2_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RunFolderError, match="20000000 rows in"):
        read(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def _varint(number: int) -> bytes:
    """A number as Thrift's compact protocol writes it, by which Parquet's footers are: zigzag, seven bits a byte."""
    left, found = 2 * number, bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found, left])


def test_row_groups_that_state_more_rows_than_the_file_are_not_read(folder: Path) -> None:
    """Arrow reserved 4 GB for a file of 22 kB; each other number of a footer that is changed does as little harm."""
    file = folder / "observations" / "launch-00000.parquet"
    count, many = 1234, 1 << 33
    change(file, lambda table: table.take(pa.array([0] * count)))
    whole = file.read_bytes()
    body, footer = whole[: -8 - (size := int.from_bytes(whole[-8:-4], "little"))], whole[-8 - size : -8]
    word, before = _varint(count), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stated = []
    for at in range(len(footer)):
        if footer.startswith(word, at):
            changed = footer[:at] + _varint(many) + footer[at + len(word) :]
            file.write_bytes(body + changed + len(changed).to_bytes(4, "little") + b"PAR1")
            metadata = pq.ParquetFile(file).metadata
            stated.append((metadata.num_rows, metadata.row_group(0).num_rows))
            if many in stated[-1]:
                with pytest.raises(RunFolderError, match=f"{many} rows in"):
                    read(folder)
            else:
                read(folder)
    assert {(many, count), (count, many)} < {*stated}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


@thorough("counts above a bound are in the tests beside")
def test_a_million_launches_are_too_many(folder: Path) -> None:
    change(folder / "launches.parquet", lambda table: table.take(pa.array([0] * 1_000_000)))
    with pytest.raises(RunFolderError, match="1000000 rows"):
        read(folder)
