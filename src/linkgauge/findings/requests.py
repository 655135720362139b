"""A rule about what cases requested: settings that did nothing, and ways that were not taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, keys
from linkgauge.findings.naming import case_words
from linkgauge.findings.rule import rule
from linkgauge.model.grouped import grouped
from linkgauge.model.listed import listed
from linkgauge.stats.requests import RequestVerdict

_SHOWN = 3
_VARIABLE = re.compile(r"([A-Z]+_)[A-Z0-9_a-z]*=")


@rule("settings and ways that were requested and did not hold", faults=True, whole=True)
def not_held(facts: Facts) -> Iterable[Finding]:
    """Requests that the run's own evidence refutes, one finding a request."""
    found: dict[str, list[tuple[Measure, RequestVerdict]]] = {}
    requested: dict[str, set[str]] = {}
    for measure in facts.measures:
        for one in (one for identity in measure.identities for one in facts.requests.get(identity, ())):
            requested.setdefault(one.requested, set()).add(measure.case_key)
            if one.state == "not_held":
                found.setdefault(one.requested, []).append((measure, one))
    for request, refuted in found.items():
        cases = keys(measure for measure, _ in refuted)
        every = len(requested[request])
        among = "" if every == 1 else f" in {len(cases)} of {every} cases"
        worst = max(refuted, key=lambda item: item[0].size)
        of = f" ({case_words(worst[0])})" if len({one.evidence for _, one in refuted}) > 1 else ""
        if any(one.in_use for _, one in refuted):
            words = (f"{request} was requested and did not hold{among}: {worst[1].evidence}{of}. Such figures are not "
                     "of what was requested.")  # fmt: skip
        else:
            words = f"{request} did nothing: {worst[1].evidence}."
        fix = _fix(request, worst[1], _rivals(facts, request, refuted))
        yield Finding(
            "not_held",
            "fault",
            request,
            words,
            _evidence(refuted),
            0.99,
            f"{fix} 'linkgauge show RUN' lists each request with its evidence.",
        )


def _fix(request: str, verdict: RequestVerdict, rivals: Sequence[str]) -> str:
    """Return what to do; `rivals`: variables of the same library that held where this request did not."""
    if not verdict.in_use:
        return "Leave it out, or measure a case that uses the library."
    if request == "huge_pages":
        if "transparent_hugepage" in verdict.evidence:
            return "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, or leave out --huge-pages."
        return "Free memory (echo 1 > /proc/sys/vm/compact_memory joins what is free), or leave out --huge-pages."
    if request.startswith("memory of NUMA node"):
        return "Free memory on that NUMA node, or place the buffers on another one."
    if not _VARIABLE.match(request):
        return "Request what this machine and its library can do, or leave the request out."
    if rivals:
        return f"{listed(rivals, _SHOWN)} held there: if they contradict each other, leave one of them out."
    return "Correct the name and the value for the library in use, or leave the setting out."


def _rivals(facts: Facts, request: str, refuted: Sequence[tuple[Measure, RequestVerdict]]) -> list[str]:
    variable = _VARIABLE.match(request)
    if variable is None:
        return []
    verdicts = (one for measure, _ in refuted for identity in measure.identities
                for one in facts.requests.get(identity, ()))  # fmt: skip
    held = (one.requested for one in verdicts if one.state == "held")
    return sorted({one for one in held if one.startswith(variable[1]) and one != request})


def _evidence(refuted: Sequence[tuple[Measure, RequestVerdict]]) -> tuple[Evidence, ...]:
    """Return what was seen, each once with all its cases."""
    seen = grouped((one.evidence, measure) for measure, one in refuted)
    found = []
    for said, measures in [*seen.items()][:_SHOWN]:
        cases = keys(measures)
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        found.append(Evidence(f"{case_words(measures[0])}{more}: {said}", cases))
    rest = keys(measure for measures in [*seen.values()][_SHOWN:] for measure in measures)
    if rest:
        found.append(Evidence(f"{len(rest)} more with other figures", rest))
    return tuple(found)
