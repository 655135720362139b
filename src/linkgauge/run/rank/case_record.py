"""A case's outcomes of all ranks at rank 0, and their samples and observations on their way into the journal.

First each rank's outcome comes, whole where that is small. Where some were left behind, rank 0 tells all ranks to send
the rest, part after part, and writes what comes as it comes: it holds no more of it than some windows
(run/rank/gathering.py). The parts are the lanes, of one rank; what a curve needs; the observations, as JSON; and the
samples, one column after the other, as they lie in the journal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.plan.curves import Point
from linkgauge.run.rank import gathering
from linkgauge.run.rank.gathering import Frames, Ranks, framed, gathered
from linkgauge.run.wire.outcome import (
    COLUMNS,
    FIRST_SAMPLES,
    SAMPLE_BYTES,
    RankOutcome,
    case_header,
    case_status,
    evidence_of,
    has_point,
    joined_samples,
    merged_evidence,
    point_from,
    point_of,
    slowest_ns,
)
from linkgauge.store.journal import JournalWriter

LANES, SLOWEST, OBSERVATIONS, SAMPLES = "lanes", "slowest", "observations", "samples"
_ROWS_BYTES = 1 << 20  # of observations in one record
_HAS_POINT = ("ok", "timeout")


def send_outcome(ranks: Ranks, outcome: RankOutcome, launch_ranks: int, *, keep: bool) -> list[RankOutcome]:
    """Bring all outcomes to the rank that keeps them, rank 0, by rank; the others get none. Collective."""
    outcomes = [RankOutcome.from_bytes(data) for data in gathered(ranks, traveling(outcome, launch_ranks), keep=keep)]
    return sorted(outcomes, key=lambda one: one.rank)


def traveling(outcome: RankOutcome, launch_ranks: int) -> bytes:
    """The outcome as it travels: whole where those of all ranks, were they as long, would fit into one window."""
    most = gathering.WINDOW_BYTES // launch_ranks
    whole = outcome.to_bytes() if outcome.sample_count * SAMPLE_BYTES <= most else None
    return whole if whole is not None and len(whole) <= most else outcome.brief().to_bytes()


def send_rest(ranks: Ranks, outcome: RankOutcome, asked: Mapping[str, Any]) -> None:
    """Send what rank 0 asks for (`Rest.asked`). Collective, for all ranks but rank 0."""
    for part in asked["parts"]:
        for data in part_of(part, outcome, asked):
            ranks.gather(data())


def part_of(part: str, outcome: RankOutcome, asked: Mapping[str, Any]) -> list[Callable[[], bytes]]:
    """What this rank gives of a part, a function for each gathering: called at its turn, so that one result is held."""
    if part == LANES:
        mine = asked["lanes_of"] == outcome.rank
        return [lambda: json.dumps(outcome.facts["lanes"]).encode() if mine else b""]
    if part == SLOWEST:
        return [lambda: slowest_ns(outcome.samples).tobytes() if outcome.samples else b""]
    if part == OBSERVATIONS:
        rows = outcome.observations
        return [lambda: framed(b",".join(json.dumps(row).encode() for row in rows)) if rows else b""]
    return [lambda name=name: _column(outcome, name) for name in COLUMNS]  # type: ignore[misc]


def _column(outcome: RankOutcome, name: str) -> bytes:
    if name not in outcome.samples:
        return b""
    return np.ascontiguousarray(outcome.samples[name], dtype=COLUMNS[name]).tobytes()


class Rest:
    """Rank 0's side of a case of which outcomes were left behind."""

    def __init__(self, ranks: Ranks, own: RankOutcome, outcomes: Sequence[RankOutcome], with_point: bool) -> None:
        """`own` is rank 0's, whole; `outcomes` are all as they came."""
        self._ranks, self._own, self._outcomes = ranks, own, outcomes
        knowing = [one for one in outcomes if one.left.get("lanes") or one.facts.get("lanes")]
        self._lanes_of = knowing[0].rank if knowing else -1
        self._count = sum(one.sample_count for one in outcomes)
        observed = any(one.left.get("observations") or one.observations for one in outcomes)
        wanted = {LANES: bool(knowing), SLOWEST: with_point and self._count > 0, OBSERVATIONS: observed,
                  SAMPLES: self._count > 0}  # fmt: skip
        self.asked: dict[str, Any] = {
            "parts": [part for part, there in wanted.items() if there],
            "lanes_of": self._lanes_of,
        }

    def lanes(self) -> None:
        """Fetch the lanes, and give them to the outcome whose they are."""
        if LANES in self.asked["parts"]:
            text = bytearray()
            self._gather(LANES, text.extend)
            owner = next(one for one in self._outcomes if one.rank == self._lanes_of)
            owner.facts["lanes"] = json.loads(text)

    def point(self, case: Case) -> Point | None:
        """Fetch what a curve needs."""
        if SLOWEST not in self.asked["parts"]:
            return None
        slowest = np.zeros(FIRST_SAMPLES)
        held = bytearray()

        def take(piece: bytes) -> None:
            nonlocal held
            held += piece
            whole = len(held) // slowest.nbytes * slowest.nbytes
            if whole:
                found = np.frombuffer(bytes(held[:whole])).reshape(-1, FIRST_SAMPLES)
                np.maximum(slowest, found.max(axis=0), out=slowest)
                held = held[whole:]

        self._gather(SLOWEST, take)
        return point_from(case, slowest)

    def observations(self, journal: JournalWriter, identity: Mapping[str, Any]) -> None:
        """Fetch the observations into records of about _ROWS_BYTES."""
        if OBSERVATIONS not in self.asked["parts"]:
            return
        frames, rows, held = Frames(), list[bytes](), 0

        def write() -> None:
            nonlocal held
            journal.append("observations", dict(identity), durable=False, listed=("rows", rows))
            rows.clear()
            held = 0

        def take(piece: bytes) -> None:
            nonlocal held
            for found in frames.of(piece):
                rows.append(found)
                held += len(found)
                if held >= _ROWS_BYTES:
                    write()

        self._gather(OBSERVATIONS, take)
        if rows:
            write()

    def evidence(self) -> dict[str, Any]:
        """What of all ranks' observations belongs into the case's evidence."""
        return merged_evidence(one.left.get("evidence") or evidence_of(one.observations) for one in self._outcomes)

    def samples(self, journal: JournalWriter, header: dict[str, Any]) -> None:
        """Fetch the samples into the case's record, which is durable when this returns."""
        columns = [(name, dtype, self._count) for name, dtype in COLUMNS.items()]
        with journal.record("case", header, columns) as write:
            if SAMPLES in self.asked["parts"]:
                self._gather(SAMPLES, write)

    def _gather(self, part: str, take: Callable[[bytes], object]) -> None:
        for data in part_of(part, self._own, self.asked):
            self._ranks.gather(data(), take)


