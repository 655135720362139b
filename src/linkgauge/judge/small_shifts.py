"""Small shifts in stored runs: of runs by turns one side against the other, of many nodes' rounds each node.

A round is a repeat of a run. The rounds of a side, or of a node, are those of its runs in the order in which they
began; the first round of one side is held against the first of the other, and so on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linkgauge.judge.compare_runs import disturbed_notes, pool_members, undisturbed_repeats
from linkgauge.judge.standing import LEAST_NODES
from linkgauge.judge.verdicts import Verdict
from linkgauge.model.case import Case
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import change, format_duration, percent
from linkgauge.stats.basics import Floats
from linkgauge.stats.launches import device_noun, shown_transports
from linkgauge.stats.match import Key, match_runs
from linkgauge.stats.small_shifts import ShiftsFound, SmallShift, among_siblings, between_sides, estimated
from linkgauge.stats.time_blocks import PILOT
from linkgauge.stats.whose import Cause, End, Pair, whose

_LEAST_WAYS = 6
"""One-way pairs that can cross: those of three devices."""
_MOST_RIVALS = 3

if TYPE_CHECKING:
    from linkgauge.store.run import Run


@dataclasses.dataclass(frozen=True)
class Named:
    """A pool of cases, or a node, with its shift."""

    kind: str
    name: str
    cases: int
    shift: SmallShift


@dataclasses.dataclass(frozen=True)
class Shifts:
    """What is named, in how many rounds, and `power`: what these rounds could see and what more would."""

    named: tuple[Named, ...]
    rounds: int
    by_turns: bool
    power: tuple[str, ...]
    causes: tuple[str, ...] = ()  # what is slower, by pairs that cross

    @property
    def slower(self) -> tuple[Named, ...]:
        """Those that are called slower."""
        return tuple(one for one in self.named if one.shift.verdict == "slower")

    @property
    def unknown(self) -> int:
        """How many cannot be called slower, faster or the same."""
        return sum(one.shift.verdict == "cannot tell" for one in self.named)


def began(run: Run, which: str = "start") -> float:
    """When a run began, or its `end`, in seconds; 0 where it does not say."""
    try:
        return datetime.fromisoformat(str(run.info.get(which))).timestamp()
    except ValueError:
        return 0.0


def between_runs(first: Sequence[Run], second: Sequence[Run], detect: float, level: float = 0.05) -> Shifts:
    """Compare runs of two sides that were measured by turns: run after run, and in these round after round."""
    rounds: list[dict[Key, float]] = []
    cases: dict[Key, Case] = {}
    notes: list[str] = []
    for a, b in zip(first, second, strict=True):
        (before, not_before), (after, not_after) = map(undisturbed_repeats, (a, b))
        notes += [*disturbed_notes(a, not_before), *disturbed_notes(b, not_after)]
        matched = match_runs(before, after, a.launched, b.launched)
        sides: tuple[dict[int, dict[Key, float]], dict[int, dict[Key, float]]] = ({}, {})
        for key, both in matched.pairs.items():
            cases.setdefault(key, both[1].row.case)
            for side, repeats in zip(sides, both, strict=True):
                for repeat, ns in repeats.median_ns.items():
                    side.setdefault(repeat, {})[key] = math.log(ns)
        for one, other in zip(sorted(sides[0]), sorted(sides[1]), strict=False):
            times = sides[0][one], sides[1][other]
            rounds.append({key: times[1][key] - times[0][key] for key in times[0].keys() & times[1].keys()})
    keys = list(cases)
    shown, noun = shown_transports(second[0].launched), device_noun(second[0].launched)
    round_s = _round_s([*first, *second], len(rounds))
    named: list[Named] = []
    power: tuple[str, ...] = ()
    for kind, members in pool_members([cases[key] for key in keys], shown, noun).items():
        table = [[middle([row[keys[at]] for at in of if keys[at] in row]) for of in members.values()] for row in rounds]
        found = between_sides(np.reshape(table, (len(rounds), len(members))), detect, level, round_s=round_s)
        power = power or power_words(found, detect)
        named += [Named(kind, name, len(members[name]), one) for name, one in zip(members, found.members, strict=True)]
    causes = _causes(cases, rounds, noun)
    moments = [began(run) for pair in zip(first, second, strict=True) for run in pair]
    return Shifts(tuple(named), len(rounds), len(first) > 1 and moments == sorted(moments),
                  (*notes, *power), causes)  # fmt: skip


def _causes(cases: Mapping[Key, Case], rounds: Sequence[Mapping[Key, float]], noun: str) -> tuple[str, ...]:
    """Return whose the slowness of one-way pairs is: of a node, a device, one of its directions, or a link."""
    ways: dict[tuple[End, End], list[Key]] = {}
    for key, case in cases.items():
        if case.pattern == "unidirectional" and len(set(case.devices)) == 2:
            source, target = ((case.node_of(device), device) for device in case.devices)
            ways.setdefault((source, target), []).append(key)
    if len(ways) < _LEAST_WAYS or len(rounds) < PILOT:
        return ()
    table = [[middle([row[key] for key in keys if key in row]) for keys in ways.values()] for row in rounds]
    shifts, errors = estimated(table)
    explained = whose(
        [Pair(*ends, float(shift), float(error)) for ends, shift, error in zip(ways, shifts, errors, strict=True)
         if math.isfinite(shift) and error > 0]
    )  # fmt: skip
    several = len({node for ends in ways for node, _ in ends}) > 1
    found = [f"{_cause_words(cause, noun, several)}: {change(math.expm1(shift), 2)}"
             for cause, shift in zip(explained.causes, explained.shifts, strict=True)]  # fmt: skip
    if explained.rivals:
        others = " or ".join(_cause_words(cause, noun, several) for cause in explained.rivals[:_MOST_RIVALS])
        found[-1] += f"; or {others}: these pairs do not cross enough to distinguish them"
    return tuple(found)


def _cause_words(cause: Cause, noun: str, several: bool) -> str:
    if cause.kind == "node":
        return f"node {cause.ends[0][0]}"
    names = [f"{noun} {device}" + (f" of node {node}" if several else "") for node, device in cause.ends]
    form = {"sends": "what {} sends", "receives": "what {} receives", "link": "{} - {}", "direction": "{} to {}"}
    return form.get(cause.kind, "{}").format(*names)


def among_nodes(runs: Sequence[Run], detect: float, level: float = 0.05) -> Shifts | None:
    """Hold each node's rounds against the other nodes'; None for fewer than four nodes, or no case that they share."""
    by_host: dict[str, list[Mapping[Key, float]]] = {}
    notes: list[str] = []
    for run in sorted(runs, key=began):
        host = ", ".join(dict.fromkeys(host for launch in run.launched for host in launch.hosts)) or str(run.path)
        repeats: dict[int, dict[Key, float]] = {}
        known, left_out = undisturbed_repeats(run)
        notes += disturbed_notes(run, left_out)
        for key, one in known.items():
            for repeat, ns in one.median_ns.items():
                repeats.setdefault(repeat, {})[key] = math.log(ns)
        by_host.setdefault(host, []).extend(repeats[repeat] for repeat in sorted(repeats))
    if len(by_host) < LEAST_NODES:
        return None
    count = max(map(len, by_host.values()))
    table = np.full((count, len(by_host)), np.nan)
    cases: set[Key] = set()
    for at in range(count):
        there = {column: rows[at] for column, rows in enumerate(by_host.values()) if at < len(rows)}
        times = grouped((key, value) for row in there.values() for key, value in row.items())
        usual = {key: middle(values) for key, values in times.items() if len(values) >= LEAST_NODES}
        cases |= usual.keys()
        for column, row in there.items():
            table[at, column] = middle([row[key] - usual[key] for key in row.keys() & usual.keys()])
    if not cases:
        return None
    nodes = [(host, len(cases)) for host in by_host]
    found = shifts_of_nodes(nodes, table, detect, level, round_s=_round_s(runs, count))
    return dataclasses.replace(found, power=(*notes, *found.power))


def shifts_of_nodes(
    nodes: Sequence[tuple[str, int]],
    rounds: Floats,
    detect: float,
    level: float = 0.05,
    covariate: Floats | None = None,
    round_s: float = 0.0,
) -> Shifts:
    """Hold nodes (name and cases) against each other. `rounds`, `covariate`: (rounds, nodes), log times."""
    found = among_siblings(rounds, detect, level, covariate, round_s)
    named = (Named("node", name, cases, one) for (name, cases), one in zip(nodes, found.members, strict=True))
    return Shifts(tuple(named), rounds.shape[0], True, power_words(found, detect))


def fleet_rounds(paths: Sequence[Path], detect: float) -> tuple[list[Verdict], list[str]]:
    """Return the verdicts on nodes over the rounds of these runs, and what the rounds could see."""
    from linkgauge.store.run import load

    found = among_nodes([load(path) for path in paths], detect)
    if found is None:
        return [], [f"--detect needs rounds of {LEAST_NODES} nodes or more that share cases."]
    return node_verdicts(found, detect), list(found.power)


def middle(values: Sequence[float]) -> float:
    """Return the median; nan of none."""
    return float(np.median(values)) if values else math.nan


def _round_s(runs: Sequence[Run], rounds: int) -> float:
    """The time from one round to the next in seconds, all sides or nodes included; 0 where the runs do not tell."""
    starts, ends = ([moment for run in runs if (moment := began(run, which))] for which in ("start", "end"))
    return max(0.0, max(ends) - min(starts)) / rounds if ends and starts and rounds else 0.0


def power_words(found: ShiftsFound, detect: float) -> tuple[str, ...]:
    """Return what so many rounds could see with 95 %, and how many would see the shift that is asked for."""
    if found.noise is None or found.needed is None:
        return (f"{found.rounds} rounds: too few to tell the noise and its memory, expected 25 or more.",)
    could = f"{percent(found.seen, 2)}" if found.seen is not None else "no shift"
    needed = f"{found.needed} rounds"
    if found.noise.round_s > 0:
        needed += f", {format_duration(found.needed * found.noise.round_s * 1e9)}"
    return (
        f"With 95 % these {found.rounds} rounds show {could}.",
        f"To see {percent(detect, 2)} with 95 %: {needed}.",
    )


def node_verdicts(found: Shifts, detect: float) -> list[Verdict]:
    """Return a verdict for each node that is slower, and one that says how many are not."""
    verdicts = [
        Verdict(
            "fail", one.name,
            f"its cases take {change(one.shift.share, 2)} against its siblings' in {found.rounds} rounds "
            f"(at all looks {change(one.shift.low, 2)} to {change(one.shift.high, 2)})",
            "the fleet's rounds", host=one.name, shortfall=max(0.0, one.shift.share),
        )
        for one in found.slower
    ]  # fmt: skip
    rest = [one for one in found.named if one.shift.verdict != "slower"]
    same = sum(one.shift.verdict == "same" for one in rest)
    if same:
        verdicts.append(
            Verdict("pass", f"{same} nodes", f"less than {percent(detect, 2)} slower", "the fleet's rounds")
        )
    if len(rest) > same:
        why = " ".join(found.power)
        verdicts.append(Verdict("unknown", f"{len(rest) - same} other nodes", why, "the fleet's rounds"))
    return verdicts
