"""`linkgauge completion`: what a shell reads to complete commands, flags and their words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from linkgauge.app.command_line import COMPLETE, argument, command
from linkgauge.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


@command("completion", epilog='Example: eval "$(linkgauge completion bash)"')
@argument("shell", type=click.Choice(SHELLS), help="Shell that reads the script.")
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the script by which bash, zsh or fish completes commands, options and their values."""
    answer(context.find_root().command, f"{shell}_source")


def answer(root: click.Command, asked: str) -> int:
    """Print what a shell asks for by COMPLETE; UsageError for what no shell asks."""
    shell, _, what = asked.partition("_")
    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None or what not in ("source", "complete"):
        expected = ", ".join(f"{one}_source" for one in SHELLS)
        raise UsageError(f"{COMPLETE}='{asked}': expected one of {expected}")
    completion = kind(root, {}, "linkgauge", COMPLETE)
    said = completion.source() if what == "source" else completion.complete()
    if shell == "fish" and what == "source":  # click's splits a word of a list at each of its commas
        said = said.replace('string split ","', 'string split -m 1 ","')
    print(said)
    return 0
