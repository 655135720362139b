"""Transports `ucx` and `ofi` as a user runs them: by name, in processes and threads; what each took and lacks."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from linkgauge.model.case import DIMENSIONS
from linkgauge.model.transports import NIC_LIBRARIES
from linkgauge.run.machine import transports
from linkgauge.run.machine.transports import absent_transports
from linkgauge.store.run import Run, load
from program import linkgauge
from thorough import most, thorough

built = importlib.util.find_spec("linkgauge._core") is not None
absent = absent_transports("host")
of_each = pytest.mark.parametrize(
    "transport",
    [pytest.param(name, marks=[pytest.mark.skipif(not built or name in absent, reason="no core, or no such library"),
                               *([thorough("ofi is here")] if name == "ucx" else [])])
     for name, one in NIC_LIBRARIES.items() if one.with_mpi],  # nixl has tests of its own
)  # fmt: skip
PLAN = """
[[case]]
transport = "TRANSPORT"
variant = ["tag", "put", "get"]
pattern = ["pingpong", "reduce"]
size = ["8", "1MiB"]
pairs = "first"
"""
QUICK = ("--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s", "--no-report", "--out", "run")


def measured(cwd: Path, *words: str) -> Run:
    done = linkgauge("run", *words, *QUICK, cwd=cwd)
    assert done.returncode == 0, done.stderr + done.stdout
    return load(cwd / "run")


@thorough("tests/mpi measures every pattern by it")
@of_each
@pytest.mark.parametrize(
    "threads", [False, pytest.param(True, marks=thorough("tests/core has every pattern in threads"))]
)
def test_it_runs_by_name_and_says_what_it_took(tmp_path: Path, transport: str, threads: bool) -> None:
    (tmp_path / "plan.toml").write_text(PLAN.replace("TRANSPORT", transport))
    run = measured(
        tmp_path, "--plan", "plan.toml", "--devices", most("host:3", "host:2"), *(["--threads"] if threads else [])
    )
    rows = list(run.rows())
    assert {row.case.variant for row in rows} == {"tag", "put", "get"}
    assert {(row.status, row.verified) for row in rows} == {("ok", True)}
    (launch,) = run.launches.to_pylist()
    versions = json.loads(launch["versions"])
    assert Path(versions[f"{transport} file"]).name.startswith(NIC_LIBRARIES[transport].file)
    for row in rows:
        chosen = row.evidence["chosen"]
        assert chosen[transport] == versions[transport]
        tells = transport != "ucx" or tuple(map(int, versions["ucx"].split(".")))[1] >= 14
        if row.case.ranks > 1 and tells:
            assert re.search(r"\w+/\w+", chosen["ways"])


@of_each
def test_where_its_settings_leave_no_way_the_case_is_skipped_with_that_reason(tmp_path: Path, transport: str) -> None:
    setting, said = {"ucx": ("UCX_TLS=self", "no way to rank"), "ofi": ("FI_PROVIDER=no_such", "has no provider")}[
        transport
    ]
    (tmp_path / "plan.toml").write_text(PLAN.replace("TRANSPORT", transport))
    done = linkgauge("run", "--plan", "plan.toml", "--pattern", "pingpong", "--size", "8", "--devices", "host:2",
                     "--env", setting, *QUICK, cwd=tmp_path)  # fmt: skip
    rows = list(load(tmp_path / "run").rows())
    assert {row.status for row in rows} == {"skipped"}, done.stderr
    assert all(said in row.reason and NIC_LIBRARIES[transport].ways_by in row.reason for row in rows)


@of_each
def test_all_leaves_it_out_and_a_path_is_refused(tmp_path: Path, transport: str) -> None:
    assert transport not in DIMENSIONS["transport"].from_text("all")
    words = [
        "--transport",
        transport,
        "--pattern",
        "pingpong",
        "--size",
        "8",
        "--devices",
        "host:2",
        "--path",
        "direct",
    ]
    done = linkgauge("run", "--dry-run", *words, cwd=tmp_path)
    assert f"{transport} knows no path 'direct'" in done.stdout + done.stderr


def test_what_would_bring_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "library_folders", list)
    monkeypatch.setattr(transports, "_loads", lambda name: False)
    said = absent_transports("host")
    assert said["ucx"] == "libucp.so.0 was not found; fix: pip install libucx-cu12"
    assert said["ofi"] == "libfabric.so.1 was not found; fix: install libfabric (Debian: libfabric1)"
