#!/usr/bin/env python3
"""The rooms of core/: includes go down only, and no file is long without a reason (docs/architecture.md).

Prints what is otherwise, a line each; exit status 1 then.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# From the bottom. What lies in core/ itself is `base`, but for the bindings.
ROOMS = ("base", "kernels", "device", "group", "traffic", "mpi", "transport", "operation", "measure", "run", "bindings")
_OTHERS = {"programs": "bindings"}
# A folder of transport/ includes the folders that it lies in, none beside it but these.
_LENT = {("transport/nccl", "transport/memory")}  # variant device: the kernels' allreduce, over memory of NCCL's
_MOST_LINES = 400  # of a file whose first line does not begin so:
_REASON = "// Long: "
_INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def room_of(path: str) -> str:
    """The room of a file by its path in core/."""
    folder, slash, _ = path.partition("/")
    if slash:
        return _OTHERS.get(folder, folder)
    return "bindings" if folder.startswith("bindings") else "base"


def folder_beside(own: str, included: str) -> str:
    """The transport's folder that a file of another transport's includes something of, or ""."""
    folder, other = own.rpartition("/")[0], included.rpartition("/")[0]
    if room_of(own) != "transport" or room_of(included) != "transport" or (folder, other) in _LENT:
        return ""
    return "" if f"{folder}/".startswith(f"{other}/") else other


def wrong_in(core: Path) -> list[str]:
    """Each include of a file of a higher room, each file of no room, and each that is long without a reason, a line."""
    wrong = []
    for file in sorted(path for ending in ("*.h", "*.cpp") for path in core.rglob(ending)):
        own = file.relative_to(core).as_posix()
        if room_of(own) not in ROOMS:
            wrong.append(f"core/{own} is in no room: expected a folder of {', '.join(ROOMS)}")
            continue
        text = file.read_text()
        if text.count("\n") > _MOST_LINES and not text.startswith(_REASON):
            lines = text.count("\n")
            wrong.append(f"core/{own} has {lines} lines: expected up to {_MOST_LINES}, or a first line '{_REASON}...'")
        for included in _INCLUDE.findall(text):
            beside = (file.parent / included).is_file()
            room = room_of(own) if beside and "/" not in included else room_of(included)
            if room not in ROOMS or ROOMS.index(room) > ROOMS.index(room_of(own)):
                wrong.append(f'core/{own} includes "{included}": {room_of(own)} is below {room}')
            elif not beside and (other := folder_beside(own, included)):
                folder = own.rpartition("/")[0]
                wrong.append(f'core/{own} includes "{included}": {folder} includes nothing of {other}')
    return wrong


if __name__ == "__main__":
    found = wrong_in(Path(__file__).resolve().parent.parent / "core")
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(1 if found else 0)
