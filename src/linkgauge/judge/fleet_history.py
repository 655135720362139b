"""What a fleet's history says: nodes and links against their siblings, one node against itself, and what changed."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from linkgauge.errors import UsageError, nearest
from linkgauge.judge.standing import DEVIATIONS, LEAST_NODES, LEAST_SCALE, LEAST_SHARE, Standing
from linkgauge.model.grouped import grouped
from linkgauge.stats.basics import Floats, robust_scale

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from linkgauge.judge.small_shifts import Shifts

Columns = Mapping[str, npt.NDArray[np.object_]]
"""Columns of an answer by name."""

GROUPINGS = ("rail", "switch", "firmware", "driver", "bios", "kernel", "libraries")
"""By what else than node and link results are compared: each is a column of the history."""
FACTS = ("machine", "driver", "firmware", "bios", "kernel", "libraries", "program")
"""What may explain that a shift began, besides the temperature."""
_LEAST_RUNS = 3
_LEAST_SHIFT = 0.01
_WARMER = 5.0  # degrees
_MIDDLE = 1.2533  # the standard error of a median over that of a mean, of normal values


@dataclasses.dataclass(frozen=True)
class Shift:
    """A level that changed: of a node, or of a part of it less the node's own. `share`: of time that was added."""

    node: str
    part: str  # empty: the node as a whole
    began: str  # start of the first run after it, ISO 8601 in UTC
    share: float
    score: float
    runs_before: int
    runs_after: int
    changed: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Drift:
    """A node's runs: by how much the cases of each took longer than usual, and where that changed."""

    node: str
    runs: tuple[tuple[str, float, int], ...]  # end of a run, share of time that was added, cases
    shifts: tuple[Shift, ...]


_LATEST = """
CREATE TEMP TABLE latest AS
SELECT node, machine, others IS NULL AS alone, max(run_end_ms) AS run_end_ms, arg_max(day, run_end_ms) AS day,
       arg_max(run, run_end_ms) AS run
FROM results GROUP BY ALL
"""
# Numbers in place of names halve the time of grouping. Of a further host only its name is known: it is the machine of
# that name where there is one alone.
_MACHINES = """
CREATE TEMP TABLE machines AS
WITH first AS (SELECT DISTINCT node, machine FROM latest),
further AS (
    SELECT DISTINCT unnest(string_split(others, ',')) AS node FROM results WHERE others IS NOT NULL AND day IN ({days})
), every AS (
    FROM first UNION ALL SELECT node, '' FROM further WHERE (SELECT count(*) FROM first WHERE node = further.node) != 1
)
SELECT row_number() OVER () AS id, node, machine FROM (SELECT DISTINCT * FROM every)
"""
# A table, since the optimizer would else join millions of rows twice.
_LAST_OF = "CREATE TEMP TABLE last_of AS FROM latest JOIN machines USING (node, machine)"
# Only days with a last run are read: mostly one of seven. Their names are dates, as the history checked them. Words are
# copied several times on the way: of what is compared by only the columns are taken in which runs differ.
_EXCESS = """
CREATE TEMP TABLE excess AS
WITH times AS (
    SELECT r.kind, l.id, r.others, r.part, r.case_key, r.launch_key, ln(r.time_ns) AS x {groupings}
    FROM results r JOIN last_of l ON r.node = l.node AND r.machine = l.machine AND r.run_end_ms = l.run_end_ms
                                 AND (r.others IS NULL) = l.alone
    WHERE r.day IN ({days})
), middle AS (
    SELECT kind, case_key, launch_key, median(x) AS m FROM times GROUP BY ALL HAVING count(*) >= {least}
)
SELECT t.* EXCLUDE (case_key, launch_key, x), t.x - m.m AS excess
FROM times t JOIN middle m USING (kind, case_key, launch_key)
"""
_NODES = """
CREATE TEMP TABLE nodes AS
WITH run_of AS (
    SELECT id, max(run) AS run FROM last_of GROUP BY id
), named AS (
    SELECT node, coalesce(min(id) FILTER (machine = ''), min(id)) AS id FROM machines GROUP BY node
), further AS (
    SELECT kind, id AS first, unnest(string_split(others, ',')) AS node, excess FROM excess WHERE others IS NOT NULL
), every AS (
    SELECT kind, id, id AS first, excess FROM excess
    UNION ALL
    SELECT kind, named.id, first, excess FROM further JOIN named USING (node)
), levels AS (
    SELECT kind, id, max(first) AS first, median(excess) AS level, count(*) AS cases FROM every GROUP BY ALL
)
SELECT l.kind, l.id, '' AS part, coalesce(own.run, other.run) AS run, l.level, l.cases
FROM levels l LEFT JOIN run_of own USING (id) LEFT JOIN run_of other ON other.id = l.first
"""
_LINKS = """
CREATE TEMP TABLE links AS
WITH parts AS (
    SELECT kind, id, part, median(excess) AS level, count(*) AS cases FROM excess WHERE part IS NOT NULL GROUP BY ALL
)
SELECT p.kind, id, p.part, p.level - n.level AS level, p.cases FROM parts p JOIN nodes n USING (kind, id)
"""
_ABOVE = """
SELECT m.node, m.machine, t.part, t.level, t.cases, n.run
FROM {table} t JOIN nodes n USING (kind, id) JOIN machines m USING (id)
WHERE t.kind = $kind AND t.level >= $least ORDER BY m.node, m.machine, t.part
"""
_MEMBERS = """
CREATE OR REPLACE TEMP TABLE members AS
SELECT kind, {by} AS name, median(excess) AS level, count(*) AS cases FROM excess WHERE {by} IS NOT NULL
GROUP BY kind, {by}, id, part
"""


