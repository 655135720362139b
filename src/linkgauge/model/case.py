"""The case: what is measured, fails or is skipped. Every dimension has one name: the flag, the plan key, the column.

`Case` holds the dimensions in their canonical form; `case_key` hashes them (docs/definitions.md, Cases). What is
known of a dimension stands at its field alone: flags, plan keys, columns, what the core is given, and by what two cases
may be compared come from there. This module imports nothing heavy: workers use it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Literal

from linkgauge.model.dimension import (
    APP,
    BESIDE,
    CORES,
    DEVICE,
    DISTRIBUTION,
    NODE,
    RANKS,
    SERVICE_CLASS,
    SIZE,
    SIZES,
    VERIFY,
    WORD,
    YES_OR_NO,
    Dimension,
    Values,
    count,
    number_in,
    one_of,
    one_of_or_all,
    time_ns,
)
from linkgauge.model.patterns import PATTERN_ALIASES, PATTERNS, SIDE_BY_SIDE
from linkgauge.model.traits import having
from linkgauge.model.transports import NAMED_ALONE, TRANSPORT_ALIASES, TRANSPORT_NAMES, TRANSPORTS

MEMORY_KINDS = ("device", "pinned", "pageable", "managed")
CADENCES = ("isolated", "streaming", "gated", "barrier")
MANAGED_USES = (
    "default", "migrate", "zero_copy", "prefetch", "preferred_device", "preferred_host", "accessed_by", "read_mostly",
)  # fmt: skip
ARRIVALS = ("deadline", "skewed", "free")
CLOCKS = ("host", "event")
DATATYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2",
)  # fmt: skip
OPS = ("sum", "prod", "min", "max", "avg")
STATUSES = ("ok", "skipped", "failed", "hung", "timeout", "crashed", "corrupt", "disturbed")
STOP_RULES = ("count", "interval", "duration")


ONLY_BY_NAME = (
    *SIDE_BY_SIDE.values(),
    *having(PATTERNS, "scripted"),
    *having(PATTERNS, "computes"),
)  # patterns that `all` leaves out


class Says(enum.Enum):
    """What a dimension says of a case."""

    WHAT = "what is done"
    HOW = "how it is done: the mechanism"
    HOW_LONG = (
        "how long and how thoroughly, or in what words: cases that differ in nothing else are one and the same thing, "
        "measured twice"
    )
    SIZE = "the size, along which curves are drawn"


_WHAT, _WHERE, _TIMED, _STOP = "What is moved", "Where it lies", "How it is timed", "When to stop"


def _of(
    says: Says, help: str, group: str, values: Values, *, name: str = "", later: bool = False, core: str | None = None,
    load: bool | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What stands at the field of a dimension. `name`: its own, where the field has another; empty for the field's.

    `later`: it came after the first runs were stored. A case that does not use it keeps its key, and a run folder
    without its column is read as one that did not use it: older runs and baselines stay good. `core`: its name in
    core/case_spec.h, where that is another; empty where spec.py says it in other words. `load`: whether a load may set
    it; by default what says what is moved and where it lies.
    """
    load = group in (_WHAT, _WHERE) if load is None else load
    return {"says": says, "written": (name, help, group, values), "later": later, "core": core, "load": load}


@dataclasses.dataclass(frozen=True)
class StopRule:
    """When to stop sampling. Every rule is bounded by `time_ns`; `duration` samples as long as that."""

    rule: Literal["count", "interval", "duration"] = field(
        default="interval", metadata=_of(Says.HOW_LONG, "Rule that ends the sampling.", _STOP, one_of(STOP_RULES))
    )
    samples: int = field(  # count: how many; interval: at most this many
        default=1000,
        metadata=_of(Says.HOW_LONG, "Samples to take; at most, with the rule interval.", _STOP, count(1, 1_000_000)),
    )
    relative_half_width: float = field(  # interval: half width of the median's 95 % interval over the median
        default=0.025,
        metadata=_of(Says.HOW_LONG, "Half width of the median's interval as a share of it, for interval.", _STOP,
                     number_in(0, 1), name="ci_width"),
    )  # fmt: skip
    time_ns: int = field(
        default=1_000_000_000,
        metadata=_of(
            Says.HOW_LONG,
            "Time to sample at most; the time to sample, with the rule duration.",
            _STOP,
            time_ns(1),
            name="max_time_ns",
        ),
    )


