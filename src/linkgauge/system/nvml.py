"""What NVML says of NVIDIA devices, as plain data that can be stored and played back.

`read()` asks the library; the answer is a mapping of JSON values, so a recorded machine is a file of it. A question
that this driver does not answer is None, never an error.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from linkgauge.model.shape import MisshapenError, each, flag, maybe, one_of, read_json, table, text, whole
from linkgauge.nvml import NvmlAbsentError, asker, fabric_info, field_value, mig_uuids, open_nvml, refusals, text_of
from linkgauge.system.anonymous import Pseudonyms
from linkgauge.system.sysfs import normal_address

_MOST_ANSWERS = 16 << 20  # bytes
_BEYOND = (TypeError, ValueError)  # what pynvml raises besides, where a driver is of another version
_FI_SPEED_COMMON = 90
_FI_LINK_COUNT = 91
_FI_GET_SPEED = 164
_FI_C2C_COUNT = 170
_FI_C2C_STATUS = 171
_FI_C2C_MAX_RATE = 172
_VERSIONS = {1: "1", 2: "2", 3: "2.2", 4: "3", 5: "3.1", 6: "4", 7: "5", 8: "6"}
_REMOTE = {0: "gpu", 1: "npu", 2: "switch"}


def _address(value: Any, at: str) -> str:
    if normal_address(text(value, at)) is None:
        raise MisshapenError(f"{at} is {value[:40]!r}: expected a PCI address")
    return text(value, at)


_COUNT = maybe(whole(0, 1 << 53))
_NODE = maybe(whole(-1, 1 << 20))
_PCIE = dict.fromkeys(("generation", "width", "max_generation", "max_width"), maybe(whole(0, 1 << 10)))
_LINK = {"link": whole(0, 1 << 10), "active": flag, "version": maybe(one_of(tuple(_VERSIONS.values()))),
         "megabytes_per_s": maybe(whole(0, 10**9)), "remote": maybe(one_of(tuple(_REMOTE.values()))),
         "remote_pci": maybe(text)}  # fmt: skip
_C2C = dict.fromkeys(("links", "megabytes_per_s"), whole(0, 10**9))
_FABRIC = {"state": whole(), "cluster": text, "clique": whole()}
_DEVICE = {
    **dict.fromkeys(("name", "uuid", "serial", "vbios"), maybe(text)), "pci": maybe(_address),
    **dict.fromkeys(("memory_bytes", "memory_bus_bits", "memory_clock_mhz", "sm_clock_mhz"), _COUNT),
    "performance_state": _COUNT, "mig_devices": _COUNT, "numa": _NODE, "own_numa": _NODE, "pcie": maybe(table(_PCIE)),
    "links": maybe(each(table(_LINK, needed=("link",)), most=1 << 10)), "c2c": maybe(table(_C2C, needed=_C2C)),
    "fabric": maybe(table(_FABRIC, needed=_FABRIC)),
}  # fmt: skip
ANSWERS = maybe(
    table(
        {"driver": maybe(text), "devices": each(table(_DEVICE), most=1 << 10),
         "ancestors": maybe(each(each(whole(0, 1 << 10), 3, 3)))},
    )
)  # fmt: skip
"""What `read` returns, as a recorded machine's file has it."""


