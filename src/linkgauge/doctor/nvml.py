"""The GPUs as NVIDIA's management library shows them, for the doctor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from linkgauge.nvml import NvmlAbsentError, fabric_info, open_nvml

_Value = TypeVar("_Value")
_MAX_LINKS = 18
_FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}  # NVML_GPU_FABRIC_STATE_*


@dataclasses.dataclass(frozen=True)
class GpuFacts:
    """One GPU as its management library shows it. -1 and None: not told. Clocks in MHz, power in watts."""

    index: int
    name: str
    uuid: str
    pci_address: str
    vendor: str = "nvidia"
    processes: tuple[int, ...] = ()
    clock_limit: int = -1  # highest that applications may use now
    clock_max: int = -1
    power_limit: float = -1
    power_default: float = -1
    throttle: tuple[str, ...] = ()
    pcie_width: int = -1
    pcie_width_max: int = -1
    pcie_generation: int = -1
    pcie_generation_max: int = -1
    nvlinks_active: int = 0
    nvlinks_inactive: int = 0
    fabric_state: str = ""  # of the NVLink fabric behind switches: completed, in progress, ...; empty: none
    fabric_across_hosts: bool = False


def nvidia_gpus() -> tuple[list[GpuFacts], str]:
    """Facts of every NVIDIA GPU of the host; and why there are none. What a GPU does not tell stays unknown."""
    try:
        nvml = open_nvml()
    except NvmlAbsentError as error:
        return [], str(error)
    try:
        return [_facts(nvml, index) for index in range(nvml.nvmlDeviceGetCount())], ""
    except nvml.NVMLError as error:
        return [], f"NVML: {error}"


def _facts(nvml: Any, index: int) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(call: Callable[..., Any], default: _Value) -> _Value:
        try:
            value: _Value = call()
            return value
        except (nvml.NVMLError, AttributeError):
            return default

    fabric: dict[str, Any] = ask(lambda: fabric_info(nvml, handle) or {}, {})
    links = [ask(lambda link=link: int(nvml.nvmlDeviceGetNvLinkState(handle, link)), -1) for link in range(_MAX_LINKS)]

    def text(value: object) -> str:  # older bindings give bytes
        return value.decode() if isinstance(value, bytes) else str(value)

    return GpuFacts(
        index=index,
        name=text(ask(lambda: nvml.nvmlDeviceGetName(handle), "")),
        uuid=text(ask(lambda: nvml.nvmlDeviceGetUUID(handle), "")),
        pci_address=_short_address(text(ask(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId, ""))),
        processes=tuple(ask(lambda: [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)], [])),
        clock_limit=ask(lambda: int(nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_SM)), -1),
        clock_max=ask(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)), -1),
        power_limit=ask(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000, -1.0),
        power_default=ask(lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000, -1.0),
        throttle=_throttle(nvml, ask(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)), 0)),
        pcie_width=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)), -1),
        pcie_width_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)), -1),
        pcie_generation=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)), -1),
        pcie_generation_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)), -1),
        nvlinks_active=sum(state == 1 for state in links),
        nvlinks_inactive=sum(state == 0 for state in links),
        fabric_state=_FABRIC_STATES.get(fabric.get("state", 0), ""),
        fabric_across_hosts=bool(fabric.get("cluster", "").strip("0")),
    )


def _short_address(bus_id: str) -> str:
    """NVML's eight-digit domain as sysfs writes it, four digits, lower case."""
    domain, _, rest = bus_id.partition(":")
    return f"{domain[-4:]}:{rest}".lower() if rest else bus_id


def _throttle(nvml: Any, mask: int) -> tuple[str, ...]:
    words = (
        ("SwPowerCap", "power cap"),
        ("HwSlowdown", "hardware slowdown"),
        ("HwThermalSlowdown", "heat"),
        ("SwThermalSlowdown", "heat"),
        ("HwPowerBrakeSlowdown", "power brake"),
    )
    found = [word for name, word in words if mask & getattr(nvml, f"nvmlClocksThrottleReason{name}", 0)]
    return tuple(dict.fromkeys(found))
