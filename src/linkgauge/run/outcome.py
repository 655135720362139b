"""What one rank brings back from a case, how it travels to rank 0, and how rank 0 makes the case's record of all."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.plan.curves import Point

COLUMNS: dict[str, str] = {
    "rank": "<i4", "lane": "<i2", "sample": "<i4", "phase": "|u1", "scheduled_ns": "<i8", "start_ns": "<i8",
    "ns": "<i8", "iterations": "<i8", "clock": "|u1",
}  # fmt: skip
_LENGTH = struct.Struct("<I")
# Which of several ranks' outcomes is the case's, the gravest first. `peer` is a rank that only met another's failure.
_GRAVITY = ("corrupt", "failed", "peer", "skipped", "timeout", "ok", "idle")


@dataclasses.dataclass
class RankOutcome:
    """One rank's part of a case. `status`: ok, timeout, corrupt, failed, skipped; peer (another rank failed); idle."""

    rank: int
    status: str
    reason: str = ""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)  # converged, coarse, verified, lanes, ...
    samples: dict[str, np.ndarray[Any, Any]] = dataclasses.field(default_factory=dict)
    fatal: bool = False  # this process or its device cannot be trusted with another case
    observations: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # rows, as run/observe.py makes them

    def to_bytes(self) -> bytes:
        """As it travels between ranks."""
        lengths = {name: int(self.samples[name].size) for name in COLUMNS if name in self.samples}
        head = json.dumps([self.rank, self.status, self.reason, self.facts, lengths, self.fatal,
                           self.observations]).encode()  # fmt: skip
        arrays = [np.ascontiguousarray(self.samples[name], dtype=COLUMNS[name]).tobytes() for name in lengths]
        return b"".join([_LENGTH.pack(len(head)), head, *arrays])

    @classmethod
    def from_bytes(cls, data: bytes) -> RankOutcome:
        """Back from `to_bytes`."""
        (length,) = _LENGTH.unpack_from(data)
        at = _LENGTH.size + length
        rank, status, reason, facts, lengths, fatal, observations = json.loads(data[_LENGTH.size : at])
        samples = {}
        for name, count in lengths.items():
            samples[name] = np.frombuffer(data, dtype=COLUMNS[name], count=count, offset=at)
            at += count * np.dtype(COLUMNS[name]).itemsize
        return cls(rank, status, reason, facts, samples, fatal, observations)


def joined_samples(outcomes: Sequence[RankOutcome]) -> dict[str, np.ndarray[Any, Any]]:
    """The samples of all ranks, one rank after the other, as the journal's columns."""
    parts = [outcome.samples for outcome in outcomes if outcome.samples]
    return {
        name: np.concatenate([part[name] for part in parts]) if parts else np.empty(0, dtype=dtype)
        for name, dtype in COLUMNS.items()
    }


_FIRST_SAMPLES = 200  # what is decided while a run goes on needs no more of a case


def point_of(case: Case, columns: Mapping[str, np.ndarray[Any, Any]]) -> Point | None:
    """A case's time of an operation and goodput as its samples arrive; None without samples, or without a size.

    Median over the first samples of the slowest timed rank's time: for the display, and to end curves. The statistics
    proper are made when the run is read.
    """
    if "ns" not in columns or not columns["ns"].size:
        return None
    pattern = PATTERNS[case.pattern]
    timed = (columns["sample"] < _FIRST_SAMPLES) & (columns["phase"] == 1)
    timed &= (columns["lane"] >= 0) & (columns["ns"] > 0)
    if pattern.latency_only or not timed.any() or case.size == 0:
        return None
    slowest = np.zeros(_FIRST_SAMPLES)
    np.maximum.at(slowest, columns["sample"][timed], columns["ns"][timed] / columns["iterations"][timed])
    slowest = np.sort(slowest[slowest > 0])
    payload = float(pattern.payload_bytes(case.size, max(case.group_ranks, 1), case.window)) * case.groups
    # Not np.median: its first call takes 15 ms of a core to import masked arrays.
    time_ns = float((slowest[(slowest.size - 1) // 2] + slowest[slowest.size // 2]) / 2)
    return Point(time_ns, payload / time_ns * 1e9)


def case_header(case: Case, outcomes: Sequence[RankOutcome], oversubscribed: bool) -> dict[str, Any]:
    """The case's record without its identity: status, reason, facts and evidence, of all ranks' outcomes."""
    gravest = min(outcomes, key=lambda outcome: _GRAVITY.index(outcome.status))
    status = "failed" if gravest.status == "peer" else gravest.status
    active = [outcome for outcome in outcomes if outcome.status != "idle"]
    pattern, n = PATTERNS[case.pattern], max(case.group_ranks, 1)
    evidence: dict[str, Any] = {}
    bad = [outcome for outcome in active if outcome.status in ("corrupt", "failed", "timeout")]
    if bad:
        evidence["ranks"] = [{"rank": one.rank, "status": one.status, "reason": one.reason} for one in bad]
        for one in bad:
            if "verify" in one.facts:
                evidence["verify"] = {"rank": one.rank, **one.facts["verify"]}
                break
    stopped = sorted({str(one.facts["stopped_by"]) for one in active if one.facts.get("stopped_by")})
    if stopped:
        evidence["stopped_by"] = stopped[0]
    return {
        "case": case.dimensions(),
        "lanes": next((one.facts["lanes"] for one in active if one.facts.get("lanes")), []),
        "bytes_per_peer": int(pattern.bytes_per_peer(case.size, n, case.window)),
        "bytes_total": int(pattern.bytes_total(case.size, n, case.window)) * case.groups,
        "status": status,
        "reason": gravest.reason if status != "ok" else "",
        "converged": bool(active) and all(one.facts.get("converged", False) for one in active),
        "coarse": any(one.facts.get("coarse", False) for one in active),
        "oversubscribed": oversubscribed,
        "verified": bool(active) and all(one.facts.get("verified", False) for one in active),
        "operations_total": max((int(one.facts.get("operations_total", 0)) for one in active), default=0),
        "evidence": evidence,
    }
