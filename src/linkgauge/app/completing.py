"""What a shell is offered for an option's or an argument's word: names that there are, and run folders."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence

import click
from click.shell_completion import CompletionItem


def _patterns() -> Sequence[str]:
    from linkgauge.model.patterns import PATTERNS

    return [*PATTERNS]


def _transports() -> Sequence[str]:
    from linkgauge.model.transports import IMPORTED, TRANSPORT_ALIASES, TRANSPORTS

    return [*(name for name in TRANSPORTS if name not in IMPORTED), *TRANSPORT_ALIASES]


def _plans() -> Sequence[str]:
    from linkgauge.plan.builtin import names

    return names()


def _systems() -> Sequence[str]:
    from linkgauge.system.shipped import names

    return names()


def _applications() -> Sequence[str]:
    from linkgauge.apps.catalog import names

    return names()


def _figures() -> Sequence[str]:
    from linkgauge.view.figures import FIGURES

    return [*FIGURES]


_NAMES: dict[str, Callable[[], Sequence[str]]] = {
    "pattern": _patterns, "transport": _transports, "plan": _plans, "app": _applications, "figure": _figures,
}  # fmt: skip
"""By the parameter's name."""


def words_for(parameter: click.Parameter, incomplete: str) -> list[CompletionItem] | None:
    """The words that go on as this one does, the last of a list; None where click's own answer is to be taken."""
    metavar = parameter.metavar or ""
    found: list[str] = []
    if "SYSTEM" in metavar or parameter.name in ("system", "system_name"):
        found += _continued(incomplete, _systems())
    if "RUN" in metavar or metavar == "A B...":
        found += _run_folders(incomplete)
    choices = _NAMES[parameter.name]() if parameter.name in _NAMES else getattr(parameter, "choices", ())
    if not found:
        found += _continued(incomplete, choices)
    if found:
        return [CompletionItem(word) for word in found]
    return [CompletionItem(incomplete, type="file")] if _takes_a_file(metavar) else None


def _takes_a_file(metavar: str) -> bool:
    return any(word in metavar for word in ("FILE", "FOLDER", "RUN", "A B", "TRACE"))


def _continued(incomplete: str, choices: Sequence[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{word}" for word in choices if word.startswith(last)]


def _run_folders(incomplete: str) -> list[str]:
    """Run folders below what is typed, at most one folder deeper; the newest first."""
    begins = glob.escape(os.path.expanduser(incomplete))
    found = [path for depth in ("*", "*/*") for path in glob.glob(f"{begins}{depth}/run.json")]
    folders = dict.fromkeys(os.path.dirname(path) for path in found)
    return sorted(folders, key=lambda folder: -os.stat(folder).st_mtime)
