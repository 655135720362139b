"""What a search has proved, read back from its run folder: what `advise` names beside the best mechanisms."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any

from linkgauge.errors import RunFolderError
from linkgauge.model.shape import (
    MisshapenError,
    each,
    flag,
    label,
    mapping,
    maybe,
    number,
    read_json,
    table,
    text,
    whole,
)
from linkgauge.model.transports import TRANSPORTS, transport_shown_as
from linkgauge.plan.tuning_variables import safe_variable
from linkgauge.stats.compare import Shift
from linkgauge.tune.exports import ANSWER, FOLDER

FILE = Path(FOLDER) / ANSWER
_MOST_BYTES = 1 << 24
_LEAST = -1.0  # a share of the default's time, less 1


def _exports(value: Any, at: str) -> dict[str, str]:
    """Variables that a stranger may have a user export."""
    found: dict[str, str] = mapping(label, label)(value, at)
    for name, said in found.items():
        if not safe_variable(name, said):
            raise MisshapenError(f"{at}.{name[:60]} is no tuning variable of a communication library, or has a path")
    return found


def _subject(value: Any, at: str) -> str:
    """Of what a search was, as it writes it: it begins with a transport, not with what a shell would run."""
    if transport_shown_as(label(value, at).partition(" ")[0]) not in TRANSPORTS:
        raise MisshapenError(f"{at} begins with no transport of 'linkgauge list transports': expected a search's words")
    return str(value)


_SHIFT = table(
    {"share": number(_LEAST), "low": number(_LEAST), "high": number(_LEAST)}, needed=("share", "low", "high")
)
_SHAPE = table(
    {
        "subject": _subject,
        "confirmed": each(
            table(
                {
                    "environment": _exports, "proved": flag, "problem": text, "change": maybe(_SHIFT),
                    "pairs": whole(),
                },
                needed=("environment", "proved", "change", "pairs"),
            )
        ),
    },
    needed=("subject", "confirmed"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Proved:
    """A setting that a search has proved: of what (`task`), what to export, and by how much the time changes.

    `change` is a share of the default's time with its 95 % interval, of so many pairs of fresh launches. `path` is the
    search's run folder.
    """

    task: str
    exports: tuple[tuple[str, str], ...]
    change: Shift
    pairs: int
    path: str

    @property
    def words(self) -> str:
        """Two lines for a shell: `# mpi allreduce of 64 KiB on 2 ranks: -40 % of the time (...)` and `export X=Y`.

        What a stranger's file says of the search is a comment there, whatever it is.
        """
        share, low, high = (f"{100 * one:+.0f}" for one in dataclasses.astuple(self.change))
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.exports)
        gain = f"{share} % of the time ({low} to {high} %, {self.pairs} fresh pairs)"
        return f"# {self.task}: {gain}\nexport {exports}"


def is_search(folder: Path) -> bool:
    """Whether a run folder is one of a search that has ended."""
    return os.path.lexists(folder / FILE)


def proved_in(folder: Path) -> list[Proved]:
    """Return what a search proved, the best first; empty where it proved nothing.

    Raises:
        RunFolderError: the folder is of no search that has ended, or its file is not what a search writes.
    """
    if not is_search(folder):
        raise RunFolderError(f"{folder} has no {FILE}: expected the run folder of a search by 'linkgauge tune'")
    found = read_json(folder / FILE, _MOST_BYTES, "what a search found", _SHAPE, RunFolderError, links=False)
    return [
        Proved(
            found["subject"],
            tuple(sorted(one["environment"].items())),
            Shift(**one["change"]),
            one["pairs"],
            str(folder),
        )
        for one in found["confirmed"]
        if one["proved"] and one["change"] is not None
    ]
