"""Jobs beside each other on emulated nodes: what one loses is its share of the link that both use, which is named."""

from __future__ import annotations

import importlib.util

import pytest

from cluster.cluster import Cluster, why_not
from cluster.layout import MBIT, Layout
from cluster.test_between_nodes import library, linkgauge, measured
from linkgauge.expect.network import Network
from linkgauge.expect.sharing import FairShare, share_of
from linkgauge.stats.crossing import crossings
from linkgauge.stats.interference import Interference, interferences
from thorough import thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one"),
]
RATE = 50 * MBIT
BY_TCP = ("MPIR_CVAR_CH4_NETMOD=ofi", "FI_PROVIDER=tcp", "MPIR_CVAR_NOLOCAL=1")  # UCX's halves what goes both ways


def beside(cluster: Cluster, name: str, hosts: str, beside: str, *more: str) -> tuple[Interference, FairShare]:
    """A flow between two hosts, the first ones, beside a load, and what fair shares make of it."""
    (cluster.folder / "fabric").write_text(cluster.layout.fabric_file())
    run = measured(cluster, name, "--hosts", hosts, "--devices", "host:1", "--mpi", library("mpich"), "--ranks", "2",
                   "--transport", "mpi", "--pattern", "ring_shift", "--size", "256KiB", "--background", beside,
                   "--fabric", "fabric", *more, "--stop-rule", "count", "--stop-samples", "18", "--warmup", "1",
                   "--max-time", "60s", *(word for one in BY_TCP for word in ("--env", one)))  # fmt: skip
    assert {row.status for row in run.rows()} == {"ok"}
    assert {one.went_by for one in crossings(run).values()} == {"network"}  # on nodes that no load has
    (found,) = interferences(run)
    assert all(load.alone_ns for load in found.loads)  # by messages: its first rank is elsewhere
    share = share_of(None, found, Network.of_run(run))
    assert share is not None
    return found, share


@thorough("tests/simulate has the shares of an uplink")
def test_jobs_packed_on_their_own_switches_lose_nothing_and_spread_ones_half_of_the_uplink_that_is_named() -> None:
    layout = Layout(((2, 2),), rate=RATE, switch_rate=RATE, lossless=True)
    with Cluster(layout) as cluster:
        for attempt in range(3):  # what others take of the machine's cores may be one job's loss
            packed, spread = (f"{placement}-{attempt}" for placement in ("packed", "spread"))
            apart, explained = beside(cluster, packed, "n0,n2,n1,n3", "mpi ring_shift 256KiB", "--placement", "packed")
            assert (explained.low, explained.high, explained.part) == (1.0, 1.0, None)
            shared, halved = beside(cluster, spread, "n0,n1,n2,n3", "mpi ring_shift 256KiB", "--placement", "spread")
            halves = shared.slow_downs[0].factor == pytest.approx(halved.high, rel=0.15)
            if halves and apart.slow_downs[0].factor < 1.15:
                break
        assert halved.low <= 2.0 * 1.1
        assert halved.high >= 1.8
        assert halved.part is not None
        assert set(halved.part) in ({"s0", "g0"}, {"s1", "g0"})
        # By turns in each run, so that both factors are of the same minutes; the machine's own load is in both.
        assert shared.slow_downs[0].factor == pytest.approx(halved.high, rel=0.15)
        assert apart.slow_downs[0].factor < 1.15
        shown = linkgauge(cluster, "show", spread, environment={"COLUMNS": "200"}).stdout
        assert halved.words in " ".join(shown.split())
        assert cluster.dropped() == 0


@thorough("the same jobs without classes")
@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0)])
def test_a_job_has_its_service_classs_part_of_an_uplink_however_many_flows_the_other_has(
    weights: tuple[float, float],
) -> None:
    others = dict.fromkeys(("n1", "n2", "n4", "n5"), 1)
    layout = Layout(((3, 3),), rate=RATE, switch_rate=RATE, lossless=True, classes=others, weights=weights)
    with Cluster(layout) as cluster:
        found, share = beside(cluster, "classes", "n0,n3,n1,n4,n2,n5",
                              "mpi ring_shift 256KiB on=2,3+4,5 service_class=1", "--service-class", "0",
                              "--class-weights", f"0={weights[0]},1={weights[1]}")  # fmt: skip
        assert share.low == pytest.approx(sum(weights) / weights[0], rel=0.1)
        shown = linkgauge(cluster, "show", "classes", environment={"COLUMNS": "200"}).stdout
        assert "requested service class 0: unknown in 1 case (cards here count no bytes by priority)" in shown
        assert share.by_weights == f" by weights {weights[0]:g} of class 0 and {weights[1]:g} of class 1"
        assert 1 / found.slow_downs[0].factor == pytest.approx(weights[0] / sum(weights), abs=0.10)


@thorough("the same flows as jobs of one launch")
@pytest.mark.parametrize("other", ["same", "openmpi"])
def test_a_load_that_is_a_launch_of_its_own_shares_an_uplink_as_a_job_of_the_same_launch_does(other: str) -> None:
    layout = Layout(((2, 2),), rate=RATE, switch_rate=RATE, lossless=True)
    name = other if other == "same" else library(other)
    with Cluster(layout) as cluster:
        job, share = beside(cluster, "job", "n0,n2,n1,n3", "mpi ring_shift 256KiB on=2,3")
        own, _ = beside(cluster, "own", "n0,n2,n1,n3", f"mpi ring_shift 256KiB on=2,3 mpi={name}")
        assert share.low == pytest.approx(2.0, rel=0.1)
        if other == "same":  # another library's flows keep a share of their own
            assert own.slow_downs[0].factor == pytest.approx(job.slow_downs[0].factor, rel=0.15)
