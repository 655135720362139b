"""`-q` and `-v`: how much a command says, asked wherever something is said."""

from __future__ import annotations

from collections.abc import Callable

import click

from linkgauge.app.command_line import Decorated, flag
from linkgauge.errors import UsageError

_KEY = "linkgauge.verbosity"
QUIET, USUAL, VERBOSE = -1, 0, 1


def verbosity_options(verbose: str) -> Callable[[Decorated], Decorated]:
    """A decorator that adds `-q` and `-v`; `verbose` says what `-v` adds."""

    def add(function: Decorated) -> Decorated:
        function = flag("-v", "--verbose", expose_value=False, callback=_set(VERBOSE), help=verbose)(function)
        return flag(
            "-q", "--quiet", expose_value=False, callback=_set(QUIET), help="Print the result and errors only."
        )(function)

    return add


def _set(level: int) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(context: click.Context, _: click.Parameter, given: bool) -> None:
        if not given:
            return
        if context.meta.get(_KEY, level) != level:
            raise UsageError("--quiet and --verbose exclude each other: give one of them")
        context.meta[_KEY] = level

    return callback


def quieten() -> None:
    """Have what the running command calls say as little as with `-q`."""
    click.get_current_context().meta[_KEY] = QUIET


def verbosity() -> int:
    """What the command that runs was asked for: QUIET, USUAL or VERBOSE."""
    context = click.get_current_context(silent=True)
    return USUAL if context is None else int(context.meta.get(_KEY, USUAL))
