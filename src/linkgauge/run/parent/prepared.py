"""What a run is measured with, what of it is still to be measured, and its plan as it lies in the run folder.

A Plan says what is asked for; prepared for a machine (or read back from a run that is resumed) it is `Prepared`, whose
launches are `Pending` while cases of them are left. What one start of a launch tells its ranks is run/wire/spec.py's.

`--resume` goes on with plan.json, and a run folder may be a stranger's: whatever is read is checked, and nothing in it
is executed. It names MPI libraries by their names only; which file that is comes from this machine or from the command
line.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from linkgauge.errors import RunFolderError, UsageError
from linkgauge.model.case import DIMENSIONS, LATER_DIMENSIONS, Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import MAX_SIZE_BYTES
from linkgauge.model.shape import (
    MisshapenError,
    each,
    exact,
    flag,
    mapping,
    maybe,
    number,
    one_of,
    read_json,
    table,
    text,
    whole,
)
from linkgauge.plan.curves import FULL, Curves, Step
from linkgauge.plan.environment import is_stand_in, shown, stand_in
from linkgauge.plan.expand import MOST_CASES
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch, measuring_s, with_other_mpi
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import THREAD_LEVELS, USUAL_MAX_FAILURES, USUAL_THREAD_LEVEL
from linkgauge.plan.tuning_variables import safe_variable
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.run.parent.nodes import Nodes
from linkgauge.run.parent.watch import HUNG_AFTER_S
from linkgauge.run.wire.spec import CaseEntry, entry_of, job_ranks
from linkgauge.store import older

SHORTEST_TURN_S = 3.0  # a launch takes a second of it to start


@dataclasses.dataclass(frozen=True)
class TimeLimit:
    """The end of a run, on its process' steady clock in seconds."""

    last_end: float  # no case begins that, by its estimate, would not be over by then
    cut: float  # a case that is still in hand then is ended, without a status

    @classmethod
    def of(cls, limit_s: float, began: float) -> TimeLimit:
        """Of a run whose command began at `began` and may take `limit_s`."""
        last_end = began + measuring_s(limit_s)
        return cls(last_end, (last_end + began + limit_s) / 2)

    def share(self, now: float, weights: Sequence[float]) -> float:
        """When the first of several launches has to end that share the time from now on by these weights.

        0 for one that weighs nothing beside others; all alike where none weighs anything.
        """
        whole = sum(weights)
        part = weights[0] / whole if whole > 0 else 1 / len(weights)
        return now + max(self.last_end - now, 0.0) * part if part > 0 else 0.0


class RoundJudge(Protocol):
    """What learns from each round of a run, a round being a repeat, and says when further rounds are not needed."""

    def note(self, repeat: int, settings: LaunchSettings, case: Case, time_ns: float) -> None:
        """Take the time of a case in a round."""

    def enough(self) -> bool:
        """Whether the rounds so far are enough; to be called after each."""


WORKER = (sys.executable, "-m", "linkgauge.run.rank.worker")


