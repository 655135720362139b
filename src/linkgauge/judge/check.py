"""`check`: runs against what is known of their kind, a baseline, a system or rules, their faults, and each other."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from linkgauge.errors import UsageError
from linkgauge.findings import rules as rule_table
from linkgauge.findings.finding import Finding
from linkgauge.findings.known import TOLERANCE, held_against
from linkgauge.findings.not_measured import not_measured
from linkgauge.findings.other_users import other_processes
from linkgauge.findings.read import another_than
from linkgauge.judge.baseline import check_baseline, is_baseline, read_baseline
from linkgauge.judge.fleet import check_fleet, standings
from linkgauge.judge.one_run import check_run
from linkgauge.judge.requirements import (
    RULES,
    check_rules,
    check_system,
    failed_verdicts,
    finding_verdict,
    read_rules,
)
from linkgauge.judge.siblings import CORES_SLOWER, SIBLINGS, check_collectives, check_limits, check_siblings
from linkgauge.judge.standing import LEAST_NODES, Standing
from linkgauge.judge.subjects import Subject, load_subjects
from linkgauge.judge.verdicts import Checked, Verdict
from linkgauge.model.listed import listed
from linkgauge.model.patterns import COLLECTIVES, GROUPS, PAIRS, group_of, group_words
from linkgauge.model.quantity import percent
from linkgauge.model.shape import read_toml
from linkgauge.stats.checked import checked_words
from linkgauge.system.model import System

Judge = Callable[[Subject], tuple[list[Verdict], list[str], int]]

FINDINGS = "findings"
"""The source of verdicts that come from faults."""
BURN_IN = ("drifting", "throttled", "errors_rose")
"""What a run under the `duration` stop rule is judged by beside its faults."""

_ALIKE = (
    "Siblings and limits alone are no PASS, since all may be slow alike. Five runs make a baseline: "
    "'linkgauge baseline RUN... -o FILE', then 'linkgauge check RUN --against FILE'."
)


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What `check` found: verdicts, all findings, and the fleet's standings where there are enough nodes."""

    checked: Checked
    findings: tuple[Finding, ...]
    standings: tuple[Standing, ...]


