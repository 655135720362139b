"""The check numbers: what papers print and what was recomputed from their machines, in Gb/s where they print Gb/s."""

from __future__ import annotations

from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.expect import Limit, cuts, flows, limits, paths, rings
from linkgauge.expect.graph import FABRIC, NODE, Wires, wires
from ways_listed import hop_matrix, hops

GBIT = 1e9 / 8


def limits_of(name: str, **case: Any) -> dict[str, Limit]:
    found = limits(systems.load(name), case)
    return {c.rule: c for c in found}


def gbit(found: dict[str, Limit], rule: str) -> float:
    value = found[rule].value_bytes_per_s
    assert value is not None
    return value / GBIT


@pytest.fixture(scope="module")
def lumi() -> Wires:
    return wires(systems.load("lumi-g"))


def names(graph: Wires) -> list[str]:
    return list(graph.devices.values())


def test_mi250x_hops(lumi: Wires) -> None:
    """Schieffer et al., Fig. 6a."""
    assert hop_matrix(lumi, range(8)) == [
        [0, 1, 1, 2, 2, 2, 1, 2],
        [1, 0, 2, 1, 2, 1, 2, 2],
        [1, 2, 0, 1, 1, 2, 2, 2],
        [2, 1, 1, 0, 2, 2, 2, 1],
        [2, 2, 1, 2, 0, 1, 1, 2],
        [2, 1, 2, 2, 1, 0, 2, 1],
        [1, 2, 2, 2, 1, 2, 0, 1],
        [2, 2, 2, 1, 2, 1, 1, 0],
    ]


def test_mi250x_widest_paths(lumi: Wires) -> None:
    """SC'24, Fig. 4; Schieffer et al., Fig. 6c: twelve pairs with two links or more, sixteen with one."""
    device = names(lumi)
    rates: dict[tuple[int, int], float] = {}
    for a in range(8):
        for b in range(a + 1, 8):
            path = paths.widest(lumi, device[a], device[b])
            assert path is not None
            rates[a, b] = paths.rate_of(lumi, path) / GBIT
    assert [rates[0, b] for b in range(1, 8)] == [1600, 400, 400, 400, 400, 800, 800]
    assert sum(rate >= 800 for rate in rates.values()) == 12
    assert sum(rate == 400 for rate in rates.values()) == 16
    assert paths.widest(lumi, "gcd1", "gcd7") == ("gcd1", "gcd0", "gcd6", "gcd7")
    assert paths.widest(lumi, "gcd3", "gcd5") == ("gcd3", "gcd2", "gcd4", "gcd5")


def test_mi250x_three_paths_differ(lumi: Wires) -> None:
    """Shortest and widest differ for 1-7 and 3-5 alone; widest and max flow for all pairs."""
    device = names(lumi)
    differing = []
    for a in range(8):
        for b in range(a + 1, 8):
            short, wide = paths.shortest(lumi, device[a], device[b]), paths.widest(lumi, device[a], device[b])
            assert short is not None
            assert wide is not None
            if paths.rate_of(lumi, short) != paths.rate_of(lumi, wide):
                differing.append((a, b))
            flow = cuts.max_flow(lumi, device[a], device[b]).value
            assert flow is not None
            assert flow > paths.rate_of(lumi, wide)
    assert differing == [(1, 7), (3, 5)]


def even_loads(graph: Wires) -> dict[tuple[str, str], float]:
    """Of each arc with a demand of one between all devices: the largest is the edge forwarding index."""
    return paths.loads(graph, {(a, b): 1.0 for a in names(graph) for b in names(graph) if a != b})


def test_forwarding_indices(lumi: Wires) -> None:
    loads = even_loads(lumi)
    assert max(loads.values()) == 4
    # The single links 1-5 and 3-7 are the worst: their whole load sits on one link.
    worst = max(loads[arc] / lumi.links[arc] for arc in loads)
    assert {arc for arc in loads if loads[arc] / lumi.links[arc] == worst} == {
        ("gcd1", "gcd5"), ("gcd5", "gcd1"), ("gcd3", "gcd7"), ("gcd7", "gcd3"),
    }  # fmt: skip
    for name in ("alps", "leonardo-booster"):
        graph = wires(systems.load(name))
        assert max(even_loads(graph).values()) == 1


