"""Which process holds a folder, named so that no other is taken for it, and whether it still runs; processes by name.

A process id alone names another process in each PID namespace, on each machine and after each boot. Containers that
share memory or a temporary folder find each other's folders there. Imports little: it runs beside every measurement.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Mapping
from typing import Any

from linkgauge.errors import one_line
from linkgauge.files import kernel_data, kernel_text
from linkgauge.model.shape import exact, plain, table, whole

_ENDED = "ZX"


def stat_fields(pid: int | str) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty where there is no such process."""
    text = kernel_data(f"/proc/{pid}/stat").decode(errors="replace")
    return text[text.rindex(")") + 2 :].split() if ")" in text else []


def start_time(pid: int | str) -> int:
    """When a process started, in clock ticks since boot. 0: no process."""
    fields = stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 else 0


def user_name(uid: int) -> str:
    """A user's name, or the number where there is no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def described(pid: int) -> str:
    """A process by its number, program and user, as far as these can be read: `pid 1785 (python3, user anna)`."""
    program = one_line(kernel_text(f"/proc/{pid}/comm"))
    try:
        user = f"user {user_name(os.stat(f'/proc/{pid}').st_uid)}"
    except OSError:  # ended since, or of another PID namespace
        user = ""
    more = ", ".join(filter(None, (program, user)))
    return f"pid {pid}" + (f" ({more})" if more else "")


def sees_itself() -> bool:
    """Whether /proc numbers processes as this one does: not where a PID namespace has kept the /proc of another."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


_HOST_NAMESPACE = 0xEFFFFFFC
"""The inode of the first PID namespace of a kernel (Linux, proc_ns.h: PROC_PID_INIT_INO)."""


def in_host_namespace() -> bool:
    """Whether this process is numbered as the host numbers it: not in a container with a PID namespace of its own."""
    return _namespace() == _HOST_NAMESPACE


def boot_id() -> str:
    """The kernel's id of this boot, which all containers of a machine share; empty where it is not told."""
    return kernel_text("/proc/sys/kernel/random/boot_id")


def node_name() -> str:
    """What tells nodes apart: the boot id, which containers of one host share as they share its memory."""
    return boot_id() or os.uname().nodename


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


@dataclasses.dataclass(frozen=True)
class Owner:
    """A process. Without `boot` and `namespace` it is one of this machine, as older versions have stored it."""

    pid: int
    start_time: int  # clock ticks since boot
    boot: str = ""
    namespace: int = 0  # inode of its PID namespace
    host: str = ""

    @classmethod
    def this_process(cls) -> Owner:
        """This process."""
        return cls(os.getpid(), start_time("self"), boot_id(), _namespace(), os.uname().nodename)

    @classmethod
    def of_plain(cls, value: Mapping[str, Any]) -> Owner:
        """Of what `plain` gave and SHAPE has checked."""
        return cls(**{field.name: value[field.name] for field in dataclasses.fields(cls) if field.name in value})

    def plain(self) -> dict[str, Any]:
        """As it is stored."""
        return dataclasses.asdict(self)

    @property
    def mark(self) -> str:
        """What begins the mark of all that it starts (run/machine/processes.py), also where an older version did."""
        return f"{self.pid}.{self.start_time}." + (f"{self.namespace}." if self.namespace else "")

    @property
    def words(self) -> str:
        """The process in words."""
        return f"process {self.pid}" + (f" on {self.host}" if self.host else "")

    def is_of_this_machine(self) -> bool:
        """Whether it is of this boot of this machine, in whatever PID namespace."""
        here = boot_id()
        if not here:  # no /proc: a boot cannot be told from another
            return not self.boot or self.host == os.uname().nodename
        return self.boot in ("", here)

    def lives(self) -> bool | None:
        """Whether it still runs. None where that cannot be told from here: on another machine or in another PID
        namespace.
        """
        if not self.is_of_this_machine():
            return False if self.host == os.uname().nodename else None  # before a boot, or elsewhere
        if self.namespace not in (0, _namespace()) or not sees_itself() or not self.start_time:
            return None  # without a start time it was made where there is no /proc
        fields = stat_fields(self.pid)
        return len(fields) > 19 and int(fields[19]) == self.start_time != 0 and fields[0] not in _ENDED


SHAPE = table(
    {"pid": whole(), "start_time": whole(), "boot": exact, "namespace": whole(), "host": plain},
    needed=("pid", "start_time"),
)
"""What `plain` stores, also of older versions."""
