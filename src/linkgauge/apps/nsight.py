"""Nsight Systems' SQLite exports: what processes did by NCCL, as NVTX's ranges and payloads say, and by MPI.

The tables are those of `nsys export --type sqlite --include-blobs=true` (schema 3.25; NVIDIA, SQLite Schema Reference).
A call of NCCL is a range whose name begins with `nccl`; its payload, which has communicator, bytes, root and peer, is a
blob: four words of 64 bits (domain, schema, size, size with these) and then the fields of the schema
(NVTX_PAYLOAD_SCHEMA_ENTRIES; nccl's nvtx_payload_schemas.h). When it was carried out is said by the kernels that were
launched within it, or within the group that it is in.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import math
import sqlite3
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.apps.timeline import Event, follow
from linkgauge.apps.trace_steps import RankSteps
from linkgauge.apps.trace_values import sub_group
from linkgauge.errors import UsageError
from linkgauge.files import open_regular

HEADER = b"SQLite format 3\0"
_PATIENCE_S = 600
_MOST_EVENTS = 20_000_000
_PROCESS = ~0xFFFFFF  # of a global thread id, which has the thread in its lowest 24 bits
# NVTX's types of payload entries (nvToolsExtPayload.h) as struct has them; size_t is 22.
_FORMATS = {3: "<h", 4: "<H", 5: "<i", 6: "<I", 7: "<q", 8: "<Q", 9: "<q", 10: "<Q", 11: "<b", 12: "<B", 13: "<h",
            14: "<H", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}  # fmt: skip
_COMMUNICATOR, _RANKS, _RANK, _BYTES = "NCCL communicator ID", "No. of ranks", "Rank", "Message size [bytes]"
_COLLECTIVES = ("allreduce", "allgather", "reducescatter", "broadcast", "bcast", "reduce", "alltoall", "gather",
                "scatter")  # fmt: skip
_BEGUN = ("MPI_I",)
Fields = Mapping[str, tuple[int, str]]


@dataclasses.dataclass(frozen=True)
class _Call:
    begin: int
    end: int
    name: str
    said: Mapping[str, int]


@dataclasses.dataclass
class _Batch:
    """Calls of NCCL that one launch carries out: one alone, or those of a group. `over`: when kernels did so."""

    window: tuple[int, int]
    calls: list[_Call]
    over: tuple[int, int] | None = None


@dataclasses.dataclass
class _Process:
    where: str
    threads: dict[int, list[_Call]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    kernels: list[tuple[int, int, bool, int]] = dataclasses.field(default_factory=list)  # begin, end, nccl's, launch
    launches: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)  # of NCCL's: thread, begin
    mpi: list[tuple[int, int, str, Mapping[str, int]]] = dataclasses.field(default_factory=list)
    mpi_rank: int | None = None
    # Of a communicator its number of ranks and this process's, None where the begin of the program is not in the trace.
    within: dict[tuple[str, int], tuple[int, int] | None] = dataclasses.field(default_factory=dict)

    def use(self, communicator: tuple[str, int], of: tuple[int, int] | None) -> None:
        before = self.within.setdefault(communicator, of)
        if of is not None and before is not None and before != of:
            raise UsageError(f"{self.where}: one process is several ranks of a communicator: expected one rank each")
        self.within[communicator] = of or before


def is_one(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with open_regular(path, "a trace") as file:
        return file.read(len(HEADER)) == HEADER


def ranks_of(paths: Sequence[Path], lost: Counter[str], *, eager: bool = False) -> list[RankSteps]:
    """What each rank does in exports of all ranks, one or several in a file; UsageError where there is none."""
    found = [process for path in paths for process in _processes(path)]
    if not found:
        raise UsageError(f"{paths[0]}: no call of NCCL or MPI in it: expected nsys profile --trace=cuda,nvtx,mpi")
    processes = _in_order(found, lost)
    members: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)  # of a communicator, by rank within it
    for number, process in enumerate(processes):
        for communicator, of in process.within.items():
            local = len(members[communicator]) if of is None else of[1]
            members[communicator][local] = number
            if of is not None and of[0] > len(processes):
                raise UsageError(
                    f"{process.where}: a communicator of {of[0]} ranks, and {len(processes)} processes: expected the "
                    "exports of all ranks"
                )
    ranks = [RankSteps(process.where, lost, eager=eager) for process in processes]
    for number, (rank, process) in enumerate(zip(ranks, processes, strict=True)):
        follow(rank, _Following(rank, number, process, members, len(processes)).events())
    return ranks


def _in_order(found: list[_Process], lost: Counter[str]) -> list[_Process]:
    """By MPI's ranks, else by those of the largest communicator, else as they are."""
    numbers: list[int | None] = [one.mpi_rank for one in found]
    if None in numbers:
        known = ((max(filter(None, one.within.values()), default=None)) for one in found)
        numbers = [None if of is None else of[1] for of in known]
    if None in numbers or len(set(numbers)) < len(found):
        if len(found) > 1:
            lost["which process is which rank: they are taken in their order"] += 1
        return found
    return [one for _, one in sorted(zip(numbers, found, strict=True), key=lambda pair: int(pair[0] or 0))]


