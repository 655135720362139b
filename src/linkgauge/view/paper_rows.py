"""A run's cases as rows of a paper's figure, one for each case under each launch, and what people call them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.model.case import USUAL, Case
from linkgauge.model.comparing import MECHANISM, TASK
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Launch, Measured, OfCase
from linkgauge.plan.model import LaunchTable
from linkgauge.plan.papers import Figure, figures
from linkgauge.stats.attempts import counted
from linkgauge.stats.launches import device_noun, launch_names, shown_transports
from linkgauge.store.parts import read_parts
from linkgauge.view.between import DISTANCES
from linkgauge.view.limits import Limits
from linkgauge.view.results import devices_text
from linkgauge.view.units import size_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run

ESTIMATORS = {"mean": "mean", "median": "median", "best": "min"}
SPREAD = ("p5", "q1", "median", "q3", "p95")
STATISTICS = (*ESTIMATORS.values(), *SPREAD)
NOT_RUN = "not run"
_NAMED_DEVICES = 4  # with more of them an axis has no room for their numbers
MEMORIES = ("source_memory", "target_memory")
LINKS = ("GPU memory", "CPU memory", "CPU-GPU", "GPU-GPU", "X-Bus", "network")
"""What Shafie Khorassani et al. call the ways of their tables; X-Bus is between two processors of a node."""
LAUNCH = "launch"
DIMENSIONS = tuple(dict.fromkeys((*TASK, *MECHANISM, "size", LAUNCH, "distance")))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PaperRow(OfCase):
    """One case under one launch: `launch` in words, `times_ns` by name of a statistic, none where it has none."""

    case: Case
    case_key: str
    distance: str  # of its ranks that are farthest apart; empty where it is not known
    launch: str
    times_ns: Mapping[str, float]
    goodput_bytes_per_s: float | None
    status: str
    reason: str

    def of(self, name: str) -> Any:
        """Return its value of one of DIMENSIONS."""
        return getattr(self if name in (LAUNCH, "distance") else self.case, name)


def rows_of(run: Run, figure: Figure) -> list[PaperRow]:
    """One row for each case under each launch: of repeats the median of each statistic, else one that says why."""
    launches = _launch_words(run, figure)
    cases, own_launches = _part(run, figure)
    groups = grouped(
        ((row.case_key, row.launch_key), row)
        for row in counted(run).rows
        if row.is_headline and row.case_key in cases and row.launch_key in own_launches
    )
    rows = []
    for (_, key), group in groups.items():
        good = [row for row in group if isinstance(row, Measured)]
        first = (good or group)[0]
        times = {name: _middle([getattr(row, f"{name}_ns") for row in good]) for name in STATISTICS} if good else {}
        rates = [row.goodput for row in good if row.goodput_bytes_per_s is not None]
        goodput = _middle(rates) if rates else None
        rows.append(PaperRow(first.case, first.case_key, first.distance, launches.get(key, ""), times, goodput,
                             str(first.status), first.reason))  # fmt: skip
    there = {row.case_key for row in rows}
    for left in run.rows():
        if left.status is None and left.case_key not in there and left.case_key in cases:
            there.add(left.case_key)
            rows.append(PaperRow(left.case, left.case_key, "", "", {}, None, NOT_RUN, "the run ended before it"))
    return rows


def _middle(values: Sequence[float]) -> float:
    return float(np.median(values))


def _part(run: Run, figure: Figure) -> tuple[Container[str], Container[str]]:
    """Return which cases and launches of a run of several figures are this one's; all where it is of one plan."""
    parts = read_parts(run.path)
    if parts is None:
        return {row.case_key for row in run.rows()}, {one.launch_key for one in run.launched} | {""}
    known = [one for other in figures() for one in other.load().launches]
    own = figure.load().launches
    launches = {one.launch_key for one in run.launched if any(_fits(one, table, known) for table in own)}
    return parts.get(figure.name, frozenset()), launches


def _fits(launch: Launch, table: LaunchTable, others: Sequence[LaunchTable]) -> bool:
    """Return whether a launch is as a plan's table says, and not as one of the others that sets more variables."""
    env, contents = launch.env, launch.contents
    mode = "threads" if table.threads else "processes"
    return (
        all(env.get(name) in values for name, values in table.env.items())
        and contents.get("peer_access", table.peer_access) == table.peer_access
        and contents.get("mode", mode) == mode
        and (bool(table.env) or not any(env.get(name) in other.env[name] for other in others for name in other.env))
    )


