"""What amdsmi says of AMD devices, where it is installed: names, serial numbers and firmware, by PCI address.

The links come from the kernel's own topology (`linkgauge.system.kfd`), which needs no library. amdsmi comes with ROCm
and is not a dependency: without it, or where it does not answer, devices have the kernel's names.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from linkgauge.errors import one_line
from linkgauge.model.shape import fitting, label, scalar
from linkgauge.system.sysfs import normal_address


def read(library: Any = None) -> dict[str, dict[str, str]]:
    """Return `name`, `uuid`, `serial` and `vbios` of each device by PCI address, as far as amdsmi gives them.

    `library` stands for the module amdsmi; by default it is imported, and without it the answer is empty.
    """
    try:
        library = library or importlib.import_module("amdsmi")
        library.amdsmi_init()
    # Its import fails in ways of its own where libamd_smi.so is missing, and its exceptions have no base that is there
    # in every version.
    except Exception:
        return {}
    try:
        return _devices(library)
    finally:
        with contextlib.suppress(Exception):
            library.amdsmi_shut_down()


def _devices(library: Any) -> dict[str, dict[str, str]]:
    def ask(function: str, *arguments: Any) -> Any:
        with contextlib.suppress(Exception):
            return getattr(library, function)(*arguments)
        return None

    result: dict[str, dict[str, str]] = {}
    handles = ask("amdsmi_get_processor_handles")
    for handle in handles if isinstance(handles, list | tuple) else ():
        said = ask("amdsmi_get_gpu_device_bdf", handle)
        address = normal_address(said) if isinstance(said, str) else None
        if address is None:
            continue
        asic, vbios = ask("amdsmi_get_gpu_asic_info", handle), ask("amdsmi_get_gpu_vbios_info", handle)
        known = {
            "name": _item(asic, "market_name"),
            "serial": _item(asic, "asic_serial"),
            "uuid": ask("amdsmi_get_gpu_device_uuid", handle),
            "vbios": _item(vbios, "version") or _item(vbios, "part_number"),
        }
        result[address] = fitting(known, dict.fromkeys(known, _said))
    return result


def _item(table: object, key: str) -> object:
    return table.get(key) if isinstance(table, dict) else None


def _said(value: Any, at: str) -> str:
    return label("" if value == "N/A" else one_line(scalar(value, at)), at)