def standings(database: DuckDBPyConnection, by: Sequence[str] = GROUPINGS) -> list[Standing]:
    """Return the nodes, links and groups of a history's days, the outliers first.

    Each node counts by its last run. A case's time is taken against the median of its kind of node, from four on. A
    node's standing is the median over its cases, a link's that of its cases less its node's; the scale is the spread
    of its kind's standings. A group's (`by`) is the difference of its members' median from that of all others.
    """
    database.execute(_LATEST)
    days = database.execute("SELECT DISTINCT day FROM latest").fetchall()
    listed = ", ".join(f"'{day}'" for (day,) in days) or "''"
    database.execute(_MACHINES.format(days=listed))
    database.execute(_LAST_OF)
    distinct = ", ".join(["count(*)", *(f"count(DISTINCT {name})" for name in by)])
    counts = database.execute(f"SELECT {distinct} FROM results WHERE day IN ({listed})").fetchone() or ()
    differing = [name for name, count in zip(by, counts[1:], strict=True) if count > 1]
    columns = "".join(f", r.{name}" for name in differing)
    database.execute(_EXCESS.format(groupings=columns, least=LEAST_NODES, days=listed))
    database.execute(_NODES)
    database.execute(_LINKS)
    found = [*_ranked(database, "node", "nodes"), *_ranked(database, "link", "links")]
    for name in differing:
        found += _groups(database, name)
    return sorted(found, key=lambda one: (not one.outlier, -one.score))


_ROUNDS = """
WITH times AS (
    SELECT kind, node, machine, run_end_ms, case_key, launch_key, ln(time_ns) AS x, temperature
    FROM results WHERE others IS NULL
), middle AS (
    SELECT kind, case_key, launch_key, median(x) AS m FROM times GROUP BY ALL
    HAVING count(DISTINCT (node, machine)) >= {least}
)
SELECT kind, node, machine, median(x - m) AS level, count(*) AS cases,
       coalesce(median(temperature), 'nan') AS temperature
FROM times JOIN middle USING (kind, case_key, launch_key) GROUP BY kind, node, machine, run_end_ms
ORDER BY kind, node, machine, run_end_ms
"""