def test_mi250x_rings(lumi: Wires) -> None:
    """Five Hamiltonian cycles; at most four directed edge-disjoint ones (parallel links count)."""
    listed = rings.cycles(lumi, names(lumi))
    assert len(listed) == 5
    links = rings.unit_links(lumi, names(lumi))
    assert links is not None
    assert links[1] == 50e9
    assert rings.most_disjoint(tuple(links[0].items()), tuple(listed)) == 4


def test_lumi_alltoall_by_three_rules() -> None:
    found = limits_of("lumi-g", pattern="alltoall")
    assert gbit(found, "sc24_forwarding_index") == pytest.approx(600)
    assert found["sc24_forwarding_index"].kind == "published"
    assert gbit(found, "forwarding_index") == pytest.approx(700)
    assert found["forwarding_index"].kind == "achievable schedule"
    assert gbit(found, "concurrent_flow") == pytest.approx(1050)
    assert found["concurrent_flow"].kind == "upper bound"


def test_lumi_allreduce() -> None:
    found = limits_of("lumi-g", pattern="allreduce", transport="ccl")
    assert gbit(found, "sc24_rings") == pytest.approx(800)
    assert found["sc24_rings"].kind == "published"
    assert gbit(found, "allreduce_bytes") == pytest.approx(52 * 400 / 14)
    assert gbit(found, "rings") == pytest.approx(4 * 400 * 8 / 14)


@pytest.mark.parametrize(("name", "injection", "bound"), [("alps", 3600, 2400), ("leonardo-booster", 2400, 1600)])
def test_full_meshes(name: str, injection: float, bound: float) -> None:
    alltoall = limits_of(name, pattern="alltoall", transport="ccl")
    for rule in ("concurrent_flow", "forwarding_index", "sc24_forwarding_index", "injection"):
        assert gbit(alltoall, rule) == pytest.approx(injection)
    allreduce = limits_of(name, pattern="allreduce", transport="ccl")
    assert gbit(allreduce, "sc24_direct_trees") == pytest.approx(injection)
    assert gbit(allreduce, "allreduce_bytes") == pytest.approx(bound)
    assert gbit(allreduce, "allreduce_trees") == pytest.approx(bound)
    # The published value stands above the bound, and it is said to be so.
    assert "above the bound allreduce_bytes" in allreduce["sc24_direct_trees"].basis


def test_published_staging() -> None:
    for name, value in (("lumi-g", 168), ("leonardo-booster", 112), ("alps", 168)):
        found = limits_of(name, pattern="pingpong", transport="staging", devices=(0, 1))
        assert gbit(found, "sc24_staging") == pytest.approx(value)
        assert found["sc24_staging"].kind == "published"
    lumi = limits_of("lumi-g", pattern="pingpong", transport="staging", devices=(0, 1))
    assert gbit(lumi, "staging_two_legs") == pytest.approx(167.4, abs=0.1)
    assert gbit(lumi, "staging_three_legs") == pytest.approx(1 / (2 / 288 + 1 / 400))
    assert gbit(lumi, "staging_pipelined") == pytest.approx(288)
    leonardo = limits_of("leonardo-booster", pattern="pingpong", transport="staging", devices=(0, 1))
    assert gbit(leonardo, "staging_two_legs") == pytest.approx(112, abs=1)


def test_sdma_cap() -> None:
    found = limits_of("lumi-g", pattern="unidirectional", transport="copy_engine", devices=(0, 1))
    assert found["engine_cap"].value_bytes_per_s == 50e9
    assert found["engine_cap"].kind == "published"
    assert "engine_cap" not in limits_of("lumi-g", pattern="unidirectional", transport="kernel", devices=(0, 1))


