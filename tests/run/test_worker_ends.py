"""Why a rank ends itself is told by what was raised, whatever the message says."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from linkgauge.errors import EnvironmentLackingError
from linkgauge.run.rank import worker
from linkgauge.run.wire import evidence
from linkgauge.run.wire.evidence import NoteKind
from linkgauge.run.wire.spec import WorkerSpec
from linkgauge.store import journal
from linkgauge.store.journal import JournalUnwritableError, JournalWriter


class EndedError(Exception):
    """In place of the process's end."""


@dataclasses.dataclass
class Spec:
    evidence: str


def kind_of(error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def end(status: int) -> NoReturn:
        raise EndedError

    def body() -> str:
        raise error

    monkeypatch.setattr(worker, "_end_now", end)
    with pytest.raises(EndedError):
        worker._guarded(cast(WorkerSpec, Spec(str(folder))), 0, body)
    [note] = evidence.notes(folder)
    return str(note["kind"])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EnvironmentLackingError("cannot open /scratch/journal/segment: No such file or directory"), NoteKind.ERROR),
        (EnvironmentLackingError("no memory"), NoteKind.ERROR),
        (OSError("journal"), NoteKind.ERROR),
        (JournalUnwritableError("cannot write /x: No space left on device"), NoteKind.JOURNAL),
    ],
)
def test_only_a_journal_that_cannot_be_written_ends_the_run(
    error: Exception, kind: NoteKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kind_of(error, tmp_path, monkeypatch) == kind.value


def test_a_full_disk_is_told_as_a_journal_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with JournalWriter(tmp_path / "a.lgj") as writer:
        monkeypatch.setattr(journal, "_write_all", full)
        with pytest.raises(JournalUnwritableError, match="No space left"):
            writer.append("end", {})
    with pytest.raises(JournalUnwritableError):
        JournalWriter(tmp_path / "absent" / "a.lgj")


def test_a_worker_that_does_not_see_the_run_folder_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "linkgauge.run.rank.worker", str(tmp_path / "launch.json")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, text=True, capture_output=True, check=False, env=environment)
    assert done.returncode == 1
    assert f"does not see {tmp_path / 'launch.json'}: expected a run folder on what all nodes share" in done.stderr
