"""A library whose fastest setting is now and then wrong, by real launches: it is never handed out as proved."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installed_mpi import installed
from thorough import most, thorough

VARIABLE, VALUE = "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE", "16384"
MPICH = next((one for one in installed() if one.vendor == "mpich" and not one.problem and one.version >= "5"), None)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to be loaded before the MPI library (planted_mpi.c)."""
    compiler = shutil.which("cc")
    if compiler is None or MPICH is None:
        pytest.skip("no C compiler here" if MPICH is not None else "no MPICH 5 here")
    built = tmp_path_factory.mktemp("planted") / "planted_mpi.so"
    source = Path(__file__).with_name("planted_mpi.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(source), "-ldl"], check=True)
    return built


@thorough("tests/tune/test_search.py has what corrupts while it is confirmed")
@pytest.mark.parametrize("one_in", most((500, 1000, 5000), (500,)))
def test_a_value_that_corrupts_now_and_then_is_not_proved(one_in: int, planted: Path, tmp_path: Path) -> None:
    assert MPICH is not None
    out, notes = tmp_path / "search", tmp_path / "notes"
    variables = {"LD_PRELOAD": str(planted), "PLANTED_VARIABLE": VARIABLE, "PLANTED_VALUE": VALUE,
                 "PLANTED_ONE_IN": str(one_in), "PLANTED_NOTES": str(notes)}  # fmt: skip
    linkgauge = [sys.executable, "-m", "linkgauge"]
    asked = ["--pattern", "allreduce", "--transport", "mpi", "--mpi", MPICH.name, "--devices", "host:2", "--size", "8"]
    asked += ["--settings", VARIABLE, "--guard", "allreduce 64", "--max-time", "300ms", "--stop-samples", "60"]
    done = subprocess.run([*linkgauge, "tune", *asked, "--time-limit", "25m", "--out", str(out)], capture_output=True,
                          text=True, env={**os.environ, **variables}, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert notes.exists(), "nothing was planted"
    found = json.loads((out / "tuned" / "tuned.json").read_text())
    rejected = [one["why"] for one in found["rejected"] if one["environment"] == {VARIABLE: VALUE}]
    assert rejected, done.stdout
    assert "corrupt" in rejected[0]
    assert "operation" in rejected[0]
    assert not any(one["proved"] for one in found["confirmed"])
    assert sorted(one.name for one in (out / "tuned").iterdir()) == ["page.txt", "tuned.json"]
    # And what is read from the folder blames the setting, not the machine.
    told = subprocess.run([*linkgauge, "findings", str(out), "--json"], capture_output=True, text=True, check=False)
    wrong = [one for one in json.loads(told.stdout) if "wrong data" in one["sentence"]]
    assert [one["subject"] for one in wrong] == [f"{VARIABLE}={VALUE}"]
    assert "IOMMU" not in wrong[0]["fix"]
