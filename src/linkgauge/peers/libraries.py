"""Whether a peer's program and our side use one communication library: else libraries are compared and not tools."""

from __future__ import annotations

import filecmp
import functools
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkgauge.run.mpi_library import MpiInstallation
    from linkgauge.run.transports import CclVersion

_LINKED = re.compile(r"^\s*libmpi(?:ch)?\.so\S* => (/\S+)", re.MULTILINE)
_LDD_TIMEOUT_S = 20


def why_other_mpi(program: Path, mpi: MpiInstallation) -> str:
    """Why the MPI library that the loader gives `program` is not `mpi`; empty where it is, or cannot be known.

    It cannot of a script, a program that is linked statically, and without ldd.
    """
    linked = _linked_mpi(program.resolve())
    if linked is None or _same_file(linked, mpi.library):
        return ""
    from linkgauge.run.mpi_library import find_all

    known = next((one.name for one in find_all() if not one.problem and _same_file(one.library, linked)), "")
    choose = f"--mpi {known}" if known else f"--mpi with the installation of {linked}"
    return (
        f"{program.name} loads {linked}, ours {mpi.library}: expected one MPI library on both sides; remedy: {choose}, "
        f"or LD_LIBRARY_PATH={mpi.library.parent} where that fits the program"
    )


@functools.lru_cache(maxsize=256)
def _linked_mpi(program: Path) -> Path | None:
    try:
        done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, errors="replace", check=False,
                              timeout=_LDD_TIMEOUT_S, stdin=subprocess.DEVNULL)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _LINKED.search(done.stdout)
    return Path(found[1]) if found else None


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
        f"the peer ran version {theirs} of NCCL, ours is {ours.version} ({ours.file}): expected one on both sides; "
        f"remedy: LD_LIBRARY_PATH={Path(ours.file).parent}"
    )


@functools.lru_cache(maxsize=8)
def _our_ccl(runtime: str) -> CclVersion:
    from linkgauge.run.transports import ccl_version

    return ccl_version(runtime)
