"""What state a device was in before and after each case: clocks, power, heat, throttling, error and byte counters.

Read through NVML by the rank that drives the device, outside of the timed part, and only where the runtime is CUDA. A
question that the driver does not answer is asked once; that it refused, and why, is kept in the launch's record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from linkgauge.model.case import Case
from linkgauge.nvml import field_value, open_nvml

Row = dict[str, Any]
# NVML's bits of reasons that lower a clock for power or heat, not by choice or for idleness (nvml.h,
# nvmlClocksEventReason*): power cap, hardware slowdown, thermal in software and hardware, power brake.
THROTTLE_BITS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "temperature (software)",
                 0x40: "temperature (hardware)", 0x80: "power brake"}  # fmt: skip
THROTTLE_REASONS = "throttle_reasons"
# Counters of time that only grow while a clock is held down, unlike the reasons, which tell of the moment.
VIOLATIONS = {"power_violation": "power cap", "thermal_violation": "temperature"}
OTHER_PROCESSES = "other_processes"
OTHERS_BUSY, OTHERS_COPY = "others_busy", "others_copy_time"
"""The share of a device's processors that others kept busy lately; for how long their copies kept its engines busy."""
CLOCK_OFFSET, CLOCK_OFFSET_UNCERTAINTY = "clock_offset", "clock_offset_uncertainty"
COUNTED_ERRORS = "errors"
NVLINK_SENT, NVLINK_RECEIVED = "nvlink_data_tx_bytes", "nvlink_data_rx_bytes"
"""Payload of all links of a device together."""
_ALL_LINKS = 0xFFFF_FFFF  # scope of a field of links: their sum (nvml.h, nvmlFieldValue_t)
# At most so much a reading: of the reads below, the dearest are left out first. Two readings a case.
BUDGET_NS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Value:
    """One value that was read. `unit`: Hz, W, C, B, ns, lanes, errors, or empty."""

    name: str
    value: float
    unit: str


class Reader(Protocol):
    """Reads one device. Each call costs well under two milliseconds."""

    subject: str

    def read(self) -> list[Value]:
        """The values of this moment."""

    def refused(self) -> dict[str, str]:
        """What could not be read: name -> the reason, for the launch's record."""

    def own(self, pids: Iterable[int]) -> None:
        """Say which processes of this host are the run's: all others are other processes."""

    def users(self) -> list[int] | None:
        """Processes with a context on it, as its driver numbers them; None: it lists none."""

    def busy(self) -> float | None:
        """The share of the last moments in which it worked; None: not known."""

    def engine_ns(self, pids: Iterable[int]) -> int:
        """For how long these processes have kept its engines busy, where the driver counts that."""


class NicReader(Protocol):
    """Reads all network cards of a node."""

    def read(self, *, priorities: bool = False) -> list[tuple[str, list[Value]]]:
        """Subjects and their values of this moment; of each priority too, if asked."""


@dataclasses.dataclass(frozen=True)
class _Field:
    name: str
    number: int  # NVML_FI_DEV_*
    unit: str
    scale: float = 1.0
    scope: int = 0


_MOST_LINKS = 18  # of a Hopper or Blackwell GPU
# Numbers of nvml.h. One call reads all; the driver answers for each field alone whether it has it.
_FIELDS = (
    _Field("power", 186, "W", 1e-3),
    _Field("ecc_corrected_errors", 3, COUNTED_ERRORS),
    _Field("ecc_uncorrected_errors", 4, COUNTED_ERRORS),
    _Field("pcie_replay_errors", 94, COUNTED_ERRORS),
    _Field("power_violation", 74, "ns"),
    _Field("thermal_violation", 75, "ns"),
    _Field("pcie_tx_bytes", 197, "B"),
    _Field("pcie_rx_bytes", 198, "B"),
    _Field("nvlink_crc_flit_errors", 38, COUNTED_ERRORS),
    _Field("nvlink_replay_errors", 52, COUNTED_ERRORS),
    _Field("nvlink_recovery_errors", 59, COUNTED_ERRORS),
    _Field(NVLINK_SENT, 138, "B", 1024.0, _ALL_LINKS),  # the driver counts KiB
    _Field(NVLINK_RECEIVED, 139, "B", 1024.0, _ALL_LINKS),
    _Field("nvlink_raw_tx_bytes", 140, "B", 1024.0, _ALL_LINKS),
    _Field("nvlink_raw_rx_bytes", 141, "B", 1024.0, _ALL_LINKS),
)
# Newer links count errors one by one; the links' counts are added up. Left out where asking for all is too dear.
_LINK_FIELDS = tuple(
    _Field(name, number, COUNTED_ERRORS, scope=link)
    for name, number in (("nvlink_dl_replay_errors", 161), ("nvlink_dl_recovery_errors", 162),
                         ("nvlink_dl_crc_errors", 163))
    for link in range(_MOST_LINKS)
)  # fmt: skip


