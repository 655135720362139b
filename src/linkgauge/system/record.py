"""Store what discovery reads on this machine, so that another can play it back: `linkgauge topology --here --record
FOLDER`.

The folder has the few files of `/sys` and `/proc` that `linkgauge.system.sysfs` and `kfd` read, with the links between
them, NVML's answers as `nvml.json`, and hwloc's file as `hwloc.xml` where `HWLOC_XMLFILE` names one. Nothing else is
copied; serial numbers and UUIDs are blanked unless asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError
from linkgauge.system import hwloc, nvml

_PCI_FILES = (
    "class",
    "vendor",
    "device",
    "numa_node",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
    "product_name",
    "config",
)
_PLACES = (
    "proc/cpuinfo",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/node*/cpulist",
    "sys/devices/system/node/node*/distance",
    "sys/devices/system/node/node*/meminfo",
    "sys/devices/system/cpu/cpu*/cache/index*/level",
    "sys/devices/system/cpu/cpu*/cache/index*/size",
    "sys/devices/system/cpu/cpu*/cache/index*/type",
    "sys/devices/system/cpu/cpu*/cache/index*/shared_cpu_list",
    "sys/class/kfd/kfd/topology/nodes/*/gpu_id",
    "sys/class/kfd/kfd/topology/nodes/*/name",
    "sys/class/kfd/kfd/topology/nodes/*/properties",
    "sys/class/kfd/kfd/topology/nodes/*/*/*/properties",
    "sys/class/infiniband/*/ports/*/rate",
    "sys/class/infiniband/*/ports/*/state",
    "sys/class/net/*/speed",
    "sys/class/net/*/operstate",
    "sys/firmware/dmi/entries/17-*/raw",
)


def record(folder: Path, root: Path = Path("/"), *, identities: bool = False) -> list[Path]:
    """Write the recorded machine into `folder` (made, must be empty); return the files written.

    `EnvironmentLackingError` where the folder cannot be written or holds something already.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise EnvironmentLackingError(f"{folder}: is not empty; name a new folder for the record")
    except OSError as error:
        raise EnvironmentLackingError(f"{folder}: cannot be written ({error.strerror})") from None
    written = []
    for source in _sources(root):
        target = folder / source.relative_to(root)
        try:
            # sysfs states a size of 4096 for all files, so their bytes are read rather than the file copied.
            content = source.read_bytes()
        except OSError:
            continue
        if source.name == "cpuinfo":
            content = _first_processor(content)
        elif source.name == "raw":
            content = content[: content[1]] if len(content) > 1 else content  # serial numbers come after the figures
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        written.append(target)
    for link, where in _links(root):
        target = folder / link.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        real = folder / where.relative_to(root)
        real.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(os.path.relpath(real, target.parent))
    topology = hwloc.xml_file(None) if root == Path("/") else None
    if topology is not None and topology.is_file():
        file = folder / "hwloc.xml"
        file.write_bytes(topology.read_bytes())
        written.append(file)
    answers = nvml.read() if root == Path("/") else None
    if answers is not None:
        if not identities:
            _blank(answers)
        file = folder / "nvml.json"
        file.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
        written.append(file)
    return written


def _sources(root: Path) -> Iterator[Path]:
    for place in _PLACES:
        for path in root.glob(place):
            yield path.parent.resolve() / path.name if "class/net" in place or "infiniband" in place else path
            if "class/net" in place or "infiniband" in place:
                yield path
    for device in (root / "sys/bus/pci/devices").glob("*"):
        real = device.resolve()
        for name in _PCI_FILES:
            if (real / name).exists():
                yield real / name


def _links(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the links that say where a device lies in the PCI tree, each with the folder that it leads to."""
    for device in (root / "sys/bus/pci/devices").glob("*"):
        yield device, device.resolve()
    for kind in ("infiniband", "net"):
        for entry in (root / "sys/class" / kind).glob("*"):
            if (entry / "device").exists():
                yield entry / "device", (entry / "device").resolve()


def _first_processor(content: bytes) -> bytes:
    return content.split(b"\n\n", 1)[0] + b"\n"


def _blank(answers: dict[str, Any]) -> None:
    for index, device in enumerate(answers.get("devices", ())):
        device["serial"] = None
        device["uuid"] = f"GPU-{index:08x}-0000-0000-0000-000000000000"
        if device.get("fabric"):
            device["fabric"]["cluster"] = "0" * 32
