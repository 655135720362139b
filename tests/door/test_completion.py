"""A shell completes commands, flags and their words, in a process of its own as the shell asks for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from linkgauge.app import cli, show
from linkgauge.app.completion import SHELLS
from linkgauge.view.figures import FIGURES
from thorough import most


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


# What each shell runs when somebody presses the key, with the words of a command line: it prints what it would offer.
BY_SHELL = {
    "bash": """eval "$(linkgauge completion bash)"; compopt() { :; }
               COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
               "$(complete -p linkgauge | sed -E 's/.*-F ([^ ]+).*/\\1/')" linkgauge
               printf '%s\n' "${COMPREPLY[@]}" """,
    "zsh": """compdef() { function=$1 }; compadd() { print -rl -- $completions }
              _describe() { print -rl -- ${completions_with_descriptions%%:*} }
              eval "$(linkgauge completion zsh)"; words=("$@"); CURRENT=$#; $function""",
    "fish": """linkgauge completion fish | source
               complete -C (string join ' ' -- $argv) | string split -f1 \\t""",
}


TYPED = [
    ("linkgauge che", ["check"]),
    ("linkgauge run --swap", ["--swap-roles"]),
    ("linkgauge run --transport nc", ["nccl"]),
    ("linkgauge run --transport copy_engine,mp", ["copy_engine,mpi"]),
    ("linkgauge run --pattern allr", ["allreduce"]),
    ("linkgauge expect --pattern allr", ["allreduce"]),
    ("linkgauge simulate lum", ["lumi-g"]),
    ("linkgauge run --plan qui", ["quick"]),
    ("linkgauge list plans -o c", ["csv"]),
    ("linkgauge show run", ["runs/old", "runs/new"]),
    ("linkgauge compare runs/old runs/n", ["runs/new"]),
]


@pytest.mark.parametrize("shell", [*BY_SHELL])
@pytest.mark.parametrize(("typed", "offered"), most(TYPED, TYPED[::3]))
def test_a_shell_completes(shell: str, typed: str, offered: list[str], tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "linkgauge").write_text(f'#!/bin/sh\nexec {sys.executable} -m linkgauge "$@"\n')
    (tmp_path / "linkgauge").chmod(0o755)
    for name in ("old", "new"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").touch()
    (tmp_path / "runs" / "else").mkdir()
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path),
                   "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    words = [program, "-c", BY_SHELL[shell], *([] if shell == "fish" else [shell]), *typed.split()]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert sorted(done.stdout.split()) == sorted(offered), done.stderr


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
