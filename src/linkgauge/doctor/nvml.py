"""The GPUs and NVLinks as NVIDIA's management library shows them, for the doctor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from linkgauge.doctor.facts import GpuFacts
from linkgauge.nvml import NvmlAbsentError, confidential_computing, fabric_info, mig_uuids, open_nvml, refusals
from linkgauge.system.sysfs import normal_address

_Value = TypeVar("_Value")
_FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}  # NVML_GPU_FABRIC_STATE_*
_VGPU = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU: a guest of a vGPU


def nvidia_gpus() -> tuple[list[GpuFacts], str]:
    """Facts of every NVIDIA GPU of the host; and why there are none. What a GPU does not tell stays unknown."""
    try:
        nvml = open_nvml()
    except NvmlAbsentError as error:
        return [], str(error)
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return [], f"NVML: {error}"
    found = []
    for index in range(count):
        try:
            found.append(_facts(nvml, index))
        except nvml.NVMLError as error:  # one that fell off the bus must not hide the others
            if getattr(error, "value", None) != nvml.NVML_ERROR_NO_PERMISSION:  # another job's
                found.append(GpuFacts(index, "", "", "", lost=str(error)))
    return found, "" if found else "no NVIDIA GPU may be used here"


def _facts(nvml: Any, index: int) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(call: Callable[..., Any], default: _Value) -> _Value:
        try:
            value: _Value = call()
            return value
        except refusals(nvml):
            return default

    def text(value: object) -> str:  # older bindings give bytes
        return value.decode() if isinstance(value, bytes) else str(value)

    fabric: dict[str, Any] = ask(lambda: fabric_info(nvml, handle) or {}, {})
    state = _FABRIC_STATES.get(fabric.get("state", 0), "")
    code = fabric.get("status", 0)
    status = ask(lambda: text(nvml.nvmlErrorString(code)), f"error {code}") if code else ""
    links = [
        ask(lambda link=link: int(nvml.nvmlDeviceGetNvLinkState(handle, link)), -1)
        for link in range(nvml.NVML_NVLINK_MAX_LINKS)
    ]

    return GpuFacts(
        index=index,
        name=text(ask(lambda: nvml.nvmlDeviceGetName(handle), "")),
        uuid=text(ask(lambda: nvml.nvmlDeviceGetUUID(handle), "")),
        pci_address=normal_address(text(ask(lambda: nvml.nvmlDeviceGetPciInfo(handle).busId, ""))) or "",
        processes=_processes(nvml, handle, ask),
        clock_limit=ask(lambda: int(nvml.nvmlDeviceGetApplicationsClock(handle, nvml.NVML_CLOCK_SM)), -1),
        clock_max=ask(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)), -1),
        power_limit=ask(lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000, -1.0),
        power_default=ask(lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000, -1.0),
        throttle=_throttle(nvml, ask(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)), 0)),
        pcie_width=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)), -1),
        pcie_width_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)), -1),
        pcie_generation=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)), -1),
        pcie_generation_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)), -1),
        nvlinks_active=sum(state >= 1 for state in links),  # 2: it sleeps, and wakes by itself
        nvlinks_inactive=sum(state == 0 for state in links),
        fabric_state=state,
        fabric_status=status if state == "completed" else "",
        fabric_health=tuple(fabric.get("health", ())) if state == "completed" else (),
        fabric_cluster=fabric.get("cluster", ""),
        fabric_clique=fabric.get("clique", 0),
        partition={0: "whole", 1: "MIG"}.get(ask(lambda: int(nvml.nvmlDeviceGetMigMode(handle)[0]), -1), ""),
        instances=mig_uuids(nvml, handle),
        virtual=ask(lambda: int(nvml.nvmlDeviceGetVirtualizationMode(handle)), 0) == _VGPU,
        busy=ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100, None),
        persistence=_on(ask(lambda: int(nvml.nvmlDeviceGetPersistenceMode(handle)), -1)),
        ecc=_on(ask(lambda: int(nvml.nvmlDeviceGetEccMode(handle)[0]), -1)),
        confidential=bool(confidential_computing(nvml)),
        vbios=text(ask(lambda: nvml.nvmlDeviceGetVbiosVersion(handle), "")),
        driver=text(ask(lambda: nvml.nvmlSystemGetDriverVersion(), "")),
        gsp=text(ask(lambda: nvml.nvmlDeviceGetGspFirmwareVersion(handle), "")),
        bar_mib=ask(lambda: int(nvml.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Total) >> 20, -1),
        memory_mib=ask(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20, -1),
        pcie_replays=ask(lambda: int(nvml.nvmlDeviceGetPcieReplayCounter(handle)), -1),
        memory_faults=_memory_faults(nvml, handle, ask),
    )


def _on(mode: int) -> str:
    return {0: "off", 1: "on"}.get(mode, "")


def _processes(nvml: Any, handle: Any, ask: Callable[..., Any]) -> tuple[int, ...]:
    """Processes with a context, and clients of an MPS server, which alone has one."""
    asked = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
    return tuple(dict.fromkeys(
        int(process.pid) for name in asked for process in ask(lambda name=name: getattr(nvml, name)(handle), [])
    ))  # fmt: skip


def _memory_faults(nvml: Any, handle: Any, ask: Callable[..., Any]) -> tuple[str, ...]:
    """Uncorrected errors since the driver was loaded, and rows of memory that are still to be remapped, or cannot."""
    errors = ask(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(
        handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)), 0)  # fmt: skip
    _, _, pending, failed = ask(lambda: nvml.nvmlDeviceGetRemappedRows(handle), (0, 0, 0, 0))
    said = [f"{errors} uncorrected memory errors"] if errors else []
    return (
        *said,
        *(["a row remapping failed"] if failed else []),
        *(["a row remapping is pending"] if pending else []),
    )


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
