"""A summary arranged for eyes: which cases are one curve, which curves share a panel, and what each is called.

A *task* is what is done (pattern, devices, memory kinds, cadence ...), a *mechanism* how (transport, variant, library
...). A panel shows one task over sizes, a line a mechanism; pairs of devices make a matrix for each mechanism and size.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.errors import UsageError
from linkgauge.model.background import shown_loads
from linkgauge.model.case import USUAL, Loads
from linkgauge.model.comparing import MECHANISM, TASK, held_apart, values_of
from linkgauge.model.device_words import device_words
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import FIGURES, Identity, Measured, Result, Row
from linkgauge.model.transports import order_of
from linkgauge.model.worded import App
from linkgauge.stats.attempts import Counted
from linkgauge.stats.crossing import NETWORK, PARTLY, SHARED_MEMORY, crossings
from linkgauge.stats.distance import Distances
from linkgauge.stats.launches import launch_settings, settings_apart, shown_transports
from linkgauge.stats.moved import moved_words
from linkgauge.stats.requested import known_of, verdicts_of
from linkgauge.stats.requests import Known, RequestVerdict
from linkgauge.stats.summary import results_of
from linkgauge.system.switches import Switches
from linkgauge.view.alike import Kinds
from linkgauge.view.units import size_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run

Key = tuple[Any, ...]


_TOLD = ("pattern", "devices", "source_memory", "target_memory", "datatype", "cadence")
"""What a title tells in words of its own; of the rest it says what is not as by default."""
_DEFAULTS = {name: USUAL[name] for name in TASK if name not in _TOLD}
_FAMILY = held_apart("size", "devices", *MECHANISM)
_WAYS = {SHARED_MEMORY: "by shared memory", PARTLY: "by the network in part"}
_WORDS = {"in_place": "in place", "write_combined": "write-combined", "huge_pages": "huge pages"}


def is_pair(row: Row) -> bool:
    """Whether a row is of a pattern between two devices (or one and itself)."""
    info = PATTERNS.get(row.pattern)
    return info is not None and info.ranks in ("2", "1 or 2") and row.ranks in (1, 2)


def pair_of(row: Row) -> tuple[int, int]:
    """Return source and target of a pair; a case of one device is from it to itself, the diagonal of a matrix."""
    return (row.devices[0], row.devices[-1])


class Results:
    """The headline rows of a run that have figures, and those that have none, with names for people."""

    def __init__(self, run: Run) -> None:
        """Summarize `run`."""
        self.run = run
        counted = Counted(results_of(run))
        self.rows: list[Measured] = [_merged(group) for group in counted.measured]
        self.lanes: list[Measured] = [_merged(group) for group in counted.lanes]
        self.others: list[Result] = counted.others
        self._environments = _environments(run)
        self.crossings = crossings(run)
        self.shown_names = shown_transports(run.launched)

    @functools.cached_property
    def switches(self) -> Switches | None:
        """Which switches the run's nodes are attached to; None where that is not known."""
        return Distances(self.run, self.rows).switches

    @functools.cached_property
    def known(self) -> Mapping[Identity, Known]:
        """What tells how each case was done, by row identity."""
        from linkgauge.view.limits import Limits

        return known_of(self.run, Limits(self.run).system, self.crossings)

    @functools.cached_property
    def requests(self) -> dict[Identity, tuple[RequestVerdict, ...]]:
        """The verdicts on what the rows that are shown requested, by row identity."""
        found = {row.identity: verdicts_of(self.known[row.identity]) for row in self.rows if row.identity in self.known}
        return {identity: verdicts for identity, verdicts in found.items() if verdicts}

    def moved(self, row: Measured) -> str:
        """Return how a row's bytes were moved, in words; empty where nothing tells."""
        known = self.known.get(row.identity)
        return "" if known is None else moved_words(known)

    def went_by(self, row: Measured) -> str:
        """Return the way of a row between nodes where that was not the network: one word of stats/crossing.py."""
        found = self.crossings.get(row.identity)
        return "" if found is None or found.went_by == NETWORK else found.went_by

    def shown(self, transport: str) -> str:
        """Return what screens call a transport: `nccl` of ccl, by the library in use."""
        return self.shown_names.get(transport, transport)

    def keep_pattern(self, pattern: str) -> None:
        """Leave out the rows of all other patterns. UsageError where the run has none of this one."""
        if not any(row.pattern == pattern for row in (*self.rows, *self.others)):
            there = sorted({row.pattern for row in (*self.rows, *self.others)})
            raise UsageError(f"the run has no pattern '{pattern}': it has {', '.join(there)}")
        self.rows = [row for row in self.rows if row.pattern == pattern]
        self.lanes = [row for row in self.lanes if row.pattern == pattern]
        self.others = [row for row in self.others if row.pattern == pattern]

    def only(self, rows: list[Measured]) -> Results:
        """Return the same run with these rows alone."""
        part = copy.copy(self)
        for name in ("mechanisms", "panels", "device_panels", "matrices"):
            part.__dict__.pop(name, None)
        part.rows = list(rows)
        return part

    @functools.cached_property
    def kinds(self) -> Kinds:
        """The devices of the run, and the classes that its cases fall into."""
        from linkgauge.view.limits import Limits

        return Kinds(self.run, Limits(self.run).system)

    @functools.cached_property
    def mechanisms(self) -> dict[Key, str]:
        """The name of each mechanism: its transport, and what sets it apart from others of the same transport."""
        keys = sorted({self._mechanism(row) for row in self.rows}, key=_mechanism_order)
        return _names(keys, self._environments, self.shown)

    def label(self, row: Measured) -> str:
        """Return the name of the row's mechanism."""
        return self.mechanisms[self._mechanism(row)]

    @functools.cached_property
    def panels(self) -> list[tuple[Measured, list[Measured]]]:
        """Each task that is a curve: one of its rows, and all of them by size and mechanism.

        Of the many pairs of a matrix, and of devices that are alike, only the one with the most sizes is a curve.
        """
        return self._curves(alike_once=True)

    @functools.cached_property
    def device_panels(self) -> list[tuple[Measured, list[Measured]]]:
        """As `panels`, and each of the devices that are alike: for tables that join them."""
        return self._curves(alike_once=False)

    def _curves(self, alike_once: bool) -> list[tuple[Measured, list[Measured]]]:
        tasks: dict[Key, list[Measured]] = {}
        for row in self.rows:
            tasks.setdefault(values_of(row.case, TASK), []).append(row)
        families: dict[Key, list[Key]] = {}
        for key, rows in tasks.items():
            family = key
            if is_pair(rows[0]):
                family = (*values_of(rows[0].case, _FAMILY), "pair")
            elif alike_once and rows[0].ranks == 1:
                family = (*values_of(rows[0].case, _FAMILY), self.kinds.key(rows[0]))
            families.setdefault(family, []).append(key)
        chosen: list[list[Measured]] = []
        for keys in families.values():
            if len(keys) > (2 if is_pair(tasks[keys[0]][0]) else 1):  # a matrix, or alike devices
                keys = [max(keys, key=lambda key: (len({r.size for r in tasks[key]}), _looks_first(tasks[key][0])))]
            chosen += [tasks[key] for key in keys]
        order = {name: place for place, name in enumerate(PATTERNS)}
        chosen.sort(key=lambda rows: (order[rows[0].pattern], rows[0].ranks, rows[0].devices))
        names = list(self.mechanisms)
        chosen = [_once(rows, lambda row: (row.size, names.index(self._mechanism(row)))) for rows in chosen]
        return [(rows[0], rows) for rows in chosen]

    @functools.cached_property
    def matrices(self) -> list[tuple[Measured, list[Measured]]]:
        """Each set of pairs (three or more) of one pattern, mechanism and size: one of its rows, and all of them."""
        groups: dict[Key, list[Measured]] = {}
        for row in self.rows:
            if is_pair(row):
                groups.setdefault((*values_of(row.case, _FAMILY), self.label(row), row.size), []).append(row)
        once = [_once(rows, pair_of) for rows in groups.values()]
        return [(rows[0], rows) for rows in once if len(rows) >= 3]

    def matrix_families(self) -> dict[str, list[tuple[Measured, list[Measured]]]]:
        """Return the matrices of each pattern and mechanism under the names of both, the smallest size first."""
        families: dict[str, list[tuple[Measured, list[Measured]]]] = {}
        for first, rows in self.matrices:
            families.setdefault(f"{self.title(first, devices=False)} · {self.label(first)}", []).append((first, rows))
        return {name: sorted(group, key=lambda pair: pair[0].size) for name, group in families.items()}

    def words(self, row: Measured) -> str:
        """Return what a case is called in a table of cases: mechanism, task and size."""
        return f"{self.label(row)} {self.title(row)}, {size_text(row.size)}"

    def title(self, row: Measured, devices: bool = True, devices_words: str = "") -> str:
        """Return what a row's task is, leaving out what is as by default: `allreduce · 4 devices · float32 sum`.

        `devices_words` are said in place of the row's own devices.
        """
        info = PATTERNS[row.pattern]
        parts = [row.pattern]
        if devices:
            parts.append(devices_words or devices_text(row.devices, row.pattern, self.kinds.noun))
        if (row.case.source_memory, row.case.target_memory) != ("device", "device"):
            parts.append(f"{row.case.source_memory} to {row.case.target_memory} memory")
        if info.reduces:
            parts.append(f"{row.case.datatype} {row.case.op}")
        if len({one.case.cadence for one in self.rows}) > 1 or row.case.cadence != "isolated":
            parts.append(row.case.cadence)
        for name, default in _DEFAULTS.items():
            value = getattr(row.case, name)
            if value != default and not (name == "op" and info.reduces):
                value = value.label if isinstance(value, App) else value
                value = shown_loads(value.text, self.shown_names) if isinstance(value, Loads) else value
                parts.append(_WORDS.get(name, name) if value is True else f"{name.replace('_', ' ')} {value}")
        return " · ".join(parts)

    def _mechanism(self, row: Measured) -> Key:
        return (*values_of(row.case, MECHANISM), row.library, self.went_by(row), row.launch_key)


