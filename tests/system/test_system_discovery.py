"""Discovery on recorded machines: trees of sysfs files and NVML's answers, made here as those machines state them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.errors import UsageError
from linkgauge.expect import limits
from linkgauge.expect.graph import FABRIC, NODE, wires
from linkgauge.system import amdsmi, discover, sysfs
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json
from recorded_machine import Machine, h200, hgx_machine, kfd_machine, switch_links
from ways_listed import hop_matrix


@pytest.fixture
def hgx(tmp_path: Path) -> Machine:
    return hgx_machine(tmp_path / "hgx")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("[1]", "expected an object or table"),
        ("{", "not JSON"),
        ('{"devices": 3}', "devices is 3: expected a list"),
        ('{"devices": [[]]}', "devices[0] is list"),
        ('{"devices": [{"pci": "x"}]}', "devices[0].pci is 'x': expected a PCI address"),
        ('{"devices": [{"pcie": {"width": "x16"}}]}', "devices[0].pcie.width is 'x16': expected a whole number"),
        ('{"devices": [{"fabric": {"state": 3}}]}', "devices[0].fabric has no 'cluster'"),
        ('{"devices": [], "ancestors": [[0, 1]]}', "ancestors[0] has 2 items: expected 3 to 3"),
    ],
)
def test_recorded_answers_that_are_none_name_the_place(hgx: Machine, answers: str, said: str) -> None:
    hgx.write("nvml.json", answers)
    with pytest.raises(UsageError) as caught:
        discover(hgx.root)
    assert said in str(caught.value)
    assert f"{hgx.root}/nvml.json: " in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("devices/system/node/node0/cpulist", "0-99999999999"),
        ("devices/system/node/node0/cpulist", "²-x,5-"),
        ("devices/system/node/node0/meminfo", "Node 0 MemTotal: lots"),
        ("devices/system/node/node0/distance", "² 21"),
        ("devices/system/cpu/cpu0/cache/index3/size", "9" * 5000 + "K"),
        ("class/infiniband/mlx5_0/ports/1/rate", "4.0.0 Gb/sec"),
    ],
)
def test_what_a_recorded_machine_cannot_state_is_unknown(hgx: Machine, file: str, content: str) -> None:
    hgx.write(f"sys/{file}", content)
    assert len(discover(hgx.root).devices) == 4


def test_a_recorded_machine_may_hold_pipes_and_deep_topologies(hgx: Machine) -> None:
    config = next(hgx.root.glob("sys/bus/pci/devices/*")).resolve() / "config"
    module = hgx.root / "sys/firmware/dmi/entries/17-0/raw"
    module.parent.mkdir(parents=True)
    for pipe in (hgx.root / "sys/devices/system/node/node0/cpulist", config, module):
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
    (hgx.root / "hwloc.xml").write_text("<topology>" + "<object>" * 5000 + "</object>" * 5000 + "</topology>")
    assert len(discover(hgx.root).devices) == 4


def test_hgx_h200(hgx: Machine) -> None:
    system = discover(hgx.root)
    assert [d.name for d in system.devices] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert [d.identity["pci"] for d in system.devices] == sorted(d.identity["pci"] for d in system.devices)
    assert [d.numa for d in system.devices] == [0, 0, 1, 1]
    fabric = [link for link in system.links_of("gpu0") if link.kind == "nvlink"]
    assert sorted(link.count for link in fabric) == [4, 4, 5, 5]
    for link in fabric:
        assert link.signalling_rate is not None
        assert link.data_rate is not None
        assert link.signalling_rate.value == 26.562e9
        assert link.data_rate.value == 25e9
        assert link.signalling_rate.provenance == "discovered"
        assert system.node(link.other("gpu0")).kind == "switch"
    (pcie,) = [link for link in system.links_of("gpu0") if link.kind == "pcie"]
    assert (pcie.version, pcie.width, pcie.max_payload_bytes) == ("5", 16, 256)
    assert pcie.rate("gpu0") == pytest.approx(63.015e9, rel=1e-4)
    memory = system.devices[0].memory_rate
    assert memory is not None
    assert memory.value == pytest.approx(4.917e12, rel=1e-3)
    assert {node.model for node in system.of_kind("switch")} == {"NVSwitch", "PCIe switch"}
    graph = wires(system, FABRIC)
    assert graph.out_rate("gpu0") == 450e9
    assert graph.multicast


def test_hgx_devices_have_a_nic_near(hgx: Machine) -> None:
    """A device and its NIC meet at one PCIe switch; the NIC's rate is its port's."""
    system = discover(hgx.root)
    for i in range(4):
        (up,) = [link.other(f"gpu{i}") for link in system.links_of(f"gpu{i}") if link.kind == "pcie"]
        near = {link.other(up) for link in system.links_of(up)}
        assert f"mlx5_{i}" in near
        assert f"numa{i // 2}" in near
        rate = system.node(f"mlx5_{i}").port_rate
        assert rate is not None
        assert rate.value == 50e9


def test_hgx_gives_every_pattern_a_limit(hgx: Machine) -> None:
    system = discover(hgx.root)
    found = {c.rule: c for c in limits(system, {"pattern": "allreduce", "transport": "kernel"})}
    assert found["allreduce_bytes"].value_bytes_per_s == pytest.approx(450e9 * 4 / 6)
    h2d = {
        c.rule: c for c in limits(system, {"pattern": "host_to_device", "devices": (0,), "transport": "copy_engine"})
    }
    assert h2d["host_links"].value_bytes_per_s == pytest.approx(63.015e9, rel=1e-4)
    # 256 bytes of payload in 280 on the wire.
    assert h2d["payload_share"].value_bytes_per_s == pytest.approx(63.015e9 * 256 / 280, rel=1e-4)


def test_lost_links_and_hidden_switches(hgx: Machine) -> None:
    devices = [h200(f"0000:{0x13 + 0x10 * i:02x}:00.0", switch_links(hidden=True)) for i in range(4)]
    devices[2]["links"] = switch_links(down=(3, 17), hidden=True)
    system = discover(hgx.root, nvml_answers={"devices": devices})
    assert [node.name for node in system.of_kind("switch") if node.model == "NVSwitch"] == ["nvswitch0"]
    assert {link.count for link in system.links_of("gpu0") if link.kind == "nvlink"} == {18}
    assert {link.count for link in system.links_of("gpu2") if link.kind == "nvlink"} == {16}
    assert any("gpu2: NVLink 3, 17 not active" in note for note in system.notes)


def test_pcie_trained_below_what_is_possible(hgx: Machine) -> None:
    slow = {"generation": 3, "width": 8, "max_generation": 5, "max_width": 16}
    devices = [h200("0000:13:00.0", switch_links(), pcie=slow)]
    (link,) = [k for k in discover(hgx.root, nvml_answers={"devices": devices}).links_of("gpu0") if k.kind == "pcie"]
    assert link.rate("gpu0") == pytest.approx(8e9 * 8 / 8 * 128 / 130)
    assert link.possible_rate is not None
    assert link.possible_rate.value == pytest.approx(63.015e9, rel=1e-4)
    # An idle device's slow link says nothing of what it carries under load.
    devices = [h200("0000:13:00.0", switch_links(), pcie={**slow, "width": 16}, performance_state=8)]
    idle = discover(hgx.root, nvml_answers={"devices": devices})
    (link,) = [k for k in idle.links_of("gpu0") if k.kind == "pcie"]
    assert link.rate("gpu0") == pytest.approx(63.015e9, rel=1e-4)
    assert any("while idle (P8)" in note for note in idle.notes)


def test_answers_that_lack_most_things() -> None:
    """A driver that answers little still gives devices; what it does not say is unknown."""
    bare = {"name": None, "pci": "00000000:18:00.0", "links": [], "pcie": {}}
    system = discover(Path("/"), nvml_answers={"devices": [bare]})
    (device,) = system.devices
    assert device.memory_rate is None
    assert from_json(to_json(system)) == system


def direct(remote: list[str]) -> list[dict[str, Any]]:
    return [
        {"link": i, "active": True, "version": "2", "megabytes_per_s": 25781, "remote": "gpu", "remote_pci": pci}
        for i, pci in enumerate(remote)
    ]


def test_direct_links_count_once() -> None:
    """Two devices joined by three links, which both ends report, and one link to a device that is not visible."""
    one, two, away = "00000000:06:00.0", "00000000:07:00.0", "00000000:0A:00.0"
    answers = {
        "devices": [
            h200(one, direct([two, two, two, away]), name="Tesla V100-SXM2-16GB"),
            h200(two, direct([one, one, one]), name="Tesla V100-SXM2-16GB"),
        ]
    }
    system = discover(Path("/"), nvml_answers=answers)
    links = [link for link in system.links if link.kind == "nvlink"]
    assert [(link.a, link.b, link.count) for link in links] == [("gpu0", "gpu1", 3)]
    assert links[0].rate("gpu0") == 75e9


def test_mi250x_from_the_kernel_equals_its_description(tmp_path: Path) -> None:
    machine = kfd_machine(tmp_path / "lumi")
    found, described = discover(machine.root), systems.load("lumi-g")
    for scope in (FABRIC, NODE):
        seen, known = wires(found, scope), wires(described, scope)
        rename = {f"gcd{i}": f"gpu{i}" for i in range(8)}
        arcs = {tuple(rename.get(end, end) for end in arc): rate for arc, rate in known.arcs.items()}
        between_hosts = {arc for arc in arcs if all(end.startswith("numa") for end in arc)}
        for arc in arcs.keys() - between_hosts:
            assert seen.arcs[arc] == arcs[arc], arc
        assert seen.arcs.keys() - between_hosts == arcs.keys() - between_hosts
    assert hop_matrix(wires(found), range(8)) == hop_matrix(wires(described), range(8))
    device = found.devices[0]
    assert device.memory_rate is not None
    assert device.memory_rate.value == pytest.approx(1.6384e12)
    assert device.cache_bytes is not None
    assert device.cache_bytes.value == 8 << 20
    assert [d.numa for d in found.devices] == [3, 3, 1, 1, 0, 0, 2, 2]
    alltoall = {c.rule: c.value_bytes_per_s for c in limits(found, {"pattern": "alltoall"})}
    assert alltoall["concurrent_flow"] == pytest.approx(1050e9 / 8)


def test_switch_above_two_devices_is_one(tmp_path: Path) -> None:
    """DGX-1's PCIe: two devices below one switch share its way up."""
    machine = Machine(tmp_path / "pair")
    machine.numa(0, "0-3", "10")
    top = "0000:00:02.0/0000:04:00.0"
    machine.pci("0000:00:02.0", "0x060400", speed="8.0")
    machine.pci(top, "0x060400", speed="8.0")
    for i in range(2):
        machine.pci(f"{top}/0000:05:0{i}.0", "0x060400", speed="8.0")
        machine.pci(f"{top}/0000:05:0{i}.0/0000:0{6 + i}:00.0", speed="8.0")
    answers = {"devices": [h200(f"0000:0{6 + i}:00.0", [], pcie={}) for i in range(2)]}
    system = discover(machine.root, nvml_answers=answers)
    (switch,) = system.of_kind("switch")
    assert {link.other(switch.name) for link in system.links_of(switch.name)} == {"gpu0", "gpu1", "numa0"}
    both = {c.rule: c.value_bytes_per_s for c in limits(system, {"pattern": "host_to_device"})}
    one = {c.rule: c.value_bytes_per_s for c in limits(system, {"pattern": "host_to_device", "devices": (0,)})}
    assert both["host_links"] == pytest.approx(one["host_links"])