def shifts_of_kinds(database: DuckDBPyConnection, detect: float) -> dict[str, Shifts]:
    """Return by kind of node which nodes are slower by as little as `detect`; a node's runs are its rounds, in order.

    Kinds with fewer than four nodes are left out. The temperature of the devices is a covariate.
    """
    from linkgauge.judge.small_shifts import shifts_of_nodes  # reads runs: importing that takes longer than drift

    rows = _columns(database, _ROUNDS.format(least=LEAST_NODES))
    levels, heat = _numbers(rows, "level"), _numbers(rows, "temperature")
    found: dict[str, Shifts] = {}
    for kind in dict.fromkeys(rows["kind"]):
        own = np.flatnonzero(rows["kind"] == kind).tolist()
        places = grouped(((rows["node"][at], rows["machine"][at]), at) for at in own)
        if len(places) < LEAST_NODES:
            continue
        shape = max(map(len, places.values())), len(places)
        table, degrees = np.full(shape, np.nan), np.full(shape, np.nan)
        for column, some in enumerate(places.values()):
            table[: len(some), column], degrees[: len(some), column] = levels[some], heat[some]
        twice = len({node for node, _ in places}) < len(places)
        nodes = [
            (f"{node} ({machine})" if twice and machine else node, int(np.median(_numbers(rows, "cases")[some])))
            for (node, machine), some in places.items()
        ]
        known = degrees if np.isfinite(degrees).any() else None
        found[str(kind)] = shifts_of_nodes(nodes, table, detect, covariate=known)
    return found


def _columns(database: DuckDBPyConnection, sql: str, values: Mapping[str, object] | None = None) -> Columns:
    table = database.execute(sql, values).fetchnumpy()
    return {name: np.asarray(values) for name, values in table.items()}


def _numbers(rows: Columns, name: str) -> Floats:
    return rows[name].astype(np.float64)


def _ranked(database: DuckDBPyConnection, what: str, table: str) -> Iterator[Standing]:
    # Virtual machines may all be called "vm".
    several = database.execute(
        "SELECT node FROM machines WHERE machine != '' GROUP BY 1 HAVING count(*) > 1"
    ).fetchall()
    twice = {name for (name,) in several}
    counts = f"SELECT kind FROM {table} GROUP BY 1 HAVING count(*) >= {LEAST_NODES} ORDER BY 1"
    for (kind,) in database.execute(counts).fetchall():
        levels = _columns(database, f"SELECT level FROM {table} WHERE kind = $kind", {"kind": kind})
        scale = max(LEAST_SCALE, robust_scale(_numbers(levels, "level")))
        # Of a fleet's hundred thousands of links only outliers are told.
        least = max(math.log1p(LEAST_SHARE), DEVIATIONS * scale) if what == "link" else -math.inf
        above = database.execute(_ABOVE.format(table=table), {"kind": kind, "least": least}).fetchall()
        for node, machine, part, level, cases, run in above:
            name = f"{node} ({machine})" if node in twice and machine else node
            words = f"{part} of {name}" if what == "link" else name
            yield Standing(what, words, machine, run or "", math.expm1(level), level / scale, cases)


def _groups(database: DuckDBPyConnection, by: str) -> Iterator[Standing]:
    """Yield the standing of each group that is one of two or more: its members against those of all others."""
    database.execute(_MEMBERS.format(by=by))
    for (kind,) in database.execute("SELECT DISTINCT kind FROM members ORDER BY 1").fetchall():
        asked = {"kind": kind}
        names = "SELECT name, count(*), sum(cases) FROM members WHERE kind = $kind GROUP BY 1 ORDER BY 1"
        groups = database.execute(names, asked).fetchall()
        if len(groups) < 2:
            continue
        ordered = "SELECT level FROM members WHERE kind = $kind ORDER BY name"
        levels = _numbers(_columns(database, ordered, asked), "level")
        scale = max(LEAST_SCALE, robust_scale(levels))
        first = 0
        for name, count, cases in groups:
            inside, first = slice(first, first + count), first + count
            others = np.delete(levels, inside)
            shift = float(np.median(levels[inside]) - np.median(others))
            error = _MIDDLE * scale * math.sqrt(1 / count + 1 / len(others))
            yield Standing(by, f"{by} {name}" if by != "rail" else str(name), kind, "", math.expm1(shift),
                           shift / error, int(cases))  # fmt: skip


