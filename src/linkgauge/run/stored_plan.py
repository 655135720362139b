"""The plan of a run as it lies in the run folder (plan.json): what `--resume` goes on with.

A run folder may be a stranger's: whatever is read is checked, and nothing in it is executed. It names MPI libraries by
their names only; which file that is comes from this machine or from the command line.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import RunFolderError, UsageError
from linkgauge.model.case import DIMENSIONS, LATER_DIMENSIONS, Case
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
from linkgauge.plan.curves import FULL, Step
from linkgauge.plan.environment import is_stand_in, shown, stand_in
from linkgauge.plan.expand import MOST_CASES
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch
from linkgauge.plan.model import THREAD_LEVELS, USUAL_THREAD_LEVEL
from linkgauge.plan.plan_file import safe_variable

FILE = "plan.json"
_VERSION = 1
_MAX_BYTES = 2 << 30


def write_launches(folder: Path, launches: tuple[PlannedLaunch, ...]) -> None:
    """Store the launches of a run; atomic."""
    from linkgauge.store.folder import write_atomically

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
        }
        for launch in launches
    ]
    text = json.dumps({"format": "linkgauge-plan", "version": _VERSION, "launches": plain}, separators=(",", ":"))
    write_atomically(folder / FILE, text.encode())


def read_launches(folder: Path) -> tuple[PlannedLaunch, ...]:
    """The launches of a stored plan. RunFolderError where the file is missing or is not what a run writes."""
    path = folder / FILE
    if not os.path.lexists(path):
        raise RunFolderError(f"{folder}: has no {FILE}: nothing to resume")
    document = read_json(path, _MAX_BYTES, "the plan of a run", _PLAN, RunFolderError, links=False)
    launches = tuple(_launch(plain) for plain in document["launches"])
    if sum(len(launch.cases) + len(launch.later) for launch in launches) > MOST_CASES:
        raise RunFolderError(f"{path}: more cases than any plan has")
    if [launch.number for launch in launches] != list(range(len(launches))):
        raise RunFolderError(f"{path}: its launches are not numbered in order")
    return launches


_NUMBER = whole(0, (1 << 31) - 1)
_DIMENSIONS = {
    **{name: DIMENSIONS[name].stored for name in Case("", "", 0, 0, (0,)).dimensions() if name in DIMENSIONS},
    "devices": each(_NUMBER, least=1),
    "devices_per_node": _NUMBER,
    "settings": text,
    "size_asked": whole(FULL, MAX_SIZE_BYTES),
}
_case_dimensions = table(_DIMENSIONS, needed=_DIMENSIONS.keys() - LATER_DIMENSIONS.keys())


def _case(value: Any, at: str) -> Case:
    case = Case.from_dimensions(_case_dimensions(value, at))
    if case.ranks != value["ranks"]:
        raise MisshapenError(f"{at} has {value['ranks']} ranks on {case.ranks} devices: expected as many")
    for word in case.settings.split():
        name, mark, content = word.partition("=")
        if not mark or not safe_variable(name, content):
            raise MisshapenError(f"{at}: '{word}' is no setting that a stored plan may have")
    return case


_VARIABLES = mapping(exact, exact)
_SETTINGS = {
    "mpi": exact, "mpi_asked": flag, "env": _VARIABLES, "derived_env": _VARIABLES, "launcher_args": each(exact),
    "bind": exact, "threads": flag, "ranks_per_device": _NUMBER, "peer_access": flag, "devices": each(_NUMBER),
    "thread_level": one_of(THREAD_LEVELS), "hosts": each(exact),
    "job_env": each(table({"devices": each(_NUMBER), "env": _VARIABLES}, needed=("devices", "env"))),
}  # fmt: skip
_LATER_SETTINGS = {
    "mpi_asked": True,
    "thread_level": USUAL_THREAD_LEVEL,
    "hosts": (),
    "job_env": (),
}  # came after the first plans were stored
_STEP = table({"curve": text, "gain": number(), "time_ns": whole(), "no_room": text}, needed=("curve",))
_LAUNCH = {
    "number": _NUMBER, "repeat": _NUMBER,
    "settings": table(_SETTINGS, needed=_SETTINGS.keys() - _LATER_SETTINGS.keys()),
    "cases": each(_case), "later": each(_case), "steps": mapping(maybe(_STEP)),
}  # fmt: skip
_PLAN = table(
    {
        "format": one_of(("linkgauge-plan",)),
        "version": whole(_VERSION, _VERSION),
        "launches": each(table(_LAUNCH, needed=("number", "repeat", "settings", "cases"))),
    },
    needed=("format", "version", "launches"),
)


def _launch(plain: dict[str, Any]) -> PlannedLaunch:
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
        return f"hosts {', '.join(launch.settings.hosts[:8])}"
    if launch.settings.launcher_args and "--launcher-args" not in given:
        return f"launcher arguments {' '.join(launch.settings.launcher_args)}"
    return ""
