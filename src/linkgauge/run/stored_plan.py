"""The plan of a run as it lies in the run folder (plan.json): what `--resume` goes on with.

A run folder may be a stranger's: whatever is read is checked, and nothing in it is executed. It names MPI libraries by
their names only; which file that is comes from this machine or from the command line.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import RunFolderError, UsageError
from linkgauge.model.case import DIMENSIONS, Case, StopRule
from linkgauge.model.patterns import PATTERNS
from linkgauge.plan.curves import FULL, Step
from linkgauge.plan.environment import is_stand_in, shown, stand_in
from linkgauge.plan.expand import MAX_CASES
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
                "mpi": launch.settings.mpi,
                "mpi_asked": launch.settings.mpi_asked,
                "env": shown(launch.settings.env),
                "derived_env": shown(launch.settings.derived_env),
                "launcher_args": list(launch.settings.launcher_args),
                "bind": launch.settings.bind,
                "threads": launch.settings.threads,
                "ranks_per_device": launch.settings.ranks_per_device,
                "peer_access": launch.settings.peer_access,
                "thread_level": launch.settings.thread_level,
                "devices": list(launch.settings.devices),
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
    try:
        if path.is_symlink() or not path.is_file():
            raise RunFolderError(f"{folder}: has no {FILE}: nothing to resume")
        if path.stat().st_size > _MAX_BYTES:
            raise RunFolderError(f"{path}: too large for a plan")
        document = json.loads(path.read_bytes())
        if document["format"] != "linkgauge-plan" or document["version"] != _VERSION:
            raise RunFolderError(f"{path}: a plan of version {document['version']!r}, this Linkgauge reads {_VERSION}")
        launches = tuple(_launch(plain) for plain in document["launches"])
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise RunFolderError(f"{path}: damaged, or not written by a run ({type(error).__name__}: {error})") from None
    if sum(len(launch.cases) + len(launch.later) for launch in launches) > MAX_CASES * 100:
        raise RunFolderError(f"{path}: more cases than any plan has")
    if [launch.number for launch in launches] != list(range(len(launches))):
        raise RunFolderError(f"{path}: its launches are not numbered in order")
    return launches


def _launch(plain: dict[str, Any]) -> PlannedLaunch:
    stored = plain["settings"]
    settings = LaunchSettings(
        mpi=_text(stored["mpi"]),
        mpi_asked=bool(stored.get("mpi_asked", True)),
        env=tuple(sorted((_text(name), _text(value)) for name, value in stored["env"].items())),
        derived_env=tuple((_text(name), _text(value)) for name, value in stored["derived_env"].items()),
        launcher_args=tuple(_text(word) for word in stored["launcher_args"]),
        bind=_text(stored["bind"]),
        threads=bool(stored["threads"]),
        ranks_per_device=_whole(stored["ranks_per_device"]),
        peer_access=bool(stored["peer_access"]),
        devices=tuple(_whole(device) for device in stored["devices"]),
        thread_level=_thread_level(stored.get("thread_level", USUAL_THREAD_LEVEL)),
    )
    cases = tuple(checked_case(dimensions) for dimensions in plain["cases"])
    later = tuple(checked_case(dimensions) for dimensions in plain.get("later", ()))
    stored_steps = {_text(key): Step.of_plain(one) for key, one in plain.get("steps", {}).items()}
    steps = {key: step for key, step in stored_steps.items() if step is not None}
    return PlannedLaunch(_whole(plain["number"]), _whole(plain["repeat"]), settings, cases, later=later, steps=steps)


def _thread_level(value: object) -> str:
    if value not in THREAD_LEVELS:
        raise ValueError(f"{value!r} is no thread level")
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(f"{value!r} is not text")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def checked_case(dimensions: dict[str, Any]) -> Case:
    """The case of stored dimensions, every value within what the table of dimensions allows.

    Raises ValueError or TypeError where one is not.
    """
    case = Case.from_dimensions(dimensions)
    if case.pattern not in PATTERNS:
        raise ValueError(f"unknown pattern {case.pattern!r}")
    if not case.devices or len(case.devices) > 1 << 20:
        raise ValueError("a case without devices")
    for device in case.devices:
        _whole(device)
    _check_types(dimensions)
    for name, value in case.dimensions().items():
        if name not in DIMENSIONS:
            continue
        try:
            DIMENSIONS[name].from_toml(value, name)
        except UsageError as error:
            raise ValueError(str(error)) from None
    if case.size_asked < FULL:
        raise ValueError(f"a size of {case.size_asked}")
    if not isinstance(case.stop, StopRule) or isinstance(case.size_asked, bool) or not isinstance(case.size_asked, int):
        raise TypeError("a case without its size")
    return case


_MODEL = Case("", "", 0, 0, (0,)).dimensions()


def _check_types(dimensions: dict[str, Any]) -> None:
    """Each dimension of its own type: flags and plan files may write a number as text, a stored plan does not."""
    for name, model in _MODEL.items():
        value = dimensions.get(name, model)
        if type(value) is not type(model) and not (isinstance(model, float) and type(value) is int):
            raise TypeError(f"'{name}' is {value!r}")


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
    for name, value in (*launch.settings.env, *launch.settings.derived_env):
        if not safe_variable(name, value) and name not in given:
            return f"environment variable {name}={shown({name: value})[name]}"
    if launch.settings.launcher_args and "--launcher-args" not in given:
        return f"launcher arguments {' '.join(launch.settings.launcher_args)}"
    return ""
