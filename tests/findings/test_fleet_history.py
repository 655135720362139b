"""`history` and `fleet`: what is planted in a made fleet is named, with what changed, and a sound fleet is not."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shlex
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from linkgauge.app.cli import run_command
from linkgauge.judge.fleet_history import shifts_of
from linkgauge.judge.standing import Standing
from linkgauge.model.case import Case
from linkgauge.store.history import History, rows_of
from linkgauge.view.fleet_drift import print_fleet
from patience import PATIENCE_S
from synthetic import Noise, link_model, make_run, pair_cases, usual_cases
from thorough import thorough

NODES, DAYS, CHANGED = 5, 8, 4
QUIET = Noise(0.01, 0.0, 0.002)


def cases() -> list[Case]:
    pairs = [case for case in pair_cases("unidirectional", 1 << 26) if len(set(case.devices)) == 2]
    return pairs + usual_cases(("ccl",), ("allreduce",), (1 << 20, 1 << 26))


def run(
    path: Path, node: str, day: int, slow: Mapping[tuple[int, int], float] | None = None, driver: str = "580"
) -> Path:
    start = (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc) + datetime.timedelta(day)).isoformat()
    versions = {"linkgauge": "0.2.0", "cuda runtime": f"CUDA 13.0, driver {driver}"}
    info = {"id": path.name, "start": start, "end": start, "versions": versions}
    return make_run(path, cases=cases(), seed=zlib.crc32(path.name.encode()), samples=20, time_ns=link_model(slow),
                    host=node, noise=QUIET, info=info)  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("fleet")
    runs = []
    for node in range(NODES):
        for day in range(DAYS):
            late = day >= CHANGED
            slow = {(0, 2): 0.8, (2, 0): 0.8} if node == 3 and late else None
            driver = "590" if node == 3 and late else "580"
            runs.append(str(run(root / f"r{node}-{day}", f"n{node}", day, slow, driver)))
    assert run_command(["history", str(root / "ds"), *runs]) == 0
    return str(root / "ds")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, object]:
    capsys.readouterr()
    status = run_command([*words, "--json"])
    return status, json.loads(capsys.readouterr().out)


@thorough("history and outliers have tests of their own")
def test_a_slow_link_is_the_outlier_before_and_after_compaction(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        status, found = said(capsys, "fleet", fleet)
        assert isinstance(found, list)
        links = [one["name"] for one in found if one["outlier"] and one["kind"] == "link"]
        assert (status, links) == (1, ["GPU 0 - GPU 2 of n3"])
        assert not [one for one in found if one["outlier"] and one["kind"] == "node"]
        assert run_command(["history", fleet, "--compact"]) == 0


def test_a_shift_is_dated_and_what_changed_is_named(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = said(capsys, "fleet", fleet, "--node", "n3")
    assert isinstance(found, dict)
    assert status == 1
    (shift,) = found["shifts"]
    assert shift["part"] == "GPU 0 - GPU 2"
    assert shift["began"].startswith("2026-01-06")
    assert shift["changed"] == ["driver: 580 -> 590"]
    assert shift["share"] == pytest.approx(0.24, abs=0.03)
    assert run_command(["fleet", fleet, "--node", "n3"]) == 1
    assert "changed then: driver: 580 -> 590" in capsys.readouterr().out
    assert said(capsys, "fleet", fleet, "--node", "n1")[0] == 0


def test_a_name_that_is_none_is_refused(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["fleet", fleet, "--node", "n99"]) == 2
    assert "no node 'n99'" in capsys.readouterr().err
    assert run_command(["fleet", fleet, "--by", "color"]) == 2
    assert run_command(["query", fleet, "SELECT day, node, goodput_bytes_per_s FROM results LIMIT 1"]) == 0
    capsys.readouterr()
    assert run_command(["fleet", fleet, "--kind", "4x-GPUs"]) == 2
    assert "no node of kind '4x-GPUs': expected 4x-Synthetic-GPU" in capsys.readouterr().err


def test_a_name_without_its_domain_is_answered_by_the_whole_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = str(tmp_path / "ds")
    assert run_command(["history", dataset, str(run(tmp_path / "r", "n7.cluster.example", 0))]) == 0
    assert run_command(["fleet", dataset, "--node", "n7"]) == 2
    assert "no node 'n7' in these days (did you mean 'n7.cluster.example'?)" in capsys.readouterr().err


def test_one_run_shows_no_drift_and_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = str(tmp_path / "ds")
    assert run_command(["history", dataset, str(run(tmp_path / "r", "n7", 0))]) == 0
    assert said(capsys, "fleet", dataset, "--node", "n7")[0] == 3
    assert run_command(["fleet", dataset, "--node", "n7"]) == 3
    assert "UNKNOWN: no case of n7 has two runs in these days" in capsys.readouterr().out
    assert run_command(["fleet", dataset]) == 3
    assert f"add runs: linkgauge history {dataset} RUN" in capsys.readouterr().out
    assert run_command(["history", dataset, "--compact"]) == 0
    assert capsys.readouterr().out == "nothing to join\n"


def test_machines_of_one_name_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = str(tmp_path / "ds")
    for at in range(5):
        slow = {(0, 1): 0.7, (1, 0): 0.7} if at == 4 else None
        path = run(tmp_path / f"m{at}", f"m{at}", 0, slow)
        renamed = path / "launches.parquet"
        table = pq.read_table(renamed)
        rows = table.to_pylist()
        for row in rows:
            for rank in row["ranks"]:
                rank["host"] = "vm"
        pq.write_table(pa.Table.from_pylist(rows, table.schema), renamed)
        assert run_command(["history", dataset, str(path)]) == 0
    status, found = said(capsys, "fleet", dataset)
    assert isinstance(found, list)
    assert status == 1
    assert len([one for one in found if one["kind"] == "node"]) == 5
    assert [one["name"] for one in found if one["outlier"]] == ["GPU 0 - GPU 1 of vm (GPU-m4-0000)"]


def test_a_node_that_is_a_pairs_second_host_is_one_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = History.open(str(tmp_path / "ds"), make=True)
    nodes = [f"n{at}" for at in range(6)]
    pairs = [(a, b) for a in nodes[:-1] for b in nodes if a < b]  # n5 is never the first
    rows = [
        {"run": "r", "run_end_ms": 1, "node": a, "machine": f"GPU-{a}", "others": b, "case_key": f"{size}",
         "launch_key": "k", "size": size, "time_ns": 10.0 * (1.5 if "n3" in (a, b) else 1)}
        for a, b in pairs for size in (8, 16)
    ]  # fmt: skip
    history.append(rows_of(rows), "1x-GPU", "2026-01-02", "r", 1)
    status, found = said(capsys, "fleet", str(tmp_path / "ds"))
    assert isinstance(found, list)
    of_nodes = {one["name"]: one for one in found if one["kind"] == "node"}
    assert [one["name"] for one in found] == list(of_nodes)
    assert set(of_nodes) == set(nodes)
    assert {name for name, one in of_nodes.items() if one["outlier"]} == {"n3"}
    assert status == 1
    assert {one["cases"] for one in of_nodes.values()} == {10}
    assert {one["run"] for one in of_nodes.values()} == {"r"}


def test_few_nodes_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = str(tmp_path / "ds")
    assert run_command(["history", dataset, str(run(tmp_path / "a", "n0", 0))]) == 0
    assert run_command(["fleet", dataset]) == 3
    assert "four nodes" in capsys.readouterr().out


def test_steps_are_found_and_spikes_and_noise_are_not() -> None:
    quiet = np.random.default_rng(5).normal(0, 0.004, (200, 365))
    assert sum(bool(shifts_of(series)) for series in quiet) <= 2
    for first in (5, 100, 360):  # also five days ago
        found = 0
        for series in quiet[:50]:
            steps = shifts_of(series + 0.03 * (np.arange(365) >= first))
            found += len(steps) == 1 and abs(steps[0][1] - first) <= 2
        assert found >= 45, first
    spiked = quiet[0].copy()
    spiked[[50, 200]] += 0.3
    assert not shifts_of(spiked)
    assert not shifts_of(quiet[0][:4])


def test_a_run_adds_itself_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_words = ["run", "--threads", "--devices", "host:2", "--pattern", "pingpong", "--transport", "staging"]
    run_words += ["--size", "8", "--no-report", "--out", str(tmp_path / "run")]
    (tmp_path / "other").touch()
    assert run_command([*run_words, "--history", str(tmp_path)]) == 2  # a folder that holds something else
    assert not (tmp_path / "run").exists()
    capsys.readouterr()
    assert run_command([*run_words, "--history", str(tmp_path / "ds")]) == 0
    capsys.readouterr()
    sql = "SELECT count(*) AS n, min(pattern) AS pattern FROM results"
    assert run_command(["query", str(tmp_path / "ds"), sql, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["pattern"] == "pingpong"
    assert row["n"] >= 1


def test_a_node_that_is_half_a_percent_slower_is_found_over_many_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run of a node is a round; what all nodes have in common, and single bad nights, accuse nobody."""
    rng = np.random.default_rng(5)
    where = str(tmp_path / "ds")
    history = History.open(where, make=True)
    began = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
    for night in range(112):
        end = began + datetime.timedelta(hours=6 * night)
        season, rows = 0.02 * np.sin(night / 15), []
        for node in range(8):
            factor = np.exp(season + 0.005 * (node == 3) + rng.normal(0, 0.002) + 0.2 * (rng.random() < 0.02))
            rows.append(
                {
                    "run": f"r{night}",
                    "run_end_ms": int(end.timestamp() * 1000),
                    "node": f"n{node}",
                    "machine": f"GPU-{node}",
                    "case_key": "c",
                    "launch_key": "k",
                    "time_ns": 1e5 * factor,
                }
            )
        history.append(rows_of(rows), "8x-H100", end.date().isoformat(), f"r{night}", int(end.timestamp() * 1000))
    status, found = said(capsys, "fleet", where, "--detect", "0.5%", "--days", "40")
    assert isinstance(found, list)
    assert [one["name"] for one in found if one["shift"]["verdict"] == "slower"] == ["n3"]
    assert status == 1
    capsys.readouterr()
    assert run_command(["fleet", where, "--detect", "0.5%", "--days", "40"]) == 1
    assert "with 95 %" in capsys.readouterr().out.lower()
    assert run_command(["fleet", where, "--detect", "0.5%", "--node", "n3"]) == 2
    assert "leave out --node" in capsys.readouterr().err


