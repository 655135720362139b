"""A plan as it is written: tables of cases and of launches, each standing for a product, and how long all may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from linkgauge.model.background import WrittenLoads
from linkgauge.model.dimension import unique
from linkgauge.model.patterns import SIDE_BY_SIDE
from linkgauge.model.quantity import Share
from linkgauge.model.transports import EVERY_TRANSPORT, NAMED_ALONE
from linkgauge.model.values import Value
from linkgauge.plan.curves import Until

PAIRS = ("all", "ordered", "first", "root", "nodes", "nics", "halves", "random_halves", "diagonal")
CHOICES = ("linear", "interleaved", "both", "random", "shuffled", "packed", "spread")
BINDINGS = ("nearest", "none")
KINDS = ("all", "gpu", "host")  # of devices, that a table is of
THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")
USUAL_THREAD_LEVEL = "funneled"  # one thread calls MPI
USUAL_MAX_FAILURES = 3  # of a transport, before the rest of its cases is skipped
HALF = Share(fraction=0.5)


@dataclasses.dataclass(frozen=True)
class CaseTable:
    """One `[[case]]`: every dimension's values, of which the product is taken.

    `devices`: subsets of ordinals, one case each; empty: all devices (and for pair patterns the pairs among them, as
    `pairs` says). `launch`: names of the `[[launch]]` tables it belongs to; empty: all. `until`: the sizes of each
    curve end as it says; None: all are measured. The one size curves.FULL stands for where such a curve is full.
    """

    values: Mapping[str, tuple[Value, ...]]
    devices: tuple[tuple[int, ...], ...] = ()
    # Subsets of places, counted over all nodes, in place of `devices`: from other commands, never from a file.
    places: tuple[tuple[int, ...], ...] = ()
    # Which of more ranks take part, of CHOICES, as plan/choice.py says; both: linear, and interleaved too.
    placement: str = "linear"
    # all ordered pairs and the diagonal | ordered | first | root (root to each other) | nodes (one for each two nodes)
    # | nics (one on each NIC of two nodes) | halves, random_halves (of nodes, each to its like) | diagonal
    pairs: str = "all"
    launch: tuple[str, ...] = ()
    until: Until | None = None
    fit_size: bool = False  # between nodes sizes shrink where links are slow
    where_present: bool = False  # transports that are not here are left out, not skipped
    swap_roles: bool = False  # each load of a case also as the measured job, beside the others and the case
    on: str = "all"  # kind of devices that it is measured on
    where: str = "the plan"  # for messages: file and table
    part: str = ""  # of plans that are measured as one: the name of that which the table is of
    chosen: frozenset[str] = frozenset()  # dimensions whose values are the command line's

    def where_of(self, name: str) -> str:
        """Where the values of a dimension stand, for messages: the option, or file and table."""
        return f"--{name.replace('_', '-')}" if name in self.chosen else self.where


@dataclasses.dataclass(frozen=True)
class LaunchTable:
    """One `[[launch]]`: the environment's lists are a product, each combination a launch of its own."""

    name: str = ""
    mpi: str = ""  # an installation's name as `linkgauge list mpi` shows it; "": the default
    env: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    launcher_args: tuple[str, ...] = ()  # from the command line only, never from a file
    hosts: tuple[str, ...] = ()  # likewise: the run's nodes in their order; none: where the launcher puts the ranks
    bind: str = "nearest"  # nearest | none | lists of cores by rank, 0-3:4-7
    threads: bool = False
    peer_access: bool = True
    thread_level: str = USUAL_THREAD_LEVEL  # what the ranks ask of the MPI library
    mpi_requested: bool = dataclasses.field(default=True, compare=False)  # else another may take the place of `mpi`


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to measure. Times in nanoseconds; None: no limit."""

    name: str
    cases: tuple[CaseTable, ...]
    launches: tuple[LaunchTable, ...] = (LaunchTable(),)
    description: str = ""
    repeat: int = 1
    seed: int = 1
    time_limit_ns: int | None = None
    memory_limit: Share = HALF
    any_machine: bool = False  # a built-in one: what names devices that are not here is skipped, and no mistake
    jobs: Mapping[str, tuple[WrittenLoads, ...]] = dataclasses.field(default_factory=dict)  # loads by name
    class_weights: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of the network's service classes
    library_choices: bool = False  # ask NCCL what it chose, in launches whose times do not count


def of_kind(table: CaseTable, kind: str) -> bool:
    """Whether a table is measured on devices of this kind (cuda, hip, sycl, host; empty: whichever)."""
    return table.on == "all" or not kind or (table.on == "host") == (kind == "host")


def narrowed(plan: Plan, chosen: Mapping[str, tuple[Value, ...]], *, replace: bool, kind: str = "") -> Plan:
    """The plan with the command line's dimensions applied to each of its tables for devices of this kind.

    `transport` and `pattern` choose among what a table has; a table that has none of them goes, and one that has all
    transports has those too that are meant only where they are named. Every other dimension
    takes the place of the table's; sizes that are asked for are all measured, full or not. Where no table is left and
    `replace` holds, one table of just what was asked takes the plan's place (`linkgauge run --pattern pointer_chase`
    needs no plan that has it).
    """
    kept = []
    for table in plan.cases:
        if not of_kind(table, kind):
            continue
        values = dict(table.values)
        for name, wanted in chosen.items():
            if name in ("transport", "pattern"):
                there = (*values[name], *NAMED_ALONE) if values[name] == EVERY_TRANSPORT else values[name]
                values[name] = tuple(value for value in there if value in wanted)
            else:
                values[name] = wanted
        if values["transport"] and values["pattern"]:
            until = None if "size" in chosen else table.until
            fits = table.fit_size and not {"size", "window"} & chosen.keys()
            quiet = table.where_present and "transport" not in chosen
            kept.append(dataclasses.replace(
                table, values=values, until=until, fit_size=fits, where_present=quiet, chosen=frozenset(chosen)
            ))  # fmt: skip
    present = {pattern for table in kept for pattern in table.values["pattern"]}
    missing = [pattern for pattern in chosen.get("pattern", ()) if kept and pattern not in present]
    if replace and (not kept or missing):
        first = plan.cases[0]
        extra = {**first.values, **chosen, **({"pattern": tuple(missing)} if kept else {})}
        kept.append(CaseTable(values=extra, pairs="first", where="the command line", chosen=frozenset(chosen)))
    return dataclasses.replace(plan, cases=tuple(kept))


def capped(plan: Plan, most: int) -> Plan:
    """The plan with `most` bytes in place of all sizes that are larger."""
    tables = []
    for table in plan.cases:
        sizes = unique(min(size, most) if isinstance(size, int) else size for size in table.values["size"])
        tables.append(dataclasses.replace(table, values={**table.values, "size": sizes}))
    return dataclasses.replace(plan, cases=tuple(tables))


def side_by_side(table: CaseTable) -> CaseTable:
    """The table with disjoint pairs measured at once in place of each pair alone; its other patterns stay."""
    values = dict(table.values)
    values["pattern"] = unique(SIDE_BY_SIDE.get(str(name), name) for name in values["pattern"])
    return dataclasses.replace(table, values=values)
