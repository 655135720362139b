"""`linkgauge run --with`: which peers' tests a run's cases match, and the table and file that come of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from linkgauge.errors import UsageError
from linkgauge.model.case import Case
from linkgauge.peers import beside
from linkgauge.peers.catalog import peer_tests
from linkgauge.peers.drive import Line, Outcome, Side, named_peer
from linkgauge.peers.request import Request, ratio_of_pairs


def case(transport: str, pattern: str, size: int, ranks: int = 2, **changes: Any) -> Case:
    return dataclasses.replace(Case(transport, pattern, size, size, tuple(range(ranks))), **changes)


def rows(cases: list[Case], peer: str) -> list[tuple[str, int, tuple[str, str], int]]:
    return [(row.test.name, row.ranks, row.memory, row.size) for row in beside.rows_of_cases(cases, peer)]


def test_cases_become_the_peers_tests_of_the_same_measurement() -> None:
    host = {"source_memory": "pageable", "target_memory": "pageable"}
    cases = [case("mpi", "pingpong", size, **host) for size in (8, 1024)]
    cases += [case("mpi", "allreduce", size, ranks, **host) for size in (8, 1024) for ranks in (2, 4)]
    cases += [case("kernel", "pingpong", 8), case("ccl", "allreduce", 8)]
    kinds = ("pageable", "pageable")
    assert rows(cases, "osu") == [("osu_latency", 2, kinds, 8), ("osu_latency", 2, kinds, 1024)] + [
        ("osu_allreduce", ranks, kinds, size) for size in (8, 1024) for ranks in (2, 4)
    ]
    assert rows(cases, "nccl-tests") == [("all_reduce_perf", 2, ("device", "device"), 8)]
    assert rows([*cases, case("ccl", "allreduce", 8, buffer="allocated")], "nccl-tests") == rows(cases, "nccl-tests")
    assert rows(cases, "nvbandwidth") == []


def test_pairs_by_halves_barriers_and_forms_of_alltoall_are_osus(tmp_path: Path) -> None:
    kinds = ("pageable", "pageable")
    host = dict(zip(("source_memory", "target_memory"), kinds, strict=True))
    halves = case("mpi", "pairs_unidirectional", 8, 4, window=64, devices=(0, 2, 1, 3), **host)
    assert rows([halves], "osu") == [("osu_mbw_mr", 4, kinds, 8)]
    assert rows([dataclasses.replace(halves, devices=(0, 1, 2, 3))], "osu") == []
    assert rows([case("mpi", "barrier", 0, 4, **host)], "osu") == [("osu_barrier", 4, kinds, 0)]
    for variant, name in (("", "osu_alltoall"), ("alltoallv_own", "osu_alltoallv"), ("overlapped", "osu_ialltoall")):
        assert rows([case("mpi", "alltoall", 8, 4, variant=variant, **host)], "osu") == [(name, 4, kinds, 8)]


@pytest.mark.parametrize(
    "changes",
    [{"root": 1}, {"in_place": True}, {"buffer": "registered"}, {"variant": "graph"}, {"algorithm": "ring"},
     {"path": "host"}, {"datatype": "bfloat16"}, {"devices": (1, 0)}],
)  # fmt: skip
def test_a_case_that_the_peer_cannot_be_told_of_is_not_the_same(changes: dict[str, Any]) -> None:
    assert rows([case("ccl", "allreduce", 8)], "nccl-tests")
    assert not rows([case("ccl", "allreduce", 8, **changes)], "nccl-tests")


def test_initiators_choose_nvbandwidths_reads_and_writes() -> None:
    size = 512 << 20
    for initiator, word in (("sender", "write"), ("receiver", "read")):
        found = rows([case("copy_engine", "unidirectional", size, initiator=initiator)], "nvbandwidth")
        assert [name for name, *_ in found] == [f"device_to_device_memcpy_{word}_ce"]


def test_wrong_peers_are_named_before_anything_is_measured(tmp_path: Path) -> None:
    assert named_peer(f"osu={tmp_path}") == ("osu", tmp_path)
    with pytest.raises(UsageError, match="names no folder that exists"):
        named_peer("osu")
    with pytest.raises(UsageError, match="unknown peer 'nope'"):
        named_peer(f"nope={tmp_path}")


def test_one_table_and_file_for_all_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Row:
        status = "ok"

        def __init__(self, one: Case) -> None:
            self.case = one

    class Run:
        def rows(self) -> list[Row]:
            return [Row(case("ccl", "allreduce", 1 << 20)), Row(case("mpi", "pingpong", 8))]

    def alternated(request: Request, tell: Any, after_round: Any) -> Outcome:
        request.out.mkdir(parents=True)
        tell("pair 1")
        ratio = ratio_of_pairs([101.0] * 9, [100.0] * 9)
        return Outcome([Line(row, Side(101.0, 0.0), Side(100.0, 0.0), ratio, "holds") for row in request.rows], {})

    monkeypatch.setattr("linkgauge.store.run.load", lambda path: Run())
    monkeypatch.setattr(beside, "alternate", alternated)
    monkeypatch.setenv("COLUMNS", "140")
    told: list[str] = []
    folders = [f"nccl-tests={tmp_path}", f"osu={tmp_path}", f"nvbandwidth={tmp_path}"]
    beside.measure_alternating(tmp_path, folders, mpi="", devices="cuda", bind="none", tell=told.append)
    table = json.loads((tmp_path / "with" / "ratios.json").read_text())
    assert [(row["peer"], row["test"], row["size"]) for row in table] == [
        ("nccl-tests", "all_reduce_perf", 1 << 20), ("osu", "osu_latency", 8)
    ]  # fmt: skip
    assert table[0]["ratio"] == pytest.approx(1.01)
    assert table[0]["estimator"] == peer_tests("nccl-tests", ("all_reduce_perf",))[0].estimator
    assert "all_reduce_perf" in capsys.readouterr().out
    assert told == ["nccl-tests: pair 1", "osu: pair 1",
                    next(text for text in told if text.startswith("nvbandwidth: no case"))]  # fmt: skip


def test_the_report_has_what_was_found_and_nothing_of_a_damaged_file(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from linkgauge.peers.drive import row_of, write_rows
    from linkgauge.peers.request import rows_of
    from linkgauge.view.by_turns import BESIDE_COLUMNS, beside_rows

    (row,), _ = rows_of("osu", peer_tests("osu", ("osu_latency",)), (2,), (("pageable", "device"),), (64,))
    line = Line(row, Side(1010.0, 0.0), Side(1000.0, 0.0), ratio_of_pairs([1.01] * 9, [1.0] * 9), "holds")
    (tmp_path / "with").mkdir()
    run: Any = SimpleNamespace(path=tmp_path)
    assert beside_rows(run) == []
    write_rows(tmp_path / "with", [{"peer": "osu", **row_of(line)}, {"peer": "osu"}])
    (shown,) = beside_rows(run)
    assert dict(zip(BESIDE_COLUMNS, shown, strict=True)) == {
        "peer": "osu", "test": "osu_latency", "ranks": "2", "memory": "pageable to device", "size": "64 B",
        "ours": "1.01 µs", "the peer's": "1.00 µs", "ratio of": "times", "ratio": "1.010", "95 %": "1.010 to 1.010",
        "pairs": "9", "verdict": "holds",
    }  # fmt: skip
    for damaged in ("", "{}", "[1, [], null, 3]", "[" * 100_000, '[{"peer": 1e999}]'):
        (tmp_path / "with" / "ratios.json").write_text(damaged)
        assert beside_rows(run) == []