def test_a_fleets_history_is_read_without_what_reads_runs() -> None:
    heavy = ("scipy", "linkgauge.judge.compare_runs", "linkgauge.store.schema", "linkgauge.findings.rules")
    modules = (
        "linkgauge.app.fleet, linkgauge.judge.fleet_history, linkgauge.store.history_sql, linkgauge.view.fleet_drift"
    )
    code = f"import json, sys, {modules}; print(json.dumps([m for m in {heavy!r} if m in sys.modules]))"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    output = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert json.loads(output.stdout) == []


def test_any_number_of_days_is_all_of_them(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    for days in ("100000000", str((1 << 63) - 1)):
        assert said(capsys, "fleet", fleet, "--days", days) == said(capsys, "fleet", fleet, "--days", "3000")
        assert run_command(["history", fleet, "--keep", days]) == 0
        assert capsys.readouterr().out == f"0 files older than {days} days removed\n"


def test_a_histories_size_is_for_reading(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["history", fleet]) == 0
    assert " KiB, 2026-01-0" in capsys.readouterr().out


def test_an_empty_name_is_no_node_and_the_names_are_listed_by_a_command(
    fleet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["fleet", fleet, "--node", ""]) == 2
    assert "--node '': expected a node's name" in capsys.readouterr().err
    assert run_command(["fleet", fleet, "--node", "x99"]) == 2
    command = capsys.readouterr().err.partition("linkgauge query ")[2].rpartition(" lists them")[0]
    assert run_command(["query", *shlex.split(command)]) == 0
    assert "n3" in capsys.readouterr().out


def test_where_no_node_can_be_judged_one_line_says_of_how_many(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["fleet", fleet, "--detect", "0.3%"]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("UNKNOWN: 4x-Synthetic-GPU: 5 of 5 nodes may be slower by 0.30 % or not: ")
    assert "too few to tell" in line


def test_a_fleets_table_has_so_many_rows(capsys: pytest.CaptureFixture[str]) -> None:
    far = [Standing("node", f"n{number}", "", "r", 0.2, 20.0, 4) for number in range(14)]
    print_fleet(Console(width=120), far, 2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == ["n0", "n1"]
    assert "and 12 rows more, 12 outliers of them (--limit, --json)" in lines[-1]
    even = [dataclasses.replace(one, share=0.0, score=0.0) for one in far]
    print_fleet(Console(width=120), even, 12)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines[2:-1]) == 12
    assert "and 2 rows more, 0 outliers of them" in lines[-1]
