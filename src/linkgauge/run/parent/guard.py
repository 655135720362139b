"""Runs a command that is to end when its parent does: `python -I -S guard.py PARENT_PID COMMAND...`.

A launcher that outlives a killed parent would keep its ranks measuring for nobody. The kernel sends SIGTERM to the
launcher when the parent dies (launchers end their ranks on it), and the setting survives exec.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the signal, look whether the parent died before it was set, and become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent has ended")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"cannot start {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
