"""A worker on a node of its own: rank R under another host name, boot id and steady clock, all by namespaces.

`on_a_node.py SHIFT_S WORKER...` moves the clock of rank R by R times SHIFT_S seconds.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Become `unshare`, whose child becomes the worker."""
    rank = next(int(os.environ[name]) for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK") if name in os.environ)
    shift_s = int(sys.argv[1]) * rank
    boot_id = os.path.join(os.environ["TMPDIR"], f"boot-id-{rank}")
    with open(boot_id, "w") as file:
        file.write(f"boot of node {rank}\n")
    script = (
        f"mount --bind '{boot_id}' /proc/sys/kernel/random/boot_id && echo node{rank} > /proc/sys/kernel/hostname && "
        'exec "$@"'
    )
    command = ["unshare", "--time", "--monotonic", str(shift_s), "--boottime", str(shift_s), "--mount", "--uts",
               "--fork", "--kill-child", "sh", "-c", script, "sh", *sys.argv[2:]]  # fmt: skip
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