def check(
    subjects: Sequence[Subject],
    against: str,
    *,
    tolerance: float = TOLERANCE,
    margin: float | None = None,
    with_findings: bool = True,
    by_ordinal: bool = False,
    other: Subject | None = None,
    of_rounds: tuple[Sequence[Verdict], Sequence[str]] = ((), ()),
) -> CheckResult:
    """Judge runs. `against`: a run folder, a baseline, a file of rules, a system's name or file, or empty.

    `other`: the run that `against` names, where it was made of a log. `by_ordinal`: devices of a run or a baseline are
    those of the same ordinal, on the same host too. `of_rounds`: verdicts and notes on small shifts
    (judge/small_shifts.py).

    Without it each run is judged by what is known of that kind of machine, else by its own siblings and limits, and
    four runs or more by each other. UsageError for what cannot be read.
    """
    found: dict[str, list[Finding]] = {}
    for subject in subjects if with_findings else ():
        burn_in = _reads_samples(subject)
        # Only what can count: rules that never tell a fault are asked by 'linkgauge findings'.
        asked = {rule.name for rule in rule_table.RULES if rule.faults or (burn_in and rule.name in BURN_IN)}
        found[subject.name] = rule_table.apply(subject.facts, burn_in, asked)
    verdicts: list[Verdict] = []
    of_runs: dict[str, list[str]] = {}  # notes, each with the runs that it is about
    unrequired = 0
    judge = _judge(against, tolerance, margin, by_ordinal, other)
    judged = [dataclasses.replace(subject, facts=subject.facts.undisturbed) for subject in subjects]
    for subject, whole in zip(judged, subjects, strict=True):
        new, more, without = judge(subject) if subject.facts.measures or not whole.facts.measures else ([], [], 0)
        verdicts += [*_disturbed(whole), *_beside_others(subject, new)]
        for note in dict.fromkeys([*_of_logs(whole), *more, *_tasks_unjudged(subject, new)]):
            of_runs.setdefault(note, []).append(subject.name)
        unrequired += without
        verdicts += _faults(subject, found.get(subject.name, []))
        if subject.facts.lost:
            why = f"lost since the run folder is damaged: 'linkgauge run --resume {subject.name}' measures them again"
            verdicts.append(subject.verdict("unknown", f"{subject.facts.lost} cases", why, "the run folder"))
    several = len(subjects) > 1
    notes = [note if len(runs) == len(subjects) else f"{listed(runs, 3)}: {note}" for note, runs in of_runs.items()]
    places = standings(judged)
    if not against and len(subjects) >= LEAST_NODES:
        how = "Runs are judged by each other" if places else "These runs share no case that all of them measured"
        notes.insert(0, f"{how}.")
    of_run = {subject.name: subject for subject in judged}
    of_fleet = [found for one in check_fleet(places) for found in _beside_others(of_run[one.run], [one])]
    named = {(one.run, frozenset(one.devices)) for one in of_fleet if one.outcome == "fail"}
    verdicts = [v for v in verdicts if v.source != SIBLINGS or (v.run, frozenset(v.devices)) not in named]
    # Four runs of one machine may all be slow alike.
    of_machines = len({subject.machine for subject in subjects}) >= LEAST_NODES
    verdicts += [dataclasses.replace(one, weak=one.outcome == "pass" and not of_machines) for one in of_fleet]
    without_any = {subject.name for subject in subjects} - {one.run for one in verdicts}
    verdicts += [
        subject.verdict("unknown", "the run as a whole", "no case of it has a requirement", "the run's own cases")
        for subject in subjects if several and subject.name in without_any
    ]  # fmt: skip
    if not places:  # of several machines the others show what is usual
        verdicts += [unknown for subject in judged for unknown in _links_unjudged(subject, verdicts)]
    verdicts += of_rounds[0]
    notes += of_rounds[1]
    if words := checked_words(sum((subject.facts.checked for subject in subjects), Counter())):
        notes.append(f"{words.capitalize()}; --verify N checks N more of each case.")
    findings = tuple(finding for each in found.values() for finding in each)
    left = [
        line for one in subjects for line in not_measured(one.facts, one.name, f" of {one.name}" if several else "")
    ]
    checked = Checked.of(verdicts, unrequired, notes, left)
    if several and checked.weak_runs:
        alone = f"By siblings or limits alone, and so UNKNOWN: {listed(checked.weak_runs, 5)}."
        checked = dataclasses.replace(checked, notes=(alone, *checked.notes))
    return CheckResult(checked, findings, tuple(places))


def _of_logs(subject: Subject) -> list[str]:
    """Say of another tool's log by what its machine is known, and that one value of a case shows no spread."""
    origin = dict(subject.facts.info.get("origin") or {})
    said = [str(origin["taken_for"])] if origin.get("taken_for") else []
    if origin and subject.facts.measures and all(measure.samples == 1 for measure in subject.facts.measures):
        said.append("Each case is a single measurement, so nothing is known of its spread.")
    return said


def _disturbed(subject: Subject) -> list[Verdict]:
    """Return that nothing is known of what others used meanwhile, a verdict for each use."""
    return [
        subject.verdict("unknown", finding.subject, finding.sentence, FINDINGS, devices=finding.devices, kind="finding")
        for finding in other_processes(subject.facts)
        if finding.severity == "disturbed"
    ]