@dataclasses.dataclass(frozen=True)
class Case:
    """One case. Fields are the dimensions, in canonical form; the defaults are those of docs/definitions.md.

    `devices` are ordinals in PCI order, one entry for each rank that takes part, in the order of ranks. Where it does
    not lie on the run's first node alone they are numbers of places: node k's device d is k `devices_per_node` + d.
    `size_asked` is what the user asked for; `size` is m, restated as whole blocks where the pattern cuts
    blocks. Both in bytes.

    >>> case = Case("kernel", "pingpong", size=8, size_asked=8, devices=(0, 1))
    >>> case.ranks, case.window, case.stop.rule
    (2, 1, 'interval')
    >>> case == Case.from_dimensions(case.dimensions())
    True
    """

    # fmt: off
    transport: str = field(metadata=_of(
        Says.HOW, "Mechanisms of 'linkgauge list transports', such as nccl.", _WHAT,
        one_of_or_all(TRANSPORTS, "transport", NAMED_ALONE, TRANSPORT_ALIASES, TRANSPORT_NAMES)))
    pattern: str = field(metadata=_of(
        Says.WHAT, "Patterns of 'linkgauge list patterns', such as allreduce.", _WHAT,
        one_of_or_all(PATTERNS, "pattern", ONLY_BY_NAME, PATTERN_ALIASES)))
    size: int = field(metadata=_of(
        Says.SIZE, "Message sizes: 8, 64KiB, or a range 1:1GiB:x4.", _WHAT, SIZES, core="size_bytes"))
    size_asked: int = field(metadata={"says": Says.HOW_LONG, "core": ""})
    devices: tuple[int, ...] = field(metadata=_of(
        Says.WHAT, "Ranks to use, from the first device on.", _WHERE, RANKS, name="ranks", core=""))
    variant: str = field(default="", metadata=_of(
        Says.HOW, "Variant of the transport, or default.", _WHAT, WORD))
    ranks_per_device: int = field(default=1, metadata=_of(
        Says.WHAT, "Number of ranks on each device.", _WHERE, count(1, 1024), core="", load=False))
    source_memory: str = field(default="device", metadata=_of(
        Says.WHAT, "Memory to send from.", _WHERE, one_of(MEMORY_KINDS)))
    target_memory: str = field(default="device", metadata=_of(
        Says.WHAT, "Memory to receive into.", _WHERE, one_of(MEMORY_KINDS)))
    source_node: int = field(default=-1, metadata=_of(
        Says.WHAT, "NUMA node of the source's host memory; -1 is the nearest.", _WHERE, NODE, core=""))
    target_node: int = field(default=-1, metadata=_of(
        Says.WHAT, "NUMA node of the target's host memory; -1 is the nearest.", _WHERE, NODE, core=""))
    write_combined: bool = field(default=False, metadata=_of(
        Says.HOW, "Write-combined pinned memory: yes or no.", _WHERE, YES_OR_NO, core=""))
    huge_pages: bool = field(default=False, metadata=_of(
        Says.HOW, "Huge pages for host memory: yes or no.", _WHERE, YES_OR_NO, core=""))
    cadence: str = field(default="isolated", metadata=_of(
        Says.WHAT, "Spacing and timing of operations.", _TIMED, one_of(CADENCES)))
    arrival: str = field(default="deadline", metadata=_of(
        Says.WHAT, "Arrival of the ranks at an operation.", _TIMED, one_of(ARRIVALS)))
    skew_ns: int = field(default=0, metadata=_of(
        Says.WHAT, "Delay of a skewed arrival: rank k arrives k times this later.", _TIMED, time_ns()))
    clock: str = field(default="host", metadata=_of(
        Says.WHAT, "Clock that times: the host's, or the device's events.", _TIMED, one_of(CLOCKS)))
    window: int = field(default=1, metadata=_of(
        Says.WHAT, "Number of messages in flight in one operation.", _WHAT, count(1, 1 << 20)))
    batch: int = field(default=20, metadata=_of(
        Says.HOW, "Number of operations in one streaming or gated sample.", _TIMED, count(1, 1 << 20), load=True))
    root: int = field(default=0, metadata=_of(
        Says.WHAT, "Root rank of rooted patterns.", _WHAT, count(0, expected="a rank")))
    datatype: str = field(default="float32", metadata=_of(
        Says.WHAT, "Element type of reductions.", _WHAT, one_of(DATATYPES)))
    op: str = field(default="sum", metadata=_of(
        Says.WHAT, "Reduction.", _WHAT, one_of(OPS)))
    in_place: bool = field(default=False, metadata=_of(
        Says.WHAT, "In-place collectives: yes or no.", _WHAT, YES_OR_NO, load=False))
    distribution: str = field(default="", metadata=_of(
        Says.WHAT,
        "Distribution of alltoallv (zipf:1.2, moe:64:8, file:PATH), halo (2x2) or shift.",
        _WHAT, DISTRIBUTION, later=True))
    path: str = field(default="", metadata=_of(
        Says.HOW, "Path that the library must take: direct, pcie, host, or default.", _WHAT, WORD, load=False))
    buffer: str = field(default="", metadata=_of(
        Says.HOW, "Buffers of NCCL, UCX and libfabric: who allocates and registers them.", _WHAT,
        one_of(("plain", "allocated", "registered", "symmetric"), blank="plain")))
    algorithm: str = field(default="", metadata=_of(
        Says.HOW, "Algorithm that the library must take, or default.", _WHAT, WORD, load=False))
    initiator: str = field(default="sender", metadata=_of(
        Says.HOW, "Rank that starts one-sided copies.", _WHAT, one_of(("sender", "receiver"))))
    host_leg: str = field(default="", metadata=_of(
        Says.HOW, "Copies of staging between two hosts' buffers.", _WHAT,
        one_of(("default", "mpi", "memcpy"), blank="default")))
    chunk: int = field(default=0, metadata=_of(
        Says.HOW, "Chunk size of pipelined variants and nixl descriptors; 0 is automatic.", _WHAT, SIZE,
        core="chunk_bytes"))
    blocks: int = field(default=0, metadata=_of(
        Says.HOW, "Number of thread blocks of kernel and nvshmem; 0 is automatic.", _WHAT, count(0, 1 << 20)))
    via: int = field(default=-1, metadata=_of(
        Says.HOW, "Device that routed copies go through; -1 is none.", _WHAT,
        count(-1, expected="a device")))
    managed: str = field(default="", metadata=_of(
        Says.HOW, "Managed memory: the advice to the driver, and what moves its pages.", _WHERE,
        one_of(MANAGED_USES, blank="default"), later=True, core=""))
    source_device: int = field(default=-1, metadata=_of(
        Says.WHAT, "Memory that stream_copy reads: its own or that of another device.", _WHERE, DEVICE,
        later=True))
    target_device: int = field(default=-1, metadata=_of(
        Says.WHAT, "Memory that stream_copy writes: its own or that of another device.", _WHERE,
        DEVICE, later=True))
    cpu_node: int = field(default=-1, metadata=_of(
        Says.WHAT, "NUMA node of the cores of host_stream; -1 is the device's.", _WHERE, NODE,
        later=True))
    devices_per_node: int = field(default=0, metadata={"says": Says.HOW_LONG, "core": "", "later": True})
    groups: int = field(default=1, metadata=_of(
        Says.WHAT, "Number of equal groups of ranks that run a collective at the same time.", _WHERE,
        count(1, 1 << 19), later=True, load=False))
    background: str = field(default="", metadata=_of(
        Says.WHAT, "Background loads, as 'mpi alltoall 1MiB on=2,3 duty=0.5'.", _WHAT, BESIDE,
        later=True, core="", load=False))
    cpu_cores: str = field(default="", metadata=_of(
        Says.WHAT, "Cores of host_stream, as 0-3,8; those of its NUMA node by default.", _WHERE, CORES,
        later=True))
    service_class: str = field(default="", metadata=_of(
        Says.HOW, "Service class of the messages: a service level, dscp:N, or one of Slingshot.",
        _WHAT, SERVICE_CLASS, later=True, core=""))
    gpudirect: str = field(default="", metadata=_of(
        Says.HOW, "GPUDirect RDMA between nodes, by the library's own switch.",
        _WHAT, one_of(("on", "off"), blank="default"), later=True, core="", load=False))
    handles: str = field(default="", metadata=_of(
        Says.HOW, "Handles by which copy_engine and kernel open another process's memory.",
        _WHERE, one_of(("ipc", "fabric"), blank="ipc"), later=True, core=""))
    app: str = field(default="", metadata=_of(
        Says.WHAT, "Application: a name of 'linkgauge apps', or a step file.", _WHAT, APP,
        later=True, core="", load=False))
    collectives: str = field(default="", metadata=_of(
        Says.HOW, "Mechanism of an application's collectives; that of its messages by default.", _WHAT,
        one_of(("default", *TRANSPORTS), "default", TRANSPORT_ALIASES, ("default", *TRANSPORT_NAMES)),
        later=True, load=False))
    # The library's own during this case, NAME=VALUE NAME=VALUE as it takes them: of searches (linkgauge/tune) alone.
    settings: str = field(default="", metadata={"says": Says.HOW, "core": None, "later": True})
    copies: str = field(default="", metadata=_of(
        Says.HOW, "Mechanism of an application's copies and emulated kernels.",
        _WHAT, one_of(("copy_engine", "kernel"), blank="copy_engine"), later=True, load=False))
    verify: str = field(default="final", metadata=_of(
        Says.HOW_LONG, "Operations to check: final (the first and last), each, or N untimed ones more.",
        _TIMED, VERIFY, core=""))
    warmup: int = field(default=5, metadata=_of(
        Says.HOW_LONG, "Number of operations before the first sample.", _TIMED, count(0, 1 << 30)))
    stop: StopRule = field(default=StopRule(), metadata={"says": Says.HOW_LONG, "core": ""})
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
    def checks(self) -> int:
        """How many untimed operations more are checked."""
        return int(self.verify) if self.verify.isdecimal() else 0

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
        # By hand: dataclasses.asdict takes ten times as long, and thousands of cases are asked several times each.
        plain = {field.name: getattr(self, field.name) for field in _FIELDS}
        stop = plain.pop("stop")
        plain["devices"] = list(self.devices)
        plain["ranks"] = self.ranks
        plain["stop_rule"] = stop.rule
        plain["stop_samples"] = stop.samples
        plain["ci_width"] = stop.relative_half_width
        plain["max_time_ns"] = stop.time_ns
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
        """The same case on other devices: every ordinal that it names goes through `ordinal_of`.

        Its loads keep theirs: model/background.py moves them too.
        """

        def moved(device: int) -> int:
            return device if device < 0 else ordinal_of(device)

        return dataclasses.replace(
            self,
            devices=tuple(ordinal_of(device) for device in self.devices),
            via=moved(self.via),
            source_device=moved(self.source_device),
            target_device=moved(self.target_device),
        )

    @classmethod
    def from_dimensions(cls, dimensions: Mapping[str, Any]) -> Case:
        """The case of a `dimensions()` result, as cases.parquet and the journal hold it. Unknown keys are ignored."""
        values = {name: dimensions[name] for name in _PLAIN if name in dimensions}
        stop = StopRule(
            rule=dimensions["stop_rule"],
            samples=dimensions["stop_samples"],
            relative_half_width=dimensions["ci_width"],
            time_ns=dimensions["max_time_ns"],
        )
        return cls(devices=tuple(dimensions["devices"]), stop=stop, **values)


