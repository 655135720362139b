"""Faults that keep a node of an emulated cluster from starting ranks, or harm them, each as a site may have it.

Each is planted on one node, of which alone `names` is then to be said.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from .cluster import Cluster

_PROGRAMS = Path(sys.executable).parent
_PACKAGES = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
_SOURCE = Path(__file__).resolve().parents[2] / "src" / "linkgauge"


@dataclasses.dataclass(frozen=True)
class StartFault:
    """A fault: how it is planted on a node, what is to be said of that node, and the exit status of a run with it."""

    name: str
    plant: Callable[[Cluster, str], None]
    says: str
    status: int = 5
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def stops(self) -> bool:
        """Whether a run does not begin."""
        return self.status == 5


def on_node(cluster: Cluster, node: str, script: str) -> None:
    """Run a shell's words on a node, which are to succeed."""
    done = cluster.run(node, ["sh", "-ec", script])
    assert done.returncode == 0, done.stderr


def _ssh(words: str, before: str = "") -> Callable[[Cluster, str], None]:
    """What ssh does in place of entering the node: says words on stderr, of `$host`, and ends with 255."""

    def plant(cluster: Cluster, node: str) -> None:
        (cluster.folder / f"{node}.ssh").write_text(f'{before}\necho "{words}" >&2\nexit 255\n')

    return plant


def _no_name(cluster: Cluster, node: str) -> None:
    (cluster.folder / f"{node}.pid").unlink()


def _script(words: str) -> Callable[[Cluster, str], None]:
    def plant(cluster: Cluster, node: str) -> None:
        on_node(cluster, node, words.replace("FOLDER", str(cluster.folder)).replace("NODE", node))

    return plant


def _python(first: str, program: str = "") -> Callable[[Cluster, str], None]:
    """Have the node's Python begin with a shell's words, and perhaps be another program."""

    def plant(cluster: Cluster, node: str) -> None:
        folder = cluster.folder / f"bin-{node}"
        shutil.copytree(_PROGRAMS, folder, symlinks=True)
        real = program or str(Path(sys.executable).resolve())
        wrapper = folder / Path(sys.executable).name
        wrapper.unlink()
        wrapper.write_text(f'#!/bin/bash\n{first.replace("FOLDER", str(cluster.folder))}\nexec -a "$0" {real} "$@"\n')
        wrapper.chmod(0o755)
        on_node(cluster, node, f"mount --bind {folder} {_PROGRAMS}")

    return plant


def _clock(cluster: Cluster, node: str) -> None:
    folder = cluster.folder / "clock"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text("import time\nreal = time.time\ntime.time = lambda: real() + 3600\n")
    _python("export PYTHONPATH=FOLDER/clock:$PYTHONPATH")(cluster, node)


def _other_python(cluster: Cluster, node: str) -> None:
    folder = cluster.folder / "python"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text("import sys\nsys.version_info = (3, 6, 8, 'final', 0)\n")
    _python("export PYTHONPATH=FOLDER/python:$PYTHONPATH")(cluster, node)


def _other_version(cluster: Cluster, node: str) -> None:
    file = cluster.folder / "version.py"
    text = (_SOURCE / "__init__.py").read_text()
    file.write_text("\n".join('__version__ = "0.1.0"' if line.startswith("__version__") else line
                              for line in text.split("\n")))  # fmt: skip
    on_node(cluster, node, f"mount --bind {file} {_SOURCE / '__init__.py'}")


def _large_frames(cluster: Cluster, node: str) -> None:
    """An MTU that its switch has not: what it sends in full packets to a node like it is lost."""
    other = "n1" if node == "n0" else "n0"
    for one in (node, other):
        on_node(cluster, one, "ip link set eth0 mtu 9000 gso_max_segs 1")


FAULTS = (
    StartFault("wrong name", _no_name, "Could not resolve hostname"),
    StartFault("no route", lambda cluster, node: (cluster.folder / f"{node}.down").touch(), "No route to host"),
    StartFault("host key", _ssh("Host key verification failed."), "Host key verification failed"),
    StartFault("refused", _ssh("ssh: connect to host $host port 22: Connection refused"), "Connection refused"),
    StartFault("denied", _ssh("root@$host: Permission denied (publickey,password)."), "Permission denied"),
    StartFault("timed out", _ssh("ssh: connect to host $host port 22: Connection timed out", "sleep 6"), "timed out"),
    StartFault("closed", _ssh("kex_exchange_identification: Connection closed by remote host"), "Connection closed"),
    StartFault("ssh hangs", _ssh("", "exec sleep 600"), "ssh has said nothing for"),
    StartFault("missing program", _script(f"mount -t tmpfs tmpfs {_PROGRAMS}"), f"there is no {sys.executable}"),
    StartFault("other Python", _other_python, "is Python 3.6, here it is"),
    StartFault("missing package", _script(f"mount -t tmpfs tmpfs {_PACKAGES}/mpi4py"), "has no package mpi4py"),
    StartFault("other version", _other_version, "has linkgauge 0.1.0, here it has"),
    StartFault("full /tmp", _script("mount -o remount,size=100k /tmp; ! head -c 1M /dev/zero > /tmp/fill"),
               "/tmp is full"),
    StartFault("full /dev/shm", _script("mount -o remount,size=100k /dev/shm; ! head -c 1M /dev/zero > /dev/shm/fill"),
               "/dev/shm is full"),
    StartFault("little /dev/shm", _script("mount -o remount,size=64k /dev/shm"), "a rank needs 16 MiB"),
    StartFault("folder not shared", _script("mount -t tmpfs tmpfs FOLDER/shared"), "does not see the run's folder"),
    StartFault("interface down", _script("ip link set eth0 down"), "it does not reach this node"),
    StartFault("way back", _script("ip route add prohibit 10.77.1.1"), "it does not reach this node"),
    StartFault("no way to others", _script("ip route add blackhole 10.77.0.1/32; ip route add blackhole 10.77.0.2/32"),
               "does not reach"),
    StartFault("wrong interface", _script("ip link set eth0 name eth9; ip link set eth9 up"),
               "there is no interface eth0, which FI_TCP_IFACE names", env={"FI_TCP_IFACE": "eth0"}),
    StartFault("MTU", _large_frames, "packets of full size are lost between", status=4),
    StartFault("clock", _clock, "its clock is 3600 s ahead", status=0),
    StartFault("no memory locked", _python("ulimit -l 64"), "only 64 KiB of memory may be locked", status=0),
    StartFault("read-only home", _script("mount --bind $HOME $HOME; mount -o remount,bind,ro $HOME"),
               "cannot be written: compiled kernels are not kept", status=0),
    StartFault("other MTU", _script("ip link set eth0 mtu 1400"), "an MTU of 1400, on most nodes it has 1500",
               status=0),
)  # fmt: skip
READ_ONLY = StartFault(
    "read-only folder",
    _script("mount --bind FOLDER/shared FOLDER/shared; mount -o remount,bind,ro FOLDER/shared"),
    "cannot be written, where its ranks record",
)
"""Of the first node alone, on which the first rank is."""
