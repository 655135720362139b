"""Which MPI library and launcher belong together, with version and ABI.

What is known of a library comes from itself, in a child process: a broken one may crash when it is loaded. The parent
never initializes MPI.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from linkgauge.children import NoAnswerError, output_of
from linkgauge.errors import UsageError
from linkgauge.model.shape import flag, last_line, one_of, table, text
from linkgauge.run.launchers import FAMILIES
from linkgauge.run.launchers.base import Launcher
from linkgauge.run.launchers.openmpi import AS_ROOT
from linkgauge.run.machine.installation import MpiInstallation

_PROBE_TIMEOUT_S = 20
# Asked of the library before MPI_Init, which the standard allows for exactly these calls. ABI by marks of its own:
# Open MPI's handles are addresses of symbols; the standard ABI exports MPI_Abi_get_version and has no MPICH symbols.
_PROBE = """
import ctypes, json, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LAZY | os.RTLD_LOCAL)
text, length = ctypes.create_string_buffer(16384), ctypes.c_int(0)
library.MPI_Get_library_version(text, ctypes.byref(length))
has = lambda name: hasattr(library, name)
if has("ompi_mpi_comm_world"):
    abi = "openmpi"
elif "libmpi_abi" in os.path.basename(sys.argv[1]):
    abi = "standard"
else:
    abi = "mpich"
print(json.dumps({"text": text.value.decode(errors="replace"), "abi": abi, "large_count": has("MPI_Send_c")}))
"""
_ANSWER = {"text": text, "abi": one_of(("openmpi", "standard", "mpich")), "large_count": flag}


def launcher_kind(launcher: Path) -> str:
    """Which family a launcher is of, by its own --version; empty where it does not say.

    The name decides nothing: every family calls its launcher mpiexec.
    """
    for one in FAMILIES:
        if launcher.name in one.programs:
            return one.kind
    environment = {**os.environ, **AS_ROOT}
    try:
        done = output_of([str(launcher), "--version"], _PROBE_TIMEOUT_S, env=environment)
    except NoAnswerError:
        return ""
    said = (done.stdout + done.stderr).lower()
    return next((one.kind for one in FAMILIES if one.says and re.search(one.says, said)), "")


def _vendor_and_version(words: str) -> tuple[str, str]:
    patterns = (
        ("openmpi", r"Open MPI v?(\d[\w.]*)"),
        ("mvapich", r"MVAPICH\S*\s*Version\s*:\s*(\S+)"),
        ("cray", r"CRAY MPICH version\s*(\S+)"),
        ("intel", r"Intel\(R\) MPI Library (\S+)"),
        ("mpich", r"MPICH Version:\s*(\S+)"),
    )
    for vendor, pattern in patterns:
        match = re.search(pattern, words, re.IGNORECASE)
        if match:
            return vendor, match[1]
    return "unknown", ""


def ask_library(library: Path) -> tuple[dict[str, object], str]:
    """What a library says of itself, asked in a child process; and the problem, in one sentence, where it cannot."""
    try:
        done = output_of([sys.executable, "-I", "-c", _PROBE, str(library)], _PROBE_TIMEOUT_S)
    except NoAnswerError as why:
        return {}, f"the process that loads {library} {why}"
    if done.returncode < 0:
        return {}, f"{library} ended its process with signal {-done.returncode} when it was loaded"
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return {}, f"{library} is not a usable MPI library: {said[-1] if said else 'no reason given'}"
    try:
        return last_line(done.stdout, table(_ANSWER, needed=_ANSWER), "what it says of itself"), ""
    except UsageError as wrong:
        return {}, f"{library} is not a usable MPI library: {wrong}"


def installation(library: Path, launcher: Path | None, kind: str, source: str) -> MpiInstallation:
    """The installation of a library and a launcher, with what the library says of itself."""
    said, problem = ask_library(library)
    words = str(said.get("text", ""))
    vendor, version = _vendor_and_version(words)
    abi = str(said.get("abi", ""))
    if not problem and abi == "standard":
        problem = "the standard MPI ABI needs an mpi4py that was built for it; the wheel of mpi4py was not"
    if not problem and launcher is None:
        problem = f"no launcher (mpiexec) of the same installation was found beside {library}"
    if not problem and kind and Launcher.registry[kind].starts and vendor not in Launcher.registry[kind].starts:
        problem = f"launcher {launcher} and library {library} are of different installations ({kind} and {vendor})"
    if not problem and not kind:
        problem = f"launcher {launcher} does not run, or is of no known kind: its --version names none"
    name = f"{vendor}-{version}" if version else library.name
    return MpiInstallation(
        name, vendor, version, abi, library, launcher, kind, source, words, bool(said.get("large_count")), problem
    )
