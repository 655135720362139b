"""A peer's program as it is started, with one communication library on both sides: else libraries are compared.

A peer's program is started so that the loader gives it the very library that our side loads. What it would load, and
loads so, is asked of ldd before anything is measured; NCCL's version in the peer's own log confirms it afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import filecmp
import functools
import mmap
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from linkgauge.children import NoAnswerError, output_of, why_too_long
from linkgauge.errors import EnvironmentLackingError
from linkgauge.model.listed import listed
from linkgauge.model.runtimes import RUNTIMES
from linkgauge.model.transports import NIC_LIBRARIES
from linkgauge.peers.request import Request, Row
from linkgauge.run.launchers.base import LaunchRequest
from linkgauge.run.machine import processes
from linkgauge.run.machine.environment import usable_environment
from linkgauge.run.machine.processes import MARK
from linkgauge.run.parent import guard
from linkgauge.run.wire.evidence import last_words

if TYPE_CHECKING:
    from linkgauge.run.machine.installation import MpiInstallation
    from linkgauge.run.machine.transports import LibraryVersion

_LDD_TIMEOUT_S = 20
_MOST_SYMBOLS = 3
_STATIC_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")  # what NCCL prints of itself, in every build of it


@dataclasses.dataclass(frozen=True)
class Ours:
    """A library that our side loads: what it is called, its file, its sonames as a pattern, its functions' prefix."""

    title: str
    file: Path
    sonames: str
    prefix: str
    version: str = ""  # of NCCL
    mpi: MpiInstallation | None = None


@dataclasses.dataclass(frozen=True)
class Shared:
    """What a peer's program is started with so that it loads our libraries, and one line about it, or nothing."""

    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    said: str = ""


def our_mpi(mpi: MpiInstallation) -> Ours:
    """The MPI library of our launches."""
    return Ours(mpi.name, mpi.library, r"libmpi(?:ch)?\.so[.\d]*", "P?MPIX?_", mpi=mpi)


def our_ccl(runtime: str) -> Ours | None:
    """NCCL or RCCL as our launches load it; None on host devices.

    EnvironmentLackingError where there is none.
    """
    if runtime == "host":
        return None
    ours, name = _our_ccl(runtime), RUNTIMES[runtime].ccl
    if ours.reason:
        raise EnvironmentLackingError(f"our side has no {name}: {ours.reason}")
    return Ours(f"{name} {ours.version}", Path(ours.file), r"lib[nr]ccl\.so[.\d]*", "p?nccl", ours.version)


def our_nic(transport: str, mpi: MpiInstallation) -> Ours:
    """UCX (`ucx`) or libfabric (`ofi`) as our ranks load it: what the MPI library is linked to, else what is found.

    EnvironmentLackingError where there is none.
    """
    from linkgauge.run.machine.transports import nic_version

    library = NIC_LIBRARIES[transport]
    stem = re.escape(library.file.split(".so")[0])
    ours = Ours(library.name, mpi.library, rf"{stem}\.so[.\d]*", "(?:uc[psmt]|fi)_")
    linked = _linked(mpi.library, ours)
    if linked is not None and linked[1] is not None:
        return dataclasses.replace(ours, file=linked[1])
    found = nic_version(transport)
    if found.reason:
        raise EnvironmentLackingError(f"our side has no {library.name}: {found.reason}")
    return dataclasses.replace(ours, title=f"{library.name} {found.version}", file=Path(found.file))


def why_other_nic(ours: Ours, loaded: str) -> str:
    """Why the file that our ranks say to have loaded is not what the peer was given; empty where it is."""
    if not loaded or _same_file(Path(loaded), ours.file):
        return ""
    return (
        f"the MPI library of our ranks has brought {loaded}, the peer loads {ours.file}: expected one on both "
        f"sides; fix: LD_LIBRARY_PATH={Path(loaded).parent}"
    )


