"""Applications that run: every one verified on two ranks, by each mechanism; what is wrong is found."""

from __future__ import annotations

import importlib.util
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from linkgauge.apps import catalog
from linkgauge.apps.program import core_program
from linkgauge.model.worded import App
from linkgauge.stats.step_times import step_spans, step_times
from linkgauge.store.run import load
from program import linkgauge
from thorough import most, thorough

pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
FEW = ("--stop-rule", "count", "--stop-samples", "3", "--max-time", "10s", "--warmup", "1", "--no-report")
SOME = "llh,hit,csm,pipeline,fsdp,kv_cache,halo_stencil"


def run(folder: Path, *words: str) -> tuple[Any, str]:
    done = linkgauge("run", "--out", "run", *FEW, *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return load(folder / "run"), done.stdout


@pytest.mark.parametrize("threads", [pytest.param(False, marks=thorough("threads meet the same applications")), True])
def test_each_is_verified_under_each_transport(tmp_path: Path, threads: bool) -> None:
    chosen = most("all", SOME)
    found, said = run(tmp_path, "--app", chosen, "--devices", "host:2", *(["--threads"] if threads else []))
    names = most(set(catalog.names()), set(SOME.split(",")))
    transports = {"staging", "copy_engine", "kernel"} | (set() if threads else {"mpi"})
    rows = list(found.rows())
    measured = {(row.case.app.label, row.case.transport) for row in rows if row.status == "ok"}
    assert measured == {(name, transport) for name in names for transport in transports}
    assert all(row.verified for row in rows)
    assert "where its busiest rank's time went" in said
    assert f"{len(names)} applications measured" in said
    told = step_times(found)
    assert set(told) == {row.identity for row in rows}
    for row in rows:
        ranks = told[row.identity]
        assert [one.rank for one in ranks] == [0, 1]
        if row.case.app.label == "llh":
            assert ranks[0].counts["sent"] == 2
            assert ranks[0].bytes["sent"] == 24 * (129**2 + 128**2)


def test_the_times_of_kinds_are_the_iteration(tmp_path: Path) -> None:
    body = """description = "a compute, a copy and a message"
step = [ { compute = 3000000 }, { copy = "host_to_device", bytes = 65536 },
  { receive = "1 - rank", bytes = 4096 }, { send = "1 - rank", bytes = 4096 }, { wait = true } ]"""
    (tmp_path / "mine.toml").write_text(body)
    mine = ("--app", "./mine.toml", "--transport", "copy_engine")
    found, _ = run(tmp_path, *mine, "--devices", "host:2", "--threads")
    (row,) = found.rows()
    samples = [one["ns"] for one in found.samples.to_pylist() if one["phase"] == "sample"]
    (ranks,) = step_times(found).values()
    posting = {row["rank"]: row["value"] for row in found.observations.to_pylist() if row["name"] == "posting_time"}
    for one in ranks:
        assert 0 < posting[one.rank] <= one.ns["message"]
        assert set(one.ns) >= {"compute", "host_to_device", "message"}
        assert one.ns["compute"] >= 3_000_000
        assert sum(one.ns.values()) <= 1.5 * max(samples)
    # The iteration step by step is that of the same file, and of no more time than it took.
    (spans,) = step_spans(found).values()
    for rank in (0, 1):
        own = [one for one in spans if one.rank == rank]
        kinds = [one.kind for one in own]
        assert kinds[:3] == ["compute", "host_to_device", "message"]
        assert kinds.count("compute") == kinds.count("host_to_device") == 1
        assert own[0].end_ns - own[0].begin_ns >= 3_000_000
        assert all(one.end_ns == after.begin_ns for one, after in pairwise(own))
    (tmp_path / "mine.toml").unlink()  # the run folder needs it no more
    assert catalog.asked(row.case.app).file.description == "a compute, a copy and a message"
    assert row.case.app.label == "mine"


@thorough("tests/view has the picture of one")
def test_pictures_of_applications(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    from linkgauge.view import charts
    from linkgauge.view.figures import Selection, draw
    from linkgauge.view.limits import Limits
    from linkgauge.view.report import report_html
    from linkgauge.view.results import Results

    asked = ("--app", "brq,csm", "--transport", "copy_engine,staging", "--ranks", "1,2")
    found, _ = run(tmp_path, *asked, "--devices", "host:2", "--threads")
    results, limits = Results(found), Limits(found)
    spec, _ = draw(results, limits, "scaling", Selection())
    values = [one for part in spec["datasets"].values() for one in part]
    assert {(one["application"], one["ranks"], one["mechanism"]) for one in values} == {
        (name, ranks, by)
        for name in ("brq", "csm")
        for ranks in (1, 2)
        for by in ("memcpy", "staging")  # as screens call it without a GPU
    }
    spec, _ = draw(results, limits, "kinds", Selection())
    (bars,) = spec["datasets"].values()
    by_case: dict[str, float] = {}
    for one in bars:
        by_case[one["case"]] = by_case.get(one["case"], 0.0) + one["share"]
    assert len(by_case) == 8
    for name in ("brq · 1", "brq · 2", "csm · 1", "csm · 2"):
        assert max(share for case, share in by_case.items() if case.startswith(name)) == pytest.approx(100, abs=0.1)
    spec, note = draw(results, limits, "ranks", Selection(transports=("staging",)))
    (spans,) = spec["datasets"].values()
    assert {one["rank"] for one in spans} == {0, 1}
    assert min(one["begin"] for one in spans) == 0
    assert note == "3 more by --case"
    with charts.drawing():
        page = report_html(found)
    for words in (
        "time of the busiest rank by kind of step",
        "csm: an iteration over ranks",
        "the last iteration that",
    ):
        assert words in page


def test_copies_and_stand_in_kernels_by_kernel(tmp_path: Path) -> None:
    words = ("--app", "hit n=16,dff n=16 kernel=4096", "--transport", "copy_engine", "--copies", "copy_engine,kernel")
    found, _ = run(tmp_path, *words, "--blocks", "2", "--devices", "host:2", "--threads")
    rows = list(found.rows())
    assert {(row.case.app.label, row.case.copies) for row in rows} == {
        (app, by) for app in ("hit n=16", "dff kernel=4096 n=16") for by in ("", "kernel")
    }
    assert all(row.status == "ok" and row.verified for row in rows)
    uncopied = programs("mtc options=64", 2)
    uncopied[0]["steps"][0][3] //= 2
    assert [one["verified"] for one in measured_in_threads(uncopied, copies="kernel")] == [False, False]


PENDING = """description = "messages under way while their sender is at a collective"
step = [
  { repeat = 40, step = [
    { send = 1, bytes = 4096, when = "rank == 0" }, { receive = 0, bytes = 4096, when = "rank == 1" } ] },
  { wait = true, when = "rank == 1" }, { collective = "allreduce", bytes = 64 }, { barrier = true }, { wait = true } ]
"""


@thorough("collectives and messages are checked when a file is read")
def test_messages_go_on_while_their_sender_is_at_a_collective(tmp_path: Path) -> None:
    (tmp_path / "pending.toml").write_text(PENDING)
    words = ("--app", "./pending.toml", "--transport", "mpi,copy_engine,kernel", "--devices", "host:2")
    found, _ = run(tmp_path, *words)
    assert [row.status for row in found.rows()] == ["ok"] * 3


def measured_in_threads(programs: list[dict[str, Any]], **more: str) -> list[dict[str, Any]]:
    """What the core gives each rank for programs that are given as they are."""
    core: Any = importlib.import_module("linkgauge._core")
    count = len(programs)
    runtime, groups = core.open_runtime("host", [], count), core.thread_groups(count)
    found: list[Any] = [None] * count

    def play(rank: int) -> None:
        session = core.Session(runtime, groups[rank], None, None, "", [], None)
        stop = {"kind": "count", "samples": 3, "relative_half_width": 0.1, "time_ns": 10**9}
        everyone = list(range(count))
        spec = {"transport": "copy_engine", "pattern": "application", "size_bytes": 0, "rank_list": everyone,
                "devices": everyone, "program": programs[rank], "warmup": 1, "stop": stop, **more}  # fmt: skip
        try:
            found[rank] = session.measure(spec)
        except Exception as error:
            found[rank] = error
        session.close()

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def programs(app: str, ranks: int) -> list[dict[str, Any]]:
    made = catalog.program(catalog.asked(App.of_text(app)).app, ranks)
    return [core_program(made, rank) for rank in range(ranks)]


def test_data_of_each_step_are_checked() -> None:
    sound = programs("pipeline activation=4096", 2)
    assert [one["verified"] for one in measured_in_threads(sound)] == [True, True]
    misplaced = programs("pipeline activation=4096", 2)
    misplaced[1]["arrivals"][0][3] += 64  # what must have come lay elsewhere
    found = measured_in_threads(misplaced)
    assert [one["verified"] for one in found] == [False, False]
    assert "data of rank 0" in found[1]["verify"]["where"]
    uncopied = programs("mtc options=64", 2)
    uncopied[0]["steps"][0][3] //= 2  # half of what must have been copied
    found = measured_in_threads(uncopied)
    assert [one["verified"] for one in found] == [False, False]
    assert "a copy host_to_device" in found[0]["verify"]["where"]


def test_the_core_refuses_what_its_programs_do_not_have() -> None:
    changes: list[tuple[str, tuple[int, int], int]] = [
        ("steps", (0, 0), 10), ("steps", (1, 1), 99), ("steps", (1, 2), 5), ("steps", (1, 3), 1 << 40),
        ("steps", (1, 4), -8), ("steps", (0, 3), 0), ("flows", (0, 2), 1 << 40), ("flows", (0, 5), 0),
        ("arrivals", (0, 1), 1 << 40),
    ]  # fmt: skip
    for name, place, value in changes:
        wrong = programs("dff n=8", 2)
        for one in wrong:
            one[name][place] = value
        found = measured_in_threads(wrong)
        assert all(isinstance(one, Exception) for one in found), (name, place)
