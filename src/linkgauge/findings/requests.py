"""A rule about what cases requested: settings that did nothing, and ways that were not taken."""

from __future__ import annotations

from collections.abc import Iterable

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, keys
from linkgauge.findings.naming import case_words
from linkgauge.findings.rule import rule
from linkgauge.stats.requests import RequestVerdict

_SHOWN = 3


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
        yield Finding(
            "not_held",
            "fault",
            request,
            f"{request} was requested and did not hold{among}: {worst[1].evidence}{of}. Such "
            "figures are not of what was requested.",
            (*_evidence(refuted), Evidence("all of them", cases)),
            0.99,
            "Correct the name and the value for the library in use, or leave the setting out. 'linkgauge show "
            "RUN' lists each request with its evidence.",
        )


def _evidence(refuted: list[tuple[Measure, RequestVerdict]]) -> list[Evidence]:
    of_case = {measure.case_key: (measure, one) for measure, one in refuted}
    return [
        Evidence(f"{case_words(measure)}: {one.evidence}", (measure.case_key,))
        for measure, one in list(of_case.values())[:_SHOWN]
    ]
