"""The man pages are those of the commands that there are, and groff prints each without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from linkgauge.app import cli, man
from thorough import most

from .test_help import COMMANDS

FOLDER = Path(__file__).parents[2] / "docs" / "man"


def test_the_stored_pages_are_current() -> None:
    stored = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    made = man.pages()
    old = sorted(name for name in {*stored, *made} if stored.get(name) != made.get(name))
    assert not old, f"write them anew: .venv/bin/python -m linkgauge.app.man docs/man ({', '.join(old)})"


def test_each_page_has_every_option_and_status_of_its_command() -> None:
    made = man.pages()
    for context, command in COMMANDS:
        words = context.command_path.split()
        page = made[f"linkgauge-{words[1]}.1"].replace("\\-", "-")
        for one in command.params:
            if isinstance(one, click.Option):
                assert one.opts[0] in page, (context.command_path, one.opts)
        assert all(f"\\fB{status:d}\\fR" in page for status in command.statuses)
    assert {f"linkgauge-{entry.name}.1" for entry in cli.COMMANDS} | {"linkgauge.1"} == {*made}


def test_pages_of_commands_that_are_no_more_are_removed(tmp_path: Path) -> None:
    (tmp_path / "linkgauge-gone.1").touch()
    (tmp_path / "other.1").touch()
    assert "linkgauge-run.1" in man.write(tmp_path)
    assert not (tmp_path / "linkgauge-gone.1").exists()
    assert (tmp_path / "other.1").exists()


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("name", most(sorted(man.pages()), sorted(man.pages())[::8]))
def test_groff_prints_it_without_a_warning(name: str) -> None:
    done = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-ww"], input=man.pages()[name], capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert done.stderr == ""
    assert "EXIT STATUS" in re.sub(".\b", "", done.stdout)  # bold is printed twice
