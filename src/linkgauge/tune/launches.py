"""A search's launches in one ordinary run folder: a setting is the environment of a launch, each further one a repeat.

Settings that a library takes while it runs share a launch: each is a dimension of its cases there (tune/in_launch.py).
What the folder has is not measured again: the search is asked anew and gets, for the k-th measurement of a setting, the
k-th that lies there. How much of the budget was spent by then lies there too, so that it takes the same way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from linkgauge.errors import EnvironmentLackingError, Exit
from linkgauge.model.case import Case
from linkgauge.model.worded import LibrarySettings
from linkgauge.plan.launches import PlannedLaunch
from linkgauge.plan.order import shuffled
from linkgauge.run.machine.nccl_log import variables_read
from linkgauge.run.parent.measure import measure
from linkgauge.run.parent.prepared import Pending, TimeLimit, read_launches, write_launches
from linkgauge.run.parent.reporter import Reporter
from linkgauge.run.wire.spec import CaseEntry
from linkgauge.stats.chosen import chosen_words
from linkgauge.stats.requested import requests_of
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load
from linkgauge.tune.exports import FOLDER, withdraw
from linkgauge.tune.in_launch import LAST_S, InLaunch, room_together_s
from linkgauge.tune.record import Config, Outcome
from linkgauge.tune.stored import KEY, spent_s
from linkgauge.tune.wanted import Wanted, outcome_in

_HUNG_AFTER_S = 10.0
_SLOWER = 1.5  # as many times a usual launch's time are set aside before one is begun
_FIRST_TOGETHER = 12  # settings of the first launch that has several, before it is known what one takes
_LEAST_EACH = 0.25  # of its part in a launch of several, what one setting takes at the least
_MOST_TOGETHER = 400

_NONE = LibrarySettings()
Key = tuple[Config, bool, LibrarySettings]
"""The environment of a launch beside what was asked for, whether it is one that confirms, and what its cases set."""
Place = tuple[int, LibrarySettings]
"""A measurement: a planned launch's number, and the settings of its cases as they are spelled there."""


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


