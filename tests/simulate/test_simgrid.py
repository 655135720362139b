"""Finish times against SimGrid 3.32, where it is installed (Debian: python3-simgrid), on what both can express.

SimGrid runs in a process of its own (simgrid_run.py), by the interpreter that has it: model CM02, no cross-traffic, TCP
window without bound, equal latencies. It takes minutes for what takes us milliseconds, so sizes are small.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linkgauge.simulate import fabric as fabrics
from linkgauge.simulate import fair
from linkgauge.simulate.crossing import Sharer, crossing
from linkgauge.simulate.demand import demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.routes import Rule, end_links, fabric_links, time_of
from linkgauge.simulate.stage import Request, Stage
from linkgauge.simulate.traffic import stages
from patience import PATIENCE_S
from thorough import most, thorough

RUN = Path(__file__).with_name("simgrid_run.py")


@functools.cache
def interpreter() -> str:
    """A Python that has simgrid; empty where none has."""
    for name in (os.environ.get("LINKGAUGE_SIMGRID_PYTHON", ""), "/usr/bin/python3", shutil.which("python3") or ""):
        if name and subprocess.run([name, "-c", "import simgrid"], capture_output=True).returncode == 0:
            return name
    return ""


needs_simgrid = pytest.mark.skipif(not interpreter(), reason="python3-simgrid is not installed")


def theirs(**request: Any) -> tuple[list[float], float]:
    """Finish times of jobs by SimGrid, and how long its simulation took, in seconds."""
    done = subprocess.run(
        [interpreter(), str(RUN)], input=json.dumps(request), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    return found["ends"], found["seconds"]


def ours(made: Fabric, jobs: list[tuple[Layout, Stage]], rule: Rule) -> tuple[list[float], float]:
    before = time.perf_counter()
    table = crossing(made, [Sharer(layout, stage) for layout, stage in jobs], rule)
    ends = fair.play(table.classes).ends
    found = [float(ends[table.job == job].max()) for job in range(len(jobs))]
    return found, time.perf_counter() - before


def alone(made: Fabric, job: tuple[Layout, Stage], rule: Rule) -> tuple[float, float]:
    """When one job of equal flows ends, by the fullest link, as the command has it; and the seconds that takes."""
    before = time.perf_counter()
    asked = demand(*job)
    found = time_of([*end_links(job[0], asked), *fabric_links(made, asked, rule)])
    return found, time.perf_counter() - before


def flows_of(jobs: list[tuple[Layout, Stage]]) -> list[list[float]]:
    """[job, node, node, bytes] of every flow, one GPU a node."""
    listed: list[list[float]] = []
    for number, (layout, stage) in enumerate(jobs):
        for s, t, size in zip(stage.source, stage.target, stage.bytes, strict=True):
            listed.append([number, int(layout.nodes[s]), int(layout.nodes[t]), float(size)])
        for term in stage.terms:
            n = layout.ranks
            listed += [
                [number, int(layout.nodes[i]), int(layout.nodes[j]), float(term.a[i] * term.b[j])]
                for i in range(n)
                for j in range(n)
                if i != j
            ]
    return listed


def jobs_on(made: Fabric, what: str, seed: int) -> list[tuple[Layout, Stage]]:
    order = np.random.default_rng(seed).permutation(made.nodes)
    if what == "two jobs":
        half = made.nodes // 2
        parts, patterns = [order[:half], order[half:]], ["alltoall", "permutation"]
    else:
        parts, patterns = [order if what == "ring_shift" else np.arange(made.nodes)], [what]
    jobs = []
    for part, pattern in zip(parts, patterns, strict=True):
        layout = Layout.of(made, part.astype(np.int64), len(part))
        jobs.append((layout, stages(layout, Request(pattern, 1_000_000, seed=seed))[0]))
    return jobs


WHAT = ["alltoall", "permutation", "ring_shift", "two jobs"]


def zone(groups: int, rows: int, columns: int, nodes: int) -> Fabric:
    """SimGrid's dragonfly: rows of chassis, columns of blades; all links to group h at the h-th blade of chassis 0."""
    return fabrics.dragonfly(
        groups=groups, nodes_per_group=rows * columns * nodes, gpus=1, ports=1, port_rate=1e9, switches=rows * columns,
        block_nodes=nodes, link_rate=1e9, pair_links=1, rows=rows, wiring="by_number",
    )  # fmt: skip


@needs_simgrid
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("shape", most([(2, 1, 2, 2), (3, 2, 4, 2), (4, 2, 4, 4)], [(2, 1, 2, 2), (3, 2, 4, 2)]))
def test_dragonfly_zones_agree(shape: tuple[int, int, int, int], what: str) -> None:
    made = zone(*shape)
    jobs = jobs_on(made, what, seed=sum(shape))
    there, _ = theirs(kind="dragonfly", shape=shape, rate=1e9, flows=flows_of(jobs))
    here, _ = ours(made, jobs, Rule("minimal"))
    assert here == pytest.approx(there, rel=1e-3)


@needs_simgrid
@pytest.mark.parametrize("what", ["alltoall", "two jobs"])
def test_fat_tree_zones_agree(what: str) -> None:
    """One spine, as SimGrid has no even spreading: what is compared is how leaves share their links up."""
    leaves, nodes, links = 6, 4, 2
    made = fabrics.fat_tree(
        nodes=leaves * nodes, gpus=1, ports=1, port_rate=1e9, block_nodes=nodes, link_rate=1e9, spines=1,
        up_links=1.0,
    )  # fmt: skip
    jobs = jobs_on(made, what, seed=5)
    there, _ = theirs(kind="fat_tree", shape=(leaves, nodes, links), rate=1e9, flows=flows_of(jobs))
    here, _ = ours(made, jobs, Rule("best"))
    assert here == pytest.approx(there, rel=1e-3)


@needs_simgrid
@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("seed", range(most(4, 2)))
def test_groups_of_many_links_agree_as_explicit_routes(what: str, seed: int) -> None:
    """A zone with every route written out: groups of one switch, several links between two as one of their rate."""
    r = random.Random(seed)
    groups, nodes, pair = r.randint(2, 6), r.randint(2, 8), r.randint(1, 4)
    made = fabrics.dragonfly(
        groups=groups, nodes_per_group=nodes, gpus=1, ports=1, port_rate=1e9, switches=1, block_nodes=nodes,
        link_rate=0.7e9, pair_links=pair,
    )  # fmt: skip
    jobs = jobs_on(made, what, seed)
    shape = (groups, nodes, pair)
    there, _ = theirs(kind="full", shape=shape, rate=1e9, between=0.7e9 * pair, flows=flows_of(jobs))
    here, _ = ours(made, jobs, Rule("minimal"))
    assert here == pytest.approx(there, rel=1e-3)


@needs_simgrid
@thorough("smaller zones agree in every run")
def test_128_hosts_agree_too() -> None:
    """How much sooner we have it, bench/simulated_clusters.py measures."""
    made = zone(4, 2, 4, 4)
    jobs = jobs_on(made, "alltoall", seed=1)
    there, _ = theirs(kind="dragonfly", shape=(4, 2, 4, 4), rate=1e9, flows=flows_of(jobs))
    here, _ = alone(made, jobs[0], Rule("minimal"))
    assert [here] == pytest.approx(there, rel=1e-3)