def devices_text(devices: Sequence[int], pattern: str = "", noun: str = "device") -> str:
    """Return the devices of a case: `GPU 0 - GPU 1` for a pair, `4 GPUs` for 0 to 3, otherwise their numbers.

    `noun`: what one of them is called.
    """
    info = PATTERNS.get(pattern)
    if len(devices) == 1:
        return f"{'inside ' if info is not None and info.ranks in ('2', '1 or 2') else ''}{noun} {devices[0]}"
    if info is not None and info.ranks == "pairs":
        return f"{noun} pairs " + ", ".join(f"{a}-{b}" for a, b in zip(devices[::2], devices[1::2], strict=False))
    in_twos = info is not None and info.ranks in ("2", "1 or 2")
    if list(devices) == list(range(len(devices))) and not in_twos:
        return f"{len(devices)} {noun}s"
    return device_words(devices, noun)


def machine_words(run: Run) -> tuple[str, list[str]]:
    """Return the hosts of a run, at most four, and its devices by kind: `node7`, `4 x NVIDIA H200`."""
    hosts: list[str] = []
    names: dict[str, str] = {}
    for launch in run.launched:
        for rank in launch.ranks:
            if rank.host:
                hosts.append(rank.host)
            if rank.device_name:
                names[f"{rank.host}/{rank.device_uuid or rank.device_ordinal}"] = rank.device_name
    where = (
        ", ".join(list(dict.fromkeys(hosts))[:4])
        or str(run.info.get("machine", {}).get("host", ""))
        or run.path.resolve().name
    )
    return where, [f"{list(names.values()).count(name)} x {name}" for name in dict.fromkeys(names.values())]


