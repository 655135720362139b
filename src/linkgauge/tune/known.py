"""What the libraries of this machine know of the table's settings: asked of themselves, before anything is measured.

MPI libraries are asked by MPI_T with the value in the environment: a value counts as read where that changed what MPI_T
tells. NCCL and RCCL are looked through for the name. UCX is asked by ucx_info. What a library has no way to tell is
taken as it is, and can be no proof later.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError
from linkgauge.run.launchers.base import package_environment
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.tune.table import Library, Setting, libraries

_PATIENCE_S = 30
_PROGRAM = Path(__file__).with_name("mpi_t.py")
_MCA = "OMPI_MCA_"


@dataclasses.dataclass(frozen=True)
class Known:
    """A setting as the library here has it.

    `values`: those of the table that it takes. `told`: how each is seen to be read, `0 -> 7 (MPI_T)`; empty where the
    library does not tell before it is used. `refused`: why the setting, or by value why that one, is left out.
    `usual`: what the library has without it, as it says.
    """

    setting: Setting
    values: tuple[str, ...]
    told: Mapping[str, str]
    refused: Mapping[str, str]
    usual: str = ""


def asked_of_mpi(library: Library, settings: Sequence[Setting], mpi: MpiInstallation) -> list[Known]:
    """The settings of an MPI library, by MPI_T. EnvironmentLackingError where it has none that answers.

    One process a value of the longest list, in which every setting has its next value; one a setting where that fails.
    """
    usual, why = _variables(mpi, {})
    if usual is None:
        raise EnvironmentLackingError(f"{mpi.name} does not tell its settings by MPI_T: {why}")
    found = []
    there = [one for one in settings if _own_name(one) in usual]
    longest = max((len(one.values) for one in there), default=0)
    rounds = [_together(mpi, there, place) for place in range(longest)]
    for setting in settings:
        name = _own_name(setting)
        if name not in usual:
            found.append(Known(setting, (), {}, {"": not_read(setting, mpi.title)}))
            continue
        told, refused = {}, {}
        for place, value in enumerate(setting.values):
            after = rounds[place]
            if after is None:
                after, why = _variables(mpi, setting.environment(value))
            if after is None:
                refused[value] = f"{mpi.title} refuses it: {why}"
            elif after.get(name, usual[name]) == usual[name]:
                refused[value] = f"{mpi.title} takes it as what it has without ({usual[name] or 'empty'})"
            else:
                told[value] = f"{name} {usual[name] or 'empty'} -> {after[name]} (MPI_T)"
        found.append(Known(setting, tuple(told), told, refused, usual[name]))
    return found


def not_read(setting: Setting, title: str) -> str:
    """Why a name is left out: that the library does not know it, and whose it is where another's has it."""
    own = libraries()[setting.library]
    others = [one.title for one in libraries().values() if one is not own
              for other in one.settings if other.name == setting.name]  # fmt: skip
    whose = f" is {', '.join(others)}'s;" if others else ":"
    return f"{setting.name}{whose} {title} does not read it"


def _own_name(setting: Setting) -> str:
    return setting.name.removeprefix(_MCA)


def _together(mpi: MpiInstallation, settings: Iterable[Setting], place: int) -> Mapping[str, str] | None:
    environment: dict[str, str] = {}
    for one in settings:
        if place < len(one.values):
            environment |= one.environment(one.values[place])
    return _variables(mpi, environment)[0]


def _variables(mpi: MpiInstallation, environment: Mapping[str, str]) -> tuple[Mapping[str, str] | None, str]:
    """The library's variables under an environment, or None and its last words."""
    command = [sys.executable, "-I", "-S", str(_PROGRAM), str(mpi.library)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S,
                              env={**package_environment(), **environment}, stdin=subprocess.DEVNULL,
                              check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_PATIENCE_S} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        try:
            return dict(json.loads(lines[-1])), ""
        except ValueError:
            pass
    words = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return None, words[-1] if words else f"status {done.returncode}"


def asked_of_ccl(settings: Sequence[Setting], title: str, version: str, file: str) -> list[Known]:
    """The settings of NCCL or RCCL by the names that its file holds; that one was read, its log tells in a launch."""
    held = _names_in(Path(file), r"(?:NCCL|RCCL)_[A-Z0-9_]+")
    found = []
    for one in settings:
        if one.name in held:
            found.append(Known(one, one.values, {}, {}))
        else:
            found.append(Known(one, (), {}, {"": not_read(one, f"{title} {version}".strip())}))
    return found


def _names_in(path: Path, pattern: str) -> set[str]:
    """Names in a binary, each ended as C ends a text; EnvironmentLackingError where it cannot be read."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {match[1].decode() for match in re.finditer(b"(" + pattern.encode() + b")\0", content)}
    except (OSError, ValueError) as error:
        raise EnvironmentLackingError(f"{path} cannot be looked through for its settings: {error}") from None


def asked_of_ucx(settings: Sequence[Setting]) -> list[Known]:
    """The settings of UCX, by ucx_info -c with each value in turn; EnvironmentLackingError where that is not there."""
    program = shutil.which("ucx_info")
    if program is None:
        raise EnvironmentLackingError("UCX's settings are asked of ucx_info, which is not on PATH: install UCX's tools")
    usual = _ucx(program, {})
    found = []
    for one in settings:
        if one.name not in usual:
            found.append(Known(one, (), {}, {"": not_read(one, "UCX")}))
            continue
        told, refused = {}, {}
        for value in one.values:
            after = _ucx(program, {one.name: value})
            if after.get(one.name, usual[one.name]) == usual[one.name]:
                refused[value] = f"UCX takes it as what it has without ({usual[one.name]})"
            else:
                told[value] = f"{one.name} {usual[one.name]} -> {after[one.name]} (ucx_info -c)"
        found.append(Known(one, tuple(told), told, refused))
    return found


def _ucx(program: str, environment: Mapping[str, str]) -> dict[str, str]:
    try:
        done = subprocess.run([program, "-c"], capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S,
                              env={**os.environ, **environment}, stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentLackingError(f"{program} -c does not answer: {error}") from None
    return {name: value for name, mark, value in (line.partition("=") for line in done.stdout.splitlines()) if mark}