# --- the tables ------------------------------------------------------------------------------------------------------


def _processes(path: Path) -> list[_Process]:
    """The processes of an export that call NCCL or MPI, by their numbers."""
    until = time.monotonic() + _PATIENCE_S
    try:
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as base:
            base.execute("PRAGMA trusted_schema = OFF")
            base.text_factory = lambda content: content.decode(errors="replace")
            base.set_progress_handler(lambda: int(time.monotonic() > until), 1_000_000)
            return _Export(path, base).processes()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a column's name
        why = f"was not read within {_PATIENCE_S} s" if time.monotonic() > until else f"cannot be read ({error})"
        raise UsageError(f"{path}: {why}: expected what 'nsys export --type sqlite' writes") from None


class _Export:
    def __init__(self, path: Path, base: sqlite3.Connection) -> None:
        self._path, self._base = path, base
        self._found: dict[int, _Process] = {}
        # A virtual table has no root page. Its module, and a generated column, may compute for hours for one row.
        stored = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        self._tables = {str(name) for (name,) in base.execute(stored)}

    def processes(self) -> list[_Process]:
        if "StringIds" not in self._tables:
            raise UsageError(f"{self._path}: no table StringIds: expected what 'nsys export --type sqlite' writes")
        self._mpi()
        self._nccl()
        self._kernels()
        return [self._found[number] for number in sorted(self._found)]

    def _rows(self, table: str, wanted: str, more: str = "", names: tuple[str, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """These columns of a table's rows; NULL for one of `names` that this version's export has not."""
        if table not in self._tables:
            return
        columns = self._base.execute(f"PRAGMA table_xinfo({table})").fetchall()
        if any(hidden for *_, hidden in columns):
            raise UsageError(f"{self._path}: {table} has computed columns: expected what nsys writes")
        there = {row[1] for row in columns}
        for name in names:
            wanted += f", e.{name}" if name in there else ", NULL"
        rows = self._base.execute(f"SELECT {wanted} FROM {table} e {more}")  # words of this module alone
        for number, row in enumerate(rows):
            if number == _MOST_EVENTS:
                raise UsageError(f"{self._path}: more than {_MOST_EVENTS} rows of {table}: expected a shorter trace")
            yield row

    def _process(self, thread: int) -> _Process:
        number = thread & _PROCESS
        where = f"{self._path}: process {number >> 24 & 0xFFFFFF}"
        return self._found.setdefault(number, _Process(where))

    def _nccl(self) -> None:
        fields = self._fields()
        begin = "LEFT JOIN StringIds s ON s.id = e.textId WHERE coalesce(e.text, s.value) GLOB 'nccl*' ORDER BY e.start"
        wanted = "e.start, e.end, e.globalTid, coalesce(e.text, s.value)"
        for start, end, thread, name, blob in self._rows("NVTX_EVENTS", wanted, begin, ("binaryData",)):
            if not isinstance(start, int) or not isinstance(end, int) or not isinstance(thread, int):
                continue
            said = _decoded(blob, fields)
            process = self._process(thread)
            process.threads[thread].append(_Call(start, end, str(name)[4:], said))
            if _COMMUNICATOR in said:
                of = (said[_RANKS], said[_RANK]) if _RANKS in said and _RANK in said else None
                process.use(("nccl", said[_COMMUNICATOR]), of)

    def _fields(self) -> dict[tuple[int, int], Fields]:
        """Of each schema of a domain where its fields are, and of what format."""
        found: dict[tuple[int, int], dict[str, tuple[int, str]]] = defaultdict(dict)
        wanted = "e.domainId, e.schemaId, e.type, e.name, e.offset"
        for domain, schema, kind, name, offset in self._rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", wanted):
            if kind in _FORMATS and isinstance(name, str) and isinstance(offset, int | None):
                found[domain, schema][name] = (offset or 0, _FORMATS[kind])
        return dict(found)

    def _kernels(self) -> None:
        more = "LEFT JOIN StringIds s ON s.id = e.shortName"
        mine: dict[tuple[int, int], _Process] = {}  # by process and correlation of a launch, for NCCL's
        for start, end, number, launch, name in self._rows(
            "CUPTI_ACTIVITY_KIND_KERNEL", "e.start, e.end, e.globalPid, e.correlationId, s.value", more
        ):
            process = self._found.get(number)
            if process is None or not isinstance(start, int) or not isinstance(end, int):
                continue
            by_nccl = str(name).startswith("nccl")
            process.kernels.append((start, end, by_nccl, launch or 0))
            if by_nccl:
                mine[number, launch] = process
        for start, thread, launch in self._rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME", "e.start, e.globalTid, e.correlationId"
        ) if mine else ():  # fmt: skip
            if isinstance(thread, int) and (process := mine.get((thread & _PROCESS, launch))) is not None:
                process.launches[launch] = (thread, start)

    def _mpi(self) -> None:
        told = self._rows("MPI_RANKS", "e.globalTid, e.rank")
        ranks = {thread: rank for thread, rank in told if isinstance(rank, int)}
        groups = {(rank, handle): (uid, size, local) for rank, handle, uid, size, local in self._rows(
            "MPI_COMMUNICATORS", "e.rank, e.commHandle, e.commUid, e.size, e.localRank"
        )}  # fmt: skip
        named = "LEFT JOIN StringIds s ON s.id = e.textId"
        for table, columns in (
            ("MPI_P2P_EVENTS", ("commHandle", "size", "remoteRank")),
            ("MPI_COLLECTIVES_EVENTS", ("commHandle", "size", "recvSize", "rootRank")),
            ("MPI_START_WAIT_EVENTS", ()),
        ):
            for start, end, thread, name, *rest in self._rows(
                table, "e.start, e.end, e.globalTid, s.value", named, columns
            ):
                if not isinstance(start, int) or not isinstance(end, int) or not isinstance(thread, int):
                    continue
                process = self._process(thread)
                said = {key: value for key, value in zip(columns, rest, strict=True) if isinstance(value, int)}
                process.mpi_rank = ranks.get(thread, process.mpi_rank)
                uid, size, local = groups.get((process.mpi_rank, said.get("commHandle")), (None, None, None))
                if isinstance(uid, int) and isinstance(size, int) and isinstance(local, int):
                    said["communicator"] = uid
                    process.use(("mpi", uid), (size, local))
                process.mpi.append((start, end, str(name), said))


def _decoded(blob: object, fields: Mapping[tuple[int, int], Fields]) -> dict[str, int]:
    """A payload's fields by name; none where there is no payload, or none of these schemas."""
    if not isinstance(blob, bytes) or len(blob) < 32:
        return {}
    domain, schema, _, _ = struct.unpack_from("<4Q", blob)
    found = {}
    for name, (offset, kind) in fields.get((domain, schema), {}).items():
        if 0 <= offset <= len(blob) - 32 - struct.calcsize(kind):
            (found[name],) = struct.unpack_from(kind, blob, 32 + offset)
    return found


# --- one process -----------------------------------------------------------------------------------------------------


class _Following:
    """What one process did, when, and what of it are steps."""

    def __init__(
        self, rank: RankSteps, number: int, process: _Process, members: Mapping[tuple[str, int], Mapping[int, int]],
        of_all: int,
    ) -> None:  # fmt: skip
        self._rank, self._number, self._process = rank, number, process
        self._members, self._of_all = members, of_all

    def events(self) -> Iterator[Event]:
        """Kernels, NCCL's calls at the times of theirs, and MPI's."""
        numbers = itertools.count()
        process = self._process
        for begin, end, by_nccl, _ in process.kernels:
            if not by_nccl:
                yield Event(begin, end, next(numbers))
        for batch in self._batches():
            over = batch.over
            if over is None:
                self._rank.lost["when calls of NCCL without a kernel were over: taken as begun when called"] += 1
            sends = all(call.name.lower() == "send" for call in batch.calls)
            since, until = over or (batch.window[0], math.inf)
            yield Event(since, until, next(numbers), self._act_of(batch), sends)
        before = None
        for begin, end, name, said in sorted(process.mpi, key=lambda one: one[:2]):
            if before is not None and begin > before and not process.kernels:
                yield Event(before, begin, next(numbers))
            before = end if before is None else max(before, end)
            yield Event(begin, math.inf, next(numbers), self._mpi_act(name, said), name.endswith("send"))

    def _batches(self) -> list[_Batch]:
        found: list[_Batch] = []
        for thread, calls in self._process.threads.items():
            mine: list[_Batch] = []
            depth, begin, held = 0, 0, list[_Call]()
            for call in calls:
                if call.name == "GroupStart":
                    begin = begin if depth else call.begin
                    depth += 1
                elif call.name == "GroupEnd":
                    depth = max(0, depth - 1)
                    if depth == 0 and held:
                        mine.append(_Batch((begin, call.end), held))
                        held = []
                elif call.name.lower() in (*_COLLECTIVES, "send", "recv"):
                    if depth:
                        held.append(call)
                    else:
                        mine.append(_Batch((call.begin, call.end), [call]))
            if held:
                mine.append(_Batch((begin, held[-1].end), held))
            self._time(mine, thread)
            found += mine
        return found

    def _time(self, batches: list[_Batch], thread: int) -> None:
        """Set when kernels carried out a thread's batches, which are in their order."""
        begins = [one.window[0] for one in batches]
        for begin, end, by_nccl, launch in self._process.kernels:
            of, launched = self._process.launches.get(launch, (None, 0)) if by_nccl else (None, 0)
            place = bisect.bisect_right(begins, launched) - 1
            if of != thread or place < 0 or launched > batches[place].window[1]:
                continue
            before = batches[place].over or (begin, end)
            batches[place].over = (min(before[0], begin), max(before[1], end))

    def _act_of(self, batch: _Batch) -> Callable[[bool], None]:
        def act(_: bool) -> None:
            for call in batch.calls:
                self._nccl(call)

        return act

    def _nccl(self, call: _Call) -> None:
        said, rank = call.said, self._rank
        if _BYTES not in said:
            raise rank.fail(
                f"nccl{call.name} without its bytes: expected payloads, which 'nsys export --include-blobs=true' writes"
            )
        name, size = call.name.lower(), rank.whole(said, _BYTES)
        ranks = self._members.get(("nccl", said.get(_COMMUNICATOR, 0)), {})
        if name in ("send", "recv"):
            peer = self._global(ranks, rank.whole(said, "Peer rank"))
            self._message("send" if name == "send" else "receive", peer, size)
            return
        if name == "alltoall":  # NCCL's count is of one destination
            size *= len(ranks) or self._of_all
        root = self._global(ranks, rank.whole(said, "Root", 0))
        name = "broadcast" if name == "bcast" else name
        rank.collective(name, {"in": size, "out": size}, self._group(ranks), root, True)

    def _message(self, verb: str, peer: int, size: int) -> None:
        if peer == self._number:
            self._rank.lost["messages of a rank to itself"] += 1
        else:
            self._rank.message(verb, peer, size)

    def _mpi_act(self, call: str, said: Mapping[str, int]) -> Callable[[bool], None]:
        rank = self._rank
        begun = call.startswith(_BEGUN) and call not in ("MPI_Iprobe", "MPI_Improbe")
        name = call.removeprefix("MPI_").lower().removeprefix("i" if begun else "")
        ranks = self._members.get(("mpi", said.get("communicator", 0)), {})

        def act(_: bool) -> None:
            if name.startswith(("wait", "test")):
                rank.wait()
            elif name in ("send", "ssend", "bsend", "rsend", "recv", "mrecv"):
                if said.get("remoteRank", 0) < 0:  # MPI_PROC_NULL or MPI_ANY_SOURCE
                    rank.lost["messages to no rank, or from any"] += 1
                    return
                peer = self._global(ranks, rank.whole(said, "remoteRank"))
                self._message("receive" if name.endswith("recv") else "send", peer, rank.whole(said, "size"))
            elif "rootRank" in said or "size" in said or name == "barrier":
                plain = {"bcast": "broadcast", "gatherv": "gather", "scatterv": "scatter"}.get(name, name)
                sizes = {"in": rank.whole(said, "size", 0), "out": rank.whole(said, "recvSize", 0)}
                rooted = plain in ("broadcast", "gather", "scatter", "reduce")
                root = self._global(ranks, rank.whole(said, "rootRank", 0)) if rooted else 0
                rank.collective(plain, sizes, self._group(ranks), root, begun)
            else:
                rank.lost[f"'{call[:40]}', which is no step here"] += 1
            if name.endswith("send"):
                if not begun:
                    rank.sent()
            elif not begun:
                rank.wait()

        return act

    def _global(self, ranks: Mapping[int, int], local: int) -> int:
        if ranks and local not in ranks:
            raise self._rank.fail(f"rank {local} of a communicator, which no process is: expected all ranks' exports")
        return ranks.get(local, local)

    def _group(self, ranks: Mapping[int, int]) -> Any:
        return sub_group(self._rank, sorted(ranks.values()), self._of_all)
