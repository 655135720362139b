"""Whether host buffers got the pages that they requested, and NCCL the CTA policy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from linkgauge.model.result import Launch
from linkgauge.run.machine.host_pages import page_rows, shares
from linkgauge.stats.requested import verdicts_of
from linkgauge.stats.requests import Known
from synthetic import make_case

MIB = 1 << 20
BUFFERS = make_case("staging", "unidirectional", 64 * MIB, (0, 1), source_memory="pinned")
GATHER = make_case("ccl", "allgather", 64 * MIB, (0, 1), variant="zero_cta")


def states(known: Known) -> dict[str, str]:
    return {one.requested: one.state for one in verdicts_of(known)}


@pytest.mark.parametrize(("share", "state"), [(1.0, "held"), (0.9, "held"), (0.5, "not_held"), (0.0, "not_held")])
def test_pages_are_judged_by_what_the_kernel_lists(share: float, state: str) -> None:
    huge = dataclasses.replace(BUFFERS, huge_pages=True)
    assert states(Known(huge, huge_share=share)) == {"huge_pages": state}
    node = dataclasses.replace(BUFFERS, source_node=1)
    assert states(Known(node, node_shares={1: share})) == {"memory of NUMA node 1": state}


def test_pages_that_were_not_counted_are_unknown() -> None:
    assert states(Known(dataclasses.replace(BUFFERS, huge_pages=True))) == {"huge_pages": "unknown"}
    both = dataclasses.replace(BUFFERS, source_node=0, target_node=1)
    known = Known(both, node_shares={1: 1.0})
    assert states(known) == {"memory of NUMA node 0": "unknown", "memory of NUMA node 1": "held"}
    assert states(Known(BUFFERS, node_shares={1: 1.0}, huge_share=0.0)) == {}


def test_rows_of_all_ranks_are_one_share() -> None:
    rows = page_rows(0, {"huge_requested": 100, "huge_given": 0, "node_requested 1": 50, "node_given 1": 50})
    rows += page_rows(1, {"huge_requested": 100, "huge_given": 100, "node_requested 2": 50, "node_given 2": 0})
    assert {(row["subject"], row["unit"], row["moment"]) for row in rows} == {("host pages", "B", "after")}
    assert shares((row["name"], row["value"]) for row in rows) == (0.5, {1: 1.0, 2: 0.0})
    assert shares([("huge_given", 5.0), ("node_requested x", 1.0), ("node_requested 3", 0.0)]) == (None, {})
    assert page_rows(0, {}) == []


@pytest.mark.parametrize(
    ("chosen", "state"),
    [
        ({"algorithm": "COPY_ENGINE", "multicast": False}, "held"), ({"algorithm": "RING"}, "not_held"),
        ({"kernel": "AllGather_ST"}, "not_held"), ({}, "unknown"), ({"via": "P2P/CUMEM"}, "unknown"),
    ],
)  # fmt: skip
def test_a_collective_without_thread_blocks_is_a_copy_by_nccls_log(chosen: dict[str, Any], state: str) -> None:
    assert states(Known(GATHER, Launch(), chosen=chosen)) == {"CTA policy zero": state}
    efficient = dataclasses.replace(GATHER, variant="efficiency")
    assert states(Known(efficient, Launch(), chosen=chosen)) == {"CTA policy efficiency": "unknown"}
    assert states(Known(dataclasses.replace(GATHER, variant="graph"), chosen=chosen)) == {}