def _launch_words(run: Run, figure: Figure) -> dict[str, str]:
    """Return a launch's name in the figure's plan by its key, else what sets it apart; empty where there is one."""
    keys = {launch.launch_key: launch for launch in run.launched}
    names = launch_names(run.launched, keys)
    plan = [one for one in figure.load().launches if one.name]
    for key, launch in keys.items():
        fits = [one.name for one in plan if _fits(launch, one, plan)]
        if len(plan) > 1 and len(fits) == 1:
            names[key] = fits[0].replace("_", " ")
    taken = Counter(names.values())
    return {key: name if taken[name] == 1 or not name else f"{name} ({key[:6]})" for key, name in names.items()}


class Words:
    """What dimensions of a run's cases are called."""

    def __init__(self, run: Run) -> None:
        """Take a run, for the names of its library and of its devices."""
        launches = run.launched
        self._shown = shown_transports(launches)
        self.noun = device_noun(launches)
        self._limits = Limits(run)

    def hops(self, row: PaperRow) -> float | None:
        """Return how many links a shortest path between a row's devices has; None where that is not known."""
        hops = self._limits.hops.get((row.devices[0], row.devices[-1]))
        return None if hops is None or _nodes(row.case) > 1 else float(hops)

    def _link(self, row: PaperRow) -> str:
        """Return which of LINKS a row's bytes take."""
        case = row.case
        if PATTERNS[case.pattern].by_cores:
            return "X-Bus" if case.cpu_node != case.source_node else "CPU memory"
        if _nodes(case) > 1:
            return "network"
        if case.source_memory != case.target_memory or PATTERNS[case.pattern].host_ways:
            return "CPU-GPU"
        if len(set(row.devices)) == 1:
            return "GPU memory"
        return "X-Bus" if self._limits.sockets_apart(row.devices[0], row.devices[-1]) else "GPU-GPU"

    def of(self, row: PaperRow, names: Iterable[str]) -> str:
        """Return the words of some of a row's dimensions, the transport first; what is as by default is left out."""
        chosen = list(names)
        parts = []
        for name in ("transport", *(one for one in chosen if one != "transport")):
            if name in chosen and name not in MEMORIES and (word := self._word(row, name)):
                parts.append(word)
        ends = [name for name in MEMORIES if name in chosen]
        if ends:
            kinds = list(dict.fromkeys(row.of(name) for name in ends))
            way = ("from " if ends[0] == MEMORIES[0] else "to ") if len(ends) == 1 else ""
            parts.append(f"{way}{' to '.join(kinds)} memory")
        return ", ".join(parts)

    def _word(self, row: PaperRow, name: str) -> str:
        value = row.of(name)
        if name == "transport":
            return str(self._shown.get(value, value))
        if name == "devices":
            return devices_text(value, row.case.pattern, self.noun)
        if name in ("pattern", LAUNCH):
            return str(value)
        if name == "size":
            return size_words(int(value))
        if name == "distance":
            return str({"node": "same node", **DISTANCES}.get(value or "", "distance unknown"))
        if name == "app":
            return str(value.label).partition(" ")[0] if value else ""
        if name == "background":
            return f"beside {', '.join(load.case.pattern for load in value.each)}" if value else "alone"
        if value == USUAL.get(name) and not isinstance(value, int):
            return ""
        if name == "collectives":
            return f"collectives by {self._shown.get(value, value)}"
        if name == "clock":
            return f"{value} clock"
        if name == "gpudirect":
            return f"GPUDirect {value}"
        if name in ("variant", "managed"):
            return str(value).replace("_", " ")
        return f"{name.replace('_', ' ')} {value}"

    def place(self, row: PaperRow, x: str) -> int | str:
        """Return where a row stands on an axis of PLACES."""
        case = row.case
        if x == "size":
            return case.size
        if x == "ranks":
            return str(case.ranks)
        if x == "route":
            ends = [case.devices[0], *((case.via,) if case.via >= 0 else ()), case.devices[-1]]
            return "→".join(map(str, ends))
        if x == "target":
            return str(case.devices[-1])
        if x == "link":
            return self._link(row)
        if 1 < case.ranks <= _NAMED_DEVICES:
            return f"{self.noun}s {' '.join(map(str, case.devices))}"
        return devices_text(case.devices, case.pattern, self.noun)


def _nodes(case: Case) -> int:
    """Return on how many nodes a case's devices lie."""
    return len({device // case.devices_per_node for device in case.devices}) if case.devices_per_node else 1


def varying(rows: Sequence[PaperRow]) -> set[str]:
    """Return the dimensions in which some rows differ."""
    return {name for name in DIMENSIONS if len({row.of(name) for row in rows}) > 1}


def size_words(size: int) -> str:
    """Return a size as its paper writes it: `40 MB` for decimal millions, else with a binary prefix."""
    if size % 1_000_000 == 0 and size % (1 << 20):
        return f"{size / 1e9:g} GB" if size >= 1_000_000_000 else f"{size / 1e6:g} MB"
    return size_text(size)
