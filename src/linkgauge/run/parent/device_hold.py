"""One run at a time measures on a GPU: who holds one is known to every user of the machine.

A hold is an abstract Unix socket (unix(7)) named after the device: a killed process leaves no file, and the kernel
says which process and user listen. Containers with a network of their own do not see each other's. Host devices have
none: tests and small runs share cores, and the doctor warns of other load before a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError, one_line
from linkgauge.model.runtimes import RUNTIMES
from linkgauge.owner import stat_fields, user_name
from linkgauge.run.parent.devices import DeviceSet

SPACE = "LINKGAUGE_DEVICE_HOLDS"
"""The variable that names another space of holds, for tests over one emulated GPU."""
_ANSWER_S = 1.0
_LOOKED_EVERY_S = 1.0
_SAID_EVERY_S = 10.0
_MOST_BYTES = 1 << 16
_mine: set[str] = set()


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who measures on a device."""

    device: str
    pid: int
    user: str
    folder: str

    def __str__(self) -> str:
        """Return it in words."""
        where = f" into {self.folder}" if self.folder else ""
        return f"{self.device} is in use by the run of PID {self.pid} (user {self.user}){where}"


@contextlib.contextmanager
def held(
    devices: DeviceSet | None, folder: Path, wait_s: float = 0.0, note: Callable[[str], None] = print
) -> Iterator[None]:
    """Hold the devices of a run into `folder`, at most `wait_s` later; None: they are of other nodes, and none is held.

    Raises:
        EnvironmentLackingError: another run has one of them, which is named with its process, user and folder.
    """
    until, said_at = time.monotonic() + wait_s, -_SAID_EVERY_S
    while True:
        sockets: dict[str, socket.socket] = {}
        other = _take(devices, sockets)
        if other is None:
            break
        _close(sockets)
        now = time.monotonic()
        if now >= until:
            after = f" after {wait_s:.0f} s" if wait_s else ""
            raise EnvironmentLackingError(f"{other}{after}: wait for it with --wait 10m, or choose other --devices")
        if now - said_at >= _SAID_EVERY_S:
            said_at = now
            note(f"{other}: waiting at most {until - now:.0f} s more; Ctrl-C ends")
        time.sleep(min(_LOOKED_EVERY_S, max(until - now, 0.0)))
    words = json.dumps({"folder": str(folder.resolve())}).encode()
    answering = [threading.Thread(target=_answer, args=(each, words), daemon=True) for each in sockets.values()]
    for thread in answering:
        thread.start()
    try:
        yield
    finally:
        _close(sockets)
        for thread in answering:  # the kernel keeps the name while one waits in accept
            thread.join(_ANSWER_S)


def _names(devices: DeviceSet | None) -> dict[str, str]:
    """What each device is called for a user, by the name of its socket."""
    if devices is None or not RUNTIMES[devices.kind].gpus:
        return {}
    space = os.environ.get(SPACE, "")
    found = {}
    for ordinal, info in zip(devices.ordinals, devices.infos, strict=True):
        identity = info.get("uuid") or info.get("pci_address") or ordinal
        found[f"\0linkgauge{space}/{devices.kind}/{identity}"] = f"{devices.kind}:{ordinal}"
    return found


def _take(devices: DeviceSet | None, sockets: dict[str, socket.socket]) -> Holder | None:
    """Take all in one order, so that no two runs wait for each other; the holder of the first that is taken."""
    for name, device in sorted(_names(devices).items()):
        if name in _mine:  # a command within this process, of the same run
            continue
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            one.bind(name)
            one.listen(8)
        except OSError:
            one.close()
            holder = _holder(name, device)
            if holder.pid in _ancestors():  # 'linkgauge crosscheck' has started this run, and waits for it
                continue
            return holder
        sockets[name] = one
        _mine.add(name)
    return None


def _ancestors() -> list[int]:
    """Return the processes that have started this one, as far as this PID namespace shows."""
    found = [os.getppid()]
    while found[-1] > 1 and (fields := stat_fields(found[-1])):
        found.append(int(fields[1]))
    return [pid for pid in found if pid > 1]


def _close(sockets: dict[str, socket.socket]) -> None:
    for name, one in sockets.items():
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        one.close()
        _mine.discard(name)


def _answer(listening: socket.socket, words: bytes) -> None:
    """Tell who asks where the run's folder is, until the hold ends."""
    while True:
        try:
            other, _ = listening.accept()
        except OSError:
            return
        with other, contextlib.suppress(OSError):
            other.settimeout(_ANSWER_S)
            other.sendall(words)


def _holder(name: str, device: str) -> Holder:
    """Ask the kernel, and then the process itself, who holds a device."""
    pid, user, folder = 0, "unknown", ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking, contextlib.suppress(OSError, ValueError):
        asking.settimeout(_ANSWER_S)
        asking.connect(name)
        pid, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        user = user_name(uid)
        said = json.loads(asking.recv(_MOST_BYTES).decode(errors="replace"))
        folder = one_line(str(said["folder"]))[:500] if isinstance(said, dict) and "folder" in said else ""
    return Holder(device, pid, user, folder)
