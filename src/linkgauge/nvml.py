"""NVIDIA's management library, opened once in a process for all that ask it: discovery, the doctor, observations.

It is never shut down: with a CUDA driver in the same process nvmlShutdown was seen to wait for ever (two H200, driver
580.159).
"""

from __future__ import annotations

import ctypes
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linkgauge.errors import EnvironmentLackingError

_lock = threading.Lock()
_opened: list[Any] = []

_SPARE_VALUES = 64
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
                absent = getattr(error, "value", None) == library.NVML_ERROR_LIBRARY_NOT_FOUND
                raise NvmlAbsentError("libnvidia-ml.so.1 not found" if absent else f"NVML: {error}") from None
            _opened.append(library)
        return _opened[0]


def refusals(library: Any, *more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return what pynvml raises where a driver does not answer, and `more`: NVML's errors, its own for no function.

    A function that a driver has in no version that this pynvml knows is an exception that is no NVMLError.
    """
    return (library.NVMLError, getattr(library, "NVMLLibraryMismatchError", library.NVMLError), AttributeError, *more)


def asker(library: Any, *more: type[Exception]) -> Callable[..., Any]:
    """Return what calls a function of the library by its name, and gives None where that is refused (`refusals`)."""
    refused = refusals(library, *more)

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(library, name)(*arguments)
        except refused:
            return None

    return ask


def text_of(answer: object) -> str:
    """Return an answer's text, which older versions of pynvml give as bytes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)


def field_values(library: Any, handle: Any, asked: Sequence[tuple[int, int]]) -> Sequence[Any]:
    """Return the nvmlFieldValue_t of some fields, each with its scope.

    Into an array with room to spare: with arrays of just the length that NVML was given, runs on two H100 (driver 580)
    ended with a damaged heap. A checking allocator found no write beyond them in calls of one thread: whose it was is
    not known.
    """
    if not isinstance(library, types.ModuleType):  # a driver of tests
        return list(library.nvmlDeviceGetFieldValues(handle, list(asked)))
    values = (library.c_nvmlFieldValue_t * (len(asked) + _SPARE_VALUES))()
    for value, (field, scope) in zip(values, asked, strict=False):
        value.fieldId, value.scopeId = field, scope
    ask = library._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
    status = ask(handle, ctypes.c_int32(len(asked)), values)
    if status:
        raise library.NVMLError(status)
    return list(values[: len(asked)])


def field_value(answer: Any) -> float:
    """Return the number in an nvmlFieldValue_t by the type that the driver gave it."""
    return float(getattr(answer.value, _KINDS.get(answer.valueType, "ullVal")))


# Parts of the fabric's health mask: where each begins, its bits, and what its values other than healthy mean (nvml.h,
# NVML_GPU_FABRIC_HEALTH_MASK_*). Most have 0 for not supported, 1 for true and 2 for false: 0xaa is a healthy fabric.
_CONFIGURATIONS = {2: "system GUID", 3: "chassis serial number", 4: "no partition", 5: "too few NVLinks",
                   6: "incompatible GPU firmware", 7: "invalid location", 8: "invalid GPU state"}  # fmt: skip
_HEALTH: tuple[tuple[int, int, dict[int, str]], ...] = (
    (0, 0x3, {1: "degraded bandwidth"}),
    (2, 0x3, {1: "route recovery in progress"}),
    (4, 0x3, {1: "unhealthy routes", 3: "unhealthy routes, GPU reset required"}),
    (6, 0x3, {1: "recovery from an access timeout in progress"}),
    (8, 0xF, {value: f"incorrect configuration ({words})" for value, words in _CONFIGURATIONS.items()}),
    (12, 0x3, {2: "no partition assigned"}),
    (14, 0x3, {2: "global fabric manager disconnected"}),
)
_SUMMARIES = {2: "unhealthy", 3: "limited capacity"}  # NVML_GPU_FABRIC_HEALTH_SUMMARY_*, of version 3 alone


def fabric_info(library: Any, handle: Any) -> dict[str, Any] | None:
    """Return a GPU's place in an NVLink fabric: `state` (NVML_GPU_FABRIC_STATE_*), `cluster` (hex), `clique`.

    With them `status`, how the probe of the fabric ended (nvmlReturn_t, valid in state 3), and `health`: what is wrong
    by the health mask, or by the summary where the mask names nothing. The cluster is all zeros where the fabric ends
    with the host. None where nvidia-ml-py is too old to ask; the library's NVMLError where the driver is, or does not
    tell. The call takes an address: given the structure itself, as its signature invites, NVML reads a stray pointer
    (seen to end the process with SIGSEGV under 13.615).
    """
    refusal = None
    for version in ("v3", "v2"):
        kind = getattr(library, f"c_nvmlGpuFabricInfo_{version}_t", None)
        if kind is None:
            continue
        info = kind()
        info.version = getattr(library, f"nvmlGpuFabricInfo_{version}")
        try:
            library.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        except library.NVMLError as error:  # a driver older than this version
            refusal = error
            continue
        summary = _SUMMARIES.get(int(getattr(info, "healthSummary", 0)))
        return {"state": int(info.state), "cluster": bytes(info.clusterUuid).hex(), "clique": int(info.cliqueId),
                "status": int(info.status),
                "health": fabric_health(int(info.healthMask)) or ([summary] if summary else [])}  # fmt: skip
    if refusal is not None:
        raise refusal
    return None


def fabric_health(mask: int) -> list[str]:
    """Return what a fabric's health mask says is wrong, in words."""
    values = ((words, mask >> shift & width) for shift, width, words in _HEALTH)
    return [words[value] for words, value in values if value in words]


def bit_error_rate(value: int) -> float:
    """Return an NVLink's bit error rate from NVML's form: 4 bits of mantissa over 8 bits of negative exponent of 10."""
    return (value >> 8 & 0xF) * 10.0 ** -(value & 0xFF)


def mps_pipe(environment: Mapping[str, str]) -> str:
    """Return the pipe to the daemon of CUDA's Multi-Process Service, which is there where one was started."""
    return f"{environment.get('CUDA_MPS_PIPE_DIRECTORY', '/tmp/nvidia-mps')}/control"


def confidential_computing(library: Any) -> bool | None:
    """Return whether the host's GPUs run in confidential computing, which encrypts transfers; None where unknown."""
    try:
        return bool(library.nvmlSystemGetConfComputeState().ccFeature)
    except refusals(library):
        return None


def mig_uuids(library: Any, handle: Any) -> tuple[str, ...]:
    """Return the UUIDs of the MIG devices that a GPU is divided into; none where it is whole, or NVML does not say."""
    ask = asker(library)
    if not (ask("nvmlDeviceGetMigMode", handle) or [0])[0]:
        return ()
    places = range(int(ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0))
    devices = [ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place) for place in places]  # None: a free place
    uuids = [ask("nvmlDeviceGetUUID", device) for device in devices if device is not None]
    return tuple(text_of(uuid) for uuid in uuids if uuid is not None)
