"""A paper's figure measured here: how to run its plan, numbers and pictures beside the paper's, what settings give."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.errors import UsageError, nearest
from linkgauge.findings.compare_runs import words_of
from linkgauge.model.background import loads_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_size
from linkgauge.model.shape import json_object
from linkgauge.plan.papers import Figure, figures
from linkgauge.stats.attempts import counted
from linkgauge.stats.compare import LEAST_REPEATS, Shift
from linkgauge.stats.launches import shown_transports
from linkgauge.stats.paired import paired_shift
from linkgauge.tune.table import libraries

if TYPE_CHECKING:
    from linkgauge.store.run import Run

ESTIMATORS = {"mean": "mean_ns", "median": "median_ns", "best": "min_ns"}
_UNITS = {"GB/s": 1e9, "Gb/s": 1e9 / 8, "us": 1e3}


def chosen(asked: str) -> list[Figure]:
    """Return the figures that `PAPER` or `PAPER:FIGURE` names, all for an empty text. UsageError for an unknown one."""
    known = figures()
    if not asked:
        return known
    found = [one for one in known if asked in (one.paper, one.name)]
    if not found:
        names = [one.name for one in known] + sorted({one.paper for one in known})
        raise UsageError(f"no figure '{asked}'{nearest(asked, names)}: 'linkgauge reproduce' lists those there are")
    return found


def run_arguments(figure: Figure, device_count: int, extra: list[str]) -> list[str]:
    """Return the arguments of `linkgauge run` that repeat a figure on a machine with so many devices."""
    arguments = ["run", "--plan", figure.plan]
    if figure.ranks == "each" and device_count >= 2:
        arguments += ["--ranks", ",".join(str(count) for count in range(2, device_count + 1))]
    if figure.via == "each" and device_count >= 2:
        arguments += ["--via", ",".join(str(device) for device in range(1, device_count))]
    return [*arguments, *extra]


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured case by the paper's estimator, in the paper's unit."""

    words: str
    value: float | None
    status: str
    reason: str