_FIELDS = dataclasses.fields(Case)
_PLAIN = tuple(field.name for field in _FIELDS if field.name not in ("stop", "devices"))


def _saying(*kinds: Says) -> tuple[str, ...]:
    return tuple(one.name for one in _FIELDS if one.metadata["says"] in kinds)


TASK = _saying(Says.WHAT)
"""Dimensions that say what is done: with MECHANISM, all that tells curves apart."""
MECHANISM = _saying(Says.HOW)
"""Dimensions that say how it is done."""
MEASURING = _saying(Says.HOW_LONG)
"""What only says how long and how thoroughly is measured."""
DEFAULTS: dict[str, Any] = {one.name: one.default for one in _FIELDS if one.default is not dataclasses.MISSING}
"""What a dimension is where nobody asked for anything else."""
LATER_DIMENSIONS: dict[str, str | int] = {one.name: DEFAULTS[one.name] for one in _FIELDS if one.metadata.get("later")}
"""Dimensions that came after the first runs were stored, with their defaults."""
LOAD_SETTINGS = tuple(one.name for one in _FIELDS if one.metadata.get("load") and one.name in DEFAULTS)
"""Dimensions that a load may set beside transport, pattern and size: none that a launch or a clock has as a whole."""
CORE_NAMES: dict[str, str] = {
    one.name: one.metadata["core"] or one.name for one in _FIELDS if one.metadata["core"] != ""
}
"""By dimension its name in core/case_spec.h; without those that run/wire/spec.py says in other words."""


def _written() -> dict[str, Dimension]:
    found = {}
    for prefix, fields in (("", _FIELDS), ("stop_", dataclasses.fields(StopRule))):
        for one in fields:
            if "written" in one.metadata:
                name, *row = one.metadata["written"]
                dimension = Dimension(name or prefix + one.name, *row)
                found[dimension.name] = dimension
    return found


DIMENSIONS: dict[str, Dimension] = _written()
"""How each dimension is written, by column: the stop rule's are `stop_*`, `ci_width` and `max_time_ns`.

Devices are asked for by how many `ranks`.
"""


def held_apart(*compared: str) -> tuple[str, ...]:
    """Names of the dimensions that two cases must share to be compared by `compared`: all others, sizes among them.

    KeyError for a name that is no dimension, or only one of MEASURING.
    """
    names = (*TASK, *MECHANISM, "size")
    for name in compared:
        if name not in names:
            raise KeyError(name)
    return tuple(name for name in names if name not in compared)


def values_of(case: Case, names: Iterable[str]) -> tuple[Any, ...]:
    """The case's values of some dimensions: what cases are grouped by."""
    return tuple(getattr(case, name) for name in names)
