"""A look at each node by itself before a launcher is to start ranks there: all at once, 10 s for 100 nodes.

A launcher that cannot start one of its ranks says so of the whole launch, often without the node and the reason, and
waits for a silent ssh for minutes. Here each node that cannot be used is named with its own words, all in one go. The
look goes by ssh, or in a job of Slurm by a step on each node (Launcher.node_shell). Whether a step starts depends on
the job too, so that a node without an answer is left to the launcher there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import selectors
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.files import temporary_folder
from linkgauge.model.shape import MisshapenError, as_it_is, each, label, mapping, number, parsed, table, text, whole
from linkgauge.run.launchers import launcher_for
from linkgauge.run.launchers.base import NodeShell
from linkgauge.run.machine.environment import package_environment
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.interfaces import named_interfaces
from linkgauge.run.parent import node_probe, reach
from linkgauge.run.wire.evidence import last_words
from linkgauge.run.wire.node_beats import addresses_for, new_server

_PATIENCE_S = 7.0  # of the first answers
_NOBODY_S = 14.0  # while no node at all has answered: logins are slow there
_SLOW_LOGIN = 1.5  # times as long as the slowest that answered, up to
_MOST_S = 30.0
_REACH_S = 5.5
_PAUSE_S = 1.0
_AT_ONCE = 128  # processes of ssh, 5 MB each
_CLOCK_S = 1.0
_PROXIES = ("hydra_pmi_proxy", "prted", "orted")
_BOOT = (
    "import sys; n = int(sys.stdin.buffer.readline()); exec(compile(sys.stdin.buffer.read(n), 'node_probe', 'exec'))"
)
_HELLO = {"problems": each(text), "warnings": each(text), "time": number(), "host": label,
          "addresses": mapping(as_it_is), "port": whole(1, 65535)}  # fmt: skip


@dataclasses.dataclass
class Found:
    """What is wrong with a node: `problems` with which no rank can be started, and `warnings`.

    `lossy`: other nodes to which packets of full size are lost, so that no case has both, and that in words. Each two
    nodes once.
    """

    problems: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    lossy: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class _Asked:
    """One node that is asked: its process, and what it has said."""

    host: str
    process: subprocess.Popen[bytes]
    at: float
    found: Found
    of_job: bool = False  # as NodeShell has it
    out: bytearray = dataclasses.field(default_factory=bytearray)
    error: bytearray = dataclasses.field(default_factory=bytearray)
    open_pipes: int = 2
    answered_at: float = 0.0

    @property
    def said(self) -> list[str]:
        """The whole lines that are the probe's: a login may print others."""
        lines = self.out.decode(errors="replace").split("\n")[:-1]
        word = node_probe.WORD
        return [line[line.index(word) + len(word) :] for line in lines if word in line]

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes from it."""
        return self.open_pipes == 0

    def tell(self, line: bytes) -> None:
        """Write to it, if it still reads."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(line)
            self.process.stdin.flush()


def expected(mpi: MpiInstallation, environment: Mapping[str, str], folder: Path | None) -> dict[str, Any]:
    """What each node is to have: this Python, its packages, the library and the starter of ranks, room, the folder."""
    path = package_environment().get("PYTHONPATH", "")
    folders = [one for one in path.split(os.pathsep) if one]
    there = folder.absolute() if folder is not None else None
    while there is not None and not there.exists():
        there = there.parent
    own = mpi.launcher is not None and launcher_for(mpi).starts  # a batch system's has daemons of its own on nodes
    starters = [mpi.launcher.parent / name for name in _PROXIES] if mpi.launcher is not None and own else []
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "versions": {name: node_probe.version_of(name, folders) for name in node_probe.PACKAGES},
        "path": folders,
        "files": [str(mpi.library), *(str(one) for one in starters if one.exists())],
        "temporary": temporary_folder(),
        "folder": "" if there is None else str(there),
        "writes": False,
        "interfaces": named_interfaces(environment),
        "lock_limit": node_probe.lock_limit(),
        "token": secrets.token_hex(8),
    }


def look(shell: NodeShell, hosts: Sequence[str], wanted: Mapping[str, Any]) -> dict[str, Found]:
    """What is wrong with each of these hosts, in their order; `shell` as Launcher.node_shell gives it."""
    found: dict[str, Found] = {}
    with _shared_file(wanted["folder"]) as shared:
        for first in range(0, len(hosts), _AT_ONCE):
            found |= _looked(shell, hosts[first : first + _AT_ONCE], {**wanted, "shared": shared}, writer=hosts[0])
    return found


@contextlib.contextmanager
def _shared_file(folder: str) -> Iterator[str]:
    """A file in the run's folder while nodes are looked at, that they see where they share it; empty: none."""
    with contextlib.ExitStack() as held:
        name = ""
        with contextlib.suppress(OSError):  # who makes the run folder says so
            if folder:
                name = held.enter_context(tempfile.NamedTemporaryFile(prefix=".linkgauge-look-", dir=folder)).name
        yield name


