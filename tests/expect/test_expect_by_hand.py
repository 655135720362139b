"""Limits worked out by hand on small made-up machines: staging, memories, several nodes and networks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from linkgauge.expect import Limit, limits
from linkgauge.system import System, from_toml
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json

GB = 1e9


def rules(system: System, **case: Any) -> dict[str, Limit]:
    return {c.rule: c for c in limits(system, case)}


def value(found: dict[str, Limit], rule: str) -> float:
    rate = found[rule].value_bytes_per_s
    assert rate is not None
    return rate / GB


def hosted(text: str = "") -> System:
    """Two devices, each with 10 GB/s to the host and 5 GB/s from it."""
    return from_toml(
        'name = "hosted"\nsource = "made up"\n[[device]]\nname = "d0..1"\n[[host]]\nname = "h"\n'
        '[[link]]\nkind = "pcie"\ndata_rate = "10 GB/s"\nback_rate = "5 GB/s"\nfrom = ["d0..1"]\nto = ["h"]\n' + text
    )


@pytest.mark.parametrize(
    ("pattern", "out", "back"),
    [
        # Rates that each leg alone allows the pattern's goodput; n = 2.
        ("allreduce", 10, 5),
        ("alltoall", 10, 5),
        ("ring_shift", 10, 5),
        ("allgather", 20, 10),
        ("reduce_scatter", 10, 10),
        ("broadcast", 10, 5),
        ("reduce", 10, 5),
        ("scatter", 20, 10),
        ("gather", 20, 10),
        ("one_to_all", 10, 5),
        ("all_to_one", 10, 5),
    ],
)
def test_staging_collectives(pattern: str, out: float, back: float) -> None:
    found = rules(hosted(), pattern=pattern, transport="staging")
    assert value(found, "staging_pipelined") == pytest.approx(min(out, back))
    assert found["staging_pipelined"].kind == "upper bound"
    assert value(found, "staging_legs") == pytest.approx(1 / (1 / out + 1 / back))


def test_staging_pairs_and_both_directions_of_hosts() -> None:
    pair = rules(hosted(), pattern="unidirectional", transport="staging", devices=(0, 1))
    assert value(pair, "staging_pipelined") == 5
    assert value(pair, "staging_legs") == pytest.approx(10 / 3)
    assert value(rules(hosted(), pattern="host_to_device"), "host_links") == 10
    assert value(rules(hosted(), pattern="device_to_host"), "host_links") == 20
    # Both directions carry the same bytes, so the slower one sets the time.
    assert value(rules(hosted(), pattern="host_device_bidirectional"), "host_links") == 20


def test_host_memory_is_no_limit_of_words_that_are_repeated() -> None:
    slow = from_toml(
        'name = "slow"\nsource = "made up"\n[[device]]\nname = "d0"\n'
        '[[host]]\nname = "h"\nmemory_rate = "3 GB/s"\n'
        '[[link]]\nkind = "pcie"\ndata_rate = "10 GB/s"\nfrom = ["d0"]\nto = ["h"]\n'
    )
    assert value(rules(slow, pattern="host_device_bidirectional"), "memory") == 3
    repeated = rules(slow, pattern="host_device_bidirectional", variant="repeated", transport="kernel")
    assert "memory" not in repeated
    assert value(repeated, "host_links") == 20


def test_a_switch_above_devices_is_shared() -> None:
    shared = from_toml(
        'name = "shared"\nsource = "made up"\n[[device]]\nname = "d0..3"\n[[host]]\nname = "h"\n'
        '[[switch]]\nname = "s"\n'
        '[[link]]\nkind = "pcie"\ndata_rate = "10 GB/s"\nfrom = ["d0..3"]\nto = ["s"]\n'
        '[[link]]\nkind = "pcie"\ndata_rate = "16 GB/s"\na = "s"\nb = "h"\n'
    )
    assert value(rules(shared, pattern="host_to_device"), "host_links") == 16
    assert value(rules(shared, pattern="host_to_device", devices=(0,)), "host_links") == 10
    # All four send their whole buffer up: 4 GB/s each.
    assert value(rules(shared, pattern="allreduce", transport="staging"), "staging_pipelined") == 4
    # Devices reach each other below the switch, so the way up binds no kernel.
    assert value(rules(shared, pattern="alltoall", transport="kernel"), "concurrent_flow") == pytest.approx(10)


def test_memory_by_the_bytes_that_must_be_touched() -> None:
    """Four devices with 12 GB/s of memory and no shortage of links."""
    system = from_toml(
        'name = "slow"\nsource = "made up"\n[[device]]\nname = "d0..3"\nmemory_rate = "12 GB/s"\n'
        '[[link]]\nkind = "xgmi"\ndata_rate = "1000 GB/s"\nmesh = ["d0..3"]\n'
    )
    expected = {
        "alltoall": 6,
        "allreduce": 6,
        "ring_shift": 6,
        "allgather": 12,
        "reduce_scatter": 12 / 1.25,
        "broadcast": 12,
        "reduce": 12,
        "scatter": 16,
        "gather": 16,
        "one_to_all": 12,
        "all_to_one": 12,
        "unidirectional": 12,
        "bidirectional": 6,
        "local_copy": 6,
        "stream_copy": 24,
    }
    for pattern, gigabytes in expected.items():
        devices = {"unidirectional": (0, 1), "bidirectional": (0, 1), "local_copy": (0,)}.get(pattern, (0, 1, 2, 3))
        rule = "local_copy" if pattern.endswith("_copy") else "memory"
        assert value(rules(system, pattern=pattern, devices=devices), rule) == pytest.approx(gigabytes), pattern
    # Both ranks of a pair on one device: read and written there, and for both directions twice.
    assert value(rules(system, pattern="unidirectional", devices=(0, 0)), "local_copy") == 6
    assert value(rules(system, pattern="bidirectional", devices=(0, 0)), "local_copy") == 3
    # Two ranks a device double what its memory must move.
    twice = rules(system, pattern="allreduce", devices=(0, 0, 1, 1, 2, 2, 3, 3))
    assert value(twice, "memory") == pytest.approx(3)


def test_a_pingpong_over_unlike_directions() -> None:
    """10 GB/s there and 2.5 back: half of the round trip is the mean of both times."""
    system = from_toml(
        'name = "odd"\nsource = "made up"\n[[device]]\nname = "d0..1"\n'
        '[[link]]\nkind = "xgmi"\ndata_rate = "10 GB/s"\nback_rate = "2.5 GB/s"\na = "d0"\nb = "d1"\n'
    )
    assert value(rules(system, pattern="pingpong", devices=(0, 1)), "max_flow") == pytest.approx(4)
    assert value(rules(system, pattern="unidirectional", devices=(0, 1)), "max_flow") == 10
    assert value(rules(system, pattern="unidirectional", devices=(1, 0)), "max_flow") == 2.5
    assert value(rules(system, pattern="reduce", root=0), "rooted_cut") == 2.5
    assert value(rules(system, pattern="broadcast", root=0), "rooted_cut") == 10
    assert value(rules(system, pattern="allreduce"), "allreduce_cut") == 2.5


GROUPS, PER_GROUP = 3, 2


def networked(topology: str = "dragonfly") -> System:
    """Nodes of two devices and one NIC of 8 GB/s; three groups of two nodes, 6 GB/s of global links a group."""
    ports = {
        "dragonfly": "switch_local_ports = 1\nswitch_global_ports = 3\n",
        "dragonfly+": "spine_switches_per_group = 2\nspine_global_ports = 3\n",
    }[topology]
    return from_toml(
        'name = "net"\nsource = "made up"\n[[device]]\nname = "d0..1"\n[[nic]]\nname = "n"\nport_rate = "8 GB/s"\n'
        '[[link]]\nkind = "xgmi"\ndata_rate = "30 GB/s"\na = "d0"\nb = "d1"\n'
        '[[link]]\nkind = "pcie"\nfrom = ["d0..1"]\nto = ["n"]\n'
        f'[network]\ntopology = "{topology}"\nnodes = {GROUPS * PER_GROUP}\ngroups = {GROUPS}\n'
        f'nodes_per_group = {PER_GROUP}\nport_rate = "1 GB/s"\n{ports}'
    )


def leaving_shares(nodes: int) -> tuple[float, float]:
    """Count, device pair by device pair, the share of a device's traffic that leaves its node, and its full group."""
    devices = [(node // PER_GROUP, node, d) for node in range(nodes) for d in range(2)]
    pairs = list(itertools.permutations(devices, 2))
    node = sum(a[1] != b[1] for a, b in pairs) / len(pairs)
    group = sum(a[0] != b[0] for a, b in pairs) / len(pairs)
    return node, group


@pytest.mark.parametrize("topology", ["dragonfly", "dragonfly+"])
def test_alltoall_between_nodes(topology: str) -> None:
    system = networked(topology)
    for nodes in (2, 4, 6):
        found = rules(system, pattern="alltoall", nodes=nodes)
        node, group = leaving_shares(nodes)
        # 8 GB/s for two devices, and only what leaves the node passes the NIC.
        assert value(found, "nic_bundle") == pytest.approx(4 / node)
        assert value(found, "nic_share_asymptotic") == 4
        if nodes <= PER_GROUP:
            assert "network_global" not in found
        else:
            # 18 GB/s of global links in all for 2 x nodes devices' traffic that leaves its group.
            assert value(found, "network_global") == pytest.approx(18 / (2 * nodes * group))
        assert ("network_bisection" in found) == (nodes == GROUPS * PER_GROUP)
    # One group of four devices against two: 2 of 3 pairs of groups lie across, each with 3 GB/s.
    whole = rules(system, pattern="alltoall", nodes=6)
    assert value(whole, "network_bisection") == pytest.approx(6 / (4 * 8 / 11))


def test_other_collectives_between_nodes() -> None:
    system = networked()
    allreduce = rules(system, pattern="allreduce", nodes=4)
    assert value(allreduce, "nic_bundle") == 8
    assert value(allreduce, "allreduce_node_bytes") == pytest.approx(4 * 8 / 6)
    # Inside: reduce_scatter and allgather of 60 each, one after the other, 30.
    assert value(allreduce, "allreduce_hierarchical") == pytest.approx(4 * 8 / 6)
    assert value(rules(system, pattern="allgather", nodes=4), "nic_bundle") == pytest.approx(8 * 4 / 3)
    assert value(rules(system, pattern="reduce_scatter", nodes=4), "nic_bundle") == pytest.approx(8 * 4 / 3)
    assert value(rules(system, pattern="broadcast", nodes=4), "nic_bundle") == 8
    assert value(rules(system, pattern="scatter", nodes=4), "nic_bundle") == pytest.approx(8 * 4 / 3)
    # (n - 1) m of which 6 of 7 leave the root's node.
    assert value(rules(system, pattern="one_to_all", nodes=4), "nic_bundle") == pytest.approx(8 * 7 / 6)
    pair = rules(system, pattern="pingpong", nodes=2, devices=(0,))
    assert value(pair, "nic_bundle") == 8
    assert value(pair, "nic_nearest") == 8


def test_what_is_remembered_is_what_is_computed() -> None:
    """Asked again, and in another order of cases, a system answers as a fresh copy of it does."""
    used, patterns = hosted(), ("alltoall", "allreduce", "broadcast", "allgather", "host_to_device")
    for pattern in (*patterns, *reversed(patterns)):
        for transport in ("kernel", "staging", "mpi"):
            case = {"pattern": pattern, "transport": transport}
            assert limits(used, case) == limits(hosted(), case)
    assert used == hosted()
    assert from_json(to_json(used)) == used


def test_leaf_switches_with_few_uplinks_bind_a_fat_tree() -> None:
    """Four nodes of two devices and one NIC of 10 GB/s, two nodes a leaf, half as many uplinks: 10 GB/s out of a leaf.

    Each of a leaf's 4 ranks sends to the 4 beyond: 16 flows share 10 GB/s, 0.625 each; goodput counts 7 of them. The
    NICs alone allow 10 / (2 * 6) a flow.
    """
    import linkgauge.system as systems

    def alltoall(used: int, **figures: float) -> dict[str, float | None]:
        lines = "".join(f"{key} = {value}\n" for key, value in figures.items())
        text = (
            'name = "t"\ntitle = "t"\nsource = "s"\n[[device]]\nname = "d0..1"\n[[host]]\nname = "c"\n'
            '[[nic]]\nname = "n"\nport_rate = "10 GB/s"\n[[link]]\nkind = "pcie"\ndata_rate = "50 GB/s"\n'
            f'from = ["d0..1", "n"]\nto = ["c"]\n[network]\ntopology = "fat_tree"\n{lines}'
        )
        case = {"pattern": "alltoall", "transport": "mpi", "nodes": used}
        return {c.rule: c.value_bytes_per_s for c in limits(systems.from_toml(text), case)}

    found = alltoall(4, oversubscription=2, nodes_per_leaf=2, nodes=4)
    assert found["network_global"] == pytest.approx(10e9 / 16 * 7)
    assert found["nic_bundle"] == pytest.approx(10e9 / 12 * 7)
    assert "network_global" not in alltoall(2, oversubscription=2, nodes_per_leaf=2)
    assert "network_global" not in alltoall(4)
    # Where there may be more leaf switches, each of these nodes may have one to itself.
    assert "network_global" not in alltoall(4, oversubscription=2, nodes_per_leaf=2)
    spread = alltoall(4, oversubscription=2, nodes_per_leaf=2, nodes=8)
    assert spread["network_global"] == pytest.approx(10e9 / 12 * 7)
    full = alltoall(4, oversubscription=1, nodes_per_leaf=2, nodes=4)
    assert (full["network_global"] or 0) > (full["nic_bundle"] or 0)
