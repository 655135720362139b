"""Applications that run: every one verified on two ranks, by each mechanism; what is wrong is found."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from linkgauge.apps import catalogue
from linkgauge.apps.program import core_program
from linkgauge.stats.step_times import step_times
from linkgauge.store.run import load
from thorough import ALL

pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
FEW = ("--stop-rule", "count", "--stop-samples", "3", "--stop-time-ns", "10s", "--warmup", "1", "--no-report")
SOME = "llh,hit,csm,pipeline,fsdp,kv_cache,halo_stencil"


def run(folder: Path, *words: str) -> tuple[Any, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "linkgauge", "run", "--out", "run", *FEW, *words]
    done = subprocess.run(
        command, cwd=folder, text=True, capture_output=True, check=False, timeout=590, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return load(folder / "run"), done.stdout


@pytest.mark.parametrize("threads", [False, True])
def test_each_is_verified_under_each_transport(tmp_path: Path, threads: bool) -> None:
    chosen = "all" if ALL else SOME
    found, said = run(tmp_path, "--app", chosen, "--devices", "host:2", *(["--threads"] if threads else []))
    names = set(catalogue.names()) if ALL else set(SOME.split(","))
    transports = {"staging", "copy_engine", "kernel"} | (set() if threads else {"mpi"})
    rows = list(found.rows())
    measured = {(catalogue.label(row.case.app), row.case.transport) for row in rows if row.status == "ok"}
    assert measured == {(name, transport) for name in names for transport in transports}
    assert all(row.record["verified"] for row in rows)
    assert "where its busiest rank's time went" in said
    assert f"{len(names)} applications measured" in said
    told = step_times(found)
    assert set(told) == {row.identity for row in rows}
    for row in rows:
        ranks = told[row.identity]
        assert [one.rank for one in ranks] == [0, 1]
        if catalogue.label(row.case.app) == "llh":
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
    (tmp_path / "mine.toml").unlink()  # the run folder needs it no more
    assert catalogue.asked(row.case.app).file.description == "a compute, a copy and a message"
    assert catalogue.label(row.case.app) == "mine"


PENDING = """description = "messages under way while their sender is at a collective"
step = [
  { repeat = 40, step = [
    { send = 1, bytes = 4096, when = "rank == 0" }, { receive = 0, bytes = 4096, when = "rank == 1" } ] },
  { wait = true, when = "rank == 1" }, { collective = "allreduce", bytes = 64 }, { barrier = true }, { wait = true } ]
"""


def test_messages_go_on_while_their_sender_is_at_a_collective(tmp_path: Path) -> None:
    (tmp_path / "pending.toml").write_text(PENDING)
    words = ("--app", "./pending.toml", "--transport", "mpi,copy_engine,kernel", "--devices", "host:2")
    found, _ = run(tmp_path, *words)
    assert [row.status for row in found.rows()] == ["ok"] * 3


def measured_in_threads(programs: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
                "devices": everyone, "program": programs[rank], "warmup": 1, "stop": stop}  # fmt: skip
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
    made = catalogue.program(catalogue.asked(app).text, ranks)
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
