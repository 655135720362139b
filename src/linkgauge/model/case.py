"""The case: what is measured, fails or is skipped. Every dimension has one name: the flag, the plan key, the column.

`Case` holds the dimensions in their canonical form; `case_key` hashes them (docs/definitions.md, Cases). What is
known of a dimension stands at its field alone: flags, plan keys, columns, what the core is given, and by what two cases
may be compared come from there. So a dimension is one file's matter, which is why this one is long.

Each dimension is of one of the five parts that core/base/case_spec.h has (`Part`, `PARTS`). Parts are lists of names,
and no objects within a case: flags, plan keys, columns and the core's own names are flat, a dimension's one name is the
same everywhere, and what takes several dimensions together compares them by name.

Dimensions that are written in words (`Worded`) are parsed where a case is made, and nowhere else. This module imports
nothing heavy: workers use it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.background import FIRST, Pace, WrittenLoads, load_text, written_loads
from linkgauge.model.dimension import Dimension, Part, Says, row
from linkgauge.model.elements import ELEMENT_BYTES
from linkgauge.model.patterns import PATTERN_ALIASES, PATTERNS, SIDE_BY_SIDE, STRIPED
from linkgauge.model.stop_rule import STOP_FIELDS, StopRule
from linkgauge.model.traits import having
from linkgauge.model.transports import NAMED_ALONE, SHOWN_ALIASES, TRANSPORT_NAMES, TRANSPORTS
from linkgauge.model.values import (
    APP,
    BESIDE,
    CORES,
    DEVICE,
    DEVICE_OR_NONE,
    DISTRIBUTION,
    NODE,
    RANKS,
    SERVICE_CLASS,
    SIZE,
    SIZES,
    VERIFY,
    WORD,
    YES_OR_NO,
    count,
    one_of,
    one_of_or_all,
    time_ns,
)
from linkgauge.model.worded import App, LibrarySettings, ServiceClass, Worded, follows

MEMORY_KINDS = ("device", "pinned", "pageable", "managed")
CADENCES = ("isolated", "streaming", "gated", "barrier")
MANAGED_USES = (
    "default", "migrate", "zero_copy", "prefetch", "preferred_device", "preferred_host", "accessed_by", "read_mostly",
)  # fmt: skip
ARRIVALS = ("deadline", "skewed", "free")
CLOCKS = ("host", "event")
OPS = ("sum", "prod", "min", "max", "avg")
STATUSES = ("ok", "skipped", "failed", "hung", "timeout", "crashed", "corrupt", "disturbed")


ONLY_BY_NAME = (
    *SIDE_BY_SIDE.values(),
    *having(PATTERNS, "scripted"),
    *having(PATTERNS, "computes"),
)  # patterns that `all` leaves out


_STOP = "When to stop"


@dataclasses.dataclass(frozen=True)
class LoadCase:
    """One load of a case: what it does, as a case of its own, and at which pace.

    `mpi`: the MPI library of the launch of its own that it is; empty: it is a job of the measured launch.
    """

    case: Case
    pace: Pace = field(default=Pace())
    mpi: str = ""

    @property
    def text(self) -> str:
        """The load in canonical form."""
        return load_text(*self._words(",".join(map(str, self.case.devices))))

    def _words(self, on: str) -> tuple[dict[str, Any], str, Pace, str]:
        """What `load_text` takes; all that is not the default."""
        plain = self.case.dimensions()
        told = (name for name in LOAD_ROWS if name in FIRST or plain[name] != DEFAULTS[name])
        return {name: plain[name] for name in told}, on, self.pace, self.mpi


@dataclasses.dataclass(frozen=True)
class Loads(Worded):
    """A case's background loads, in canonical form: each names its devices."""

    each: tuple[LoadCase, ...] = follows(())

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of_text(cls, text: str) -> Loads:
        """The loads of a text. UsageError where it is none, or not in canonical form."""
        found = []
        for load in loads_written(text).each if text else ():
            if isinstance(load.where, str):
                raise UsageError(f"load '{text}' names no devices: expected on=0,1")
            values = {**load.values, "size_requested": load.values["size"], "devices": load.where}
            found.append(LoadCase(Case(**values), load.pace, load.mpi))
        return cls(text, tuple(found))

    @classmethod
    def of(cls, loads: Iterable[LoadCase]) -> Loads:
        """These loads. What differs in devices alone is written once, and read as ranks and readers will read it."""
        places: list[tuple[str, list[str]]] = []
        for load in loads:
            words, devices = load_text(*load._words(_PLACES)), ",".join(map(str, load.case.devices))
            if places and places[-1][0] == words:
                places[-1][1].append(devices)
            else:
                places.append((words, [devices]))
        return cls.of_text("; ".join(words.replace(_PLACES, "+".join(devices)) for words, devices in places))

    @property
    def within(self) -> list[tuple[int, LoadCase]]:
        """Those that are jobs of the case's own launch, each with its number, from 1."""
        return [(number, load) for number, load in enumerate(self.each, 1) if not load.mpi]

    @property
    def own_launches(self) -> list[tuple[int, LoadCase]]:
        """Those that are launches of their own, each with its number, from 1."""
        return [(number, load) for number, load in enumerate(self.each, 1) if load.mpi]