class _NotComparableError(Exception):
    """What NVML says cannot be told from what this run itself does."""


class NvmlReader:
    """Reads one NVIDIA device, by its PCI address. Handles are looked up once."""

    def __init__(self, pci_address: str, subject: str, nvml: Any = None, budget_ns: float = BUDGET_NS) -> None:
        """Find the device, and ask everything once to learn what this driver answers and what it costs.

        `budget_ns`: what one reading may take.
        """
        self._budget_ns = budget_ns
        self.subject = subject
        self._nvml = open_nvml() if nvml is None else nvml
        self.handle = self._nvml.nvmlDeviceGetHandleByPciBusId(pci_address.encode())
        # The latter where a driver is older than a function that nvidia-ml-py calls by its plain name.
        mismatch = getattr(self._nvml, "NVMLLibraryMismatchError", self._nvml.NVMLError)
        self._errors = (self._nvml.NVMLError, mismatch, _NotComparableError)
        self._refused: dict[str, str] = {}
        self._own = {os.getpid()}
        self._fields = [*_FIELDS, *_LINK_FIELDS]
        self._calls = self._known_calls()
        self._learn()

    def _known_calls(self) -> list[tuple[str, str, float, Callable[[], Any]]]:
        library, handle = self._nvml, self.handle
        reasons = getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = reasons or library.nvmlDeviceGetCurrentClocksThrottleReasons
        return [
            (THROTTLE_REASONS, "", 1.0, lambda: reasons(handle)),
            ("sm_clock", "Hz", 1e6, lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)),
            ("memory_clock", "Hz", 1e6, lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM)),
            ("temperature", "C", 1.0,
             lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)),
            ("pcie_generation", "", 1.0, lambda: library.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            ("pcie_width", "lanes", 1.0, lambda: library.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            # Not nvmlDeviceGetProcessUtilization: it damaged this process's heap where another one used one of two GPUs
            # (driver 580, two H100; "free(): invalid next size").
            (OTHER_PROCESSES, "", 1.0, self._count_others),
        ]  # fmt: skip

    def _count_others(self) -> int:
        """How many processes compute on the device that are not the run's."""
        found = {int(process.pid) for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)}
        if os.getpid() not in found:
            raise _NotComparableError("NVML does not list this process: its numbers are of another PID namespace")
        return len(found - self._own)

    def users(self) -> list[int] | None:
        """Return what computes on it, and clients of an MPS server, as NVML numbers processes; None: not known."""
        lists: list[list[int]] = []
        for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
            with contextlib.suppress(*self._errors, AttributeError):
                lists.append([int(process.pid) for process in getattr(self._nvml, name)(self.handle)])
        return list(dict.fromkeys(pid for pids in lists for pid in pids)) if lists else None

    def busy(self) -> float | None:
        """Return the share of the last moments in which kernels ran or memory was used; None where NVML is silent."""
        try:
            rates = self._nvml.nvmlDeviceGetUtilizationRates(self.handle)
        except (*self._errors, AttributeError):
            return None
        return float(max(rates.gpu, rates.memory)) / 100

    def engine_ns(self, pids: Iterable[int]) -> int:
        """Return nothing: NVIDIA's driver counts no time of engines by process."""
        return 0

    def own(self, pids: Iterable[int]) -> None:
        """Say which processes of this host are the run's; this process always is."""
        self._own |= set(pids)

    def _learn(self) -> None:
        """Drop what is refused, and the calls that are too dear together, the dearest first."""
        costs: dict[str, int] = {}
        for name, _, _, call in list(self._calls):
            began = time.perf_counter_ns()
            try:
                call()
            except (*self._errors, AttributeError) as error:
                self._refused[name] = str(error)
            costs[name] = time.perf_counter_ns() - began
        self._read_fields()  # learns which are refused
        spent = self._time_of_fields()
        if spent > self._budget_ns / 2:
            dear = [field for field in self._fields if field in _LINK_FIELDS]
            self._fields = [field for field in self._fields if field not in _LINK_FIELDS]
            self._refused |= {field.name: f"left out: all fields take {spent / 1e6:.1f} ms" for field in dear}
            spent = self._time_of_fields()
        self._calls = [entry for entry in self._calls if entry[0] not in self._refused]
        for entry in sorted(self._calls, key=lambda entry: costs[entry[0]]):
            spent += costs[entry[0]]
            if spent > self._budget_ns:
                self._refused[entry[0]] = f"left out: reading it takes {costs[entry[0]] / 1e6:.1f} ms"
        self._calls = [entry for entry in self._calls if entry[0] not in self._refused]

    def _time_of_fields(self) -> int:
        began = time.perf_counter_ns()
        self._read_fields()
        return time.perf_counter_ns() - began

    def _read_fields(self) -> list[Value]:
        if not self._fields:
            return []
        try:
            answers = self._nvml.nvmlDeviceGetFieldValues(
                self.handle, [(field.number, field.scope) for field in self._fields]
            )
        except self._nvml.NVMLError as error:
            self._refused |= {field.name: str(error) for field in self._fields}
            self._fields = []
            return []
        sums: dict[str, Value] = {}
        refused: dict[str, int] = {}
        kept = []
        for field, answer in zip(self._fields, answers, strict=True):
            if answer.nvmlReturn != 0:
                refused.setdefault(field.name, answer.nvmlReturn)
                continue
            kept.append(field)
            value = field_value(answer) * field.scale
            before = sums[field.name].value if field.name in sums else 0.0
            sums[field.name] = Value(field.name, before + value, field.unit)
        self._fields = kept
        for name, status in refused.items():
            if name not in sums:  # a link that is not there is no refusal where others answer
                self._refused[name] = str(self._nvml.NVMLError(status))
        return list(sums.values())

    def read(self) -> list[Value]:
        """The values of this moment; a call that fails now gives none."""
        values = self._read_fields()
        for name, unit, scale, call in self._calls:
            with contextlib.suppress(*self._errors):
                values.append(Value(name, float(call()) * scale, unit))
        return values

    def refused(self) -> dict[str, str]:
        """What this driver does not answer, each with its reason."""
        return dict(self._refused)


