"""Signals from a program's first moments on: one line, status 130, nothing left; and terminals that go away.

Before its own first lines Python alone is there (docs/definitions.md): what has not set its handlers by then, which
/proc says, may end by the signal itself, or as Python ends by SIGINT.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults.leftovers import left_behind, new_shared_memory, shared_memory
from linkgauge.interrupts import ENDING
from patience import PATIENCE_S
from synthetic import make_run
from thorough import most, thorough

DELAYS_MS = (0, 5, 20, 50, 100, 200, 300)
RUN = ("run", "--devices", "host:2", "--pattern", "pingpong,allreduce", "--size", "8:64KiB:x2", "--out", "run")
COMMANDS = {"run": RUN, "show": ("show", "stored"), "doctor": ("doctor",)}
# A sixth of the delays and signals each, so that every one is tried with some command.
TRIED = [
    pytest.param(command, number, delay, id=f"{command}-{number.name}-{delay}ms")
    for place, command in enumerate(COMMANDS)
    for at, number in enumerate(ENDING)
    for step, delay in enumerate(DELAYS_MS)
    if most(True, (place + at + step) % 6 == 0)
]


def program(folder: Path, words: tuple[str, ...], **more: object) -> subprocess.Popen[str]:
    (folder / "tmp").mkdir()
    if "stored" in words:
        make_run(folder / "stored", samples=40)
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-m", "linkgauge", *words], env=environment, cwd=folder, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)  # type: ignore[call-overload,no-any-return]  # fmt: skip


def has_handlers(process: subprocess.Popen[str]) -> bool:
    """Whether the process catches the last of the ending signals, and so all of them."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (ENDING[-1] - 1) & 1)


def wait_for_handlers(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not has_handlers(process) and time.monotonic() < deadline:
        time.sleep(0.0005)


def ended(process: subprocess.Popen[str], folder: Path, before: set[str]) -> str:
    """What is said of a command that was ended, which has left nothing."""
    _, said = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said
    assert "Exception" not in said
    assert left_behind(folder) == []
    assert new_shared_memory(before) == set()
    return said


@pytest.mark.parametrize(("command", "number", "delay_ms"), TRIED)
def test_a_signal_after_the_first_lines_ends_in_a_word(
    tmp_path: Path, command: str, number: signal.Signals, delay_ms: int
) -> None:
    before, process = shared_memory(), program(tmp_path, COMMANDS[command])
    wait_for_handlers(process)
    time.sleep(delay_ms / 1e3)
    process.send_signal(number)
    said = ended(process, tmp_path, before)
    if process.returncode in (0, 1) and command != "run":  # over before the signal came
        assert "interrupted" not in said
        return
    assert process.returncode == 130, said
    assert said.splitlines()[-1] in ("linkgauge: error: interrupted", f"linkgauge: error: interrupted by {number.name}")


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_a_signal_at_any_time_ends_in_a_word_or_before_the_first_lines(tmp_path: Path, delay_ms: int) -> None:
    before, process = shared_memory(), program(tmp_path, RUN)
    time.sleep(delay_ms / 1e3)
    there = has_handlers(process)
    process.send_signal(signal.SIGTERM)
    said = ended(process, tmp_path, before)
    assert (process.returncode, said.splitlines()[-1:]) in [
        (130, ["linkgauge: error: interrupted by SIGTERM"]),
        *([] if there else [(-signal.SIGTERM, [])]),
    ]


def test_what_a_callback_swallows_is_raised_again() -> None:
    """A signal in a callback of a weak reference, whose exceptions Python drops, ends the command all the same."""
    program = (
        "import os, signal, sys, time, weakref\n"
        "from linkgauge import __main__, interrupts; from linkgauge.app import cli\n"
        "class Gone: pass\n"
        "def invoke(context):\n"
        "    interrupts.raise_from_now(); gone = Gone()\n"
        "    there = weakref.ref(gone, lambda one: os.kill(os.getpid(), signal.SIGTERM)); del gone; time.sleep(30)\n"
        "cli.ROOT.invoke = invoke; sys.argv = ['linkgauge', 'run']; __main__.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                          capture_output=True, text=True, check=False, timeout=PATIENCE_S)  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "linkgauge: error: interrupted by SIGTERM\n")


def test_nothing_is_imported_before_the_first_lines() -> None:
    """But what `enum` and `signal` take: each further module is time in which a signal ends without a word."""
    done = subprocess.run([sys.executable, "-c", "import sys, runpy, signal; there = set(sys.modules);"
                           "import linkgauge.interrupts; print(*sorted(set(sys.modules) - there))"],
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    own = {"linkgauge", "linkgauge.errors", "linkgauge.interrupts"}
    assert set(done.stdout.split()) - {"contextlib", "collections.abc"} == own


@thorough("a signal before and after the first lines is below")
def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """`nohup linkgauge run`: the terminal goes, the run does not."""
    process = program(
        tmp_path,
        (*RUN, "--size", "8", "--transport", "kernel", "--stop-rule", "count", "--stop-samples", "50", "--no-report"),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
    said = process.communicate()[1]
    assert process.returncode == 0, said


@thorough("run/test_interrupts.py has signals that end a run")
def test_a_run_whose_terminal_goes_away_writes_its_end(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}
        many = ("--size", "8:1MiB:x2", "--repeat", "3")
        os.execve(sys.executable, [sys.executable, "-m", "linkgauge", *RUN, *many, "--no-report"], environment)
    deadline = time.monotonic() + PATIENCE_S
    while not list(tmp_path.glob("run/journal/launch-*.lgj")) and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.02)[0]:
            os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (info["ended_by"], info["exit_status"]) == ("SIGHUP", 130)
    assert os.waitstatus_to_exitcode(status) in (5, 130)  # 5: the summary had nowhere to go
    assert list((tmp_path / "tmp").rglob("linkgauge-unforeseen*")) == []
    assert left_behind(tmp_path) == []
