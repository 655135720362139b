"""Transport ccl on host devices, by Intel's oneCCL: all its patterns, verified; LINKGAUGE_TEST_ONECCL names the folder
of a libccl.so.2 with its CPU plug-in and a libfabric.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from linkgauge.model.case import Case
from linkgauge.plan.library_settings import runtime_settings
from linkgauge.run.machine.transports import absent_transports
from linkgauge.store.run import load
from program import linkgauge

FOLDERS = os.environ.get("LINKGAUGE_TEST_ONECCL", "")
PATTERNS = ("allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "alltoall", "gather", "scatter",
            "pingpong", "unidirectional", "bidirectional", "ring_shift")  # fmt: skip
PLAN = f"""
[[case]]
transport = "ccl"
pattern = {json.dumps(PATTERNS)}
size = "48KiB"
pairs = "first"
[[case]]
transport = "ccl"
pattern = "allreduce"
size = "48KiB"
op = "avg"
"""


def test_it_is_told_to_use_the_cpu_and_no_launcher_of_its_own() -> None:
    case = Case(transport="ccl", pattern="allreduce", size=8, size_requested=8, devices=(0, 1))
    told = dict(runtime_settings(case, "host", "mpich"))
    assert told["CCL_PLUGIN"] == "ONECCL_LEGACY_CPU"
    assert told["CCL_ATL_TRANSPORT"] == "ofi"
    assert not runtime_settings(case, "cuda", "mpich")


def test_its_ranks_are_processes() -> None:
    assert "processes of their own" in absent_transports("host", threads=True)["ccl"]


@pytest.mark.skipif(not FOLDERS, reason="LINKGAUGE_TEST_ONECCL names no oneCCL")
def test_every_pattern_is_verified(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    done = linkgauge("run", "--devices", "host:2", "--plan", "plan.toml", "--out", "run", "--no-report", "--stop-rule",
                     "count", "--stop-samples", "5", "--max-time", "20s", cwd=tmp_path,
                     env={"LD_LIBRARY_PATH": FOLDERS})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = load(tmp_path / "run")
    rows = list(loaded.rows())
    assert {row.case.pattern for row in rows if row.status == "ok" and row.verified} == {*PATTERNS}
    (skipped,) = (row for row in rows if row.status != "ok")
    assert "no average" in (skipped.reason or "")
    (launch,) = loaded.launches.to_pylist()
    assert json.loads(launch["versions"])["oneccl"]
