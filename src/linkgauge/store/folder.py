"""The run folder: run.json, the journals of a run in progress, and the Parquet tables made from them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError, RunFolderError, UsageError
from linkgauge.files import fsync_folder, write_atomically
from linkgauge.model.shape import as_it_is, checked, read_json
from linkgauge.store import schema
from linkgauge.store.hold import Hold
from linkgauge.store.journal import (
    JournalDamage,
    JournalWriter,
    Record,
    is_folder,
    launch_files,
    no_link,
    read_journal,
)
from linkgauge.store.shapes import INFO, RECORDS

_STATUSES = "statuses.lgj"
_MAX_INFO_BYTES = 16 << 20
_HALF_WRITTEN = re.compile(r"\.(run\.json|plan\.json|report\.html)\.\w+|\.[\w-]+\.parquet\.new")
_LAUNCH_NAME = re.compile(r"launch-\d{5,9}\.\w+")  # by which a folder holds nothing of a run's, and is in the way
_OF_A_LAUNCH = re.compile(r"launch-\d{5,9}\.(?!lgj$|damaged$)\w+|(?:choices|load)-\d{5,9}\.\w+")


class RunFolder:
    """A run folder that is being written, or is read. Made by `create` or `open`."""

    def __init__(self, path: Path, info: dict[str, Any]) -> None:
        """Take over an existing folder; use `create` or `open`."""
        self.path = path
        self.info = info
        self._version = info["format_version"]  # as run.json has it on the disk
        self._statuses: JournalWriter | None = None
        self._held: Hold | None = None
        self._damages: dict[Path, list[JournalDamage]] = {}  # of each journal that was read

    @property
    def damages(self) -> list[str]:
        """What of the journals is damaged, a sentence each: what was found when they were read, and before."""
        found = [str(one) for ones in self._damages.values() for one in ones]
        return list(dict.fromkeys([*self.info.get("damaged", []), *found]))

    @classmethod
    def create(cls, path: str | os.PathLike[str], info: dict[str, Any]) -> RunFolder:
        """Make a new run folder, open to its user alone, with `info` (plain JSON values) in run.json.

        UsageError where the path exists or cannot be made.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, mode=0o700)
            (path / "journal").mkdir(mode=0o700)
        except FileExistsError:
            raise UsageError(f"{path} exists already: give --out a folder that does not") from None
        except OSError as error:
            raise UsageError(f"cannot make the run folder {path}: {error.strerror}") from None
        named = {"format": schema.FORMAT, "format_version": schema.FORMAT_VERSION, "id": uuid.uuid4().hex}
        folder = cls(path, named | info)
        try:
            folder._write_info()
        except EnvironmentLackingError as error:
            raise UsageError(str(error)) from None
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Open an existing run folder. RunFolderError where it is none, or is of a version that cannot be read."""
        path = Path(path)
        try:
            is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            raise RunFolderError(f"{path}: no such run folder: give the one that 'linkgauge run' printed") from None
        except PermissionError as error:  # of a folder above it
            raise RunFolderError(f"{path}: {error.strerror}: ask its owner to let you read it (chmod)") from None
        if not is_folder:
            raise RunFolderError(
                f"{path}: not a folder: give the run folder that 'linkgauge run' printed, or make one of another "
                f"tool's log: linkgauge import {path}"
            )
        if not os.path.lexists(path / "run.json"):
            raise RunFolderError(
                f"{path}: not a run folder (it has no run.json): give the one that 'linkgauge run' printed"
            )
        stored = read_json(path / "run.json", _MAX_INFO_BYTES, "that of a run", INFO, RunFolderError, links=False)
        folder = cls(path, schema.migrate(stored, str(path)))
        folder._version = stored["format_version"]
        return folder

    @property
    def resumable(self) -> bool:
        """Whether its cases have the keys that the present names give them: not those of older formats."""
        return bool(self.info.get("keys_of_format", schema.FORMAT_VERSION) >= schema.FIRST_OF_THESE_KEYS)

    def check_resumable(self) -> None:
        """UsageError where it is not: what is measured into it would have other keys than what is there."""
        if not self.resumable:
            raise UsageError(
                f"{self.path}: an older Linkgauge made this run: read it (linkgauge show {self.path}), or measure anew"
            )

    def hold(self) -> None:
        """Let nobody else measure into this folder until this process ends; a second call does nothing.

        UsageError where another process does, or may do so where that cannot be seen (store/hold.py).
        """
        if self._held is None:
            self._held = Hold(self.path)

    def update_info(self, values: dict[str, Any]) -> None:
        """Set keys of run.json; the file is replaced atomically and is durable when this returns."""
        for name in ("format", "format_version"):
            if values.get(name, self.info[name]) != self.info[name]:
                raise ValueError(f"'{name}' of a run folder does not change")
        self.info = {**self.info, **values}
        self._write_info()

    def journal_path(self, launch: int) -> Path:
        """Return where rank 0 of a launch (numbered from 0) writes its journal."""
        return self._made_journal_folder() / f"launch-{launch:05d}.lgj"

    def status_journal(self) -> JournalWriter:
        """Return the writer of the parent's journal, the same one at each call until `compact(finish=True)`."""
        if self._statuses is None:
            self._statuses = JournalWriter(self._made_journal_folder() / _STATUSES)
        return self._statuses

    def launch_journals(self) -> dict[int, Path]:
        """Return the journals that have not been removed yet, by the number of their launch."""
        return launch_files(self._journal_folder(), "lgj")

    def launch_records(self, launch: int) -> Iterator[Record]:
        """Yield the records of a launch's journal. RunFolderError where one belongs to another launch."""
        path = self._journal_folder() / f"launch-{launch:05d}.lgj"
        for record in self._records(path):
            if record.header.get("launch") != launch:
                raise RunFolderError(f"{path}: holds a record of launch {record.header.get('launch')!r}")
            yield record

    def status_records(self) -> Iterator[Record]:
        """Yield the parent's records."""
        path = self.status_path()
        if path.exists() or path.is_symlink():
            yield from self._records(path)

    def status_path(self) -> Path:
        """Return where the parent's statuses lie while the run is in progress."""
        return self._journal_folder() / _STATUSES

    def set_aside(self, journal: Path) -> None:
        """Remove a journal of which all is in the tables; a damaged one stays beside them, and run.json says so."""
        if self._damages.get(journal):
            self.update_info({"damaged": self.damages})
            os.replace(journal, journal.with_suffix(".damaged"))
        else:
            journal.unlink()
        fsync_folder(journal.parent)

    def compact(self, finish: bool = False) -> None:
        """Move what the journals of ended launches hold into files that are never written again.

        No launch may be writing. Of each launch the samples and observations become a Parquet file each; what else its
        journal says is added to the parent's. A journal is removed only when all of that is durable; until then readers
        leave out of it what lies elsewhere, so that a crash at any moment neither loses nor doubles a row. Of a damaged
        journal what is whole is moved. With `finish` the parent's journal becomes the tables of cases and launches.
        Raises EnvironmentLackingError where something cannot be written (a full disk); the journals are then intact.
        """
        from linkgauge.store import compaction

        try:
            compaction.compact(self, finish)
        except OSError as error:
            raise EnvironmentLackingError(
                f"cannot write the tables in {self.path}: {error.strerror or error}"
            ) from None

    def clear_unfinished(self) -> None:
        """Remove what a process that was ended at any moment left half-written, and what only its launches read.

        Of a folder that is held: nobody else is writing. EnvironmentLackingError where that is not possible.
        """
        folders = {self.path: _HALF_WRITTEN, self._journal_folder(): _OF_A_LAUNCH}
        folders |= {no_link(self.path / name): _HALF_WRITTEN for name in schema.BY_LAUNCH}
        try:
            for folder, names in folders.items():
                for path in folder.iterdir() if folder.is_dir() else ():
                    if names.fullmatch(path.name) or (_LAUNCH_NAME.fullmatch(path.name) and is_folder(path)):
                        _remove(path)
        except OSError as error:
            raise EnvironmentLackingError(f"cannot write in {self.path}: {error.strerror}") from None

    def settle_format(self) -> None:
        """Write the present format's version into run.json, before anything is that older readers cannot read."""
        if self._version != schema.FORMAT_VERSION:
            self._write_info()
            (self.path / ".samples.parquet.new").unlink(missing_ok=True)  # which format 1 left half-written

    def confirm_unjudged(self) -> int:
        """Write a status for each case that rank 0 recorded whole but whose parent died before saying so.

        Returns how many there were. For a run that is resumed: such a case need not be measured again.
        """
        from linkgauge.store import compaction

        return compaction.confirm_unjudged(self)

    def close(self) -> None:
        """Close the statuses' journal, if it is open."""
        if self._statuses is not None:
            self._statuses.close()
            self._statuses = None

    def _journal_folder(self) -> Path:
        return no_link(self.path / "journal")

    def _records(self, path: Path) -> Iterator[Record]:
        """Yield the whole records of a journal, each as docs/reference/run-folder.md says, and note damages.

        RunFolderError for records that are of another form.
        """
        found = self._damages[path] = []
        for record in read_journal(path, damaged=found):
            shape = RECORDS.get(record.kind, as_it_is)
            header = checked(record.header, shape, f"{path}: a {record.kind[:40]} record", RunFolderError)
            yield dataclasses.replace(record, header=header)

    def _made_journal_folder(self) -> Path:
        path = self._journal_folder()
        try:
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise EnvironmentLackingError(f"cannot write the run folder {self.path}: {error.strerror}") from None
        return path

    def _write_info(self) -> None:
        write_atomically(self.path / "run.json", json.dumps(self.info, indent=1, default=str).encode() + b"\n")
        self._version = schema.FORMAT_VERSION


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink()
