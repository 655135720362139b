"""What a run measured: its launches, the rows of its cases, and results, which have figures where they were measured.

The store makes launches and rows from its tables, `stats/summary.py` makes results from these. Nothing above either
reads a column by its name, but where columns are what is written (exports, SQL). Times are in ns of one iteration,
rates in bytes per second, sizes in bytes, unless a name says otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from linkgauge.model.case import Case

Identity = tuple[str, int, int, int]
"""What tells a row of the cases from all others: case_key, launch, repeat and attempt."""
HEADLINE = -1
"""The lane of a case's result as a whole."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rank:
    """A process of a launch, or a thread, with its device. Empty texts and None: not stored.

    >>> import linkgauge
    >>> rank = linkgauge.load("linkgauge-demo").launched[0].ranks[1]
    >>> rank.rank, rank.device_name, rank.device_ordinal
    (1, 'NVIDIA H100 80GB HBM3', 1)
    """

    rank: int = 0
    host: str = ""
    pid: int | None = None
    cores: tuple[int, ...] = ()
    memory_node: int | None = None
    device_uuid: str = ""
    device_serial: str = ""
    device_pci_address: str = ""
    device_vbios: str = ""
    device_name: str = ""
    device_kind: str = ""
    device_ordinal: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a library of a launch, `by`, says of a variable: whether it has it, and its value where it tells that."""

    known: bool
    by: str
    value: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Ranks that were started together, in the order of their numbers.

    `mpi` has the library's name, version and vendor, `versions` those of all other libraries by name, `clock` what the
    clocks resolve, in ns; `places` the device of each rank as cases number it, where the launch has not all nodes of
    its run; `contents` what its key is made of (docs/definitions.md); `not_observed` what some rank could not observe;
    `derived_env` the variables that its cases' dimensions mean; `answers` what its libraries say of any of them.

    >>> import linkgauge
    >>> launch = linkgauge.load("linkgauge-demo").launched[0]
    >>> launch.launch, len(launch.ranks), "nccl" in launch.versions
    (0, 2, True)
    """

    launch: int = 0
    launch_key: str = ""
    mpi: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    clock: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()
    places: tuple[int, ...] = ()
    contents: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    not_observed: frozenset[str] = frozenset()
    derived_env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    answers: Mapping[str, Answer] = dataclasses.field(default_factory=dict)

    @property
    def mpi_name(self) -> str:
        """The name of its MPI library; empty without one."""
        return str(self.mpi.get("name") or "")

    @property
    def mpi_vendor(self) -> str:
        """The vendor of its MPI library; empty where it is not known."""
        return str(self.mpi.get("vendor") or "")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its ranks, each once."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))


