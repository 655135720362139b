"""All rules, and how what they find is weighed and told. A rule is a function from facts to findings, with `@rule`.

docs/reference/findings.md shows the table to users; a test keeps the two together.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Container, Iterator

from linkgauge import findings
from linkgauge.errors import UsageError
from linkgauge.findings import known, moments, recurring
from linkgauge.findings.confidence import LEAST, SLOW, confidence_of
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Finding, ordered
from linkgauge.findings.rule import REGISTERED, Rule
from linkgauge.model.grouped import grouped
from linkgauge.model.listed import listed
from linkgauge.model.quantity import percent

_FIRST = (
    "crossing", "other_users", "recurring", "moments", "network_causes", "high_latency", "localize", "health",
    "interference", "collectives", "locality", "known", "ways", "curves", "periods", "blocks",
)  # fmt: skip
"""Modules whose rules are told before the others', of what is as grave."""


def _found() -> Iterator[Rule]:
    """Every rule of this room: a new module with an `@rule` needs no line elsewhere."""
    names = {module.name: f"{findings.__name__}.{module.name}" for module in pkgutil.iter_modules(findings.__path__)}
    for name in dict.fromkeys([*_FIRST, *sorted(names)]):
        importlib.import_module(names[name])
        yield from (rule for rule in REGISTERED.values() if rule.find.__module__ == names[name])


RULES: tuple[Rule, ...] = tuple(_found())
"""All rules, in the order of telling what is as grave."""


ANY = "any"
"""In a user's rules: every finding but notes."""


def told_by(name: str) -> tuple[str, ...]:
    """Return the findings that a name stands for: a finding's own, or all that a rule of this name tells.

    UsageError that lists the names for one that is neither.
    """
    told = {finding for rule in RULES for finding in rule.tells}
    if name in told:
        return (name,)
    for rule in RULES:
        if rule.name == name:
            return rule.tells
    known = (ANY, *dict.fromkeys(one for rule in RULES for one in (rule.name, *rule.tells)))
    raise UsageError(f"unknown finding '{name}': expected one of {', '.join(known)}")


def in_words() -> str:
    """Return the rules that there are, each with what it tells where that is not its own name."""
    return ", ".join(
        rule.name if rule.tells == (rule.name,) else f"{rule.name} ({', '.join(rule.tells)})" for rule in RULES
    )


_ALIKE = (
    "throttled", "host_staging", "path_by_hops", "anti_locality", "copy_engine_cap",
    "falling_goodput", "latency_step", "library_choice", "device_counts", "collective_below_limit", "bypassed_network",
)  # fmt: skip
"""Rules whose alarms of one run have one cause more often than several."""
_CAUSES = ("throttled",)
"""Rules that tell what was observed of a device, by which it is slow."""
_OF_THE_NETWORK = {
    "lossy_link": "Lost packets explain it",
    "flapping_link": "A link that went down meanwhile explains it",
    "link_down": "A link that is down explains it",
    "mtu_mismatch": "MTUs that differ explain it",
    "high_latency": "The latency of these nodes explains it",
}
"""Rules that state why the network is slow, told in place of what they explain."""
_EXPLAINED_BY_IT = (*SLOW, "rail_unused", "noisy", "drifting", "multimodal", "straggler", "slow_from")
_NAMED = 8


def apply(facts: Facts, samples: bool = True, only: Container[str] | None = None) -> list[Finding]:
    """Return findings in the order of telling.

    `samples=False` leaves out the rules that go through series; `only` names the rules to ask, all by default. Cases
    whose medium others used reach no rule: that they did is a finding of its own.
    """
    facts = facts.undisturbed
    asked = [rule for rule in RULES if (samples or not rule.reads_samples) and (only is None or rule.name in only)]
    found = []
    if samples and (hit := recurring.affected(facts)):
        found += [_weighed(one) for rule in asked if rule.find is recurring.slow_at_times for one in rule.find(facts)]
        facts = facts.without(hit)
    found += [_weighed(finding) for rule in asked if rule.whole for finding in rule.find(facts)]
    if samples and (slowed := moments.affected(facts)):
        facts = facts.without(slowed)
    found += [_weighed(finding) for rule in asked if not rule.whole for finding in rule.find(facts)]
    return _told_once(ordered(_explained(found)))


