"""Rules about the way of cases between nodes: whether it was the network, and how many of its cards."""

from __future__ import annotations

from collections.abc import Iterable

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import keys
from linkgauge.findings.naming import case_words
from linkgauge.findings.rule import rule
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import percent
from linkgauge.stats.crossing import NETWORK, SHARED_MEMORY

_SHOWN = 3


@rule("cases between nodes whose bytes did not cross the network", faults=True, whole=True)
def bypassed_network(facts: Facts) -> Iterable[Finding]:
    """Cases between nodes of whose bytes the nodes' network cards counted too few: they went another way."""
    of_label = grouped(
        ((measure.label, crossing.went_by), (measure, crossing))
        for measure in facts.measures
        for crossing in map(facts.crossings.get, measure.identities)
        if crossing is not None and crossing.went_by not in ("", NETWORK)
    )
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
            (*(Evidence(f"{case_words(one)}: {way_of.counted_bytes} of {way_of.payload_bytes} bytes counted",
                        (one.case_key,)) for one, way_of in found[:_SHOWN]),
             Evidence("all of them", keys(measures))),
            0.99,
            "Containers of one host share its memory, and MPICH and UCX find that out by themselves: start one rank a "
            "host, or keep the library from it (MPIR_CVAR_NOLOCAL=1, UCX_TLS=tcp,self or a NIC's, Open MPI --mca btl "
            "tcp,self), and measure again.",
            1.0 - least,
        )  # fmt: skip
