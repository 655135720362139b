"""Where devices lie when sysfs hides them: by NVML's common ancestors, and by a topology file of hwloc's."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from linkgauge.expect import limits
from linkgauge.system import System, ancestors, discover, hwloc, sysfs
from linkgauge.system.draft import FoundDevice
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json
from linkgauge.system.model import Node
from patience import PATIENCE_S
from recorded_machine import HWLOC_XML, Machine, h200, switch_links


def two_sockets(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "bare")
    for number in range(2):
        machine.numa(number, f"{number * 4}-{number * 4 + 3}", "10 21" if number == 0 else "21 10")
    return machine


def addresses(count: int) -> list[str]:
    return [f"00000000:{0x10 * (i + 1):02X}:00.0" for i in range(count)]


def above(system: System, name: str) -> str:
    (link,) = [link for link in system.links_of(name) if link.kind == "pcie"]
    return link.other(name)


def levels(groups: list[tuple[int, ...]], near: int, far: int, count: int) -> list[list[int]]:
    """Every two devices: `near` within one of the groups, else `far`."""
    return [
        [i, j, near if any({i, j} <= set(group) for group in groups) else far] for j in range(count) for i in range(j)
    ]


def test_devices_that_meet_below_a_host_bridge_share_a_switch(tmp_path: Path) -> None:
    """Four devices in a container without PCI in sysfs: two and two behind a switch, each pair at its own processor."""
    devices = [h200(pci, switch_links(), numa=i // 2) for i, pci in enumerate(addresses(4))]
    answers = {"devices": devices, "ancestors": levels([(0, 1), (2, 3)], 10, 50, 4)}
    system = discover(two_sockets(tmp_path).root, nvml_answers=answers)
    switches = [above(system, f"gpu{i}") for i in range(4)]
    assert switches[0] == switches[1] != switches[2] == switches[3]
    assert {system.node(name).kind for name in switches} == {"switch"}
    for switch, host in ((switches[0], "numa0"), (switches[2], "numa1")):
        (up,) = [link for link in system.links_of(switch) if link.other(switch) == host]
        assert up.data_rate is None  # nobody states the rate above the switch: unknown, not the device's
    # The devices' own links still bind, alone and two at once.
    for chosen, rate in (((0,), 63.015e9), ((0, 1), 2 * 63.015e9)):
        case = {"pattern": "host_to_device", "devices": chosen, "transport": "copy_engine"}
        bound = next(c for c in limits(system, case) if c.rule == "host_links")
        assert bound.value_bytes_per_s == pytest.approx(rate, rel=1e-4)
    assert from_json(to_json(system)) == system


def test_a_lone_device_and_unlike_levels_make_no_switch(tmp_path: Path) -> None:
    devices = [h200(pci, [], numa=0) for pci in addresses(3)]
    for level in (30, 40, 50):
        answers = {"devices": devices, "ancestors": levels([], level, level, 3)}
        system = discover(two_sockets(tmp_path / str(level)).root, nvml_answers=answers)
        assert [above(system, f"gpu{i}") for i in range(3)] == ["numa0"] * 3


def test_what_sysfs_shows_is_believed(tmp_path: Path) -> None:
    """Where the tree is there, its switches are the ones; NVML's levels add none."""
    machine = two_sockets(tmp_path)
    for bus in (0x10, 0x20):
        machine.pci(f"0000:{bus - 1:02x}:01.0", "0x060400", 1)
        machine.pci(f"0000:{bus - 1:02x}:01.0/0000:{bus:02x}:00.0", "0x030200", 1)
    devices = [h200(pci, []) for pci in addresses(2)]
    system = discover(machine.root, nvml_answers={"devices": devices, "ancestors": [[0, 1, 10]]})
    assert [above(system, f"gpu{i}") for i in range(2)] == ["numa1"] * 2


def test_a_numa_node_is_had_from_the_devices_within_it(tmp_path: Path) -> None:
    """Of three devices in one node NVML states one's; the fourth is beyond, and two that disagree say nothing."""
    numas = [None, 1, None, None]
    devices = [h200(pci, [], numa=numa) for pci, numa in zip(addresses(4), numas, strict=True)]
    answers = {"devices": devices, "ancestors": levels([(0, 1, 2)], 40, 50, 4)}
    system = discover(two_sockets(tmp_path).root, nvml_answers=answers)
    assert [device.numa for device in system.devices] == [1, 1, 1, None]
    assert [above(system, f"gpu{i}") for i in range(3)] == ["numa1"] * 3
    for numa, device in zip((0, 1, None), devices, strict=False):
        device["numa"] = numa
    system = discover(two_sockets(tmp_path / "two").root, nvml_answers=answers)
    assert [device.numa for device in system.devices] == [0, 1, None, None]


def test_levels_are_joined_by_others() -> None:
    """0 and 2 each meet 1 at a switch: all three lie behind it, whatever is said of 0 and 2, in any order."""
    devices = [FoundDevice(f"0000:0{i}:00.0", Node("", "device"), None) for i in range(3)]
    answers = {"devices": [{"pci": d.address} for d in devices], "ancestors": [[0, 1, 10], [1, 2, 20], [0, 2, 30]]}
    for order in (devices, devices[::-1], [devices[1], devices[2], devices[0]]):
        assert len({device.behind for device in ancestors.placed(order, answers, {})} - {None}) == 1
    hostile: dict[str, Any] = {"devices": [{"pci": None}], "ancestors": [[0, 7, 10]]}
    assert [device.behind for device in ancestors.placed(devices, hostile, {})] == [None] * 3