class OfCase:
    """What is of one case: its transport, pattern, size and devices by themselves."""

    __slots__ = ()
    case: Case

    @property
    def transport(self) -> str:
        """The case's transport."""
        return self.case.transport

    @property
    def pattern(self) -> str:
        """The case's pattern."""
        return self.case.pattern

    @property
    def size(self) -> int:
        """The case's size in bytes."""
        return self.case.size

    @property
    def devices(self) -> tuple[int, ...]:
        """The case's devices, one for each rank."""
        return self.case.devices

    @property
    def ranks(self) -> int:
        """How many ranks take part."""
        return len(self.case.devices)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Row(OfCase):
    """One row of the cases: a case in one launch, repeat and attempt.

    >>> from linkgauge.store.run import load
    >>> row = next(row for row in load("h100x2").rows() if row.pattern == "allreduce")
    >>> row.transport, row.size, row.devices, row.status
    ('ccl', 1024, (0, 1), 'ok')
    """

    case: Case
    case_key: str
    launch: int = 0
    repeat: int = 0
    attempt: int = 0
    planned_launch: int = 0
    status: str | None = None  # None: the run ended, or has not come, before anything was said of it
    reason: str = ""
    lanes: tuple[str, ...] = ()  # their names
    bytes_per_peer: int | None = None
    bytes_total: int | None = None
    converged: bool | None = None
    coarse: bool | None = None
    oversubscribed: bool | None = None
    verified: bool | None = None
    operations_total: int | None = None
    operations_checked: int | None = None
    evidence: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        """(case_key, launch, repeat, attempt)."""
        return (self.case_key, self.launch, self.repeat, self.attempt)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Result(Row):
    """A row as a summary has it, or one of its lanes. Without figures unless it is a `Measured`.

    >>> import linkgauge
    >>> from linkgauge.stats.summary import results_of
    >>> one = results_of(linkgauge.load("linkgauge-demo"))[0]
    >>> one.status, one.is_headline, isinstance(one, Measured)
    ('ok', True, True)
    """

    lane: int = HEADLINE
    lane_name: str = ""
    launch_key: str = ""  # empty: its launch never began
    library: str = ""  # of transport mpi or ccl: name and version
    distance: str = ""  # of the two ranks that are farthest apart; empty where it is not known

    @property
    def is_headline(self) -> bool:
        """Whether it is of the case as a whole."""
        return self.lane == HEADLINE

    @property
    def out_of_time(self) -> bool:
        """Whether its own time limit ended it: it was not measured, and did not fail."""
        return self.evidence.get("stopped_by") == "timeout"


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Measured(Result):
    """A result with figures, or those of several repeats joined.

    `interval`: the 95 % interval of the median. `samples` are those after the `warmup_cut`, `effective_samples` how
    many independent ones these are worth. A rate is None where the pattern has none, p99 where samples are too few.

    >>> import linkgauge
    >>> from linkgauge.stats.summary import results_of
    >>> one = next(one for one in results_of(linkgauge.load("linkgauge-demo")) if isinstance(one, Measured))
    >>> one.interval_low_ns <= one.median_ns <= one.interval_high_ns
    True
    """

    samples: int
    warmup_cut: int
    effective_samples: float
    median_ns: float
    interval_low_ns: float
    interval_high_ns: float
    mean_ns: float
    q1_ns: float
    q3_ns: float
    p5_ns: float
    p95_ns: float
    p99_ns: float | None
    min_ns: float
    max_ns: float
    latency_ns: float
    max_rank_median_ns: float | None
    goodput_bytes_per_s: float | None
    goodput_low_bytes_per_s: float | None
    goodput_high_bytes_per_s: float | None
    goodput_q1_bytes_per_s: float | None
    goodput_q3_bytes_per_s: float | None
    goodput_mean_bytes_per_s: float | None
    algbw_bytes_per_s: float | None
    busbw_bytes_per_s: float | None
    messages_per_s: float | None
    repeats: int = 1

    @property
    def goodput(self) -> float:
        """The goodput of a result that has one; AssertionError for one of a pattern that has none."""
        assert self.goodput_bytes_per_s is not None, f"{self.pattern} has no goodput"
        return self.goodput_bytes_per_s

    @property
    def half_width(self) -> float:
        """Half of the median's 95 % interval as a share of the median."""
        return (self.interval_high_ns - self.interval_low_ns) / 2 / self.median_ns

    @property
    def spread(self) -> float:
        """The interquartile range as a share of the median."""
        return (self.q3_ns - self.q1_ns) / self.median_ns


FIGURES = tuple(field.name for field in dataclasses.fields(Measured) if "_ns" in field.name or "_per_s" in field.name)
"""Names of a measured result's times and rates, in the order of a summary's columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """What was observed of `subject` (a device, a clock, a library) at a moment of a case on a rank.

    `moment` is `before` or `after` the case, or during it in its own words, `when_ns` on the node's clock.

    >>> import linkgauge
    >>> one = next(iter(linkgauge.load("linkgauge-demo").observed()))
    >>> one.name, one.unit, one.moment
    ('ecc_corrected_errors', 'errors', 'before')
    """

    identity: Identity
    rank: int
    subject: str
    name: str
    unit: str
    value: float
    moment: str
    when_ns: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Observation:
        """Read a row of a run's observations."""
        return cls(
            identity=(row["case_key"], row["launch"], row["repeat"], row["attempt"]),
            rank=row["rank"],
            subject=row["subject"] or "",
            name=row["name"],
            unit=row["unit"] or "",
            value=float(row["value"]),
            moment=row["moment"] or "",
            when_ns=row["when_ns"],
        )

    @property
    def case_key(self) -> str:
        """The case that it was observed beside."""
        return self.identity[0]
