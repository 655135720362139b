"""A worker on a node of its own: rank R under another host name, boot id and steady clock, all by namespaces.

`on_a_node.py SHIFT_S WORKER...` moves the clock of rank R by R times SHIFT_S seconds. With `apart` in place of SHIFT_S
the clocks are left, and the node has shared memory of its own: not even the parent's is there.
"""

from __future__ import annotations

import os
import subprocess
import sys

_OWN_MEMORY = "mount -t tmpfs tmpfs /dev/shm && "


def namespaces_may_be_made() -> bool:
    """Whether this user may make what a node needs here."""
    command = ["unshare", "--time", "--monotonic", "5", "--mount", "--uts", "--fork", "sh", "-c",
               f"{_OWN_MEMORY}mount --bind /proc/version /proc/sys/kernel/random/boot_id"]  # fmt: skip
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def main() -> None:
    """Become `unshare`, whose child becomes the worker."""
    rank = next(int(os.environ[name]) for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
    apart = sys.argv[1] == "apart"
    shift_s = 0 if apart else int(sys.argv[1]) * rank
    boot_id = os.path.join(os.environ["TMPDIR"], f"boot-id-{rank}")
    with open(boot_id, "w") as file:
        file.write(f"boot of node {rank}\n")
    script = (
        f"{_OWN_MEMORY if apart else ''}mount --bind '{boot_id}' /proc/sys/kernel/random/boot_id && "
        f"echo node{rank} > /proc/sys/kernel/hostname && "
        'exec "$@"'
    )
    command = ["unshare", "--time", "--monotonic", str(shift_s), "--boottime", str(shift_s), "--mount", "--uts",
               "--fork", "--kill-child", "sh", "-c", script, "sh", *sys.argv[2:]]  # fmt: skip
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