def shared(program: Path, libraries: Sequence[Ours]) -> Shared:
    """How to start `program` so that it loads these; nothing where it does so already, or where it cannot be known.

    It cannot of a script, and without ldd. EnvironmentLackingError with the cause where no environment makes it: it was
    built for another soname or needs what ours lacks, its RPATH goes first, or another version is linked into it.
    """
    folders: list[str] = []
    said = []
    for ours in libraries:
        linked = _linked(program, ours)
        if linked is None:
            _check_static(program, ours)
            continue
        soname, file = linked
        if file is not None and _same_file(file, ours.file):
            continue
        folder = ours.file.parent
        if not _same_file(folder / soname, ours.file):
            raise EnvironmentLackingError(
                f"{program.name} was built for {soname}, Linkgauge's is {ours.file}: {_fix(program, ours, file)}"
            )
        folders.append(str(folder))
        said.append(f"our {ours.title} ({folder / soname}) in place of {file or 'none'}")
    if not folders:
        return Shared()
    before = os.environ.get("LD_LIBRARY_PATH", "")
    path = os.pathsep.join([*dict.fromkeys(folders), *([before] if before else [])])
    for ours in libraries:
        _check_loaded(program, ours, path)
    first = os.pathsep.join(dict.fromkeys(folders))
    return Shared(
        {"LD_LIBRARY_PATH": path}, f"the peer is started with LD_LIBRARY_PATH={first}: it loads {', '.join(said)}"
    )


def _check_loaded(program: Path, ours: Ours, path: str) -> None:
    linked = _linked(program, ours, path)
    if linked is not None and (linked[1] is None or not _same_file(linked[1], ours.file)):
        rpath = _rpath_before(program, linked[0], path)
        cause = (
            f"by the RPATH of {rpath}, which goes before LD_LIBRARY_PATH" if rpath else "whatever LD_LIBRARY_PATH is"
        )
        raise EnvironmentLackingError(
            f"{program.name} loads {linked[1]} {cause}, Linkgauge's is {ours.file}: {_fix(program, ours, linked[1])}"
        )
    missing = re.findall(rf"undefined symbol: ({ours.prefix}\w+)", _ldd(program, path, "-r"))
    if missing:
        raise EnvironmentLackingError(
            f"{program.name} needs {listed(missing, _MOST_SYMBOLS)}, which our {ours.title} ({ours.file}) "
            f"does not have: {_fix(program, ours, None)}"
        )


def _check_static(program: Path, ours: Ours) -> None:
    """EnvironmentLackingError where another version of NCCL than ours is linked into the program."""
    if not ours.version:
        return
    try:
        with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _STATIC_VERSION.search(content) if content[:4] == b"\x7fELF" else None
            version = found[1].decode() if found else ours.version
    except (OSError, ValueError):
        return
    if version != ours.version:
        raise EnvironmentLackingError(
            f"{program.name} has NCCL {version} linked into it, Linkgauge's is {ours.version} ({ours.file}): "
            f"{_fix(program, ours, None)}"
        )


def _fix(program: Path, ours: Ours, theirs: Path | None) -> str:
    """What makes both sides load one library, where the environment cannot."""
    rebuild = f"build {program.name} with the shared library of {ours.file.parent}, without an RPATH to another"
    if ours.mpi is None:
        return f"fix: {rebuild}"
    from linkgauge.run.parent.mpi_library import find_all

    fits = [
        one.name for one in find_all() if not one.problem and theirs is not None and _same_file(one.library, theirs)
    ]
    choose = f"--mpi {fits[0]}" if fits else f"--mpi with the installation of {theirs}" if theirs else ""
    return f"fix: {choose}, or {rebuild}" if choose else f"fix: {rebuild}"


def _linked(program: Path, ours: Ours, path: str | None = None) -> tuple[str, Path | None] | None:
    """The soname and the file that the loader gives `program` for a library of ours; None where it asks for none."""
    found = re.search(rf"^\s*({ours.sonames}) => (?:(/\S+)|not found)", _ldd(program, path), re.MULTILINE)
    return None if found is None else (found[1], Path(found[2]) if found[2] else None)


def _rpath_before(program: Path, soname: str, path: str) -> str:
    """Whose RPATH finds `soname` for the program, by the loader's own log; empty where none does."""
    log = _ldd(program, path, debug="libs")
    search = re.search(rf"find library={re.escape(soname)} .*?(?=find library=|\Z)", log, re.DOTALL)
    found = re.search(r"\(RPATH from file (\S+)\)", search[0]) if search else None
    return found[1] if found else ""


@functools.lru_cache(maxsize=256)
def _ldd(program: Path, path: str | None = None, option: str = "", debug: str = "") -> str:
    """What ldd says of a program under a library path, None for our own; empty where it cannot say."""
    # The shell that ldd is written in speaks of a locale that is not installed.
    environment = {**os.environ, "LC_ALL": "C", **({} if path is None else {"LD_LIBRARY_PATH": path})}
    environment |= {"LD_DEBUG": debug} if debug else {}
    command = ["ldd", *([option] if option else []), str(program.resolve())]
    try:
        done = output_of(command, _LDD_TIMEOUT_S, env=environment)
    except NoAnswerError:
        return ""
    return done.stdout + done.stderr


