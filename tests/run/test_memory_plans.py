"""The memory and blocks plans on host devices: what runs is verified, what cannot run says why."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import program
from linkgauge.store.run import load
from thorough import thorough

pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
FEW = ("--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s", "--no-report", "--out", "run",
       "--threads")  # fmt: skip


def linkgauge(cwd: Path, *words: str) -> str:
    done = program.linkgauge(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@thorough("the plan is expanded in tests/plan")
def test_the_memory_plan_runs_on_host_devices(tmp_path: Path) -> None:
    linkgauge(tmp_path, "run", "--devices", "host:2", "--plan", "memory", "--size", "1MiB", *FEW)
    rows = list(load(tmp_path / "run").rows())
    assert {row.status for row in rows} == {"ok", "skipped"}
    for row in rows:
        managed = "managed" in (row.case.source_memory, row.case.target_memory)
        assert (row.status == "skipped") == managed, row.reason
        assert not managed or "host devices have no managed memory" in row.reason
        assert managed or row.verified
    streams = [row.case for row in rows if row.case.pattern == "host_stream"]
    assert {case.variant for case in streams} == {"copy", "read", "write"}
    assert {(case.cpu_node, case.source_node) for case in streams} >= {(0, 0)}
    peers = {(row.case.source_device, row.case.target_device) for row in rows if row.case.pattern == "stream_copy"}
    assert {(1, -1), (-1, 1), (1, 1)} <= peers
    shown = linkgauge(tmp_path, "show", "run", "--all")
    assert "host_stream · copy · 1 MiB" in shown
    assert "cores \\ memory" in shown


def test_nodes_that_are_not_there_are_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        '[[case]]\ntransport="kernel"\npattern="host_stream"\nsize="64KiB"\ncpu_node=[0, 700]\nsource_node=[0, 701]\n'
    )
    linkgauge(tmp_path, "run", "--devices", "host:1", "--plan", "plan.toml", *FEW)
    found = {(row.case.cpu_node, row.case.source_node): (row.status, row.reason or "") for row in
             load(tmp_path / "run").rows()}  # fmt: skip
    assert found.pop((0, 0))[0] == "ok"
    assert len(found) == 3
    assert all(how == "skipped" and "NUMA node 70" in reason for how, reason in found.values())


def test_the_blocks_plan_gives_the_fewest_blocks(tmp_path: Path) -> None:
    linkgauge(
        tmp_path, "run", "--devices", "host:2", "--plan", "blocks", "--pattern", "local_copy", "--size", "64KiB", *FEW
    )
    assert "fewest blocks" in linkgauge(tmp_path, "show", "run", "--derived")
