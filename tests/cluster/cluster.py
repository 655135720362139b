"""An emulated cluster, from outside: made, entered, asked what its links have carried, and gone when it is left.

    with Cluster(Layout.of(2)) as cluster:
        cluster.run("n0", ["ping", "-c", "1", "n1"])
        cluster.carried("n0").sent          # bytes that its shaper let out

Root and iproute2 are needed; `why_not()` says what is missing. All processes live in one PID namespace, whose first
process ends when this one ends, however that is: nothing is left of nodes, links and mounts.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .layout import Layout, tbf_words

_HERE = Path(__file__).parent
_SPACES = ("--pid", "--net", "--mount", "--uts", "--ipc")


@functools.cache
def why_not() -> str:
    """Why no cluster can be made here; empty where one can."""
    if os.geteuid() != 0:
        return "an emulated cluster needs root"
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux"),
                             ("setpriv", "util-linux")):  # fmt: skip
        if shutil.which(program) is None:
            return f"an emulated cluster needs {program} (Debian: {package})"
    try:
        with Cluster(Layout.of(1)):
            return ""
    except ClusterError as error:
        return f"no cluster can be emulated here: {error}"


class ClusterError(Exception):
    """The cluster could not be made, in one line."""


@dataclasses.dataclass(frozen=True)
class Carried:
    """Bytes that the shapers at a link's ends have let through, headers included: of a node what it sent and got."""

    sent: int
    received: int

    def __sub__(self, other: Carried) -> Carried:
        """What was carried since."""
        return Carried(self.sent - other.sent, self.received - other.received)


class Cluster:
    """The cluster while it is entered (`with`). `folder` holds its files: the ssh stand-in is `folder/bin/ssh`."""

    def __init__(self, layout: Layout, folder: Path | None = None) -> None:
        """Take the layout, and a folder; None: one that is made, and removed at the end."""
        self.layout = layout
        self._own = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="cluster-"))
        self._process: subprocess.Popen[str] | None = None
        self._pid = 0

    def __enter__(self) -> Cluster:
        """Make it."""
        inside = ["-m", "cluster.inside", self.layout.to_text(), str(self.folder), *(["own"] if self._own else [])]
        command = ["unshare", "--fork", "--kill-child=KILL", "--mount-proc", *_SPACES, sys.executable, *inside]
        # Its standard input is a pipe of this process: that it ends is how the cluster learns of this one's end.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, "PYTHONPATH": str(_HERE.parent)},
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if self._process.stdout.readline() != "ready\n":
            said = self._process.stderr.read().strip().splitlines()
            self.__exit__()
            raise ClusterError(said[-1] if said else "it ended without a word")
        self._pid = _child_of(self._process.pid)
        return self

    def __exit__(self, *_: object) -> None:
        """End everything in it."""
        process = self._process
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            self._process = None
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def first(self) -> int:
        """The first process in it, by its number here."""
        return self._pid

    def node_pid(self, node: str) -> int:
        """The process that holds a node's namespaces, by its number in the cluster."""
        return int((self.folder / f"{node}.pid").read_text())

    def command(self, node: str, words: Sequence[str]) -> list[str]:
        """A command line that runs `words` on a node (`login` is one without ranks); it ends when its starter does.

        `fabric` is where the switches are.
        """
        target = [] if node == "fabric" else ["nsenter", "--target", str(self.node_pid(node)), "--net", "--mount",
                                              "--uts", "--ipc", "--"]  # fmt: skip
        return ["nsenter", "--target", str(self._pid), *_SPACES, "--", "setpriv", "--pdeathsig", "KILL",
                *target, *words]  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """What commands are run with: this process' own environment, with ssh from the cluster."""
        return {**os.environ, "PATH": f"{self.folder}/bin:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}

    def run(
        self, node: str, words: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 120,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a command on a node until it ends."""
        words = ["env", "-C", str(cwd), *words] if cwd is not None else words  # as the node names it
        return subprocess.run(self.command(node, words), text=True, capture_output=True, timeout=timeout_s, check=False,
                              env={**self.environment, **(env or {})}, stdin=subprocess.DEVNULL)  # fmt: skip

    def start(self, node: str, words: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
        """Start a command on a node; `more` as Popen takes it."""
        return subprocess.Popen(self.command(node, words), env={**self.environment, **more.pop("env", {})}, **more)

    def carried(self, link: str, rail: int = 0) -> Carried:
        """What a link's shapers have let through so far: of a node, or of a switch or group its link upwards."""
        node = link in self.layout.nodes
        lower = f"eth{rail}" if node else f"{link}u{rail}"
        return Carried(
            self._counted(link if node else "fabric", lower), self._counted("fabric", f"{link}p{rail}")
        )  # fmt: skip

    def _counted(self, where: str, interface: str) -> int:
        return sum(int(one["bytes"]) for one in self._shapers(where, interface))

    def _shapers(self, where: str, interface: str) -> list[dict[str, Any]]:
        said = self.run(where, ["tc", "-s", "-j", "qdisc", "show", "dev", interface]).stdout
        return [one for one in json.loads(said) if one["kind"] in ("tbf", "htb")]

    def dropped(self) -> int:
        """Packets that the shapers of all links have dropped so far."""
        found = 0
        for link in self.layout.links():
            node = link.name in self.layout.nodes
            lower = f"eth{link.rail}" if node else f"{link.name}u{link.rail}"
            for where, interface in ((link.name if node else "fabric", lower), ("fabric", f"{link.name}p{link.rail}")):
                found += sum(int(one["drops"]) for one in self._shapers(where, interface))
        return found

    def set_rate(self, link: str, rate: float, rail: int = 0) -> None:
        """Give a link another rate, in bits a second, both ways."""
        node = link in self.layout.nodes
        lower = f"eth{rail}" if node else f"{link}u{rail}"
        for where, interface in ((link if node else "fabric", lower), ("fabric", f"{link}p{rail}")):
            self.run(where, ["tc", *tbf_words(interface, rate, self.layout.queue)])


def _child_of(pid: int) -> int:
    """The one child of a process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            return int(path.parent.name)
    raise ClusterError("its first process is gone")
