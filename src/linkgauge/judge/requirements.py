"""Runs judged against a system's accepted shares, and against a user's own rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.findings.finding import Finding
from linkgauge.findings.known import TOLERANCE, held_against, wrong_system
from linkgauge.findings.measure import DIMENSIONS, Measure, rate_text
from linkgauge.findings.naming import case_words, task_words
from linkgauge.findings.rules import ANY, told_by
from linkgauge.judge.siblings import bus_words, check_collectives
from linkgauge.judge.subjects import Subject
from linkgauge.judge.verdicts import Outcome, Verdict
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes, percent
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.shape import Shape, anything, checked, each, one_or_more, only, read_toml, tables, text, whole
from linkgauge.stats.alike import members_text
from linkgauge.system import units
from linkgauge.system.likeness import like
from linkgauge.system.model import System

RULES = "a file of [[rule]] tables"
_ODD = 0.75  # of what the path reached at another size: no link is that much slower at one size


def _path(measure: Measure) -> tuple[object, ...]:
    """What a case of one message is about but its size: a link that reached its rate at one size can."""
    case = measure.case
    return (
        measure.transport, case.variant, measure.pattern, measure.devices, case.initiator, case.source_memory,
        case.target_memory,
    )  # fmt: skip


def check_system(
    subject: Subject, system: System, tolerance: float = TOLERANCE
) -> tuple[list[Verdict], list[str], int]:
    """Judge a run against the shares that a system's description says were seen: verdicts, notes, cases without one.

    What is asked is docs/reference/check.md's; `held_against` chooses the share and what it is of.
    """
    if not system.accepted:
        raise UsageError(
            f"system '{system.name}' states no accepted shares ([[accepted]]): judge against a baseline, a file of "
            f"rules, or its limits alone (--system {system.name})"
        )
    taken = []
    if subject.facts.system is None:
        subject = dataclasses.replace(subject, facts=dataclasses.replace(subject.facts, system=system))
        taken = [f"The run stores no links, so those of {system.name} are taken."]
    held, without = held_against(subject.facts, system, tolerance)
    reached: dict[tuple[object, ...], Measure] = {}
    for measure in subject.facts.measures:
        best = reached.get(_path(measure))
        if measure.goodput is not None and (best is None or measure.goodput > (best.goodput or 0.0)):
            reached[_path(measure)] = measure
    verdicts = []
    for one in held:
        measure, best = one.measure, reached[_path(one.measure)]
        library = f" with {one.entry.library}" if one.entry.library else ""
        share = percent(one.entry.share.value, 1)
        reached_there = "the threshold of its source is" if one.entry.origin == "bar" else "such machines reach"
        seen = f"{reached_there} {share}{library}, of which {percent(1 - tolerance)} is required"
        bus = bus_words(measure, one.required)
        reason = f"{percent(one.goodput / one.nominal)} of {rate_text(one.nominal)} (nominal){bus}; {seen}"
        outcome: Outcome = "fail" if one.short else "pass"
        most = best.goodput or 0.0
        odd = one.goodput < _ODD * most and most >= one.required
        if one.short and odd and not PATTERNS[measure.pattern].collective:
            outcome = "unknown"
            reason += f"; the path reached {rate_text(most)} at {format_bytes(best.size)}: measure again"
        if one.short and one.entry.condition:
            outcome, reason = "unknown", f"{reason}; measured there with {one.entry.condition}"
        if wrong := wrong_system(subject.facts, one.goodput / (1 + measure.half_width) / one.nominal, system):
            outcome, reason = "unknown", f"{reason}; {wrong}"
        verdicts.append(
            subject.verdict(
                outcome, case_words(measure), reason, one.entry.share.source, measure,
                measured=one.goodput, required=one.required, unit="B/s", task=task_words(measure),
                shortfall=1 - one.goodput / one.required if one.short else 0.0,
            )
        )  # fmt: skip
    # Of what no share is known of, what the links allow is the measure.
    by_limits = check_collectives(subject, {one.measure.case_key for one in held})
    verdicts += [*by_limits, *failed_verdicts(subject, system.name)]
    without -= len(by_limits)
    found = None if subject.facts.system is None else like(subject.facts.system, system)
    if found is not None and found.differences:
        taken.append(f"{', '.join(found.differences)}.")
    elif found is None and subject.facts.system is not None:
        words = f"This machine is not of the kind of {system.name}; where it is joined otherwise its own links count."
        taken.append(words)
    return verdicts, taken, without


def finding_verdict(name: str, finding: Finding, source: str, subject: Subject) -> Verdict:
    """Return the shortfall that a finding is to a rule of this name."""
    what = f"{name}: {finding.subject}"
    return subject.verdict("fail", what, finding.sentence, source, devices=finding.devices, shortfall=finding.effect,
                           kind="finding")  # fmt: skip


def failed_verdicts(subject: Subject, source: str) -> list[Verdict]:
    """Return a shortfall for each case that did not end well: in `check` these count as 1.

    What the stop rule's own time ended was not measured: of devices that no case measured it is unknown, else a note.
    """
    measured = {device for measure in subject.facts.measures for device in measure.devices}
    return [
        subject.verdict(
            "unknown" if one.out_of_time else "fail",
            f"{subject.facts.failed_words(one)} on {members_text([one.devices], subject.facts.noun)}",
            f"{one.status}: {one.reason}", source, case_key=one.case_key, devices=one.devices,
            shortfall=float(not one.out_of_time), task=subject.facts.failed_words(one), kind="case",
        )
        for one in subject.facts.failures if not (one.out_of_time and measured.issuperset(one.devices))
    ]  # fmt: skip


# --- a user's own rules ----------------------------------------------------------------------------------------------


def _told(value: Any, at: str) -> tuple[str, ...]:
    """What a name of `no_findings` stands for."""
    return (ANY,) if value == ANY else told_by(text(value, at))


_LIMITS: dict[str, tuple[str, str]] = {
    "goodput_at_least": (units.RATE, "goodput"),
    "busbw_at_least": (units.RATE, "bus"),
    "time_at_most": (units.TIME, "time"),
    "latency_at_most": (units.TIME, "latency"),
    "share_at_least": (units.COUNT, "share"),
    "spread_at_most": (units.COUNT, "spread"),
}
_WHERE: dict[str, Shape] = {
    **dict.fromkeys((*DIMENSIONS, "ranks"), one_or_more(anything)), "devices": each(whole()),
    "size_from": units.quantity(units.SIZE), "size_to": units.quantity(units.SIZE),
}  # fmt: skip
_OF_SIZE = ("size_from", "size_to", "devices")
_RULE: dict[str, Shape] = {
    "name": text, "where": only(_WHERE), "no_findings": each(_told),
    **{key: units.quantity(unit) for key, (unit, _) in _LIMITS.items()},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class UserRule:
    """One `[[rule]]` of a file: which cases it is about, and what it asks of them.

    `no_findings` are names of findings (those of rules stand for what they tell), or ANY.
    """

    name: str
    where: Mapping[str, Any]
    limits: Mapping[str, float]
    no_findings: tuple[str, ...]


def read_rules(path: Path) -> list[UserRule]:
    """Read a file of rules (docs/reference/check.md). UsageError that names file, rule and key."""
    entries = checked(read_toml(path, RULES), only({"rule": tables}, ("rule",)), str(path))["rule"]
    return [_user_rule(entry, f"{path}: rule {index}") for index, entry in enumerate(entries)]


def _user_rule(entry: Mapping[str, Any], place: str) -> UserRule:
    if isinstance(entry.get("name"), str):
        place = f"{place.rpartition(' ')[0]} {entry['name']}"
    said = checked(entry, only(_RULE), place)
    limits = {key: said[key] for key in _LIMITS if key in said}
    unwanted = tuple(told for names in said.get("no_findings", ()) for told in names)
    if not limits and not unwanted:
        raise UsageError(f"{place}: requires nothing: expected one of {', '.join(_LIMITS)} or no_findings")
    where = said.get("where", {})
    if "devices" in where:
        where["devices"] = tuple(where["devices"])
    return UserRule(said.get("name") or "rule", where, limits, unwanted)


def check_rules(
    subject: Subject, rules: Sequence[UserRule], source: str, findings: Callable[[], Sequence[Finding]]
) -> tuple[list[Verdict], list[str], int]:
    """Judge a run against a user's rules. A rule that no measured case falls under could not be judged.

    `findings` is asked once, and only where a rule is about findings: going through all samples takes seconds.
    """
    found = findings() if any(rule.no_findings for rule in rules) else ()
    verdicts: list[Verdict] = []
    judged: set[str] = set()
    for rule in rules:
        if rule.no_findings:
            verdicts += _no_findings(subject, rule, source, found)
        if not rule.limits:
            continue
        fitting = [m for m in subject.facts.measures if _matches(rule.where, m)]
        if not fitting:
            reason = "no measured case falls under this rule"
            verdicts.append(subject.verdict("unknown", rule.name, reason, source))
        for measure in fitting:
            judged.add(measure.case_key)
            verdicts += [_against(subject, rule, key, limit, measure, source) for key, limit in rule.limits.items()]
    verdicts += failed_verdicts(subject, source)
    return verdicts, [], sum(m.case_key not in judged for m in subject.facts.measures)


def _no_findings(subject: Subject, rule: UserRule, source: str, findings: Sequence[Finding]) -> list[Verdict]:
    wanted = [f for f in findings if f.rule in rule.no_findings or (ANY in rule.no_findings and f.is_alarm)]
    if not wanted:
        reason = f"no finding of {', '.join(rule.no_findings)}"
        return [subject.verdict("pass", rule.name, reason, source)]
    return [finding_verdict(rule.name, f, source, subject) for f in wanted]


def _matches(where: Mapping[str, Any], measure: Measure) -> bool:
    known = {**measure.dims, "ranks": measure.ranks}
    return (
        where.get("size_from", 0) <= measure.size <= where.get("size_to", math.inf)
        and where.get("devices", measure.devices) == measure.devices
        and all(known.get(key) in wanted for key, wanted in where.items() if key not in _OF_SIZE)
    )


def _against(subject: Subject, rule: UserRule, key: str, limit: float, measure: Measure, source: str) -> Verdict:
    unit, quantity = _LIMITS[key]
    values: dict[str, float | None] = {
        "goodput": measure.goodput,
        "bus": measure.bus,
        "time": measure.time_ns,
        "latency": measure.time_ns * PATTERNS[measure.pattern].latency_share,
        "spread": measure.spread,
        "share": None,
    }
    bound = subject.facts.bound(measure) if quantity == "share" else None
    if bound is not None and bound.value_bytes_per_s and measure.goodput is not None:
        values["share"] = measure.goodput / bound.value_bytes_per_s
    value = values[quantity]
    what = f"{rule.name}: {case_words(measure)}"
    if value is None:
        reason = "no bound is known for this case" if quantity == "share" else f"this pattern has no {quantity}"
        return subject.verdict("unknown", what, reason, source, measure)
    at_least = key.endswith("at_least")
    # The interval's near end counts, so that noise alone does not fail a case.
    reach = 0.0 if quantity == "spread" else measure.half_width
    short = value * (1 + reach) < limit if at_least else value * (1 - reach) > limit
    shortfall = 0.0 if not short else (1 - value / limit if at_least else 1 - limit / value)
    asked = f"{'at least' if at_least else 'at most'} {_shown(limit, unit)} required"
    reason = f"{quantity} {_shown(value, unit)}, {asked}"
    unit = "" if unit == units.COUNT else unit
    return subject.verdict(
        "fail" if short else "pass", what, reason, source, measure,
        measured=value, required=limit, unit=unit, shortfall=shortfall,
    )  # fmt: skip


def _shown(value: float, unit: str) -> str:
    if unit == units.RATE:
        return rate_text(value)
    return time_text(value) if unit == units.TIME else percent(value, 1)
