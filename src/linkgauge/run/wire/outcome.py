"""What one rank brings back from a case, how it travels to rank 0, and how rank 0 makes the case's record of all.

Where a rank's share is small it travels whole, in one message. Else its samples and observations stay behind; rank 0
asks all ranks for them when it has heard of all, and writes what comes as it comes (run/rank/case_record.py).
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.plan.curves import Point
from linkgauge.run.machine import nccl_log
from linkgauge.run.machine.observe import Row, notable

COLUMNS: dict[str, str] = {
    "rank": "<i4", "lane": "<i2", "sample": "<i4", "phase": "|u1", "scheduled_ns": "<i8", "start_ns": "<i8",
    "ns": "<i8", "iterations": "<i8", "clock": "|u1",
}  # fmt: skip
SAMPLE_BYTES = sum(np.dtype(dtype).itemsize for dtype in COLUMNS.values())
OBSERVING = "observing"
"""Of an outcome's facts: what each reading beside the case took, in ns, by part."""
_LENGTH = struct.Struct("<I")
_MOST_RANKS_TOLD = 1000  # by name, of those where a case went wrong: a record's header is read as a whole
# Which of several ranks' outcomes is the case's, the gravest first. `peer` is a rank that only met another's failure.
_GRAVITY = ("corrupt", "failed", "peer", "skipped", "disturbed", "timeout", "ok", "idle")


@dataclasses.dataclass
class RankOutcome:
    """One rank's part of a case. `status`: ok, timeout, corrupt, failed, skipped; peer (another rank failed); idle.

    Of a rank that played a load: idle, or disturbed where the load failed beside what was measured.
    """

    rank: int
    status: str
    reason: str = ""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)  # converged, coarse, verified, lanes, ...
    samples: dict[str, np.ndarray[Any, Any]] = dataclasses.field(default_factory=dict)
    fatal: bool = False  # this process or its device cannot be trusted with another case
    observations: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # rows of run/machine/observe.py
    left: dict[str, Any] = dataclasses.field(
        default_factory=dict
    )  # what stayed on the rank, of `brief`; empty: nothing

    @property
    def sample_count(self) -> int:
        """How many samples the rank has, whether they came along or stayed."""
        return int(self.left.get("samples", 0)) or (int(self.samples["ns"].size) if self.samples else 0)

    def brief(self) -> RankOutcome:
        """The outcome as it travels where it is long: `left` says how many samples, observations and lanes stay.

        And what of the observations belongs into the case's evidence. Lanes are the same on each rank, and may be as
        many as there are ranks.
        """
        rows, lanes = self.observations, self.facts.get("lanes") or []
        left: dict[str, Any] = {}
        if rows or lanes or self.sample_count:
            left = {"samples": self.sample_count, "observations": len(rows), "lanes": len(lanes),
                    "evidence": evidence_of(rows)}  # fmt: skip
        facts = {name: value for name, value in self.facts.items() if name != "lanes"}
        return dataclasses.replace(self, facts=facts, samples={}, observations=[], left=left)

    def to_bytes(self) -> bytes:
        """As it travels between ranks."""
        lengths = {name: int(self.samples[name].size) for name in COLUMNS if name in self.samples}
        head = json.dumps([self.rank, self.status, self.reason, self.facts, lengths, self.fatal,
                           self.observations, self.left]).encode()  # fmt: skip
        arrays = [np.ascontiguousarray(self.samples[name], dtype=COLUMNS[name]).tobytes() for name in lengths]
        return b"".join([_LENGTH.pack(len(head)), head, *arrays])

    @classmethod
    def from_bytes(cls, data: bytes) -> RankOutcome:
        """Back from `to_bytes`."""
        (length,) = _LENGTH.unpack_from(data)
        at = _LENGTH.size + length
        rank, status, reason, facts, lengths, fatal, observations, left = json.loads(data[_LENGTH.size : at])
        samples = {}
        for name, count in lengths.items():
            samples[name] = np.frombuffer(data, dtype=COLUMNS[name], count=count, offset=at)
            at += count * np.dtype(COLUMNS[name]).itemsize
        return cls(rank, status, reason, facts, samples, fatal, observations, left)


def evidence_of(rows: Iterable[Row]) -> dict[str, Any]:
    """What of observations belongs into a case's evidence."""
    kept = list(rows)
    return notable(kept) | nccl_log.chosen(kept)


