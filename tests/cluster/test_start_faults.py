"""Nodes that cannot start ranks, several at once: each is named with its own words, and no other (start_faults.py)."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

from cluster.cluster import Cluster, why_not
from cluster.layout import Layout
from cluster.start_faults import FAULTS, READ_ONLY
from patience import PATIENCE_S

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one"),
]
AT_ONCE = ("wrong name", "no route", "denied", "missing program", "missing package", "other version", "full /dev/shm",
           "folder not shared", "way back", "clock")  # fmt: skip


def test_each_node_that_cannot_start_ranks_is_named_with_its_cause_and_no_other_is() -> None:
    by_name = {fault.name: fault for fault in FAULTS}
    faults = {f"n{at}": by_name[name] for at, name in enumerate(AT_ONCE, 2)} | {"n0": READ_ONLY}
    with Cluster(Layout.of(len(AT_ONCE) + 2)) as cluster:
        shared = cluster.folder / "shared"
        shared.mkdir()
        for node, fault in faults.items():
            fault.plant(cluster, node)
        words = [sys.executable, "-m", "linkgauge", "run", "--hosts", ",".join(cluster.layout.nodes), "--devices",
                 "host:1", "--transport", "mpi", "--out", str(shared / "run")]  # fmt: skip
        done = cluster.run("login", words, cwd=shared, timeout_s=PATIENCE_S,
                           env={"PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if "warning: node " in line]
    assert done.returncode == 5, done.stderr
    for node, fault in faults.items():
        own = [line for line in lines if f"node {node} " in line or f"node {node}:" in line]
        assert any(fault.says in line for line in own), (node, fault.name, done.stderr)
    assert not any("node n1 " in line or "node n1:" in line for line in lines), done.stderr
    stopping = sum(fault.stops for fault in faults.values())
    assert f"{stopping} of {len(cluster.layout.nodes)} nodes cannot be used" in done.stderr