def _same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one library, or to two copies of it."""
    try:
        return one.samefile(other) or filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def why_other_nccl(theirs: str, runtime: str) -> str:
    """Why the version of NCCL that a peer's log names, `theirs`, is not ours; empty where it is, or is not known."""
    if not theirs or runtime == "host":
        return ""
    ours = _our_ccl(runtime)
    if not ours.version or theirs == ours.version:
        return ""
    return (
        f"the peer ran version {theirs} of NCCL, Linkgauge's is {ours.version} ({ours.file}): expected one on both "
        f"sides; fix: LD_LIBRARY_PATH={Path(ours.file).parent}"
    )


@functools.lru_cache(maxsize=8)
def _our_ccl(runtime: str) -> LibraryVersion:
    from linkgauge.run.machine.transports import ccl_version

    return ccl_version(runtime)


LAUNCH_TIMEOUT_S = 600
_LOOK_EVERY_S = 0.2  # a program that prints for ever writes some 30 MB meanwhile
_PATIENCE_S = 4  # our own run needs 3 of them to end its ranks and to keep what it has


@dataclasses.dataclass(frozen=True)
class PeerLaunch:
    """One start of a peer's program: the rows that it measures, its command, and what its environment has besides.

    `said`: one line where that environment is for it to load our libraries; else empty.
    """

    rows: tuple[Row, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    said: str = ""


def find_program(folder: Path, name: str) -> Path:
    """The program `name` in `folder` or below it; EnvironmentLackingError naming both where it is not."""
    for candidate in (folder, folder / name, *sorted(folder.rglob(name))):
        if candidate.is_file() and candidate.name == name and os.access(candidate, os.X_OK):
            return candidate
    raise EnvironmentLackingError(f"no program '{name}' in '{folder}': expected the folder of the peer's programs")


def started(
    request: Request, rows: Sequence[Row], program: Path, words: Sequence[str], library: Ours | None = None
) -> PeerLaunch:
    """A start of `words`, which run `program`: under the launcher of the request's MPI library where there is one.

    `library`: what it loads besides that. EnvironmentLackingError where it cannot be made to load what our side loads.
    """
    from linkgauge.plan.library_settings import mpi_on_devices
    from linkgauge.run.launchers import launcher_for
    from linkgauge.run.parent.mpi_library import resolve

    mpi = resolve(request.mpi) if request.mpi else None
    ours = [library, our_mpi(mpi) if mpi is not None else None]
    found = shared(program, [one for one in ours if one is not None])
    command, environment = list(words), {**request.peers_environment, **found.environment}
    if mpi is not None:
        environment |= mpi_on_devices(request.runtime, mpi.dialect)
        launcher = launcher_for(mpi)
        hosts = request.hosts_of(rows[0])
        folders = None if hosts else request.own
        asked = LaunchRequest(rows[0].ranks, command, environment, folders, bind=request.bind, hosts=hosts)
        command, environment = launcher.command(asked), {**launcher.environment(asked), **environment}
    return PeerLaunch(tuple(rows), tuple(command), environment, found.said)


def run_logged(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> str:
    """Run a command with its output in `log`; why it failed, or empty.

    It ends when we do, after LAUNCH_TIMEOUT_S, or where it prints more than MOST_OUTPUT_BYTES.
    """
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**usable_environment(), **environment},
            start_new_session=True,
        )
        try:
            status = _watched(process, log)
        except NoAnswerError as why:
            return f"{command[0]} {why}"
        finally:
            _end(process, environment.get(MARK, ""))
    if status == 0:
        return ""
    said = last_words(log.read_text(errors="replace").splitlines()) or "nothing"
    return f"{' '.join(command)[:200]} ended with {status}; it said: {said}"


def _watched(process: subprocess.Popen[bytes], log: Path) -> int:
    """The exit status of a process that prints into `log`. NoAnswerError where it takes too long or prints too much."""
    last = time.monotonic() + LAUNCH_TIMEOUT_S
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_EVERY_S)
        if why := why_too_long(log.stat().st_size):
            raise NoAnswerError(why)
        if time.monotonic() > last:
            raise NoAnswerError(f"did not end within {LAUNCH_TIMEOUT_S} s")


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Let a launcher end its ranks, then end what is left of its session, and what carries its mark elsewhere."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if mark:
        processes.end_marked(mark)
