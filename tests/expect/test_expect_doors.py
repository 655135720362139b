"""Between nodes what leads to the NICs counts as they do: systems small enough to be worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.expect import limits
from linkgauge.system import Link, System, from_toml

COLLECTIVES = ("allgather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather", "one_to_all", "all_to_one")


def rates(system: System, pattern: str, nodes: int = 2, **case: Any) -> dict[str, float]:
    """Each rule's value in GB/s."""
    case = {"pattern": pattern, "transport": "ccl", "nodes": nodes, **case}
    return {c.rule: c.value_bytes_per_s / 1e9 for c in limits(system, case) if c.value_bytes_per_s is not None}


def board(ports: str = "400 Gb/s", linked: bool = True) -> System:
    """Eight devices on one fabric of 450 GB/s, each with a NIC beside it on a PCIe switch of 31.5 GB/s."""
    text = 'name = "board"\nsource = "made up"\n[[device]]\nname = "d0..7"\n[[switch]]\nname = "f"\n'
    text += f'[[switch]]\nname = "p0..7"\n[[nic]]\nname = "n0..7"\nport_rate = "{ports}"\n'
    text += '[[link]]\nkind = "nvlink"\ndata_rate = "450 GB/s"\nfrom = ["d0..7"]\nto = ["f"]\n'
    text += '[[link]]\nkind = "pcie"\ndata_rate = "31.5 GB/s"\npairs = [["d0..7", "p0..7"]]\n'
    if linked:
        text += '[[link]]\nkind = "pcie"\ndata_rate = "31.5 GB/s"\npairs = [["n0..7", "p0..7"]]\n'
    return from_toml(text)


def test_links_to_nics_bound_what_nodes_exchange() -> None:
    """Eight NICs of 50 GB/s on 31.5 of PCIe let 252 GB/s pass, not 400."""
    for pattern in ("pingpong", "unidirectional", "bidirectional"):
        found = rates(board(), pattern)
        assert found["nic_bundle"] == pytest.approx(252)
        assert found["nic_nearest"] == pytest.approx(252)
        alone = rates(board(), pattern, devices=(3,))
        assert alone["nic_bundle"] == pytest.approx(252)  # by the fabric and the other devices' NICs
        assert alone["nic_nearest"] == pytest.approx(31.5)
    allreduce = rates(board(), "allreduce")
    assert allreduce["nic_bundle"] == pytest.approx(252)
    assert allreduce["allreduce_node_bytes"] == pytest.approx(252)
    assert allreduce["allreduce_hierarchical"] == pytest.approx(252)  # 257 inside, over other links
    assert rates(board(), "alltoall")["nic_bundle"] == pytest.approx(252 / 8 / (8 / 15))
    wide = board("100 Gb/s")
    for pattern in COLLECTIVES:
        # Ports of 12.5 GB/s are narrower than their links, and then they alone bind.
        assert rates(board(), pattern)["nic_bundle"] / 252 == pytest.approx(rates(wide, pattern)["nic_bundle"] / 100)
    basis = {c.rule: c.basis for c in limits(board(), {"pattern": "pingpong", "nodes": 2})}["nic_bundle"]
    assert basis == "8 NICs, 400 GB/s a node, 252 GB/s by the links to them"


def _hidden(link: Link) -> bool:
    return link.a in ("d0", "d1", "d2", "d3") and link.b.startswith("p")


def test_nics_whose_links_nobody_describes_count_by_their_ports() -> None:
    for pattern in ("pingpong", "allreduce", "alltoall", *COLLECTIVES):
        bare = board(linked=False)
        ports = rates(board("100 Gb/s"), pattern)["nic_bundle"] * 4
        assert rates(bare, pattern)["nic_bundle"] == pytest.approx(ports)
        # Half of them on switches that no described link joins to a device: 4 x 31.5 and 4 x 50 GB/s.
        some = dataclasses.replace(board(), links=tuple(link for link in board().links if not _hidden(link)))
        assert rates(some, pattern)["nic_bundle"] / ports == pytest.approx((4 * 31.5 + 4 * 50) / 400)


def tree(out: float = 10, back: float = 10, port: float = 100) -> System:
    """Two devices and a NIC below one PCIe switch: what goes between nodes shares the devices' links with the rest."""
    text = 'name = "tree"\nsource = "made up"\n[[device]]\nname = "d0..1"\n[[switch]]\nname = "s"\n'
    text += f'[[nic]]\nname = "n"\nport_rate = "{port} GB/s"\n[[link]]\nkind = "pcie"\ndata_rate = "100 GB/s"\n'
    text += f'a = "n"\nb = "s"\n[[link]]\nkind = "pcie"\ndata_rate = "{out} GB/s"\nback_rate = "{back} GB/s"\n'
    text += 'from = ["d0..1"]\nto = ["s"]\n'
    return from_toml(text)


def test_a_hierarchical_allreduce_shares_links_with_what_is_inside() -> None:
    """Of m each device sends m / 2 in each phase inside, and m / 2 to the other node: 1.5 m by 10 GB/s."""
    found = rates(tree(), "allreduce")
    assert found["allreduce_hierarchical"] == pytest.approx(10 / 1.5)
    assert found["nic_bundle"] == 10
    assert found["allreduce_node_bytes"] == 20
    # Of many nodes each device sends and gets twice its half.
    assert rates(tree(), "allreduce", 1000)["allreduce_hierarchical"] == pytest.approx(10 / 2, rel=2e-3)
    assert rates(tree(port=1), "allreduce")["allreduce_hierarchical"] == 1


def test_both_directions_of_the_links_to_nics_count() -> None:
    """10 GB/s out of each device and 4 into it."""
    odd = tree(back=4)
    assert rates(odd, "unidirectional")["nic_bundle"] == rates(odd, "unidirectional")["nic_nearest"] == 8
    assert rates(odd, "alltoall")["nic_bundle"] == pytest.approx(4 / (2 / 3))
    assert rates(odd, "allreduce")["nic_bundle"] == 4
    # Each device gets the other node's half of the whole, and gives its own quarter.
    assert rates(odd, "allgather")["nic_bundle"] == 8
    assert rates(odd, "reduce_scatter")["nic_bundle"] == 16
    assert rates(odd, "broadcast")["nic_bundle"] == 4
    assert rates(odd, "reduce")["nic_bundle"] == 4
    assert rates(odd, "scatter")["nic_bundle"] == 20
    assert rates(odd, "gather")["nic_bundle"] == 8
    assert rates(odd, "one_to_all")["nic_bundle"] == pytest.approx(15)
    assert rates(odd, "all_to_one")["nic_bundle"] == pytest.approx(6)


def test_one_flow_of_a_ring_leaves_each_node() -> None:
    """Alps: 200 Gb/s by the last device's own NIC, where four NICs have 800; what stays inside shares no NIC."""
    alps = systems.load("alps")
    assert rates(alps, "ring_shift")["nic_nearest"] == pytest.approx(25)
    assert rates(alps, "ring_shift")["nic_bundle"] == pytest.approx(100)
    assert rates(alps, "pingpong")["nic_nearest"] == pytest.approx(100)
    # Below one switch the flow inside takes the first device's way out and the last one's way in; neither is shared.
    assert rates(tree(), "ring_shift")["nic_nearest"] == 10
    assert rates(tree(), "ring_shift", devices=(0, 0, 1, 1))["nic_nearest"] == 10
