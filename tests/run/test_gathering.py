"""What ranks have comes to rank 0 in bounded pieces: what it writes is what they had, for any ranks on any nodes."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge import _core
from linkgauge.model.case import Case
from linkgauge.plan.curves import Point
from linkgauge.run.rank import gathering
from linkgauge.run.rank.case_record import Rest, record_case, send_outcome, send_rest
from linkgauge.run.rank.gathering import Frames, Ranks, children_of, framed, gathered, parent_of
from linkgauge.run.wire.outcome import COLUMNS, RankOutcome, case_header, evidence_of, joined_samples, point_of
from linkgauge.store.journal import JournalWriter, Record, read_journal
from linkgauge.store.run import load
from patience import PATIENCE_S
from thorough import most, thorough

CASE = Case("mpi", "allreduce", 4096, 4096, (0, 1))


class Wire:
    """Messages between nodes that are threads; it counts what is on its way, and how long the longest is."""

    def __init__(self, nodes: int) -> None:
        self.lock = threading.Lock()
        self.flying = self.most_flying = self.longest = 0
        self.messages = [0] * nodes
        self.ways: dict[tuple[int, int], queue.Queue[tuple[bytes, bool]]] = {}
        for node in range(1, nodes):
            self.ways[node, parent_of(node)] = queue.Queue(1)
            self.ways[parent_of(node), node] = queue.Queue(1)


class WireLink:
    def __init__(self, wire: Wire, number: int, count: int) -> None:
        self.wire, self.number, self.count = wire, number, count

    def send(self, to: int, data: Any, last: bool) -> None:
        with self.wire.lock:
            self.wire.messages[to] += 1
            self.wire.flying += len(data)
            self.wire.most_flying = max(self.wire.most_flying, self.wire.flying)
            self.wire.longest = max(self.wire.longest, len(data))
        self.wire.ways[self.number, to].put((bytes(data), last), timeout=PATIENCE_S)

    def receive(self, source: int) -> tuple[bytes, bool]:
        data, last = self.wire.ways[source, self.number].get(timeout=PATIENCE_S)
        with self.wire.lock:
            self.wire.flying -= len(data)
        return data, last


def launch(nodes: list[int], body: Callable[[int, Ranks], Any]) -> tuple[list[Any], Wire]:
    """What `body(rank, ranks)` gives on every rank, each a thread; `nodes`: of each rank, by first appearance."""
    count = max(nodes) + 1
    wire = Wire(count)
    groups = {node: iter(_core.thread_groups(nodes.count(node))) for node in range(count)}
    doors = []
    for node in nodes:
        group = next(groups[node])
        doors.append(Ranks(group, WireLink(wire, node, count) if group.rank == 0 and count > 1 else None))
    results: list[Any] = [None] * len(nodes)

    def one(rank: int) -> None:
        try:
            results[rank] = body(rank, doors[rank])
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(len(nodes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    return results, wire


def by_node(nodes: list[int]) -> list[int]:
    """The ranks in the order in which their bytes come up."""
    return sorted(range(len(nodes)), key=lambda rank: (nodes[rank], rank))


@st.composite
def layouts(draw: st.DrawFn, most: int = 9) -> list[int]:
    """Of each rank its node, numbered by first appearance; in blocks, in turn, or as it comes."""
    said = draw(st.lists(st.integers(0, most), min_size=1, max_size=most))
    numbers: dict[int, int] = {}
    return [numbers.setdefault(one, len(numbers)) for one in said]


def test_every_node_is_behind_one_child_and_in_order() -> None:
    def reached(node: int, count: int) -> list[int]:
        return [node, *(one for child in children_of(node, count) for one in reached(child, count))]

    for count in range(1, 200):
        assert reached(0, count) == list(range(count))
        assert len(children_of(0, count)) == (count - 1).bit_length()
        for node in range(1, count):
            assert node in children_of(parent_of(node), count)
            assert len(children_of(node, count)) <= count.bit_length()


@given(st.lists(st.binary(max_size=50), max_size=12), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_messages_are_found_wherever_a_stream_is_cut(messages: list[bytes], step: int) -> None:
    stream = b"".join(map(framed, messages))
    frames = Frames()
    assert [one for at in range(0, len(stream), step) for one in frames.of(stream[at : at + step])] == messages


@given(layouts(), st.data())
@settings(max_examples=25, deadline=None)
def test_words_go_down_and_bytes_come_up(nodes: list[int], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 700, 16_384, 40_001]), min_size=len(nodes), max_size=len(nodes)))
    mine = [bytes([rank + 1]) * size for rank, size in enumerate(sizes)]
    window = 30_000

    def body(rank: int, ranks: Ranks) -> Any:
        said = [ranks.tell(b"first" if rank == 0 else b"")]
        taken = bytearray()
        ranks.gather(mine[rank], taken.extend if rank == 0 else None)
        messages = gathered(ranks, str(rank).encode(), keep=rank == 0)
        said.append(ranks.tell(b"second" * 5000 if rank == 0 else b""))
        return said, bytes(taken), messages, ranks.on_node(bytes([rank]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "WINDOW_BYTES", window)
        results, wire = launch(nodes, body)
    order = by_node(nodes)
    for rank, (said, taken, messages, beside) in enumerate(results):
        assert said == [b"first", b"second" * 5000]
        assert beside == [bytes([other]) for other in range(len(nodes)) if nodes[other] == nodes[rank]]
        assert taken == (b"".join(mine[other] for other in order) if rank == 0 else b"")
        assert messages == ([str(other).encode() for other in order] if rank == 0 else [])
    assert wire.longest <= window
    # On each way one message waits in a queue, one more is in the sender's hands.
    assert wire.most_flying <= 2 * window * max(nodes) + 1
    # As many as there are bits in the number of nodes, and those that are full.
    assert wire.messages[0] <= 3 * max(nodes).bit_length() + 2 * sum(sizes) // window + 1


def outcome_of(rank: int, place: int, count: int, rows: int, status: str = "ok", lanes: int = 1) -> RankOutcome:
    """A rank's outcome with samples and observations of its own."""
    random = np.random.default_rng(rank)
    samples = {name: random.integers(0, 100, count).astype(dtype) for name, dtype in COLUMNS.items()}
    samples |= {"rank": np.full(count, place, np.int32), "sample": np.arange(count, dtype=np.int32),
                "phase": np.ones(count, np.uint8), "iterations": np.ones(count, np.int64)}  # fmt: skip
    observed = [
        {"rank": place, "subject": f"cuda:{rank}", "moment": "before" if row % 2 else "after", "when_ns": row,
         "name": "ecc_corrected_errors" if row % 3 else "throttle_reasons", "value": float(4 + row), "unit": "errors"}
        for row in range(rows)
    ]  # fmt: skip
    facts = {"converged": bool(rank % 2), "verified": True, "operations_total": 10 + rank, "stopped_by": "count",
             "lanes": [f"lane {lane}" for lane in range(lanes)]}  # fmt: skip
    if status in ("failed", "peer", "skipped", "idle"):
        return RankOutcome(rank, status, "" if status == "idle" else f"{status} on rank {rank}", observations=observed)
    return RankOutcome(rank, status, "late" if status == "timeout" else "", facts, samples, observations=observed)


