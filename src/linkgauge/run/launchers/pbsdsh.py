"""The nodes of a PBS job where there is no ssh: PBS' own pbsdsh as the remote shell of an MPI library's launcher.

PBS starts, counts and ends what goes by pbsdsh (its task manager, tm(3B)); a launcher that was built with PBS needs
none of this. Not seen on a machine of ours: by the manual, pbsdsh(1B): `pbsdsh -n INDEX -- PROGRAM ARGUMENTS`, INDEX a
line of $PBS_NODEFILE, from 0.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from linkgauge.run.machine.private_folder import LaunchFolders

# As launchers call ssh: options, a host, and words that a shell there puts together.
_SHELL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
at=0
while read -r name; do
    [ "$name" = "$host" ] && exec "PBSDSH" -n "$at" -- /bin/sh -c "$*"
    at=$((at + 1))
done < "$PBS_NODEFILE"
echo "pbsdsh: $host is not in $PBS_NODEFILE" >&2
exit 255
"""


def remote_shell(folders: LaunchFolders | None) -> Path | None:
    """A program that is called as ssh is and goes by pbsdsh, in the launch's folder; None where ssh is to be had, or
    this is no job of PBS."""
    program = shutil.which("pbsdsh")
    if folders is None or program is None or "PBS_NODEFILE" not in os.environ or shutil.which("ssh") is not None:
        return None
    path = folders.temporary / "pbsdsh"
    path.write_text(_SHELL.replace("PBSDSH", program))
    path.chmod(0o700)
    return path
