"""What a node says of itself before ranks are started there: sent by ssh to a Python of its own, and run from a pipe.

It needs the standard library only: what it looks for is whether the rest is there. Its standard input brings its own
text, then a line of JSON that says what is expected, then one or more that name nodes to reach. It answers each with
a line of JSON. A line takes no longer than its own limits, so that the whole look is over in seconds.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.machinery
import importlib.util
import json
import os
import re
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

WORD = "LINKGAUGE-NODE "
PACKAGES = ("linkgauge", "mpi4py", "numpy")
_LEAST_FREE = {"temporary": 8 << 20, "shared": 16 << 20}  # bytes that one rank of any MPI library takes there
_CONNECT_S = 1.5
_PASS_S = 2.0  # for so many bytes both ways: they fit through 1 Mb/s
_BYTES = 32 << 10  # several packets of the largest MTU
_MTU = {socket.AF_INET: (socket.IPPROTO_IP, 14), socket.AF_INET6: (socket.IPPROTO_IPV6, 24)}  # Linux, in.h, in6.h
_SIOCGIFADDR = 0x8915


def version_of(package: str, folders: Sequence[str] = ()) -> str:
    """The version that a Python with these folders on its path finds; empty where it finds none."""
    spec = importlib.machinery.PathFinder.find_spec(package, list(folders)) or importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        return ""
    if package == "linkgauge":  # a checkout has no metadata, or that of an earlier set-up
        found = re.search(r'^__version__ = "([^"]+)"', Path(spec.origin).read_text(), re.MULTILINE)
        return found[1] if found else ""
    # As its folder of metadata is called: importlib.metadata takes half of this program's time to import, and many
    # nodes may read its files from one server at once.
    beside = Path(spec.origin).parent.parent
    found = re.search(rf"^{package}-([^-]+)\.(?:dist|egg)-info$", "\n".join(_names(str(beside))), re.MULTILINE)
    return found[1] if found else "of no known version"


def lock_limit() -> int:
    """Bytes that a process here may lock in memory; -1: no limit."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return -1 if limit == resource.RLIM_INFINITY else limit


def _why_unwritable(folder: str, least: int) -> str:
    """Why no file of so many bytes can be made in a folder; empty where one can."""
    try:
        state = os.statvfs(folder)
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, 4096)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return f"{folder} is full" if full else f"{folder} cannot be written: {error.strerror}"
    free = state.f_bavail * state.f_frsize
    if free < least:
        return f"{folder} has {free >> 10} KiB free: a rank needs {least >> 20} MiB"
    return ""


def problems(wanted: Mapping[str, Any]) -> list[str]:
    """Why no rank could be started here as `wanted`, a predicate or a sentence each."""
    found = []
    mine = ".".join(map(str, sys.version_info[:2]))
    if mine != wanted["python"]:
        found.append(f"{sys.executable} is Python {mine}, here it is {wanted['python']}")
    else:
        for name, version in wanted["versions"].items():
            there = version_of(name, wanted["path"])
            if not there:
                found.append(f"Python has no package {name} (here it has {version})")
            elif there != version:
                found.append(f"Python has {name} {there}, here it has {version}")
    found += [f"there is no {file}" for file in wanted["files"] if not os.path.exists(file)]
    temporary = wanted["temporary"]
    found.append(_why_unwritable(temporary, _LEAST_FREE["temporary"]))
    if os.path.isdir("/dev/shm"):
        found.append(_why_unwritable("/dev/shm", _LEAST_FREE["shared"]))
    folder, shared = wanted["folder"], wanted["shared"]
    if folder and not (os.path.exists(shared) if shared else os.path.isdir(folder)):
        found.append(f"it does not see the run's folder {folder}: expected one that all nodes share")
    elif folder and wanted["writes"] and not os.access(folder, os.W_OK):
        found.append(f"{folder} cannot be written, where its ranks record the run")
    known = {name for _, name in socket.if_nameindex()} | set(_names("/sys/class/infiniband"))
    for variable, names in wanted["interfaces"].items():
        lacking = [name for name in names if name not in known]
        if lacking:
            found.append(f"there is no interface {lacking[0]}, which {variable} names")
    if _names("/sys/class/infiniband") and 0 <= lock_limit() < 64 << 20:
        found.append(f"only {lock_limit() >> 10} KiB of memory may be locked: RDMA needs more (ulimit -l unlimited)")
    return [one for one in found if one]


