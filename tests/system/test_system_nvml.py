"""What is asked of NVML, with a library that answers as a driver does: some things, and errors for the rest."""

from __future__ import annotations

import ctypes
import sys
import types
from pathlib import Path
from typing import Any

import pynvml
import pytest

from linkgauge import nvml as opener
from linkgauge.doctor import nvml as doctor_nvml
from linkgauge.doctor.nvml import nvidia_gpus
from linkgauge.system import discover, nvml


class Driver(types.SimpleNamespace):
    """Stands for pynvml: two H100 with links to switches, and every other question is not supported."""

    def __getattr__(self, name: str) -> Any:
        """The library's constants and types are its own."""
        if not isinstance(getattr(pynvml, name), types.FunctionType):
            return getattr(pynvml, name)

        def refuse(*arguments: Any) -> Any:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        return refuse

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        return types.SimpleNamespace(busId=f"00000000:{0x18 + handle:02X}:00.0".encode())

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return types.SimpleNamespace(total=85520809984)

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:  # noqa: N802
        return 5120

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:  # noqa: N802
        return 2619

    def nvmlDeviceGetMemoryAffinity(self, handle: int, count: int, scope: int) -> list[int]:  # noqa: N802
        return [1 << handle, *[0] * (count - 1)]

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[Any]) -> Any:  # noqa: N802
        values = (pynvml.c_nvmlFieldValue_t * 1)()
        field = fields[0][0] if isinstance(fields[0], tuple) else fields[0]
        known = {91: 18, 164: 26562}
        values[0].nvmlReturn = 0 if field in known else pynvml.NVML_ERROR_NOT_SUPPORTED
        values[0].valueType = 1
        values[0].value.uiVal = known.get(field, 0)
        return values

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        return int(link != 7)

    def nvmlDeviceGetNvLinkVersion(self, handle: int, link: int) -> int:  # noqa: N802
        return 6

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:  # noqa: N802
        return types.SimpleNamespace(busId=f"00000000:{3 + link % 4:02X}:00.0".encode())

    cluster = bytes(16)

    def nvmlDeviceGetGpuFabricInfoV(self, handle: int, info: Any) -> int:  # noqa: N802
        told = ctypes.cast(info, ctypes.POINTER(pynvml.c_nvmlGpuFabricInfo_v2_t)).contents
        told.state = 3
        told.clusterUuid[:] = self.cluster
        return 0


def test_a_driver_that_answers_some_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "open_nvml", Driver)
    answers = nvml.read()
    assert answers is not None
    assert answers["driver"] is None
    first = answers["devices"][0]
    assert first["name"] == "NVIDIA H100 80GB HBM3"
    assert (first["serial"], first["vbios"], first["c2c"]) == (None, None, None)
    assert first["pcie"] == {"generation": None, "width": None, "max_generation": None, "max_width": None}
    assert first["numa"] == 0
    assert first["fabric"] == {"state": 3, "cluster": "0" * 32, "clique": 0}
    assert len(first["links"]) == 18
    assert sum(link["active"] for link in first["links"]) == 17
    assert {link["megabytes_per_s"] for link in first["links"]} == {26562}
    system = discover(Path("/"), nvml_answers=answers)
    bundles = [link for link in system.links_of("gpu0") if link.kind == "nvlink"]
    assert sum(link.count for link in bundles) == 17
    assert {link.version for link in bundles} == {"4"}
    memory = system.devices[0].memory_rate
    assert memory is not None
    assert memory.value == pytest.approx(3.352e12, rel=1e-3)


def test_the_doctor_reads_the_fabric_as_discovery_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    facts, why = nvidia_gpus()
    assert why == ""
    assert [(gpu.fabric_state, gpu.fabric_across_hosts) for gpu in facts] == [("completed", False)] * 2
    monkeypatch.setattr(Driver, "cluster", bytes([0] * 15 + [7]))
    assert all(gpu.fabric_across_hosts for gpu in nvidia_gpus()[0])
    # A driver that does not tell, and a binding that cannot ask.
    monkeypatch.delattr(Driver, "nvmlDeviceGetGpuFabricInfoV")
    assert {gpu.fabric_state for gpu in nvidia_gpus()[0]} == {""}
    assert opener.fabric_info(types.SimpleNamespace(), 0) is None


def test_no_driver_is_no_answer_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery and the doctor do without; the reason is the driver's own."""

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(opener, "_opened", [])
    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    with pytest.raises(opener.NvmlAbsentError, match=r"^libnvidia-ml\.so\.1 not found$"):
        opener.open_nvml()
    assert nvml.read() is None
    assert nvidia_gpus() == ([], "libnvidia-ml.so.1 not found")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvidia_gpus()[1].startswith("nvidia-ml-py is not installed")


def test_the_library_is_opened_once_and_never_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(opener, "_opened", [])
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: calls.append("init"))
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: calls.append("shutdown"))
    assert opener.open_nvml() is pynvml
    nvml.read()
    nvidia_gpus()
    assert calls == ["init"]


def test_a_field_is_read_by_the_type_that_the_driver_gives_it() -> None:
    for number, name, value in ((0, "dVal", 2.5), (1, "uiVal", 7), (3, "ullVal", 1 << 40), (4, "sllVal", -3)):
        answer = pynvml.c_nvmlFieldValue_t()
        answer.valueType = number
        setattr(answer.value, name, value)
        assert opener.field_value(answer) == value
