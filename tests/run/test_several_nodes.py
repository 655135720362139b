"""A run over several nodes, each a set of namespaces with its own steady clock, whose true offset is thus known."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linkgauge.findings.collectives import _uncertainty
from linkgauge.findings.read import facts_of
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.parent.measure import measure
from linkgauge.run.parent.prepare import named_mpis, new_pending
from linkgauge.run.parent.prepared import WORKER, Prepared, write_launches
from linkgauge.run.parent.reporter import Reporter
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load
from run.conftest import devices_of, machine_of
from run.on_a_node import namespaces_may_be_made
from thorough import thorough

SEVERAL = thorough("run/test_node_beats.py has ranks of several nodes, tests/core their clocks")

NODES = 3
SHIFT_S = 1000
PLAN = """
[[case]]
transport = "mpi"
pattern = ["allreduce", "alltoall", "broadcast"]
size = ["8", "64KiB"]
stop_rule = "count"
stop_samples = 40
max_time = "30s"
[[case]]
transport = "mpi"
pattern = "pingpong"
size = "8"
stop_rule = "count"
stop_samples = 40
max_time = "30s"
"""


pytestmark = pytest.mark.skipif(not namespaces_may_be_made(), reason="no namespaces may be made here")


@pytest.fixture(scope="module")
def across(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of three ranks on three nodes."""
    folder = tmp_path_factory.mktemp("nodes")
    plan, mpis = named_mpis(parse_plan(PLAN, "nodes", "nodes"), [])
    machine = machine_of(NODES)
    planned = plan_run(plan, expand(plan, machine), machine)
    run = RunFolder.create(folder / "run", {"seed": 1})
    write_launches(run.path, planned)
    worker = (sys.executable, str(Path(__file__).with_name("on_a_node.py")), str(SHIFT_S), *WORKER)
    prepared = Prepared(new_pending(planned), devices_of(NODES), machine, mpis, seed=1, worker=worker)
    assert measure(prepared, run, Reporter()) == 0
    return load(run.path)


def clocks(across: Any, row: Any) -> dict[tuple[int, str], tuple[float, float]]:
    """Offset and uncertainty in ns by (rank, moment)."""
    names = ("case_key", "launch", "repeat", "attempt")
    found: dict[tuple[int, str], dict[str, float]] = {}
    for one in across.observations.to_pylist():
        if tuple(one[name] for name in names) == row.identity and one["subject"] == "host clock":
            found.setdefault((one["rank"], one["moment"]), {})[one["name"]] = one["value"]
    return {key: (value["clock_offset"], value["clock_offset_uncertainty"]) for key, value in found.items()}


def true_offset_ns(rank: int) -> float:
    return rank * SHIFT_S * 1e9


@SEVERAL
def test_the_ranks_are_on_several_nodes(across: Any) -> None:
    (launch,) = across.launches.to_pylist()
    assert [rank["host"] for rank in launch["ranks"]] == [f"node{number}" for number in range(NODES)]
    assert [rank["device_ordinal"] for rank in launch["ranks"]] == list(range(NODES))
    assert [node["host"] for node in across.info["nodes"]] == [f"node{number}" for number in range(NODES)]
    assert all(len(node["devices"]) == NODES for node in across.info["nodes"])
    # None shares its node's cores with the others.
    assert all(rank["cores"] == sorted(os.sched_getaffinity(0)) for rank in launch["ranks"])
    assert {row.status for row in across.rows()} == {"ok"}
    assert all(row.verified for row in across.rows())


@SEVERAL
def test_the_offset_of_each_clock_is_stored_and_true_within_its_uncertainty(across: Any) -> None:
    for row in across.rows():
        first = min(row.case.devices)  # the node that the others are compared with
        found = clocks(across, row)
        if len(set(row.case.devices)) == 1:
            assert found == {}
            continue
        moments = {moment for _, moment in found}
        assert {"before", "after"} <= moments <= {"before", "within", "after"}
        assert set(found) == {(rank, moment) for rank in range(row.case.ranks) for moment in moments}
        for (rank, _), (offset, uncertainty) in found.items():
            expected = true_offset_ns(row.case.devices[rank]) - true_offset_ns(first)
            assert abs(offset - expected) <= uncertainty, (row.case.pattern, rank)
            assert uncertainty < 1e8
            assert (uncertainty > 0) == (row.case.devices[rank] != first)


@SEVERAL
def test_one_deadline_holds_on_all_nodes_and_none_starts_before_it(across: Any) -> None:
    held = facts_of(across)
    for row in across.rows():
        if row.case.ranks < NODES:
            continue
        series = held.samples.of(row.identity)
        assert series is not None
        before = clocks(across, row)
        assert (series.start_ns >= series.scheduled_ns).all()
        instants = {}
        for rank in range(row.case.ranks):
            mine = series.rank == rank
            order = np.argsort(series.sample[mine])
            instants[rank] = series.scheduled_ns[mine][order] - int(true_offset_ns(row.case.devices[rank]))
        for rank, instant in instants.items():
            # A case that takes longer than a second is compared anew, on a busy machine less surely.
            _, within = before.get((rank, "within"), before[rank, "before"])
            assert np.abs(instant - instants[0]).max() <= max(before[rank, "before"][1], within)


@SEVERAL
def test_stragglers_can_be_told_of_such_a_run(across: Any) -> None:
    held = facts_of(across)
    assert len(held.hosts) == NODES
    for measure_ in held.measures:
        bound = _uncertainty(held, measure_)
        if len(set(measure_.devices)) == 1:
            assert bound == 0
            continue
        uncertain = [clocks(across, row) for row in across.rows() if row.identity in measure_.identities]
        assert max(value[1] for found in uncertain for value in found.values()) <= bound < 1e9
