"""The control variables of an MPI library with their values, as a line of JSON: `python mpi_t.py LIBRARY`.

A process of its own, without MPI_Init: MPI_T_init_thread may come before it (MPI 4.1, section 15.3.4), and then the
library has read the environment. Handles and datatypes differ between ABIs, so a value is told by its bytes.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

_LONGEST = 1 << 16


def values(library: ctypes.CDLL) -> dict[str, str]:
    """Name and value of each control variable that is bound to no object; a text, or a whole number in digits.

    OSError where the library has no MPI_T.
    """
    number = ctypes.c_int()
    if library.MPI_T_init_thread(0, ctypes.byref(number)) or library.MPI_T_cvar_get_num(ctypes.byref(number)):
        raise OSError("MPI_T cannot be begun")
    found = {}
    for index in range(number.value):
        name, length = ctypes.create_string_buffer(_LONGEST), ctypes.c_int(_LONGEST)
        rest = [ctypes.c_int() for _ in range(4)]
        verbosity, bind, scope, described = (ctypes.byref(one) for one in rest)
        kind, enumeration = ctypes.c_void_p(), ctypes.c_void_p()
        if library.MPI_T_cvar_get_info(index, name, ctypes.byref(length), verbosity, ctypes.byref(kind),
                                       ctypes.byref(enumeration), None, described, bind, scope):  # fmt: skip
            continue
        handle, count = ctypes.c_void_p(), ctypes.c_int()
        if library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)):
            continue
        if not 0 < count.value < _LONGEST // 8:
            continue
        content = ctypes.create_string_buffer(_LONGEST)
        if library.MPI_T_cvar_read(handle, content) == 0:
            found[name.value.decode(errors="replace")] = _told(content.raw, count.value)
    return found


def _told(content: bytes, count: int) -> str:
    if count > 1:
        return content.split(b"\0", 1)[0].decode(errors="replace")
    whole = int.from_bytes(content[:8], "little", signed=True)
    return str(whole - (1 << 32) if 1 << 31 <= whole < 1 << 32 else whole)


if __name__ == "__main__":
    print(json.dumps(values(ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_GLOBAL))))
