"""Run folders and other tools' logs alike, for commands that read either."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from linkgauge.errors import UsageError
from linkgauge.exchange.importers import MAX_BYTES, Hints, import_files
from linkgauge.files import read_file
from linkgauge.system import catalog
from linkgauge.system.dump import to_data

_OF_IMPORT = re.compile(r" --(?:ranks|pattern|transport|size|window)\b")  # what a log may lack


@dataclasses.dataclass(frozen=True)
class Opened:
    """Run folders; of those made of logs the names of their files; a line for each thing that was left out of a log."""

    runs: list[Path]
    names: Mapping[Path, str]
    left_out: Sequence[str]

    def name(self, run: Path) -> str:
        """What a user calls a run."""
        return self.names.get(run, str(run))


def is_log(path: Path) -> bool:
    """Whether a file is a log that is read, and no description of a machine, no baseline and no rules."""
    if not path.is_file() or path.suffix == ".toml":
        return False
    try:
        with opened([path]):
            return True
    except UsageError:
        return False


@contextlib.contextmanager
def opened(paths: Sequence[Path], system_name: str = "") -> Iterator[Opened]:
    """Run folders as they are, and of each file, which is a log, a run folder that is gone at the end.

    `system_name`: the machine of all logs, where it is known. UsageError for a log that is not read, or given twice:
    copies of one measurement would show no spread.
    """
    if absent := next((path for path in paths if not os.path.exists(path)), None):
        raise UsageError(f"{absent}: no such run folder or log: give the folder that 'linkgauge run' printed, or a log")
    system = to_data(catalog.load(system_name)) if system_name else None
    known: dict[str, Path] = {}
    folders: dict[Path, Path] = {}
    left_out: list[str] = []
    with contextlib.ExitStack() as held:
        for log in (path for path in paths if path.is_file()):
            content = hashlib.sha256(read_file(log, MAX_BYTES, "a run folder or a log")).hexdigest()
            if content in known:
                raise UsageError(f"{log} and {known[content]} hold the same: expected each log once")
            known[content] = log
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="linkgauge-log-"))) / "run"
            try:
                left_out += import_files([log], folder, Hints(), system).problems
            except UsageError as error:
                if not _OF_IMPORT.search(str(error)):
                    raise
                raise UsageError(f"{error}: 'linkgauge import {log}' has these options") from None
            folders[log] = folder
        runs = [folders.get(path, path) for path in paths]
        yield Opened(runs, {run: str(log) for log, run in folders.items()}, left_out)
