"""`linkgauge run --with`: the peers' tests that a run's own cases match, alternated with our same cases after it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from linkgauge.model.case import Case
from linkgauge.model.comparing import held_apart
from linkgauge.model.dimension import Part
from linkgauge.model.patterns import PATTERNS
from linkgauge.peers.catalog import PeerTest, peer_tests
from linkgauge.peers.drive import Outcome, alternate, named_peer, print_rows, row_of, write_rows
from linkgauge.peers.request import Request, Row, rows_of


def measure_alternating(
    run: Path, peers: Sequence[str], *, mpi: str, devices: str, bind: str, tell: Callable[[str], None]
) -> None:
    """Drive each `PEER=FOLDER` beside the run in the folder `run`; prints one table and keeps it as `with/ratios.json`.

    `mpi` as in `--mpi`, empty for threads of one process. A peer of which the run has no case is told so. Raises
    EnvironmentLackingError where a peer cannot be driven.
    """
    from linkgauge.store.run import load

    cases = [row.case for row in load(run).rows() if row.status == "ok"]
    out = run / "with"
    table: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for text in peers:
        name, folder = named_peer(text)
        rows = rows_of_cases(cases, name)
        if not rows:
            tests = ", ".join(test.name for test in peer_tests(name))
            tell(f"{name}: no case of this run is the same measurement as one of its tests ({tests})")
            continue
        request = Request(
            peer=name,
            folder=folder,
            rows=rows,
            mpi=mpi,
            devices=devices,
            out=out / re.sub("[^a-z0-9]", "_", name),
            bind=bind,
        )

        def keep(known: Outcome, name: str = name, before: Sequence[dict[str, Any]] = tuple(table)) -> None:
            write_rows(out, [*before, *({"peer": name, **row_of(line)} for line in known.lines)])

        outcome = alternate(request, lambda said, name=name: tell(f"{name}: {said}"), keep)  # type: ignore[misc]
        table += [{"peer": name, **row_of(line)} for line in outcome.lines]
        left_out |= outcome.left_out
    if table or left_out:
        write_rows(out, table)
        print_rows(table, left_out)


def rows_of_cases(cases: Sequence[Case], peer: str) -> tuple[Row, ...]:
    """The rows that `cases` ask for: those that one of the peer's tests measures too."""
    rows: dict[str, Row] = {}
    for test in peer_tests(peer):
        for case in cases:
            if _same_measurement(test, case):
                memory = (case.source_memory, case.target_memory)
                some, _ = rows_of(peer, (test,), (case.ranks,), (memory,), (case.size_requested,))
                rows |= {row.key: row for row in some}
    return tuple(rows.values())


# Dimensions that no peer is told of: a case where one is not the default is not the same measurement. Left out are
# those that are looked at one by one, and how ours is measured anew beside the peer.
_DEFAULTS = held_apart(
    Part.TIMING, "size", "transport", "pattern", "devices", "initiator", "source_memory", "target_memory", "window",
    "buffer",
)  # fmt: skip


def _same_measurement(test: PeerTest, case: Case) -> bool:
    plain = Case(case.transport, case.pattern, case.size, case.size_requested, case.devices)
    if any(getattr(case, name) != test.case.get(name, getattr(plain, name)) for name in _DEFAULTS):
        return False
    if case.buffer not in ("", "allocated"):
        return False
    # Ours is measured anew with the peer's own cadence and buffers: what the run's case must share is what is moved,
    # and by what.
    names = [name for name in ("transport", "pattern", "initiator") if name in test.case]
    if any(getattr(case, name) != test.case[name] for name in names):
        return False
    kinds = ("source_memory", "target_memory")
    if not test.takes_memory and any(getattr(case, name) != test.case.get(name, "device") for name in kinds):
        return False
    if test.own_ranks not in (None, case.ranks):
        return False
    # A pair is the first: the peers' programs take no other. Of several the first half sends.
    if PATTERNS[case.pattern].side_by_side_of:
        half = case.ranks // 2
        return (case.devices[::2], case.devices[1::2]) == (tuple(range(half)), tuple(range(half, case.ranks)))
    return case.devices == (0, 1) if PATTERNS[case.pattern].pair else case.devices == tuple(range(case.ranks))