def clock_rows(comparisons: Iterable[Mapping[str, Any]], place: int) -> list[Row]:
    """Rows of a rank's clock against that of the case's first node, as the core compared them across nodes.

    `clock_offset` and `clock_offset_uncertainty`, in ns: the true offset lies within the uncertainty.
    """
    return [
        {
            "rank": place,
            "subject": "host clock",
            "moment": one["moment"],
            "when_ns": one["when_ns"],
            "name": name,
            "value": float(one[key]),
            "unit": "ns",
        }
        for one in comparisons
        for name, key in ((CLOCK_OFFSET, "offset_ns"), (CLOCK_OFFSET_UNCERTAINTY, "uncertainty_ns"))
    ]


LOAD, LOAD_TIME, LOAD_STRETCH = "load", "time_of_operation", "stretch"
_STRETCH_MOMENTS = ("alone", "", "background")  # the core's numbers (core/measure/load.h)


def load_rows(load: Mapping[str, Any]) -> list[Row]:
    """Rows of how a load went on, in ns: of each stretch, alone or beside the measured samples, how long it was and
    `time_of_operation`."""
    columns = (load[name].tolist() for name in ("when", "start_ns", "ns", "operations"))
    return [
        {
            "rank": 0,
            "subject": f"{LOAD} {load['number']}",
            "moment": _STRETCH_MOMENTS[when],
            "when_ns": start_ns,
            "name": name,
            "value": value,
            "unit": "ns",
        }
        for when, start_ns, ns, operations in zip(*columns, strict=True)
        if _STRETCH_MOMENTS[when]
        for name, value in ((LOAD_STRETCH, float(ns)), (LOAD_TIME, ns / operations))
    ]


STEPS, SPANS = "steps", "timeline"