def test_this_machine_without_gpu() -> None:
    """Hosts with memory; host devices whose rates are missing, and so no limit pretends to know them."""
    system = discover(nvml_answers={})
    assert system.hosts
    assert all(host.memory_bytes is not None and host.memory_bytes.value > 2**20 for host in system.hosts)
    assert from_json(to_json(system)) == system
    assert len(discover(nvml_answers={}, host_devices=3).devices) == 3
    for device in system.devices:
        assert device.memory_rate is None
        for link in system.links_of(device.name):
            assert link.data_rate is None
    for pattern in ("alltoall", "allreduce", "broadcast", "ring_shift", "host_to_device"):
        assert limits(system, {"pattern": pattern}) == []


def test_what_is_no_recorded_machine(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no recorded machine"):
        discover(tmp_path)
    with pytest.raises(UsageError, match="is no recorded machine"):
        discover(Path("/proc"))


def test_small_readers() -> None:
    assert sysfs.cpu_list("0-3,8,10-11") == (0, 1, 2, 3, 8, 10, 11)
    assert sysfs.cpu_list("") == ()
    assert sysfs.normal_address("00000000:AF:00.0") == "0000:af:00.0"
    assert sysfs.normal_address("00010000:AF:00.0") == "10000:af:00.0"
    signaling, data = sysfs.pcie_rates(16.0, 16)
    assert signaling == 32e9
    assert data == pytest.approx(31.508e9, rel=1e-4)
    assert sysfs.pcie_rates(2.5, 1) == (312.5e6, 250e6)


class AmdSmi:
    """Stands for amdsmi: one device answers fully, one hardly, and one handle raises."""

    def amdsmi_init(self) -> None:
        pass

    def amdsmi_shut_down(self) -> None:
        pass

    def amdsmi_get_processor_handles(self) -> list[int]:
        return [0, 1, 2]

    def amdsmi_get_gpu_device_bdf(self, handle: int) -> str:
        if handle == 2:
            raise RuntimeError("AMDSMI_STATUS_NOT_SUPPORTED")
        return f"0000:C{handle + 1}:00.0"

    def amdsmi_get_gpu_asic_info(self, handle: int) -> dict[str, str]:
        return {"market_name": "AMD Instinct MI250X", "asic_serial": "0x1"} if handle == 0 else {"asic_serial": "N/A"}

    def amdsmi_get_gpu_device_uuid(self, handle: int) -> str:
        return f"uuid-{handle}"


def test_amdsmi_is_optional_and_partial() -> None:
    assert amdsmi.read() == {}
    assert amdsmi.read(AmdSmi()) == {
        "0000:c1:00.0": {"name": "AMD Instinct MI250X", "serial": "0x1", "uuid": "uuid-0"},
        "0000:c2:00.0": {"uuid": "uuid-1"},
    }


class Unwell(AmdSmi):
    """Of amdsmi's answers those of health, as its Python interface has them (amd-smi-lib 6.4)."""

    def amdsmi_get_pcie_info(self, handle: int) -> dict[str, Any]:
        metric = {"pcie_width": 16, "pcie_speed": 32000, "pcie_replay_count": 7, "pcie_nak_sent_count": "N/A"}
        return {"pcie_static": {"max_pcie_width": 16, "slot_type": "OAM"}, "pcie_metric": metric}

    def amdsmi_get_gpu_metrics_info(self, handle: int) -> dict[str, Any]:
        status = 1 << 34 | 1 if handle == 0 else "N/A"
        return {"xgmi_link_speed": 32, "xgmi_link_width": 16, "indep_throttle_status": status}

    def amdsmi_get_gpu_total_ecc_count(self, handle: int) -> dict[str, Any]:
        return {"correctable_count": 5, "uncorrectable_count": 2 if handle == 0 else (1 << 32) - 1}


def test_amdsmi_says_how_devices_are_and_what_it_does_not_say_is_unknown() -> None:
    assert amdsmi.health() == []
    assert amdsmi.health(AmdSmi()) == [amdsmi.Health("0000:c1:00.0"), amdsmi.Health("0000:c2:00.0")]
    first, second = amdsmi.health(Unwell())
    assert first == amdsmi.Health("0000:c1:00.0", 7, 16, 16, 2, 32, 16, ("power cap", "heat"))
    assert (second.uncorrected, second.throttle) == (-1, ())


def test_coherent_devices_are_no_hosts(tmp_path: Path) -> None:
    """Two GH200: processors on nodes 0 and 1, their GPUs' memory as nodes 4 and 12, and an empty node between."""
    machine = Machine(tmp_path / "grace")
    for number, cores in ((0, "0-71"), (1, "72-143"), (4, ""), (5, ""), (12, "")):
        machine.numa(number, cores, "10", 0 if number == 5 else 96)
    answers: dict[str, Any] = {"devices": []}
    for i in range(2):
        domain = f"{9 + i:04x}"
        machine.pci(f"{domain}:00:00.0/{domain}:01:00.0", numa=i)
        peer = f"0000{10 - i:04X}:01:00.0"
        links = [
            {"link": k, "active": True, "version": "4", "megabytes_per_s": 26562, "remote": "gpu", "remote_pci": peer}
            for k in range(6)
        ]
        entry = h200(f"0000{domain.upper()}:01:00.0", links, name="NVIDIA GH200 120GB", own_numa=4 + 8 * i)
        entry["c2c"] = {"links": 10, "megabytes_per_s": 45000}
        answers["devices"].append(entry)
    system = discover(machine.root, nvml_answers=answers)
    assert [host.name for host in system.hosts] == ["numa0", "numa1"]
    graph = wires(system, FABRIC)
    assert graph.arcs["gpu0", "gpu1"] == 150e9
    (c2c,) = [link for link in system.links_of("gpu1") if link.kind == "c2c"]
    assert (c2c.other("gpu1"), c2c.rate("gpu1")) == ("numa1", 450e9)