def record_case(
    journal: JournalWriter,
    identity: dict[str, Any],
    case: Case,
    outcomes: Sequence[RankOutcome],
    oversubscribed: bool,
    curve_evidence: Callable[[Point | None], dict[str, Any]] | None,
    fetch: Callable[[bool], Rest],
) -> tuple[str, Point | None]:
    """Write a case's records, durable when this returns. Returns its status, and time and goodput where it has them.

    `curve_evidence`: what the case's curve says of the latter, of a case of a curve. `fetch` tells the ranks to send
    what they left behind, by whether a curve needs a point; it is called only where they did.
    """
    status = case_status(outcomes)
    point: Point | None = None
    if not any(one.left for one in outcomes):
        header = case_header(case, outcomes, oversubscribed)
        samples = joined_samples(outcomes)
        point = point_of(case, samples) if status in _HAS_POINT else None
        if curve_evidence is not None:
            header["evidence"] |= curve_evidence(point)
        rows = [row for one in outcomes for row in one.observations]
        if rows:
            header["evidence"] |= evidence_of(rows)
            # Made durable together with the case's own record.
            journal.append("observations", {**identity, "rows": rows}, durable=False)
        journal.append("case", {**identity, **header}, samples)
        return status, point
    rest = fetch(curve_evidence is not None and status in _HAS_POINT and has_point(case))
    rest.lanes()
    header = case_header(case, outcomes, oversubscribed)
    point = rest.point(case)
    if curve_evidence is not None:
        header["evidence"] |= curve_evidence(point)
    header["evidence"] |= rest.evidence()
    rest.observations(journal, identity)
    rest.samples(journal, {**identity, **header})
    return status, point
