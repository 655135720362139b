"""The doctor on several nodes: what most have comes first, and what one alone has is told with its name."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from cluster.cluster import Cluster, why_not
from cluster.layout import Layout
from linkgauge.doctor import on_nodes
from linkgauge.doctor.on_nodes import compared, way_between
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.run.machine.interfaces import Interface, Network
from linkgauge.run.parent import hosts as asked
from run.test_launchers import fake_mpi
from thorough import thorough


def node(host: str, *, date: float = 0.0, status: str = "ok", **facts: str) -> dict[str, Any]:
    row = {"check": "locked_memory", "status": status, "finding": f"memory is {status}", "cost": "", "fix": "",
           "what": ""}  # fmt: skip
    if status != "ok":
        row |= {"cost": "buffers fail", "fix": "ulimit -l unlimited"}
    return {"host": host, "date": date, "rows": [row], "facts": {"system": "Linux 6.1", **facts},
            "network": Network().plain()}  # fmt: skip


def test_what_most_nodes_have_comes_first_and_the_gravest_has_its_fix() -> None:
    said = [node("a"), node("b", status="warning"), node("c"), node("d", system="Linux 5.14", date=7)]
    found = {one.name: one for one in compared(said)}
    memory = found["locked memory"]
    assert memory.differs
    assert memory.found == (("ok", "memory is ok", ("a", "c", "d")), ("warning", "memory is warning", ("b",)))
    assert (memory.status, memory.fix) == ("warning", "ulimit -l unlimited")
    assert found["system"].found == (("ok", "Linux 6.1", ("a", "b", "c")), ("ok", "Linux 5.14", ("d",)))
    assert found["date"].found[1] == ("ok", "+7.0 s from most", ("d",))


def test_what_a_node_lacks_differs_and_alike_nodes_do_not() -> None:
    found = {one.name: one for one in compared([node("a"), node("b"), node("c", interface="up")])}
    assert found["interface"].found == (("ok", "none", ("a", "b")), ("ok", "up", ("c",)))
    assert not any(one.differs for one in compared([node("a"), node("b", date=0.5)]))


def test_a_load_that_changes_each_moment_is_no_difference_and_its_status_is() -> None:
    """Counts of links are compared in full: 12 of them are not 18."""

    def named(name: str, host: str, finding: str, status: str = "ok") -> dict[str, Any]:
        one = node(host, status=status)
        one["rows"][0] |= {"check": name, "finding": finding}
        return one

    said = [
        named("other_load", host, f"load {load} on 2 cores") for host, load in zip("abc", (0.1, 0.3, 0.2), strict=True)
    ]
    assert not any(one.differs for one in compared(said))
    busy = compared([*said, named("other_load", "d", "load 9.0 on 2 cores", "warning")])
    assert [one.found[1] for one in busy if one.differs] == [("warning", "load 9.0 on 2 cores", ("d",))]
    links = [named("nvlinks", host, f"{count} links of each GPU are up") for host, count in (("a", 18), ("b", 12))]
    assert [one.name for one in compared(links) if one.differs] == ["nvlinks"]


def test_the_interface_that_the_library_takes_is_named_and_a_bridge_of_containers_is_a_warning() -> None:
    fast = Interface("ens2", "network", True, 100_000_000_000, "10.1.0.1", "mlx5_core")
    bridge = Interface("docker0", "virtual", True, 0, "172.17.0.1")
    nodes = {host: Network((dataclasses.replace(fast, address=address), bridge))
             for host, address in (("a", "10.1.0.1"), ("b", "10.1.0.2"))}  # fmt: skip
    by_mpich = way_between(fake_mpi("hydra", vendor="mpich", version_text="ch4:ofi"), nodes)
    assert (by_mpich.status, by_mpich.found) == (
        "ok", (("ok", "ens2: libfabric's tcp takes the fastest", ("a", "b")),))  # fmt: skip
    by_open_mpi = way_between(fake_mpi("openmpi", vendor="openmpi", name="ompi"), nodes)
    assert (by_open_mpi.name, by_open_mpi.status) == ("network of ompi", "warning")
    ((_, words, _),) = by_open_mpi.found
    assert "docker0 is no network: a bridge or tunnel of this node alone" in words
    assert "OMPI_MCA_btl_tcp_if_include" in by_open_mpi.fix


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"host": 3}, r"what ranks said\[1\].host is 3"), ({"rows": [{}]}, "has no 'check'"),
     ({"date": "x"}, "date is 'x'"),
     ({"rows": [{**node("b")["rows"][0], "status": "fine"}]}, "status is 'fine'"),
     ({"facts": {"a": 1}}, "facts.a is 1")],
)  # fmt: skip
def test_a_node_that_says_it_otherwise_is_told(
    changed: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [node("a"), {**node("b"), **changed}]
    monkeypatch.setattr(on_nodes, "words_of_ranks", lambda *_, **__: said)
    monkeypatch.setattr(on_nodes.first_look, "look", lambda *_: {})
    with pytest.raises(EnvironmentLackingError, match=f"{words}.*same Linkgauge on all nodes"):
        on_nodes.look_on_nodes(fake_mpi("hydra"), ("a", "b"), "host:2")


def test_without_nodes_it_says_what_is_wrong() -> None:
    with pytest.raises(UsageError, match=r"no such file|names no host"):
        asked.asked_hosts(None, "/dev/null")


@thorough("the other tests here are of looks of such nodes")
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one")
def test_a_nodes_own_interface_and_limit_are_told_of_emulated_nodes() -> None:
    with Cluster(Layout.of(3)) as cluster:
        made = cluster.run("n2", ["sh", "-c", "ip link add docker0 type bridge && ip link set docker0 up"])
        assert made.returncode == 0, made.stderr
        words = [sys.executable, "-m", "linkgauge", "doctor", "--hosts", "n0,n1,n2", "--devices", "host:1"]
        environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = cluster.run("login", words, cwd=cluster.folder, env=environment)
        lines = [line.strip() for line in done.stdout.splitlines()]
        at = lines.index("differs  interface docker0:")
        assert lines[at + 1 : at + 3] == ["n0, n1: none", "n2: up, no rate known, virtual"], done.stdout
        assert lines[-1].startswith("3 nodes: 1 difference, "), done.stdout
        plain = cluster.run("login", [*words, "--json"], cwd=cluster.folder, env=environment)
        assert {one["name"] for one in json.loads(plain.stdout) if len(one["found"]) > 1} == {"interface docker0"}
        gone: subprocess.CompletedProcess[str] = cluster.run("login", [*words[:-3], "n0,n9", *words[-2:]],
                                                             cwd=cluster.folder, env=environment)  # fmt: skip
        assert (gone.returncode, gone.stderr) == (1, ""), gone.stderr
        lines = [line.strip() for line in gone.stdout.splitlines()]
        at = lines.index("differs  start of ranks:")
        assert lines[at + 1] == "n0: ranks can be started"
        assert lines[at + 2].startswith("n9: failing: Could not resolve hostname n9")
        none = cluster.run("login", [*words[:-3], "n8,n9", *words[-2:]], cwd=cluster.folder, env=environment)
        assert (none.returncode, none.stderr.count("\n")) == (5, 1), none.stderr
        assert "Could not resolve hostname n8" in none.stderr
