"""The control variables of an MPI library with their values, as a line of JSON: `python mpi_t.py LIBRARY [WHOSE]`.

In a process of its own it comes without MPI_Init: MPI_T_init_thread may come before it (MPI 4.1, section 15.3.4), and
then the library has read the environment. Ranks call it beside MPI (run/machine/answers.py). Handles and datatypes
differ between ABIs, so a value is known by its bytes. Intel MPI says in a variable's description by which name its
users know it, and gives no texts by MPI_T; Cray MPICH has further variables of its own. With WHOSE, `intel` or `cray`,
the library is begun, and what it took is read in its own words. With `begin` it is begun and ended, and nothing else;
with `choices NAME` the words come that a variable takes.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys

_LONGEST = 1 << 16
_MOST_CHOICES = 256
_CHOICE_LINE = re.compile(r"^(\w+) +- ", re.MULTILINE)  # as MPICH describes a choice's words
_ALIAS = re.compile(rb"@Alias:# *(\w+)")


def values(library: ctypes.CDLL) -> dict[str, str]:
    """Name and value of each control variable that is bound to no object; a text, or a whole number in digits.

    OSError where the library has no MPI_T.
    """
    number = ctypes.c_int()
    _begin(library)
    if library.MPI_T_cvar_get_num(ctypes.byref(number)):
        raise OSError("MPI_T cannot be begun")
    every = (_variable(library, index) for index in range(number.value))
    return {one[0]: one[1] for one in every if one is not None}


def value_of(library: ctypes.CDLL, name: str, *, as_number: bool) -> tuple[bool, str | None]:
    """Whether the library has a control variable of this name, and its value: of a choice its name, or its number.

    Some 50 us. OSError where the library has no MPI_T.
    """
    index = _index(library, name)
    if index is None:
        return False, None
    found = _variable(library, index)
    return True, found and (found[1] if as_number else found[2] or found[1])


def choices(library: ctypes.CDLL, name: str) -> list[str]:
    """The words that a control variable takes, by its description; none where that lists none, or there is none.

    OSError where the library has no MPI_T.
    """
    index = _index(library, name)
    described = None if index is None else _described(library, index)
    return [] if described is None else _CHOICE_LINE.findall(described[1].decode(errors="replace"))


def _begin(library: ctypes.CDLL) -> None:
    if library.MPI_T_init_thread(0, ctypes.byref(ctypes.c_int())):
        raise OSError("MPI_T cannot be begun")


def _index(library: ctypes.CDLL, name: str) -> int | None:
    """The number of a control variable; None where the library has none of that name."""
    index = ctypes.c_int()
    _begin(library)
    return None if library.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)) else index.value


def _described(library: ctypes.CDLL, index: int) -> tuple[bytes, bytes, ctypes.c_void_p] | None:
    """A control variable's name, description and enumeration; None where the library does not say."""
    name, length = ctypes.create_string_buffer(_LONGEST), ctypes.c_int(_LONGEST)
    about, described = ctypes.create_string_buffer(_LONGEST), ctypes.c_int(_LONGEST)
    verbosity, bind, scope = (ctypes.byref(ctypes.c_int()) for _ in range(3))
    kind, enumeration = ctypes.c_void_p(), ctypes.c_void_p()
    if library.MPI_T_cvar_get_info(index, name, ctypes.byref(length), verbosity, ctypes.byref(kind),
                                   ctypes.byref(enumeration), about, ctypes.byref(described), bind,
                                   scope):  # fmt: skip
        return None
    return name.value, about.value, enumeration


def _variable(library: ctypes.CDLL, index: int) -> tuple[str, str, str] | None:
    """Name, value, and the value's own name where it is a choice; None where it cannot be read, or by an object."""
    described = _described(library, index)
    if described is None:
        return None
    name, about, enumeration = described
    handle, count = ctypes.c_void_p(), ctypes.c_int()
    if library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)):
        return None
    if not 0 < count.value < _LONGEST // 8:
        return None
    content = ctypes.create_string_buffer(_LONGEST)
    if library.MPI_T_cvar_read(handle, content):
        return None
    alias = _ALIAS.search(about)
    known = alias[1] if alias is not None else name
    value = _told(content.raw, count.value)
    return known.decode(errors="replace"), value, _choice(library, enumeration, value) if count.value == 1 else ""