@pytest.mark.parametrize("name", ["p100-dgx-1", "v100-dgx-1"])
def test_dgx1_routed_pairs_and_routers(name: str) -> None:
    """Li et al., Section 3.1.3: from G0 to G5 by G1 or G4, to G6 by G2 or G4, to G7 by G3 or G4."""
    graph = wires(systems.load(name))
    routed = {b for b in range(1, 8) if hops(graph, "gpu0", f"gpu{b}") == 2}
    assert routed == {5, 6, 7}
    for target, routers in ((5, {1, 4}), (6, {2, 4}), (7, {3, 4})):
        between = {
            r for r in range(8) if ("gpu0", f"gpu{r}") in graph.arcs and (f"gpu{r}", f"gpu{target}") in graph.arcs
        }
        assert between == routers


def test_v100_dgx1_fast_ring_and_routing() -> None:
    graph = wires(systems.load("v100-dgx-1"))
    double = {arc for arc, count in graph.links.items() if count == 2}
    ring = (0, 3, 2, 1, 5, 6, 7, 4)
    steps = {(f"gpu{a}", f"gpu{b}") for a, b in zip(ring, (*ring[1:], 0), strict=True)}
    assert double == steps | {(b, a) for a, b in steps}

    def via(middle: int, target: int) -> float:
        return paths.rate_of(graph, ("gpu0", f"gpu{middle}", f"gpu{target}"))

    # Lowest by G0-G2-G6, highest by G0-G4-G7.
    assert via(2, 6) == min(via(1, 5), via(4, 5), via(2, 6), via(4, 6), via(3, 7), via(4, 7)) == 25e9
    assert via(4, 7) == 50e9


def test_dgx1_store_and_forward() -> None:
    """Li et al.: a routed copy is two whole copies; 20 GB/s links give 10 (they saw 9.18 where direct gave 18.41)."""
    found = limits_of("p100-dgx-1", pattern="unidirectional", transport="copy_engine", devices=(0, 5), via=1)
    assert found["relay"].value_bytes_per_s == pytest.approx(10e9)
    plain = limits(systems.load("p100-dgx-1"), {"pattern": "unidirectional", "devices": (0, 5)})
    # Without a relay the copy goes by PCIe, and that way is named.
    assert any("plx0 - cpu0 - cpu1 - plx2" in c.basis for c in plain)


def test_dgx2_bisection() -> None:
    """1.2 TB/s in one direction; the paper prints 2.4."""
    graph = wires(systems.load("dgx-2"))
    halves = [f"gpu{i}" for i in range(8)], [f"gpu{i}" for i in range(8, 16)]
    assert cuts.max_flow_between(graph, *halves).value == 1.2e12
    found = limits_of("dgx-2", pattern="unidirectional", devices=(0, 15))
    assert found["widest_path"].value_bytes_per_s == 150e9


def test_summit_islands() -> None:
    """No fabric joins the islands: the cut between them is the X-Bus, one way 64 GB/s (SummitDev 38)."""
    for name, half, xbus in (("summit", 3, 64e9), ("summitdev", 2, 38e9), ("sierra-like", 2, 64e9)):
        system = systems.load(name)
        fabric, node = wires(system, FABRIC), wires(system, NODE)
        assert not fabric.joined(range(2 * half))
        assert fabric.joined(range(half))
        islands = [f"gpu{i}" for i in range(half)], [f"gpu{i}" for i in range(half, 2 * half)]
        assert cuts.max_flow_between(node, *islands).value == xbus


