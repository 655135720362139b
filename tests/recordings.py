"""Made machines as recordings, and what the doctor says of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from fake_readers import TreeReaders
from linkgauge.doctor import check as checks
from linkgauge.doctor import recorded
from linkgauge.doctor.facts import GpuFacts
from linkgauge.system.anonymous import Pseudonyms
from linkgauge.system.record import parsed_recording, unpacked
from linkgauge.system.sysfs import normal_address
from recorded_machine import Machine
from thorough import most

KEY = bytes(16)


def recording_of(root: Path, pseudonyms: Pseudonyms | None = None, **changed: Any) -> dict[str, Any]:
    """A made machine as a recording that was written and read again."""
    return parsed_recording(written(root, pseudonyms, **changed).encode(), "made")


def written(root: Path, pseudonyms: Pseudonyms | None = None, **changed: Any) -> str:
    """A made machine as the text of a recording."""
    return recorded.record(TreeReaders(root, **changed), root=root, pseudonyms=pseudonyms or Pseudonyms(KEY))


def replayed(recording: dict[str, Any]) -> dict[str, checks.Result]:
    with unpacked(recording, "made") as root:
        return {one.name: found for one, found in checks.run_checks(recorded.Recorded(recording, root, "made"))}


def looked_at(root: Path, **changed: Any) -> dict[str, checks.Result]:
    """What the doctor says of a made machine: as a recording where all tests run, else of its tree itself.

    Both say the same (test_recording.py), and the tree costs a third.
    """
    if most(everything=True, some=False):
        return replayed(recording_of(root, **changed))
    return {one.name: found for one, found in checks.run_checks(TreeReaders(root, **changed))}


def gpus_of(root: Path) -> list[GpuFacts]:
    """As NVML's recorded answers have them."""
    answers = json.loads((root / "nvml.json").read_text(encoding="utf-8"))["devices"]
    return [_facts(index, answer) for index, answer in enumerate(answers)]


def _facts(index: int, answer: dict[str, Any]) -> GpuFacts:
    """As the doctor reads them, with the fabric of a board that ends with its host."""
    pcie, up = answer["pcie"], [link["active"] for link in answer["links"]]
    return GpuFacts(
        index, answer["name"], answer["uuid"], normal_address(answer["pci"]) or "",
        pcie_width=pcie["width"], pcie_width_max=pcie["max_width"], pcie_generation=pcie["generation"],
        pcie_generation_max=pcie["max_generation"], nvlinks_active=sum(up), nvlinks_inactive=len(up) - sum(up),
        fabric_state="completed", fabric_cluster="0" * 32,
    )  # fmt: skip


def access_control(machine: Machine, port: str, services: int) -> None:
    """A configuration space as root reads it, whose second extended capability is Access Control Services."""
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", config, 0x148, 0x000D | 1 << 16, 0x7F, services)
    (machine.root / f"sys/bus/pci/devices/{port}/config").write_bytes(bytes(config))
