"""The peer's side of a round: each of its programs once, and what it printed as nanoseconds of one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog
from linkgauge.exchange.importers import read_log
from linkgauge.peers import nccl_tests, nvbandwidth, osu, two_ended
from linkgauge.peers.catalogue import TWO_ENDED
from linkgauge.peers.launch import PeerLaunch, run_logged
from linkgauge.peers.libraries import why_other_nccl
from linkgauge.peers.request import Request, Row

Figures = dict[str, float]  # by row key: nanoseconds of one operation as our pattern counts it
Reasons = dict[str, str]  # by row key: why there is no figure

_LAUNCHES: dict[str, Callable[[Request, Sequence[Row]], Iterator[PeerLaunch]]] = {
    "osu": osu.launches,
    "nccl-tests": nccl_tests.launches,
    "nvbandwidth": nvbandwidth.launches,
    **dict.fromkeys(TWO_ENDED, two_ended.launches),
}


def measure_peer(request: Request, rows: Sequence[Row], number: int) -> tuple[Figures, Reasons]:
    """One launch of each of the peer's programs that `rows` need. What one that fails had printed before counts."""
    figures: Figures = {}
    reasons: Reasons = {}
    for count, launch in enumerate(launches_of(request, rows, reasons)):
        log = request.out / f"peer-{number:02d}-{count}.txt"
        failure = run_logged(launch.command, log, launch.environment)
        if request.peer in TWO_ENDED:
            (only,) = launch.rows
            figure = two_ended.read_figure(request, only, log.read_text(errors="replace"))
            if figure is not None and not failure:
                figures[only.key] = figure
            else:
                reasons[only.key] = failure or f"{log.name} has no figure of {only.test.name}"
            continue
        # nvbandwidth does not print the size that it was told, OSU not how many messages are in flight.
        first = launch.rows[0]
        size = first.size if request.peer == "nvbandwidth" else None
        window = int(first.test.case["window"]) if first.test.windowed else None
        said = _read(log, Hints(ranks=first.ranks, size_bytes=size, window=window))
        cases = said.cases if said is not None else []
        named = said.versions.get("nccl", "") if said is not None else ""
        if named and (reason := why_other_nccl(named, request.runtime)):
            cases, failure = [], reason
            if not figures:  # nor would the others be ours: nothing more is started for nothing
                return {}, {**{row.key: reason for row in rows}, **reasons}
        for one in cases:
            row = next((row for row in launch.rows if _is_case(row, one, request.peer)), None)
            if row is not None and one.wrong:
                reasons[row.key] = f"{log.name}, {row.peer_size} bytes: {one.wrong}"
            elif row is not None and one.intervals:
                ns, iterations = one.intervals[0]
                figures.setdefault(row.key, ns / iterations)
        for row in launch.rows:
            if row.key not in figures:
                others = next((one.case.ranks for one in cases if one.evidence.get("test") == row.test.name), row.ranks)
                missing = f"{log.name} has no row of {row.peer_size} bytes"
                if others != row.ranks:
                    missing = f"{row.test.name} took {others} devices, ours {row.ranks}: give --ranks as many"
                reasons.setdefault(row.key, failure or missing)
    return figures, reasons


def look_at_peer(request: Request, rows: Sequence[Row]) -> tuple[list[PeerLaunch], Reasons]:
    """What would be started for `rows`, and by row key why some cannot be measured, all before anything is.

    EnvironmentLackingError where nothing can be.
    """
    reasons: Reasons = {row.key: why for row in rows if (why := request.why_not_placed(row))}
    found = launches_of(request, [row for row in rows if row.key not in reasons], reasons)
    if not found:
        raise EnvironmentLackingError(next(iter(reasons.values()), "nothing is left to compare"))
    return found, reasons


def _read(log: Path, hints: Hints) -> ImportedLog | None:
    """What a log holds; None where the program ended before it printed a table."""
    try:
        return read_log(log, hints)
    except UsageError:
        return None


def launches_of(request: Request, rows: Sequence[Row], reasons: Reasons) -> list[PeerLaunch]:
    """The launches of one round, a test whose program is not there left out with the reason."""
    found: list[PeerLaunch] = []
    by_test: dict[str, list[Row]] = {}
    for row in rows:
        # nvbandwidth is one program for all of its tests.
        by_test.setdefault("" if request.peer == "nvbandwidth" else row.test.name, []).append(row)
    for some in by_test.values():
        try:
            found += _LAUNCHES[request.peer](request, some)
        except EnvironmentLackingError as lacking:
            reasons.update({row.key: str(lacking) for row in some})
    return found


def _is_case(row: Row, one: ImportedCase, peer: str) -> bool:
    """Whether an imported case is the row's; of nvbandwidth's matrices the first device's, or the first pair's."""
    case = one.case
    if case.in_place != row.test.theirs_in_place or case.size_asked != row.size:
        return False
    if peer != "nvbandwidth":
        return bool(case.pattern == row.test.case["pattern"])
    first = case.devices[:2] in ((0,), (0, 1)) and case.root == 0
    return first and case.ranks == row.ranks and one.evidence["test"] == row.test.name
