"""Which interface a library will use, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from linkgauge.run.machine.interfaces import Chosen, Interface, Network, chosen, chosen_below, network, wrong_choices
from linkgauge.run.parent.nodes import ways_between
from run.test_launchers import fake_mpi
from run.test_nodes import look

GIGABIT = 1_000_000_000
ETH = Interface("eno1", "network", True, GIGABIT, "10.0.0.1", "igb")
FAST = Interface("ens2", "network", True, 100 * GIGABIT, "10.1.0.1", "mlx5_core")
DOCKER = Interface("docker0", "virtual", True, 0, "172.17.0.1")
LOOP = Interface("lo", "loopback", True, 0, "127.0.0.1")
DOWN = Interface("eno2", "network", False, GIGABIT, "10.9.0.1")
NODE = Network((ETH, FAST, DOCKER, LOOP, DOWN))
MPICH = "MPICH Version: 5.0 MPICH Device: ch4:ucx ofi"


@pytest.mark.parametrize(
    ("vendor", "text", "environment", "names"),
    [
        ("mpich", MPICH, {}, ("ens2",)),
        ("mpich", MPICH, {"UCX_NET_DEVICES": "eno1"}, ("eno1",)),
        ("mpich", MPICH, {"MPIR_CVAR_CH4_NETMOD": "ofi"}, ("ens2",)),
        ("mpich", "ch4:ofi", {"FI_TCP_IFACE": "eno1"}, ("eno1",)),
        ("intel", "", {}, ("ens2",)),
        ("openmpi", "", {}, ("ens2", "eno1", "docker0")),
        ("openmpi", "", {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24"}, ("eno1",)),
        ("openmpi", "", {"OMPI_MCA_btl_tcp_if_exclude": "docker0,lo"}, ("ens2", "eno1")),
    ],
)  # fmt: skip
def test_what_a_library_takes(vendor: str, text: str, environment: dict[str, str], names: tuple[str, ...]) -> None:
    assert chosen(vendor, text, environment, NODE).names == names


def test_rdma_devices_come_first_unless_the_library_is_kept_from_them() -> None:
    there = Network(NODE.interfaces, ("mlx5_0", "mlx5_1"))
    assert chosen("mpich", MPICH, {}, there).names == ("mlx5_0", "mlx5_1")
    assert chosen("mpich", MPICH, {"UCX_TLS": "tcp,self"}, there).names == ("ens2",)
    assert chosen("mpich", MPICH, {"UCX_NET_DEVICES": "mlx5_1:1"}, there).names == ("mlx5_1",)
    assert chosen("openmpi", "", {}, there).names == ("mlx5_0", "mlx5_1")
    assert chosen("openmpi", "", {"OMPI_MCA_pml": "ob1"}, there).names == ("ens2", "eno1", "docker0")


RDMA = Network(NODE.interfaces, ("mlx5_0", "mlx5_1"))


@pytest.mark.parametrize(
    ("transport", "kind", "environment", "there", "name", "names"),
    [
        ("ucx", "cuda", {}, RDMA, "UCX", ("mlx5_0", "mlx5_1")),
        ("nixl", "host", {"UCX_NET_DEVICES": "eno1"}, NODE, "NIXL's UCX", ("eno1",)),
        ("ofi", "host", {}, NODE, "libfabric", ("ens2",)),
        ("ccl", "host", {"FI_TCP_IFACE": "eno1"}, NODE, "oneCCL", ("eno1",)),
        ("ccl", "cuda", {}, RDMA, "NCCL", ("mlx5_0", "mlx5_1")),
        ("ccl", "cuda", {"NCCL_IB_HCA": "=mlx5_1:1"}, RDMA, "NCCL", ("mlx5_1",)),
        ("ccl", "cuda", {"NCCL_IB_HCA": "^mlx5_1"}, RDMA, "NCCL", ("mlx5_0",)),
        ("ccl", "cuda", {"NCCL_IB_DISABLE": "1"}, RDMA, "NCCL", ("ens2", "eno1")),
        ("ccl", "hip", {}, NODE, "RCCL", ("ens2", "eno1")),
        ("ccl", "cuda", {"NCCL_SOCKET_IFNAME": "docker"}, NODE, "NCCL", ("docker0",)),
    ],
)
def test_what_libraries_below_or_beside_mpi_take(
    transport: str, kind: str, environment: dict[str, str], there: Network, name: str, names: tuple[str, ...]
) -> None:
    found = chosen_below(transport, kind, environment, there)
    assert found is not None
    assert (found[0], found[1].names) == (name, names)
    assert chosen_below("mpi", kind, environment, there) is None


def test_docker_a_management_network_and_what_is_not_there_are_told() -> None:
    other = Network((Interface("eno1", "network", True, GIGABIT, "10.0.0.2", "igb"), DOCKER))
    nodes = {"a": NODE, "b": other}
    said = wrong_choices(Chosen(("ens2", "eno1", "docker0"), ""), nodes)
    assert said == [
        "docker0 is no network: a bridge or tunnel of this node alone",
        "ens2 is not there on b",
        "docker0 has one address, 172.17.0.1, on a, b: nothing between nodes can go by it",
    ]
    (slow,) = wrong_choices(Chosen(("eno1",), ""), {"a": NODE})
    assert slow == "eno1 (1 Gb/s, 10.0.0.1) is slower than ens2 (100 Gb/s, 10.1.0.1): a management network?"
    assert wrong_choices(Chosen(("ens2",), ""), {"a": NODE}) == []
    down = {"a": NODE, "b": Network((dataclasses.replace(FAST, carrier=False, address="10.1.0.2"), ETH))}
    assert wrong_choices(Chosen(("ens2",), ""), down) == ["ens2 of b has no carrier"]
    assert wrong_choices(Chosen((), ""), {"a": NODE}) == ["a has no interface that is up and has an address"]


def test_the_run_names_it_before_it_begins() -> None:
    from linkgauge.run.parent.node import nodes_of

    looks = [look("a"), look("b")]
    for rank, (one, there) in enumerate(zip(looks, (NODE, NODE), strict=True)):
        one |= {"rank": rank, "network": there.plain()}
    nodes = nodes_of(looks, 2)
    assert not isinstance(nodes, str)
    first, *warnings = ways_between(fake_mpi("openmpi", vendor="openmpi", name="ompi"), {}, nodes)
    assert first == (
        "between nodes ompi will use ens2 (100 Gb/s, 10.1.0.1), eno1 (1 Gb/s, 10.0.0.1), docker0 (172.17.0.1): "
        "its tcp takes all that are up"
    )
    assert any(text.startswith("warning: ompi: docker0 is no network") for text in warnings)
    assert ways_between(fake_mpi("hydra"), {}, nodes[:1]) == []
    said = ways_between(fake_mpi("hydra"), {"NCCL_SOCKET_IFNAME": "docker"}, nodes, ["mpi", "ccl", "ucx"], "cuda")
    assert "between nodes NCCL will use docker0 (172.17.0.1): NCCL_SOCKET_IFNAME" in said
    assert any(text.startswith("between nodes UCX will use ens2") for text in said)
    assert any(text.startswith("warning: NCCL: docker0 is no network") for text in said)


def test_interfaces_are_read_from_the_system(tmp_path: Path) -> None:
    def made(name: str, **files: str) -> Path:
        folder = tmp_path / "sys/class/net" / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file.replace("__", ".")).write_text(text)
        return folder

    made("lo", flags="0x9", speed="")
    (made("eno1", flags="0x1003", speed="25000", address__ipv4="10.0.0.1", operstate="up") / "device").mkdir()
    (made("eno3", flags="0x1003", speed="-1", operstate="down") / "device").mkdir()
    (made("docker0", flags="0x1003", speed="10000") / "bridge").mkdir()
    (made("bond0", flags="0x1003", speed="50000") / "lower_eno1").mkdir()
    made("dummy0", flags="0x82")
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    found = network(tmp_path)
    assert found.rdma == ("mlx5_0",)
    assert {one.name: (one.kind, one.up, one.rate // GIGABIT) for one in found.interfaces} == {
        "lo": ("loopback", True, 0), "eno1": ("network", True, 25), "eno3": ("network", True, 0),
        "docker0": ("virtual", True, 10), "bond0": ("network", True, 50), "dummy0": ("virtual", False, 0)}  # fmt: skip
    assert [one.name for one in found.interfaces if not one.carrier] == ["eno3"]
    assert Network.of_plain(found.plain()) == found
