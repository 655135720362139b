"""A fleet's history: the results of many runs as Parquet files below one folder, without a server.

Below the folder, or an object store's address, lie `linkgauge-history.json` with the version of the form, and
`results/kind=KIND/day=DAY/RUN.END.parquet`: RUN is the run's id and END its end, in ms. A file appears whole or not
at all, and its name is that run's alone, so that any number of writers need no lock. Compaction joins the files of one
day and kind to `all-HASH.END.parquet`, those of a past month to one in `month=MONTH/`, and then removes them. Whoever
reads while both are there takes each run from the file with its last END alone: so nothing is lost or counted twice,
whenever a writer or a compaction ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import operator
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.errors import EnvironmentLackingError, UsageError, one_line
from linkgauge.files import write_atomically
from linkgauge.store.history_form import WRITING, Part, day_field, schema

if TYPE_CHECKING:
    from mmap import mmap

    import pyarrow as pa
    import pyarrow.fs as pafs

FORMAT, FORMAT_VERSION = "linkgauge-history", 2
_OF_DAYS = 1
"""The version without months: a history states it until its first month is joined, so that older programs can add."""
MARK = "linkgauge-history.json"
_FILE = re.compile(r"(all-)?([0-9a-zA-Z_-]{1,64})\.([0-9]{1,16})\.parquet")
_LONGEST_WRITE_S = 24 * 3600
_PLACE = re.compile(r"kind=([^/]+)/(?:day=([0-9]{4}-[0-9]{2}-[0-9]{2})|month=([0-9]{4}-[0-9]{2}))/([^/]+)$")
_DAYS_BEFORE_JOINED = 7
"""How long after its end a month's days are files of their own: standings read the last days, of all nodes."""


