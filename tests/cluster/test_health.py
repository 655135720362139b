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

import numpy as np
import pyarrow as pa
import pytest

from cluster.cluster import Cluster, why_not
from cluster.layout import MBIT, Layout
from cluster.slurm import Slurm, slurm_why_not
from cluster.test_between_nodes import linkgauge
from linkgauge.store.history import History
from patience import PATIENCE_S
from thorough import thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one"),
]
SCRIPTS = Path(__file__).parents[2] / "docs" / "schedulers"
RATE = 100 * MBIT
LOOK = ["--devices", "host:1", "--partner", "login", "--max-size", "256KiB"]
NOISE = 0.06  # of the made runs: nodes of tests share two cores with much else


def on(cluster: Cluster, node: str, *words: str) -> subprocess.CompletedProcess[str]:
    return cluster.run(node, [sys.executable, "-m", "linkgauge", *words], cwd=cluster.folder, timeout_s=PATIENCE_S,
                       env={"PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip


def grown(history: Path, runs: int) -> None:
    """Have a history hold so many runs for each that it has, their times drawn around those that were measured."""
    found, drawn = History.open(str(history)), np.random.default_rng(1)
    for part in found.parts():
        rows = found.read(part)
        for number in range(runs - 1):
            noise = np.exp(drawn.normal(0, NOISE, rows.num_rows))
            run, end = f"{part.run[:20]}-{number}", part.end_ms - number - 1
            more = {"time_ns": pa.array(rows["time_ns"].to_numpy() * noise),
                    "run": pa.array([run] * rows.num_rows), "run_end_ms": pa.array([end] * rows.num_rows)}  # fmt: skip
            made = rows
            for name, values in more.items():
                made = made.set_column(made.schema.get_field_index(name), name, values)
            found.append(made, part.kind, part.day, run, end)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with a history of eight runs each, of which n1's link has got slow since."""
    with Cluster(Layout.of(2, rate=RATE)) as made:
        history = made.folder / "fleet"
        for node in made.layout.nodes:
            first = on(made, node, "health", "--budget", "500s", "--history", str(history), *LOOK)
            assert first.returncode == 3, first.stdout + first.stderr
            assert first.stdout.startswith("UNKNOWN: too few runs in the history")
        grown(history, 8)
        made.set_rate("n1", RATE / 2)
        yield made


def script(cluster: Cluster, name: str, options: Sequence[str]) -> Path:
    """A script of the documentation with these options, in a program that Slurm may start without environment."""
    text = (SCRIPTS / name).read_text()
    text, count = re.subn('(?m)^options=".*"$', f'options="{" ".join(options)}"', text)
    assert count == 1
    words = cluster.environment | {"PYTHONPATH": os.pathsep.join(sys.path)}
    given = "".join(f"export {one}='{words[one]}'\n" for one in ("PATH", "PYTHONPATH"))
    first, _, rest = text.partition("\n")
    path = cluster.folder / name
    own = f"linkgauge() {{ '{sys.executable}' -m linkgauge \"$@\"; }}\n"
    path.write_text(f"{first}\n{given}export SLURM_CONF='{cluster.folder}/slurm.conf'\ncd /tmp\n{own}{rest}")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(bool(slurm_why_not()), reason=slurm_why_not() or "there is one")
@thorough("Slurm's daemons and a launch of two nodes for each look take minutes on a busy machine")
def test_slurm_drains_the_node_with_a_slow_link_with_the_reason_and_no_other(cluster: Cluster) -> None:
    options = ["--budget", "50s", "--history", str(cluster.folder / "fleet"), *LOOK]
    program = script(cluster, "slurm-health.sh", options)
    rounds, counting = cluster.folder / "rounds", cluster.folder / "program"
    counting.write_text(f"#!/bin/sh\n{program}\necho $(hostname) >> {rounds}\n")
    counting.chmod(0o755)
    more = f"HealthCheckProgram={counting}\nHealthCheckInterval=5\nHealthCheckNodeState=IDLE\n"
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
        assert re.fullmatch(r"linkgauge FAIL: .*unidirectional \d+ % below its own 8 runs.*", reason)
        assert len(reason) < 100
        assert nodes["n0"][0] == "idle", said


@thorough("the same look as by Slurm's own program")
def test_a_prolog_fails_where_the_link_is_slow_alone(cluster: Cluster) -> None:
    options = ["--budget", "500s", "--history", str(cluster.folder / "fleet"), *LOOK]
    program = script(cluster, "slurm-prolog.sh", options)
    ended = {node: cluster.run(node, [str(program)], timeout_s=PATIENCE_S).returncode for node in ("n0", "n1")}
    assert ended == {"n0": 0, "n1": 1}


@thorough("four launches of three nodes; the rule itself is in findings/test_health.py")
def test_of_two_partners_the_slow_one_is_not_the_nodes_fault(cluster: Cluster) -> None:
    history = cluster.folder / "partners"
    look = ["--budget", "500s", "--history", str(history), *LOOK[:2], "--partner", "login,n1", *LOOK[4:]]
    cluster.set_rate("n1", RATE)
    assert on(cluster, "n0", "health", *look).returncode == 3
    grown(history, 8)
    cluster.set_rate("n1", RATE / 2)
    done = on(cluster, "n0", "health", *look)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "only to n1: the fault is there" in done.stdout


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
