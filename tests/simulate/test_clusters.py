"""Bounds and times of drawn clusters against solvers that share no code with ours, and the cases that were wrong."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_oracle import tried
from linkgauge.app.cli import run_command
from linkgauge.expect import limits
from linkgauge.simulate import Placement, Request, answers, laid_out, of_system, parse_rules
from linkgauge.simulate.playing import MOST_FLOWS
from linkgauge.system import from_toml, load
from linkgauge.system.model import System
from thorough import most

GB = 1e9
TRAY = """
name = "tray"
source = "x"
device = [{ name = "g0..3" }]
switch = [{ name = "s0" }]
nic = [{ name = "n0..3", port_rate = "400 Gb/s" }]
link = [{ kind = "nvlink", count = 18, data_rate = "50 GB/s", from = ["g0..3"], to = ["s0"] }]
[network]
topology = "fat_tree"
nodes = 36
nodes_per_leaf = 18
leaf_up_ports = 18
port_rate = "400 Gb/s"
nodes_per_domain = 18
"""
SHORT = """
name = "short"
source = "x"
device = [{ name = "g0" }]
nic = [{ name = "n0", port_rate = "400 Gb/s" }]
[network]
topology = "dragonfly"
groups = 2
nodes_per_group = %d
nodes = %d
switches_per_group = 4
switch_endpoint_ports = 4
links_per_group_pair = 4
port_rate = "100 Gb/s"
local_links = 8
"""
BEHIND = """
name = "behind"
source = "x"
device = [{ name = "g0..7" }]
switch = [{ name = "s0" }]
nic = [{ name = "n0..7", port_rate = "400 Gb/s" }]
link = [
  { kind = "nvlink", count = 18, data_rate = "25 GB/s", from = ["g0..7"], to = ["s0"] },
  { kind = "pcie", data_rate = "31.508 GB/s", pairs = [["g0..7", "n0..7"]] },
]
[network]
topology = "fat_tree"
nodes = 128
nodes_per_leaf = 4
oversubscription = 2
"""


def least(system: System, pattern: str, nodes: int, **case: Any) -> float:
    found = limits(system, {"pattern": pattern, "nodes": nodes, **case})
    return min(one.value_bytes_per_s or 0.0 for one in found if one.kind == "upper bound" and one.without is None)


@pytest.mark.parametrize("first", range(0, most(48, 1), most(6, 1)))
def test_bounds_and_times_hold_on_drawn_clusters(first: int) -> None:
    for seed in range(first, first + most(6, 1)):
        found = tried(seed)
        assert found.broken == []
        assert found.apart < 0.005, seed


@pytest.mark.parametrize("nodes", [2, 8, 18, 20])
@pytest.mark.parametrize("name", ["gb200-nvl72-cluster", "tray"])
def test_nodes_of_a_domain_are_bound_by_its_wires(name: str, nodes: int) -> None:
    system = from_toml(TRAY) if name == "tray" else load(name)
    fabric = of_system(system)
    layout = laid_out(fabric, nodes * fabric.gpus, Placement())
    for pattern in ("alltoall", "allreduce", "allgather", "reduce_scatter"):
        for one in answers(layout, Request(pattern, 1 << 30), parse_rules("", fabric)):
            assert one.goodput <= least(system, pattern, nodes) * (1 + 1e-9), (pattern, one.rule)
    if nodes <= 18:
        assert least(system, "alltoall", nodes) == pytest.approx(900 * GB)


def test_beyond_one_domain_the_nics_of_the_smallest_bind() -> None:
    """Twenty nodes are in two domains or more, of which one has ten at most: 40 ranks send 40 others, by 40 NICs."""
    assert least(from_toml(TRAY), "alltoall", 20) == pytest.approx(50 * GB * 79 / 40)


@pytest.mark.parametrize(
    ("each", "nodes", "expected"), [(16, 18, 50 * 17 / 32), (3, 5, 50 * 4 / 6), (4, 8, 50 * 7 / 16)]
)
def test_a_short_group_is_counted_with_the_nodes_it_has(each: int, nodes: int, expected: float) -> None:
    found = {one.rule: one.value_bytes_per_s for one in limits(from_toml(SHORT % (each, nodes)), {
        "pattern": "alltoall", "nodes": nodes
    })}  # fmt: skip
    assert found["network_bisection"] == pytest.approx(expected * GB)


def test_what_leads_to_a_nic_limits_a_simulated_port() -> None:
    fabric = of_system(from_toml(BEHIND))
    assert fabric.port_rate == pytest.approx(31.508 * GB)
    layout = laid_out(fabric, 64, Placement())
    for one in answers(layout, Request("alltoall", 1 << 30), parse_rules("", fabric)):
        assert one.goodput <= least(from_toml(BEHIND), "alltoall", 8) * (1 + 1e-9)
    # The leaf switches' uplinks are half of what the NICs' ports could bring, whatever leads to these.
    assert fabric.up_links * fabric.link_rate == pytest.approx(4 * 8 * 50 * GB / 2)


def test_two_ports_share_the_link_behind_them() -> None:
    text = """
name = "shared"
source = "x"
device = [{ name = "d0..1" }]
host = [{ name = "h" }]
switch = [{ name = "p" }]
nic = [{ name = "n0..1", port_rate = "25 GB/s" }]
link = [
  { kind = "pcie", data_rate = "32 GB/s", from = ["d0..1"], to = ["p"] },
  { kind = "pcie", data_rate = "30 GB/s", a = "p", b = "h" },
  { kind = "pcie", data_rate = "32 GB/s", from = ["n0..1"], to = ["h"] },
]
[network]
topology = "unknown"
nodes = 4
"""
    fabric = of_system(from_toml(text))
    assert fabric.port_rate == 25 * GB
    (found,) = answers(laid_out(fabric, 4, Placement()), Request("alltoall", 1 << 30), parse_rules("", fabric))
    # Two GPUs send two messages each out of a node, by a link of 30 GB/s.
    assert found.goodput == pytest.approx(3 * 30 * GB / 4)
    assert {one.name for one in found.bindings} >= {"link to ports out", "link to ports in"}


def test_too_many_unlike_flows_are_called_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    gpus = 4 * int(MOST_FLOWS**0.5 / 4 + 2)
    words = ["simulate", "gb200-nvl72-cluster", "--gpus", f"8,{gpus}", "--pattern", "alltoallv", "--distribution",
             "zipf:1.2", "--routing", "best", "--no-what-if"]  # fmt: skip
    assert run_command(words) == 0
    said = capsys.readouterr().out
    assert said.count("at least") == 2
    assert "the time is the fullest link's, a bound" in " ".join(said.split())


def test_a_bound_without_in_network_reduction_says_so_and_holds_nothing_else() -> None:
    found = {one.rule: one for one in limits(load("hgx-h100-8"), {"pattern": "allreduce"})}
    supposed = found["allreduce_bytes"]
    assert (supposed.kind, supposed.without) == ("upper bound", "in-network reduction")
    assert supposed.basis.startswith("without in-network reduction")
    assert (found["allreduce_in_network"].value_bytes_per_s or 0) > (supposed.value_bytes_per_s or 0)
    assert found["allreduce_cut"].without is None
    # A kernel of ours sends all bytes itself, and a switch that adds nothing changes nothing.
    for name, transport in (("hgx-h100-8", "kernel"), ("v100-dgx-1", None)):
        plain = {one.rule: one for one in limits(load(name), {"pattern": "allreduce", "transport": transport})}
        assert plain["allreduce_bytes"].without is None