class History:
    """A fleet's history, at a folder or an address such as s3://bucket/fleet. Made by `open`."""

    def __init__(self, files: pafs.FileSystem, root: str, name: str, version: int = FORMAT_VERSION) -> None:
        """Take a file system and the place in it; use `open`. `version`: that of its oldest files."""
        self.version = version
        self.files, self.root, self.name = files, root.rstrip("/"), name

    @classmethod
    def open(cls, name: str, *, make: bool = False) -> History:
        """Open a history; `make` it where there is none. UsageError where it is none, or of a version not known."""
        files, root = _file_system(name)
        history = cls(files, root, name)
        with _reached(name):
            mark = history._read(MARK)
            if mark is None and make:
                if other := history._holds_something():
                    raise UsageError(f"{name}: holds {other} and no history: name an empty folder, or a new one")
                history._state(_OF_DAYS)
                return history
        if mark is None:
            raise UsageError(f"{name}: no history (it has no {MARK}): 'linkgauge history {name} RUN' makes one")
        try:
            stored = json.loads(mark)
            kind, version = stored["format"], int(stored["format_version"])
        except (ValueError, KeyError, TypeError):
            kind, version = "", 0
        if kind != FORMAT or version < 1:
            raise UsageError(f"{name}/{MARK}: not of a history: expected {FORMAT} and its version")
        if version > FORMAT_VERSION:
            raise UsageError(
                f"{name}: of version {version}, and this Linkgauge reads up to {FORMAT_VERSION}: use a newer Linkgauge"
            )
        history.version = version
        return history

    @property
    def local(self) -> bool:
        """Whether it lies in a folder of this machine's file system."""
        return bool(self.files.type_name == "local")

    def append(self, rows: pa.Table, kind: str, day: str, run: str, end_ms: int) -> str:
        """Add a run's rows of one kind of node; return the file. The same run of the same end is added once."""
        run = re.sub("[^0-9a-zA-Z_-]", "-", run)[:64]
        path = f"results/kind={kind}/day={day}/{run}.{end_ms}.parquet"
        with _reached(self.name):
            if self._read(path, whole=False) is None:
                self._write(path, _parquet(rows.cast(schema()).sort_by("node")))
        return path

    def parts(self, kinds: Sequence[str] = (), since: str = "", until: str = "9") -> list[Part]:
        """Return the files of these kinds (all without any) and days, each run in one of them alone."""
        return [one for place in self._places(kinds, since, until) for one in self._once(place)]

    def _places(self, kinds: Sequence[str], since: str, until: str) -> Iterator[list[Part]]:
        """Yield the files of each day and kind, in order; those of a month together, where a file holds that month."""
        import pyarrow.fs as pafs

        with _reached(self.name):
            found = self.files.get_file_info(
                pafs.FileSelector(f"{self.root}/results", allow_not_found=True, recursive=True)
            )
        places: dict[tuple[str, str], list[Part]] = {}
        for one in found:
            place = _PLACE.search(one.path) if one.is_file else None
            named = _FILE.fullmatch(place[4]) if place else None
            if place is None or named is None or (kinds and place[1] not in kinds):
                continue
            if not _is_day(place[2] or f"{place[3]}-01"):
                continue  # a stranger's folder
            month, run = not place[2], "" if named[1] else named[2]
            part = Part(one.path, place[1], place[2] or place[3], run, int(named[3]), one.size, month=month)
            if since <= part.last_day and part.day <= until:
                part = dataclasses.replace(part, days=(since, until)) if month else part
                places.setdefault((part.day, part.kind), []).append(part)
        for day, kind in [key for key in places if (key[0][:7], key[1]) in places and len(key[0]) > len("2026-01")]:
            places[day[:7], kind] += places.pop((day, kind))
        yield from (places[key] for key in sorted(places))

    def _once(self, parts: Sequence[Part]) -> list[Part]:
        """Return the files of a day and kind without those, and without runs of those, that others have as well."""
        if all(one.run for one in parts):
            last = {one.run: one for one in sorted(parts, key=lambda one: one.end_ms)}
            return list(last.values())
        if len(parts) == 1:
            return list(parts)
        holds = [{one.run: one.end_ms} if one.run else self._runs(one) for one in parts]
        # A file of one run was written after what joined it, if both are there; of two that join, the fuller one.
        order = sorted(range(len(parts)), key=lambda at: (not parts[at].run, -len(holds[at]), parts[at].path))
        owner: dict[str, tuple[int, int]] = {}
        for at in order:
            for run, end in holds[at].items():
                if run not in owner or end > owner[run][0]:
                    owner[run] = (end, at)
        found = []
        for at in order:
            left = tuple(sorted(run for run in holds[at] if owner[run][1] != at))
            if len(left) < len(holds[at]):
                found.append(dataclasses.replace(parts[at], left_out=left))
        return found

    def _runs(self, part: Part) -> dict[str, int]:
        import pyarrow.parquet as pq

        runs: dict[str, int] = {}
        with _reached(self.name):
            try:
                file = pq.ParquetFile(part.path, filesystem=self.files)
            except FileNotFoundError:
                return {}  # a compaction joined it to a later file
            with file:
                for at in range(file.num_row_groups):
                    rows = file.read_row_group(at, columns=["run", "run_end_ms"])
                    for row in rows.group_by(["run", "run_end_ms"]).aggregate([]).to_pylist():
                        runs[row["run"]] = row["run_end_ms"]
        return runs

    def read(self, part: Part, nodes: Sequence[str] = ()) -> pa.Table:
        """Return a file's rows, without the runs that are left out. Columns that its version lacks are null.

        `nodes`: those of these nodes alone; rows lie by node, so that little else is read.
        """
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        form = schema()
        rows = ds.dataset(part.path, schema=form.append(day_field()), filesystem=self.files, format="parquet")
        conditions = [~pc.field("run").isin(list(part.left_out))] if part.left_out else []
        conditions += [pc.field("day") >= part.days[0], pc.field("day") <= part.days[1]] if part.month else []
        conditions += [pc.field("node").isin(list(nodes))] if nodes else []
        return rows.to_table(form.names, filter=functools.reduce(operator.and_, conditions) if conditions else None)

    def compact(self) -> tuple[int, int]:
        """Join the files of each day and kind, and of each past month; return how many were joined, and to how many."""
        self._remove_halves()
        joined = [self._join_day(place) for place in self._places((), "", "9") if not any(one.month for one in place)]
        months: dict[tuple[str, str], list[Part]] = {}
        for place in self._places((), "", "9"):
            months.setdefault((place[0].kind, place[0].day[:7]), []).extend(place)
        last: dict[str, str] = {}  # of each kind, so that it keeps a day by which standings know what its last days are
        for (kind, _), parts in months.items():
            last[kind] = max(last.get(kind, ""), *(one.day for one in parts if not one.month), "")
        for (kind, month), parts in months.items():
            end = date.fromisoformat(Part("", kind, month, "", 0, 0, month=True).last_day)
            if last[kind] > day_after(end, _DAYS_BEFORE_JOINED).isoformat():
                joined.append(self._join_month(month, parts))
        return sum(joined), sum(count > 0 for count in joined)

    def _join_day(self, place: Sequence[Part]) -> int:
        import pyarrow as pa

        if len(place) < 2:
            return 0
        with _reached(self.name):
            try:
                rows = pa.concat_tables([self.read(one) for one in self._once(place)])
            except FileNotFoundError:
                return 0  # another compaction is at it
            content = _parquet(rows.sort_by([("node", "ascending"), ("run", "ascending")]))
            return self._replace(place, f"day={place[0].day}", content)

    def _join_month(self, month: str, place: Sequence[Part]) -> int:
        from linkgauge.store.history_months import month_of

        if len(place) < 2:
            return 0
        with _reached(self.name):
            try:
                with month_of(self.files, self._once(place)) as content:
                    if self.version < FORMAT_VERSION:  # before older programs can miss what they do not look for
                        self._state(FORMAT_VERSION)
                    return self._replace(place, f"month={month}", content)
            except FileNotFoundError:
                return 0  # another compaction is at it

    def _replace(self, place: Sequence[Part], folder: str, content: bytes | mmap) -> int:
        """Write the file that joins those of a place, then remove them; return how many there were."""
        names = sorted(one.path.rsplit("/", 1)[1] for one in place)
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:32]
        end_ms = max(one.end_ms for one in place)
        self._write(f"results/kind={place[0].kind}/{folder}/all-{digest}.{end_ms}.parquet", content)
        for one in place:
            self._remove(one)
        return len(place)

    def _state(self, version: int) -> None:
        """State the form and its version."""
        self._write(MARK, json.dumps({"format": FORMAT, "format_version": version}).encode())
        self.version = version

    def _remove_halves(self) -> None:
        """Remove what killed writers left half-written in a folder; no reader takes it for a file of the history."""
        for half in Path(self.root).glob("results/*/*/.*.parquet.*") if self.local else ():
            with contextlib.suppress(FileNotFoundError):
                if time.time() - half.stat().st_mtime > _LONGEST_WRITE_S:
                    half.unlink()

    def expire(self, days: int, today: date) -> int:
        """Remove days that are more than `days` old, a month with its last one; return how many files that were."""
        until = day_after(today, -days - 1).isoformat()
        old = [one for place in self._places((), "", until) for one in place if one.last_day <= until]
        with _reached(self.name):
            for one in old:
                self._remove(one)
        return len(old)

    def _remove(self, part: Part) -> None:
        try:
            self.files.delete_file(part.path)
        except FileNotFoundError:
            return  # another one did

    def _holds_something(self) -> str:
        """Return the name of something that lies there, of a folder of this machine; empty for none."""
        folder = Path(self.root)
        names = sorted(one.name for one in folder.iterdir()) if self.local and folder.is_dir() else []
        return next((name for name in names if name != "results" and MARK not in name), "")  # of another writer

    def _read(self, path: str, whole: bool = True) -> bytes | None:
        import pyarrow.fs as pafs

        place = f"{self.root}/{path}"
        if self.files.get_file_info(place).type != pafs.FileType.File:
            return None
        if not whole:
            return b""
        with self.files.open_input_stream(place) as file:
            return bytes(file.read(1 << 16))

    def _write(self, path: str, content: bytes | mmap) -> None:
        """Write a file that appears whole: in a folder by a rename, in an object store at the end of its upload."""
        place = f"{self.root}/{path}"
        if self.local:
            folder = Path(place).parent
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(Path(place), content)
            return
        with self.files.open_output_stream(place) as file:
            file.write(content)


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def day_after(day: date, days: int) -> date:
    """Return the day so many days later, or earlier; beyond the calendar its last or first day."""
    return date.fromordinal(min(max(day.toordinal() + days, 1), date.max.toordinal()))


def is_history(name: str) -> bool:
    """Whether a command's word names a history: an address, or a folder with its mark."""
    return "://" in name or (Path(name) / MARK).is_file()


def rows_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows by the names of COLUMNS as a table."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema())


def _parquet(rows: pa.Table) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = pa.BufferOutputStream()
    pq.write_table(rows, out, **WRITING)
    return bytes(out.getvalue())


_EXPECTED = "expected a folder, or s3://BUCKET/PATH"


def _file_system(name: str) -> tuple[pafs.FileSystem, str]:
    import pyarrow as pa
    import pyarrow.fs as pafs

    if "://" not in name:
        return pafs.LocalFileSystem(), str(Path(name).absolute())
    try:
        files, root = pafs.FileSystem.from_uri(name)
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        raise UsageError(f"{name}: {one_line(str(error))[:200]}: {_EXPECTED}") from None
    if not root:
        raise UsageError(f"{name}: names no bucket: {_EXPECTED}")
    return files, root


@contextlib.contextmanager
def _reached(name: str) -> Iterator[None]:
    """Errors of a history's file system as one line."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise EnvironmentLackingError(f"{name}: {one_line(str(error))[:300]}") from None