def test_a_topology_file_tells_what_sysfs_hides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's switch, its uplink's rate and its NUMA node are hwloc's; width and generation stay NVML's."""
    machine = two_sockets(tmp_path)
    answers = {"devices": [h200("00000000:13:00.0", switch_links())], "ancestors": []}
    assert above(discover(machine.root, nvml_answers=answers), "gpu0") == "numa0"  # drawn there, with a note
    machine.write("hwloc.xml", HWLOC_XML)
    system = discover(machine.root, nvml_answers=answers)
    switch = above(system, "gpu0")
    assert switch == "pcie 0000:11:00.0"
    assert system.devices[0].numa == 1
    (up,) = [link for link in system.links_of(switch) if link.other(switch) == "numa1"]
    assert up.data_rate is not None
    assert (up.data_rate.value, up.data_rate.source) == (63.015385e9, "hwloc: speed of the PCI link")
    (own,) = [link for link in system.links_of("gpu0") if link.kind == "pcie"]
    assert (own.version, own.width) == ("5", 16)
    # The same file named by the environment, as hwloc's own programs take it, on this machine's own sysfs.
    monkeypatch.setenv("HWLOC_XMLFILE", str(machine.root / "hwloc.xml"))
    assert above(discover(nvml_answers=answers), "gpu0") == "pcie 0000:11:00.0"


@pytest.mark.parametrize(
    "content", ["", "<topology", "<other/>", "<topology><object type='PCIDev' pci_busid='x'/></topology>", "\x00"]
)
def test_no_topology_file_stops_discovery(tmp_path: Path, content: str) -> None:
    machine = two_sockets(tmp_path)
    machine.write("hwloc.xml", content)
    assert hwloc.pci(machine.root / "hwloc.xml") == {}
    assert discover(machine.root, nvml_answers={}).hosts
    assert hwloc.pci(machine.root / "absent") == {}


def test_odd_words_in_a_topology_file_are_unknown(tmp_path: Path) -> None:
    file = tmp_path / "odd.xml"
    file.write_text(
        "<topology><object type='Machine' nodeset='0x1,0x0'><object type='PCIDev' pci_busid='0000:01:00.0' "
        "pci_type='zz' pci_link_speed='fast'/></object></topology>"
    )
    facts = hwloc.pci(file)["0000:01:00.0"]
    assert (facts.numa, facts.vendor, facts.class_code, facts.data_rate) == (32, None, None, None)


def headers(machine: Machine, chain: str, *, bridge: tuple[int, int, int] | None) -> None:
    """The start of a configuration space, which hwloc reads: header type, and a bridge's buses."""
    config = bytearray(64)
    config[:4] = bytes([0xDE, 0x10, 0x34, 0x12])
    if bridge is not None:
        config[0x0E] = 1
        config[0x18:0x1B] = bytes(bridge)
    config[0x0A:0x0C] = struct.pack("<H", 0x0604 if bridge is not None else 0x0302)
    (machine.root / f"sys/devices/pci{chain[:7]}/{chain}/config").write_bytes(bytes(config))


@pytest.mark.skipif(shutil.which("lstopo-no-graphics") is None, reason="hwloc's lstopo is not installed")
def test_hwloc_sees_the_tree_that_sysfs_shows(tmp_path: Path) -> None:
    """hwloc on the same recorded tree finds the same functions, bridges above them and rates, and no more."""
    machine = two_sockets(tmp_path)
    machine.write("sys/devices/system/cpu/online", "0-7")
    for core in range(8):
        machine.write(f"sys/devices/system/cpu/cpu{core}/topology/core_id", core)
        machine.write(f"sys/devices/system/cpu/cpu{core}/topology/physical_package_id", core // 4)
        for name in ("core_cpus", "thread_siblings", "package_cpus", "core_siblings"):
            machine.write(f"sys/devices/system/cpu/cpu{core}/topology/{name}", f"{1 << core:08x}")
    for bus in (0x10, 0x20):
        root, up = f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"
        down, other = f"0000:{bus + 2:02x}:00.0", f"0000:{bus + 2:02x}:01.0"
        ends = f"0000:{bus + 3:02x}:00.0", f"0000:{bus + 4:02x}:00.0"
        bridges = {
            root: (bus, bus + 1, bus + 4),
            f"{root}/{up}": (bus + 1, bus + 2, bus + 4),
            f"{root}/{up}/{down}": (bus + 2, bus + 3, bus + 3),
            f"{root}/{up}/{other}": (bus + 2, bus + 4, bus + 4),
        }
        for chain, buses in bridges.items():
            machine.pci(chain, "0x060400", 0)
            headers(machine, chain, bridge=buses)
        for port, end in zip((down, other), ends, strict=True):
            machine.pci(f"{root}/{up}/{port}/{end}", "0x030200", 0, speed="16.0")
            headers(machine, f"{root}/{up}/{port}/{end}", bridge=None)
    environment = {**os.environ, "HWLOC_FSROOT": str(machine.root), "HWLOC_THISSYSTEM": "0"}
    command = ["lstopo-no-graphics", "--whole-io", "--of", "xml"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=PATIENCE_S)
    file = tmp_path / "seen.xml"
    file.write_text(done.stdout)
    shown, seen = sysfs.pci(machine.root), hwloc.pci(file)
    assert set(shown) == set(seen)
    assert len(shown) == 12
    for address, facts in shown.items():
        assert seen[address].parents == facts.parents
        assert facts.speed is not None
        assert facts.width is not None
        assert seen[address].data_rate == pytest.approx(sysfs.pcie_rates(facts.speed, facts.width)[1], rel=1e-3)
