"""Which transports can run on this machine at all, and why the others cannot: for plans and `linkgauge list`."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

from linkgauge.children import NoAnswerError, output_of
from linkgauge.model.runtimes import GPU_RUNTIMES, RUNTIMES
from linkgauge.model.transports import IMPORTED, NIC_LIBRARIES, TRANSPORTS

_VERSION_TIMEOUT_S = 60
_UNKNOWN = "unknown"
_NIXL_PACKAGES = ("nixl_cu13", "nixl_cu12")
_LOADER_CACHE = Path("/etc/ld.so.cache")
_LOADER_FOLDERS = tuple(
    Path(folder) / part
    for folder in ("/lib", "/usr/lib", "/lib64", "/usr/lib64")
    for part in ("", sysconfig.get_config_var("MULTIARCH") or "")
)


def ccl_library(kind: str) -> Path | None:
    """The file of NCCL, RCCL or oneCCL: of a wheel of this Python, else None for the loader's own search."""
    for folder in library_folders():
        path = folder / RUNTIMES[kind].ccl_file
        if path.is_file():
            return path
    return None


def library_folders() -> list[Path]:
    """Folders of libraries in wheels of this Python (nvidia/*/lib, libucx/lib, dpctl, NIXL's) and of the user's loader.

    Last the folder in which MPICH's wheel brings a UCX and a libfabric.
    """
    found: list[Path] = []
    nixl = ((package, f"../.{package}.mesonpy.libs") for package in _NIXL_PACKAGES)
    for package, libraries in (("nvidia", "*/lib"), ("libucx", "lib"), ("dpctl", "../dpctl"), *nixl):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec is not None else []:
            found += sorted(path for path in Path(place).glob(libraries) if path.is_dir())
    found += [Path(word) for word in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if word]
    for variable in ("CUDA_HOME", "ROCM_PATH", "NCCL_HOME"):
        if variable in os.environ:
            found += [Path(os.environ[variable]) / sub for sub in ("lib64", "lib")]
    found += [Path("/usr/local/cuda/lib64"), Path("/opt/rocm/lib"), Path(sys.prefix) / "lib/mpich"]
    if (Path(sys.prefix) / "lib" / RUNTIMES["host"].ccl_file).is_file():  # where Intel's wheels lay their libraries
        found.append(Path(sys.prefix) / "lib")
    return [path for path in found if path.is_dir()]


@dataclasses.dataclass(frozen=True)
class LibraryVersion:
    """A library as the loader gives it: version and file, or why there is none."""

    version: str = ""
    file: str = ""
    reason: str = ""


def ccl_version(kind: str) -> LibraryVersion:
    """The version and the file of NCCL (`kind` cuda), RCCL (hip) or oneCCL (host) that a run would use."""
    return _asked("ccl_version(sys.argv[1], str(ccl_library(sys.argv[1]) or ''), folders)", kind)


def nic_version(transport: str) -> LibraryVersion:
    """The version and the file of a network library that ranks use whose MPI library has not brought one."""
    found = _asked(f"{transport}_version(folders)")
    if found.version != _UNKNOWN:
        return found
    return dataclasses.replace(found, version=version_of_nixl(found.file) or _UNKNOWN)


def version_of_nixl(file: str) -> str:
    """The version of the wheel that a file is of, since NIXL's C API tells none; empty where it is of none."""
    facts = sorted(Path(file).parent.parent.glob("nixl_cu1*.dist-info"))
    named = {path.name.split("-")[0]: path.name.removesuffix(".dist-info").split("-")[1] for path in facts}
    return next((version for name, version in named.items() if f".{name}." in file), "")


def _asked(call: str, *words: str) -> LibraryVersion:
    """What a call of the core says, in a child process: opening NCCL takes 0.3 s and 200 MB of memory."""
    from linkgauge.run.machine.environment import package_environment

    program = (
        "import sys; from linkgauge import _core\n"
        "from linkgauge.run.machine.transports import ccl_library, library_folders\n"
        "folders = [str(folder) for folder in library_folders()]\n"
        f"try: said = _core.{call}\n"
        "except Exception as error: sys.exit(str(error))\n"
        f"print(said[0] or '{_UNKNOWN}', said[1], sep='\\n')"
    )
    try:
        done = output_of([sys.executable, "-c", program, *words], _VERSION_TIMEOUT_S, env=package_environment())
    except NoAnswerError as why:
        return LibraryVersion(reason=f"the process that asks the library for its version {why}")
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode != 0 or len(said) < 2:
        return LibraryVersion(reason=said[-1] if said else f"asking it ended with status {done.returncode}")
    return LibraryVersion(said[-2], said[-1])


def _loads(file: str) -> bool:
    """Whether the loader finds a library of this file name: by its cache, which holds paths, or where it always looks.

    Loading NCCL costs 0.3 s and 200 MB, and `ctypes.util.find_library` starts ldconfig, gcc and ld.
    """
    try:
        if f"/{file}\0".encode() in _LOADER_CACHE.read_bytes():
            return True
    except OSError:  # as in a container that was made without ldconfig
        pass
    return any((folder / file).is_file() for folder in _LOADER_FOLDERS)


def absent_transports(kind: str, *, mpi: str = "", threads: bool = False) -> dict[str, str]:
    """Transport -> why it cannot run here at all. `mpi`: why there is no MPI library, empty where there is one."""
    absent = {name: f"only 'linkgauge import' has it, of logs of {TRANSPORTS[name].measured_by}" for name in IMPORTED}
    runtime = RUNTIMES[kind]
    if not runtime.ccl:
        absent["ccl"] = f"NCCL and RCCL need GPUs ({' or '.join(GPU_RUNTIMES)}); here are {kind} devices"
    elif not runtime.gpus and threads:
        absent["ccl"] = f"{runtime.ccl}'s ranks are processes of their own; leave out --threads"
    elif ccl_library(kind) is None and not _loads(runtime.ccl_file):
        lacking = f"{runtime.ccl_file} was not found; fix: {runtime.ccl_fix}"
        # Who asks for NCCL on a machine without GPUs is not helped by a library for host devices.
        absent["ccl"] = (
            lacking
            if runtime.gpus
            else f"no GPU here, so NCCL and RCCL were not looked for; {runtime.ccl}, for host devices: "
            f"{runtime.ccl_file} was not found"
        )
    if not RUNTIMES[kind].kernels:
        absent["kernel"] = f"{kind} devices run no kernels of Linkgauge; copy_engine and staging copy there"
    for transport, library in NIC_LIBRARIES.items():
        if library.runtime not in ("", kind):
            absent[transport] = (
                f"{library.name} needs {library.runtime} devices; here are {kind} devices"
                if runtime.gpus
                else f"no GPU here, so {library.name} was not looked for"
            )
        elif not any((folder / library.file).is_file() for folder in library_folders()) and not _loads(library.file):
            absent[transport] = f"{library.file} was not found; fix: {library.fix}"
    if mpi:
        absent["mpi"] = mpi
    elif threads:
        absent["mpi"] = "threads mode has no MPI; leave out --threads"
    return {transport: absent[transport] for transport in TRANSPORTS if transport in absent}
