"""Rules about the way of cases between nodes: whether it was the network, and how many of its cards."""

from __future__ import annotations

from collections.abc import Iterable

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, keys
from linkgauge.findings.naming import case_words
from linkgauge.findings.rule import rule
from linkgauge.model.quantity import percent
from linkgauge.stats.crossing import NETWORK, SHARED_MEMORY, Crossing

_SHOWN = 3


@rule("cases between nodes whose bytes did not cross the network", faults=True, whole=True)
def bypassed_network(facts: Facts) -> Iterable[Finding]:
    """Cases between nodes of whose bytes the nodes' network cards counted too few: they went another way."""
    of_label: dict[tuple[str, str], list[tuple[Measure, Crossing]]] = {}
    for measure in facts.measures:
        for crossing in (facts.crossings.get(identity) for identity in measure.identities):
            if crossing is not None and crossing.went_by not in ("", NETWORK):
                of_label.setdefault((measure.label, crossing.went_by), []).append((measure, crossing))
    for (label, went_by), found in of_label.items():
        measures = list({id(measure): measure for measure, _ in found}.values())
        least = min(crossing.share for _, crossing in found)
        way = "memory that the nodes share" if went_by == SHARED_MEMORY else "the network in part only"
        several = "s" if len(measures) > 1 else ""
        yield Finding(
            "bypassed_network",
            "fault",
            label,
            f"{label} between nodes went by {way}: in {len(measures)} case{several} the nodes' network cards counted "
            f"as little as {percent(least, 1)} of the bytes that must cross. Its figures are none of the network.",
            (*_evidence(found), Evidence("all of them", keys(measures))),
            0.99,
            "Containers of one host share its memory, and MPICH and UCX find that out by themselves: start one rank a "
            "host, or keep the library from it (MPIR_CVAR_NOLOCAL=1, UCX_TLS=tcp,self or a NIC's, Open MPI --mca btl "
            "tcp,self), and measure again.",
            1.0 - least,
        )


def _evidence(found: list[tuple[Measure, Crossing]]) -> list[Evidence]:
    return [
        Evidence(
            f"{case_words(measure)}: {crossing.counted_bytes} of {crossing.payload_bytes} bytes counted",
            (measure.case_key,),
        )
        for measure, crossing in found[:_SHOWN]
    ]
