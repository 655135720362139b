"""Systems and runs: what run.json says of the machine, and plans for machines that are not here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import linkgauge.system as systems
from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.expect import limits
from linkgauge.expect.of_run import system_of_run
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.run.parent.prepare import described_devices, system_data
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load
from linkgauge.system.discovery import of_devices
from linkgauge.system.form import read


def host_set(count: int) -> DeviceSet:
    infos = tuple({"ordinal": i, "kind": "host", "name": "host"} for i in range(count))
    return DeviceSet("host", tuple(range(count)), infos)


def test_a_run_on_host_devices_stores_as_many() -> None:
    data = system_data(None, host_set(3))
    assert data is not None
    assert [d.ordinal for d in read(data, "test").devices] == [0, 1, 2]
    assert system_data("lumi-g", host_set(2)) == json.loads(systems.to_json(systems.load("lumi-g")))


def test_the_runs_ordinals_are_the_systems(tmp_path: Path) -> None:
    """A run on the third and the first device: its device 0 is the machine's third."""
    root = tmp_path / "machine"
    (root / "sys" / "devices").mkdir(parents=True)
    devices = [{"name": f"GPU {i}", "pci": f"00000000:{0x10 + i:02X}:00.0", "links": [], "pcie": {}} for i in range(3)]
    (root / "nvml.json").write_text(json.dumps({"devices": devices}), encoding="utf-8")
    infos = [{"pci_address": "0000:12:00.0", "last_level_cache_bytes": 1 << 20}, {"pci_address": "0000:10:00.0"}]
    system = of_devices("cuda", infos, root)
    assert [d.model for d in system.devices] == ["GPU 2", "GPU 0", "GPU 1"]
    assert [d.ordinal for d in system.devices] == [0, 1, 2]
    cache = system.devices[0].cache_bytes
    assert cache is not None
    assert cache.value == 1 << 20
    with pytest.raises(UsageError, match=r"device 0 .* is not among those"):
        of_devices("cuda", [{"pci_address": "0000:99:00.0"}], root)


def test_devices_of_one_address_share_its_links(tmp_path: Path) -> None:
    """Two instances of MIG are two devices with one PCI address; the next GPU has its own."""
    root = tmp_path / "machine"
    (root / "sys" / "devices").mkdir(parents=True)
    pcie = {"generation": 5, "width": 16, "max_generation": 5, "max_width": 16}
    devices = [{"name": "H100", "pci": f"00000000:{bus}:00.0", "links": [], "pcie": pcie, "memory_bytes": 80 << 30,
                "memory_bus_bits": 5120, "memory_clock_mhz": 2619} for bus in (10, 11)]  # fmt: skip
    (root / "nvml.json").write_text(json.dumps({"devices": devices}), encoding="utf-8")
    infos = [{"pci_address": "0000:10:00.0", "total_bytes": 20 << 30}, {"pci_address": "0000:10:00.0"},
             {"pci_address": "0000:11:00.0"}]  # fmt: skip
    system = of_devices("cuda", infos, root)
    assert [(one.name, one.ordinal) for one in system.devices] == [("gpu0.1", 0), ("gpu0.2", 1), ("gpu1", 2)]
    assert any("2 devices have its PCI address" in note for note in system.notes)
    # The whole GPU's memory is not the part's.
    assert [one.memory_bytes and one.memory_bytes.value for one in system.devices] == [20 << 30, None, 80 << 30]
    assert [one.memory_rate is None for one in system.devices] == [True, True, False]
    again = systems.from_json(systems.to_json(system))
    assert again.devices == system.devices
    assert again.links == system.links

    def bound(ordinals: list[int]) -> float | None:
        case = {"pattern": "host_to_device", "transport": "copy_engine", "size": 1 << 26, "devices": ordinals}
        rates = (one.value_bytes_per_s for one in limits(again, case) if one.kind == "upper bound")
        return min((rate for rate in rates if rate), default=None)

    alone, apart = bound([0]), bound([0, 2])
    assert alone is not None
    assert apart is not None
    assert bound([1]) == alone == bound([2])
    assert bound([0, 1]) == pytest.approx(apart / 2)
    # No figure says what goes from one part to the other.
    between = {"pattern": "unidirectional", "transport": "copy_engine", "size": 1 << 26, "devices": [0, 1]}
    assert not [one for one in limits(again, between) if one.kind == "upper bound"]


def test_a_stored_system_is_read_back(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", {"system": system_data("alps", host_set(2))})
    assert system_of_run(load(folder.path)) == systems.load("alps")
    bare = RunFolder.create(tmp_path / "bare", {"system": None})
    with pytest.raises(UsageError, match="holds no system"):
        system_of_run(load(bare.path))


def test_described_devices_have_a_runtime() -> None:
    assert described_devices(systems.load("lumi-g")).kind == "hip"
    assert described_devices(systems.load("hgx-h200-8")).kind == "cuda"
    assert described_devices(systems.load("dgx-2")).count == 16


def test_dry_run_for_a_machine_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--dry-run", "--threads", "--system", "lumi-g", "--pattern", "alltoall", "--transport", "kernel"]
    assert run_command([*words, "--size", "1MiB", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (case,) = data["launches"][0]["cases"]
    assert case["ranks"] == 8
    bounds = {c["rule"]: c["value_bytes_per_s"] for c in case["expected"] if c["kind"] == "upper bound"}
    assert bounds["concurrent_flow"] == pytest.approx(1050e9 / 8)
    assert case["estimated_s"] > 0
    assert run_command([*words, "--size", "1MiB"]) == 0
    assert "at most 131.2 GB/s (concurrent_flow)" in capsys.readouterr().out
    assert run_command(["run", "--dry-run", "--system", "nope"]) == 2
    assert "no described system 'nope'" in capsys.readouterr().err
