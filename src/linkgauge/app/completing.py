"""What a shell is offered for an option's or an argument's word: names that there are, and run folders."""

from __future__ import annotations

import glob
import os
import pkgutil
from collections.abc import Collection

import click
from click.shell_completion import CompletionItem

_NAMES = {
    "pattern": "model.patterns:PATTERNS", "transport": "app.completing:transports", "plan": "plan.builtin:names",
    "app": "apps.catalog:names", "figure": "view.figures:FIGURES",
}  # fmt: skip
"""By the parameter's name where its names are, imported when they are asked for."""


def transports() -> list[str]:
    """Those that can be measured, by their own names and by those of libraries."""
    from linkgauge.model.transports import IMPORTED, TRANSPORT_ALIASES, TRANSPORTS

    return [*(name for name in TRANSPORTS if name not in IMPORTED), *TRANSPORT_ALIASES]


def _known(place: str) -> Collection[str]:
    """The names of a collection, or of a function that gives one."""
    found = pkgutil.resolve_name(f"linkgauge.{place}")
    names: Collection[str] = found() if callable(found) else found
    return names


def words_for(parameter: click.Parameter, incomplete: str) -> list[CompletionItem] | None:
    """The words that go on as this one does, the last of a list; None where click's own answer is to be taken."""
    metavar = parameter.metavar or ""
    found: list[str] = []
    if "SYSTEM" in metavar or parameter.name in ("system", "system_name"):
        found += _continued(incomplete, _known("system.shipped:names"))
    if "RUN" in metavar or metavar == "A B...":
        found += _run_folders(incomplete)
    choices = _known(_NAMES[parameter.name]) if parameter.name in _NAMES else getattr(parameter, "choices", ())
    if not found:
        found += _continued(incomplete, choices)
    if found:
        return [CompletionItem(word) for word in found]
    return [CompletionItem(incomplete, type="file")] if _takes_a_file(metavar) else None


def _takes_a_file(metavar: str) -> bool:
    return any(word in metavar for word in ("FILE", "FOLDER", "RUN", "A B", "TRACE"))


def _continued(incomplete: str, choices: Collection[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{word}" for word in choices if word.startswith(last)]


def _run_folders(incomplete: str) -> list[str]:
    """Run folders below what is typed, at most one folder deeper; the newest first."""
    begins = glob.escape(os.path.expanduser(incomplete))
    found = [path for depth in ("*", "*/*") for path in glob.glob(f"{begins}{depth}/run.json")]
    folders = dict.fromkeys(os.path.dirname(path) for path in found)
    return sorted(folders, key=lambda folder: -os.stat(folder).st_mtime)