def is_this_node(host: str) -> bool:
    """Whether a host is the node of this process, where launchers take no ssh."""
    with contextlib.suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as tried:
                tried.bind(address)
                return True
    return False


def _looked(shell: NodeShell, hosts: Sequence[str], wanted: Mapping[str, Any], writer: str) -> dict[str, Found]:
    asked = [_start(shell, host, {**wanted, "writes": host == writer}) for host in hosts]
    try:
        with selectors.DefaultSelector() as pipes:
            for one in asked:
                for pipe in (one.process.stdout, one.process.stderr):
                    assert pipe is not None
                    pipes.register(pipe, selectors.EVENT_READ, one)
            _talk(pipes, asked, str(wanted["token"]))
    finally:
        _end(asked)
    return {one.host: one.found for one in asked}


def _start(shell: NodeShell, host: str, wanted: Mapping[str, Any]) -> _Asked:
    python = f"exec {shlex.quote(sys.executable)} -B -c {shlex.quote(_BOOT)}"
    script = f"exec sh -c {shlex.quote(python)}"  # the login's own shell may be any
    here = is_this_node(host)
    words = ["sh", "-c", script] if here else shell.command(host, script)
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=package_environment(), cwd="/",
                               start_new_session=True)  # fmt: skip
    one = _Asked(host, process, time.time(), Found(), of_job=shell.of_job and not here)
    source = Path(node_probe.__file__).read_bytes()
    one.tell(b"%d\n%s%s\n" % (len(source), source, json.dumps(wanted).encode()))
    return one


def _talk(pipes: selectors.BaseSelector, asked: Sequence[_Asked], token: str) -> None:
    """Hear all nodes, and have them try to reach each other and this one; take in what is wrong with each.

    Those that have answered do not wait for one that hangs: what comes later tries to reach them.
    """
    began = time.monotonic()
    hellos: dict[str, dict[str, Any]] = {}
    reached = reach.Reached()
    heard: set[str] = set()
    with new_server() as server:
        node_probe.serve(server, token.encode())
        while True:
            _listen(pipes, asked, 1, began, pause=not heard)
            over = not _late(asked, began)
            fresh = [one for one in asked if one.host not in heard and (over or one.is_over or one.said)]
            hellos |= {one.host: hello for one in fresh if (hello := _hello(one)) is not None}
            heard |= {one.host for one in fresh}
            there = [one for one in fresh if one.host in hellos and not one.found.problems]
            usable = _usable(asked, hellos)
            _try(pipes, there, reach.first_tries(usable), usable, reached, server.getsockname()[1])
            if over:
                break
        by_host = {one.host: one for one in asked}
        for host, words in reached.of_parent.items():
            by_host[host].found.problems.append(f"it does not reach this node: {words}")
        usable = _usable(asked, hellos)
        if lossy := reached.lossy():
            there = [by_host[host] for host in usable if len(by_host[host].said) > 1]
            _try(pipes, there, reach.further_tries(usable, lossy), usable, reached)
    _tell_of_mtus({host: hello["addresses"] for host, hello in usable.items()}, [by_host[host] for host in usable])
    for host, words in reached.unusable(list(by_host)).items():
        by_host[host].found.problems.append(words)
    usable = _usable(asked, hellos)
    for pair, words in reached.lossy().items():
        if pair <= set(usable):
            first, second = sorted(pair, key=list(usable).index)
            by_host[first].found.lossy[second] = words


def _late(asked: Sequence[_Asked], began: float) -> list[_Asked]:
    """Who has not answered and may still; none once the time for it is over."""
    waiting = [one for one in asked if not one.is_over and not one.said]
    return waiting if time.monotonic() - began <= _longest_s(asked, waiting) else []