def read() -> dict[str, Any] | None:
    """Return NVML's answers on this machine, or None where there is no NVIDIA driver.

    Keys: `driver`, and `devices`, a list in NVML's order with `name`, `uuid`, `serial`, `pci`, `vbios`, `memory_bytes`,
    `memory_bus_bits`, `memory_clock_mhz` and `sm_clock_mhz` (the highest), `performance_state`, `numa` (of the nearest
    host memory), `own_numa` (of the device's own memory, where the processor sees it as a NUMA node), `pcie`
    (`generation`, `width`, `max_generation`, `max_width`), `links` (`link`, `active`, `version`, `megabytes_per_s`,
    `remote`, `remote_pci`), `c2c` (`links`, `megabytes_per_s`), `fabric` (`state`, `cluster`, `clique`),
    `mig_devices` (into how many it is divided); and
    `ancestors`, the common ancestor's level of every two of these devices by their place in the list
    (nvmlGpuTopologyLevel_t: 0 one board, 10 one PCIe switch, 20 several, 30 a host bridge, 40 a NUMA node, 50 beyond).
    """
    try:
        library = open_nvml()
    except NvmlAbsentError:
        return None
    ask = asker(library, *_BEYOND)
    count = ask("nvmlDeviceGetCount") or 0
    found = [ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    handles = [handle for handle in found if handle is not None]
    devices = [_device(library, ask, handle) for handle in handles]
    ancestors = []
    for i, one in enumerate(handles):
        for j, other in enumerate(handles[:i]):
            level = ask("nvmlDeviceGetTopologyCommonAncestor", one, other)
            if level is not None:
                ancestors.append([j, i, int(level)])
    return {
        "driver": _text(ask("nvmlSystemGetDriverVersion")),
        "devices": devices,
        "ancestors": ancestors,
    }


def recorded(folder: Path) -> dict[str, Any] | None:
    """Return the answers of a recorded machine; None where it has none."""
    file = folder / "nvml.json"
    if not file.exists():
        return None
    answers: dict[str, Any] | None = read_json(file, _MOST_ANSWERS, "NVML's answers", ANSWERS)
    return answers


def without_identities(answers: dict[str, Any], pseudonyms: Pseudonyms) -> str:
    """Return the answers as a recording has them."""
    for device in answers.get("devices", ()):
        device["serial"] = None
    return pseudonyms.of_answer(json.dumps(answers, indent=0))


def _text(value: object) -> str | None:
    return None if value is None else text_of(value)


def _field(ask: Callable[..., Any], handle: Any, field: int, scope: int | None = None) -> int | None:
    """Return a field's whole value, or None where the driver does not give it."""
    values = ask("nvmlDeviceGetFieldValues", handle, [field if scope is None else (field, scope)])
    if values is None or values[0].nvmlReturn != 0:
        return None
    return int(field_value(values[0]))


def _device(library: Any, ask: Callable[..., Any], handle: Any) -> dict[str, Any]:
    pci = ask("nvmlDeviceGetPciInfo", handle)
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    return {
        "name": _text(ask("nvmlDeviceGetName", handle)),
        "uuid": _text(ask("nvmlDeviceGetUUID", handle)),
        "serial": _text(ask("nvmlDeviceGetSerial", handle)),
        "pci": None if pci is None else _text(pci.busId),
        "vbios": _text(ask("nvmlDeviceGetVbiosVersion", handle)),
        "memory_bytes": None if memory is None else int(memory.total),
        "memory_bus_bits": ask("nvmlDeviceGetMemoryBusWidth", handle),
        "memory_clock_mhz": ask("nvmlDeviceGetMaxClockInfo", handle, library.NVML_CLOCK_MEM),
        "sm_clock_mhz": ask("nvmlDeviceGetMaxClockInfo", handle, getattr(library, "NVML_CLOCK_SM", None)),
        "performance_state": ask("nvmlDeviceGetPerformanceState", handle),
        "numa": _memory_node(ask, handle),
        "own_numa": ask("nvmlDeviceGetNumaNodeId", handle),
        "pcie": {
            "generation": ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "width": ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            "max_generation": ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "max_width": ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
        },
        "links": list(_links(library, ask, handle)),
        "c2c": _c2c(ask, handle),
        "mig_devices": len(mig_uuids(library, handle)),
        "fabric": _fabric(library, handle),
    }


def _fabric(library: Any, handle: Any) -> dict[str, Any] | None:
    """Return a GPU's place in a fabric, without its health: that is of a moment, not of the machine."""
    with contextlib.suppress(*refusals(library, *_BEYOND)):
        if (info := fabric_info(library, handle)) is not None:
            return {key: info[key] for key in _FABRIC}
    return None


def _memory_node(ask: Callable[..., Any], handle: Any) -> int | None:
    """Return the NUMA node of host memory nearest to a device, where NVML names exactly one."""
    words = ask("nvmlDeviceGetMemoryAffinity", handle, 16, 0)
    if words is None:
        return None
    nodes = [64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    return nodes[0] if len(nodes) == 1 else None


def _links(library: Any, ask: Callable[..., Any], handle: Any) -> Iterator[dict[str, Any]]:
    count = _field(ask, handle, _FI_LINK_COUNT)
    common = _field(ask, handle, _FI_SPEED_COMMON)
    for link in range(library.NVML_NVLINK_MAX_LINKS if count is None else count):
        state = ask("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            # Drivers without the count say so of every further link.
            if count is None:
                break
            continue
        remote = ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link) if state else None
        kind = ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) if state else None
        yield {
            "link": link,
            "active": bool(state),
            "version": _VERSIONS.get(ask("nvmlDeviceGetNvLinkVersion", handle, link)),
            "megabytes_per_s": _field(ask, handle, _FI_GET_SPEED, link) or common,
            "remote": _REMOTE.get(kind) if kind is not None else None,
            "remote_pci": None if remote is None else _text(remote.busId),
        }


def _c2c(ask: Callable[..., Any], handle: Any) -> dict[str, int] | None:
    count = _field(ask, handle, _FI_C2C_COUNT)
    if not count:
        return None
    active = sum(_field(ask, handle, _FI_C2C_STATUS, link) == 1 for link in range(count))
    rate = _field(ask, handle, _FI_C2C_MAX_RATE, 0)
    return {"links": active, "megabytes_per_s": rate} if active and rate else None