def step_rows(case: Case, place: int, times: Mapping[str, int], spans: Iterable[tuple[str, int, int]]) -> list[Row]:
    """Rows of what an application's iteration is on a rank: of each kind of step how many, how many bytes, and the
    median of the host's time in them, in ns; and when it was in which, in the iteration that was checked last."""
    # Not with the module, which every worker reads before its start: few launches have an application.
    from linkgauge.apps import catalog
    from linkgauge.apps.program import amounts

    told = [(f"{kind}_time", float(ns), "ns") for kind, ns in times.items() if ns > 0]
    for name, one in amounts(catalog.program(case.app, case.ranks), place).items():
        quantity, unit = ("ns", "ns") if name == "compute" else ("bytes", "B")
        told += [(f"{name}_count", float(one.count), ""), (f"{name}_{quantity}", float(one.total), unit)]
    when_ns = time.monotonic_ns()
    rows: list[Row] = [{"rank": place, "subject": STEPS, "moment": "after", "when_ns": when_ns, "name": name,
                        "value": value, "unit": unit} for name, value, unit in told]  # fmt: skip
    rows += [{"rank": place, "subject": SPANS, "moment": "after", "when_ns": begin_ns, "name": kind,
              "value": float(end_ns - begin_ns), "unit": "ns"} for kind, begin_ns, end_ns in spans]  # fmt: skip
    return rows


OVERLAP = "overlap"


def overlap_rows(place: int, times: Mapping[str, int]) -> list[Row]:
    """Rows of a collective that goes on beside computation, on a rank: how long it took `alone`, and the rank's
    `compute`, in ns."""
    when_ns = time.monotonic_ns()
    return [{"rank": place, "subject": OVERLAP, "moment": "before", "when_ns": when_ns, "name": name,
             "value": float(ns), "unit": "ns"} for name, ns in times.items()]  # fmt: skip


class Observer:
    """The observations of one rank: rows as docs/reference/run-folder.md has them, without the identity."""

    def __init__(
        self,
        reader: Reader | None,
        nics: NicReader | None = None,
        node: Sequence[tuple[str, Callable[[], list[Value]]]] = (),
    ) -> None:
        """Observe through `reader`, the node's network cards through `nics`, and by subject what `node` reads of it.

        Nothing where they are None.
        """
        self._reader = reader
        self._nics = nics
        self._node = node
        self._rows: list[Row] = []

    def look(
        self, moment: str, place: int, *, nics: bool = False, priorities: bool = False, node: bool = False
    ) -> None:
        """Read the device. `moment`: before or after; `place`: the rank's in the case, below 0 where it has none.

        `nics`: the node's network cards too, last before the case and first after it, with their `priorities`.
        `node`: what is read of the node.
        """
        looks = [(self._reader.subject, self._reader.read)] if self._reader is not None and place >= 0 else []
        looks += self._node if node else ()
        if nics and self._nics is not None:
            looks += [
                (subject, functools.partial(list, values)) for subject, values in self._nics.read(priorities=priorities)
            ]
        for subject, read in looks if moment == "before" else reversed(looks):
            self.note(moment, place, subject, read)

    def note(self, moment: str, place: int, subject: str, read: Callable[[], list[Value]]) -> None:
        """Keep what `read` gives of `subject`, with the time before it was asked."""
        when_ns = time.monotonic_ns()
        self._rows += [
            {
                "rank": place,
                "subject": subject,
                "moment": moment,
                "when_ns": when_ns,
                "name": value.name,
                "value": value.value,
                "unit": value.unit,
            }
            for value in read()
        ]

    def taken(self) -> list[Row]:
        """The rows since the last call."""
        rows, self._rows = self._rows, []
        return rows


def notable(rows: Iterable[Row]) -> dict[str, Any]:
    """What of a case's observations belongs into its evidence: `throttled` and `errors_rose`, by subject.

    Throttled: a reason after the case that was none of choice, or a time of violation that grew while it ran.
    """
    before: dict[tuple[str, str], float] = {}
    throttled: dict[str, list[str]] = {}
    rose: dict[str, dict[str, float]] = {}
    for row in rows:
        key = (str(row["subject"]), str(row["name"]))
        if row["moment"] == "before":
            before[key] = row["value"]
            continue
        grown = row["value"] - before.get(key, row["value"])
        words: Sequence[str] = ()
        if row["name"] == THROTTLE_REASONS:
            words = [word for bit, word in THROTTLE_BITS.items() if int(row["value"]) & bit]
        elif row["name"] in VIOLATIONS and grown > 0:
            words = [VIOLATIONS[row["name"]]]
        elif row["unit"] == COUNTED_ERRORS and grown > 0:
            rose.setdefault(key[0], {})[key[1]] = grown
        for word in words:
            said = throttled.setdefault(key[0], [])
            if word not in said:
                said.append(word)
    found: dict[str, Any] = {}
    if throttled:
        found["throttled"] = throttled
    if rose:
        found["errors_rose"] = rose
    return found
