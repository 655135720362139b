"""The finding on requests that did not hold: what it says, what it proposes, and each piece of evidence once."""

from __future__ import annotations

import pytest

from findings.test_held_apart import rows_of
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Finding
from linkgauge.findings.requests import not_held
from linkgauge.stats.requests import RequestVerdict, held
from linkgauge.stats.requests import not_held as refuted
from results import measures_of


def found(*verdicts: RequestVerdict, cases: int = 1) -> Finding:
    measures = measures_of(rows_of((1e3,) * 5, transport="mpi")[:cases])
    requests = {identity: verdicts for measure in measures for identity in measure.identities}
    ((finding),) = not_held(Facts(measures, requests=requests))
    return finding


def test_a_variable_that_no_case_uses_did_nothing() -> None:
    one = RequestVerdict("NCCL_ALGO=Ring", "not_held", "no case of this run uses NCCL", in_use=False)
    finding = found(one, cases=3)
    assert finding.sentence == "NCCL_ALGO=Ring did nothing: no case of this run uses NCCL."
    assert finding.severity == "fault"  # docs/definitions.md: not held, and check fails it
    assert finding.fix.startswith("Leave it out, or measure a case that uses the library.")
    (evidence,) = finding.evidence
    assert evidence.text.endswith(" and 2 more: no case of this run uses NCCL")
    assert len(evidence.case_keys) == 3


@pytest.mark.parametrize(
    ("request_", "evidence", "fix"),
    [
        ("huge_pages", "the kernel's transparent_hugepage is 'never'", "echo madvise > /sys/kernel/mm/"),
        ("huge_pages", "0.10 of the buffers' bytes on huge pages", "Free memory (echo 1 > /proc/sys/vm/compact_memory"),
        ("memory of NUMA node 1", "0.10 of the buffers' bytes there", "Free memory on that NUMA node"),
        ("path direct", "NVLink carried nothing", "Request what this machine and its library can do"),
        ("UCX_TLS=tcp", "UCX has rc", "Correct the name and the value for the library in use"),
    ],
)
def test_the_fix_is_for_what_was_requested(request_: str, evidence: str, fix: str) -> None:
    assert found(refuted(request_, evidence)).fix.startswith(fix)


def test_variables_that_contradict_each_other_are_both_named() -> None:
    finding = found(refuted("NCCL_P2P_DISABLE=1", "via P2P"), held("NCCL_P2P_LEVEL=SYS", "via P2P"))
    assert finding.fix.startswith("NCCL_P2P_LEVEL=SYS held there: if they contradict each other, leave one of them out")
