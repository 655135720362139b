"""The whole path over the real core: every transport and pattern on host devices, verified; several MPI libraries."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from linkgauge.model.patterns import PATTERNS
from linkgauge.run.parent import mpi_library
from linkgauge.store.run import load
from planted_faults import HAVE_FAULTS, NO_FAULTS
from program import linkgauge
from thorough import thorough

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built (LINKGAUGE_IN_PLACE)"
)
EVERYTHING = """
[[case]]
pattern = "all"
size = ["24", "64KiB"]
pairs = "first"
stop_rule = "count"
stop_samples = 5
max_time = "20s"
warmup = 1
"""
FEW = ("--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s")
# An application has patterns in its steps: test_applications.
DATA_PATTERNS = {name for name, info in PATTERNS.items() if info.collective and name != "application"} | {
    "pingpong",
    "unidirectional",
    "bidirectional",
}


FOUR_THREADS = pytest.param(4, True, marks=thorough("test_concurrent_pairs has threads of four on every transport"))
FOUR_PROCESSES = pytest.param(4, False, marks=thorough("processes of two ranks meet the same code"))


@pytest.mark.parametrize(("devices", "threads"), [(2, False), FOUR_PROCESSES, FOUR_THREADS])
def test_every_pattern_runs_verified_on_every_transport_that_supports_it(
    tmp_path: Path, devices: int, threads: bool
) -> None:
    (tmp_path / "all.toml").write_text(EVERYTHING)
    words = ["run", "--plan", "all.toml", "--devices", f"host:{devices}", "--out", "run", "--no-report"]
    done = linkgauge(*words, *(["--threads"] if threads else []), cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = list(load(tmp_path / "run").rows())
    assert {row.status for row in rows} == {"ok", "skipped"}
    assert all(row.verified for row in rows if row.status == "ok")
    assert all(row.reason for row in rows if row.status == "skipped")
    transports = {"staging", "copy_engine", "kernel"} | (set() if threads else {"mpi"})
    measured = {(row.case.transport, row.case.pattern) for row in rows if row.status == "ok"}
    assert {(transport, pattern) for transport in transports for pattern in DATA_PATTERNS} <= measured
    for one in (
        "local_copy",
        "host_to_device",
        "device_to_host",
        "host_device_bidirectional",
        "stream_copy",
        "pointer_chase",
        "empty_op",
    ):
        assert ("kernel", one) in measured


@thorough("plans of such pairs are expanded in tests/plan, and pairs are measured above")
def test_pairs_run_both_ways_and_with_themselves(tmp_path: Path) -> None:
    words = ["--pattern", "pingpong,unidirectional", "--size", "8", "--devices", "host:3", "--stop-rule", "count",
             "--stop-samples", "5", "--max-time", "20s", "--plan", "pairs.toml", "--no-report"]  # fmt: skip
    (tmp_path / "pairs.toml").write_text('[[case]]\npattern = ["pingpong", "unidirectional"]\nsize = "8"\n')
    done = linkgauge("run", "--out", "run", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = Counter(row.case.devices for row in load(tmp_path / "run").rows() if row.case.transport == "mpi")
    assert set(found) == {(a, b) for a in range(3) for b in range(3) if a != b} | {(0,), (1,), (2,)}


@thorough("run/test_runner.py has several MPI libraries in one run folder")
def test_every_mpi_library_here_lands_in_one_run_folder(tmp_path: Path) -> None:
    names = [one.name for one in mpi_library.find_all() if not one.problem]
    if len(names) < 2:
        pytest.skip("one MPI library only")
    words = [word for name in names for word in ("--mpi", name)]
    done = linkgauge("run", "--pattern", "pingpong,allreduce", "--transport", "mpi,staging", "--size", "8,64KiB",
                     "--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s", "--devices", "host:2",
                     "--out", "run", "--no-report", *words, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = load(tmp_path / "run")
    libraries = {json.loads(row["mpi"])["name"]: json.loads(row["versions"]) for row in run.launches.to_pylist()}
    assert set(libraries) == set(names)
    for name, versions in libraries.items():
        # What the core called is what was asked for, by the library's own word.
        assert name.split("-")[1] in versions["MPI library"]
    assert {row.status for row in run.rows()} == {"ok"}


@pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS)
def test_a_corrupted_case_is_caught_also_when_only_the_final_operation_is_wrong(run_plan: Any, tmp_path: Path) -> None:
    text = '[[case]]\ntransport = ["mpi", "kernel"]\npattern = "pingpong"\nsize = "4KiB"\npairs = "first"\n'
    text += 'stop_rule = "count"\nstop_samples = 5\nmax_time = "20s"\n'
    planted = {"transport": "mpi", "size": 4096, "kind": "corrupt", "phase": "final_check", "rank": 1}
    planter = Path(__file__).parents[1] / "faults" / "planter.py"
    fault = {"planter": str(planter), "folder": str(tmp_path), "faults": [planted]}
    run = run_plan(text, fault=fault, real=True)
    assert run.status == 4
    rows = {row.case.transport: row for row in load(run.path).rows()}
    assert rows["kernel"].status == "ok"
    assert rows["mpi"].status == "corrupt"
    evidence = rows["mpi"].evidence
    assert {"first_bad_offset", "expected", "found", "bad_bytes"} <= set(evidence["verify"])
    assert "expected" in str(rows["mpi"].reason)


def test_resume_and_from_by_the_command_line(tmp_path: Path) -> None:
    words = ["--pattern", "pingpong", "--transport", "kernel", "--size", "8,64", "--devices", "host:2", "--threads",
             "--no-report", *FEW]  # fmt: skip
    assert linkgauge("run", *words, "--out", "one", cwd=tmp_path).returncode == 0
    again = linkgauge("run", "--resume", "one", "--no-report", cwd=tmp_path)
    assert again.returncode == 0
    assert "nothing left" in again.stderr
    failed = linkgauge("run", "--from", "one", "--cases", "failed", cwd=tmp_path)
    assert failed.returncode == 2
    assert "no case of one has failed" in failed.stderr
    key = next(row.case_key for row in load(tmp_path / "one").rows())
    done = linkgauge("run", "--from", "one", "--cases", key, "--out", "two", "--devices", "host:2", "--no-report",
                     cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [row.case_key for row in load(tmp_path / "two").rows()] == [key]
    info = json.loads((tmp_path / "one/run.json").read_text())
    info["versions"]["numpy"] = "0.1"
    (tmp_path / "one/run.json").write_text(json.dumps(info))
    plan = json.loads((tmp_path / "one/plan.json").read_text())
    plan["launches"][0]["cases"].append({**plan["launches"][0]["cases"][0], "size": 16, "size_requested": 16})
    (tmp_path / "one/plan.json").write_text(json.dumps(plan))
    changed = linkgauge("run", "--resume", "one", "--no-report", cwd=tmp_path)
    assert changed.returncode == 2
    assert "numpy was 0.1" in changed.stderr
    assert "--force" in changed.stderr
    forced = linkgauge("run", "--resume", "one", "--force", "--no-report", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr
    assert Counter(row.status for row in load(tmp_path / "one").rows()) == {"ok": len(plan["launches"][0]["cases"])}
