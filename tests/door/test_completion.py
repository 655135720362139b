"""A shell completes commands, flags and their words, in a process of its own as the shell asks for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from linkgauge.app import cli, show
from linkgauge.app.completion import SHELLS
from linkgauge.view.figures import FIGURES


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "linkgauge", *words], env={**os.environ, **variables}, check=False,
                          capture_output=True, text=True)  # fmt: skip


def completed(words: str) -> list[str]:
    count = len(words.split()) - (not words.endswith(" "))
    done = run(_LINKGAUGE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(count))
    assert done.returncode == 0, done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_what_a_shell_asks_for_is_answered() -> None:
    assert completed("linkgauge ") == [entry.name for entry in cli.COMMANDS]
    assert completed("linkgauge adv") == ["advise"]
    assert "--time-limit" in completed("linkgauge run --time")
    assert completed("linkgauge list tra") == ["transports"]
    assert completed("linkgauge run --transport copy_engine,mp") == ["copy_engine,mpi"]


@pytest.mark.parametrize("shell", SHELLS)
def test_its_script_is_the_same_by_command_and_by_variable(shell: str) -> None:
    by_command, by_variable = run("completion", shell), run(_LINKGAUGE_COMPLETE=f"{shell}_source")
    assert by_command.returncode == by_variable.returncode == 0
    assert by_command.stdout == by_variable.stdout
    assert "_LINKGAUGE_COMPLETE" in by_command.stdout
    assert "Usage" not in by_command.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=by_command.stdout, text=True, check=True)


def test_what_no_shell_asks_is_an_error() -> None:
    for asked in ("tcsh_source", "bash_sauce", "bash"):
        done = run(_LINKGAUGE_COMPLETE=asked)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert "expected one of bash_source" in done.stderr


def test_the_help_names_every_figure() -> None:
    told = next(one for one in show.plot_command.params if one.name == "figure")
    words = {word.strip(" .,") for word in str(getattr(told, "help", "")).replace(";", " ").split()}
    assert {*FIGURES} <= words
