"""What a comparison leaves: nothing after its parent was killed, and a folder of its own without --out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from executables import python_program
from faults.leftovers import left_behind, new_shared_memory, shared_memory
from installed_mpi import installed
from linkgauge.app.cli import run_command
from linkgauge.peers import drive
from linkgauge.peers.drive import Outcome
from linkgauge.store.hold import Hold
from patience import PATIENCE_S
from thorough import most, thorough

STUBBORN = """import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()  # out of its launcher's reach
open(os.path.join(os.environ["TMPDIR"], f"left-{os.getpid()}"), "w").close()
open(os.path.join(sys.path[0], f"started-{os.getpid()}"), "w").close()
time.sleep(600)
"""


def libraries() -> list[str]:
    return [one.name for one in installed() if not one.problem] or ["none"]


@thorough("run/test_interrupts.py has ranks that outlive a killed parent")
@pytest.mark.parametrize("mpi", most(libraries(), libraries()[:1]))
def test_a_peers_programs_that_ignore_signals_end_with_a_killed_parent(tmp_path: Path, mpi: str) -> None:
    if mpi == "none":
        pytest.skip("no MPI library is here")
    before = shared_memory()
    python_program(tmp_path / "peer", "osu_latency", STUBBORN)
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")}
    words = ["osu=peer", "--tests", "osu_latency", "--mpi", mpi, "--devices", "host:2", "--out", "out"]
    with (tmp_path / "output.log").open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", "linkgauge", "crosscheck", *words], cwd=tmp_path,
                                   env=environment, stdout=output, stderr=output)  # fmt: skip
    end = time.monotonic() + PATIENCE_S
    while len(list((tmp_path / "peer").glob("started-*"))) < 4 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    assert len(list((tmp_path / "peer").glob("started-*"))) == 4, (tmp_path / "output.log").read_text()
    process.kill()
    process.wait()
    assert left_behind(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert new_shared_memory(before) == set()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The requests of comparisons of which nothing is measured."""
    found: list[Any] = []

    def kept(request: Any, *_: Any) -> Outcome:
        request.out.mkdir(parents=True, exist_ok=True)
        drive._stored(request)
        found.append(request)
        return Outcome([], {})

    monkeypatch.setattr(drive, "alternate", kept)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "peer").mkdir()
    return found


WORDS = ("crosscheck", "osu=peer", "--tests", "osu_latency", "--mpi", "any", "--devices", "host:2")


def test_each_comparison_has_a_folder_of_its_own_where_none_is_named(compared: list[Any]) -> None:
    (Path("crosscheck")).mkdir()
    (Path("crosscheck") / "rounds.json").write_text("of another comparison, as earlier versions kept it")
    for size in ("8", "16", "8"):
        assert run_command([*WORDS, "--size", size]) == 0
    folders = [one.out for one in compared]
    assert len(set(folders)) == 3
    assert all(re.fullmatch(r"crosscheck/\d{8}-\d{6}-osu(-\d)?", str(one)) for one in folders)
    assert run_command([*WORDS, "--size", "8", "--out", str(folders[0])]) == 0  # goes on
    assert run_command([*WORDS, "--size", "16", "--out", str(folders[0])]) == 2


def test_two_comparisons_do_not_go_into_one_folder_at_once(tmp_path: Path) -> None:
    (tmp_path / "peer").mkdir()
    (tmp_path / "out").mkdir()
    hold = Hold(tmp_path / "out")
    words = [*WORDS[1:-4], "--mpi", libraries()[0], "--devices", "host:2", "--out", "out"]
    done = subprocess.run([sys.executable, "-m", "linkgauge", "crosscheck", *words], cwd=tmp_path, text=True,
                          timeout=PATIENCE_S,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True,
                          check=False)  # fmt: skip
    hold.release()
    assert done.returncode == 2, done.stderr
    assert f"out is being measured by another process (process {os.getpid()}" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_values_of_env_are_kept_as_their_stand_ins_and_compared(
    compared: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-abcdefgh")
    assert run_command([*WORDS, "--env", "MY_TOKEN", "--env", "UCX_TLS=tcp", "--out", "out"]) == 0
    (request,) = compared
    assert request.env == {"MY_TOKEN": "hunter2-abcdefgh", "UCX_TLS": "tcp"}
    assert "hunter2" not in Path("out/rounds.json").read_text()
    assert run_command([*WORDS, "--env", "MY_TOKEN=hunter2-abcdefgh", "--env", "UCX_TLS=tcp", "--out", "out"]) == 0
    assert run_command([*WORDS, "--env", "MY_TOKEN=another", "--env", "UCX_TLS=tcp", "--out", "out"]) == 2
