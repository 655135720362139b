"""A container with half a core, as Kubernetes gives one: doctor and run say so, and what it cost is kept."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from linkgauge.run.rank import worker
from linkgauge.store.run import load
from linkgauge.system.allowance import Allowance, Limit
from real_cgroup import half_a_core, run_in
from thorough import thorough

pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
RUN = ("run", "--out", "run", "--devices", "host:2", "--threads", "--transport", "kernel", "--pattern", "pingpong",
       "--size", "8", "--pairs", "first", "--stop-rule", "count", "--stop-samples", "200", "--warmup", "1",
       "--no-report")  # fmt: skip


@thorough("quotas are read in tests of doctor, and waits by them are below")
def test_doctor_and_run_say_it_and_the_run_keeps_it(tmp_path: Path) -> None:
    with half_a_core() as group:
        program = (sys.executable, "-m", "linkgauge")
        doctor = run_in(group, *program, "doctor", "--devices", "host:2", "--json", cwd=tmp_path)
        done = run_in(group, *program, *RUN, cwd=tmp_path)
        name = group.name
    (cores,) = (row for row in json.loads(doctor.stdout) if row["check"] == "cores")
    assert cores["status"] == "warning"
    assert "2 ranks share 0.5 cores: this process may use 0.5 of " in cores["finding"]
    assert f"{name})" in cores["finding"]
    assert "latencies of host steps suffer" in cores["cost"]
    assert done.returncode == 0, done.stderr
    assert f"warning: {cores['finding']}" in done.stderr
    assert "it was stopped in " in done.stderr
    run = load(tmp_path / "run")
    assert run.info["machine"]["allowed"]["quota_cores"] == 0.5
    assert run.info["machine"]["available_cores"] == 1
    assert set(run.cases.column("oversubscribed").to_pylist()) == {True}
    assert run.info["throttled"]["throttled"] > 0
    assert any(cores["finding"] in text for text in run.info["warnings"])
    rows = [row for row in run.observations.to_pylist() if row["subject"] == "cgroup"]
    assert {row["name"] for row in rows} == {"quota_periods", "quota_throttled_periods", "quota_throttled"}
    assert {row["moment"] for row in rows} == {"before", "after"}


@pytest.mark.parametrize(
    ("quota", "ranks", "runtime", "sleeps"),
    [(0.5, 2, "host", True), (3.0, 2, "host", True), (4.0, 2, "host", False), (1.5, 2, "cuda", True),
     (2.0, 2, "cuda", False), (None, 64, "host", False)],
)  # fmt: skip
def test_waits_sleep_where_ranks_have_less_than_a_core_each_by_quota(
    quota: float | None, ranks: int, runtime: str, sleeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = None if quota is None else Limit(quota, "/pod")
    monkeypatch.setattr(worker, "allowance", lambda: Allowance(64, 64, quota=limit))
    called: list[bool] = []
    core: Any = types.SimpleNamespace(spare_quota=lambda: called.append(True))
    monkeypatch.setitem(sys.modules, "linkgauge._core", core)
    spec: Any = types.SimpleNamespace(runtime=runtime)
    worker._spare_quota(spec, ranks)
    assert called == [True] * sleeps
