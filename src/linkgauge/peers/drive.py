"""Starts a peer and us in turn, round by round, keeps each round on disk, and says how the two compare.

A round is one launch of ours, which measures all rows, and one of each of the peer's programs. `rounds.json` in the
output folder holds the finished rounds: a comparison that was ended goes on from them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.files import write_atomically
from linkgauge.model.grouped import grouped
from linkgauge.model.listed import listed
from linkgauge.model.quantity import format_duration, format_size, percent
from linkgauge.model.shape import LEAST, MOST_NS, each, mapping, number, only, read_json, text
from linkgauge.model.shape import table as shape_table
from linkgauge.peers.catalog import peer_tests
from linkgauge.peers.ours import measure_ours
from linkgauge.peers.request import MAX_PAIRS, MIN_PAIRS, Ratio, Request, Row, ratio_of_pairs
from linkgauge.peers.theirs import NCCL_APART, Figures, Reasons, look_at_peer, measure_peer
from linkgauge.plan.environment import shown
from linkgauge.run.machine.private_folder import PrivateFolders
from linkgauge.run.parent.survivor import Survivor
from linkgauge.store.hold import LOCKED, MADE, Hold

Progress = Callable[[str, int, int], None]
"""Hears what is measured, and how many rounds of at most how many are done."""

_ROUNDS = "rounds.json"
_ROW_S = 1.0  # about what a side takes for a row of a round: the default stop rule's time
_MOST_BYTES = 64 << 20
_FIGURES = mapping(number(LEAST, MOST_NS))
_ROUND = {"ours": _FIGURES, "theirs": _FIGURES, "ours_s": number(0.0), "theirs_s": number(0.0)}
_STORED = shape_table(
    {"rounds": each(only(_ROUND, ("ours", "theirs"))), "left_out": mapping(text),
     "peer_started_with": each(mapping(text))},
    needed=("rounds", "left_out"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Side:
    """What the launches of one tool came to: their median in ns of one operation, and how far they lie apart, the
    distance of their quartiles as a share of the median.
    """

    median_ns: float
    spread: float


@dataclasses.dataclass(frozen=True)
class Line:
    """One row of the table. The ratio is of rates or of times, as the peer's test gives them: ours over the peer's."""

    row: Row
    ours: Side
    peer: Side
    ratio: Ratio
    verdict: str


@dataclasses.dataclass(frozen=True)
class Round:
    """What both sides measured once, by row key in ns of one operation, and how long each side took in seconds."""

    ours: Figures
    theirs: Figures
    ours_s: float = 0.0
    theirs_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """All lines, and by row key why a row has none."""

    lines: list[Line]
    left_out: Reasons


def alternate(
    request: Request,
    tell: Callable[[str], None],
    after_round: Callable[[Outcome], None] = lambda outcome: None,
    progress: Progress = lambda what, done, total: None,
) -> Outcome:
    """Measure rounds until every row holds, differs, or cannot be told: at least 6 and at most `max_pairs` of a row.

    From the seventh on only rows that are not settled are measured. A row that a side could not measure is left out
    with the reason. `after_round` gets what is known after each; `progress` hears what is done.

    Raises EnvironmentLackingError where one side measures
    nothing at all, UsageError where the output folder holds another comparison.
    """
    request.out.mkdir(mode=0o700, parents=True, exist_ok=True)
    hold = Hold(request.out)
    survivor, folders = Survivor(), PrivateFolders()
    try:
        return _alternated(dataclasses.replace(request, own=folders.launch(0)), tell, after_round, progress)
    finally:
        folders.close()
        survivor.close()
        hold.release()


def _alternated(
    request: Request, tell: Callable[[str], None], after_round: Callable[[Outcome], None], progress: Progress
) -> Outcome:
    rounds, left_out, started_with = _stored(request)
    if rounds:
        tell(f"{len(rounds)} round{'s were' if len(rounds) > 1 else ' was'} kept from before")
    looked = False
    began = time.monotonic()
    while len(rounds) < request.max_pairs:
        rows = [line.row for line in table(request, rounds) if line.verdict == "more pairs"] if rounds else request.rows
        if not rows or _out_of_time(request, rounds, time.monotonic() - began, tell):
            break
        if not looked:
            looked = True
            started_with, never = _look(request, rows, tell)
            left_out |= never
            rows = [row for row in rows if row.key not in never]
            tell(_estimate(request, len(rows), len(rounds)))
        one, reasons = _round(request, rows, len(rounds), progress)
        rounds.append(one)
        left_out.update({key: why for key, why in reasons.items() if not _has_pair(rounds, key)})
        _store(request, rounds, left_out, started_with)
        outcome = Outcome(table(request, rounds), left_out)
        after_round(outcome)
        settled = sum(line.verdict in ("holds", "differs") for line in outcome.lines)
        tell(
            f"round {len(rounds)}: Linkgauge {one.ours_s:.1f} s, {request.peer} {one.theirs_s:.1f} s; "
            f"{settled} of {len(outcome.lines)} rows settled"
        )
    return Outcome(table(request, rounds), left_out)


def _estimate(request: Request, rows: int, done: int) -> str:
    """How many rounds there will be, and about how long the fewest of them take."""
    few, most = (max(count - done, 1) for count in (min(MIN_PAIRS, request.max_pairs), request.max_pairs))
    rounds = f"{few} to {most} rounds" if few < most else f"at most {most} round{'s' if most > 1 else ''}"
    return f"{rounds} of {rows} rows, about {format_duration(2e9 * _ROW_S * rows * few)} for {few}"


def _look(request: Request, rows: Sequence[Row], tell: Callable[[str], None]) -> tuple[list[dict[str, str]], Reasons]:
    """Say and return, before anything is started, what is set for the peer to load our libraries, and what cannot be
    measured for which reason."""
    launches, left_out = look_at_peer(request, rows)
    given = request.peers_environment
    said = {one.said: {**{name: value for name, value in one.environment.items() if name not in given}, "why": one.said}
            for one in launches if one.said}  # fmt: skip
    for words in (*said, *(f"left out: {reason}" for reason in dict.fromkeys(left_out.values()))):
        tell(words)
    return list(said.values()), left_out


def _out_of_time(request: Request, rounds: Sequence[Round], spent_s: float, tell: Callable[[str], None]) -> bool:
    longest = max((one.ours_s + one.theirs_s for one in rounds), default=0.0)
    if request.time_limit_s is None or spent_s + longest <= request.time_limit_s:
        return False
    tell(f"no time is left for another round of {longest:.0f} s")
    return True


def _has_pair(rounds: Sequence[Round], key: str) -> bool:
    return any(key in one.ours and key in one.theirs for one in rounds)


def _round(request: Request, rows: Sequence[Row], number: int, progress: Progress) -> tuple[Round, Reasons]:
    """Both sides once, the peer first in even rounds."""
    reasons: Reasons = {}
    figures: dict[str, Figures] = {}
    seconds: dict[str, float] = {}
    sides = {"theirs": measure_peer, "ours": measure_ours}
    for side in sorted(sides, reverse=number % 2 == 0):
        name = "Linkgauge" if side == "ours" else request.peer
        progress(f"round {number + 1}, {name}", number, request.max_pairs)
        start = time.monotonic()
        figures[side], missing = sides[side](request, rows, number)
        seconds[side] = time.monotonic() - start
        reasons.update(missing)
        if not figures[side] and number == 0:
            raise EnvironmentLackingError(next(iter(missing.values()), f"{side}: nothing was measured"))
    return Round(figures["ours"], figures["theirs"], seconds["ours"], seconds["theirs"]), reasons


def table(request: Request, rounds: Sequence[Round]) -> list[Line]:
    """The rows that both sides measured, over the rounds in which both did."""
    lines = []
    for row in request.rows:
        pairs = [(one.ours[row.key], one.theirs[row.key]) for one in rounds
                 if row.key in one.ours and row.key in one.theirs]  # fmt: skip
        if not pairs:
            continue
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        rate = row.test.figure == "rate"
        ratio = ratio_of_pairs(theirs, ours) if rate else ratio_of_pairs(ours, theirs)
        verdict = ratio.verdict(row.test.tolerance_at(row.size), at_least=rate)
        if verdict == "more pairs" and ratio.pairs >= request.max_pairs:
            verdict = "cannot tell"
        lines.append(Line(row, _side(ours), _side(theirs), ratio, verdict))
    return lines


def _side(values: Sequence[float]) -> Side:
    low, middle, high = statistics.quantiles(values, method="inclusive") if len(values) > 1 else list(values) * 3
    return Side(middle, (high - low) / middle if middle else 0.0)


def _asked(request: Request) -> dict[str, object]:
    """What must be alike for rounds to belong to one comparison."""
    windows = sorted({int(row.test.case["window"]) for row in request.rows if row.test.windowed})
    return {
        "peer": request.peer,
        "folder": str(request.folder),
        "rows": [row.key for row in request.rows],
        "counts": [request.iterations, request.large_iterations, request.warmup],
        **({"buffer": request.buffer} if request.peer == "nccl-tests" and request.buffer != "plain" else {}),
        **({"started_apart": list(NCCL_APART)} if request.peer == "nccl-tests" else {}),
        **({"hosts": list(request.hosts)} if request.hosts else {}),
        **({"windows": windows} if windows else {}),
        **({"env": shown(request.env)} if request.env else {}),
        "mpi": request.mpi,
        "devices": request.devices,
        "bind": request.bind,
    }


def _store(
    request: Request, rounds: Sequence[Round], left_out: Reasons, started_with: Sequence[dict[str, str]]
) -> None:
    stored = {"requested": _asked(request), "peer_started_with": started_with,
              "rounds": [dataclasses.asdict(one) for one in rounds], "left_out": left_out}  # fmt: skip
    write_atomically(request.out / _ROUNDS, json.dumps(stored, indent=1).encode())


def _stored(request: Request) -> tuple[list[Round], Reasons, list[dict[str, str]]]:
    """What the output folder has, and what its peer was started with.

    UsageError where it is of another comparison or of something else.
    """
    path = request.out / _ROUNDS
    if not os.path.lexists(path):
        if any(path.name not in (LOCKED, MADE) for path in request.out.iterdir()):
            raise UsageError(f"'{request.out}' is not empty: expected a new folder, or one of this same comparison")
        _store(request, [], {}, [])
        return [], {}, []
    stored = read_json(path, _MOST_BYTES, "rounds of a comparison", _STORED)
    if stored.get("requested", stored.get("asked")) != _asked(request):  # the older name
        raise UsageError(f"'{request.out}' holds another comparison, or one of an older version: expected a new folder")
    return [Round(**one) for one in stored["rounds"]], stored["left_out"], stored.get("peer_started_with", [])


_FILE = "ratios.json"


def named_peer(text: str) -> tuple[str, Path]:
    """The peer and its folder that `PEER=FOLDER` names; UsageError for an unknown peer or no such folder."""
    name, _, folder = text.partition("=")
    if not folder or not Path(folder).exists():
        raise UsageError(f"'{text}' names no folder that exists: expected PEER=FOLDER, such as osu=/opt/osu")
    peer_tests(name)
    return name, Path(folder)


def row_of(line: Line) -> dict[str, Any]:
    """One line as plain values; times are in nanoseconds of one operation, spreads shares of them."""
    row = line.row
    return {
        "test": row.test.name,
        "ranks": row.ranks,
        "memory": list(row.memory) if row.test.takes_memory else [],
        "size": row.size,
        "ours_ns": line.ours.median_ns,
        "peer_ns": line.peer.median_ns,
        "ours_spread": line.ours.spread,
        "peer_spread": line.peer.spread,
        "estimator": row.test.estimator,
        "figure": row.test.figure,
        "ratio": line.ratio.median,
        "low": line.ratio.low,
        "high": line.ratio.high,
        "pairs": line.ratio.pairs,
        "tolerance": row.test.tolerance_at(row.size),
        "verdict": line.verdict,
        "why": _why_undecided(line),
    }


def _why_undecided(line: Line) -> str:
    """Why the row has no verdict, as far as this comparison went; empty where it has one."""
    ratio, tolerance = line.ratio, line.row.test.tolerance_at(line.row.size)
    if line.verdict in ("holds", "differs"):
        return ""
    if ratio.pairs < MIN_PAIRS:
        return f"{ratio.pairs} of at least {MIN_PAIRS} rounds were measured"
    return (
        f"after {ratio.pairs} rounds the interval is {percent(ratio.high - ratio.low, 1)} wide, wider than "
        f"{percent(2 * tolerance)}: the launches of Linkgauge differ by {percent(line.ours.spread, 1)}, those of the "
        f"benchmark by {percent(line.peer.spread, 1)} (IQR/median)"
    )


def write_rows(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """`ratios.json` in `folder`, whole or not at all."""
    write_atomically(folder / _FILE, json.dumps(list(rows), indent=1).encode())


def print_rows(rows: Sequence[dict[str, Any]], left_out: Mapping[str, str]) -> None:
    """The table on the terminal, and below it what was left out, a line for each reason."""
    from linkgauge.view.screen import Table, console

    names = ("test", "ranks", "memory", "size", "Linkgauge, ns", "spread", "peer, ns", "spread", "ratio of", "ratio",
             "95 % interval", "pairs", "verdict")  # fmt: skip
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(
            str(row["test"]), str(row["ranks"]), " to ".join(dict.fromkeys(row["memory"])), format_size(row["size"]),
            f"{row['ours_ns']:.1f}", percent(row["ours_spread"], 1),
            f"{row['peer_ns']:.1f}", percent(row["peer_spread"], 1),
            row["figure"] + "s", f"{row['ratio']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}", str(row["pairs"]),
            row["verdict"],
        )  # fmt: skip
    out = console()
    out.print(table)
    by_reason = grouped((reason, key) for key, reason in left_out.items())
    for reason, keys in by_reason.items():
        out.print(f"left out: {listed(keys, 3, '; ')}: {reason}", markup=False, highlight=False, soft_wrap=True)


def undecided(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each row without a verdict, and what to change; none where all are settled."""
    from linkgauge.view.units import count_text

    open_rows = [row for row in rows if row["why"]]
    if not open_rows:
        return []
    lines = [
        f"undecided: {row['test']}, {count_text(row['ranks'], 'rank')}, {format_size(row['size'])}: {row['why']}"
        for row in open_rows
    ]
    few = any(row["pairs"] < MIN_PAIRS for row in open_rows)
    fix = "more time (--time-limit), --out to resume" if few else "more --iterations, with --mpi also --bind core"
    return [*lines, f"{len(open_rows)} of {len(rows)} rows are undecided; fix: {fix}, --pairs up to {MAX_PAIRS}"]