_DRIFT = """
CREATE TEMP TABLE own AS
SELECT run_end_ms, day, part, case_key, launch_key, time_ns, machine, temperature FROM results WHERE {column} = $name
"""
_LEVELS = """
WITH usual AS (
    SELECT case_key, launch_key, median(ln(time_ns)) AS m FROM own GROUP BY ALL HAVING count(*) >= 2
)
SELECT run_end_ms, {part} AS part, median(ln(time_ns) - m) AS level, count(*) AS cases
FROM own JOIN usual USING (case_key, launch_key) WHERE {part} IS NOT NULL GROUP BY ALL ORDER BY 2, 1
"""


def drift(database: DuckDBPyConnection, node: str, dataset: str = "DATASET") -> Drift:
    """Return a node's runs against its own usual times, and each shift with what changed when it began.

    `node`: a host's name, or the lowest UUID of its devices; `dataset`: the history's own name. UsageError where the
    history has none of that name, or several machines have it.
    """
    column = "machine" if node.startswith(("GPU-", "MIG-")) else "node"
    database.execute(_DRIFT.format(column=column), {"name": node})
    runs_of = _columns(
        database,
        "SELECT run_end_ms, min(day) AS day, min(machine) AS machine, "
        "coalesce(median(temperature), 'nan') AS temperature FROM own GROUP BY 1 ORDER BY 1",
    )
    if not len(runs_of["run_end_ms"]):
        names = [name for (name,) in database.execute("SELECT DISTINCT node FROM results ORDER BY 1").fetchall()]
        longer = [name for name in names if name.split(".")[0] == node]
        guess = f" (did you mean '{longer[0]}'?)" if longer else nearest(node, names)
        command = f'linkgauge query {shlex.quote(dataset)} "SELECT DISTINCT node FROM results"'
        raise UsageError(f"no node '{node}' in these days{guess}: {command} lists them")
    _refuse_several(node, runs_of)
    facts = _Facts(database, column, node, runs_of)
    whole = _columns(database, _LEVELS.format(part="''"))
    parts = _columns(database, _LEVELS.format(part="part"))
    ends, levels = whole["run_end_ms"], _numbers(whole, "level")
    runs = tuple((_time(end), math.expm1(level), int(cases))
                 for end, level, cases in zip(ends, levels, whole["cases"], strict=True))  # fmt: skip
    shifts = [_shift(node, "", ends, levels, at, facts) for at in shifts_of(levels)]
    for part in dict.fromkeys(parts["part"]):
        chosen = parts["part"] == part
        when = parts["run_end_ms"][chosen]
        apart = _numbers(parts, "level")[chosen] - levels[np.searchsorted(ends, when)]
        shifts += [_shift(node, str(part), when, apart, at, facts) for at in shifts_of(apart)]
    return Drift(node, runs, tuple(sorted(shifts, key=lambda one: -one.score)))


def shifts_of(levels: Floats) -> list[tuple[int, int, int]]:
    """Return where a series steps from one level to another: begin, step and end of the two segments, as indices.

    Single runs that lie apart are taken out by a running median of five; then the split with the largest difference
    of means is sought, and in both halves again, while it is five deviations and 1 % or more.
    """
    n = len(levels)
    if n < 2 * _LEAST_RUNS:
        return []
    edges = [float(np.median(levels[max(0, at - 2) : at + 3])) for at in (0, 1, n - 2, n - 1)]
    inside = np.median(np.lib.stride_tricks.sliding_window_view(levels, 5), axis=1)
    smooth = np.concatenate([edges[:2], inside, edges[2:]])
    scale = max(LEAST_SCALE, robust_scale(np.diff(levels)) / math.sqrt(2))
    cuts, open_ = [0, n], [(0, n)]
    while open_:
        first, last = open_.pop()
        at, score, share = _split(smooth[first:last], scale)
        if score >= DEVIATIONS and abs(share) >= _LEAST_SHIFT:
            cuts.append(first + at)
            open_ += [(first, first + at), (first + at, last)]
    cuts.sort()
    return [(cuts[i - 1], cuts[i], cuts[i + 1]) for i in range(1, len(cuts) - 1)]