@dataclasses.dataclass
class Pending:
    """A planned launch and what is still to be measured of it: what a run works through, launch by launch.

    `launched`: it has been started before. `held`: cases that what the launch went on with cannot run, and why: skipped
    as soon as its ranks have met.
    """

    planned: PlannedLaunch
    entries: dict[tuple[str, int], CaseEntry]  # by CaseEntry.key, in order
    number: int  # of the next launch
    launched: bool = False
    held: dict[tuple[str, int], tuple[CaseEntry, str]] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, planned: PlannedLaunch, entries: Sequence[CaseEntry], number: int) -> Pending:
        """The planned launch with these cases left."""
        return cls(planned, {entry.key: entry for entry in entries}, number)

    def take(self, header: Mapping[str, Any]) -> CaseEntry | None:
        """The entry that a record is about, its size known, taken out; None where it has its status already."""
        entry = entry_of(self.entries, header)
        if entry is not None:
            del self.entries[entry.key]
        return entry

    def give_back(self) -> None:
        """Have all cases left, those that were held in their places."""
        known = {**self.entries, **{key: entry for key, (entry, _) in self.held.items()}}
        self.entries = dict(sorted(known.items(), key=lambda item: item[1].index))
        self.held = {}

    def leave_out(self, gone: Mapping[str, str]) -> list[tuple[CaseEntry, str]]:
        """Go on without the hosts that are `gone`; returns the entries that need one, taken out, each with its host."""
        found = [(entry, host) for entry in self.entries.values() if (host := self.needs(entry, gone))]
        for entry, _ in found:
            del self.entries[entry.key]
        settings = self.planned.settings
        if not gone.keys().isdisjoint(settings.hosts):
            self.planned = dataclasses.replace(self.planned, settings=settings.without(gone))
        return found

    def needs(self, entry: CaseEntry, gone: Container[str]) -> str:
        """The first of the hosts that are `gone` which an entry has ranks on; empty where it has on none."""
        return next((host for host in self.hosts_of(entry) if host in gone), "")

    def hosts_of(self, entry: CaseEntry) -> list[str]:
        """The hosts that an entry and its background loads have ranks on, each once; none where all are here."""
        settings = self.planned.settings
        if not settings.hosts:
            return []
        places = {device: at for at, device in enumerate(dict.fromkeys(settings.devices))}
        jobs = (entry.case, *(load.case for load in entry.case.background.each))
        count = len(settings.hosts)
        hosts = (settings.hosts[places[one] * count // len(places)] for job in jobs for one in job.devices)
        return list(dict.fromkeys(hosts))

    def move(
        self, mpi: MpiInstallation | None, machine: PlanMachine, why_threads: str, *, may_hold_all: bool = False
    ) -> bool:
        """Plan it for another MPI library, or for threads by None, and hold the cases that cannot run there.

        Where none can it stays as it is, and false is returned, unless `may_hold_all`.
        """
        entries = [*self.entries.values(), *(entry for entry, _ in self.held.values())]
        name, dialect = (mpi.name, mpi.dialect) if mpi is not None else ("", "")
        settings, reasons = with_other_mpi(
            self.planned.settings, [entry.case for entry in entries], name, dialect, machine
        )
        if len(reasons) == len(entries) and not may_hold_all:
            return False
        self.give_back()
        self.planned = dataclasses.replace(self.planned, settings=settings)
        for key in [key for key, entry in self.entries.items() if entry.case.case_key in reasons]:
            entry = self.entries.pop(key)
            reason = reasons[entry.case.case_key] if mpi is not None else f"mpi needs processes, and {why_threads}"
            self.held[key] = (entry, reason)
        return True


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A plan made for this machine, or what a stored one has left, and all that it is measured with but its folder."""

    pending: Sequence[Pending]
    devices: DeviceSet
    machine: PlanMachine  # as it was seen
    mpis: Mapping[str, MpiInstallation]  # that the launches name
    seed: int
    max_failures: int = USUAL_MAX_FAILURES
    time_limit: TimeLimit | None = None
    every_s: float = 0.0  # from the begin of a repeat to the next one's; 0: one after the other
    core_use: bool = False  # observe what the nodes' cores did beside each case
    rounds: RoundJudge | None = None  # ends the run after a repeat; None: all repeats are measured
    variables_read: bool = False  # have NCCL tell which variables it read, in the measured launches
    library_choices: bool = False  # ask NCCL what it chose, in launches of their own (run/parent/library_choice.py)
    without_mpi: str = ""  # why launches that named no MPI library were planned in threads
    curves: Mapping[LaunchSettings, Curves] = dataclasses.field(default_factory=dict)  # what is known of them
    nodes: Nodes | None = None  # None: not looked at yet
    taken: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of run/parent/fallback.py, before
    started: Collection[str] = ()  # MPI libraries that are not to be replaced: they have started launches of the run
    worker: Sequence[str] = WORKER  # tests only: another, or WORKER with what its command begins with
    hung_after_s: float = HUNG_AFTER_S
    fault: dict[str, Any] | None = None  # tests only

    @property
    def launches(self) -> tuple[PlannedLaunch, ...]:
        """The launches as they were planned."""
        return tuple(one.planned for one in self.pending)


PLAN_FILE = "plan.json"
_PLAN_VERSION = 1
# MOST_CASES of a pair take 180 MB, and 2 GB once they are read.
_MOST_BYTES = 256 << 20


def write_launches(folder: Path, launches: tuple[PlannedLaunch, ...]) -> None:
    """Store the launches of a run; atomic. UsageError where they take more than a later run reads."""
    from linkgauge.files import write_atomically

    plain = [
        {
            "number": launch.number,
            "repeat": launch.repeat,
            "settings": {
                **{name: getattr(launch.settings, name) for name in _SETTINGS},
                "env": shown(launch.settings.env),
                "derived_env": shown(launch.settings.derived_env),
                "job_env": [{"devices": devices, "env": dict(env)} for devices, env in launch.settings.job_env],
            },
            "cases": [case.dimensions() for case in launch.cases],
            "later": [case.dimensions() for case in launch.later],
            "steps": {key: step.to_plain() for key, step in launch.steps.items()},
            "fits": sorted(launch.fits),
        }
        for launch in launches
    ]
    text = json.dumps({"format": "linkgauge-plan", "version": _PLAN_VERSION, "launches": plain}, separators=(",", ":"))
    content = text.encode()
    if len(content) > _MOST_BYTES:
        raise UsageError(
            f"the plan takes {len(content) >> 20} MiB, more than --resume reads ({_MOST_BYTES >> 20} MiB): expected "
            "fewer cases or ranks"
        )
    write_atomically(folder / PLAN_FILE, content)


def read_launches(folder: Path) -> tuple[PlannedLaunch, ...]:
    """The launches of a stored plan. RunFolderError where the file is missing or is not what a run writes."""
    path = folder / PLAN_FILE
    if not os.path.lexists(path):
        raise RunFolderError(f"{folder}: has no {PLAN_FILE}: nothing to resume; measure anew")
    document = read_json(path, _MOST_BYTES, "the plan of a run", _STORED, RunFolderError, links=False)
    launches = tuple(_stored_launch(plain) for plain in document["launches"])
    if sum(len(launch.cases) + len(launch.later) for launch in launches) > MOST_CASES:
        raise RunFolderError(f"{path}: more cases than any plan has")
    if [launch.number for launch in launches] != list(range(len(launches))):
        raise RunFolderError(f"{path}: its launches are not numbered in order")
    for launch in launches:
        for case in (*launch.cases, *launch.later):
            try:
                why = PATTERNS[case.pattern].why_not(case.ranks, case.groups, case.root)
                job_ranks(case, launch.settings.devices)
            except UsageError as error:
                why = str(error)
            if why:
                raise RunFolderError(f"{path}: launch {launch.number}: {why}")
    return launches


_NUMBER = whole(0, (1 << 31) - 1)
_DIMENSIONS = {
    **{name: one.stored for name, one in DIMENSIONS.items()},
    "devices": each(_NUMBER, least=1),
    "devices_per_node": _NUMBER,
    "settings": text,
    "size_requested": whole(FULL, MAX_SIZE_BYTES),
}
_case_dimensions = table(_DIMENSIONS, needed=[name for name in _DIMENSIONS if name not in LATER_DIMENSIONS])


def _stored_case(value: Any, at: str) -> Case:
    value = older.dimensions(value) if isinstance(value, dict) else value
    case = Case.from_dimensions(_case_dimensions(value, at))
    if case.ranks != value["ranks"]:
        raise MisshapenError(f"{at} has {value['ranks']} ranks on {case.ranks} devices: expected as many")
    for name, content in case.settings.pairs:
        if not safe_variable(name, content):
            raise MisshapenError(f"{at}: '{name}={content}' is no setting that a stored plan may have")
    return case


_VARIABLES = mapping(exact, exact)
_SETTINGS = {
    "mpi": exact, "mpi_requested": flag, "env": _VARIABLES, "derived_env": _VARIABLES, "launcher_args": each(exact),
    "bind": exact, "threads": flag, "ranks_per_device": _NUMBER, "peer_access": flag, "devices": each(_NUMBER),
    "thread_level": one_of(THREAD_LEVELS), "hosts": each(exact),
    "job_env": each(table({"devices": each(_NUMBER), "env": _VARIABLES}, needed=("devices", "env"))),
}  # fmt: skip
_LATER_SETTINGS = {
    "mpi_requested": True,
    "thread_level": USUAL_THREAD_LEVEL,
    "hosts": (),
    "job_env": (),
}  # came after the first plans were stored
_STEP = table({"curve": text, "gain": number(), "time_ns": whole(), "no_room": text}, needed=("curve",))
_LAUNCH = {
    "number": _NUMBER, "repeat": _NUMBER,
    "settings": table(_SETTINGS, needed=_SETTINGS.keys() - _LATER_SETTINGS.keys()),
    "cases": each(_stored_case), "later": each(_stored_case), "steps": mapping(maybe(_STEP)),
    "fits": each(text),
}  # fmt: skip
_STORED = table(
    {
        "format": one_of(("linkgauge-plan",)),
        "version": whole(_PLAN_VERSION, _PLAN_VERSION),
        "launches": each(table(_LAUNCH, needed=("number", "repeat", "settings", "cases"))),
    },
    needed=("format", "version", "launches"),
)


def _stored_launch(plain: dict[str, Any]) -> PlannedLaunch:
    settings = {name: plain["settings"].get(name, _LATER_SETTINGS.get(name)) for name in _SETTINGS}
    settings |= {"env": tuple(sorted(settings["env"].items())), "derived_env": tuple(settings["derived_env"].items())}
    settings |= {name: tuple(settings[name]) for name in ("launcher_args", "devices", "hosts")}
    settings["job_env"] = tuple((tuple(job["devices"]), tuple(job["env"].items())) for job in settings["job_env"])
    steps = {key: Step.of_plain(one) for key, one in plain.get("steps", {}).items()}
    return PlannedLaunch(
        plain["number"],
        plain["repeat"],
        LaunchSettings(**settings),
        tuple(plain["cases"]),
        later=tuple(plain.get("later", ())),
        steps={key: step for key, step in steps.items() if step is not None},
        fits=frozenset(plain.get("fits", ())),
    )


def on_hosts(launch: PlannedLaunch, hosts: Sequence[str]) -> PlannedLaunch:
    """The stored launch on these nodes in place of its own, where it has any. UsageError for another number of them."""
    own = launch.settings.hosts
    if not own or not hosts:
        return launch
    if len(hosts) != len(own):
        raise UsageError(f"the run has {len(own)} nodes, here are {len(hosts)}: expected as many by --hosts")
    return dataclasses.replace(launch, settings=dataclasses.replace(launch.settings, hosts=tuple(hosts)))


def with_secrets(
    launch: PlannedLaunch, given: Mapping[str, Sequence[str]], environment: Mapping[str, str]
) -> PlannedLaunch:
    """The stored launch with its secrets, of which the folder has stand-ins only.

    `given`: the values of the command line's --env by name; what that lacks comes from `environment`. UsageError that
    names the variable where neither has the value that the run was made with.
    """

    def found(name: str, value: str) -> str:
        if not is_stand_in(name, value):
            return value
        known = given.get(name) or ((environment[name],) if name in environment else ())
        for one in known:
            if stand_in(name, one) == value:
                return one
        what = "is another than the run was made with" if known else "is not stored, since it looks like a secret"
        raise UsageError(f"the value of {name} {what}: give the run's own with --env {name}=... or in the environment")

    env = tuple((name, found(name, value)) for name, value in launch.settings.env)
    return dataclasses.replace(launch, settings=dataclasses.replace(launch.settings, env=env))


def unsafe_settings(launch: PlannedLaunch, given: frozenset[str]) -> str:
    """What of a stored launch may not be taken from a folder without being asked for on the command line; or empty.

    `given`: names of variables that the command line's --env sets.
    """
    of_jobs = (pair for _, env in launch.settings.job_env for pair in env)
    for name, value in (*launch.settings.env, *launch.settings.derived_env, *of_jobs):
        if not safe_variable(name, value) and name not in given:
            return f"environment variable {name}={shown({name: value})[name]}"
    if launch.settings.hosts and "--hosts" not in given:
        return f"hosts {','.join(launch.settings.hosts)}"
    if launch.settings.launcher_args and "--launcher-args" not in given:
        return f"launcher arguments {' '.join(launch.settings.launcher_args)}"
    return ""
