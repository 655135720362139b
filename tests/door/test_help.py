"""Every help text as a user reads it: short, typed, one line a parameter, the exit statuses, run's options once."""

from __future__ import annotations

import re

import click
import pytest

from linkgauge.app import cli
from linkgauge.app.command_line import EVERY_OPTION, Command
from linkgauge.errors import Exit
from linkgauge.system.shipped import names

WIDTH = 120
_LONGEST_WORDS = 25


def commands() -> list[tuple[click.Context, Command]]:
    found: list[tuple[click.Context, Command]] = []
    waiting: list[tuple[click.Context, click.Command]] = [(click.Context(cli.ROOT, info_name="linkgauge"), cli.ROOT)]
    while waiting:
        context, command = waiting.pop()
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                waiting.append((click.Context(below, info_name=name, parent=context), below))
        elif isinstance(command, Command):
            found.append((context, command))
    return sorted(found, key=lambda pair: pair[0].command_path)


COMMANDS = commands()
NAMES = [context.command_path for context, _ in COMMANDS]


def records(context: click.Context, command: Command) -> list[tuple[str, str]]:
    sections = command.sections(context, every=True)
    return [record for found in sections.values() for record in found]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("context", "command"), COMMANDS, ids=NAMES)
def test_every_help_fits_a_screen(context: click.Context, command: Command, width: int) -> None:
    shown = click.Context(command, info_name=context.info_name, parent=context.parent, terminal_width=width)
    lines = command.get_help(shown).splitlines()
    assert len(lines) <= (45 if context.command_path == "linkgauge run" else 60), len(lines)


@pytest.mark.parametrize(("context", "command"), COMMANDS, ids=NAMES)
def test_every_parameter_has_a_type_and_a_sentence(context: click.Context, command: Command) -> None:
    for written, told in records(context, command):
        placeholders = set(re.findall(r"\b[A-Z]{2,}\b", written))
        assert not written.endswith(" VALUE"), written
        assert not placeholders & {"TEXT", "INTEGER", "FLOAT", "RANGE", "PATH", "DIR"}, written
        sentence = told.split("  [")[0]
        assert sentence[:1].isupper() or sentence.startswith("'"), (written, told)
        assert sentence.endswith((".", "...")), (written, told)
        assert len(sentence.split()) <= _LONGEST_WORDS, (written, told)


@pytest.mark.parametrize(("context", "command"), COMMANDS, ids=NAMES)
def test_every_option_is_told_on_one_line(context: click.Context, command: Command) -> None:
    """At 120 columns. Lists of names, of which a user has to see each, may take more."""
    for written, told in records(context, command):
        if not told.startswith(("Figure: ", "Devices that --ranks takes of more: ")):
            assert len(told) <= WIDTH - 34, (written, told)


@pytest.mark.parametrize(("context", "command"), COMMANDS, ids=NAMES)
def test_every_help_says_its_exit_statuses(context: click.Context, command: Command) -> None:
    text = " ".join(command.get_help(context).split())
    for status in {Exit.DONE, Exit.BAD_INPUT, Exit.LACKING, Exit.INTERRUPTED, *command.exits}:
        assert f"{status:d} {status.words}" in text
    assert text.count("Exit status:") == 1


def test_the_help_of_all_says_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{status:d} {status.words}" in text for status in Exit)
    assert "NO_COLOR" in text


@pytest.mark.parametrize("name", ["watch", "tune", "reproduce"])
def test_options_of_run_are_explained_once(name: str) -> None:
    context, command = next(pair for pair in COMMANDS if pair[0].command_path == f"linkgauge {name}")
    context.meta[EVERY_OPTION] = True
    try:
        every = command.get_help(context)
    finally:
        del context.meta[EVERY_OPTION]
    assert "Options of 'linkgauge run --help-all':" in every
    explained = {option for written, _ in records(context, command) for option in re.findall(r"--[a-z-]+", written)}
    assert "--seed" in every
    assert "--seed" not in explained
    assert len(every.splitlines()) <= 60


def test_the_examples_name_systems_that_there_are() -> None:
    """That each example is parsed is a test of its own (test_named_commands.py)."""
    named = {}
    for context, command in COMMANDS:
        words = (command.epilog or "").removeprefix("Example: linkgauge ").split()
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        if words[1:] and not words[1].startswith("-") and arguments and "SYSTEM" in (arguments[0].metavar or ""):
            named[context.command_path] = words[1]
    assert len(named) >= 2
    assert set(named.values()) <= set(names()), named
