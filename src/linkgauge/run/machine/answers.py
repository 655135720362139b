"""What the libraries of a rank say of the launch's variables: whether they have them, and with which value.

Asked once a launch, by rank 0, as soon as the libraries are loaded, and only where the launch has variables. MPI
libraries answer by MPI_T, UCX and libfabric by calls of their own. NCCL has no such call: its file has the name of each
variable that it reads. A name that is in none of them does nothing. What no library can answer is left out.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from linkgauge.run.machine import mpi_t, network_library

Answer = dict[str, Any]
"""`known`: whether the library has the variable; `value`: what it has, None where it does not tell; `by`: which."""

_OF_RANKS = tuple(
    f"OMPI_MCA_{framework}"
    for framework in ("btl", "pml", "mtl", "coll", "osc", "smsc", "accelerator", "mpi_", "opal_common_ucx")
)
"""What of Open MPI's variables the ranks read: others are its launcher's."""
_PLUGINS = ("libnccl-net", "libnccl-tuner", "libnccl-profiler", "libnccl-env", "librccl-net")
"""Libraries that NCCL opens by itself, which read variables of their own."""
_FAMILIES = ("MM", "SM", "SCOPY", "IB", "RC", "UD", "DC")
"""Names by which UCX takes an option of several of its transports at once."""


def answers_of(names: Iterable[str], mpi_library: str, mpi_text: str, used: frozenset[str]) -> dict[str, Answer]:
    """What is said of variables. `mpi_library`: its file, empty without; `mpi_text`: how it names itself; `used`: the
    transports of the launch."""
    found: dict[str, Answer] = {}
    libraries: list[tuple[tuple[str, ...], Callable[[list[str]], Mapping[str, Answer]]]] = [
        (("MPIR_CVAR_", *_OF_RANKS), lambda own: _of_mpi(own, mpi_library, mpi_text)),
        (("UCX_",), lambda own: _of_ucx(own, used)),
        (("FI_",), _of_libfabric),
        (("NCCL_", "RCCL_"), lambda own: _of_nccl(own, used)),
    ]
    for prefixes, ask in libraries:
        own = sorted(name for name in names if name.startswith(prefixes))
        # A library that cannot be asked leaves its variables unknown: they cost no measured case.
        with contextlib.suppress(OSError, AttributeError, ValueError):
            found |= ask(own) if own else {}
    return found


def _answer(known: bool, value: str | None, by: str) -> Answer:
    return {"known": known, "value": value, "by": by}


def _of_mpi(names: list[str], file: str, text: str) -> dict[str, Answer]:
    if not file or "Intel" in text:  # which has other names for its users than MPI_T has
        return {}
    library = ctypes.CDLL(file)
    title = "Open MPI" if "Open MPI" in text else "MPICH" if "MPICH" in text else "the MPI library"
    found = {}
    for name in names:
        if name.startswith("OMPI_MCA_") == (title == "Open MPI"):
            number = os.environ.get(name, "").removeprefix("-").isdecimal()  # the form in which a choice was written
            known, value = mpi_t.value_of(library, name.removeprefix("OMPI_MCA_"), as_number=number)
            found[name] = _answer(known, value, f"{title} (MPI_T)")
        else:
            found[name] = _answer(False, None, f"{title}, which is the MPI library here,")
    return found


def _of_ucx(names: list[str], used: frozenset[str]) -> dict[str, Answer]:
    file = network_library.mapped("libucp")
    if not file:  # these load it later
        others = used & {"ucx", "nixl", "nvshmem"}
        return {} if others else {name: _answer(False, None, "this launch, without UCX,") for name in names}
    transports = ctypes.CDLL(network_library.mapped("libuct"))
    # Its modules register their variables when they are loaded, which they are by this; 2 ms.
    components, count = ctypes.c_void_p(), ctypes.c_uint()
    if transports.uct_query_components(ctypes.byref(components), ctypes.byref(count)) == 0:
        transports.uct_release_component_list(components)
    told = network_library.of_ucx(file)
    if not told:
        return {}
    # UCX_MM_FIFO_SIZE is UCX_POSIX_FIFO_SIZE and UCX_SYSV_FIFO_SIZE, of which only these are told.
    shared = [name for name in names if name not in told and _is_shared(name, told)]
    return {name: _answer(name in told, told.get(name), "UCX") for name in names if name not in shared}


def _is_shared(name: str, told: Iterable[str]) -> bool:
    family, _, rest = name.removeprefix("UCX_").partition("_")
    return family in _FAMILIES and any(one.endswith(f"_{rest}") for one in told)


def _of_libfabric(names: list[str]) -> dict[str, Answer]:
    file = network_library.mapped("libfabric")
    told = network_library.of_libfabric(file) if file else {}
    # A provider that is not loaded yet may have more.
    return {name: _answer(True, told[name], "libfabric") for name in names if name in told}


def _of_nccl(names: list[str], used: frozenset[str]) -> dict[str, Answer]:
    files = [path for stem in ("libnccl.so", "librccl.so") if (path := network_library.mapped_as(stem))]
    if not files or "ccl" not in used:
        return {}
    plugins = [path for stem in _PLUGINS if (path := network_library.mapped_as(stem) or _in_search_path(stem))]
    if any(name.endswith("_PLUGIN") for name in os.environ if name.startswith("NCCL_")) and not plugins:
        return {}  # of a name that is not found here
    held = {name for name in names for file in (*files, *plugins) if _has(file, name)}
    return {name: _answer(name in held, None, Path(files[0]).name) for name in names}


def _has(file: str, name: str) -> bool:
    """Whether a library's file has a text, ended as C ends it: 0.1 s for 300 MB where it has not."""
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(name.encode() + b"\0") >= 0


def _in_search_path(stem: str) -> str:
    folders = [Path(one) for one in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if one]
    return next((str(path) for folder in folders for path in sorted(folder.glob(f"{stem}*.so*"))), "")