def test_three_in_a_row() -> None:
    """Trees reach 1, reduce_scatter and allgather 0.75."""
    row = systems.from_toml(
        'name = "row"\nsource = "test"\n[[device]]\nname = "g0..2"\n'
        '[[link]]\nkind = "nvlink"\ndata_rate = "1 GB/s"\npairs = [["g0", "g1"], ["g1", "g2"]]\n'
    )
    found = {c.rule: c.value_bytes_per_s for c in limits(row, {"pattern": "allreduce"})}
    assert found["allreduce_trees"] == pytest.approx(1e9)
    assert found["reduce_scatter_allgather"] == pytest.approx(0.75e9)
    assert found["allreduce_bytes"] == pytest.approx(1e9)
    assert found["allreduce_cut"] == pytest.approx(1e9)


def test_switch_with_and_without_in_network_reduction() -> None:
    """Eight devices of rate B on a switch: 8 B / 14 without, B with; an unknown use takes the weaker bound."""
    system = systems.load("hgx-h200-8")
    library = {c.rule: c for c in limits(system, {"pattern": "allreduce", "transport": "ccl"})}
    ring = {c.rule: c for c in limits(system, {"pattern": "allreduce", "transport": "ccl", "algorithm": "RING"})}
    kernel = {c.rule: c for c in limits(system, {"pattern": "allreduce", "transport": "kernel"})}
    assert library["allreduce_in_network"].value_bytes_per_s == pytest.approx(450e9)
    assert library["allreduce_trees"].value_bytes_per_s == pytest.approx(450e9 * 8 / 14)
    assert "allreduce_bytes" not in library
    nvshmem = {
        variant: {
            c.rule: c for c in limits(system, {"pattern": "allreduce", "transport": "nvshmem", "variant": variant})
        }
        for variant in ("", "put", "signal", "device", "collective", "device+collective")
    }
    usual = library.pop("payload_share")  # what was published of NCCL
    assert usual.value_bytes_per_s == pytest.approx(273e9, rel=0.02)
    for own in ("collective", "device+collective"):
        assert nvshmem.pop(own) == library
    ucx = {c.rule: c for c in limits(system, {"pattern": "allreduce", "transport": "ucx"})}
    for found in (ring, kernel, *nvshmem.values()):
        assert found["allreduce_bytes"].value_bytes_per_s == pytest.approx(450e9 * 8 / 14)
        assert "allreduce_in_network" not in found
    assert "allreduce_bytes" in ucx
    assert "allreduce_in_network" not in ucx
    # DGX-2's switches neither repeat nor add.
    old = {c.rule for c in limits(systems.load("dgx-2"), {"pattern": "allreduce", "transport": "ccl"})}
    assert "allreduce_bytes" in old
    assert "allreduce_in_network" not in old


def test_internode_alltoall_and_pairs() -> None:
    """SC'24: 800, 400, 800 Gb/s a node (Fig. 7); 200, 100, 100 a device for many nodes (Fig. 9)."""
    for name, node, device in (("alps", 800, 200), ("leonardo-booster", 400, 100), ("lumi-g", 800, 100)):
        pair = limits_of(name, pattern="pingpong", nodes=2)
        assert gbit(pair, "nic_bundle") == pytest.approx(node)
        many = limits_of(name, pattern="alltoall", nodes=64)
        assert gbit(many, "nic_share_asymptotic") == pytest.approx(device)
        few = limits_of(name, pattern="alltoall", nodes=2)
        count = len(systems.load(name).devices)
        assert gbit(few, "nic_bundle") == pytest.approx(device * (2 * count - 1) / count)


def test_local_copies_are_half_of_memory() -> None:
    assert limits_of("lumi-g", pattern="local_copy", devices=(0,))["local_copy"].value_bytes_per_s == 0.8e12
    assert limits_of("lumi-g", pattern="stream_copy")["local_copy"].value_bytes_per_s == 6.4e12
    same = limits_of("summit", pattern="unidirectional", devices=(0, 0))
    assert same["local_copy"].value_bytes_per_s == 450e9
    # Within twice the last-level cache (8 MiB here) memory binds nothing.
    assert limits_of("lumi-g", pattern="local_copy", devices=(0,), size=16 << 20)["local_copy"].kind == "typical"
    assert limits_of("lumi-g", pattern="local_copy", devices=(0,), size=17 << 20)["local_copy"].kind == "upper bound"
    assert "memory" not in limits_of("lumi-g", pattern="alltoall", size=1 << 20)


