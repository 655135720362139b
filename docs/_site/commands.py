"""Commands and options as Markdown, from the tree of commands that parses them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from linkgauge.app import cli

from .markdown import plain, table


def walk() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Each command by its words, groups before what is in them; the program itself is left out."""
    waiting: list[tuple[tuple[str, ...], click.Command]] = [((), cli.ROOT)]
    while waiting:
        words, command = waiting.pop(0)
        if words:
            yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            below = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
            waiting[:0] = [((*words, name), one) for name, one in below if one is not None]


def options_of(command: click.Command) -> dict[str, list[click.Parameter]]:
    """Arguments and options by the title of their group in the help."""
    groups: dict[str, list[click.Parameter]] = {}
    for one in command.get_params(click.Context(command)):
        groups.setdefault(getattr(one, "panel", "Options"), []).append(one)
    return groups


def page() -> str:
    """Every command with every option. An option of `--help-all` alone is marked as advanced."""
    parts = []
    for words, command in walk():
        name = " ".join(words)
        context = click.Context(command, info_name=f"linkgauge {name}")
        usage = command.get_usage(context).removeprefix("Usage: ").replace("\n", " ")
        text = plain((command.help or "").replace("\f", ""))
        parts.append(f"({'command-' + '-'.join(words)})=\n{'#' * (len(words) + 1)} {name}\n\n{text}\n")
        parts.append(f"```text\n{' '.join(usage.split())}\n```\n")
        if command.epilog:
            parts.append(f"```console\n{command.epilog.replace('Example: ', '$ ')}\n```\n")
        for title, found in options_of(command).items():
            rows = [row for one in found if (row := _row(one, context))]
            if rows:
                parts.append(f"**{title}**\n\n" + table(("option", "meaning"), rows))
    return "\n".join(parts)


def _row(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    record = parameter.get_help_record(context)
    if record is None:
        return None
    name, text = record
    return f"`{name}`", plain(text) + (" *(advanced)*" if getattr(parameter, "advanced", False) else "")