def warnings(wanted: Mapping[str, Any]) -> list[str]:
    """What may harm a run here, and does not stop it."""
    found = []
    home = os.path.expanduser("~")
    if not os.access(home, os.W_OK):
        found.append(f"home folder {home} cannot be written: compiled kernels are not kept")
    limit, theirs = lock_limit(), wanted["lock_limit"]
    if not _names("/sys/class/infiniband") and limit >= 0 and (theirs < 0 or limit < theirs):
        found.append(f"only {limit >> 10} KiB of memory may be locked, here it is more (ulimit -l)")
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def addresses() -> dict[str, tuple[str, int]]:
    """By interface that is up and no loopback its IPv4 address and its MTU."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                said = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                mtu = int(Path(f"/sys/class/net/{name}/mtu").read_text())
                up = int(Path(f"/sys/class/net/{name}/flags").read_text(), 16) & 1
            except (OSError, ValueError):
                continue
            address = socket.inet_ntoa(said[20:24])
            if up and not address.startswith("127."):
                found[name] = (address, mtu)
    return found


def serve(server: socket.socket, token: bytes) -> None:
    """Give back what callers with the token send, each in its own thread, until this process ends."""

    def one(link: socket.socket) -> None:
        try:
            with link:
                link.settimeout(_PASS_S)
                if _taken(link, len(token)) == token and len(_taken(link, _BYTES)) == _BYTES:
                    link.sendall(b"k")
                    link.sendall(bytes(_BYTES))
                    _taken(link, 1)
        except OSError:
            return

    def all_of_them() -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(link,), daemon=True).start()

    threading.Thread(target=all_of_them, daemon=True).start()


def _taken(link: socket.socket, count: int) -> bytes:
    held = b""
    while len(held) < count:
        more = link.recv(count - len(held))
        if not more:
            break
        held += more
    return held


def why_not_reached(places: Iterable[str], port: int, token: bytes) -> dict[str, Any]:
    """Why bytes do not go both ways to the first of these names or addresses that answers; nothing where they do.

    `why`, and the `mtu` of the connection where only packets of full size are lost, else 0.
    """
    why = "it has no address"
    for place in places:
        try:
            link = socket.create_connection((place, port), timeout=_CONNECT_S)
        except OSError as error:
            why = f"{place} port {port}: {error.strerror or error}"
            continue
        with link:
            link.settimeout(_PASS_S)
            mtu = link.getsockopt(*_MTU[link.family])
            answer = b""
            try:
                link.sendall(token + bytes(_BYTES))
                answer = _taken(link, 1)
                if answer == b"k" and len(_taken(link, _BYTES)) == _BYTES:
                    link.sendall(b"e")
                    return {}
            except OSError:
                pass
            way = "back from" if answer == b"k" else "to"
            why = (f"{place}: it answers, but packets of full size are lost on the way {way} it (MTU {mtu} at this "
                   "end): expected one MTU on all nodes and switches")  # fmt: skip
            return {"why": why, "mtu": mtu}
    return {"why": why, "mtu": 0}


def main() -> None:
    """Say what this node has, then which of the nodes that are named it reaches."""
    lines = sys.stdin.buffer
    wanted = json.loads(lines.readline())
    token = wanted["token"].encode()
    server = socket.create_server(("", 0), backlog=64)
    serve(server, token)
    said = {"problems": problems(wanted), "warnings": warnings(wanted), "time": time.time(),
            "host": os.uname().nodename, "addresses": addresses(), "port": server.getsockname()[1]}  # fmt: skip
    print(WORD + json.dumps(said), flush=True)
    for line in lines:  # the last wait is for the end of the look: others may still be sending to this node
        print(WORD + json.dumps(_unreached(json.loads(line), token)), flush=True)


def _unreached(peers: Mapping[str, tuple[Sequence[str], int]], token: bytes) -> dict[str, dict[str, Any]]:
    """Those of these peers to which bytes do not go both ways, and why; all are tried at once."""
    found: dict[str, dict[str, Any]] = {}

    def reach(name: str, places: Sequence[str], port: int) -> None:
        if why := why_not_reached(places, port, token):
            found[name] = why

    threads = [threading.Thread(target=reach, args=(name, *peer), daemon=True) for name, peer in peers.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


if __name__ == "__main__":
    main()
