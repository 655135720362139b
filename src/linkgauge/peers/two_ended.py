"""Programs of a server and a client below MPI: ucx_perftest, fabtests and fi_pingpong, and perftest's ib_*.

They time what `ucx` and `ofi` use, without us: a server on the second node and a client on the first, under the
launcher of the request's MPI library (both_ends.py), a launch for each size. Their logs name neither the test nor both
ranks, so that they are read here, by what was asked.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError
from linkgauge.model.patterns import PATTERNS
from linkgauge.peers import both_ends
from linkgauge.peers.catalog import Counts, PeerTest
from linkgauge.peers.launch import PeerLaunch, find_program, our_nic, started
from linkgauge.peers.request import Request, Row
from linkgauge.run.parent import guard

Words = list[str]
_FIELD = re.compile(r"(\S+): ([\d.]+)")


@dataclasses.dataclass(frozen=True)
class _Family:
    """How the programs of one peer are told what to do, and what they say.

    `asked(test, size, counts, memory)`: the words that both ends are given; a count is of messages. `ends(test, port,
    address)`: those of the server and of the client. `message_ns(text, test)`: the time of one message one way in ns,
    None where the text has none. `memory`: its words for kinds of memory of GPUs.
    """

    asked: Callable[[PeerTest, int, Counts, Words], Words]
    ends: Callable[[PeerTest, str, str], tuple[Words, Words]]
    message_ns: Callable[[str, PeerTest], float | None]
    memory: Mapping[str, Words]


def _window(test: PeerTest) -> int:
    return int(test.case.get("window", 1))


def _ucx_asked(test: PeerTest, size: int, counts: Counts, memory: Words) -> Words:
    window = ["-O", str(_window(test))] if "window" in test.case else []
    count = ["-n", str(counts.iterations), "-w", str(counts.warmup)]
    return ["-t", test.name, "-s", str(size), *count, *window, *memory]


def _ucx_ns(text: str, test: PeerTest) -> float | None:
    """Of its last line, which has after the count the median, the mean since the line before and that of all, in us."""
    if (found := re.search(r"^Final:\s+\d+\s+([\d.]+)\s+[\d.]+\s+([\d.]+)", text, re.MULTILINE)) is None:
        return None
    return 1e3 * float(found[1 if test.estimator == "median_of_rank_0" else 2])


def _fabtests_asked(test: PeerTest, size: int, counts: Counts, memory: Words) -> Words:
    if test.name == "fi_pingpong":
        return ["-e", "rdm", "-m", "tagged", "-S", str(size), "-I", str(counts.iterations)]
    words = ["-m", "-S", str(size), "-I", str(counts.iterations), "-w", str(counts.warmup), *memory]
    words += ["-W", str(_window(test))] if "window" in test.case else []
    return words + (["-e", "rdm", "-o", "write"] if test.name == "fi_rma_bw" else [])


def _fabtests_ends(test: PeerTest, port: str, address: str) -> tuple[Words, Words]:
    """Each with a port of its own to be reached at, since on one node they cannot share the default."""
    if test.name == "fi_pingpong":
        return ["-B", port], ["-P", port, address]
    return ["-B", port, "-s", address], ["-B", str(int(port) - 1), "-P", port, address]


def _fabtests_ns(text: str, test: PeerTest) -> float | None:
    if test.name == "fi_pingpong":  # a table whose last column but one it is, by two decimals
        found = re.search(r"^\S+ +\d+ +=?\d+ .*\s([\d.]+)\s+[\d.]+\s*$", text, re.MULTILINE)
        return 1e3 * float(found[1]) if found else None
    said = dict(_FIELD.findall(text))
    return 1e3 * float(said["usec/xfer"]) if "usec/xfer" in said else None


def _perftest_asked(test: PeerTest, size: int, counts: Counts, memory: Words) -> Words:
    window = ["-t", str(_window(test)), "--report_gbits"] if "window" in test.case else []
    return ["-F", "-s", str(size), "-n", str(counts.iterations), *window, *memory]


def _perftest_ns(text: str, test: PeerTest) -> float | None:
    """Of a row: bytes and count, then the least, the most and the median in us, or the peak and the mean in Gb/s."""
    found = re.search(r"^ *(\d+) +\d+ +[\d.]+ +([\d.]+)\s+([\d.]+)", text, re.MULTILINE)
    if found is None or not float(found[2]):
        return None
    return 8 * int(found[1]) / float(found[2]) if "window" in test.case else 1e3 * float(found[3])


_FAMILIES = {
    "ucx_perftest": _Family(
        _ucx_asked,
        lambda test, port, address: (["-p", port], ["-p", port, address]),
        _ucx_ns,
        {"device": ["-m", "cuda"], "managed": ["-m", "cuda-managed"]},
    ),
    "fabtests": _Family(_fabtests_asked, _fabtests_ends, _fabtests_ns, {"device": ["-D", "cuda"]}),
    "perftest": _Family(
        _perftest_asked,
        lambda test, port, address: (["-p", port], ["-p", port, address]),
        _perftest_ns,
        {"device": ["--use_cuda=0"]},
    ),
}


def launches(request: Request, rows: Sequence[Row]) -> Iterator[PeerLaunch]:
    """A launch for each row. EnvironmentLackingError where the two sides would not use the same."""
    from linkgauge.run.launchers import launcher_for
    from linkgauge.run.parent.mpi_library import resolve

    if not request.mpi:
        raise EnvironmentLackingError(f"{request.peer} is started by an MPI library's launcher: expected --mpi")
    if request.peer == "fabtests" and "FI_PROVIDER" not in {**os.environ, **request.env}:
        raise EnvironmentLackingError("FI_PROVIDER is not set, so that each side would choose its own: expected one, "
                                      "such as --env FI_PROVIDER=tcp")  # fmt: skip
    family, mpi = _FAMILIES[request.peer], resolve(request.mpi)
    for row in rows:
        program = find_program(request.folder, request.peer if request.peer == "ucx_perftest" else row.test.name)
        library = our_nic(str(row.test.case["transport"]), mpi) if request.peer != "perftest" else None
        words = _both_ends(request, row, program, family, launcher_for(mpi).rank_variables)
        yield started(request, [row], program, words, library)


def _both_ends(request: Request, row: Row, program: Path, family: _Family, rank_variables: Sequence[str]) -> Words:
    """What each rank starts, which becomes the one end or the other."""
    counts = request.counts(row)
    messages = Counts(counts.iterations * _window(row.test), counts.warmup * _window(row.test))
    asked = [str(program), *family.asked(row.test, row.size, messages, _memory(request, row, family))]
    hosts = request.hosts_of(row)
    server, client = family.ends(row.test, _free_port(), hosts[1] if hosts else "127.0.0.1")
    ends = {"rank_variables": rank_variables, "server": [*asked, *server], "client": [*asked, *client]}
    return [sys.executable, "-I", "-S", both_ends.__file__, guard.__file__, json.dumps(ends)]


def _memory(request: Request, row: Row, family: _Family) -> Words:
    (kind,) = set(row.memory)
    if request.runtime == "host" or kind == "pageable":
        return []
    if not request.hosts:
        raise EnvironmentLackingError(f"both ends of {row.test.name} take device 0 of their node: expected --hosts")
    if request.runtime != "cuda" or kind not in family.memory:
        raise EnvironmentLackingError(f"{request.peer} has no option for {kind} memory of {request.runtime}")
    return family.memory[kind]


def _free_port() -> str:
    """A port that is free here, and the one before it; on another node it is likely to be."""
    with socket.socket() as one:
        one.bind(("", 0))
        return str(one.getsockname()[1])


def read_figure(request: Request, row: Row, text: str) -> float | None:
    """Nanoseconds of one operation as our pattern counts it, from what a launch said: a round trip, or a window."""
    message = _FAMILIES[request.peer].message_ns(text, row.test)
    if message is None:
        return None
    return message * (_window(row.test) if PATTERNS[row.test.case["pattern"]].windowed else 2)