def _split(series: Floats, scale: float) -> tuple[int, float, float]:
    """Return the split of a series with the largest score, its score, and by how much the second part lies above."""
    n = len(series)
    if n < 2 * _LEAST_RUNS:
        return 0, 0.0, 0.0
    before = np.arange(_LEAST_RUNS, n - _LEAST_RUNS + 1)
    sums = np.cumsum(series)
    difference = (sums[-1] - sums[before - 1]) / (n - before) - sums[before - 1] / before
    scores = np.abs(difference) / (scale * np.sqrt(1 / before + 1 / (n - before)))
    best = int(np.argmax(scores))
    return int(before[best]), float(scores[best]), float(difference[best])


def _shift(
    node: str, part: str, ends: npt.NDArray[np.object_], levels: Floats, at: tuple[int, int, int], facts: _Facts
) -> Shift:
    first, step, last = at
    change = float(np.median(levels[step:last]) - np.median(levels[first:step]))
    scale = max(LEAST_SCALE, robust_scale(np.diff(levels)) / math.sqrt(2))
    error = _MIDDLE * scale * math.sqrt(1 / (step - first) + 1 / (last - step))
    return Shift(node, part, _time(ends[step]), math.expm1(change), abs(change) / error, step - first, last - step,
                 tuple(facts.changed(int(ends[first]), int(ends[step]), int(ends[last - 1]))))  # fmt: skip


class _Facts:
    """What may explain a shift, read for the two runs beside it alone: of all it would take long."""

    def __init__(self, database: DuckDBPyConnection, column: str, node: str, runs: Columns) -> None:
        self._database, self._column, self._node, self._runs = database, column, node, runs

    def changed(self, first: int, step: int, last: int) -> Iterator[str]:
        """Yield what the last run before a step and the first one after it differ in, and how much warmer it grew."""
        ends = _numbers(self._runs, "run_end_ms")
        at = int(np.searchsorted(ends, step))
        before, after = self._of(at - 1), self._of(at)
        for name in FACTS:
            if before[name] != after[name]:
                what = "devices" if name == "machine" else name
                yield f"{what}: {before[name] or 'unknown'} -> {after[name] or 'unknown'}"
        heat = _numbers(self._runs, "temperature")
        cold, warm = heat[(ends >= first) & (ends < step)], heat[(ends >= step) & (ends <= last)]
        cold, warm = cold[~np.isnan(cold)], warm[~np.isnan(warm)]
        if len(cold) and len(warm) and abs(rise := float(np.median(warm) - np.median(cold))) >= _WARMER:
            yield f"temperature: {np.median(cold):.0f} -> {np.median(warm):.0f} °C ({rise:+.0f})"

    def _of(self, at: int) -> dict[str, str]:
        names = ", ".join(f"coalesce(string_agg(DISTINCT {name}, ', ' ORDER BY {name}), '') AS {name}"
                          for name in FACTS)  # fmt: skip
        where = f"WHERE {self._column} = $name AND day = $day AND run_end_ms = $end"
        asked = {"name": self._node, "day": str(self._runs["day"][at]), "end": int(self._runs["run_end_ms"][at])}
        row = self._database.execute(f"SELECT {names} FROM results {where}", asked).fetchone()
        assert row is not None
        return dict(zip(FACTS, map(str, row), strict=True))


def _refuse_several(node: str, facts: Columns) -> None:
    """UsageError where several machines have a name at one time: one after the other is an exchange of parts."""
    machines = [str(one) for one in facts["machine"] if one]
    exchanges = sum(a != b for a, b in itertools.pairwise(machines))
    if exchanges >= 2 * len(set(machines)) > 2:
        names = ", ".join(sorted(set(machines))[:3])
        raise UsageError(f"several machines are called '{node}': name one by its first device's UUID: {names}")


_LAST_S = datetime.max.replace(tzinfo=timezone.utc, microsecond=0).timestamp()


def _time(end_ms: int) -> str:
    end = min(int(end_ms) / 1000, _LAST_S)  # a stranger's file may have one beyond the calendar
    return datetime.fromtimestamp(end, timezone.utc).isoformat(timespec="seconds")
