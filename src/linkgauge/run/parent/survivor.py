"""Ends and removes what a killed parent leaves: `python -I -S survivor.py PACKAGE`, which waits on its standard input.

Launchers end their ranks when their parent dies (guard.py), but wait without end for one that is stopped, and nobody is
left to remove folders in shared memory. This process sleeps until its input closes. Where the parent has not written to
it before, it was killed: what carries its mark is ended by SIGKILL once launchers had their time, and what it had made
is removed. Other nodes have such processes of their own (run/rank/node_survivor.py).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

_LAUNCHERS_TIME_S = 2.0


class Survivor:
    """The process beside a parent that measures."""

    def __init__(self) -> None:
        """Start it; where no process can be had the run goes on without."""
        # Not above: the process itself finds no package before its end.
        from linkgauge.run.machine.processes import MARK

        self._process: subprocess.Popen[bytes] | None = None
        package = str(Path(__file__).resolve().parents[3])
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, package],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # Not marked as what another parent started (peers/): it would be ended by that one's, and none cleaned.
                env={name: value for name, value in os.environ.items() if name != MARK},
                start_new_session=True,  # a terminal's signals, and those to the parent's group, are not for it
            )

    def close(self) -> None:
        """Tell it that all is cleaned up, and wait for its end."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.communicate(b"done\n")


def main() -> None:
    """Wait for the parent's word or its end."""
    if sys.stdin.buffer.read():
        return
    time.sleep(_LAUNCHERS_TIME_S)
    sys.path.insert(0, sys.argv[1])
    from linkgauge.run.machine.private_folder import clean_leftovers

    clean_leftovers()


if __name__ == "__main__":
    main()
