"""What clears another node than the parent's of a launch: `python -I -S node_survivor.py PACKAGE OWNER_FILE`.

The first rank of a node starts it. All ranks there hold a shared lock on the owner file, which goes when they end,
however that is; this process waits for it in the kernel, then for the launcher's part, and removes what they left. The
file says by boot id, namespace and start time whose that is: where this process is killed too, whoever uses the node
next removes it (private_folder.clean_leftovers).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

_LAUNCHERS_TIME_S = 15.0  # for its part on this node to end by itself, which tells the parent how ranks ended
_LOOK_EVERY_S = 0.25


def claim(folder: Path, mark: str) -> None:
    """Hold this node's part of the launch whose TMPDIR is `folder`, as long as this rank lives; started once a node."""
    from linkgauge.run.machine.private_folder import node_owner_file
    from linkgauge.run.machine.processes import MARK

    root = next((one for one in folder.parents if one.name.startswith("linkgauge-")), None)
    if root is None:  # a batch system's own: it gives its folder where a node lacks the launch's
        return
    path = node_owner_file(folder, mark)
    with contextlib.suppress(OSError):  # no room for it: the launch will say so, and the node is cleared by its age
        try:
            held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            first = True
        except FileExistsError:
            held, first = os.open(path, os.O_RDWR), False
        fcntl.flock(held, fcntl.LOCK_SH)  # the kernel's until the process ends: the descriptor is never closed
        if first:
            subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(Path(__file__).resolve().parents[3]), str(path)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                # Neither one of the launch's own processes, nor with its TMPDIR, which it is to remove.
                env={**{name: value for name, value in os.environ.items() if name != MARK},
                     "TMPDIR": str(root.parent)}, start_new_session=True,
            )  # fmt: skip


def main() -> None:
    """Wait until all ranks of the node have ended, and clear it."""
    sys.path.insert(0, sys.argv[1])
    path = Path(sys.argv[2])
    from linkgauge.owner import Owner

    with path.open("r+") as file:
        file.write(json.dumps(Owner.this_process().plain()))
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        from linkgauge.run.machine import processes
        from linkgauge.run.machine.private_folder import clear_node, mark_of_owner

        until = time.monotonic() + _LAUNCHERS_TIME_S
        while processes.marked(mark_of_owner(path)) and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
        clear_node(path)


if __name__ == "__main__":
    main()