def test_stream_to_hosts_follows_schieffer() -> None:
    """Eight dies give what four spread ones give: the hosts' memory, not the links, is short."""
    eight = limits_of("lumi-g", pattern="host_to_device")
    assert eight["memory"].value_bytes_per_s == pytest.approx(204.8e9)
    assert eight["host_links"].value_bytes_per_s == pytest.approx(8 * 36e9)


def test_alltoall_program_is_tight_at_the_bisection(lumi: Wires) -> None:
    rate = flows.alltoall(lumi, dict.fromkeys(names(lumi), 1))
    left = [f"gcd{i}" for i in range(4)]
    right = [f"gcd{i}" for i in range(4, 8)]
    cut = cuts.max_flow_between(lumi, left, right).value
    assert cut is not None
    assert rate is not None
    assert rate.bound == pytest.approx(cut / 16)


def test_a_path_off_the_fabric_is_bound_by_host_links() -> None:
    case = {"pattern": "unidirectional", "devices": (0, 1), "transport": "copy_engine"}
    direct = limits_of("hgx-h200-8", **case)
    pcie = limits_of("hgx-h200-8", **case, path="pcie")
    assert direct["max_flow"].value_bytes_per_s == 450e9
    assert pcie["max_flow"].value_bytes_per_s == pytest.approx(63.015e9)
    # NCCL off its usual path may take any way of the machine.
    library = limits(systems.load("hgx-h200-8"), {**case, "transport": "ccl", "path": "host"})
    bound = max(c.value_bytes_per_s or 0.0 for c in library if c.rule == "max_flow" and c.kind == "upper bound")
    assert bound == pytest.approx(450e9 + 63.015e9)


def test_bundles_of_five_and_four_are_one_port() -> None:
    """An HGX device's eighteen links to four switches act as one way of 450 GB/s."""
    graph = wires(systems.load("hgx-h200-8"))
    assert len(graph.vertices) == 9
    found = limits_of("hgx-h200-8", pattern="unidirectional", devices=(2, 5))
    assert found["widest_path"].value_bytes_per_s == 450e9


def test_nvlink_without_a_program_that_relays_binds_nothing() -> None:
    """On DGX-1 not every pair has a link: what the fabric allows needs relays, and the bound counts PCIe too."""
    found = limits(systems.load("p100-dgx-1"), {"pattern": "alltoall", "transport": "kernel"})
    flows_by_kind = {c.kind: c.value_bytes_per_s or 0.0 for c in found if c.rule == "concurrent_flow"}
    assert flows_by_kind["achievable schedule"] / GBIT == pytest.approx(280)
    assert flows_by_kind["upper bound"] > flows_by_kind["achievable schedule"]
    # On MI250X hardware relays, and the fabric binds.
    assert {c.kind for c in limits(systems.load("lumi-g"), {"pattern": "alltoall"}) if c.rule == "concurrent_flow"} == {
        "upper bound"
    }


def test_typical_shares_of_links() -> None:
    """What a description accepts of a link kind for a transport and pattern, from the size on that it holds for."""
    case = {"pattern": "unidirectional", "devices": (0, 1), "transport": "copy_engine"}
    found = limits_of("hgx-h200-8", **case, size=256 << 20)
    assert found["payload_share"].kind == "typical"
    assert found["payload_share"].value_bytes_per_s == pytest.approx(0.868 * 450e9)
    larger = limits_of("hgx-h200-8", **case, size=2 << 30)
    assert larger["payload_share"].value_bytes_per_s == pytest.approx(0.88 * 450e9)
    assert "payload_share" not in limits_of("hgx-h200-8", **case, size=1 << 20)
    assert "payload_share" not in limits_of("hgx-h200-8", **{**case, "transport": "staging"}, size=256 << 20)
