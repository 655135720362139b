"""What settings of a paper give here: each launch with one against the launch without, by pairs of fresh launches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.findings.compare_runs import words_of
from linkgauge.model.shape import json_object
from linkgauge.stats.attempts import counted
from linkgauge.stats.compare import LEAST_REPEATS, Shift
from linkgauge.stats.paired import paired_shift
from linkgauge.tune.table import libraries

if TYPE_CHECKING:
    from linkgauge.store.run import Run


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
    for row in (row for group in counted(run).measured for row in group):
        launch = launches[row["launch"]]
        mpi = json_object(launch["mpi"])
        env = {name: str(value) for name, value in json_object(launch["env"]).items()}
        setting = " ".join(f"{name}={value}" for name, value in sorted(env.items()))
        key = (str(mpi.get("name") or ""), row["case_key"])
        words[key] = words_of(row)
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
