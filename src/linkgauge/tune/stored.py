"""What run.json says of a search: of which it is, and what of its budget was spent when each launch ended."""

from __future__ import annotations

import json
import os
from typing import Any

from linkgauge.errors import RunFolderError, UsageError
from linkgauge.model.shape import each, maybe, number, table, text, whole
from linkgauge.store.folder import RunFolder

KEY = "tune"
_SHAPE = table(
    {"requested": text, "spent_s": each(maybe(number(0.0))), "launches": whole()}, needed=("requested", "spent_s")
)


def differs(stored: str, asked: str) -> str:
    """In which of its parts one search is another, in words; nothing where that cannot be told."""
    try:
        before, now = json.loads(stored), json.loads(asked)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return ""
    return f", by {', '.join(name for name, value in now.items() if before.get(name) != value)}"


def spent_s(folder: RunFolder, asked: str) -> list[float | None]:
    """What run.json says was spent when each launch ended; UsageError where the folder is of something else."""
    if KEY not in folder.info:
        raise UsageError(f"'{folder.path}' is not of a search: expected a new folder, or one of this same search")
    try:
        stored: dict[str, Any] = _SHAPE(folder.info[KEY], KEY)
    except UsageError as wrong:
        raise RunFolderError(f"{folder.path}: run.json: {wrong}") from None
    if stored["requested"] != asked:
        other = differs(stored["requested"], asked)
        raise UsageError(
            f"'{folder.path}' holds another search{other}: expected a new folder, or one of this same search"
        )
    if not os.path.lexists(folder.path / "plan.json"):
        return []
    return list(stored["spent_s"]) or [None]
