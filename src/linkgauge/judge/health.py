"""One node's health: what loss a measurement finds, the run against the node's own history, and one line for all."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import numpy as np
import scipy

from linkgauge.errors import Exit
from linkgauge.findings.known import TOLERANCE
from linkgauge.judge.history import kind_of, lowest, rows_of_run
from linkgauge.judge.standing import LEAST_SHARE
from linkgauge.judge.subjects import Subject
from linkgauge.judge.verdicts import Checked, Verdict
from linkgauge.model.quantity import percent
from linkgauge.stats.basics import Floats
from linkgauge.stats.compare import LEAST_REPEATS
from linkgauge.stats.core_waits import shares_lost
from linkgauge.stats.prediction import predict

if TYPE_CHECKING:
    from linkgauge.store.history import History

FALSE_ALARM = 0.001
"""Chance that a valid node fails against its history, over all cases of a look together."""
POWER = 0.95
ASSUMED_NOISE = 0.02
"""Standard deviation of a case's median from run to run, as a share, where no history has it."""
MOST_REPEATS = 9
_WAITED = "but its ranks waited for a core"
LONGEST_LINE = 99
"""Characters of a line: Slurm and node conditions show a reason of so many whole."""
_DAYS = 30  # of the history
_MOST_RUNS = 50
Key = tuple[tuple[str, ...], str, str]
"""The hosts of a case in their order, the node itself being '', with its case key and launch key."""


@dataclasses.dataclass(frozen=True)
class Known:
    """What a history knows of a node's cases. `times`: in ns (cases, runs), nan where a run lacks a case.

    `source`: whose runs they are, in words; empty where too few are known.
    """

    source: str = ""
    keys: tuple[Key, ...] = ()
    times: Floats = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))


def views(row: Mapping[str, object], partners: Sequence[str]) -> Iterator[tuple[str, Key]]:
    """Yield each node that a row of a history is about, with the row's key: its other hosts are all partners."""
    hosts = (str(row["node"]), *(str(row["others"] or "").split(",") if row["others"] else ()))
    for own in hosts:
        if all(host in partners for host in hosts if host != own):
            roles = tuple("" if host == own else host for host in hosts)
            yield own, (roles, str(row["case_key"]), str(row["launch_key"]))


def known_of(history: History, host: str, infos: Sequence[Mapping[str, object]], partners: Sequence[str]) -> Known:
    """Return what a history says of a host's cases: by its own runs, else by the last run of each node of its kind.

    `infos`: its devices. Rows of the host's name and another machine are another node's.
    """
    machine = lowest(str(info.get("uuid") or "") for info in infos)
    kind = kind_of(str(info.get("name") or info.get("kind") or "") for info in infos)
    since = (datetime.now(timezone.utc) - timedelta(days=_DAYS)).date().isoformat()
    parts = history.parts(since=since)[::-1]
    own: dict[str, dict[Key, float]] = {}
    ends: dict[str, int] = {}
    for part in parts if partners else [one for one in parts if one.kind == kind]:
        for row in history.read(part, (host, *partners)).to_pylist():
            for name, key in views(row, partners):
                if name == host and (row["node"] != host or row["machine"] in ("", machine)):
                    own.setdefault(row["run"], {})[key] = row["time_ns"]
                    ends[row["run"]] = row["run_end_ms"]
        if len(own) >= _MOST_RUNS:
            break
    if len(own) >= LEAST_REPEATS:
        last = sorted(own, key=lambda run: ends[run])[-_MOST_RUNS:]
        return _table([own[run] for run in last], f"its own {len(last)} runs")
    nodes: dict[str, tuple[int, dict[Key, float]]] = {}
    for part in (one for one in parts if one.kind == kind):
        rows = history.read(part)
        some = rows["node"].unique().to_pylist()[:_MOST_RUNS]
        for row in history.read(part, some).to_pylist() if some else ():
            for name, key in views(row, partners):
                if name != host and name not in partners:
                    end, _ = nodes.setdefault(name, (row["run_end_ms"], {}))
                    if row["run_end_ms"] > end:
                        nodes[name] = (row["run_end_ms"], {})
                    if row["run_end_ms"] >= end:
                        nodes[name][1][key] = row["time_ns"]
        if len(nodes) >= _MOST_RUNS:
            break
    return _table([times for _, times in nodes.values()], f"{len(nodes)} nodes of its kind")


def _table(runs: Sequence[Mapping[Key, float]], source: str) -> Known:
    counts = Counter(key for run in runs for key in run)
    keys = tuple(key for key, count in counts.items() if count >= LEAST_REPEATS)
    if not keys:
        return Known()
    return Known(source, keys, np.array([[run.get(key, math.nan) for run in runs] for key in keys]))


@dataclasses.dataclass(frozen=True)
class Power:
    """What a measurement finds: a `loss` of rate, as a share, with POWER, by so many `repeats` in fresh launches.

    `noise`: standard deviation of a case's median from run to run, as a share.
    """

    loss: float
    repeats: int
    noise: float
    source: str

    @property
    def words(self) -> str:
        """It, as a line."""
        by = f"noise {percent(self.noise, 1)} {f'of {self.source}' if self.source else 'assumed'}"
        often = "once" if self.repeats == 1 else f"{self.repeats} times"
        return f"finds a loss of {percent(self.loss)} with {percent(POWER)} probability, measuring {often} ({by})"


