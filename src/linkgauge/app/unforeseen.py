"""What no command foresaw: one line that says what to do, and all that is known of it in a file."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import traceback
from collections.abc import Sequence

from linkgauge import __version__
from linkgauge.errors import Exit, one_line
from linkgauge.files import temporary_folder, why_nothing_starts

_SHARED = re.compile(r"([^\s/:]+\.so[.\d]*): cannot open shared object file")
_ANY_PACKAGE = ": install the package of your system that has it"
_PACKAGES = {"libstdc++.so.6": ", which numpy needs: apt-get install libstdc++6, or dnf install libstdc++"}


def told(error: Exception, arguments: Sequence[str]) -> tuple[str, Exit]:
    """Return the line and the exit status of an exception that is none of ours."""
    if isinstance(error, MemoryError):
        # numpy and Arrow say how much could not be had; Python says nothing.
        return f"memory does not suffice{_of(error)}: {_fix(arguments)}", Exit.LACKING
    if why := why_nothing_starts(error):
        return why, Exit.LACKING
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "linkgauge":
        name = error.name.partition(".")[0]
        return f"Python's module {name} is missing: pip install linkgauge, which brings it", Exit.LACKING
    if isinstance(error, ImportError) and (missing := _SHARED.search(str(error))):
        return f"{missing[1]} is missing{_PACKAGES.get(missing[1], _ANY_PACKAGE)}", Exit.LACKING
    where = _written(error, arguments)
    kept = f"please report it with {where}" if where else "please report it; no file could be written of where it was"
    return f"a bug in Linkgauge: {type(error).__name__}{_of(error)}: {kept}", Exit.UNFORESEEN


def _of(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    return f" ({one_line(text)[:300]})" if text else ""


def _fix(arguments: Sequence[str]) -> str:
    """Return what lets a command have more memory."""
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    command = f"'linkgauge {next(iter(arguments), '')}'"
    if most != resource.RLIM_INFINITY:
        return f"{command} may have {most >> 20} MiB of address space: expected more, as 'ulimit -v unlimited' gives"
    return f"{command} ran out of memory: expected fewer cases or samples, or a machine with more memory"


def _written(error: Exception, arguments: Sequence[str]) -> str:
    """Write the traceback to a file that only its user can read, and return its name; empty where that fails."""
    try:
        descriptor, path = tempfile.mkstemp(prefix="linkgauge-unforeseen-", suffix=".txt", dir=temporary_folder())
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"linkgauge {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
            file.write(f"{os.fspath(next(iter(arguments), ''))} with {max(len(arguments) - 1, 0)} further words\n")
            file.writelines(traceback.format_exception(error))
    except (OSError, ValueError, MemoryError):
        return ""
    return path
