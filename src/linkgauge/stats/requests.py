"""What a case requested, and whether it held: a verdict a request, from what the run stored alone.

Requests are the dimensions that a library is to follow (path, algorithm, service class, GPUDirect RDMA), the variables
of the launch, and how it was started. Evidence is NCCL's log, bytes of network cards and NVLinks, the kernel's counts,
and what the library itself says that it has. What none of these tells is unknown (docs/definitions.md, Requests).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from linkgauge.model.case import Case
from linkgauge.model.result import Launch
from linkgauge.stats.crossing import Crossing
from linkgauge.stats.link_bytes import LinkBytes

State = Literal["held", "not_held", "unknown"]
Registered = tuple[int, int]
"""On one node: registrations of GPU memory that were made while a case went on, and held before it."""


@dataclasses.dataclass(frozen=True)
class RequestVerdict:
    """One request of a case, whether it held, and by what that is known, or why it is not, in a few words."""

    requested: str
    state: State
    evidence: str
    in_use: bool = True  # False: no case of the run uses the library whose request it is
    is_around: bool = False  # a request to go past the devices' own links


@dataclasses.dataclass(frozen=True)
class Known:
    """What a run stored of one case that tells how it was done.

    `nodes` is the node of each rank, `cards` whether nodes have RDMA cards, `addresses` by node the network of each
    interface, `read` which variables NCCL said that it read, by launch; None where it was not queried.
    """

    case: Case
    launch: Launch = dataclasses.field(default_factory=Launch)
    nodes: tuple[str, ...] = ()
    chosen: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    operations: int = 0
    crossing: Crossing | None = None
    moved: LinkBytes | None = None
    registered: Sequence[Registered] = ()
    rdma: frozenset[str] = frozenset()
    addresses: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    read: Mapping[str, str] | None = None
    multicast_used: bool = False  # by any case of its launch
    transports: frozenset[str] = frozenset()  # of all cases of the run
    huge_pages: str = ""  # the kernel's setting: `always [madvise] never`
    huge_share: float | None = None  # of the bytes of buffers that requested huge pages
    node_shares: Mapping[int, float] = dataclasses.field(default_factory=dict)  # by NUMA node that buffers requested

    def count(self, name: str) -> int | None:
        """A number of what was chosen; None where it is not known, or a stranger's word."""
        found = self.chosen.get(name)
        return found if isinstance(found, int) else None


Judge = Callable[[Known], Iterable[RequestVerdict]]


def held(requested: str, evidence: str) -> RequestVerdict:
    """Return that it held, and by what that is known."""
    return RequestVerdict(requested, "held", evidence)


def not_held(requested: str, evidence: str) -> RequestVerdict:
    """Return that it did not hold, and what was done instead."""
    return RequestVerdict(requested, "not_held", evidence)


def judged(right: bool, requested: str, evidence: str) -> RequestVerdict:
    """Return whether it held, and what shows it."""
    return RequestVerdict(requested, "held" if right else "not_held", evidence)


def unknown(requested: str, evidence: str) -> RequestVerdict:
    """Return that it is not known, and why."""
    return RequestVerdict(requested, "unknown", evidence)
