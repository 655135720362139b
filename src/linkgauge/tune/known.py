"""What the libraries of this machine know of the table's settings: asked of themselves, before anything is measured.

MPI libraries are asked by MPI_T, UCX and libfabric by calls of their own, with the value in the environment: a value
counts as read where that changed what they tell. NCCL and RCCL are looked through for the name. What a library has no
way to tell is taken as it is, and can be no proof later.
"""

from __future__ import annotations

import dataclasses
import mmap
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from linkgauge.children import NoAnswerError, output_of
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.model.shape import exact, last_line, mapping
from linkgauge.run import machine
from linkgauge.run.machine.environment import package_environment
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.tune.table import Setting, libraries

_PATIENCE_S = 30
_MCA = "OMPI_MCA_"


@dataclasses.dataclass(frozen=True)
class Known:
    """A setting as the library here has it.

    `values`: those of the table that it takes. `told`: how each is seen to be read, `0 -> 7 (MPI_T)`; empty where the
    library does not tell before it is used. `refused`: why the setting, or by value why that one, is left out.
    `usual`: what the library has without it, as it says. `taken`: by value what it has then.
    """

    setting: Setting
    values: tuple[str, ...]
    told: Mapping[str, str]
    refused: Mapping[str, str]
    usual: str = ""
    taken: Mapping[str, str] = dataclasses.field(default_factory=dict)


Read = Callable[[Mapping[str, str]], tuple[Mapping[str, str] | None, str]]
"""What a library has under an environment, by name; or None and its last words."""


def asked_of_itself(settings: Sequence[Setting], read: Read, title: str, how: str) -> list[Known]:
    """The settings of a library that tells them. EnvironmentLackingError where it does not answer.

    One process a value of the longest list, in which every setting has its next value; one a setting where that fails.
    """
    usual, why = read({})
    if usual is None:
        raise EnvironmentLackingError(f"{title} does not tell its settings by {how}: {why}")
    found = []
    there = [one for one in settings if _own_name(one) in usual]
    longest = max((len(one.values) for one in there), default=0)
    rounds = [_together(read, there, place) for place in range(longest)]
    for setting in settings:
        name = _own_name(setting)
        if name not in usual:
            found.append(Known(setting, (), {}, {"": not_read(setting, title)}))
            continue
        told, refused, taken = {}, {}, {}
        for place, value in enumerate(setting.values):
            after = rounds[place]
            if after is None:
                after, why = read(setting.environment(value))
            if after is None:
                refused[value] = f"{title} refuses it: {why}"
            elif after.get(name, usual[name]) == usual[name]:
                refused[value] = f"{title} takes it as what it has without ({usual[name] or 'empty'})"
            else:
                told[value] = f"{name} {usual[name] or 'empty'} -> {after[name]} ({how})"
                taken[value] = after[name]
        found.append(Known(setting, tuple(told), told, refused, usual[name], taken))
    return found


def under(preset: Mapping[str, str], read: Read) -> Read:
    """The same library, asked under an environment that it has anyway."""
    return lambda environment: read({**preset, **environment})


def by_mpi_t(library: Path, whose: str = "") -> Read:
    """MPI_T of an MPI library; of `intel` and `cray` what it says when it is begun, too."""
    return _reader("mpi_t.py", str(library), *([whose] if whose else []))


def asked_as_displayed(settings: Sequence[Setting], read: Read, title: str, how: str) -> list[Known]:
    """The settings of Cray MPICH, which lists most of what it reads, and outside of a launch may not begin at all.

    What it does not list is taken as it is, and can be no proof.
    """
    listed, _ = read({})
    own = [one for one in settings if one.name in (listed or {})]
    told = asked_of_itself(own, read, title, how) if own else []
    return [*told, *(Known(one, one.values, {}, {}) for one in settings if one not in own)]


def by_network_library(transport: str, mpi: MpiInstallation | None) -> Read:
    """UCX (`ucx`) or libfabric (`ofi`): that which the MPI library brings when it is opened, else what ranks find.

    What an MPI library opens in MPI_Init only, as Open MPI does its UCX, is not seen. EnvironmentLackingError where
    there is none.
    """
    from linkgauge.run.machine.transports import nic_version

    found = nic_version(transport)
    if found.reason:
        raise EnvironmentLackingError(found.reason)
    return _reader("network_library.py", transport, found.file, *([str(mpi.library)] if mpi is not None else []))


def not_read(setting: Setting, title: str) -> str:
    """Why a name is left out: that the library does not know it, and whose it is where another's has it."""
    having = {name: one.title for name, one in libraries().items() if setting.name in {of.name for of in one.settings}}
    others = [] if setting.library in having else [*having.values()]
    whose = f" is {', '.join(others)}'s;" if others else ":"
    return f"{setting.name}{whose} {title} does not read it"


def _own_name(setting: Setting) -> str:
    return setting.name.removeprefix(_MCA)


def _together(read: Read, settings: Iterable[Setting], place: int) -> Mapping[str, str] | None:
    environment: dict[str, str] = {}
    for one in settings:
        if place < len(one.values):
            environment |= one.environment(one.values[place])
    return read(environment)[0]


def _reader(program: str, *words: str) -> Read:
    """A program of run/machine that prints a line of JSON, in a process of its own."""
    command = [sys.executable, "-I", "-S", str(Path(machine.__file__).with_name(program)), *words]

    def read(environment: Mapping[str, str]) -> tuple[Mapping[str, str] | None, str]:
        try:
            done = output_of(command, _PATIENCE_S, env={**package_environment(), **environment})
        except NoAnswerError as why:
            return None, f"{program} {why}"
        if done.returncode == 0:
            try:
                return last_line(done.stdout, mapping(exact), f"the answer of {program}"), ""
            except UsageError as wrong:
                return None, str(wrong)
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        return None, said[-1] if said else f"status {done.returncode}"

    return read


def asked_of_file(settings: Sequence[Setting], title: str, file: str) -> list[Known]:
    """The settings by the names that a library's file holds. That one was read, NCCL's log tells in a launch."""
    held = _names_in(Path(file), r"(?:NCCL|RCCL|HSA)_[A-Z0-9_]+")
    return [
        Known(one, one.values, {}, {}) if one.name in held else Known(one, (), {}, {"": not_read(one, title)})
        for one in settings
    ]


def hsa_file() -> str:
    """The file of ROCm's runtime that ranks would have; empty where there is none."""
    found, _ = _reader("network_library.py", "hsa", "libhsa-runtime64.so.1")({})
    return (found or {}).get("file", "")


def _names_in(path: Path, pattern: str) -> set[str]:
    """Names in a binary, each ended as C ends a text; EnvironmentLackingError where it cannot be read."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {match[1].decode() for match in re.finditer(b"(" + pattern.encode() + b")\0", content)}
    except (OSError, ValueError) as error:
        raise EnvironmentLackingError(f"{path} cannot be looked through for its settings: {error}") from None