_PLACES = "\0"  # in a load's words, in place of its devices
NO_LOADS = Loads()


@dataclasses.dataclass(frozen=True)
class Case:
    """One case. Fields are the dimensions, in canonical form; the defaults are those of docs/definitions.md.

    `devices` are ordinals in PCI order, one entry for each rank that takes part, in the order of ranks. Where it does
    not lie on the run's first node alone they are numbers of places: node k's device d is k `devices_per_node` + d.
    `size_requested` is what the user requested; `size` is m, restated as whole blocks where the pattern cuts
    blocks. Both in bytes.

    >>> case = Case("kernel", "pingpong", size=8, size_requested=8, devices=(0, 1))
    >>> case.ranks, case.window, case.stop.rule
    (2, 1, 'interval')
    >>> case == Case.from_dimensions(case.dimensions())
    True
    """

    # fmt: off
    transport: str = field(metadata=row(
        Part.OPTIONS, Says.HOW, "Mechanisms of 'linkgauge list transports', such as nccl.",
        one_of_or_all(TRANSPORTS, "transport", NAMED_ALONE, SHOWN_ALIASES, TRANSPORT_NAMES)))
    pattern: str = field(metadata=row(
        Part.TRAFFIC, Says.WHAT, "Patterns of 'linkgauge list patterns', such as allreduce.",
        one_of_or_all(PATTERNS, "pattern", ONLY_BY_NAME, PATTERN_ALIASES)))
    size: int = field(metadata=row(
        Part.TRAFFIC, Says.SIZE, "Message sizes: 8, 64KiB, or a range 1:1GiB:x4.", SIZES, core="size_bytes"))
    size_requested: int = field(metadata={"part": Part.TRAFFIC, "says": Says.HOW_LONG, "core": ""})
    devices: tuple[int, ...] = field(metadata=row(
        Part.PLACES, Says.WHAT, "Ranks to use, from the first device on.", RANKS, name="ranks", core=""))
    variant: str = field(default="", metadata=row(
        Part.OPTIONS, Says.HOW, "Variant of the transport, or default.", WORD))
    ranks_per_device: int = field(default=1, metadata=row(
        Part.PLACES, Says.WHAT, "Number of ranks on each device.", count(1, 1024), core="", load=False))
    source_memory: str = field(default="device", metadata=row(
        Part.PLACES, Says.WHAT, "Memory to send from.", one_of(MEMORY_KINDS)))
    target_memory: str = field(default="device", metadata=row(
        Part.PLACES, Says.WHAT, "Memory to receive into.", one_of(MEMORY_KINDS)))
    source_node: int = field(default=-1, metadata=row(
        Part.PLACES, Says.WHAT, "NUMA node of the source's host memory; -1 is the nearest.", NODE, core=""))
    target_node: int = field(default=-1, metadata=row(
        Part.PLACES, Says.WHAT, "NUMA node of the target's host memory; -1 is the nearest.", NODE, core=""))
    write_combined: bool = field(default=False, metadata=row(
        Part.PLACES, Says.HOW, "Write-combined pinned memory: yes or no.", YES_OR_NO, core=""))
    huge_pages: bool = field(default=False, metadata=row(
        Part.PLACES, Says.HOW, "Huge pages for host memory: yes or no.", YES_OR_NO, core=""))
    cadence: str = field(default="isolated", metadata=row(
        Part.TIMING, Says.WHAT, "Spacing and timing of operations.", one_of(CADENCES)))
    arrival: str = field(default="deadline", metadata=row(
        Part.TIMING, Says.WHAT, "Arrival of the ranks at an operation.", one_of(ARRIVALS)))
    skew_ns: int = field(default=0, metadata=row(
        Part.TIMING, Says.WHAT, "Delay of a skewed arrival: rank k arrives k times this later.", time_ns()))
    clock: str = field(default="host", metadata=row(
        Part.TIMING, Says.WHAT, "Clock that times: the host's, or the device's events.", one_of(CLOCKS)))
    window: int = field(default=1, metadata=row(
        Part.TRAFFIC, Says.WHAT, "Number of messages in flight in one operation.", count(1, 1 << 20)))
    batch: int = field(default=20, metadata=row(
        Part.TIMING, Says.HOW, "Number of operations in one streaming or gated sample.", count(1, 1 << 20), load=True))
    root: int = field(default=0, metadata=row(
        Part.TRAFFIC, Says.WHAT, "Root rank of rooted patterns.", count(0, expected="a rank, from 0 on")))
    datatype: str = field(default="float32", metadata=row(
        Part.TRAFFIC, Says.WHAT, "Element type of reductions.", one_of(ELEMENT_BYTES)))
    op: str = field(default="sum", metadata=row(
        Part.TRAFFIC, Says.WHAT, "Reduction.", one_of(OPS)))
    in_place: bool = field(default=False, metadata=row(
        Part.TRAFFIC, Says.WHAT, "In-place collectives: yes or no.", YES_OR_NO, load=False))
    distribution: str = field(default="", metadata=row(
        Part.TRAFFIC, Says.WHAT,
        "Distribution of alltoallv (zipf:1.2, moe:64:8, file:PATH), halo (2x2) or shift.",
        DISTRIBUTION, later=True))
    path: str = field(default="", metadata=row(
        Part.OPTIONS, Says.HOW, "Path that the library must take: direct, pcie, host, or default.", WORD, load=False))
    buffer: str = field(default="", metadata=row(
        Part.OPTIONS, Says.HOW, "Buffers of NCCL, UCX and libfabric: who allocates and registers them.",
        one_of(("plain", "allocated", "registered", "symmetric"), blank="plain")))
    algorithm: str = field(default="", metadata=row(
        Part.OPTIONS, Says.HOW, "Algorithm that the library must take, or default.", WORD, load=False))
    initiator: str = field(default="sender", metadata=row(
        Part.OPTIONS, Says.HOW, "Rank that starts one-sided copies.", one_of(("sender", "receiver"))))
    host_leg: str = field(default="", metadata=row(
        Part.OPTIONS, Says.HOW, "Copies of staging between two hosts' buffers.",
        one_of(("default", "mpi", "memcpy"), blank="default")))
    chunk: int = field(default=0, metadata=row(
        Part.OPTIONS, Says.HOW, "Chunk size of pipelined variants and nixl descriptors; 0 is automatic.", SIZE,
        core="chunk_bytes"))
    blocks: int = field(default=0, metadata=row(
        Part.OPTIONS, Says.HOW, "Number of thread blocks of kernel and nvshmem; 0 is automatic.", count(0, 1 << 20)))
    via: int = field(default=-1, metadata=row(
        Part.OPTIONS, Says.HOW, "Third device that copy_engine and kernel copy through; -1 is none.", DEVICE_OR_NONE))
    managed: str = field(default="", metadata=row(
        Part.PLACES, Says.HOW, "Managed memory: the advice to the driver, and what moves its pages.",
        one_of(MANAGED_USES, blank="default"), later=True, core=""))
    source_device: int = field(default=-1, metadata=row(
        Part.PLACES, Says.WHAT, "Memory that stream_copy reads: its own or that of another device.", DEVICE,
        later=True))
    target_device: int = field(default=-1, metadata=row(
        Part.PLACES, Says.WHAT, "Memory that stream_copy writes: its own or that of another device.",
        DEVICE, later=True))
    cpu_node: int = field(default=-1, metadata=row(
        Part.PLACES, Says.WHAT, "NUMA node of the cores of host_stream; -1 is the device's.", NODE,
        later=True))
    devices_per_node: int = field(default=0, metadata={
        "part": Part.PLACES, "says": Says.HOW_LONG, "core": "", "later": True})
    groups: int = field(default=1, metadata=row(
        Part.PLACES, Says.WHAT, "Number of equal groups of ranks that run a collective at the same time.",
        count(1, 1 << 19), later=True, load=False))
    background: Loads = field(default=NO_LOADS, metadata=row(
        Part.JOBS, Says.WHAT, "Background loads, as 'mpi alltoall 1MiB on=2,3 duty=0.5'.", BESIDE,
        later=True, core="", load=False))
    cpu_cores: str = field(default="", metadata=row(
        Part.PLACES, Says.WHAT, "Cores of host_stream, as 0-3,8; those of its NUMA node by default.", CORES,
        later=True))
    service_class: ServiceClass = field(default=ServiceClass(), metadata=row(
        Part.OPTIONS, Says.HOW, "Service class of the messages: a service level, dscp:N, or one of Slingshot.",
        SERVICE_CLASS, later=True, core=""))
    gpudirect: str = field(default="", metadata=row(
        Part.OPTIONS, Says.HOW, "GPUDirect RDMA between nodes, by the library's own switch.",
        one_of(("on", "off"), blank="default"), later=True, core="", load=False))
    handles: str = field(default="", metadata=row(
        Part.PLACES, Says.HOW, "Handles by which copy_engine and kernel open another process's memory.",
        one_of(("ipc", "fabric"), blank="ipc"), later=True, core=""))
    app: App = field(default=App(), metadata=row(
        Part.TRAFFIC, Says.WHAT, "Application: a name of 'linkgauge apps', or a step file.", APP,
        later=True, core="", load=False))
    collectives: str = field(default="", metadata=row(
        Part.OPTIONS, Says.HOW, "Mechanism of an application's collectives; that of its messages by default.",
        one_of(("default", *TRANSPORTS), "default", SHOWN_ALIASES, ("default", *TRANSPORT_NAMES)),
        later=True, load=False))
    # Of searches (linkgauge/tune) alone.
    settings: LibrarySettings = field(default=LibrarySettings(), metadata={
        "part": Part.OPTIONS, "says": Says.HOW, "core": None, "later": True})
    copies: str = field(default="", metadata=row(
        Part.OPTIONS, Says.HOW, "Mechanism of an application's copies and emulated kernels.",
        one_of(("copy_engine", "kernel"), blank="copy_engine"), later=True, load=False))
    verify: str = field(default="final", metadata=row(
        Part.TIMING, Says.HOW_LONG, "Operations to check: final (the first and last), each, or N untimed ones more.",
        VERIFY, core=""))
    warmup: int = field(default=5, metadata=row(
        Part.TIMING, Says.HOW_LONG, "Number of operations before the first sample.", count(0, 1 << 30)))
    stop: StopRule = field(default=StopRule(), metadata={
        "part": Part.TIMING, "says": Says.HOW_LONG, "core": ""})
    # fmt: on

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return len(self.devices)

    @property
    def group_ranks(self) -> int:
        """How many ranks do the pattern with each other: n of docs/definitions.md."""
        return len(self.devices) // self.groups

    @property
    def routed(self) -> bool:
        """Whether its copies go through other devices: the one that it names, or all (variant striped)."""
        return self.via >= 0 or (self.variant == STRIPED and PATTERNS[self.pattern].routed)

    @property
    def checks(self) -> int:
        """How many untimed operations more are checked."""
        return int(self.verify) if self.verify.isdecimal() else 0

    @property
    def jobs(self) -> list[Case]:
        """The jobs of its own launch: the measured one, then loads."""
        return [self, *(load.case for _, load in self.background.within)]

    @property
    def ranks_needed(self) -> int:
        """How many ranks each device of its launch must have: a load shares no rank with another job."""
        entries = Counter(device for job in self.jobs for device in job.devices)
        return max([self.ranks_per_device, *entries.values()])

    def node_of(self, device: int) -> int:
        """The number of the node, among the run's, that one of its devices is of."""
        return device // self.devices_per_node if self.devices_per_node else 0

    def on_its_node(self, device: int) -> int:
        """The ordinal of one of its devices on its own node; below 0 as it is."""
        return device % self.devices_per_node if self.devices_per_node and device >= 0 else device

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of the nodes that it lies on, in the order of their first ranks."""
        return tuple(dict.fromkeys(self.node_of(device) for device in self.devices))

    def dimensions(self) -> dict[str, Any]:
        """The canonical dimensions as plain JSON values, stop rule flattened, in a fixed order."""
        # By one getter: dataclasses.asdict takes ten times as long, and thousands of cases are asked often.
        plain: dict[str, Any] = dict(zip(_PLAIN, _plain_of(self), strict=False))
        plain["devices"] = list(self.devices)
        return plain

    @functools.cached_property  # asked for some ten times, at 60 us each
    def case_key(self) -> str:
        """Hash of the canonical dimensions: 16 hexadecimal digits."""
        plain = self.dimensions()
        for name, default in LATER_DIMENSIONS.items():
            if plain[name] == default:
                del plain[name]
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def on_devices(self, ordinal_of: Callable[[int], int]) -> Case:
        """The same case on other devices: every ordinal that it or a load of it names goes through `ordinal_of`."""
        named: dict[str, Any] = {
            name: ordinal_of(device) for name in NAMING_DEVICES if (device := getattr(self, name)) >= 0
        }
        loads = (dataclasses.replace(one, case=one.case.on_devices(ordinal_of)) for one in self.background.each)
        return dataclasses.replace(
            self,
            background=Loads.of(loads),
            devices=tuple(ordinal_of(device) for device in self.devices),
            **named,
        )

    @classmethod
    def from_dimensions(cls, dimensions: Mapping[str, Any]) -> Case:
        """The case of a `dimensions()` result, as cases.parquet and the journal hold it. Unknown keys are ignored."""
        values = {name: dimensions[name] for name in _NAMES if name in dimensions}
        for name, kind in WORDED.items():
            if text := values.pop(name, ""):
                values[name] = kind.of_text(text)
        values["devices"] = tuple(dimensions["devices"])
        return cls(stop=StopRule(**{of: dimensions[name] for name, of in STOP_FIELDS.items()}), **values)


_FIELDS = dataclasses.fields(Case)
_NAMES = tuple(one.name for one in _FIELDS if one.name != "stop")
WORDED: dict[str, type[Worded]] = {one.name: type(one.default) for one in _FIELDS if isinstance(one.default, Worded)}
"""By dimension that is written in words what its value is."""


USUAL: dict[str, Any] = {one.name: one.default for one in _FIELDS if one.default is not dataclasses.MISSING}
"""What a dimension is, as a case has it, where nobody asked for anything else."""
DEFAULTS: dict[str, Any] = {name: "" if name in WORDED else value for name, value in USUAL.items()}
"""What a dimension is, as a plain value, where nobody asked for anything else."""
LATER_DIMENSIONS: dict[str, str | int] = {one.name: DEFAULTS[one.name] for one in _FIELDS if one.metadata.get("later")}
"""Dimensions that came after the first runs were stored, with their defaults."""
LOAD_SETTINGS = tuple(one.name for one in _FIELDS if one.metadata.get("load") and one.name in DEFAULTS)
"""Dimensions that a load may set beside transport, pattern and size: none that a launch or a clock has as a whole."""
CORE_NAMES: dict[str, str] = {
    one.name: one.metadata["core"] or one.name for one in _FIELDS if one.metadata["core"] != ""
}
"""By dimension its name in core/base/case_spec.h; without those that run/wire/spec.py says in other words."""


_PLAIN = {
    **{name: f"{name}.text" if name in WORDED else name for name in _NAMES},
    "ranks": "ranks",
    **{name: f"stop.{of}" for name, of in STOP_FIELDS.items()},
}
_plain_of = operator.attrgetter(*_PLAIN.values())


def _written() -> dict[str, Dimension]:
    rules = {of: name for name, of in STOP_FIELDS.items()}
    found = {}
    for names, fields in (({}, _FIELDS), (rules, dataclasses.fields(StopRule))):
        for one in fields:
            if "written" in one.metadata:
                name, help, values = one.metadata["written"]
                _, heading = one.metadata["part"].value
                name = names.get(one.name) or name or one.name
                found[name] = Dimension(name, help, _STOP if names else heading, values)
    return found


DIMENSIONS: dict[str, Dimension] = _written()
"""How each dimension is written, by column: the stop rule's are `stop_*`, `ci_width` and `max_time_ns`.

Devices are asked for by how many `ranks`.
"""

NAMING_DEVICES = tuple(name for name, one in DIMENSIONS.items() if one.values in (DEVICE, DEVICE_OR_NONE))
"""Dimensions of which each is a device, or none: below 0."""
NAMING_NODES = tuple(name for name, one in DIMENSIONS.items() if one.values is NODE)
"""Dimensions of which each is a NUMA node, or none: below 0."""
LOAD_ROWS = {name: DIMENSIONS[name] for name in (*FIRST, *LOAD_SETTINGS)}
"""Dimensions of a load, as they are written: those that it must have, then those that it may set."""


def loads_written(text: str) -> WrittenLoads:
    """The loads that a text is of. UsageError naming the load, what was read and what was expected."""
    return written_loads(text, LOAD_ROWS)