def _choice(library: ctypes.CDLL, enumeration: ctypes.c_void_p, value: str) -> str:
    """What an enumeration calls a value; empty where it is none of one (MPI_T_ENUM_NULL differs between libraries)."""
    items, name, length = ctypes.c_int(), ctypes.create_string_buffer(_LONGEST), ctypes.c_int(_LONGEST)
    if not enumeration or library.MPI_T_enum_get_info(enumeration, ctypes.byref(items), name, ctypes.byref(length)):
        return ""
    for index in range(min(items.value, _MOST_CHOICES)):
        number, length = ctypes.c_int(), ctypes.c_int(_LONGEST)
        if library.MPI_T_enum_get_item(enumeration, index, ctypes.byref(number), name, ctypes.byref(length)):
            return ""
        if str(number.value) == value:
            return name.value.decode(errors="replace")
    return ""


def said_at_start(library: ctypes.CDLL, variable: str, value: str) -> list[str]:
    """The lines that the library writes when it is begun and ended under that variable. OSError where it cannot be."""
    os.environ[variable] = value
    own = [(number, os.dup(number)) for number in (1, 2)]
    with open(os.memfd_create("told"), "w+b") as told:
        for number, _ in own:
            os.dup2(told.fileno(), number)
        failed = library.MPI_Init(None, None)
        if not failed:
            library.MPI_Finalize()
        ctypes.CDLL(None).fflush(None)
        for number, kept in own:
            os.dup2(kept, number)
        told.seek(0)
        lines = told.read().decode(errors="replace").splitlines()
    if failed:
        raise OSError("MPI_Init fails")
    return lines


def displayed(lines: list[str]) -> dict[str, str]:
    """Name and value of each variable that Cray MPICH lists under MPICH_ENV_DISPLAY=1 (intro_mpi), as rank 0 has it."""
    listed = (re.fullmatch(r"PE 0:\s+([A-Z][A-Z0-9_]+)\s+=\s?(.*?)\s*", line) for line in lines)
    return {found[1]: found[2] for found in listed if found}


def taken(lines: list[str]) -> dict[str, str]:
    """Name and value of each variable that the lines of Intel MPI's start list and do not complain of."""
    set_there = (re.fullmatch(r".*: (I_MPI_\w+)=(.*)", line) for line in lines)
    listed = {found[1]: found[2] for found in set_there if found}
    doubts = [line for line in lines if re.search(r"ignored|not supported|[Ii]ncorrect|[Ii]nvalid", line)]

    def heeded(name: str, value: str) -> bool:
        words = (f'"{value}"', f" {name.removeprefix('I_MPI_ADJUST_')}={value},", f"{name} environment")
        return not any(word in line for line in doubts for word in words)

    return {name: value for name, value in listed.items() if heeded(name, value)}


def _told(content: bytes, count: int) -> str:
    if count > 1:
        return content.split(b"\0", 1)[0].decode(errors="replace")
    whole = int.from_bytes(content[:8], "little", signed=True)
    return str(whole - (1 << 32) if 1 << 31 <= whole < 1 << 32 else whole)


if __name__ == "__main__":
    opened = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    if sys.argv[2:] == ["begin"]:
        sys.exit(1 if opened.MPI_Init(None, None) or opened.MPI_Finalize() else 0)
    if sys.argv[2:3] == ["choices"]:
        print(json.dumps(choices(opened, sys.argv[3])))
        sys.exit()
    there = values(opened)
    if sys.argv[2:] == ["intel"]:
        there |= taken(said_at_start(opened, "I_MPI_DEBUG", "10"))
    elif sys.argv[2:] == ["cray"]:
        there |= displayed(said_at_start(opened, "MPICH_ENV_DISPLAY", "1"))
    print(json.dumps(there))
