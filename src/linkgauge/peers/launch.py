"""One launch of a peer: its command, started so that it ends with us, and what it said."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError
from linkgauge.peers.libraries import why_other_mpi
from linkgauge.peers.request import Request, Row
from linkgauge.run import guard

LAUNCH_TIMEOUT_S = 600
_PATIENCE_S = 5
# A line that says what is wrong: OSU prints all of its help after it.
_TELLING = re.compile(r"\b(error|invalid|failed|failure|cannot|unable)\b", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class PeerLaunch:
    """One start of a peer's program: the rows that it measures, its command, and what its environment has besides."""

    rows: tuple[Row, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def find_program(folder: Path, name: str) -> Path:
    """The program `name` in `folder` or below it; EnvironmentLackingError naming both where it is not."""
    for candidate in (folder, folder / name, *sorted(folder.rglob(name))):
        if candidate.is_file() and candidate.name == name and os.access(candidate, os.X_OK):
            return candidate
    raise EnvironmentLackingError(f"no program '{name}' in '{folder}': expected the folder of the peer's programs")


def launcher(request: Request, ranks: int, program: Path) -> list[str]:
    """The command that starts `ranks` ranks of a program under the MPI library of the request.

    EnvironmentLackingError where the program would load another one than ours does.
    """
    from linkgauge.run.mpi_library import resolve

    mpi = resolve(request.mpi)
    if reason := why_other_mpi(program, mpi):
        raise EnvironmentLackingError(reason)
    if request.bind == "core":
        own = ["--map-by", "core", "--bind-to", "core"] if mpi.launcher_kind == "openmpi" else ["-bind-to", "core"]
    else:
        own = ["--oversubscribe", "--bind-to", "none"] if mpi.launcher_kind == "openmpi" else []
    return [str(mpi.launcher), *own, "-n", str(ranks), str(program)]


def launcher_environment() -> dict[str, str]:
    """What a launcher needs where root starts it."""
    if os.geteuid() != 0:
        return {}
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


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
    lines = log.read_text(errors="replace").strip().splitlines()
    telling = [line.strip() for line in lines if _TELLING.search(line)] or lines[-1:] or ["nothing"]
    return f"{' '.join(command)[:200]} ended with {status}; it said: {telling[0][:200]}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let a launcher end its ranks, then end what is left of its session."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