def curve(point: Point | None) -> dict[str, Any]:
    return {"curve": None if point is None else dataclasses.astuple(point)}


def recorded(path: Path) -> tuple[list[Mapping[str, Any]], Record]:
    """The observations' rows and the case's record."""
    records = list(read_journal(path))
    rows = [row for record in records if record.kind == "observations" for row in record.header["rows"]]
    (case,) = [record for record in records if record.kind == "case"]
    return rows, case


@given(layouts(7), st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_what_the_ranks_had(
    tmp_path_factory: pytest.TempPathFactory, nodes: list[int], data: st.DataObject
) -> None:
    size = len(nodes)
    of_curve = data.draw(st.booleans())
    outcomes = [
        outcome_of(
            rank,
            rank,
            data.draw(st.sampled_from([0, 1, 30, 900])),
            data.draw(st.sampled_from([0, 1, 5, 60])),
            data.draw(st.sampled_from(["ok", "ok", "ok", "timeout", "failed", "peer", "skipped", "idle"])),
            data.draw(st.sampled_from([0, 1, size])),
        )
        for rank in range(size)
    ]
    path = tmp_path_factory.mktemp("journal") / "j"

    def body(rank: int, ranks: Ranks) -> Any:
        own = outcomes[rank]
        came = send_outcome(ranks, own, size, keep=rank == 0)
        if rank > 0:
            assert came == []
            word = ranks.tell(b"")
            if word:
                asked = {"parts": word.decode().split(",")[1:], "lanes_of": int(word.decode().split(",")[0])}
                asked["parts"] = [part for part in asked["parts"] if part]
                send_rest(ranks, own, asked)
            return None

        def fetch(with_point: bool) -> Rest:
            rest = Rest(ranks, own, came, with_point)
            ranks.tell(",".join([str(rest.asked["lanes_of"]), *rest.asked["parts"]]).encode())
            return rest

        with JournalWriter(path) as journal:
            found = record_case(journal, {"n": 1}, CASE, came, False, curve if of_curve else None, fetch)
        if not any(one.left for one in came):
            ranks.tell(b"")
        return found

    window = data.draw(st.sampled_from([1, 5_000, 4 << 20]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "WINDOW_BYTES", window if window > 1 else 20_000)
        if window == 1:  # all that can stay behind does, over messages as they are
            patch.setattr(RankOutcome, "to_bytes", _long(RankOutcome.to_bytes))
        results, _ = launch(nodes, body)
    assert not isinstance(results[0], Exception), results[0]
    assert all(one is None for one in results[1:]), results

    header = case_header(CASE, outcomes, False)
    rows, case = recorded(path)
    stored = case.header["evidence"]
    assert {name: case.header[name] for name in header if name != "evidence"} == {
        name: value for name, value in header.items() if name != "evidence"
    }
    streamed = any(len(one.to_bytes()) > window // size for one in outcomes) or window == 1
    order = by_node(nodes) if streamed else list(range(size))
    expected = joined_samples([outcomes[rank] for rank in order])
    whole = joined_samples(outcomes)
    point = point_of(CASE, whole) if header["status"] in ("ok", "timeout") else None
    assert results[0] == (header["status"], point) or (streamed and not of_curve and results[0][1] is None)
    if of_curve:
        assert stored["curve"] == (None if point is None else list(dataclasses.astuple(point)))
    assert {name: stored[name] for name in header["evidence"]} == header["evidence"]
    seen = evidence_of(row for one in outcomes for row in one.observations)
    assert {name: stored[name] for name in seen} == seen
    assert set(stored) == {*header["evidence"], *seen, *(["curve"] if of_curve else [])}
    found_rows = sorted(rows, key=lambda row: row["rank"])
    assert found_rows == [row for one in outcomes for row in one.observations]
    found = {name: case.columns[name] for name in COLUMNS}
    ranks_found = found["rank"]
    for name, dtype in COLUMNS.items():
        assert found[name].dtype.str == dtype
        both = [(found[name][ranks_found == rank], whole[name][whole["rank"] == rank]) for rank in range(size)]
        assert all((one == other).all() for one, other in both), name
        assert len(found[name]) == len(expected[name])


def _long(to_bytes: Callable[[RankOutcome], bytes]) -> Callable[[RankOutcome], bytes]:
    """Outcomes that are too long to travel whole, though they are not."""

    def padded(outcome: RankOutcome) -> bytes:
        whole = to_bytes(outcome)
        return whole if outcome.left else whole + bytes(20_001)

    return padded


def test_evidence_names_so_many_ranks_and_counts_the_rest() -> None:
    outcomes = [RankOutcome(rank, "corrupt" if rank % 3 else "ok", "wrong") for rank in range(2000)]
    evidence = case_header(CASE, outcomes, False)["evidence"]
    assert [one["rank"] for one in evidence["ranks"]] == [rank for rank in range(2000) if rank % 3][:1000]
    assert evidence["ranks_not_told"] == 333
    assert "ranks_not_told" not in case_header(CASE, outcomes[:1500], False)["evidence"]


def test_a_long_case_takes_no_memory_that_grows_with_it(tmp_path: Path) -> None:
    """What rank 0 holds between two writes is bounded by windows, whatever the ranks have."""
    sizes = []
    for count in (2_000, 40_000):
        written: list[int] = []

        def body(rank: int, ranks: Ranks, count: int = count, written: list[int] = written) -> None:
            with JournalWriter(tmp_path / f"{count}") if rank == 0 else _nothing() as journal:
                columns = [("ns", "<i8", 6 * count)]
                mine = np.full(count, rank, np.int64).tobytes()
                if rank > 0:
                    ranks.gather(mine)
                    return
                with journal.record("case", {}, columns) as write:

                    def take(piece: bytes) -> None:
                        written.append(len(piece))
                        write(piece)

                    ranks.gather(mine, take)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gathering, "WINDOW_BYTES", 50_000)
            _, wire = launch([0, 0, 1, 1, 2, 3], body)
        assert sum(written) == 6 * 8 * count
        assert wire.longest <= 50_000
        sizes.append(max(written))
        (record,) = read_journal(tmp_path / f"{count}")
        assert record.columns["ns"].tolist() == [rank for rank in range(6) for _ in range(count)]
    assert max(sizes) <= 50_000


class _nothing:  # noqa: N801 - a context manager
    def __enter__(self) -> Any:
        return None

    def __exit__(self, *_: object) -> None:
        return None


STREAMED = {"LINKGAUGE_TEST_WINDOW": "3000"}


@thorough("verdicts reach every rank below, with samples that stay behind")
@pytest.mark.parametrize("threads", most([True, False], [False]))
def test_a_run_whose_samples_stay_behind_is_as_any_other(
    run_plan: Any, monkeypatch: pytest.MonkeyPatch, threads: bool
) -> None:
    monkeypatch.setenv("LINKGAUGE_TEST_OBSERVED", "each case")
    plain = load(run_plan(threads=threads, devices=3, name="plain").path)
    for name, value in STREAMED.items():
        monkeypatch.setenv(name, value)
    streamed = load(run_plan(threads=threads, devices=3, name="streamed").path)
    left = ("ns", "start_ns", "scheduled_ns", "launch")
    assert _of(plain.samples, left) == _of(streamed.samples, left)
    assert _of(plain.observations, ("when_ns", "value")) == _of(streamed.observations, ("when_ns", "value"))
    assert _of(plain.cases, ()) == _of(streamed.cases, ())
    assert len(plain.samples) > 0


def _of(table: Any, but: Iterable[str]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in but} for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("kind", "status"),
    [("dies gathering", "crashed"),
     pytest.param("hangs gathering", "hung", marks=thorough("a rank that dies costs alike"))],
)  # fmt: skip
def test_a_rank_that_is_lost_while_its_samples_are_fetched_costs_its_case_only(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, status: str
) -> None:
    for name, value in STREAMED.items():
        monkeypatch.setenv(name, value)
    marker = tmp_path / "planted"
    run = run_plan(fault={"kind": kind, "gather": 9, "once": str(marker)}, hung_after_s=8.0)
    assert marker.exists()
    statuses = [row.status for row in load(run.path).rows()]
    assert sorted(map(str, statuses)) == sorted([status, *["ok"] * 7])
    assert run.status == 4


VERDICTS_ALIKE = thorough("another verdict reaches them in the same way")


@pytest.mark.parametrize(
    "kind", ["failed", *(pytest.param(one, marks=VERDICTS_ALIKE) for one in ("corrupt", "skipped"))]
)
def test_a_verdict_reaches_every_rank_where_samples_stay_behind(
    run_plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name, value in STREAMED.items():
        monkeypatch.setenv(name, value)
    fault = {"kind": kind, "transport": "mpi", "pattern": "allreduce", "size": 8, "once": str(tmp_path / "planted")}
    run = run_plan(fault=fault)
    assert sorted(str(row.status) for row in load(run.path).rows()) == sorted([kind, *["ok"] * 7])


def test_a_rank_that_waits_for_another_node_sleeps() -> None:
    """A communicator's one message comes after a while; how often it was asked for is counted."""
    asked, comes_at = [0], time.monotonic() + 0.1

    def there(source: int, status: Any) -> bool:
        asked[0] += 1
        status.count, status.tag = 4, 2
        return time.monotonic() >= comes_at

    def take(data: bytearray, source: int, tag: int) -> None:
        data[:] = b"next"

    world = SimpleNamespace(Get_rank=lambda: 1, Get_size=lambda: 2, Iprobe=there, Recv=take)
    assert gathering.MpiLink(world, SimpleNamespace()).receive(0) == (b"next", True)
    assert asked[0] < 3000  # a wait that spins asks some hundred thousand times
