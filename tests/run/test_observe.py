"""Observations: what is read of a driver, what is refused, what it costs, and what of it becomes a case's evidence."""

from __future__ import annotations

import json
import os
import types
from pathlib import Path
from typing import Any

import pynvml
import pytest

from linkgauge.nvml import NvmlAbsentError, field_values
from linkgauge.run.machine import nvml_reader
from linkgauge.run.machine.nvml_reader import NvmlReader
from linkgauge.run.machine.observe import CASE_TIME, LINKS, Observer, Value, notable
from linkgauge.run.machine.readers import open_reader
from linkgauge.store.run import load
from linkgauge.view.tables import observing_lines
from scripted_reader import ScriptedReader


class Driver(types.SimpleNamespace):
    """Stands for pynvml and one device. `fields`: number -> value; `refused`: number -> NVML's error."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_CLOCK_MEM = pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, fields: dict[int, int], refused: dict[int, int] | None = None, reasons: int = 0) -> None:
        super().__init__(fields=fields, errors=refused or {}, reasons=reasons, asked=[], pids=[os.getpid()])

    def nvmlDeviceGetHandleByPciBusId(self, address: bytes) -> str:  # noqa: N802
        return address.decode()

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:  # noqa: N802
        return int(self.reasons)

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:  # noqa: N802
        return {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[which]

    def nvmlDeviceGetTemperature(self, handle: str, which: int) -> int:  # noqa: N802
        return 41

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:  # noqa: N802
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802
        return [types.SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetFieldValues(self, handle: str, asked: list[tuple[int, int]]) -> Any:  # noqa: N802
        self.asked.append(asked)
        values = (pynvml.c_nvmlFieldValue_t * len(asked))()
        for value, (number, _) in zip(values, asked, strict=True):
            value.nvmlReturn = self.errors.get(number, 0 if number in self.fields else pynvml.NVML_ERROR_NOT_SUPPORTED)
            value.valueType = 3
            value.value.ullVal = self.fields.get(number, 0)
        return values


def values_of(reader: NvmlReader) -> dict[str, tuple[float, str]]:
    return {value.name: (value.value, value.unit) for value in reader.read()}


def test_units_are_those_that_are_stored() -> None:
    driver = Driver({186: 71_500, 3: 2, 138: 7, 140: 8})
    found = values_of(NvmlReader("0000:1b:00.0", "cuda:0", driver))
    assert found["power"] == (71.5, "W")  # the driver says milliwatts
    assert found["sm_clock"] == (1.98e9, "Hz")  # and MHz
    assert found["temperature"] == (41, "C")
    assert found["ecc_corrected_errors"] == (2, "errors")
    assert found["nvlink_data_tx_bytes"] == (7 * 1024, "B")  # and KiB
    assert found["nvlink_raw_tx_bytes"] == (8 * 1024, "B")
    assert all(dict(asked)[138] == 0xFFFFFFFF for asked in driver.asked if 138 in dict(asked))  # the sum over all links


def test_what_is_refused_is_asked_once_and_kept_with_its_reason() -> None:
    driver = Driver({186: 1, 138: 1}, {140: pynvml.NVML_ERROR_NO_PERMISSION})
    reader = NvmlReader("0000:1b:00.0", "cuda:0", driver)
    reader.read()
    assert {number for number, _ in driver.asked[-1]} == {186, 138}
    reader.read(LINKS)
    assert {number for number, _ in driver.asked[-1]} == {138}
    refused = reader.refused()
    assert "ermission" in refused["nvlink_raw_tx_bytes"]
    assert refused["pcie_width"] == str(pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
    assert "power" not in refused


def test_other_processes_are_those_that_are_not_the_runs() -> None:
    driver = Driver({})
    reader = NvmlReader("0000:1b:00.0", "cuda:0", driver)
    reader.own([os.getpid(), 11, 12])
    assert values_of(reader)["other_processes"] == (0, "")
    driver.pids += [11, 77, 78]
    assert values_of(reader)["other_processes"] == (2, "")
    driver.pids = [77]  # without this process: those of another PID namespace, which say nothing
    assert "other_processes" not in values_of(reader)
    assert "PID namespace" in NvmlReader("0000:1b:00.0", "cuda:0", driver).refused()["other_processes"]


def test_a_driver_without_the_newest_list_of_processes_is_read_for_the_rest() -> None:
    class Older(Driver):
        NVMLLibraryMismatchError = pynvml.NVMLLibraryMismatchError

        def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802
            raise pynvml.NVMLLibraryMismatchError("Unversioned function called")

    reader = NvmlReader("0000:1b:00.0", "cuda:0", Older({186: 71_500}))
    assert values_of(reader)["power"] == (71.5, "W")
    assert "Unversioned" in reader.refused()["other_processes"]


def test_errors_of_links_are_added_up_over_those_that_are_there() -> None:
    class FourLinks(Driver):
        def nvmlDeviceGetFieldValues(self, handle: str, asked: list[tuple[int, int]]) -> Any:  # noqa: N802
            values = super().nvmlDeviceGetFieldValues(handle, asked)
            for value, (number, link) in zip(values, asked, strict=True):
                if number == 161 and link < 4:
                    value.nvmlReturn, value.value.ullVal = 0, link
            return values

    reader = NvmlReader("0000:1b:00.0", "cuda:0", FourLinks({}), everything=True)
    assert values_of(reader)["nvlink_dl_replay_errors"] == (0 + 1 + 2 + 3, "errors")
    assert "nvlink_dl_replay_errors" not in reader.refused()
    assert "nvlink_dl_crc_errors" in reader.refused()


def test_errors_of_single_links_are_read_outside_a_run_alone() -> None:
    driver = Driver(dict.fromkeys([*range(200)], 1))
    refused = NvmlReader("0000:1b:00.0", "cuda:0", driver).refused()
    assert "left out" in refused["nvlink_dl_crc_errors"]
    assert not any(number == 163 for asked in driver.asked for number, _ in asked)
    outside = NvmlReader("0000:1b:00.0", "cuda:0", driver, everything=True)
    assert {"power", "nvlink_raw_tx_bytes", "throttle_reasons", "nvlink_dl_crc_errors"} <= set(values_of(outside))


def test_reads_that_are_too_dear_are_left_out_the_dearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Driver):
        def nvmlDeviceGetTemperature(self, handle: str, which: int) -> int:  # noqa: N802
            clock[0] += 5_000_000
            return 41

    clock = [0]
    monkeypatch.setattr("time.perf_counter_ns", lambda: clock[0])
    reader = NvmlReader("0000:1b:00.0", "cuda:0", Slow({186: 1}))
    assert "5.0 ms" in reader.refused()["temperature"]
    before = clock[0]
    assert {"power", "sm_clock"} <= set(values_of(reader))
    assert clock[0] == before


def test_other_runtimes_and_machines_without_nvml_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_reader("host", {}) == (None, "")
    reader, reason = open_reader("hip", {"pci_address": "x", "ordinal": 0})
    assert reader is None
    assert reason == "AMD's driver does not answer: /sys/class/kfd/kfd/topology has no GPU at x"

    def no_driver() -> Any:
        raise NvmlAbsentError("NVML: Library Not Found")

    monkeypatch.setattr(nvml_reader, "open_nvml", no_driver)
    reader, reason = open_reader("cuda", {"pci_address": "0000:1b:00.0", "ordinal": 0})
    assert reader is None
    assert reason == "NVML: Library Not Found"


def rows_of(before: list[Value], after: list[Value]) -> list[dict[str, Any]]:
    observer = Observer(ScriptedReader(before, after))
    observer.look("before", 1)
    observer.look("after", 1)
    rows = observer.taken()
    assert observer.taken() == []
    return rows


def test_rows_have_the_columns_of_the_table() -> None:
    rows = rows_of([Value("power", 70.0, "W")], [Value("power", 300.0, "W")])
    (lasted,) = [row for row in rows if row["name"] == CASE_TIME]
    assert (lasted["moment"], lasted["unit"]) == ("after", "ns")
    rows.remove(lasted)
    assert [(row["moment"], row["value"]) for row in rows] == [("before", 70.0), ("after", 300.0)]
    assert {row["rank"] for row in rows} == {1}
    assert {row["subject"] for row in rows} == {"cuda:0"}
    assert rows[0]["when_ns"] <= rows[1]["when_ns"]
    idle = Observer(ScriptedReader([Value("power", 70.0, "W")]))
    idle.look("before", -1)  # takes no part
    assert idle.taken() == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([("throttle_reasons", 1, "")], [("throttle_reasons", 1, "")], {}),  # idle
        ([("throttle_reasons", 0, "")], [("throttle_reasons", 0x44, "")],
         {"throttled": {"cuda:0": ["power cap", "temperature (hardware)"]}}),
        ([("power_violation", 5, "ns")], [("power_violation", 9, "ns")], {"throttled": {"cuda:0": ["power cap"]}}),
        ([("power_violation", 5, "ns")], [("power_violation", 5, "ns")], {}),
        ([("ecc_corrected_errors", 7, "errors")], [("ecc_corrected_errors", 9, "errors")],
         {"errors_rose": {"cuda:0": {"ecc_corrected_errors": 2}}}),
        ([], [("ecc_corrected_errors", 9, "errors")], {}),  # nothing to compare with
        ([("nvlink_data_tx_bytes", 1, "B")], [("nvlink_data_tx_bytes", 9, "B")], {}),
    ],
)  # fmt: skip
def test_evidence_is_what_throttled_and_what_rose(
    before: list[tuple[Any, ...]], after: list[tuple[Any, ...]], expected: dict[str, Any]
) -> None:
    assert notable(rows_of([Value(*one) for one in before], [Value(*one) for one in after])) == expected


@pytest.mark.parametrize("threads", [True, False])
def test_a_run_stores_them_with_its_cases(run_plan: Any, monkeypatch: pytest.MonkeyPatch, threads: bool) -> None:
    from linkgauge.run.parent.mpi_library import default_installation

    monkeypatch.setenv("LINKGAUGE_TEST_OBSERVED", "1")
    run = run_plan(threads=threads, mpis=[] if threads else [default_installation()])
    assert run.status == 0
    loaded = load(Path(run.path))
    rows = loaded.observations.to_pylist()
    measured = [row for row in loaded.rows() if str(row.status) == "ok"]
    assert {row["case_key"] for row in rows} == {row.case.case_key for row in measured}
    # Rank k looks at device k. How long a case took is known of each, the rest as often as its cost allows.
    assert {(row["rank"], row["subject"]) for row in rows} == {(0, "host:0"), (1, "host:1")}
    assert sum(row["name"] == CASE_TIME for row in rows) == sum(row.case.ranks for row in measured)
    for row in (measured[0], measured[-1]):
        evidence = row.evidence
        assert evidence["errors_rose"]["host:0"]["ecc_corrected_errors"] >= 1
        assert evidence["throttled"]["host:1"] == ["power cap"]
    (cost,) = loaded.info["observing"].values()
    assert 0 < cost["seconds"] < cost["of_seconds"]
    assert set(cost["parts"]) == {"state", "node"}  # the latter: to open the reader
    assert observing_lines(loaded.info)[0].startswith("Observing devices took ")
    (launch,) = loaded.launches.to_pylist()
    assert json.loads(launch["extra"])["not_observed"] == {
        "0": {"nvlink_raw_tx_bytes": "Insufficient Permissions"},
        "1": {"nvlink_raw_tx_bytes": "Insufficient Permissions"},
    }


def test_values_are_read_into_an_array_with_room_to_spare() -> None:
    """NVML gets the number of values that were asked for, and an array that is longer."""
    given: list[Any] = []

    def function(handle: object, count: Any, values: Any) -> int:
        given.append((count.value, len(values), [(one.fieldId, one.scopeId) for one in values[: count.value]]))
        return 0 if handle == "one" else int(pynvml.NVML_ERROR_UNKNOWN)

    library = types.ModuleType("library")
    vars(library).update(NVMLError=pynvml.NVMLError, c_nvmlFieldValue_t=pynvml.c_nvmlFieldValue_t,
                         _nvmlGetFunctionPointer=lambda name: function)  # fmt: skip
    found = field_values(library, "one", [(138, 7), (186, 0)])
    assert len(found) == 2
    ((count, room, asked),) = given
    assert (count, asked) == (2, [(138, 7), (186, 0)])
    assert room > count
    with pytest.raises(pynvml.NVMLError):
        field_values(library, "another", [(138, 7)])
