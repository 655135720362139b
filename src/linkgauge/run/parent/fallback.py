"""What a run goes on with where the MPI library that was found cannot start: the next one found, then threads.

Decided once a run. A library that has started a launch of the run is not replaced any more: a later launch that it
cannot start has another cause, and its cases fail. Nor is one that was asked for, by `--mpi` or by a plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.plan.launches import LaunchSettings
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.info import mpi_info, now, versions
from linkgauge.run.parent.mpi_library import find_all

if TYPE_CHECKING:
    from linkgauge.run.parent.devices import DeviceSet
    from linkgauge.store.run import Run

THREADS = "threads"
KEY = "mpi_fallbacks"  # of run.json
# A launch that cannot start is tried once more, one that fails by its launcher's chance until that is no chance.
_START_ATTEMPTS = 2
_CHANCE_ATTEMPTS = 6


@dataclasses.dataclass(frozen=True)
class Step:
    """A library that cannot start, by its name and its title, why, and what is taken in its place (THREADS: none)."""

    mpi: str  # empty: none was found
    title: str
    why: str
    taken: str
    taken_title: str
    when: str = dataclasses.field(default_factory=now)

    def __str__(self) -> str:
        """One line for who looks on."""
        place = "in threads, without MPI" if self.taken == THREADS else f"with {self.taken_title}"
        subject = f"{self.title} cannot start: " if self.mpi else ""
        return f"{subject}{self.why}; going on {place}"

    def as_row(self) -> dict[str, str]:
        """As run.json has it."""
        return {"mpi": self.mpi, "title": self.title, "reason": self.why, "taken": self.taken, "when": self.when}


def found_steps(mpis: Iterable[MpiInstallation], without_mpi: str = "") -> list[Step]:
    """What was passed over before anything was started: libraries that cannot be used, or that there is none at all."""
    steps = [Step(title, title, problem, one.name, one.title) for one in mpis for title, problem in one.passed_over]
    return steps + ([Step("", "", without_mpi, THREADS, "")] if without_mpi else [])


def taken_of(info: Mapping[str, Any]) -> dict[str, str]:
    """By library what was taken in its place, by a run's run.json."""
    return {row["mpi"]: row["taken"] for row in info.get(KEY, []) if row.get("mpi") and row.get("taken")}


def end_of(taken: Mapping[str, str], name: str) -> str:
    """What launches planned for the library `name` go on with; itself where it was not replaced, or THREADS."""
    for _ in taken:  # no more steps than there are: a stranger's folder may lead around in a circle
        name = taken.get(name, name)
    return name


def info_after(
    info: Mapping[str, Any], steps: Sequence[Step], mpi: MpiInstallation | None, devices: DeviceSet
) -> dict[str, Any]:
    """What of run.json changes where `mpi`, or threads by None, took a library's place; versions are of what runs."""
    gone = {f"MPI {step.mpi}" for step in steps}
    taking_part = {name: text for name, text in info.get("versions", {}).items() if name not in gone}
    return {
        KEY: [*info.get(KEY, []), *(step.as_row() for step in steps)],
        "versions": taking_part | ({} if mpi is None else versions(devices, [mpi])),
        "mpi": {**info.get("mpi", {}), **({} if mpi is None else {mpi.name: mpi_info(mpi)})},
    }


def library_of(info: Mapping[str, Any], name: str) -> str:
    """The file of the library that launches planned for `name` ran under, by run.json; empty for threads."""
    found: str = info.get("mpi", {}).get(end_of(taken_of(info), name), {}).get("library", "")
    return found


def started_in(run: Run) -> set[str]:
    """The names of the libraries that launches of a run met under."""
    return {launch.mpi_name for launch in run.launched} - {""}


class Fallback:
    """The MPI libraries of a run, and which of them take the place of others."""

    def __init__(
        self, mpis: Mapping[str, MpiInstallation], taken: Mapping[str, str], started: Collection[str] = ()
    ) -> None:
        """Take the installations by name, what was taken for which before, and which have started launches before."""
        self.mpis = dict(mpis)
        self._taken = dict(taken)
        self._started = set(started)
        self._failed: dict[str, str] = {}  # why, by title
        self._steps: list[Step] = []  # of the launch in hand
        self._others: list[MpiInstallation] | None = None

    def mpi_of(self, settings: LaunchSettings) -> MpiInstallation | None:
        """The installation that a launch is started with; None for threads."""
        return None if settings.threads else self.mpis[settings.mpi]

    def taken(self, settings: LaunchSettings) -> str:
        """What a planned launch goes on with: the name of its own library, of another one, or THREADS."""
        return settings.mpi if settings.threads or settings.mpi_requested else end_of(self._taken, settings.mpi)

    def attempts(self, settings: LaunchSettings, by_chance: bool = False) -> int:
        """How often a launch is started: once under a library that could not start before in this run."""
        if by_chance:
            return _CHANCE_ATTEMPTS
        known = not settings.threads and self.mpis[settings.mpi].title in self._failed
        return 1 if known else _START_ATTEMPTS

    @property
    def why_threads(self) -> str:
        """Why launches of processes went on in threads."""
        return "; ".join(f"{title} cannot start: {why}" for title, why in self._failed.items()) or "no MPI could start"

    def begin(self) -> None:
        """Begin another planned launch: what was tried for the one before, and did not start, is no step of this."""
        self._steps = []

    def go_on(
        self, settings: LaunchSettings, why: str, move: Callable[[MpiInstallation | None], bool]
    ) -> tuple[Step, bool] | None:
        """Move a launch that could not start to what is next, and whether that library's failure is news.

        `move` moves it to a library, or to threads by None; false where none of its cases can run there. None where
        nothing is left to try, or nothing else is wanted.
        """
        if settings.threads or settings.mpi_requested or settings.mpi in self._started:
            return None
        mpi = self.mpis[settings.mpi]
        news = mpi.title not in self._failed
        self._failed.setdefault(mpi.title, why)
        for other in self._candidates(settings):
            if other is not None:
                self.mpis[other.name] = other
            if move(other):
                taken = (other.name, other.title) if other is not None else (THREADS, "")
                self._steps.append(Step(mpi.name, mpi.title, why, *taken))
                return self._steps[-1], news
        return None

    def _candidates(self, settings: LaunchSettings) -> Iterator[MpiInstallation | None]:
        if self._others is None:
            self._others = [one for one in find_all() if not one.problem]
        tried = {self.mpis[name].library.resolve() for name in (settings.mpi, *(step.mpi for step in self._steps))}
        kind = self.mpis[settings.mpi].launcher_kind
        for one in self._others:
            # Arguments are of one family of launchers.
            if one.library.resolve() not in tried and (not settings.launcher_args or one.launcher_kind == kind):
                yield one
        if not settings.launcher_args and not settings.hosts:  # threads are of one node
            yield None

    def note_start(self, settings: LaunchSettings) -> list[Step]:
        """Note that the ranks of a launch have met; the steps that led there, to be stored."""
        if not settings.threads:
            self._started.add(settings.mpi)
        steps, self._steps = self._steps, []
        self._taken |= {step.mpi: step.taken for step in steps}
        return steps