def best_of(rows: list[Measured]) -> tuple[Measured | None, list[Measured]]:
    """Return the fastest of the rows of one size, and those that cannot be told from it.

    That is where intervals overlap, as far as there are samples: of fewer than six independent ones they reach beyond.
    """
    if not rows:
        return None, []
    best = min(rows, key=lambda row: row.median_ns)
    slowest = min(best.interval_high_ns, best.max_ns)
    near = [row for row in rows if row is not best and max(row.interval_low_ns, row.min_ns) <= slowest]
    return best, near


def _once(rows: list[Measured], place: Callable[[Measured], tuple[int, int]]) -> list[Measured]:
    """Return the rows by their place, of several at one place that of most independent samples.

    A plan may measure a case twice, for two times: once in a curve over sizes, once among all pairs.
    """
    kept: dict[tuple[int, int], Measured] = {}
    for row in sorted(rows, key=lambda row: row.effective_samples, reverse=True):
        kept.setdefault(place(row), row)
    return [kept[one] for one in sorted(kept)]


def _looks_first(row: Measured) -> tuple[Any, ...]:
    a, b = pair_of(row)
    return (a != b, -a, -b)


def _mechanism_order(key: Key) -> tuple[Any, ...]:
    # Numbers as numbers: 8 blocks stand before 16, those that the transport chose (0) before both.
    return (order_of(key[0]), *((0, part) if isinstance(part, int) else (1, str(part)) for part in key))


def _names(keys: list[Key], environments: dict[str, dict[str, str]], shown: Callable[[str], str]) -> dict[Key, str]:
    fields = (*MECHANISM, "library", "went_by", "launch")
    names: dict[Key, str] = {}
    for key in keys:
        siblings = [other for other in keys if other[0] == key[0]]
        parts = [_WAYS.get(key[-2], str(key[-2]))] if key[-2] else []
        for place, field in enumerate(fields[1:-2], start=1):
            if len({other[place] for other in siblings}) > 1 and key[place] not in ("", False):
                value = key[place]
                wordy = field in ("variant", "path", "algorithm", "buffer", "library")
                parts.append(str(value) if wordy else _WORDS.get(field, field) if value is True else f"{field} {value}")
        alike = [other for other in siblings if other[:-1] == key[:-1]]
        if len(alike) > 1:
            settings = settings_apart({other[-1]: environments.get(other[-1], {}) for other in alike})
            parts.append(settings[key[-1]] or f"launch {key[-1][:6]}")
        names[key] = f"{shown(key[0])} ({', '.join(parts)})" if parts else shown(key[0])
    return names


def _environments(run: Run) -> dict[str, dict[str, str]]:
    return {launch.launch_key: launch_settings(launch) for launch in run.launched}


def _merged(group: list[Measured]) -> Measured:
    """Make one row of the repeats of a case under one launch key: the median over the launches of each figure."""
    if len(group) == 1:
        return group[0]
    figures: dict[str, Any] = {}
    for name in FIGURES:
        values = [value for one in group if (value := getattr(one, name)) is not None]
        figures[name] = float(np.median(values)) if values else None
    figures |= {"repeats": len(group), "samples": sum(one.samples for one in group)}
    return dataclasses.replace(group[0], **figures)
