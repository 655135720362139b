"""The error counters of NVLinks and of GPUs' PCIe ports, as NVML shows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from linkgauge.nvml import NvmlAbsentError, asker, bit_error_rate, field_value, field_values, open_nvml

# Each counter of an NVLink: its field (nvml.h, NVML_FI_DEV_NVLINK_*), and what drivers of Volta to Ampere have instead
# (NVML_NVLINK_ERROR_*). Recoveries are of NVLink 2 to 4, or of NVLink 5.
_COUNTERS: tuple[tuple[str, int, int | None], ...] = (
    ("replays", 161, 0), ("recoveries", 162, 1), ("crc", 163, 2),
    ("failed_recoveries", 214, None), ("recoveries", 215, None), ("effective_ber", 220, None), ("symbol_ber", 222, None)
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class LinkErrors:
    """The error counters of one NVLink since the driver was loaded, and its bit error rates; -1: not told."""

    gpu: int
    link: int
    replays: int = -1
    recoveries: int = -1
    failed_recoveries: int = -1
    crc: int = -1
    effective_ber: float = -1  # errors that are left after forward error correction
    symbol_ber: float = -1  # errors that are left after all corrections

    @property
    def name(self) -> str:
        """For findings."""
        return f"NVLink {self.link} of GPU {self.gpu}"


def nvlink_errors() -> list[LinkErrors] | None:
    """The counters of every active NVLink of the host; None where NVML cannot be asked."""
    try:
        nvml = open_nvml()
    except NvmlAbsentError:
        return None
    ask = asker(nvml)
    if (count := ask("nvmlDeviceGetCount")) is None:
        return None
    found = []
    for gpu in range(count):
        handle = ask("nvmlDeviceGetHandleByIndex", gpu)
        for link in range(nvml.NVML_NVLINK_MAX_LINKS if handle is not None else 0):
            if (state := ask("nvmlDeviceGetNvLinkState", handle, link)) is None:
                break  # the further ones are not there either
            if state >= 1:
                found.append(_link_errors(nvml, ask, handle, gpu, link))
    return found


def _link_errors(nvml: Any, ask: Callable[..., Any], handle: Any, gpu: int, link: int) -> LinkErrors:
    known: dict[str, Any] = {}
    try:
        values = field_values(nvml, handle, [(field, link) for _, field, _ in _COUNTERS])
    except nvml.NVMLError:
        values = ()
    for (name, _, _), value in zip(_COUNTERS, values, strict=False):
        if value.nvmlReturn == 0:
            number = int(field_value(value))
            known[name] = bit_error_rate(number) if name.endswith("ber") else number
    for name, _, counter in _COUNTERS:
        if counter is not None and name not in known:
            count = ask("nvmlDeviceGetNvLinkErrorCounter", handle, link, counter)
            known |= {} if count is None else {name: int(count)}
    return LinkErrors(gpu, link, **known)


def gpu_errors() -> dict[str, dict[str, int]]:
    """By GPU: repeated packets of its PCIe port, and memory errors that it could not correct; as far as NVML says."""
    try:
        nvml = open_nvml()
    except NvmlAbsentError:
        return {}
    found, ask = {}, asker(nvml)
    for index in range(ask("nvmlDeviceGetCount") or 0):
        if (handle := ask("nvmlDeviceGetHandleByIndex", index)) is None:
            continue
        asked = {
            "PCIe replays": ask("nvmlDeviceGetPcieReplayCounter", handle),
            "uncorrected memory errors": ask(
                "nvmlDeviceGetTotalEccErrors", handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
        }
        found[f"GPU {index}"] = {name: int(value) for name, value in asked.items() if value is not None}
    return found
