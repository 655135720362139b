"""Transport `nixl` as a user runs it: by name, pages as descriptors, and what it says of what it took and lacks."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from linkgauge.model.case import DIMENSIONS
from linkgauge.run.machine import transports
from linkgauge.run.machine.transports import absent_transports, version_of_nixl
from linkgauge.store.run import load
from program import linkgauge
from thorough import thorough

needs_nixl = pytest.mark.skipif(
    importlib.util.find_spec("linkgauge._core") is None or "nixl" in absent_transports("host"),
    reason="the core is not built, or there is no NIXL",
)
PLAN = """
[[case]]
transport = "nixl"
variant = ["put", "get"]
pattern = ["pingpong", "allreduce"]
size = ["8", "1MiB"]
pairs = "first"

[[case]]
transport = "nixl"
pattern = "unidirectional"
size = "1MiB"
chunk = ["0", "32KiB"]
window = 4
pairs = "first"

[[case]]
app = "kv_cache descriptors=32 page=4096 batch=8"
transport = "nixl"
collectives = "mpi"
"""
QUICK = ("--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s", "--no-report", "--out", "run")


@thorough("tests/mpi measures every pattern by it")
@needs_nixl
def test_it_runs_by_name_and_says_what_it_took(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    done = linkgauge("run", "--plan", "plan.toml", "--devices", "host:2", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    run = load(tmp_path / "run")
    rows = list(run.rows())
    assert {(row.status, row.verified) for row in rows} == {("ok", True)}
    (launch,) = run.launches.to_pylist()
    versions = json.loads(launch["versions"])
    assert Path(versions["nixl file"]).name == "libnixl_capi.so"
    assert transports.nic_version("nixl").version == versions["nixl"]
    for row in rows:
        chosen = row.evidence.get("chosen", {})
        assert chosen.get("backend") == "UCX", row.case
        assert chosen.get("descriptors") == ("32 a message" if row.case.chunk else None)


@needs_nixl
def test_all_leaves_it_out_and_a_path_is_refused(tmp_path: Path) -> None:
    assert "nixl" not in DIMENSIONS["transport"].from_text("all")
    words = ["--transport", "nixl", "--pattern", "pingpong", "--size", "8", "--devices", "host:2", "--path", "direct"]
    done = linkgauge("run", "--dry-run", *words, cwd=tmp_path)
    assert "nixl knows no path 'direct'" in done.stdout + done.stderr


def test_what_would_bring_it_is_named_and_its_version_is_its_wheels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transports, "library_folders", list)
    monkeypatch.setattr(transports, "_loads", lambda name: False)
    assert "pip install --no-deps nixl-cu13" in absent_transports("host")["nixl"]
    for number in (12, 13):
        (tmp_path / f"nixl_cu{number}-1.{number}.0.dist-info").mkdir()
        file = tmp_path / f".nixl_cu{number}.mesonpy.libs" / "libnixl_capi.so"
        assert version_of_nixl(str(file)) == f"1.{number}.0"
    assert version_of_nixl("/opt/nvidia/nixl/lib/libnixl_capi.so") == version_of_nixl("libnixl_capi.so") == ""