def power_for(known: Known, loss: float, most_repeats: int = MOST_REPEATS) -> Power:
    """Return the fewest repeats that find `loss` in every case, or as many as there may be with what those find.

    A case fails from t(1 - a/m) s on, of m cases and the chance a of a false alarm, where s^2 = v (1/r + 1/n) for r
    repeats, n runs of the history and their variance v. A second look repeats it, so that each finds the loss with
    chance 1 - (1 - POWER) / 2. Two-sided sample sizes: NIST/SEMATECH e-Handbook of Statistical Methods, 7.2.2.2.
    Without a history cases fail that lie TOLERANCE below what is known of their kind.
    """
    for repeats in range(1, max(1, most_repeats) + 1):
        if not known.keys:
            deviation = ASSUMED_NOISE / math.sqrt(repeats)
            least = -math.log(1 - TOLERANCE) + float(scipy.special.ndtri(1 - (1 - POWER) / 2)) * deviation
            found = Power(-math.expm1(-least), repeats, ASSUMED_NOISE, "")
        else:
            variance, counts, freedom = _variances(known)
            deviations = np.sqrt(variance * (1 / repeats + 1 / counts))
            reach = _reach(deviations, freedom) + scipy.special.stdtrit(freedom, 1 - (1 - POWER) / 2) * deviations
            found = Power(-math.expm1(-float(reach.max())), repeats, float(np.sqrt(np.median(variance))), known.source)
        if found.loss <= loss:
            break
    return found


def _variances(known: Known) -> tuple[Floats, Floats, Floats]:
    """Return each case's variance from run to run, its number of runs, and the variance's degrees of freedom."""
    usual = np.exp(np.nanmean(np.log(known.times), axis=1))
    nothing = np.full(len(usual), np.nan)
    found = predict(known.times, np.full_like(known.times, np.nan), usual, nothing)
    counts = np.isfinite(known.times).sum(axis=1).astype(np.float64)
    return found.deviation**2 / (1 + 1 / counts), counts, found.freedom


def _reach(deviation: Floats, freedom: Floats) -> Floats:
    """Return from which logarithm of time on a case fails."""
    one = FALSE_ALARM / max(1, len(deviation))
    reach: Floats = np.maximum(scipy.special.stdtrit(freedom, 1 - one) * deviation, math.log1p(LEAST_SHARE))
    return reach


def against_history(subject: Subject, known: Known, host: str, partners: Sequence[str]) -> list[Verdict]:
    """Return a verdict for each case of a run that the node's history has."""
    place = {key: at for at, key in enumerate(known.keys)}
    chosen, mine, repeats = [], [], 1
    for measure, row in zip(subject.facts.undisturbed.measures, rows_of_run(subject), strict=True):
        for name, key in views(row, partners):
            if name == host and key in place:
                chosen.append((measure, row, place[key]))
                mine.append(measure.time_ns)
                repeats = max(repeats, len(measure.repeats))
    if not chosen:
        return []
    times = known.times[[at for _, _, at in chosen]]
    found = predict(times, np.full_like(times, np.nan), np.array(mine), np.full(len(mine), np.nan))
    counts = np.isfinite(times).sum(axis=1)
    deviation = found.deviation * np.sqrt((1 / repeats + 1 / counts) / (1 + 1 / counts))
    reaches = _reach(deviation, found.freedom)
    verdicts = []
    for at, (measure, row, _) in enumerate(chosen):
        beyond = float(found.shift[at] - found.usual_level)
        fails = beyond >= reaches[at]
        slower = -math.expm1(-float(found.shift[at]))
        reason = f"{percent(max(0.0, slower))} below {known.source}"
        required = measure.time_ns * math.exp(reaches[at] - beyond)
        verdicts.append(
            subject.verdict(
                "fail" if fails else "pass", f"{row['part'] or 'all'} {measure.pattern}", reason, known.source, measure,
                measured=measure.time_ns, required=required, unit="ns",
                shortfall=1 - required / measure.time_ns if fails else 0.0,
            )
        )  # fmt: skip
    return verdicts


def excused(verdicts: Iterable[Verdict], subject: Subject) -> list[Verdict]:
    """Return the verdicts; unknown is what fails by no more than the waits of its ranks for a core may have cost.

    A verdict on no single case counts with the run's longest waits.
    """
    lost = shares_lost(subject.facts.rows, subject.facts.observations)
    by_case: dict[str, float] = {}
    for (case_key, *_), share in lost.items():
        by_case[case_key] = max(share, by_case.get(case_key, 0.0))
    most = max(by_case.values(), default=0.0)
    kept = []
    for one in verdicts:
        share = by_case.get(one.case_key, 0.0) if one.case_key else most
        if one.outcome == "fail" and one.kind != "case" and 0.0 < one.shortfall <= share:
            one = dataclasses.replace(one, outcome="unknown", reason=f"{one.reason}, {_WAITED}")
        kept.append(one)
    return kept


