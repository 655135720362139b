"""One NVIDIA device as NVML shows it, read in parts by what they cost.

On two H100 (driver 580) a reading of bytes of NVLink takes 0.8 ms, of the time that heat held clocks down 0.4 ms, of
PCIe's bytes 0.2 ms and of its replays 0.1 to 0.2 ms; all else some 20 us a value. So what is cheap is one part, and
when the others are read is decided apart (run/rank/reading_plan.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from linkgauge.nvml import field_value, field_values, open_nvml
from linkgauge.run.machine.observe import (
    COUNTED_ERRORS,
    COUNTERS,
    LINKS,
    NVLINK_RECEIVED,
    NVLINK_SENT,
    OTHER_PROCESSES,
    PARTS,
    PCIE,
    STATE,
    THROTTLE_REASONS,
    Value,
)

_ALL_LINKS = 0xFFFF_FFFF  # scope of a field of links: their sum (nvml.h, nvmlFieldValue_t)
BUDGET_NS = 2_000_000
"""What the counters may take together: above it the dearest are left out."""
_CHEAP_NS = 60_000  # what takes longer is no part of the state


@dataclasses.dataclass(frozen=True)
class _Field:
    name: str
    number: int  # NVML_FI_DEV_*
    unit: str
    part: str
    scale: float = 1.0
    scope: int = 0


_MOST_LINKS = 18  # of a Hopper or Blackwell GPU
# Numbers of nvml.h. One call reads all of a part; the driver answers for each field alone whether it has it.
_FIELDS = (
    _Field("power", 186, "W", STATE, 1e-3),
    _Field("ecc_corrected_errors", 3, COUNTED_ERRORS, COUNTERS),
    _Field("ecc_uncorrected_errors", 4, COUNTED_ERRORS, COUNTERS),
    _Field("pcie_replay_errors", 94, COUNTED_ERRORS, COUNTERS),
    _Field("power_violation", 74, "ns", STATE),
    _Field("thermal_violation", 75, "ns", COUNTERS),
    _Field("pcie_tx_bytes", 197, "B", PCIE),
    _Field("pcie_rx_bytes", 198, "B", PCIE),
    _Field("nvlink_crc_flit_errors", 38, COUNTED_ERRORS, COUNTERS),
    _Field("nvlink_replay_errors", 52, COUNTED_ERRORS, COUNTERS),
    _Field("nvlink_recovery_errors", 59, COUNTED_ERRORS, COUNTERS),
    _Field(NVLINK_SENT, 138, "B", LINKS, 1024.0, _ALL_LINKS),  # the driver counts KiB
    _Field(NVLINK_RECEIVED, 139, "B", LINKS, 1024.0, _ALL_LINKS),
    _Field("nvlink_raw_tx_bytes", 140, "B", LINKS, 1024.0, _ALL_LINKS),
    _Field("nvlink_raw_rx_bytes", 141, "B", LINKS, 1024.0, _ALL_LINKS),
)
# Newer links count errors one by one; the links' counts are added up. All take 10 to 31 ms on H100: not for a rank.
_LINK_FIELDS = tuple(
    _Field(name, number, COUNTED_ERRORS, COUNTERS, scope=link)
    for name, number in (("nvlink_dl_replay_errors", 161), ("nvlink_dl_recovery_errors", 162),
                         ("nvlink_dl_crc_errors", 163))
    for link in range(_MOST_LINKS)
)  # fmt: skip
_READ_WITH = {LINKS: (LINKS, PCIE)}  # a device's links together, so that what went past one is seen on the other


class _NotComparableError(Exception):
    """What NVML says cannot be told from what this run itself does."""


@dataclasses.dataclass(frozen=True)
class _Call:
    name: str
    unit: str
    scale: float
    part: str
    ask: Callable[[], Any]


class NvmlReader:
    """Reads one NVIDIA device, by its PCI address. Handles are looked up once."""

    parts: Sequence[str] = PARTS

    def __init__(self, pci_address: str, subject: str, nvml: Any = None, *, everything: bool = False) -> None:
        """Find the device, and ask once to learn what this driver answers and what it costs.

        `everything`: outside a run, whatever it costs, and errors of each link too; only all of it can be read then.
        """
        self.subject = subject
        self._nvml = open_nvml() if nvml is None else nvml
        self.handle = self._nvml.nvmlDeviceGetHandleByPciBusId(pci_address.encode())
        # The latter where a driver is older than a function that nvidia-ml-py calls by its plain name.
        mismatch = getattr(self._nvml, "NVMLLibraryMismatchError", self._nvml.NVMLError)
        self._errors = (self._nvml.NVMLError, mismatch, _NotComparableError)
        self._refused: dict[str, str] = {}
        self._own = {os.getpid()}
        self._calls = self._known_calls()
        self._fields = [*_FIELDS, *_LINK_FIELDS] if everything else list(_FIELDS)
        if everything:
            self._drop_refused_calls()
            self._read_fields(PARTS)  # drops what is refused
        else:
            self._refused |= {field.name: "left out: all links take some 10 ms" for field in _LINK_FIELDS}
            self._learn()

    def _known_calls(self) -> list[_Call]:
        library, handle = self._nvml, self.handle
        reasons = getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None)
        reasons = reasons or library.nvmlDeviceGetCurrentClocksThrottleReasons
        return [
            _Call(THROTTLE_REASONS, "", 1.0, STATE, lambda: reasons(handle)),
            _Call("sm_clock", "Hz", 1e6, STATE, lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)),
            # Not nvmlDeviceGetProcessUtilization: it damaged this process's heap where another one used one of two GPUs
            # (driver 580, two H100; "free(): invalid next size").
            _Call(OTHER_PROCESSES, "", 1.0, COUNTERS, self._count_others),
            _Call("memory_clock", "Hz", 1e6, COUNTERS,
                  lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_MEM)),
            _Call("temperature", "C", 1.0, COUNTERS,
                  lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)),
            _Call("pcie_generation", "", 1.0, COUNTERS, lambda: library.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            _Call("pcie_width", "lanes", 1.0, COUNTERS, lambda: library.nvmlDeviceGetCurrPcieLinkWidth(handle)),
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

    def _drop_refused_calls(self) -> dict[str, int]:
        """Return what each call that is left takes, in ns."""
        costs: dict[str, int] = {}
        for call in self._calls:
            try:
                costs[call.name] = _time_of(call.ask)
            except (*self._errors, AttributeError) as error:
                self._refused[call.name] = str(error)
        self._calls = [call for call in self._calls if call.name in costs]
        return costs

    def _learn(self) -> None:
        """Drop what is refused, and the counters that are too dear together, the dearest first."""
        costs = self._drop_refused_calls()
        for part in PARTS:
            self._read_fields((part,))  # learns which are refused
        spent = _time_of(lambda: self._read_fields((COUNTERS,)))
        for call in sorted(self._calls, key=lambda call: costs[call.name]):
            spent += costs[call.name]
            if spent > BUDGET_NS:
                self._refused[call.name] = f"left out: reading it takes {costs[call.name] / 1e6:.1f} ms"
        self._calls = [
            dataclasses.replace(call, part=COUNTERS) if costs[call.name] > _CHEAP_NS else call
            for call in self._calls if call.name not in self._refused
        ]  # fmt: skip
        for field in [field for field in self._fields if field.part == STATE]:
            if _time_of(lambda field=field: self._ask([field])) > _CHEAP_NS:  # type: ignore[misc]
                self._fields[self._fields.index(field)] = dataclasses.replace(field, part=COUNTERS)

    def _ask(self, fields: Sequence[_Field]) -> Any:
        return field_values(self._nvml, self.handle, [(field.number, field.scope) for field in fields])

    def _read_fields(self, parts: Sequence[str]) -> list[Value]:
        asked = [field for field in self._fields if field.part in parts]
        if not asked:
            return []
        try:
            answers = self._ask(asked)
        except self._nvml.NVMLError as error:
            self._refused |= {field.name: str(error) for field in asked}
            self._fields = [field for field in self._fields if field not in asked]
            return []
        sums: dict[str, Value] = {}
        refused: dict[str, int] = {}
        for field, answer in zip(asked, answers, strict=True):
            if answer.nvmlReturn != 0:
                refused.setdefault(field.name, answer.nvmlReturn)
                self._fields.remove(field)
                continue
            value = field_value(answer) * field.scale
            before = sums[field.name].value if field.name in sums else 0.0
            sums[field.name] = Value(field.name, before + value, field.unit)
        for name, status in refused.items():
            if name not in sums:  # a link that is not there is no refusal where others answer
                self._refused[name] = str(self._nvml.NVMLError(status))
        return list(sums.values())

    def read(self, part: str = "") -> list[Value]:
        """The values of this moment, of one part or of all; a call that fails now gives none."""
        parts = _READ_WITH.get(part, (part,)) if part else PARTS
        values = self._read_fields(parts)
        for call in self._calls:
            if call.part in parts:
                with contextlib.suppress(*self._errors):
                    values.append(Value(call.name, float(call.ask()) * call.scale, call.unit))
        return values

    def refused(self) -> dict[str, str]:
        """What this driver does not answer, each with its reason."""
        return dict(self._refused)


def _time_of(ask: Callable[[], Any]) -> int:
    """Return what a call takes, in ns: of two the shorter one, because a core that others take lengthens one."""
    times = []
    for _ in range(2):
        began = time.perf_counter_ns()
        ask()
        times.append(time.perf_counter_ns() - began)
    return min(times)