class FolderBench:
    """A search's door to launches (tune/record.py, Bench). `budget_s` is of wall time, over all sittings.

    `tell` hears which launch is measured.
    """

    def __init__(
        self,
        folder: RunFolder,
        wanted: Wanted,
        environment: Callable[[Config], Mapping[str, str]],
        asked: str,
        budget_s: float,
        began: float,
        tell: Callable[[str], None] = lambda text: None,
        in_launch: InLaunch | None = None,
    ) -> None:
        """Take an open folder; UsageError where it is of another search. `began` by the steady clock."""
        self._in_launch = in_launch or InLaunch()
        # That may share a launch, in the order in which they will be asked for.
        self._coming: list[LibrarySettings] = []
        self._each_s = 0.0  # of a setting in the last launch of several
        self._alone_s: list[float] = []  # of launches of one setting, as they were asked for
        self.path = folder.path
        self._folder, self._wanted, self._environment, self._tell = folder, wanted, environment, tell
        self._budget_s = budget_s
        stored = spent_s(folder, asked)
        self._ended_s: list[float | None] = stored  # by launch: spent when it ended
        self._launches: list[PlannedLaunch] = list(read_launches(folder.path)) if stored else []
        self._of: dict[Key, list[Place]] = {}
        self._asked: dict[Key, int] = {}
        self._numbers: dict[int, list[int]] = {}  # planned number -> those of its launches
        self._partial: dict[Key, tuple[PlannedLaunch, int]] = {}
        self._highest = -1
        self._confirms = wanted.confirming()
        if stored:
            self._read_back()
        before_s = max([0.0, *(one for one in stored if one is not None)])
        self._origin = began - before_s
        self._replayed_s: float | None = 0.0 if stored else None
        self.measured_here = 0
        self.read_in_launches: set[tuple[str, str]] = set()
        self.went_wrong: dict[Config, str] = {}  # in launches that the search does not see; empty words: nothing did

    def _read_back(self) -> None:
        run = load(self._folder.path)
        done: dict[Place, int] = {}
        attempts: dict[int, int] = {}
        for row in run.rows():
            self._highest = max(self._highest, row.launch)
            planned = row.planned_launch
            self._numbers.setdefault(planned, [])
            if row.launch not in self._numbers[planned]:
                self._numbers[planned].append(row.launch)
            place = (planned, row.case.settings)
            done[place] = done.get(place, 0) + (row.status is not None)
            attempts[planned] = max(attempts.get(planned, -1), row.attempt)
        self._highest = max([self._highest, len(self._launches) - 1, *self._relaunched])
        for launch in self._launches:
            mine = dict(self._wanted.settings.env)
            env = tuple((name, value) for name, value in launch.settings.env if mine.get(name) != value)
            several = [*dict.fromkeys(case.settings for case in launch.cases)]
            if several != [_NONE]:  # of what it lacks a later launch has the rest
                for spelled in several:
                    if done.get((launch.number, spelled), 0) >= len(self._wanted.cases):
                        key = (env, False, self._in_launch.meant(spelled))
                        self._of.setdefault(key, []).append((launch.number, spelled))
                continue
            key = (env, {*launch.cases} == {*self._confirms}, _NONE)
            if done.get((launch.number, _NONE), 0) >= len(launch.cases):
                self._of.setdefault(key, []).append((launch.number, _NONE))
            else:  # it was under way when the search was killed: measured anew as a whole
                self._partial[key] = (launch, attempts.get(launch.number, -1) + 1)

    @property
    def _relaunched(self) -> dict[int, int]:
        """Numbers of launches that were started for others, and of which."""
        return {int(a): int(b) for a, b in self._folder.info.get("relaunched", {}).items()}

    def _env(self, config: Config) -> Config:
        """The environment by which a launch has a setting, in the order of a Key."""
        return tuple(sorted(self._environment(config).items()))

    @property
    def launches(self) -> int:
        """How many launches the folder has."""
        return len(self._launches)

    # --- what the search asks -----------------------------------------------------------------------------------------

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        """A launch of it: the next that lies in the folder, else a fresh one; None where the budget lacks time."""
        written = None if confirms else self._in_launch.written(config)
        if written in self._coming:
            found = self._measured_together(written)
            if found is not None:
                return found
        env = self._env(config)
        key = (env, confirms and self._confirms != [*self._wanted.cases], _NONE)
        lies = self._next(key)
        if lies is not None:
            self._note_alone(lies[0])
            return self._if_held(self._outcome(*lies), lies[0], config)
        self._replayed_s = None
        if self._spent_s() + _SLOWER * self._usual_s() + LAST_S > self._budget_s:
            return None
        fresh = self._start(env, key[1])
        if fresh is None:
            return None
        self._of.setdefault(key, []).append((fresh, _NONE))
        self._note_alone(fresh)
        return self._if_held(self._outcome(fresh), fresh, config)

    def _if_held(self, outcome: Outcome, number: int, config: Config) -> Outcome:
        """The outcome of a launch, which is bad where a value of the setting did not hold there, by its evidence."""
        if outcome.bad or not config:
            return outcome
        mine = {f"{name}={value}" for name, value in config}
        verdicts = requests_of(load(self._folder.path, self._numbers.get(number, [number]))).values()
        # Which libraries are in use the search knows by its table.
        refuted = (f"{one.requested} did not hold: {one.evidence}" for each in verdicts for one in each
                   if one.state == "not_held" and one.in_use and one.requested in mine)  # fmt: skip
        return dataclasses.replace(outcome, bad=next(refuted, ""))

    def _note_alone(self, number: int) -> None:
        began, ended = (self._ended_s[place] if 0 <= place < len(self._ended_s) else None
                        for place in (number - 1, number))  # fmt: skip
        if began is not None and ended is not None and ended > began:
            self._alone_s.append(ended - began)

    def foresee(self, configs: Sequence[Config]) -> None:
        """Hear what is asked for next; what the library takes while it runs is then measured in one launch."""
        written = [one for config in configs if (one := self._in_launch.written(config)) is not None]
        self._coming = written if any(written) or (self._in_launch.usual and len(written) > 1) else []

    def at_hand(self, config: Config) -> bool:
        """Whether a launch of several has measured it."""
        written = self._in_launch.written(config)
        key = (self._in_launch.env, False, written or _NONE)
        return written in self._coming and self._asked.get(key, -1) + 1 < len(self._of.get(key, ()))

    def shares(self, config: Config) -> bool:
        """Whether the library takes it while it runs."""
        written = self._in_launch.written(config)
        return bool(written) or (written is not None and bool(self._in_launch.usual))

    def launch_share(self) -> float:
        """Of launches of one setting, in the median; the first is left out, before which other things are done."""
        return statistics.median(self._alone_s) / self._budget_s if self._alone_s else 0.0

    def _next(self, key: Key) -> Place | None:
        """The next measurement of that kind which the folder has."""
        place = self._asked[key] = self._asked.get(key, -1) + 1
        known = self._of.get(key, [])
        if place >= len(known):
            return None
        number, spelled = known[place]
        ended_s = self._ended_s[number] if number < len(self._ended_s) else None
        if self._replayed_s is not None or not self.measured_here:
            self._replayed_s = max(self._replayed_s or 0.0, ended_s or 0.0)
        return number, spelled

    def _measured_together(self, written: LibrarySettings) -> Outcome | None:
        """What a launch of several settings gave for this one; None where it is to have a launch of its own."""
        coming = self._coming[self._coming.index(written) :]
        self._coming.remove(written)
        key = (self._in_launch.env, False, written)
        lies = self._next(key)
        if lies is None:
            if not self._start_together(coming):
                return None
            self._asked[key] -= 1
            lies = self._next(key)
        outcome = None if lies is None else self._outcome(*lies)
        # One that the library does not take while it runs is asked for in a launch of its own.
        return None if outcome is None or outcome.bad.startswith("skipped") else outcome

    def _start_together(self, coming: Sequence[LibrarySettings]) -> bool:
        """Measure the first of these in one launch, as many as time allows; false where that is none."""
        self._replayed_s = None
        room_s = room_together_s(self._budget_s, self._budget_s - self._spent_s(), self._usual_s())
        most = min(_MOST_TOGETHER, int(room_s / self._each_s)) if self._each_s else _FIRST_TOGETHER
        several = self._in_launch.each_once(coming, most)
        if room_s <= 0 or not several:
            return False
        cases = [dataclasses.replace(case, settings=spelled) for _, spelled in several for case in self._wanted.cases]
        planned = self._planned(self._in_launch.env, cases)
        began_s = self._spent_s()
        done = self._run(planned, 0, failures=len(cases))
        took_s, count = self._spent_s() - began_s, len(several)
        # Without the launch itself, which takes seconds; but what little is left of a short one is not relied on.
        self._each_s = max((took_s - self._usual_s()) / max(1, count - 1), _LEAST_EACH * took_s / count)
        for written, spelled in several:
            if done.get(spelled, 0) >= len(self._wanted.cases):
                self._of.setdefault((self._in_launch.env, False, written), []).append((planned.number, spelled))
        return True

    def left(self) -> float:
        """The share of the budget that is left: by the folder for what lies there, then by the clock."""
        return max(0.0, 1 - self._spent_s() / self._budget_s)

    def unread(self, config: Config) -> frozenset[str]:
        """Those that NCCL's log does not name; other libraries were asked before the search.

        Of what was measured as settings of cases alone the log tells nothing yet: its own launches will.
        """
        env = self._env(config)
        alone = any(self._of.get((env, confirms, _NONE)) for confirms in (False, True))
        if not self._wanted.prepared.variables_read or not alone:
            return frozenset()
        self.read_in_launches |= self._read_in(config)
        return frozenset(name for name, value in config if (name, value) not in self.read_in_launches)

    def _read_in(self, config: Config) -> set[tuple[str, str]]:
        """Variables of the setting that were read in its last launch, with their values."""
        env = self._env(config)
        numbers = sorted(number for confirms in (False, True) for number, _ in self._of.get((env, confirms, _NONE), ()))
        last = {actual for number in numbers[-1:] for actual in self._numbers.get(number, [number])}
        rows = load(self._folder.path, sorted(last)).observations.to_pylist()
        told = variables_read(row for row in rows if row["launch"] in last)
        return {(name, value) for name, value in config if told.get(name, "").lower() == value.lower()}

    def chosen(self, config: Config) -> dict[str, str]:
        """What the library or transport chose for each case of the objective under a setting, in words.

        NCCL tells it in a log that takes time: it is asked in one more launch, which the search does not see, and not
        at all where the budget lacks time for it.
        """
        env = self._env(config)
        known = self._of.setdefault((env, False, _NONE), [])
        found = self._told_chosen(known[-1][0]) if known else {}
        by_log = any(case.transport == "ccl" for case in self._wanted.cases)
        if found or not by_log or self._spent_s() + 2 * _SLOWER * self._usual_s() + LAST_S > self._budget_s:
            return found
        self._replayed_s = None
        fresh = self._start(env, confirms=False, choices=True)
        if fresh is None:
            return {}
        known.append((fresh, _NONE))
        self.went_wrong[config] = self._outcome(fresh).bad
        return self._told_chosen(fresh)

    def _told_chosen(self, number: int) -> dict[str, str]:
        found = {}
        wanted = {case.case_key: self._wanted.words(case) for case in self._wanted.cases}
        for row in load(self.path, self._numbers.get(number, [number])).rows():
            words = chosen_words(row.evidence) if row.case_key in wanted else ""
            if words:
                found[wanted[row.case_key]] = words
        return found

    def _spent_s(self) -> float:
        return time.monotonic() - self._origin if self._replayed_s is None else self._replayed_s

    def _usual_s(self) -> float:
        """What a launch of one setting takes."""
        return statistics.median(self._alone_s[-20:]) if self._alone_s else 1.0

    # --- one launch ---------------------------------------------------------------------------------------------------

    def _start(self, env: Sequence[tuple[str, str]], confirms: bool, *, choices: bool = False) -> int | None:
        """Measure a launch; its planned number, or None where the time was up before all its cases were measured.

        `choices`: NCCL is asked afterwards what it chose.
        """
        planned, attempt = self._partial.pop((tuple(env), confirms, _NONE), (None, 0))
        if planned is None:
            cases = self._confirms if confirms else self._wanted.cases
            planned = self._planned(env, shuffled(cases, self._wanted.prepared.seed, len(self._launches)))
        done = self._run(planned, attempt, choices=choices)
        return planned.number if sum(done.values()) >= len(planned.cases) else None

    def _run(
        self, planned: PlannedLaunch, attempt: int, *, choices: bool = False, failures: int = 2
    ) -> dict[LibrarySettings, int]:
        """Start it; how many cases have ended, by the settings that they have as a dimension."""
        if not self.measured_here:  # what is measured now may belie what was handed out
            withdraw(self.path / FOLDER)
        number = planned.number
        self._tell(f"searching, launch {number + 1}")
        actual = self._highest = self._highest + 1
        if actual != number:
            again = {str(a): b for a, b in {**self._relaunched, actual: number}.items()}
            self._folder.update_info({"relaunched": again, "end": None})
        entries = [CaseEntry(case, attempt, index) for index, case in enumerate(planned.cases)]
        ends = self._origin + self._budget_s
        prepared = dataclasses.replace(
            self._wanted.prepared,
            pending=[Pending.of(planned, entries, actual)],
            time_limit=TimeLimit(ends, ends),
            max_failures=failures,
            hung_after_s=_HUNG_AFTER_S,
            library_choices=choices,
        )
        with contextlib.suppress(EnvironmentLackingError):  # a setting with which no launch starts: its cases failed
            status = measure(prepared, self._folder, _Quiet())
            if status == Exit.INTERRUPTED:
                raise InterruptedSearchError
        relaunched = self._relaunched
        self._numbers[number] = [actual, *(a for a, b in relaunched.items() if b == number and a != actual)]
        self._highest = max([self._highest, *relaunched])
        self._ended_s += [None] * (number + 1 - len(self._ended_s))
        self._ended_s[number] = time.monotonic() - self._origin
        self._folder.update_info({KEY: {**self._folder.info.get(KEY, {}), "spent_s": self._ended_s}})
        self.measured_here += 1
        rows = load(self._folder.path, self._numbers[number]).rows()
        return Counter(row.case.settings for row in rows if row.status is not None)

    def _planned(self, env: Sequence[tuple[str, str]], cases: Sequence[Case]) -> PlannedLaunch:
        """A new launch of the cases, the next repeat of its environment; stored before it is started."""
        number = len(self._launches)
        settings = dataclasses.replace(
            self._wanted.settings, env=tuple(sorted({**dict(self._wanted.settings.env), **dict(env)}.items()))
        )
        repeat = sum(launch.settings.env == settings.env for launch in self._launches)
        planned = PlannedLaunch(number, repeat, settings, tuple(cases))
        self._launches.append(planned)
        write_launches(self._folder.path, tuple(self._launches))
        return planned

    def _outcome(self, number: int, spelled: LibrarySettings = _NONE) -> Outcome:
        """What a launch of the folder gave; `spelled`: of its cases with these settings."""
        run = load(self._folder.path, self._numbers.get(number, [number]))
        return outcome_in(run, self._wanted, spelled)
