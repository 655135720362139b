"""Two runs on one GPU at once: the second names the first, and ends, or waits for it."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from linkgauge.errors import EnvironmentLackingError
from linkgauge.run.parent.device_hold import SPACE, held
from linkgauge.run.parent.devices import DeviceSet

HOLDER = """
import sys
from pathlib import Path
from linkgauge.run.parent.device_hold import held
from linkgauge.run.parent.devices import DeviceSet
with held(DeviceSet("cuda", (0, 1), ({"uuid": "GPU-a"}, {"uuid": "GPU-b"})), Path("/data/runs/first")):
    print("held", flush=True)
    sys.stdin.read()
"""


def gpus(*uuids: str) -> DeviceSet:
    return DeviceSet("cuda", tuple(range(len(uuids))), tuple({"uuid": uuid} for uuid in uuids))


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=environment)  # fmt: skip
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    return first


def end(first: subprocess.Popen[str]) -> None:
    first.kill()
    first.communicate()


def test_the_second_names_the_first(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    try:
        with pytest.raises(EnvironmentLackingError) as refused, held(gpus("GPU-c", "GPU-b"), tmp_path):
            pass
        said = str(refused.value)
        assert said.startswith(
            f"cuda:1 is in use by the run of PID {holder.pid} (user {getpass.getuser()}) into /data/runs/first"
        )
        assert "--wait 10m" in said
        assert "--devices" in said
        with held(gpus("GPU-c"), tmp_path):  # what the refused one had taken is free again
            pass
    finally:
        end(holder)


def test_a_killed_run_holds_nothing(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    end(holder)
    with held(gpus("GPU-a", "GPU-b"), tmp_path):
        pass


def test_the_second_waits_and_says_so(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        end(holder)

    with held(gpus("GPU-a"), tmp_path, 600.0, note):
        pass
    assert len(said) == 1
    assert f"PID {holder.pid}" in said[0]
    assert "waiting" in said[0]


def test_what_has_no_exclusive_user_is_not_held(tmp_path: Path) -> None:
    host = DeviceSet("host", (0,), ({"name": "host"},))
    with held(host, tmp_path), held(host, tmp_path), held(None, tmp_path):
        pass


def test_a_command_within_a_run_is_no_other_run(tmp_path: Path) -> None:
    with held(gpus("GPU-a"), tmp_path), held(gpus("GPU-a"), tmp_path):
        pass
    with held(gpus("GPU-a"), tmp_path):
        pass


def test_a_run_that_the_holder_has_started_is_no_other_run(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with held(gpus("GPU-a", "GPU-b"), tmp_path):
        started = f"import subprocess, sys\nsys.exit(subprocess.call([sys.executable, '-c', {HOLDER!r}]))"
        for code in (HOLDER, started):
            done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, env=environment, check=False)  # fmt: skip
            assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr


def test_tests_have_a_space_of_their_own() -> None:
    assert str(os.getpid()) in os.environ[SPACE]
