"""`linkgauge health` as a scheduler's program: Slurm drains the node whose link is slow, and no other; `isolate`.

The scripts are those of docs/schedulers/, with other options alone.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cluster.cluster import Cluster, why_not
from cluster.layout import MBIT, Layout
from cluster.slurm import Slurm, slurm_why_not
from cluster.test_between_nodes import linkgauge
from linkgauge.store.history import History
from made_history import fill
from patience import PATIENCE_S
from real_cgroup import cores_first
from scheduler_scripts import adapted
from thorough import thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one"),
]
RATE = 100 * MBIT
LOOK = ["--devices", "host:1", "--partner", "login", "--max-size", "256KiB", "--loss", "0.4"]
NOISE = 0.06  # of the made runs: nodes of tests share two cores with much else


def on(cluster: Cluster, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    return cluster.run(node, [sys.executable, "-m", "linkgauge", *words], cwd=cluster.folder, timeout_s=PATIENCE_S,
                       env={"PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with a history of eight runs each, of which n1's link has got slow since."""
    with Cluster(Layout.of(2, rate=RATE)) as made:
        history = made.folder / "fleet"
        for node in made.layout.nodes:
            first = on(made, node, "health", "--budget", "500s", "--history", str(history), *LOOK)
            assert first.returncode == 3, first.stdout + first.stderr
            assert first.stdout.startswith("UNKNOWN: too few runs in the history: expected 5 of this node, ")
        fill(History.open(str(history)), NOISE)
        made.set_rate("n1", RATE / 4)
        yield made


@pytest.fixture
def first() -> Iterator[str]:
    with cores_first() as line:
        yield line


def script(cluster: Cluster, name: str, options: Sequence[str], first: str) -> Path:
    """A script of the documentation with these options, in a program that Slurm may start without environment."""
    given = {"PYTHONPATH": os.pathsep.join(sys.path), "SLURM_CONF": f"{cluster.folder}/slurm.conf"}
    more = "".join(f"export {name}='{value}'\n" for name, value in given.items())
    own = f"{first}\ncd /tmp\nlinkgauge() {{ '{sys.executable}' -m linkgauge \"$@\"; }}"
    path = cluster.folder / name
    path.write_text(adapted(name, cluster.environment["PATH"], " ".join(options), more + own))
    path.chmod(0o755)
    return path


@pytest.mark.skipif(bool(slurm_why_not()), reason=slurm_why_not() or "there is one")
@thorough("Slurm's daemons and a launch of two nodes for each look take minutes on a busy machine")
def test_slurm_drains_the_node_with_a_slow_link_with_the_reason_and_no_other(cluster: Cluster, first: str) -> None:
    options = ["--budget", "50s", "--history", str(cluster.folder / "fleet"), *LOOK]
    program = script(cluster, "slurm-health.sh", options, first)
    rounds, counting = cluster.folder / "rounds", cluster.folder / "program"
    counting.write_text(f"#!/bin/sh\n{program}\necho $(hostname) >> {rounds}\n")
    counting.chmod(0o755)
    # Slurm starts the program again though the last one has not ended: the interval is no shorter than that.
    more = f"HealthCheckProgram={counting}\nHealthCheckInterval=45\nHealthCheckNodeState=IDLE,CYCLE\n"
    with Slurm(cluster, more=more) as slurm:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            said = cluster.run("login", ["sinfo", "-h", "-N", "-o", "%N|%t|%E"], env=slurm.environment).stdout
            nodes = {line.split("|")[0]: line.split("|")[1:] for line in said.splitlines()}
            looked = rounds.read_text().split() if rounds.exists() else []
            if nodes["n1"][0].startswith("drain") and "n0" in looked:
                break
            time.sleep(0.5)
        assert nodes["n1"][0].startswith("drain"), said
        reason = nodes["n1"][1].strip()
        assert re.fullmatch(r"linkgauge FAIL: .*unidirectional \d+ % below its own .*", reason)
        assert len(reason.removeprefix("linkgauge ")) < 100
        assert nodes["n0"][0] == "idle", said


@thorough("the same look as by Slurm's own program")
def test_a_prolog_fails_where_the_link_is_slow_alone(cluster: Cluster, first: str) -> None:
    options = ["--budget", "50s", "--history", str(cluster.folder / "fleet"), *LOOK]
    program = script(cluster, "slurm-prolog.sh", options, first)
    until = time.monotonic() + PATIENCE_S
    while cluster.run("n1", [str(program)], timeout_s=PATIENCE_S).returncode == 0:  # unknown, of a busy machine
        assert time.monotonic() < until
    assert cluster.run("n0", [str(program)], timeout_s=PATIENCE_S).returncode == 0


@thorough("four launches of three nodes; the rule itself is in findings/test_health.py")
def test_of_two_partners_the_slow_one_is_not_the_nodes_fault(cluster: Cluster) -> None:
    history = cluster.folder / "partners"
    look = ["--budget", "500s", "--history", str(history), *LOOK[:2], "--partner", "login,n1", *LOOK[4:]]
    cluster.set_rate("n1", RATE)
    assert on(cluster, "n0", "health", *look).returncode == 3
    fill(History.open(str(history)), NOISE)
    cluster.set_rate("n1", RATE / 4)
    until, line = time.monotonic() + PATIENCE_S, ""
    while "only to n1: the fault is there" not in line:  # but unknown for another reason, of a busy machine
        assert time.monotonic() < until, line
        done = on(cluster, "n0", "health", *look)
        line = done.stdout
        assert done.returncode == 3, line + done.stderr


@thorough("about six launches of five nodes; the search itself is in findings/test_isolate.py")
def test_isolate_names_the_slow_node_and_goes_on_without_one_that_does_not_answer(tmp_path: Path) -> None:
    with Cluster(Layout.of(6, rate=RATE, slow={"n4": 0.5})) as cluster:
        (cluster.folder / "n1.down").touch()
        words = ["isolate", "--hosts", "n[0-5]", "--devices", "host:1", "--transport", "mpi", "--size", "256KiB",
                 "--loss", "0.3", "--noise", "0.1"]  # fmt: skip
        planned = linkgauge(cluster, *words, "--dry-run")
        assert planned.returncode == 0, planned.stderr
        assert planned.stdout.startswith("6 nodes (n0, n1, n2, n3, n4, n5): about ")
        assert "at most 6, of halves" in planned.stdout
        done = linkgauge(cluster, *words)
        assert done.returncode == 1, done.stdout + done.stderr
        assert re.match(r"FAIL: slow: n4 \(.* sure\), after \d+ rounds; without n1, which did not answer", done.stdout)