def merged_evidence(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """`evidence_of` all ranks' rows, of what each rank found in its own."""
    merged: dict[str, Any] = {}
    for one in found:
        for subject, words in one.get("throttled", {}).items():
            said = merged.setdefault("throttled", {}).setdefault(subject, [])
            said += [word for word in words if word not in said]
        for subject, counters in one.get("errors_rose", {}).items():
            merged.setdefault("errors_rose", {}).setdefault(subject, {}).update(counters)
        if "chosen" in one:
            merged["chosen"] = one["chosen"]
    return merged


def joined_samples(outcomes: Sequence[RankOutcome]) -> dict[str, np.ndarray[Any, Any]]:
    """The samples of all ranks, one rank after the other, as the journal's columns."""
    parts = [outcome.samples for outcome in outcomes if outcome.samples]
    return {
        name: np.concatenate([part[name] for part in parts]) if parts else np.empty(0, dtype=dtype)
        for name, dtype in COLUMNS.items()
    }


FIRST_SAMPLES = 200  # what is decided while a run goes on needs no more of a case


def has_point(case: Case) -> bool:
    """Whether samples of the case make a time and a goodput."""
    return not PATTERNS[case.pattern].latency_only and case.size != 0


def slowest_ns(columns: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Of each of the first samples the time of an operation, on the slowest rank where the columns are of several.

    Zero where there is none. Of several ranks' the maximum is that of them all.
    """
    slowest = np.zeros(FIRST_SAMPLES)
    if "ns" in columns and columns["ns"].size:
        timed = (columns["sample"] < FIRST_SAMPLES) & (columns["phase"] == 1)
        timed &= (columns["lane"] >= 0) & (columns["ns"] > 0)
        np.maximum.at(slowest, columns["sample"][timed], columns["ns"][timed] / columns["iterations"][timed])
    return slowest


def point_of(case: Case, columns: Mapping[str, np.ndarray[Any, Any]]) -> Point | None:
    """A case's time of an operation and goodput as its samples arrive; None without samples, or without a size.

    Median over the first samples of the slowest timed rank's time: for the display, and to end curves. The statistics
    proper are made when the run is read.
    """
    return point_from(case, slowest_ns(columns)) if has_point(case) else None


def point_from(case: Case, slowest: np.ndarray[Any, Any]) -> Point | None:
    """`point_of` the samples of which `slowest_ns` is known."""
    slowest = np.sort(slowest[slowest > 0])
    if not slowest.size or not has_point(case):
        return None
    pattern = PATTERNS[case.pattern]
    n = max(case.group_ranks, 1)
    payload = float(pattern.payload_bytes(case.size, n, case.window, case.distribution)) * case.groups
    # Not np.median: its first call takes 15 ms of a core to import masked arrays.
    time_ns = float((slowest[(slowest.size - 1) // 2] + slowest[slowest.size // 2]) / 2)
    return Point(time_ns, payload / time_ns * 1e9)


def _gravest(outcomes: Sequence[RankOutcome]) -> RankOutcome:
    return min(outcomes, key=lambda outcome: _GRAVITY.index(outcome.status))


def case_status(outcomes: Sequence[RankOutcome]) -> str:
    """The case's status, of all ranks' outcomes."""
    status = _gravest(outcomes).status
    return "failed" if status == "peer" else status


def _chosen(outcomes: Sequence[RankOutcome]) -> dict[str, str]:
    """What the ranks chose, by name; of unlike ranks each different choice once."""
    found = grouped(pair for one in outcomes for pair in one.facts.get("chosen", {}).items())
    return {name: " or ".join(dict.fromkeys(values)) for name, values in found.items()}


def case_header(case: Case, outcomes: Sequence[RankOutcome], oversubscribed: bool) -> dict[str, Any]:
    """The case's record without its identity: status, reason, facts and evidence, of all ranks' outcomes."""
    gravest, status = _gravest(outcomes), case_status(outcomes)
    active = [outcome for outcome in outcomes if outcome.status not in ("idle", "disturbed")]
    pattern, n = PATTERNS[case.pattern], max(case.group_ranks, 1)
    evidence: dict[str, Any] = {}
    bad = [outcome for outcome in outcomes if outcome.status in ("corrupt", "failed", "timeout", "disturbed")]
    if bad:
        told = bad[:_MOST_RANKS_TOLD]
        evidence["ranks"] = [{"rank": one.rank, "status": one.status, "reason": one.reason} for one in told]
        if len(bad) > len(told):
            evidence["ranks_not_told"] = len(bad) - len(told)
        for one in bad:
            if "verify" in one.facts:
                evidence["verify"] = {"rank": one.rank, **one.facts["verify"]}
                break
    chosen = _chosen(active)
    if chosen:
        evidence["chosen"] = chosen
    stopped = sorted({str(one.facts["stopped_by"]) for one in active if one.facts.get("stopped_by")})
    if stopped:
        evidence["stopped_by"] = stopped[0]
    return {
        "case": case.dimensions(),
        "lanes": next((one.facts["lanes"] for one in active if one.facts.get("lanes")), []),
        "bytes_per_peer": int(pattern.bytes_per_peer(case.size, n, case.window, case.distribution)),
        "bytes_total": int(pattern.bytes_total(case.size, n, case.window, case.distribution)) * case.groups,
        "status": status,
        "reason": gravest.reason if status != "ok" else "",
        "converged": bool(active) and all(one.facts.get("converged", False) for one in active),
        "coarse": any(one.facts.get("coarse", False) for one in active),
        "oversubscribed": oversubscribed,
        "verified": bool(active) and all(one.facts.get("verified", False) for one in active),
        **{
            name: max((int(one.facts.get(name, 0)) for one in active), default=0)
            for name in ("operations_total", "operations_checked")
        },
        "evidence": evidence,
    }
