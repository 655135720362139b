"""A search's launches in one ordinary run folder: a setting is the environment of a launch, each further one a repeat.

What the folder has is not measured again: the search is asked anew and gets, for the k-th launch of a setting, the k-th
that lies there. How much of the budget was spent by then lies there too, so that it takes the same way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linkgauge.errors import EnvironmentLackingError, RunFolderError, UsageError
from linkgauge.model.case import Case
from linkgauge.model.shape import each, maybe, number, table, text, whole
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch
from linkgauge.plan.order import shuffled
from linkgauge.run.measure import measure
from linkgauge.run.nccl_log import variables_read
from linkgauge.run.prepared import Pending, Prepared
from linkgauge.run.reporter import Reporter, case_text
from linkgauge.run.spec import CaseEntry
from linkgauge.run.stored_plan import read_launches, write_launches
from linkgauge.run.time_limit import TimeLimit
from linkgauge.stats.chosen import chosen_words
from linkgauge.stats.launches import json_object
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load
from linkgauge.tune.record import Config, Outcome

KEY = "tune"
_HUNG_AFTER_S = 10.0
_SHAPE = table({"asked": text, "spent_s": each(maybe(number(0.0))), "launches": whole()}, needed=("asked", "spent_s"))
_LAST_S = 1.0  # of the budget for what comes after the last launch
_SLOWER = 1.5  # as many times a usual launch's time are set aside before one is begun


class InterruptedSearchError(Exception):
    """A signal ended the search; what was measured is in the folder."""


class _Quiet(Reporter):
    """Says what goes wrong with launches alone: the search has its own line for each."""

    def case(self, case: Case, status: str, reason: str, goodput: float | None) -> None:
        """Nothing: the outcome is read from the folder."""

    def shown(self, case: Case) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing of launches that are ended and started anew."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What each launch measures: the objective's cases and the guard cases, under one kind of launch."""

    prepared: Prepared  # without launches: devices, machine, libraries
    settings: LaunchSettings
    cases: Sequence[Case]
    guards: Sequence[Case]