def _weighed(finding: Finding) -> Finding:
    """Say how sure a finding is by how often such findings are right; rules themselves give its evidence's strength."""
    sure = confidence_of(finding.rule, finding.confidence)
    weighed = dataclasses.replace(finding, strength=finding.confidence, confidence=sure)
    if not finding.is_alarm or sure >= LEAST:
        return weighed
    sentence = f"{finding.sentence} Of findings with evidence as strong, {percent(sure)} are right: measure again."
    return dataclasses.replace(weighed, severity="note", unsure=True, sentence=sentence)


def _explained(found: list[Finding]) -> list[Finding]:
    """Make notes of what another finding explains, so that the cause is told first.

    A device whose clocks are held down, or that others use, is slow by that, be it from a moment on or always.

    A slow element whose cases drift: that it slows down is the cause. A step between two sizes of which one is a
    library's bad choice, or that goodput falls by for good: it is told once. A dip of goodput at such a step.
    """
    found = _with_moments(found)
    told = grouped((f.rule, _cases(f)) for f in found if f.severity != "note")
    drifting, chosen = (set().union(*told.get(rule, ())) for rule in ("drifting", "library_choice"))
    falls, steps = (told.get(rule, []) for rule in ("falling_goodput", "latency_step"))
    slow = {f.rule == "slow_host_link" for f in found if f.rule in SLOW and f.severity != "note"}
    held = {f.devices: _cases(f) for f in found if f.rule in _CAUSES and len(f.devices) == 1}
    network = [(f, _cases(f)) for f in found if f.rule in _OF_THE_NETWORK and f.severity == "fault"]
    result = []
    for finding in found:
        mine, why = _cases(finding), ""
        if finding.rule in SLOW and mine and len(mine & drifting) > 0.5 * len(mine):
            why = "Its cases drift while they are measured, which explains it."
        elif finding.rule in SLOW and any(
            device in finding.devices and len(mine & cases) > 0.5 * len(mine) for (device,), cases in held.items()
        ):
            why = "What was observed of its device meanwhile explains it."
        elif finding.rule == "below_known" and (finding.subject == known.PCIE) in slow:
            why = "A part that is slower than its siblings is reported, and others wait for it."
        elif finding.rule == "latency_step" and mine & chosen:
            why = "At one of these sizes the library's own choice is not the best, which explains it."
        elif finding.rule == "latency_step" and any(mine < fall for fall in falls):
            why = "Goodput falls by it."
        elif finding.rule == "falling_goodput" and mine in steps and not mine & chosen:
            why = "The step of time between these two sizes explains it."
        elif finding.rule in _EXPLAINED_BY_IT:
            cause = next((f for f, cases in network if mine and len(mine & cases) > 0.5 * len(mine)), None)
            if cause is not None:
                why = f"{_OF_THE_NETWORK[cause.rule]} ({cause.subject})."
                finding = dataclasses.replace(finding, fix=cause.fix)
        if why:
            finding = dataclasses.replace(finding, severity="note", sentence=f"{finding.sentence} {why}")
        result.append(finding)
    return result


def _with_moments(found: list[Finding]) -> list[Finding]:
    """Tell what begins at a moment with what was observed of the same device in most of these cases, as one finding."""
    result = list(found)
    for moment in [f for f in found if f.rule == "slow_from" and f.devices]:
        mine = _cases(moment)
        causes = (f for f in result if f.rule in _CAUSES and f.devices == moment.devices)
        cause = next((f for f in causes if len(_cases(f) & mine) > 0.5 * len(mine)), None)
        if cause is not None:
            result[result.index(cause)] = dataclasses.replace(
                cause,
                sentence=f"{cause.sentence} {moment.sentence[:1].upper()}{moment.sentence[1:]}",
                evidence=(*cause.evidence, *moment.evidence),
                effect=max(cause.effect, moment.effect),
            )
            result.remove(moment)
    return result


def _told_once(found: list[Finding]) -> list[Finding]:
    """Tell what is alike once: of several alarms of one rule the first in order names the others' subjects."""
    groups = grouped(
        ((one.rule, one.severity) if one.severity != "note" and one.rule in _ALIKE else number, one)
        for number, one in enumerate(found)
    )
    told = []
    for first, *more in groups.values():
        alike = f" Alike: {listed([one.subject for one in more], _NAMED, '; ')}." if more else ""
        evidence = (*first.evidence, *(item for one in more for item in one.evidence))
        told.append(dataclasses.replace(first, sentence=first.sentence + alike, evidence=evidence))
    return told


def _cases(finding: Finding) -> set[str]:
    return {key for item in finding.evidence for key in item.case_keys}
