"""NVIDIA's management library, opened once in a process for all that ask it: discovery, the doctor, observations.

It is never shut down: with a CUDA driver in the same process nvmlShutdown was seen to wait for ever (two H200, driver
580.159).
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from linkgauge.errors import EnvironmentLackingError

_lock = threading.Lock()
_opened: list[Any] = []

# How a field's value is to be read by its type (nvml.h, nvmlValueType_t).
_KINDS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}


class NvmlAbsentError(EnvironmentLackingError):
    """NVML cannot be asked here; the message says why, and the fix where there is one."""


def open_nvml() -> Any:
    """Return the module pynvml with NVML initialized, once in this process; `NvmlAbsentError` says why it cannot."""
    with _lock:
        if not _opened:
            try:
                import pynvml
            except ImportError:
                raise NvmlAbsentError("nvidia-ml-py is not installed; fix: pip install nvidia-ml-py") from None
            library: Any = pynvml
            try:
                library.nvmlInit()
            except library.NVMLError as error:
                raise NvmlAbsentError(f"NVML: {error}") from None
            _opened.append(library)
        return _opened[0]


def field_value(answer: Any) -> float:
    """Return the number in an nvmlFieldValue_t by the type that the driver gave it."""
    return float(getattr(answer.value, _KINDS.get(answer.valueType, "ullVal")))


def fabric_info(library: Any, handle: Any) -> dict[str, Any] | None:
    """Return a GPU's place in an NVLink fabric: `state` (NVML_GPU_FABRIC_STATE_*), `cluster` (hex), `clique`.

    The cluster is all zeros where the fabric ends with the host. None where nvidia-ml-py is too old to ask; the
    library's NVMLError where the driver is, or does not tell. The call takes an address: given the structure itself, as
    its signature invites, NVML reads a stray pointer (seen to end the process with SIGSEGV under 13.615).
    """
    if not hasattr(library, "c_nvmlGpuFabricInfo_v2_t"):
        return None
    info = library.c_nvmlGpuFabricInfo_v2_t()
    info.version = library.nvmlGpuFabricInfo_v2
    library.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return {"state": int(info.state), "cluster": bytes(info.clusterUuid).hex(), "clique": int(info.cliqueId)}