class FolderBench:
    """A search's door to launches (tune/record.py, Bench). `budget_s` is of wall time, over all sittings."""

    def __init__(
        self,
        folder: RunFolder,
        wanted: Wanted,
        environment: Callable[[Config], Mapping[str, str]],
        asked: str,
        budget_s: float,
        began: float,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Take an open folder; UsageError where it is of another search. `began` by the steady clock."""
        self.path = folder.path
        self._folder, self._wanted, self._environment, self._tell = folder, wanted, environment, tell
        self._budget_s = budget_s
        stored = _stored(folder, asked)
        self._asked_text = asked
        self._ended_s: list[float | None] = stored  # by launch: spent when it ended
        self._launches: list[PlannedLaunch] = list(read_launches(folder.path)) if stored else []
        self._of: dict[tuple[Config, bool], list[int]] = {}
        self._asked: dict[tuple[Config, bool], int] = {}
        self._numbers: dict[int, list[int]] = {}  # planned number -> those of its launches
        self._partial: dict[tuple[Config, bool], tuple[PlannedLaunch, int]] = {}
        self._highest = -1
        if stored:
            self._read_back()
        before_s = max([0.0, *(one for one in stored if one is not None)])
        self._origin = began - before_s
        self._replayed_s: float | None = 0.0 if stored else None
        self.measured_here = 0
        self.read_in_launches: set[tuple[str, str]] = set()

    def _read_back(self) -> None:
        relaunched = {int(a): int(b) for a, b in self._folder.info.get("relaunched", {}).items()}
        run = load(self._folder.path)
        done: dict[int, int] = {}
        attempts: dict[int, int] = {}
        for row in run.rows():
            self._highest = max(self._highest, row.launch)
            planned = relaunched.get(row.launch, row.launch)
            self._numbers.setdefault(planned, [])
            if row.launch not in self._numbers[planned]:
                self._numbers[planned].append(row.launch)
            done[planned] = done.get(planned, 0) + (row.status is not None)
            attempts[planned] = max(attempts.get(planned, -1), row.attempt)
        self._highest = max([self._highest, len(self._launches) - 1, *relaunched])
        for launch in self._launches:
            if done.get(launch.number, 0) >= len(launch.cases):
                self._of.setdefault(self._config_of(launch), []).append(launch.number)
            else:  # it was under way when the search was killed: measured anew as a whole
                self._partial[self._config_of(launch)] = (launch, attempts.get(launch.number, -1) + 1)

    def _config_of(self, launch: PlannedLaunch) -> tuple[Config, bool]:
        mine = dict(self._wanted.settings.env)
        env = tuple((name, value) for name, value in launch.settings.env if mine.get(name) != value)
        return env, len(launch.cases) > len(self._wanted.cases)

    # --- what the search asks -----------------------------------------------------------------------------------------

    def measure(self, config: Config, *, guards: bool) -> Outcome | None:
        """A launch of it: the next that lies in the folder, else a fresh one; None where the budget lacks time."""
        env = tuple(sorted(self._environment(config).items()))
        key = (env, guards and bool(self._wanted.guards))
        place = self._asked[key] = self._asked.get(key, -1) + 1
        known = self._of.setdefault(key, [])
        if place < len(known):
            number = known[place]
            ended_s = self._ended_s[number] if number < len(self._ended_s) else None
            self._replayed_s = max(self._replayed_s or 0.0, ended_s or 0.0)
            return self._outcome(number)
        self._replayed_s = None
        if self._spent_s() + _SLOWER * self._usual_s() + _LAST_S > self._budget_s:
            return None
        fresh = self._start(env, key[1])
        if fresh is None:
            return None
        known.append(fresh)
        return self._outcome(fresh)

    def left(self) -> float:
        """The share of the budget that is left: by the folder for what lies there, then by the clock."""
        return max(0.0, 1 - self._spent_s() / self._budget_s)

    def unread(self, config: Config) -> frozenset[str]:
        """Those that NCCL's log does not name; other libraries were asked before the search."""
        if not self._wanted.prepared.variables_read:
            return frozenset()
        self.read_in_launches |= self._read_in(config)
        return frozenset(name for name, value in config if (name, value) not in self.read_in_launches)

    def _read_in(self, config: Config) -> set[tuple[str, str]]:
        """Variables of the setting that were read in its last launch, with their values."""
        env = tuple(sorted(self._environment(config).items()))
        numbers = sorted(number for guards in (False, True) for number in self._of.get((env, guards), ()))
        last = {actual for number in numbers[-1:] for actual in self._numbers.get(number, [number])}
        rows = load(self._folder.path, sorted(last)).observations.to_pylist()
        told = variables_read(row for row in rows if row["launch"] in last)
        return {(name, value) for name, value in config if told.get(name, "").lower() == value.lower()}

    def chosen(self, config: Config) -> dict[str, str]:
        """What the library or transport chose for each case of the objective under a setting, in words.

        NCCL tells it in a log that takes time: it is asked in one more launch, which the search does not see, and not
        at all where the budget lacks time for it.
        """
        env = tuple(sorted(self._environment(config).items()))
        known = self._of.setdefault((env, False), [])
        found = self._told_chosen(known[-1]) if known else {}
        by_log = any(case.transport == "ccl" for case in self._wanted.cases)
        if found or not by_log or self._spent_s() + 2 * _SLOWER * self._usual_s() + _LAST_S > self._budget_s:
            return found
        self._replayed_s = None
        fresh = self._start(env, guards=False, choices=True)
        if fresh is None:
            return {}
        known.append(fresh)
        return self._told_chosen(fresh)

    def _told_chosen(self, number: int) -> dict[str, str]:
        found = {}
        wanted = {case.case_key: case_text(case) for case in self._wanted.cases}
        for row in load(self.path, self._numbers.get(number, [number])).rows():
            words = chosen_words(json_object(row.record.get("evidence"))) if row.case_key in wanted else ""
            if words:
                found[wanted[row.case_key]] = words
        return found

    def _spent_s(self) -> float:
        return time.monotonic() - self._origin if self._replayed_s is None else self._replayed_s

    def _usual_s(self) -> float:
        ends = [one for one in self._ended_s if one is not None]
        gaps = [b - a for a, b in itertools.pairwise(ends) if b > a][-20:]
        return statistics.median(gaps) if gaps else 1.0

    # --- one launch ---------------------------------------------------------------------------------------------------

    def _start(self, env: Sequence[tuple[str, str]], guards: bool, *, choices: bool = False) -> int | None:
        """Measure a launch; its planned number, or None where the time was up before all its cases were measured.

        `choices`: NCCL is asked afterwards what it chose.
        """
        planned, attempt = self._partial.pop((tuple(env), guards), (None, 0))
        if planned is None:
            planned = self._planned(env, guards)
        number = planned.number
        actual = self._highest = self._highest + 1
        if actual != number:
            self._folder.update_info(
                {"relaunched": {**self._folder.info.get("relaunched", {}), str(actual): number}, "end": None}
            )
        entries = [CaseEntry(case, attempt, index) for index, case in enumerate(planned.cases)]
        ends = self._origin + self._budget_s
        prepared = dataclasses.replace(
            self._wanted.prepared,
            pending=[Pending.of(planned, entries, actual)],
            time_limit=TimeLimit(ends, ends),
            max_failures=2,
            hung_after_s=_HUNG_AFTER_S,
            library_choices=choices,
        )
        with contextlib.suppress(EnvironmentLackingError):  # a setting with which no launch starts: its cases failed
            status = measure(prepared, self._folder, _Quiet())
            if status == 130:
                raise InterruptedSearchError
        relaunched = {int(a): int(b) for a, b in self._folder.info.get("relaunched", {}).items()}
        self._numbers[number] = [actual, *(a for a, b in relaunched.items() if b == number and a != actual)]
        self._highest = max([self._highest, *relaunched])
        self._ended_s += [None] * (number + 1 - len(self._ended_s))
        self._ended_s[number] = time.monotonic() - self._origin
        self._folder.update_info({KEY: {**self._folder.info.get(KEY, {}), "spent_s": self._ended_s}})
        self.measured_here += 1
        complete = sum(row.status is not None for row in load(self._folder.path, self._numbers[number]).rows())
        return number if complete >= len(planned.cases) else None

    def _planned(self, env: Sequence[tuple[str, str]], guards: bool) -> PlannedLaunch:
        """A new launch, the next repeat of its setting with guard cases or without; stored before it is started."""
        number = len(self._launches)
        settings = dataclasses.replace(
            self._wanted.settings, env=tuple(sorted({**dict(self._wanted.settings.env), **dict(env)}.items()))
        )
        repeat = sum(launch.settings.env == settings.env for launch in self._launches)
        cases = [*self._wanted.cases, *(self._wanted.guards if guards else ())]
        planned = PlannedLaunch(number, repeat, settings, tuple(shuffled(cases, self._wanted.prepared.seed, number)))
        self._launches.append(planned)
        write_launches(self._folder.path, tuple(self._launches))
        return planned

    def _outcome(self, number: int) -> Outcome:
        """What a launch of the folder gave: medians by case in words, or what went wrong, the worst case's words."""
        from linkgauge.stats.attempts import counted

        run = load(self._folder.path, self._numbers.get(number, [number]))
        wanted = {case.case_key for case in self._wanted.cases}
        found = counted(run, ("case_key", "launch_key", "repeat", "attempt", "status", "lane", "median_ns"))
        known = {case.case_key: case_text(case) for case in (*self._wanted.cases, *self._wanted.guards)}
        times: dict[str, float] = {}
        guards: dict[str, float] = {}
        for row in (group[0] for group in found.measured):
            side = times if row["case_key"] in wanted else guards
            side[known.get(row["case_key"], row["case_key"])] = float(row["median_ns"])
        bad = ""
        for one in run.rows():
            if one.status not in ("ok", "skipped", "timeout") or (one.status == "skipped" and one.case_key in wanted):
                bad = f"{one.status}: {known.get(one.case_key, one.case_key)}: {one.reason}"
                if one.status == "corrupt":
                    break
        return Outcome(times, guards, bad)


def _stored(folder: RunFolder, asked: str) -> list[float | None]:
    """What run.json says was spent when each launch ended; UsageError where the folder is of something else."""
    if KEY not in folder.info:
        raise UsageError(f"'{folder.path}' is not of a search: expected a new folder, or one of this same search")
    try:
        stored: dict[str, Any] = _SHAPE(folder.info[KEY], KEY)
    except UsageError as wrong:
        raise RunFolderError(f"{folder.path}: run.json: {wrong}") from None
    if stored["asked"] != asked:
        raise UsageError(f"'{folder.path}' holds another search: expected a new folder, or one of this same search")
    if not os.path.lexists(folder.path / "plan.json"):
        return []
    return list(stored["spent_s"]) or [None]
