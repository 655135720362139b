"""`linkgauge import`: other tools' logs as a run folder. What is not understood is reported, never guessed."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from linkgauge.errors import LinkgaugeError, UsageError
from linkgauge.exchange import import_blink, import_nccl, import_nvbandwidth, import_osu
from linkgauge.exchange.imported import MOST_RANKS, Hints, ImportedLog, write_run
from linkgauge.files import read_file
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import as_it_is, checked, one_of, parsed, table, whole
from linkgauge.model.transports import TRANSPORTS

__all__ = ["Hints", "Imported", "import_files", "read_log"]

_MAX_BYTES = 1 << 30
_HINTS = {"--ranks": whole(1, MOST_RANKS), "--window": whole(1, MOST_RANKS), "--pattern": one_of(PATTERNS),
          "--transport": one_of(TRANSPORTS)}  # fmt: skip
_TEXTS = {"nccl-tests": import_nccl, "OSU": import_osu, "nvbandwidth": import_nvbandwidth, "blink": import_blink}
_JSONS = {"nccl_version": ("nccl-tests", import_nccl), "nvbandwidth": ("nvbandwidth", import_nvbandwidth)}  # by a key


@dataclasses.dataclass(frozen=True)
class Imported:
    """How many cases were written, and what was left out, a line each."""

    cases: int
    problems: list[str]


def import_files(files: Sequence[Path], output: Path, hints: Hints) -> Imported:
    """Write the run folder `output` of the logs in `files`, one launch a log.

    UsageError for a file that cannot be read or is of no known tool, where no case was understood, where the hints
    name no pattern or transport, or where `output` exists.
    """
    given = {f"--{name}": value for name, value in dataclasses.asdict(hints).items() if value is not None}
    checked(given, table(_HINTS), "import")
    if output.exists():
        raise UsageError(f"{output} exists already: give --out a folder that does not")
    logs = [read_log(file, hints) for file in files]
    problems = [problem for log in logs for problem in log.problems]
    if not any(log.cases for log in logs):
        raise UsageError(f"nothing was understood: {problems[0] if problems else 'the logs hold no results'}")
    try:
        return Imported(write_run(output, logs), problems)
    except LinkgaugeError:
        shutil.rmtree(output, ignore_errors=True)  # made by this call, and half of it is of no use
        raise


def read_log(file: Path, hints: Hints) -> ImportedLog:
    """Return what is understood of one log. UsageError where it cannot be read or is of no known tool."""
    text = read_file(file, _MAX_BYTES, "a log of one of these tools").decode(errors="replace")
    if text.lstrip()[:1] in ("{", "["):
        return _json_log(file, text, hints)
    for tool, reader in _TEXTS.items():
        if reader.TEXT.search(text):
            log = ImportedLog(tool, file.name)
            reader.read_text(text, log, hints)
            return log
    raise UsageError(f"{file}: not a log of nccl-tests, rccl-tests, OSU, nvbandwidth or blink")


def _json_log(file: Path, text: str, hints: Hints) -> ImportedLog:
    data = parsed(text, as_it_is, str(file))
    for key, (tool, reader) in _JSONS.items():
        if isinstance(data, dict) and key in data:
            log = ImportedLog(tool, file.name)
            reader.read_json(checked(data, reader.JSON, f"{file}: not as {tool} writes it"), log, hints)
            return log
    raise UsageError(f"{file}: not JSON of nccl-tests or nvbandwidth")