def of_this_node(verdicts: Iterable[Verdict], subject: Subject, host: str, partners: Sequence[str]) -> list[Verdict]:
    """Return the verdicts that are about this node.

    A path to a partner fails only where the paths to all partners do: else the partner, or its link, is at fault.
    """
    kept, paths = [], dict[str, list[Verdict]]()
    for one in verdicts:
        nodes = {subject.facts.devices[number].host for number in one.devices if number in subject.facts.devices}
        named = {name for name in partners if name in one.what}
        if (nodes and host not in nodes) or (named and host not in one.what and not nodes - named):
            continue
        if others := nodes & set(partners):
            paths.setdefault(min(others), []).append(one)
        else:
            kept.append(one)
    failing = {name for name, some in paths.items() if any(one.outcome == "fail" for one in some)}
    for name, some in paths.items():
        if failing < set(paths) and name in failing:
            why = f"only to {name}: the fault is there"
            some = [dataclasses.replace(one, outcome="unknown", reason=why) if one.outcome == "fail" else one
                    for one in some]  # fmt: skip
        kept += some
    return kept


def not_reached(subject: Subject, partners: Sequence[str]) -> list[Verdict]:
    """Return that the network is unknown where no partner could be measured with, and why."""
    if not partners or {one.host for one in subject.facts.devices.values()} & set(partners):
        return []
    left_out = dict(subject.facts.info.get("nodes_left_out") or {})
    why = next((str(left_out[name]) for name in partners if name in left_out), "it was not measured")
    return [subject.verdict("unknown", f"path to {' or '.join(partners)}", why, "the run folder", kind="finding")]


def confirmed(first: Sequence[Verdict], second: Sequence[Verdict]) -> list[Verdict]:
    """Return what two looks find: a failure is one that both have; what the second did not judge is not known."""
    before = {_identity(one): one for one in first if one.outcome == "fail"}
    again = {_identity(one) for one in second}
    kept = [dataclasses.replace(one, outcome="pass") if one.outcome == "fail" and _identity(one) not in before else one
            for one in second]  # fmt: skip
    used = any(one.outcome == "unknown" and one.kind == "finding" for one in second)
    why = "; others used it in the second look" if used else "; the budget was too short for a second look"
    return kept + [dataclasses.replace(one, outcome="unknown", reason=one.reason + why)
                   for identity, one in before.items() if identity not in again]  # fmt: skip


def _identity(one: Verdict) -> tuple[object, ...]:
    return (one.case_key or one.what, one.devices, one.source)


def is_usual(verdicts: Iterable[Verdict]) -> bool:
    """Whether later runs may be judged by this one: nothing in it is slow, whosever fault that is."""
    return not any(one.outcome != "pass" and one.shortfall > 0 for one in verdicts)


def line_of(
    verdicts: Sequence[Verdict],
    troubles: Sequence[str],
    known: str = "",
    *,
    unmeasured: str = "",
    history: bool = False,
) -> tuple[str, Exit]:
    """Return the node's health as one line of at most LONGEST_LINE characters, and the exit status.

    `troubles`: of the node's hardware. `known`: whose runs it was compared with. `unmeasured`: why no path was
    measured; empty where one was. `history`: whether there is one to judge by, if with too few runs.
    """
    checked = Checked.of(verdicts)
    if troubles:
        return _shortened(f"FAIL: {troubles[0]}"), Exit.FAIL
    failed = [one for one in checked.verdicts if one.outcome == "fail"]
    if failed:
        # Of what is against the history the line states the loss; other reasons are longer.
        worst = max(failed, key=lambda one: (one.shortfall, one.kind == "check"))
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        reason = f" {worst.reason}" if worst.kind == "check" else ""
        return _shortened(f"FAIL: {worst.what}{reason}", more), Exit.FAIL
    held = [one for one in checked.verdicts if one.outcome == "pass" and not one.weak]
    # Slow, and not known why; or disturbed by others.
    doubted = any(one.outcome == "unknown" and (one.shortfall > 0 or one.kind == "finding") for one in verdicts)
    if doubted or not held:
        unknown = next((one for one in checked.verdicts if one.outcome == "unknown"), None)
        few = f"too few runs in the history: expected {LEAST_REPEATS} of this node, or of as many like it; run it again"
        nothing = few if history else "nothing to judge by: give --history"
        why = f"{unknown.what}: {unknown.reason}" if unknown else nothing
        return _shortened(f"UNKNOWN: {unmeasured or why}"), Exit.UNKNOWN
    count = f"{len(held)} check{'' if len(held) == 1 else 's'}"
    return _shortened(f"PASS: {count}{f', against {known}' if known else ''}"), Exit.DONE


def _shortened(text: str, more: str = "") -> str:
    text = " ".join(text.split())
    room = LONGEST_LINE - len(more)
    return (text if len(text) <= room else f"{text[: room - 3]}...") + more
