"""What UCX or libfabric reads from its environment, as a line of JSON: `python network_library.py ucx|ofi FILE [MPI]`;
of `hsa`, ROCm's runtime, which tells nothing, the file that the loader takes for FILE.

A process of its own. FILE is opened unless the MPI library brings one, as ranks do. UCX prints its tables of options
(ucs_config_parser_print_all_opts of libucs, what `ucx_info -c` calls), of libfabric fi_getparams(3) tells the names
that its providers have registered, with the environment's text.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

_GLOBAL = os.RTLD_NOW | os.RTLD_GLOBAL
_PRINT_VALUES = 1  # UCS_CONFIG_PRINT_CONFIG


class _Param(ctypes.Structure):
    """`struct fi_param` of rdma/fabric.h."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("help_text", ctypes.c_char_p), ("value", ctypes.c_char_p),
    )  # fmt: skip


def of_ucx(file: str) -> dict[str, str]:
    """Each variable of UCX that this process has, with its value as UCX took it."""
    ctypes.CDLL(file, mode=_GLOBAL)  # its transports register their options when they are loaded
    ucs = ctypes.CDLL(str(Path(file).with_name(Path(file).name.replace("libucp", "libucs"))))
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = (ctypes.c_void_p,)
    options = ctypes.addressof(ctypes.c_char.in_dll(ucs, "ucs_config_global_list"))
    with open(os.memfd_create("told"), "w+b") as told:
        stream = libc.fdopen(os.dup(told.fileno()), b"w")
        # The fifth is a filter, of UCX 1.13 and newer.
        ucs.ucs_config_parser_print_all_opts(
            ctypes.c_void_p(stream), ctypes.c_char_p(b"UCX_"), _PRINT_VALUES, ctypes.c_void_p(options), None
        )
        libc.fclose(stream)
        told.seek(0)
        lines = told.read().decode(errors="replace").splitlines()
    return {name: value for name, mark, value in (line.partition("=") for line in lines) if mark}


def of_libfabric(file: str) -> dict[str, str]:
    """Each variable of libfabric and its providers, with the environment's text; empty where it has none."""
    fabric = ctypes.CDLL(file, mode=_GLOBAL)
    parameters, count = ctypes.POINTER(_Param)(), ctypes.c_int()
    if fabric.fi_getparams(ctypes.byref(parameters), ctypes.byref(count)):
        raise OSError("fi_getparams fails")
    every = (parameters[index] for index in range(count.value))
    return {one.name.decode(errors="replace"): (one.value or b"").decode(errors="replace") for one in every}


def mapped(stem: str) -> str:
    """The file of a library that this process has mapped already; empty where there is none."""
    return mapped_as(f"{stem}.so", f"{stem}-")


def mapped_as(*begins: str) -> str:
    """The first file that this process has mapped whose name begins with one of these; empty where there is none."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    return next((line.split(None, 5)[5] for line in lines if any(f"/{begin}" in line for begin in begins)), "")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        ctypes.CDLL(sys.argv[3], mode=_GLOBAL)
    if sys.argv[1] == "hsa":
        ctypes.CDLL(sys.argv[2])
        print(json.dumps({"file": mapped("libhsa-runtime64")}))
    elif sys.argv[1] == "ucx":
        print(json.dumps(of_ucx(mapped("libucp") or sys.argv[2])))
    else:
        print(json.dumps(of_libfabric(mapped("libfabric") or sys.argv[2])))
