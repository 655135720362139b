"""What is asked of NVML, with a library that answers as a driver does: some things, and errors for the rest."""

from __future__ import annotations

import ctypes
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import pynvml
import pytest

from linkgauge import nvml as opener
from linkgauge.doctor import nvml as doctor_nvml
from linkgauge.doctor.nvml import nvidia_gpus
from linkgauge.run.parent import info
from linkgauge.system import discover, nvml, visible
from linkgauge.system import nvlink_errors as link_errors
from linkgauge.system.nvlink_errors import LinkErrors, nvlink_errors


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

    known: ClassVar = {91: 18, 164: 26562}

    def nvmlDeviceGetFieldValues(self, handle: int, fields: list[Any]) -> Any:  # noqa: N802
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for value, asked in zip(values, fields, strict=True):
            field = asked[0] if isinstance(asked, tuple) else asked
            value.nvmlReturn = 0 if field in self.known else pynvml.NVML_ERROR_NOT_SUPPORTED
            value.valueType = 1
            value.value.uiVal = self.known.get(field, 0)
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
    status = health = 0
    summary: int | None = 0  # None: a driver that knows version 2 of the structure alone

    def nvmlDeviceGetGpuFabricInfoV(self, handle: int, info: Any) -> int:  # noqa: N802
        told = ctypes.cast(info, ctypes.POINTER(pynvml.c_nvmlGpuFabricInfo_v2_t)).contents
        if told.version == pynvml.nvmlGpuFabricInfo_v3:
            if self.summary is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
            ctypes.cast(info, ctypes.POINTER(pynvml.c_nvmlGpuFabricInfo_v3_t)).contents.healthSummary = self.summary
        told.state, told.status, told.healthMask = 3, self.status, self.health
        told.clusterUuid[:] = self.cluster
        return 0

    def nvmlErrorString(self, code: int) -> str:  # noqa: N802
        return {23: "Insufficient Resources"}[code]


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


def test_a_question_that_an_older_pynvml_does_not_know_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "open_nvml", Driver)
    monkeypatch.delattr(pynvml, "nvmlDeviceGetNumaNodeId", raising=False)
    answers = nvml.read()
    assert answers is not None
    assert [device["own_numa"] for device in answers["devices"]] == [None, None]


def test_the_doctor_reads_the_fabric_as_discovery_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    monkeypatch.setattr(link_errors, "open_nvml", Driver)
    facts, why = nvidia_gpus()
    assert why == ""
    assert [(gpu.fabric_state, gpu.fabric_across_hosts) for gpu in facts] == [("completed", False)] * 2
    monkeypatch.setattr(Driver, "cluster", bytes([0] * 15 + [7]))
    assert all(gpu.fabric_across_hosts for gpu in nvidia_gpus()[0])
    # A driver that does not tell, and a binding that cannot ask.
    monkeypatch.delattr(Driver, "nvmlDeviceGetGpuFabricInfoV")
    assert {gpu.fabric_state for gpu in nvidia_gpus()[0]} == {""}
    assert opener.fabric_info(types.SimpleNamespace(), 0) is None


def test_a_pci_domain_of_more_than_four_digits_is_as_sysfs_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    assert [gpu.pci_address for gpu in nvidia_gpus()[0]] == ["0000:18:00.0", "0000:19:00.0"]
    place = types.SimpleNamespace(busId=b"00010000:AF:00.0")
    monkeypatch.setattr(Driver, "nvmlDeviceGetPciInfo", lambda self, handle: place)
    assert {gpu.pci_address for gpu in nvidia_gpus()[0]} == {"10000:af:00.0"}


@pytest.mark.parametrize("feature", [0, 1])
def test_the_doctor_and_run_json_say_whether_confidential_computing_is_on(
    monkeypatch: pytest.MonkeyPatch, feature: int
) -> None:
    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    monkeypatch.setattr(info, "open_nvml", Driver)
    assert info.machine()["confidential_computing"] is None
    assert {gpu.confidential for gpu in nvidia_gpus()[0]} == {False}
    state = types.SimpleNamespace(ccFeature=feature)
    monkeypatch.setattr(Driver, "nvmlSystemGetConfComputeState", lambda self: state, raising=False)
    assert info.machine()["confidential_computing"] is bool(feature)
    assert {gpu.confidential for gpu in nvidia_gpus()[0]} == {bool(feature)}


