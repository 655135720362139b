"""The case: what is measured, fails or is skipped. Every dimension has one name: the flag, the plan key, the column.

`Case` holds the dimensions in their canonical form; `case_key` hashes them (docs/definitions.md, Cases).
This module imports nothing heavy: workers use it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from linkgauge import names

TRANSPORTS = names.TRANSPORTS
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
STATUSES = ("ok", "skipped", "failed", "hung", "timeout", "crashed", "corrupt")
STOP_RULES = ("count", "interval", "duration")

MECHANISM = (
    "transport", "variant", "path", "algorithm", "initiator", "host_leg", "chunk", "blocks", "via", "batch", "buffer",
    "write_combined", "huge_pages", "managed",
)  # fmt: skip
"""Dimensions that say how it is done."""
MEASURING = ("size_asked", "verify", "warmup", "stop")
"""What only says how long and how thoroughly is measured: cases that differ in nothing else are one and the same
thing, measured twice."""
LATER_DIMENSIONS: dict[str, str | int] = {
    "managed": "", "source_device": -1, "target_device": -1, "cpu_node": -1, "groups": 1,
}  # fmt: skip
"""Dimensions that came after the first runs were stored, with their defaults: a case that does not use them keeps its
key, and a run folder without their columns is read as one that did not use them: older runs and baselines stay good."""


@dataclasses.dataclass(frozen=True)
class StopRule:
    """When to stop sampling. Every rule is bounded by `time_ns`; `duration` samples as long as that."""

    rule: Literal["count", "interval", "duration"] = "interval"
    samples: int = 1000  # count: how many; interval: at most this many
    relative_half_width: float = 0.025  # interval: half width of the median's 95 % interval over the median
    time_ns: int = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class Case:
    """One case. Fields are the dimensions, in canonical form; the defaults are those of docs/definitions.md.

    `devices` are ordinals in PCI order, one entry for each rank that takes part, in the order of ranks.
    `size_asked` is what the user asked for; `size` is m, restated as whole blocks where the pattern cuts
    blocks. Both in bytes.
    """

    transport: str
    pattern: str
    size: int
    size_asked: int
    devices: tuple[int, ...]
    variant: str = ""
    ranks_per_device: int = 1
    source_memory: str = "device"
    target_memory: str = "device"
    source_node: int = -1  # NUMA node of host memory; -1: nearest to the device
    target_node: int = -1
    write_combined: bool = False
    huge_pages: bool = False
    cadence: str = "isolated"
    arrival: str = "deadline"
    skew_ns: int = 0
    clock: str = "host"
    window: int = 1
    batch: int = 20
    root: int = 0
    datatype: str = "float32"
    op: str = "sum"
    in_place: bool = False
    path: str = ""
    buffer: str = ""
    algorithm: str = ""
    initiator: str = "sender"
    host_leg: str = ""
    chunk: int = 0
    blocks: int = 0
    via: int = -1
    managed: str = ""
    source_device: int = -1  # whose memory stream_copy reads; -1: each device its own
    target_device: int = -1  # whose memory it writes
    cpu_node: int = -1  # cpu_stream: NUMA node of the cores; -1: the device's
    groups: int = 1  # of consecutive ranks, equally many each, that do the same side by side
    verify: str = "final"  # final | each
    warmup: int = 5
    stop: StopRule = StopRule()

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return len(self.devices)

    @property
    def group_ranks(self) -> int:
        """How many ranks do the pattern with each other: n of docs/definitions.md."""
        return len(self.devices) // self.groups

    def dimensions(self) -> dict[str, Any]:
        """The canonical dimensions as plain JSON values, stop rule flattened to `stop_*`, in a fixed order."""
        # By hand: dataclasses.asdict takes ten times as long, and thousands of cases are asked several times each.
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        stop = plain.pop("stop")
        plain["devices"] = list(self.devices)
        plain["ranks"] = self.ranks
        plain["stop_rule"] = stop.rule
        plain["stop_samples"] = stop.samples
        plain["stop_relative_half_width"] = stop.relative_half_width
        plain["stop_time_ns"] = stop.time_ns
        return plain

    @property
    def case_key(self) -> str:
        """Hash of the canonical dimensions: 16 hexadecimal digits."""
        plain = self.dimensions()
        for name, default in LATER_DIMENSIONS.items():
            if plain[name] == default:
                del plain[name]
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def on_devices(self, ordinal_of: Callable[[int], int]) -> Case:
        """The same case on other devices: every ordinal that it names goes through `ordinal_of`."""

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
    def from_dimensions(cls, dimensions: dict[str, Any]) -> Case:
        """The case of a `dimensions()` result, as cases.parquet and the journal hold it. Unknown keys are ignored."""
        known = {field.name for field in dataclasses.fields(cls)} - {"stop", "devices"}
        values = {key: value for key, value in dimensions.items() if key in known}
        stop = StopRule(
            rule=dimensions["stop_rule"],
            samples=dimensions["stop_samples"],
            relative_half_width=dimensions["stop_relative_half_width"],
            time_ns=dimensions["stop_time_ns"],
        )
        return cls(devices=tuple(dimensions["devices"]), stop=stop, **values)


TASK = tuple(field.name for field in dataclasses.fields(Case) if field.name not in {*MECHANISM, *MEASURING, "size"})
"""Dimensions that say what is done: with MECHANISM, all that tells curves apart. One that is added to `Case` is one of
these until it is named above."""
DEFAULTS: dict[str, Any] = {
    field.name: field.default for field in dataclasses.fields(Case) if field.default is not dataclasses.MISSING
}
"""What a dimension is where nobody asked for anything else."""


def held_apart(*compared: str) -> tuple[str, ...]:
    """Names of the dimensions that two cases must share to be compared by `compared`: all others, sizes among them.

    KeyError for a name that is no dimension, or only one of MEASURING.
    """
    names = (*TASK, *MECHANISM, "size")
    for name in compared:
        if name not in names:
            raise KeyError(name)
    return tuple(name for name in names if name not in compared)


def values_of(row: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    """The row's values by which it is grouped, lists as tuples."""
    return tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in names)
