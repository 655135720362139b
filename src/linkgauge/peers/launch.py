"""One launch of a peer: its command, started so that it ends with us, and what it said."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError
from linkgauge.peers.libraries import Ours, our_mpi, shared
from linkgauge.peers.request import Request, Row
from linkgauge.run import guard
from linkgauge.run.evidence import last_words

LAUNCH_TIMEOUT_S = 600
_PATIENCE_S = 5


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
    from linkgauge.run.launchers.base import LaunchRequest
    from linkgauge.run.mpi_library import resolve

    mpi = resolve(request.mpi) if request.mpi else None
    ours = [library, our_mpi(mpi) if mpi is not None else None]
    found = shared(program, [one for one in ours if one is not None])
    command, environment = list(words), {**request.env, **found.environment}
    if mpi is not None:
        environment |= mpi_on_devices(request.runtime, mpi.dialect)
        launcher = launcher_for(mpi)
        asked = LaunchRequest(rows[0].ranks, command, environment, bind=request.bind, hosts=request.hosts_of(rows[0]))
        command, environment = launcher.command(asked), {**launcher.environment(asked), **environment}
    return PeerLaunch(tuple(rows), tuple(command), environment, found.said)


def run_logged(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> str:
    """Run a command with its output in `log`; why it failed, or empty. It ends when we do, or after 10 minutes."""
    guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            status = process.wait(LAUNCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"{command[0]} had not ended after {LAUNCH_TIMEOUT_S} s"
        finally:
            _end(process)
    if status == 0:
        return ""
    said = last_words(log.read_text(errors="replace").splitlines()) or "nothing"
    return f"{' '.join(command)[:200]} ended with {status}; it said: {said}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let a launcher end its ranks, then end what is left of its session."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