@pytest.mark.parametrize(
    ("summary", "status", "health", "words", "ill"),
    [
        (1, 0, 0, "", ()),
        (1, 0, 0x1AA, "", ()),  # each part says false: 0xaa is healthy, though reports take it for a sign of faults
        (None, 0, 0xAA, "", ()),
        (None, 23, 0xAA, "Insufficient Resources", ()),
        (1, 23, 0, "Insufficient Resources", ()),
        (1, 99, 0, "error 99", ()),
        (2, 0, 0, "", ("unhealthy",)),
        (3, 0, 0xA9, "", ("degraded bandwidth",)),
        (None, 0, 0x5AA, "", ("incorrect configuration (too few NVLinks)",)),
        (2, 0, 0x21BA, "", ("unhealthy routes, GPU reset required", "no partition assigned")),
        (2, 0, 0x81A6, "", ("route recovery in progress", "global fabric manager disconnected")),
    ],
)
def test_a_fabric_that_is_completed_tells_its_status_and_health(
    summary: int | None, status: int, health: int, words: str, ill: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def error_string(driver: Driver, code: int) -> str:
        if code != 23:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return "Insufficient Resources"

    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    monkeypatch.setattr(link_errors, "open_nvml", Driver)
    for name, value in (
        ("summary", summary),
        ("status", status),
        ("health", health),
        ("nvmlErrorString", error_string),
    ):
        monkeypatch.setattr(Driver, name, value)
    assert [(gpu.fabric_status, gpu.fabric_health) for gpu in nvidia_gpus()[0]] == [(words, ill)] * 2


def test_the_structures_are_as_long_as_their_versions_say() -> None:
    """NVML writes as many bytes as the version names, whatever was allocated."""
    for name in ("v2", "v3"):
        size = ctypes.sizeof(getattr(pynvml, f"c_nvmlGpuFabricInfo_{name}_t"))
        assert getattr(pynvml, f"nvmlGpuFabricInfo_{name}") & 0xFFFFFF == size


def test_counters_of_links_are_read_as_each_driver_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Blackwell's fields, with 2e-9 as mantissa and exponent; an Ampere's call; and no driver at all."""
    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    monkeypatch.setattr(link_errors, "open_nvml", Driver)
    monkeypatch.setattr(Driver, "known", {161: 7, 214: 1, 215: 3, 220: 0x209, 222: 0xFFF})
    links = nvlink_errors()
    assert links is not None
    assert len(links) == 2 * (pynvml.NVML_NVLINK_MAX_LINKS - 1)  # all but the one that is down
    assert links[0] == LinkErrors(0, 0, replays=7, recoveries=3, failed_recoveries=1, effective_ber=2e-9,
                                  symbol_ber=pytest.approx(1.5e-254))  # fmt: skip
    monkeypatch.setattr(Driver, "known", {})
    monkeypatch.setattr(Driver, "nvmlDeviceGetNvLinkErrorCounter", lambda _, __, link, counter: 10 * link + counter,
                        raising=False)  # fmt: skip
    links = nvlink_errors()
    assert links is not None
    assert links[2] == LinkErrors(0, 2, replays=20, recoveries=21, crc=22)

    def absent() -> None:
        raise opener.NvmlAbsentError("not here")

    monkeypatch.setattr(link_errors, "open_nvml", absent)
    assert nvlink_errors() is None


def test_a_gpu_that_does_not_answer_is_lost_and_another_jobs_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    monkeypatch.setattr(link_errors, "open_nvml", Driver)

    def handle(_: Driver, index: int) -> int:
        if index == 1:
            raise pynvml.NVMLError(code)
        return index

    monkeypatch.setattr(Driver, "nvmlDeviceGetHandleByIndex", handle)
    monkeypatch.setattr(pynvml.NVMLError, "_errcode_to_string", {15: "GPU is lost", 4: "No permission"})
    code = pynvml.NVML_ERROR_GPU_IS_LOST
    assert [(gpu.index, bool(gpu.lost)) for gpu in nvidia_gpus()[0]] == [(0, False), (1, True)]
    links = nvlink_errors()
    assert links is not None
    assert {link.gpu for link in links} == {0}
    code = pynvml.NVML_ERROR_NO_PERMISSION
    assert [gpu.index for gpu in nvidia_gpus()[0]] == [0]


def test_memory_faults_and_mig_are_told_by_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    monkeypatch.setattr(link_errors, "open_nvml", Driver)
    assert [(gpu.memory_faults, gpu.partition) for gpu in nvidia_gpus()[0]] == [((), "")] * 2
    answers = {
        "nvmlDeviceGetTotalEccErrors": lambda _, handle, *__: 3 * handle,
        "nvmlDeviceGetRemappedRows": lambda _, handle: (0, 0, True, bool(handle)),
        "nvmlDeviceGetMigMode": lambda _, handle: [handle, 0],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(Driver, name, answer, raising=False)
    assert [(gpu.memory_faults, gpu.partition) for gpu in nvidia_gpus()[0]] == [
        (("a row remapping is pending",), "whole"),
        (("3 uncorrected memory errors", "a row remapping failed", "a row remapping is pending"), "MIG"),
    ]


def test_who_uses_a_gpu_and_into_what_it_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_nvml, "open_nvml", Driver)
    monkeypatch.setattr(link_errors, "open_nvml", Driver)
    before = nvidia_gpus()[0][0]
    assert (before.processes, before.instances, before.busy, before.virtual) == ((), (), None, False)

    def mismatch(_: Driver, handle: int) -> Any:
        raise pynvml.NVMLLibraryMismatchError("no such function in this driver")

    def instance(_: Driver, handle: int, place: int) -> int:
        if place == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return 100 * (handle + 1) + place

    answers = {
        "nvmlDeviceGetComputeRunningProcesses": lambda _, handle: [types.SimpleNamespace(pid=7 + handle)],
        "nvmlDeviceGetMPSComputeRunningProcesses": mismatch,
        "nvmlDeviceGetUtilizationRates": lambda _, handle: types.SimpleNamespace(gpu=37, memory=1),
        "nvmlDeviceGetVirtualizationMode": lambda _, handle: 2 * handle,
        "nvmlDeviceGetMigMode": lambda _, handle: [1 - handle, 0],
        "nvmlDeviceGetMaxMigDeviceCount": lambda _, handle: 3,
        "nvmlDeviceGetMigDeviceHandleByIndex": instance,
        "nvmlDeviceGetUUID": lambda _, handle: f"MIG-{handle}" if handle >= 100 else f"GPU-{handle}",
    }
    for name, answer in answers.items():
        monkeypatch.setattr(Driver, name, answer, raising=False)
    first, second = nvidia_gpus()[0]
    assert (first.processes, first.instances, first.busy, first.virtual) == ((7,), ("MIG-100", "MIG-102"), 0.37, False)
    assert (second.processes, second.instances, second.virtual) == ((8,), (), True)
    monkeypatch.setattr(visible, "open_nvml", Driver)
    assert visible.here()["nvidia"] == [visible.KnownGpu("GPU-0", ("MIG-100", "MIG-102")), visible.KnownGpu("GPU-1")]
    monkeypatch.setattr(nvml, "open_nvml", Driver)
    assert "0000:18:00.0: divided by MIG into 2 devices, which share its links" in discover().notes
    clients = [types.SimpleNamespace(pid=7), types.SimpleNamespace(pid=9)]
    monkeypatch.setattr(Driver, "nvmlDeviceGetMPSComputeRunningProcesses", lambda _, handle: clients)
    assert nvidia_gpus()[0][0].processes == (7, 9)


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
