"""Whether a library does not start because of what was requested of it: a variable that it refuses.

Asked only where a launch could not start: in processes of their own the library is begun without the launch's
variables, then with them, then with each alone. Where it begins without and not with them, the request is what to
correct, and no other library takes its place.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from linkgauge.children import NoAnswerError, output_of
from linkgauge.errors import UsageError
from linkgauge.model.shape import each, exact, last_line
from linkgauge.plan.launches import LaunchSettings
from linkgauge.run import machine
from linkgauge.run.launchers.openmpi import AS_ROOT
from linkgauge.run.machine.environment import package_environment
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.wire.evidence import last_words

_PATIENCE_S = 20
_LISTS = {"UCX_": "ucx_info -cf", "FI_": "fi_info -e", "MPIR_CVAR_": "mpivars", "OMPI_MCA_": "ompi_info --all"}
"""By what a variable begins with, the command that lists its library's."""


def refusal(mpi: MpiInstallation, settings: LaunchSettings, algorithms: Collection[str]) -> str:
    """Why a library does not start, in a sentence, where a variable of the launch is the cause; else empty.

    `algorithms`: those that cases of the launch request.
    """
    variables = {**dict(settings.env), **dict(settings.derived_env)}
    if not variables or _begins(mpi, {}):
        return ""
    words = _begins(mpi, variables)
    if not words:
        return ""
    alone = {name: said for name, value in variables.items() if (said := _begins(mpi, {name: value}))}
    if len(alone) != 1:
        named = " ".join(f"{name}={variables[name]}" for name in alone or variables)
        return f"{mpi.title} does not start with {named}: {words}{_how_to_list([*(alone or variables)])}"
    ((name, said),) = alone.items()
    value = variables[name]
    request = f"{name}={value}"
    if value in algorithms and name not in dict(settings.env):
        request = f"algorithm {value} ({request})"
    values = _choices(mpi, name)
    takes = f"it takes {', '.join(values)}" if values else f"{said}{_how_to_list([name])}"
    return f"{mpi.title} does not start with {request}: {takes}"


def _how_to_list(names: Collection[str]) -> str:
    commands = {command for start, command in _LISTS.items() for name in names if name.startswith(start)}
    return f"; '{commands.pop()}' lists its variables" if len(commands) == 1 else ""


def _asked(mpi: MpiInstallation, variables: Mapping[str, str], *words: str) -> tuple[bool, str]:
    """Whether the program about the library's variables ended well, and its output."""
    program = str(Path(machine.__file__).with_name("mpi_t.py"))
    try:
        done = output_of(
            [sys.executable, "-I", "-S", program, str(mpi.library), *words],
            _PATIENCE_S,
            env={**package_environment(), **AS_ROOT, **variables},
        )
    except NoAnswerError as why:
        return False, f"it {why}"
    return done.returncode == 0, done.stdout if done.returncode == 0 else done.stdout + done.stderr


def _begins(mpi: MpiInstallation, variables: Mapping[str, str]) -> str:
    """Why the library cannot be begun under these variables, in its own words; empty where it can."""
    well, said = _asked(mpi, variables, "begin")
    return "" if well else last_words(said.splitlines()).rstrip(" ,:") or "it gives no reason"


def _choices(mpi: MpiInstallation, name: str) -> list[str]:
    well, said = _asked(mpi, {}, "choices", name)
    try:
        return last_line(said, each(exact), "the answer of mpi_t.py") if well else []
    except UsageError:
        return []
