"""What amdsmi says of AMD devices, where it is installed: names, serial numbers, firmware and health, by PCI address.

The links come from the kernel's own topology (`linkgauge.system.kfd`), which needs no library. amdsmi comes with ROCm
and is not a dependency: without it, or where it does not answer, devices have the kernel's names.

Not asked: the state of single xGMI links, which was seen to be down or off on links of MI300 that work; power caps,
whose unit differs between versions and which the kernel states; errors of xGMI, which a look clears.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from linkgauge.errors import one_line
from linkgauge.model.shape import fitting, label, number, scalar, whole
from linkgauge.system.sysfs import normal_address

# Of the throttling status that all kinds have alike (amdgpu_smu.h, SMU_THROTTLER_*): first bit, bits, and the cause.
_THROTTLERS = ((0, 16, "power cap"), (16, 16, "current limit"), (32, 24, "heat"))


@dataclasses.dataclass(frozen=True)
class Health:
    """What amdsmi says of one GPU's links, memory and clocks. -1 and empty: not told."""

    address: str
    pcie_replays: int = -1
    pcie_width: int = -1
    pcie_width_max: int = -1
    uncorrected: int = -1  # memory errors, of all blocks
    xgmi_speed: float = -1  # Gb/s a lane
    xgmi_width: int = -1
    throttle: tuple[str, ...] = ()


def read(library: Any = None) -> dict[str, dict[str, str]]:
    """Return `name`, `uuid`, `serial` and `vbios` of each device by PCI address, as far as amdsmi gives them.

    `library` stands for the module amdsmi; by default it is imported, and without it the answer is empty.
    """
    result: dict[str, dict[str, str]] = {}
    for address, ask in _devices(library):
        asic, vbios = ask("amdsmi_get_gpu_asic_info"), ask("amdsmi_get_gpu_vbios_info")
        known = {
            "name": _item(asic, "market_name"),
            "serial": _item(asic, "asic_serial"),
            "uuid": ask("amdsmi_get_gpu_device_uuid"),
            "vbios": _item(vbios, "version") or _item(vbios, "part_number"),
        }
        result[address] = fitting(known, dict.fromkeys(known, _said))
    return result


def health(library: Any = None) -> list[Health]:
    """Return each device's health, as far as amdsmi gives it; `library` as of `read`."""
    found = []
    for address, ask in _devices(library):
        pcie, metrics = ask("amdsmi_get_pcie_info"), ask("amdsmi_get_gpu_metrics_info")
        known = {
            "pcie_replays": _item(_item(pcie, "pcie_metric"), "pcie_replay_count"),
            "pcie_width": _item(_item(pcie, "pcie_metric"), "pcie_width"),
            "pcie_width_max": _item(_item(pcie, "pcie_static"), "max_pcie_width"),
            "uncorrected": _item(ask("amdsmi_get_gpu_total_ecc_count"), "uncorrectable_count"),
            "xgmi_speed": _item(metrics, "xgmi_link_speed"),
            "xgmi_width": _item(metrics, "xgmi_link_width"),
            "throttle": _item(metrics, "indep_throttle_status"),
        }
        # A register of ones is what a GPU without the counter has.
        lanes = dict.fromkeys(("pcie_width", "pcie_width_max", "xgmi_width"), whole(0, 64))
        shapes = {**dict.fromkeys(known, whole(0, (1 << 32) - 2)), **lanes, "xgmi_speed": number(0, 1000),
                  "throttle": _throttle}  # fmt: skip
        found.append(Health(address, **fitting(known, shapes)))
    return found


def _devices(library: Any) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Each device's PCI address, and what asks amdsmi a function of it: None where it has no answer."""
    try:
        library = library or importlib.import_module("amdsmi")
        library.amdsmi_init()
    # Its import fails in ways of its own where libamd_smi.so is missing, and its exceptions have no base that is there
    # in every version.
    except Exception:
        return
    try:
        handles = _answer(library, "amdsmi_get_processor_handles")
        for handle in handles if isinstance(handles, list | tuple) else ():
            said = _answer(library, "amdsmi_get_gpu_device_bdf", handle)
            if address := normal_address(said) if isinstance(said, str) else None:
                yield address, _asking(library, handle)
    finally:
        with contextlib.suppress(Exception):
            library.amdsmi_shut_down()


def _asking(library: Any, handle: Any) -> Callable[[str], Any]:
    return lambda function: _answer(library, function, handle)


def _answer(library: Any, function: str, *arguments: Any) -> Any:
    with contextlib.suppress(Exception):
        return getattr(library, function)(*arguments)
    return None


def _throttle(value: Any, at: str) -> tuple[str, ...]:
    """The causes in a throttling status."""
    mask = whole(0, (1 << 63) - 1)(value, at)  # all ones: not told
    return tuple(words for first, bits, words in _THROTTLERS if mask >> first & ((1 << bits) - 1))


def _item(table: object, key: str) -> object:
    return table.get(key) if isinstance(table, dict) else None


def _said(value: Any, at: str) -> str:
    return label("" if value == "N/A" else one_line(scalar(value, at)), at)