def _usable(asked: Sequence[_Asked], hellos: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What those nodes have said on which ranks can be started."""
    return {one.host: hellos[one.host] for one in asked if one.host in hellos and not one.found.problems}


def _listen(
    pipes: selectors.BaseSelector, asked: Sequence[_Asked], lines: int, began: float, pause: bool = False
) -> None:
    """Read until each node has said so many lines, or will say no more, or time is over.

    `pause`: or half of them have, and none has for a moment.
    """
    news = began
    while waiting := [one for one in asked if not one.is_over and len(one.said) < lines]:
        now = time.monotonic()
        if now - began > (_REACH_S if lines > 1 else _longest_s(asked, waiting)):
            return
        if pause and 2 * len(waiting) <= len(asked) and now - news > _PAUSE_S:
            return
        for key, _ in pipes.select(0.1):
            one: _Asked = key.data
            more = os.read(key.fd, 1 << 16)
            (one.out if key.fileobj is one.process.stdout else one.error).extend(more)
            if not more:
                pipes.unregister(key.fileobj)
                one.open_pipes -= 1
            if one.said and not one.answered_at:
                one.answered_at, news = time.time(), time.monotonic()


def _longest_s(asked: Sequence[_Asked], waiting: Sequence[_Asked]) -> float:
    took = [one.answered_at - one.at for one in asked if one.answered_at]
    if took:
        return max(_PATIENCE_S, min(_MOST_S, _SLOW_LOGIN * max(took)))
    if all(one.of_job for one in waiting):
        return _PATIENCE_S
    return _NOBODY_S if len(asked) > len(waiting) or len(asked) > 1 else _PATIENCE_S


def _hello(one: _Asked) -> dict[str, Any] | None:
    """A node's first line, what is wrong taken in; None where it did not answer."""
    problems = one.found.problems
    if one.said:
        try:
            hello: dict[str, Any] = parsed(one.said[0], table(_HELLO, needed=_HELLO), "what a node says")
        except MisshapenError as wrong:
            problems.append(str(wrong))
            return None
        problems += hello["problems"]
        one.found.warnings += hello["warnings"]
        ahead = max(hello["time"] - one.answered_at, 0.0) or min(hello["time"] - one.at, 0.0)
        if abs(ahead) > _CLOCK_S:
            side = "ahead of" if ahead > 0 else "behind"
            one.found.warnings.append(f"its clock is {abs(ahead):.0f} s {side} this node's")
        return hello
    if one.of_job:
        return None
    if not one.is_over:
        problems.append(f"ssh has said nothing for {time.time() - one.at:.0f} s")
        return None
    status = one.process.wait()
    words = [_without_prefix(line, one.host) for line in one.error.decode(errors="replace").splitlines()]
    if status in (126, 127):
        problems.append(f"there is no {sys.executable}, or it cannot be started")
    else:
        problems.append(last_words(words) or f"ssh ended with {status} and no word")
    return None


def _without_prefix(line: str, host: str) -> str:
    """What ssh says without what a reader knows anyway: itself and the host."""
    return re.sub(rf"^(?:ssh: )?(?:connect to host {re.escape(host)} port (\d+): )?", "", line.strip())


def _try(
    pipes: selectors.BaseSelector, there: Sequence[_Asked], tries: Mapping[str, Sequence[str]],
    hellos: Mapping[str, Mapping[str, Any]], reached: reach.Reached, port: int | None = None,
) -> None:  # fmt: skip
    """Have these nodes try to reach others, and this one on its `port`; note who cannot, and why.

    All have said as many lines. `hellos`: of the nodes that can be used.
    """
    # Where ports are restricted only some are open, and those of the probes may be none of them.
    if not there or any("PORT_RANGE" in name or ("MCA" in name and "port" in name) for name in os.environ):
        return
    mine = addresses_for(one.host for one in there)
    lines = len(there[0].said) + 1
    reached.try_all(tries)
    for one in there:
        peers = {name: ([name, *reach.own_addresses(hellos[name])[:1]], hellos[name]["port"])
                 for name in tries.get(one.host, ())}  # fmt: skip
        peers |= {} if port is None else {reach.PARENT: (mine[:2], port)}
        one.tell(json.dumps(peers).encode() + b"\n")
    _listen(pipes, there, lines, time.monotonic())
    for one in there:
        if len(one.said) >= lines:
            with contextlib.suppress(MisshapenError):
                reached.note(one.host, parsed(one.said[lines - 1], reach.SAID, "what a node does not reach"))


def _tell_of_mtus(addresses: Mapping[str, Mapping[str, Sequence[Any]]], there: Sequence[_Asked]) -> None:
    """A warning to each node one of whose interfaces has another MTU than on most nodes, the least of as many."""
    usual: dict[str, Counter[int]] = {}
    for interfaces in addresses.values():
        for name, (_, mtu) in interfaces.items():
            usual.setdefault(name, Counter())[int(mtu)] += 1
    for one in there:
        for name, (_, mtu) in addresses[one.host].items():
            counts = usual[name]
            most = max(counts, key=lambda value: (counts[value], -value))
            if int(mtu) != most:
                one.found.warnings.append(f"{name} has an MTU of {mtu}, on most nodes it has {most}")


def _end(asked: Sequence[_Asked]) -> None:
    """Let the probes end, and end what does not."""
    for one in asked:
        assert one.process.stdin is not None
        with contextlib.suppress(OSError):
            one.process.stdin.close()
        if not one.said:
            one.process.terminate()  # srun then ends its step, in whose place the next one is to start
    until = time.monotonic() + 1.0
    for one in asked:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, until - time.monotonic()))
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdout, one.process.stderr):
            assert pipe is not None
            pipe.close()
