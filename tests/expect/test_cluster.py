"""Applications on a described cluster: as `simulate` has the same patterns, links shared by what goes on at once."""

from __future__ import annotations

import json

import pytest

from linkgauge.app.cli import run_command
from linkgauge.apps.program import program_of
from linkgauge.apps.step_file import step_file_of
from linkgauge.expect.application import predict
from linkgauge.expect.cluster import Cluster
from linkgauge.expect.curves import CurvesOfSystem
from linkgauge.expect.mechanism import Mechanism
from linkgauge.simulate import Placement, Request, answers, fat_tree, laid_out, of_system, parse_rules
from linkgauge.system import catalog

SYSTEMS = ("lumi-g", "leonardo-booster", "summit")


def time_ns(steps: list[dict[str, object]], ranks: int, cluster: Cluster) -> float:
    program = program_of(step_file_of({"description": "x", "step": steps}, "made"), {}, ranks)
    copies = CurvesOfSystem(catalog.load("summit"), {}, True)
    return predict(program, copies, Mechanism("mpi", "mpi"), cluster.exchanges(program)).time_ns


def of(system: str, rule: str) -> Cluster:
    fabric = of_system(catalog.load(system))
    return Cluster(fabric, parse_rules(rule, fabric)[0])


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("rule", ["best", "minimal"])
@pytest.mark.parametrize("pattern", ["alltoall", "allreduce", "broadcast"])
def test_a_collective_of_all_ranks_is_simulates(system: str, rule: str, pattern: str) -> None:
    if (system, rule) == ("summit", "minimal"):
        pytest.skip("a fat tree has no such rule")
    cluster = of(system, rule)
    layout = laid_out(cluster.fabric, 64, Placement())
    (alone,) = answers(layout, Request(pattern, 1 << 20), [cluster.rule])
    found = time_ns([{"collective": pattern, "bytes": 1 << 20}] * 3, 64, cluster)
    assert found == pytest.approx(3 * alone.seconds * 1e9)


@pytest.mark.parametrize("system", SYSTEMS)
def test_messages_of_all_ranks_at_once_are_simulates_too(system: str) -> None:
    cluster = of(system, "best")
    steps: list[dict[str, object]] = [
        {"receive": "(rank + ranks - 1) % ranks", "bytes": 1 << 22}, {"send": "(rank + 1) % ranks", "bytes": 1 << 22},
        {"wait": True},
    ]  # fmt: skip
    (ring,) = answers(laid_out(cluster.fabric, 128, Placement()), Request("ring_shift", 1 << 22), [cluster.rule])
    assert time_ns(steps, 128, cluster) == pytest.approx(ring.seconds * 1e9)
    # As many once more before the wait: the bytes twice, the latency once.
    twice = time_ns([{"repeat": 2, "step": steps[:2]}, steps[2]], 128, cluster)
    latency = ring.latency_seconds * 1e9
    assert twice - latency == pytest.approx(2 * (ring.seconds * 1e9 - latency))


def test_what_goes_on_at_once_shares_ports_and_uplinks() -> None:
    # Four nodes of two GPUs at one port of 10 GB/s; two nodes a switch with one way up.
    fabric = fat_tree(
        nodes=4, gpus=2, ports=1, port_rate=10e9, block_nodes=2, link_rate=10e9, spines=1, up_links=1
    )  # fmt: skip
    cluster = Cluster(fabric, parse_rules("best", fabric)[0])
    size = 10_000_000  # a millisecond of a port

    def both(pairs: list[tuple[int, int]]) -> float:
        steps: list[dict[str, object]] = []
        for source, target in pairs:
            steps += [
                {"send": target, "bytes": size, "when": f"rank == {source}"},
                {"receive": source, "bytes": size, "when": f"rank == {target}"},
            ]
        return time_ns([*steps, {"wait": True}], 8, cluster) / 1e6

    assert both([(0, 2)]) == pytest.approx(1)
    assert both([(0, 2), (2, 0)]) == pytest.approx(1)  # each way has a port's rate
    assert both([(0, 2), (1, 3)]) == pytest.approx(2)  # one port for both
    assert both([(0, 4), (2, 6)]) == pytest.approx(2)  # one way up for both nodes
    groups = {"collective": "allgather", "bytes": 4 * size, "group": "rank % 2"}
    alone = {**groups, "group": "rank % 2 * (1 + rank)"}  # the odd ranks are groups of one
    assert time_ns([groups], 8, cluster) == pytest.approx(2 * time_ns([alone], 8, cluster))


def test_predict_on_a_cluster_by_rule(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "gups,dff", "--system", "lumi-g", "--ranks", "16:64:x2", "--json"]
    found = {}
    for rule in ("best", "minimal"):
        assert run_command([*words, "--routing", rule]) == 0
        found[rule] = [one["predicted_ns"] for one in json.loads(capsys.readouterr().out)]
        assert None not in found[rule]
    assert all(a <= b * (1 + 1e-9) for a, b in zip(found["best"], found["minimal"], strict=True))
    assert found["best"] != found["minimal"]
    assert run_command([*words[:-1], "--routing", "best", "--placement", "random", "--between-nodes"]) == 0
    assert "lumi-g, best and placed random, allow" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--system", "lumi-g", "--routing", "shortest"], "no rule 'shortest'"),
        (["--system", "lumi-g", "--routing", "best,minimal"], "2 rules: expected one"),
        (["--system", "summit", "--routing", "static"], "rule static has quantiles"),
        (["--system", "dgx-2", "--routing", "best"], "dgx-2"),
        (["--from", "run", "--routing", "best"], "--routing goes with --system"),
        (["--system", "lumi-g", "--routing", "best", "--placement", "near"], "unknown placement 'near'"),
    ],
)
def test_mistakes_are_told(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(["predict", "gups", "--ranks", "4", *words])
    said = capsys.readouterr()
    assert expected in said.err + said.out
    assert (said.err + said.out).count("\n") == 1
