"""A run's cases as rows of a paper's figure, one for each case under each launch, and what people call them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.apps.catalog import label
from linkgauge.model.case import DEFAULTS, MECHANISM, TASK, Loads
from linkgauge.model.shape import json_object
from linkgauge.plan.papers import Figure
from linkgauge.stats.attempts import counted
from linkgauge.stats.launches import device_noun, launch_names, shown_transports
from linkgauge.stats.series import HEADLINE
from linkgauge.view.between import DISTANCES
from linkgauge.view.results import devices_text
from linkgauge.view.units import Row, size_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run

ESTIMATORS = {"mean": "mean_ns", "median": "median_ns", "best": "min_ns"}
SPREAD = ("p5", "q1", "median", "q3", "p95")
NOT_RUN = "not run"
MEMORIES = ("source_memory", "target_memory")
LAUNCH = "launch"
DIMENSIONS = tuple(dict.fromkeys((*TASK, *MECHANISM, "size", LAUNCH, "distance")))


def rows_of(run: Run, figure: Figure) -> list[Row]:
    """One row for each case under each launch: of repeats the median of each statistic, else one that says why."""
    launches = _launch_words(run, figure)
    found = counted(run)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found.rows:
        if row["lane"] == HEADLINE:
            groups.setdefault((row["case_key"], row["launch_key"] or ""), []).append(row)
    rows = []
    for (_, key), group in groups.items():
        good = [row for row in group if row["median_ns"]]
        row = {**(good or group)[0], LAUNCH: launches.get(key, "")}
        for name in (*ESTIMATORS.values(), *(f"{one}_ns" for one in SPREAD), "goodput_bytes_per_s"):
            values = [one[name] for one in good if one[name] is not None]
            row[name] = float(np.median(values)) if values else None
        rows.append(row)
    there = {row["case_key"] for row in rows}
    for row in run.cases.to_pylist():
        if row["status"] is None and row["case_key"] not in there:
            there.add(row["case_key"])
            blank = dict.fromkeys((*ESTIMATORS.values(), "goodput_bytes_per_s", "median_ns", "distance"))
            rows.append({**blank, **row, LAUNCH: "", "status": NOT_RUN, "reason": "the run ended before it"})
    return rows


def _launch_words(run: Run, figure: Figure) -> dict[str, str]:
    """Return a launch's name in the figure's plan by its key, else what sets it apart; empty where there is one."""
    rows = run.launches.to_pylist()
    keys = {row["launch_key"] or "": row for row in rows}
    names = launch_names(rows, keys)
    plan = [one for one in figure.load().launches if one.name]
    for key, row in keys.items():
        contents = json_object(row["extra"]).get("launch_key_contents") or {}
        env = json_object(row["env"])
        fits = [
            one.name
            for one in plan
            if all(env.get(name) in values for name, values in one.env.items())
            and contents.get("peer_access", one.peer_access) == one.peer_access
            and contents.get("mode", "threads" if one.threads else "processes")
            == ("threads" if one.threads else "processes")
            and (one.env or not any(env.get(name) in other.env[name] for other in plan for name in other.env))
        ]
        if len(plan) > 1 and len(fits) == 1:
            names[key] = fits[0].replace("_", " ")
    taken = Counter(names.values())
    return {key: name if taken[name] == 1 or not name else f"{name} ({key[:6]})" for key, name in names.items()}


class Words:
    """What dimensions of a run's cases are called."""

    def __init__(self, run: Run) -> None:
        """Take a run, for the names of its library and of its devices."""
        launches = run.launches.to_pylist()
        self._shown = shown_transports(launches)
        self.noun = device_noun(launches)

    def of(self, row: Row, names: Iterable[str]) -> str:
        """Return the words of some of a row's dimensions, the transport first; what is as by default is left out."""
        chosen = list(names)
        parts = []
        for name in ("transport", *(one for one in chosen if one != "transport")):
            if name in chosen and name not in MEMORIES and (word := self._word(row, name)):
                parts.append(word)
        if set(MEMORIES) & set(chosen):
            ends = list(dict.fromkeys(row[name] for name in MEMORIES))
            parts.append(f"{' to '.join(ends)} memory")
        return ", ".join(parts)

    def _word(self, row: Row, name: str) -> str:
        value = row[name]
        if name == "transport":
            return str(self._shown.get(value, value))
        if name == "devices":
            return devices_text(list(value), row["pattern"], self.noun)
        if name in ("pattern", LAUNCH):
            return str(value)
        if name == "size":
            return size_words(int(value))
        if name == "distance":
            return str({"node": "same node", **DISTANCES}.get(value or "", "distance unknown"))
        if name == "app":
            return label(str(value)).partition(" ")[0] if value else ""
        if name == "background":
            return f"beside {', '.join(load.case.pattern for load in Loads.of_text(value).each)}" if value else "alone"
        if value == DEFAULTS.get(name) and not isinstance(value, int):
            return ""
        if name == "clock":
            return f"{value} clock"
        if name == "gpudirect":
            return f"GPUDirect {value}"
        if name in ("variant", "managed"):
            return str(value).replace("_", " ")
        return f"{name.replace('_', ' ')} {value}"

    def place(self, row: Row, x: str) -> int | str:
        """Return where a row stands on an axis of PLACES."""
        if x == "size":
            return int(row["size"])
        if x == "ranks":
            return str(row["ranks"])
        if x == "route":
            ends = [row["devices"][0], *((row["via"],) if row["via"] >= 0 else ()), row["devices"][-1]]
            return "→".join(map(str, ends))
        if x == "target":
            return str(row["devices"][-1])
        return devices_text(list(row["devices"]), row["pattern"], self.noun)


def varying(rows: Sequence[Row]) -> set[str]:
    """Return the dimensions in which some rows differ."""
    return {name for name in DIMENSIONS if len({plain(row.get(name)) for row in rows}) > 1}


def plain(value: Any) -> Any:
    """Return a dimension's value as one that can be in a set."""
    return tuple(value) if isinstance(value, list) else value


def size_words(size: int) -> str:
    """Return a size as its paper writes it: `40 MB` for decimal millions, else with a binary prefix."""
    if size % 1_000_000 == 0 and size % (1 << 20):
        return f"{size / 1e9:g} GB" if size >= 1_000_000_000 else f"{size / 1e6:g} MB"
    return size_text(size)