def _beside_others(subject: Subject, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts: a rate that fails is unknown where others had its device, and little use was seen.

    Copies of a twentieth of a link were seen to take a quarter of a device's own copy rate, and bursts of 0.3 s half of
    the rate of one case of a run of 8 s, in which no witness met one.
    """
    used = subject.facts.used
    why = dict.fromkeys(used.lightly_used, "others used it a little meanwhile")
    why |= {device: f"{listed(processes, 3)} had it open meanwhile" for device, processes in used.stayed.items()}
    found = []
    for one in verdicts:
        # What is said of a whole node is said of each of its devices.
        reason = next((why[device] for device in one.devices or why if device in why), "")
        if reason and one.outcome == "fail" and one.kind == "check":
            one = dataclasses.replace(one, outcome="unknown", reason=f"{one.reason}; {reason}")
        found.append(one)
    return found


def _groups(subject: Subject) -> dict[str, set[int]]:
    """The groups of patterns that were measured, each with the identities of its measures."""
    found: dict[str, set[int]] = {}
    for measure in subject.facts.measures:
        found.setdefault(group_of(measure.pattern, measure.devices), set()).add(id(measure))
    return {one: found[one] for one in GROUPS if one in found}


def _judged_groups(verdicts: Sequence[Verdict], weak: bool) -> set[str]:
    """The groups that verdicts on cases are about: by shares and failures, or weak ones by limits alone."""
    cases = ((dict(one.labels).get("pattern"), one.devices) for one in verdicts if one.weak == weak)
    return {group_of(pattern, devices) for pattern, devices in cases if pattern}


def _links_unjudged(subject: Subject, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return UNKNOWN where a run measured what joins its devices, and only host links or memory have a known share."""
    mine = [one for one in verdicts if one.run == subject.name and not one.weak]
    between = [one for one in _groups(subject) if one in (PAIRS, COLLECTIVES)]
    if not between or not mine or subject.facts.are_cores(sorted(subject.facts.devices)):
        return []
    # A verdict that names no pattern may be of any: another run's, a rule's, a finding's.
    if any(not dict(one.labels).get("pattern") or group_of(dict(one.labels)["pattern"], one.devices) in between
           for one in mine):  # fmt: skip
        return []
    what = " and ".join(group_words(one, subject.facts.noun) for one in between)
    reason = "no share is known of them here, and all of them may be slow alike"
    return [subject.verdict("unknown", what, reason, "the run's own cases")]


def _tasks_unjudged(subject: Subject, verdicts: Sequence[Verdict]) -> list[str]:
    """Say of which tests of a log no share is known, where one is of others: a log has few, so each matters."""
    judged = {(of["transport"], of["pattern"]) for one in verdicts if not one.weak and (of := dict(one.labels))}
    left = {one.label for one in subject.facts.measures if (one.transport, one.pattern) not in judged}
    if not left or not judged or not subject.facts.info.get("origin"):
        return []
    return [f"No share is known of {listed(sorted(left), 4)}."]


def _by_siblings_and_limits(subject: Subject) -> list[Verdict]:
    """Judge by siblings and limits. A pass is weak, of a run as of a log: all of a class may be slow alike."""
    found = [*check_siblings(subject), *check_limits(subject), *check_collectives(subject)]
    return [dataclasses.replace(one, weak=one.outcome == "pass") for one in found]


def _where_no_share_is(subject: Subject, verdicts: Sequence[Verdict]) -> tuple[list[Verdict], str]:
    """Judge the groups that no share is about by siblings and limits; say which these are, and what nothing judges."""
    found: list[Verdict] = []
    alone: list[str] = []
    none: list[str] = []
    groups = _groups(subject)
    by_shares, by_limits = (_judged_groups(verdicts, weak=weak) for weak in (False, True))
    for group in (one for one in groups if one not in by_shares):
        others = set().union(*(groups[one] for one in groups if one != group))
        # What check_system has judged by limits is among the verdicts.
        some = [] if group in by_limits else _by_siblings_and_limits(
            dataclasses.replace(subject, facts=subject.facts.without(others))
        )  # fmt: skip
        (alone if some or group in by_limits else none).append(group)
        found += some
    words = ""
    for how, those in (("by siblings and limits alone", alone), ("not judged", none)):
        named = [group_words(one, subject.facts.noun) for one in GROUPS if one in those]
        words += f"; {how}: {', '.join(named)}" if named else ""
    return found, words


def _reads_samples(subject: Subject) -> bool:
    """Burn-in runs are judged by how they change over time, which only their samples show."""
    return any(measure.case.stop.rule == "duration" for measure in subject.facts.measures)


def _faults(subject: Subject, found: Sequence[Finding]) -> list[Verdict]:
    burn_in = BURN_IN if _reads_samples(subject) else ()
    return [
        finding_verdict(f.rule, f, FINDINGS, subject)
        for f in found
        if (f.severity == "fault" or f.rule in burn_in) and f.rule != "failed_cases"  # these count case by case
    ]


def _by_itself(subject: Subject, tolerance: float) -> tuple[list[Verdict], list[str], int]:
    """Judge a run by what is known of that kind of machine, else by its own siblings and limits, and say which."""
    kind = subject.facts.likeness
    why = "no described system is like this machine, by devices and links"
    if kind is not None:
        name = f"{kind.system.name} ({kind.words})"
        if held_against(subject.facts, kind.system, tolerance)[0]:
            verdicts, notes, without = check_system(subject, kind.system, tolerance)
            said = f"Judged by what is known of {name}: {percent(1 - tolerance)} of the shares measured there"
            rest, words = _where_no_share_is(subject, verdicts)
            return [*verdicts, *rest], [f"{said}{words}.", *notes], without
        why = f"of {name} no share is known" + " of these cases" * bool(kind.system.accepted)
    cluster = subject.facts.system
    # No device tells which cluster it is of, so only a named one has shares between nodes.
    if kind is None and cluster is not None and cluster.network is not None:
        if held_against(subject.facts, cluster, tolerance)[0]:
            verdicts, notes, without = check_system(subject, cluster, tolerance)
            said = f"Judged by what is known of {cluster.name}: {percent(1 - tolerance)} of the shares measured there."
            return verdicts, [said, *notes], without
        why = f"of {cluster.name} no share over several nodes is known" + " of these cases" * bool(cluster.accepted)
    verdicts = [*failed_verdicts(subject, "its own cases"), *_by_siblings_and_limits(subject)]
    judged = f"Judged by its own siblings and limits: {why}."
    if subject.facts.unjudged:
        how = "Judged by its own siblings alone" if verdicts else "Not judged"
        judged = f"{how}: {subject.facts.unjudged}."
    if subject.facts.are_cores(sorted(subject.facts.devices)):
        named = f"named only where they take {1 + CORES_SLOWER:g} times as long"
        judged = f"Judged by its own siblings: host devices are cores, {named}."
    alike = bool(verdicts) and all(one.weak for one in verdicts) and not subject.facts.info.get("origin")
    return verdicts, [judged, *([_ALIKE] if alike else [])], 0


def _judge(against: str, tolerance: float, margin: float | None, by_ordinal: bool, other: Subject | None) -> Judge:
    path = Path(against)
    if other is not None:
        return lambda subject: _by_run(subject, other, margin, by_ordinal)
    if not against:
        return lambda subject: _by_itself(subject, tolerance)
    if path.is_dir():
        (run,) = load_subjects([path])
        return lambda subject: _by_run(subject, run, margin, by_ordinal)
    if path.is_file() and is_baseline(path):
        baseline = read_baseline(path)

        def by_baseline(subject: Subject) -> tuple[list[Verdict], list[str], int]:
            verdicts, notes, unknown = check_baseline(subject, baseline, margin=margin, by_ordinal=by_ordinal)
            return verdicts + failed_verdicts(subject, baseline.place), notes, unknown

        return by_baseline
    if path.is_file() and path.suffix == ".toml" and _has_rules(path):
        rules = read_rules(path)
        return lambda subject: check_rules(subject, rules, str(path), lambda: rule_table.apply(subject.facts))
    from linkgauge.system import catalog

    if (path.suffix or "/" in against) and not os.path.lexists(path):
        raise UsageError(f"{against}: there is no such file: expected a run folder, a log, a baseline, rules (TOML) "
                         "or a system of 'linkgauge list systems'")  # fmt: skip
    system = catalog.load(against)
    return lambda subject: _by_system(subject, system, tolerance)


def _by_system(subject: Subject, system: System, tolerance: float) -> tuple[list[Verdict], list[str], int]:
    """Judge by a named system, whose shares say nothing of a machine of other GPUs."""
    if unlike := another_than(subject.facts.launches, system):
        unknown = subject.verdict("unknown", "the run as a whole", f"{unlike}; name one of these GPUs", system.name)
        return [unknown, *failed_verdicts(subject, system.name)], [], len(subject.facts.measures)
    return check_system(subject, system, tolerance)


def _by_run(
    subject: Subject, other: Subject, margin: float | None, by_ordinal: bool
) -> tuple[list[Verdict], list[str], int]:
    verdicts, notes, without = check_run(subject, other, margin, by_ordinal)
    return verdicts + failed_verdicts(subject, other.name), notes, without


def _has_rules(path: Path) -> bool:
    try:
        return "rule" in read_toml(path, RULES)
    except UsageError:
        return False