def measured(run: Run, figure: Figure) -> list[Row]:
    """Return a run's cases as the figure's paper would print them: its estimator, its unit."""
    from linkgauge.findings.compare_runs import words_of
    from linkgauge.stats.attempts import counted
    from linkgauge.stats.series import HEADLINE

    rows = []
    shown = shown_transports(run.launches.to_pylist())
    for row in counted(run).rows:
        if row["lane"] != HEADLINE:
            continue
        time = row[ESTIMATORS[figure.estimator]]
        value = None
        if time and figure.unit == "us":
            value = time / _UNITS["us"] * PATTERNS[row["pattern"]].latency_share
        elif time and row["goodput_bytes_per_s"]:
            # Goodput scales with the estimator's time; of collectives Li et al. print bus bandwidth.
            value = row["goodput_bytes_per_s"] * row["median_ns"] / time / _UNITS[figure.unit]
            if figure.paper == "tartan":
                value *= float(PATTERNS[row["pattern"]].bus_factor(row["ranks"] // row["groups"]))
        rows.append(Row(words_of(row, shown), value, str(row["status"]), str(row["reason"] or "")))
    return rows


def not_measured(run: Run, figure: Figure) -> str:
    """Return which of the figure's sizes a run (of `--max-size`, a time limit) has nothing of, in a sentence."""
    tables = [table for table in figure.load().cases if "application" not in table.values["pattern"]]
    sizes = {size for table in tables for size in table.values["size"] if isinstance(size, int)}
    there = {row.record["size_asked"] for row in run.rows() if row.status in ("ok", "timeout")}
    missing = sorted(size for size in sizes - there if size > 0)
    return f"Not measured here: {', '.join(map(format_size, missing))}." if missing and there else ""


def pictures(run: Run, figure: Figure, folder: Path, suffix: str = ".svg") -> list[tuple[Path | None, str]]:
    """Draw a figure in its paper's form, the check numbers below the title, in `folder`.

    `suffix` is the files' form as in `linkgauge plot`.

    Returns each file with a note on what it leaves out, or None with the reason why it is not drawn.
    """
    from linkgauge.errors import LinkgaugeError
    from linkgauge.view import charts
    from linkgauge.view.figures import Selection, draw, write_figure
    from linkgauge.view.limits import Limits
    from linkgauge.view.results import Results

    results, limits = Results(run), Limits(run)
    unit = figure.unit if figure.unit in ("GB/s", "Gb/s") else "GB/s"
    own = ("table", "section")
    numbers = ", ".join(number if number.startswith(own) else f"Fig. {number}" for number in figure.covers)
    lines = [f"{figure.title}, {numbers}. The paper:", *figure.numbers, not_measured(run, figure)]
    subtitle = [part for line in lines for part in textwrap.wrap(line, 90)]
    drawn: list[tuple[Path | None, str]] = []
    for words, rows in _tasks(results.rows).items():
        part = results.only(rows)
        for name in figure.draws:
            sizes = sorted({row["size"] for row in rows}) if name == "boxes" else [None]
            for size in sizes:
                named = "-".join((figure.plan, *words, name, *(() if size is None else (str(size),))))
                path = folder / (named + suffix)
                try:
                    with charts.drawing():
                        spec, note = draw(part, limits, name, Selection(size_bytes=size, unit=unit))
                    spec["title"] = {**spec["title"], "subtitle": subtitle}
                    write_figure(spec, path)
                    drawn.append((path, note))
                except LinkgaugeError as error:
                    drawn.append((None, f"{named}: {error}"))
    return drawn


def _tasks(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Return the rows by what a picture must not mix, in words: pattern, memories but devices' own, patterns of loads.

    An application's memories are ways to do the same, which its pictures compare.
    """
    tasks: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        memories = (row["source_memory"], row["target_memory"])
        apart = memories != ("device", "device") and not PATTERNS[row["pattern"]].scripted
        loads = [load.case.pattern for load in loads_of(row["background"])] if row["background"] else []
        words = (row["pattern"], *(memories if apart else ()), *(f"beside-{load}" for load in loads))
        tasks.setdefault(words, []).append(row)
    return tasks


@dataclasses.dataclass(frozen=True)
class Effect:
    """A case under one setting: its time without, in ns, and what the setting changes of it, as a share.

    `shift` is None where there are no pairs of launches. `unread`: why no library here heeds it; empty: one may.
    """

    words: str
    setting: str
    default_ns: float
    shift: Shift | None
    pairs: int
    unread: str

    @property
    def verdict(self) -> str:
        """What can be said, in words."""
        if self.shift is None or self.pairs < LEAST_REPEATS:
            return "cannot tell"
        return "faster" if self.shift.high < 0 else "slower" if self.shift.low > 0 else "no change seen"


def effects(run: Run) -> list[Effect]:
    """Return what each setting of a run's launches gives over launches without any, by setting and case."""
    launches = {row["launch"]: row for row in run.launches.to_pylist()}
    times: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    words: dict[tuple[str, str], str] = {}
    told: dict[str, str] = {}
    shown = shown_transports(launches.values())
    for row in (row for group in counted(run).measured for row in group):
        launch = launches[row["launch"]]
        mpi = json_object(launch["mpi"])
        env = {name: str(value) for name, value in json_object(launch["env"]).items()}
        setting = " ".join(f"{name}={value}" for name, value in sorted(env.items()))
        key = (str(mpi.get("name") or ""), row["case_key"])
        words[key] = words_of(row, shown)
        times.setdefault(key, {}).setdefault(setting, {})[int(row["repeat"])] = float(row["median_ns"])
        kind = next((str(rank["device_kind"]) for rank in launch["ranks"] or ()), "host")
        told[setting] = "; ".join(why for name in env if (why := _unread(name, kind, mpi)))
    found = []
    for key, by_setting in times.items():
        default = by_setting.pop("", {})
        for setting, mine in by_setting.items():
            both = sorted(default.keys() & mine.keys())
            shift = paired_shift([np.log(mine[one] / default[one]) for one in both]) if both else None
            usual = float(np.median([*default.values()])) if default else float("nan")
            found.append(Effect(words[key], setting, usual, shift, len(both), told[setting]))
    return sorted(found, key=lambda one: (one.setting, one.words))


def _unread(name: str, kind: str, mpi: Mapping[str, Any]) -> str:
    """Why a variable is none of the libraries of a launch; empty where it is of one, or of nobody that is known."""
    owners = [one for one in libraries().values() if any(setting.name == name for setting in one.settings)]
    if not owners or {kind, str(mpi.get("vendor") or "")} & {vendor for one in owners for vendor in one.vendors}:
        return ""
    return f"{name} is {' and '.join(one.title for one in owners)}'s: nothing here reads it"
