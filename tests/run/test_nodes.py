"""Nodes are looked at before anything is measured: what each has, how they differ, and what one lacks."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app.cli import run_command
from linkgauge.errors import EnvironmentLackingError, Exit
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.launchers import launcher_for
from linkgauge.run.parent import nodes, prepare
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.run.parent.mpi_library import default_installation
from linkgauge.run.parent.nodes import Nodes, cores_there, least
from linkgauge.run.parent.rank_words import words_of_ranks
from run.conftest import SMALL_PLAN, devices_of, machine_of
from run.on_a_node import namespaces_may_be_made
from run.test_launchers import fake_mpi

APART = (sys.executable, str(Path(__file__).with_name("on_a_node.py")), "apart")
GPUS = DeviceSet("cuda", (0, 1, 2, 3), tuple({"ordinal": n, "kind": "cuda", "name": "H200"} for n in range(4)))


def look(host: str, devices: int = 4, **changed: Any) -> dict[str, Any]:
    """What the first rank of a node says of it."""
    infos = [{"ordinal": n, "name": "H200", "numa_node": n // 2, "free_bytes": 1 << 30} for n in range(devices)]
    return {
        "host": host, "node": host, "devices": infos, "reason": "" if devices else "no driver", "cores": 8,
        "allowed": list(range(8)), "near": {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}, "memory_nodes": [0, 1],
        "core_nodes": [0, 1], "host_free_bytes": 1 << 34, "shm_free_bytes": 1 << 33, **changed,
    }  # fmt: skip


def on(monkeypatch: pytest.MonkeyPatch, looks: list[dict[str, Any]], ranks: int = 4) -> tuple[Nodes, list[str]]:
    """Nodes as if `ranks` ranks had been started on them in turn blocks, and what is told of them."""
    each = ranks // len(looks)
    said = [
        {
            "rank": rank,
            **(looks[rank // each] if rank % each == 0 else {k: looks[rank // each][k] for k in ("host", "node")}),
        }
        for rank in range(ranks)
    ]
    monkeypatch.setattr(nodes, "words_of_ranks", lambda *_: said[::-1])
    told: list[str] = []
    return Nodes(GPUS, told.append, ("there",)), told


def answering(monkeypatch: pytest.MonkeyPatch, silent: set[str]) -> tuple[Nodes, list[str]]:
    """Nodes of which some start no rank, for a run that goes on, and what is told of them."""

    def words(*asked: Any, number: int) -> Any:
        (host,) = asked[6]
        return "ended with 255: no route" if host in silent else [{"rank": 0, **look(host)}]

    monkeypatch.setattr(nodes, "words_of_ranks", words)
    monkeypatch.setattr(nodes.first_look, "look", lambda *_: {})
    told: list[str] = []
    return Nodes(GPUS, told.append, keep_going=True), told


def test_nodes_that_do_not_answer_are_named_once_and_are_no_longer_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = {"b", "d"}
    known, told = answering(monkeypatch, silent)
    hosts = ("a", "b", "c", "d")
    assert known.lose_silent(fake_mpi("hydra"), hosts, (), None)
    assert known.gone == dict.fromkeys(("b", "d"), "ended with 255: no route")
    assert len(told) == 2
    assert "node b does not answer, and the run continues without it: ended with 255" in told[0]
    assert not known.lose_silent(fake_mpi("hydra"), hosts, (), None)
    silent |= {"a", "c"}
    with pytest.raises(EnvironmentLackingError, match="no node answers; a: ended with 255"):
        known.lose_silent(fake_mpi("hydra"), hosts, (), None)


def test_a_run_that_is_not_to_go_on_asks_no_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "words_of_ranks", lambda *_, **__: pytest.fail("asked"))
    assert not Nodes(GPUS, lambda _: None).lose_silent(fake_mpi("hydra"), ("a", "b"), (), None)


def test_alike_nodes_are_told_of_by_nothing_and_ranks_are_bound_on_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    known, told = on(monkeypatch, [look("n1"), look("n2", near={"0": [0, 1], "1": [6, 7]})])
    found = known.of(fake_mpi("hydra"), 4, ())
    assert told == []
    assert [(node.host, node.ranks) for node in found] == [("n1", (0, 1)), ("n2", (2, 3))]
    assert cores_there(found, "nearest", (0, 1, 2, 3), GPUS.ordinals) == [[0, 1], [2, 3], [6], [7]]
    assert cores_there(found, "none", (0, 1, 2, 3), GPUS.ordinals) is None
    assert cores_there(found, "0:1:6:7", (0, 1, 2, 3), GPUS.ordinals) == [[0], [1], [6], [7]]


def test_how_nodes_differ_is_said_once_with_what_most_have_first(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = look("n1", cores=6, memory_nodes=[0], host_free_bytes=5)
    known, told = on(monkeypatch, [odd, look("n2"), look("n3"), look("n4")])
    found = known.of(fake_mpi("hydra"), 4, ())
    assert known.of(fake_mpi("hydra"), 4, ()) is found
    assert told == [
        "warning: nodes differ: n2, n3, n4: 4 devices (H200), 8 cores, NUMA nodes 0, 1 with memory; "
        "n1: 4 devices (H200), 6 cores, NUMA nodes 0 with memory"
    ]
    machine = least(machine_of(4), found)
    assert (machine.cores, machine.memory_nodes, machine.core_nodes) == (6, (0,), (0, 1))
    assert (machine.host_free_bytes, machine.shm_free_bytes, machine.device_free_bytes) == (5, 1 << 33, 1 << 30)


@pytest.mark.parametrize(("devices", "has"), [(2, "it has 0, 1;"), (0, r"it has none \(no driver\)")])
def test_a_device_that_a_node_lacks_ends_the_run(monkeypatch: pytest.MonkeyPatch, devices: int, has: str) -> None:
    known, told = on(monkeypatch, [look("n1"), look("n2", devices)])
    missing = devices if devices else 0
    with pytest.raises(EnvironmentLackingError, match=f"node n2 has no cuda device {missing}: {has}") as raised:
        known.of(fake_mpi("hydra"), 4, ())
    assert raised.value.exit_status == Exit.LACKING
    assert len(told) == 1


def test_a_look_that_fails_is_said_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known, told = on(monkeypatch, [look("n1"), look("n2")])
    assert known.of(fake_mpi("hydra"), 5, ()) == ()
    monkeypatch.setattr(nodes, "words_of_ranks", lambda *_: "mpiexec ended with 1: no route")
    assert known.of(fake_mpi("hydra"), 2, ()) == ()
    assert [text.rpartition(": ")[2] for text in told] == ["not all ranks said where they are", "no route"]


def test_a_plan_asks_no_more_than_all_nodes_have(monkeypatch: pytest.MonkeyPatch) -> None:
    known, _ = on(monkeypatch, [look("n1"), look("n2", shm_free_bytes=7)], ranks=2)
    prepared = prepare.prepare(parse_plan(SMALL_PLAN, "test", "test"), devices_of(2), [], known)
    assert prepared.machine.shm_free_bytes == 7
    stored = {launch.settings for launch in prepared.launches}  # what a resumed run has
    assert prepare.machine_of(stored, devices_of(2), prepared.mpis, known).shm_free_bytes == 7


@pytest.mark.parametrize("kind", ["hydra", "openmpi", "srun"])
def test_nodes_are_looked_at_only_where_ranks_may_leave_this_one(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURMD_NODENAME", "PBS_NODEFILE", "LSB_MCPU_HOSTS",
                 "PE_HOSTFILE", "HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    launcher = launcher_for(fake_mpi(kind))
    assert not launcher.may_leave(["-x", "A=1"])
    assert launcher.may_leave(["--host=a,b"]) == (kind != "srun")
    (tmp_path / "nodes").write_text("a\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert not launcher.may_leave([])  # the job's variables, and nothing that starts ranks by them
    for name in ("pbsdsh", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.delenv("SLURM_JOB_ID")
    assert launcher.may_leave([])
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    assert launcher.may_leave([])  # from a login node
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert not launcher.may_leave([])
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    assert launcher.may_leave([])


def test_ranks_of_one_node_take_one_look_and_this_node_is_none() -> None:
    mpi = default_installation()
    said = words_of_ranks(mpi, 3, [sys.executable, "-m", "linkgauge.run.parent.node", "host", "2"])
    assert isinstance(said, list)
    assert sorted(one["rank"] for one in said) == [0, 1, 2]
    looks = [one for one in said if "devices" in one]
    assert looks
    assert [info["ordinal"] for info in looks[0]["devices"]] == [0, 1]
    told: list[str] = []
    assert Nodes(devices_of(2), told.append, ("env",)).of(mpi, 2, ()) == ()
    assert told == []


@pytest.mark.skipif(not namespaces_may_be_made(), reason="no namespaces may be made here")
def test_each_of_several_nodes_is_looked_at_there() -> None:
    told: list[str] = []
    found = Nodes(devices_of(2), told.append, APART).of(default_installation(), 2, ())
    assert [(node.host, node.ranks, sorted(node.devices)) for node in found] == [
        ("node0", (0,), [0, 1]),
        ("node1", (1,), [0, 1]),
    ]
    assert told == []
    cores = cores_there(found, "nearest", (0, 1), (0, 1))
    assert cores == [list(found[0].allowed), list(found[1].allowed)]  # each has its node to itself


def test_the_command_ends_with_status_5_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = [{"rank": 0, **look("a", 2)}, {"rank": 1, **look("b", 1)}]
    monkeypatch.setattr(nodes, "words_of_ranks", lambda *_: said)
    out = tmp_path / "run"
    arguments = ["run", "--devices", "host:2", "--launcher-args", "-hosts a,b", "--out", str(out)]
    assert run_command(arguments) == Exit.LACKING
    differ, last = capsys.readouterr().err.strip().splitlines()
    assert "nodes differ: a: 2 devices" in differ
    assert "node b has no host device 1: it has 0;" in last
    assert not out.exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"cores": "8"}, r"what ranks said\[\d\].cores is '8'"), ({"near": {"x": [0]}}, "near"), ({"near": []}, "near"),
     ({"devices": [{}]}, "has no 'ordinal'"), ({"allowed": [-1]}, "allowed"), ({"node": None}, "node is None"),
     ({"network": {"interfaces": [{"name": "a"}], "rdma": []}}, "network.interfaces")],
)  # fmt: skip
def test_a_rank_that_says_it_otherwise_fails_the_look(
    changed: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, told = on(monkeypatch, [look("n1"), look("n2") | changed])
    assert known.of(fake_mpi("hydra"), 4, ()) == ()
    (said,) = told
    assert re.search(f"{words}.*same Linkgauge on all nodes", said)
