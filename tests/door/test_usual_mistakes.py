"""The mistakes that people make most: each is answered by one line with the fix, and by the documented exit status.

Others have files of their own: two runs on one GPU (run/test_device_hold.py), Ctrl-C once and twice
(run/test_interrupts.py), and standard output that is closed or full (run/test_command_lines_end_cleanly.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from linkgauge.app import cli
from linkgauge.errors import EnvironmentLackingError, Exit, UsageError
from linkgauge.run.parent import devices as devices_module
from linkgauge.run.parent.device_hold import held
from linkgauge.run.parent.devices import DeviceSet, Probe, find_devices
from linkgauge.store.folder import RunFolder

MADE = "'linkgauge run' printed"
MISTAKES = [
    ("another command's option", "show runs/x --notes", ["no option '--notes' here", "it is of linkgauge findings"]),
    ("a wrong option", "run --quik", ["no option '--quik'", "did you mean '--quick'?", "linkgauge run --help"]),
    ("a wrong command", "rn", ["no command 'rn'", "did you mean 'run'?"]),
    ("a missing folder", "show nowhere", ["nowhere: no such run folder", MADE]),
    ("a missing log", "check nowhere.log", ["nowhere.log: no such run folder or log", "or a log"]),
    ("a file for a folder", "show file", ["file: not a folder", MADE, "linkgauge import file"]),
    ("a file for a new folder", "run --out file --devices host:2", ["'file' exists already", "expected a folder"]),
    ("a folder for a file", "run --plan empty", ["empty: is a folder", "expected a plan"]),
    ("a folder for a log", "import empty", ["empty: is a folder", "expected a log"]),
    ("an empty run folder", "report empty", ["empty: not a run folder (it has no run.json)", MADE]),
    ("no run folder", "findings other", ["other: not a run folder (it has no run.json)", MADE]),
    ("a wrong size", "run --size 1mb --devices host:2", ["--size: '1mb'", "did you mean 1MiB?"]),
    ("a wrong pattern", "run --pattern allreduc", ["unknown pattern 'allreduc'", "did you mean 'allreduce'?"]),
    ("a wrong transport", "run --transport nccl2", ["unknown transport 'nccl2'", "did you mean 'nccl'?"]),
    ("no GPU", "run --devices hip", ["--devices 'hip': no hip device here", "expected host:N, or auto"]),
    ("no GPU for NCCL", "tune --transport nccl --pattern allreduce --devices host:2 --time-limit 1m", ["no GPU here"]),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    return tmp_path


@pytest.mark.parametrize(("words", "said"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES])
def test_a_mistake_is_one_line_with_the_fix(
    words: str, said: list[str], folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where there is no library: what is here on the machine of the test does not count.
    monkeypatch.setattr("linkgauge.run.machine.transports.ccl_library", lambda kind: None)
    monkeypatch.setattr("linkgauge.run.machine.transports._loads", lambda file: False)
    monkeypatch.setattr(devices_module, "probe", lambda which, count=1: Probe(which, reason="no driver"))
    status = cli.run_command(words.split())
    shown = capsys.readouterr()
    # No device of a kind is the environment's lack; all else here is the user's.
    assert (status, shown.out) == (Exit.LACKING if "device here" in shown.err else Exit.BAD_INPUT, "")
    (line,) = shown.err.splitlines()
    assert line.startswith("linkgauge: error: ")
    assert all(word in line for word in said), line
    assert "pip install oneccl" not in line


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up its rights to try without: needs root")
def test_no_permission_is_one_line_with_the_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    os.chown(closed, 65534, 65534)
    code = (  # without root's capabilities, which pass any permission (capset(2), version 3)
        "import ctypes, struct, sys\nfrom linkgauge.app import cli\n"
        "assert ctypes.CDLL(None).capset(struct.pack('Ii', 0x20080522, 0), bytes(24)) == 0\n"
        "sys.exit(cli.run_command(sys.argv[1:]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for words in (["show", "run"], ["run", "--devices", "host:2", "--threads", "--out", "run"]):
        command = [sys.executable, "-c", code, *words[:-1], str(closed / words[-1])]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode in (Exit.BAD_INPUT, Exit.LACKING), done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("linkgauge: error: ")
        assert f"{closed}/run" in line
        assert "Permission denied" in line


def test_hidden_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `--devices cuda`; by itself a run says so first (run/test_hidden_gpus.py)."""
    why = 'no CUDA device is visible: CUDA_VISIBLE_DEVICES="" hides them, or there is none (CUDA_ERROR_NO_DEVICE, 100)'
    monkeypatch.setattr(devices_module, "probe", lambda which, count=1: Probe(which, reason=why))
    with pytest.raises(EnvironmentLackingError, match='CUDA_VISIBLE_DEVICES="" hides them'):
        find_devices("cuda")


def test_two_runs_on_one_gpu_and_then_a_free_one(tmp_path: Path) -> None:
    """In full in run/test_device_hold.py: here that the line has the fix."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom linkgauge.run.parent.device_hold import held\n"
        "from linkgauge.run.parent.devices import DeviceSet\n"
        "with held(DeviceSet('cuda', (0,), ({'uuid': 'GPU-x'},)), Path('first')):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env=environment, cwd=tmp_path) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        one = DeviceSet("cuda", (0,), ({"uuid": "GPU-x"},))
        with pytest.raises(EnvironmentLackingError, match=rf"PID {first.pid} .*{tmp_path}/first.*--wait"), \
                held(one, tmp_path):  # fmt: skip
            pass
        first.communicate()
    with held(one, tmp_path):
        pass


def test_a_full_disk_is_said_to_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(*words: object, **more: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises((UsageError, EnvironmentLackingError), match="No space left on device"):
        RunFolder.create(tmp_path / "run", {"seed": 0})
