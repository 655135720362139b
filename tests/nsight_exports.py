"""Small SQLite exports as Nsight Systems 2026.2 writes them (schema 3.25): columns that are read, and some others."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
    domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
    int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT);
CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL, idx INTEGER NOT NULL,
    flags INTEGER, type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE MPI_RANKS (globalTid INTEGER NOT NULL, rank INTEGER NOT NULL);
CREATE TABLE MPI_COMMUNICATORS (rank INTEGER, timestamp INTEGER, commHandle INTEGER, parentHandle INTEGER,
    localRank INTEGER, size INTEGER, groupRoot INTEGER, groupRootUid INTEGER, members TEXT, commUid INTEGER);
CREATE TABLE MPI_P2P_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER,
    commHandle INTEGER, tag INTEGER, remoteRank INTEGER, size INTEGER, requestHandle INTEGER);
CREATE TABLE MPI_COLLECTIVES_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER,
    commHandle INTEGER, rootRank INTEGER, size INTEGER, recvSize INTEGER, requestHandle INTEGER);
CREATE TABLE MPI_START_WAIT_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER,
    requestHandle INTEGER);
"""
DOMAIN = 1
# NCCL's static schemas as nsys numbers them: fields with NVTX's type and offset, and how struct packs all of them.
SCHEMAS = {
    "CommInitRank": (0x1000002, [("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12),
                                 ("CUDA device", 5, 16)], "<Qiii4x"),
    "GroupEnd": (0x100000E, [("NCCL communicator ID", 18, None)], "<Q"),
    "AllGather": (0x1000003, [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)], "<QQ"),
    "AllReduce": (0x1000004, [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8),
                              ("Reduction operation", 0x1000010, 16)], "<QQI4x"),
    "Broadcast": (0x1000005, [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8), ("Root", 5, 16)],
                  "<QQi4x"),
    "ReduceScatter": (0x1000008, [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)], "<QQ"),
    "AlltoAll": (0x1000011, [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)], "<QQ"),
    "Send": (0x1000009, [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8), ("Peer rank", 5, 16)],
             "<QQi4x"),
}  # fmt: skip
SCHEMAS["Recv"] = SCHEMAS["Send"]


class Export:
    """An export that is being written; times are in ns."""

    def __init__(self, path: Path, *, payloads: bool = True) -> None:
        self.path, self._payloads = path, payloads
        self._base = sqlite3.connect(path)
        self._base.executescript(TABLES)
        self._strings: dict[str, int] = {}
        self._correlation = 0
        for number, fields, _ in {id(one): one for one in SCHEMAS.values()}.values():
            for place, (name, kind, offset) in enumerate(fields):
                row = (DOMAIN, number, place, None, kind, name, None, None, offset)
                self._add("NVTX_PAYLOAD_SCHEMA_ENTRIES", *row)

    def _add(self, table: str, *row: object) -> None:
        self._base.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def _string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self._add("StringIds", self._strings[text], text)
        return self._strings[text]

    @staticmethod
    def thread(process: int, thread: int = 1) -> int:
        """A global thread id: a machine's bits, 24 of the process, 24 of the thread."""
        return 0x1_0000_0000_0000 | process << 24 | thread

    def nccl(self, process: int, begin: int, end: int, name: str, *values: int, registered: bool = True) -> None:
        """A range of NCCL's, with its payload's fields."""
        blob = None
        if values and self._payloads:
            number, _, packed = SCHEMAS[name]
            content = struct.pack(packed, *values)
            blob = struct.pack("<4Q", DOMAIN, number, len(content), 32 + len(content)) + content
        text = (None, self._string(f"nccl{name}")) if registered else (f"nccl{name}", None)
        row = [begin, end, 59, None, None, None, text[0], self.thread(process), None, text[1], DOMAIN]
        self._add("NVTX_EVENTS", *row, *[None] * 8, blob)

    def kernel(self, process: int, begin: int, end: int, name: str, launched: int) -> None:
        """A kernel, and its launch by the process's thread."""
        self._correlation += 1
        named = self._string(name)
        pid = self.thread(process, 0)
        self._add("CUPTI_ACTIVITY_KIND_KERNEL", begin, end, 0, 7, self._correlation, pid, named, named)
        self._add("CUPTI_ACTIVITY_KIND_RUNTIME", launched, launched + 1, 0, self.thread(process), self._correlation,
                  self._string("cudaLaunchKernel"), 0)  # fmt: skip

    def mpi(self, table: str, process: int, begin: int, end: int, name: str, *values: int | None) -> None:
        """A call of MPI in one of its tables, with what that has behind the name."""
        self._add(f"MPI_{table}_EVENTS", begin, end, self.thread(process), self._string(name), *values)

    def mpi_rank(self, process: int, rank: int) -> None:
        self._add("MPI_RANKS", self.thread(process), rank)

    def communicator(self, rank: int, handle: int, local: int, size: int, uid: int) -> None:
        self._add("MPI_COMMUNICATORS", rank, 0, handle, 0, local, size, 0, 0, "", uid)

    def closed(self) -> Path:
        self._base.commit()
        self._base.close()
        return self.path
