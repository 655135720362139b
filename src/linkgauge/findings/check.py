"""`check`: runs against a baseline, a system or rules, their faults, and each other."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from linkgauge.errors import UsageError
from linkgauge.findings import rules as rule_table
from linkgauge.findings.against import TOLERANCE, check_rules, check_system, failed_verdicts, read_rules
from linkgauge.findings.baseline import check_baseline, is_baseline, read_baseline
from linkgauge.findings.finding import Finding
from linkgauge.findings.fleet import LEAST_NODES, Standing, check_fleet, standings
from linkgauge.findings.subjects import Subject
from linkgauge.findings.verdicts import Checked, Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Judge = Callable[[Subject], tuple[list[Verdict], list[str], int]]

BURN_IN = ("drifting", "throttled", "errors_rose")
"""What a run under the `duration` stop rule is judged by beside its faults."""


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
    margin: float = 0.01,
    with_findings: bool = True,
) -> CheckResult:
    """Judge runs. `against`: a baseline, a file of rules, a system's name or file, or empty for the fleet alone.

    UsageError for what cannot be read, and for an empty `against` with fewer than four runs.
    """
    if not against and len(subjects) < LEAST_NODES:
        raise UsageError(
            f"--against is missing: name a baseline, a system or a file of rules; without it, at least "
            f"{LEAST_NODES} runs are "
            "compared with each other"
        )
    found: dict[str, list[Finding]] = {}
    for subject in subjects if with_findings else ():
        burn_in = _reads_samples(subject)
        # Only what can count: rules that never tell a fault are asked by 'linkgauge findings'.
        asked = {rule.name for rule in rule_table.RULES if rule.faults or (burn_in and rule.name in BURN_IN)}
        found[subject.name] = rule_table.apply(subject.facts, burn_in, asked)
    verdicts: list[Verdict] = []
    notes: list[str] = []
    unrequired = 0
    judge = _judge(against, tolerance, margin)
    for subject in subjects:
        new, more, without = judge(subject)
        verdicts += new
        notes += more
        unrequired += without
        verdicts += _faults(subject, found.get(subject.name, []))
    places = standings(subjects)
    if not against and not places:
        notes.append("these runs share no case that all of them measured")
    verdicts += check_fleet(places)
    findings = tuple(finding for each in found.values() for finding in each)
    return CheckResult(Checked.of(verdicts, unrequired, notes), findings, tuple(places))


def _reads_samples(subject: Subject) -> bool:
    """Burn-in runs are judged by how they change over time, which only their samples show."""
    return any(measure.dims.get("stop_rule") == "duration" for measure in subject.facts.measures)


def _faults(subject: Subject, found: Sequence[Finding]) -> list[Verdict]:
    burn_in = BURN_IN if _reads_samples(subject) else ()
    return [
        Verdict(
            "short",
            f"{f.rule}: {f.subject}",
            f.sentence,
            "findings",
            subject.name,
            subject.host,
            devices=f.devices,
            shortfall=f.effect,
        )
        for f in found
        if (f.severity == "fault" or f.rule in burn_in) and f.rule != "failed_cases"  # these count case by case
    ]


def _judge(against: str, tolerance: float, margin: float) -> Judge:
    path = Path(against)
    if not against:
        return lambda subject: (failed_verdicts(subject, "the fleet"), [], 0)
    if path.is_dir():
        raise UsageError(
            f"--against '{against}' is a folder: expected a baseline, made of runs with 'linkgauge baseline RUN... -o "
            f"FILE', a system or a file of rules"
        )
    if path.is_file() and is_baseline(path):
        baseline = read_baseline(path)

        def by_baseline(subject: Subject) -> tuple[list[Verdict], list[str], int]:
            verdicts, notes, unknown = check_baseline(subject, baseline, margin=margin)
            return verdicts + failed_verdicts(subject, baseline.place), notes, unknown

        return by_baseline
    if path.is_file() and path.suffix == ".toml" and _has_rules(path):
        rules = read_rules(path)
        return lambda subject: check_rules(subject, rules, str(path), lambda: rule_table.apply(subject.facts))
    from linkgauge.system import catalog

    system = catalog.load(against)
    return lambda subject: check_system(subject, system, tolerance)


def _has_rules(path: Path) -> bool:
    try:
        return "rule" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
