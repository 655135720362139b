"""What NCCL says in its log that it chose for an operation: algorithm, protocol, channels, cluster, multicast.

NCCL 2.28 has no call that tells. With NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING and NCCL_DEBUG_FILE=PATH (%h: host, %p:
process) in a launch's environment the rank 0 of a communicator writes one line for each operation, and since that costs
time, such a launch is one of its own. These lines are read, and no other but those below:

- `AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}` (enqueue.cc of NCCL 2.24 to 2.30), in
  2.32.3 with ` cgaClusterSize 4` behind it (texts of the binary)
- `AllReduce [Symmetric]: 1048576 Bytes -> Kernel AllReduce_AGxLLMC_R nchannels 8 nthreads 512 nWorks 1`
  (scheduler/symmetric_sched.cc of 2.28 to 2.32; 2.27 has it without nWorks)
- `AllGather [Copy Engine]: 1048576 Bytes -> cudaMemcpy` (enqueue.cc of 2.29, ce_coll.cc of 2.30 and later; with
  `; CE synchronization with NVLS` where that is so)

With NCCL_DEBUG_SUBSYS=NET every process writes a line for each channel to another node when it connects, of which the
end says whether the card reaches the GPU's memory itself (transport/net.cc of NCCL 2.4 to 2.32):

- `Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA`

With NCCL_DEBUG_SUBSYS=P2P,SHM the sending process writes one for each channel within a node (transport/p2p.cc and
shm.cc of 2.4 to 2.28), with `/CE` or `CE` where a copy engine moves the bytes:

- `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM`, also `P2P/IPC`, `P2P/direct pointer`, `P2P/MNNVL`; `/read` may follow
- `Channel 00 : 0[0] -> 1[1] via SHM/direct/direct`

Older versions write numbers or nothing. With NCCL_DEBUG_SUBSYS=ENV it writes a line for each variable that it read from
the environment, once in a process, which costs nothing later (param.cc and others of NCCL 2.4 to 2.32):

- `NCCL_ALGO set by environment to Tree`

A line of another form is left out, never guessed at.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from linkgauge.run.machine.observe import Value

SUBJECT = "nccl"
_LONGEST_VALUE = 100
_OPERATIONS = "operations"  # how many lines said so: the unit of a choice
_PREFIX = r"NCCL INFO (?P<function>[A-Za-z]+)"
_TUNED = re.compile(
    _PREFIX + r": \d+ Bytes -> Algo (?P<algorithm>[A-Z_]+) proto (?P<protocol>[A-Z0-9]+) "
    r"channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,4})\.\.(?P<high>\d{1,4})\}(?: cgaClusterSize (?P<cluster>\d{1,3}))?\s*$"
)
_COPIED = re.compile(_PREFIX + r" \[Copy Engine\]: \d+ Bytes -> cudaMemcpy(?:; CE synchronization with NVLS)?\s*$")
_SYMMETRIC = re.compile(
    _PREFIX + r" \[Symmetric\]: \d+ Bytes -> Kernel (?P<kernel>\w+) nchannels (?P<channels>\d{1,4}) nthreads \d+"
    r"(?: nWorks \d+)?(?: cgaClusterSize (?P<cluster>\d{1,3}))?\s*$"
)
_READ = re.compile(r"NCCL INFO (?P<name>(?:NCCL|RCCL)_[A-Z0-9_]+) set by environment to (?P<value>\S.*?)\.?\s*$")
_READ_AS = "read"  # what an observation of it begins with
_CONNECTED = re.compile(r"NCCL INFO Channel \d{1,4}(?:/\d{1,4})? : \S.* \[(?:send|receive)\] via NET/(?P<way>\S+)")
_WITHIN = re.compile(r"NCCL INFO Channel \d{1,4}(?:/\d{1,4})? : \S+ -> \S+ via (?P<way>(?:P2P|SHM)/[\w/ -]{1,40}?)\s*$")
NETWORK_CHANNELS, DIRECT_CHANNELS = "network_channels", "gpudirect_channels"
"""Ends of channels to other nodes, and of these such as reach the GPU's memory without the host's."""
PEER_CHANNELS, SHARED_CHANNELS, COPIED_CHANNELS = "p2p_channels", "shm_channels", "copied_channels"
"""Channels within a node: by the peer's memory, by the host's, and of both such as a copy engine serves."""
_COUNTS = (NETWORK_CHANNELS, DIRECT_CHANNELS, PEER_CHANNELS, SHARED_CHANNELS, COPIED_CHANNELS)
_VIA = "via"  # what an observation of the way of most channels begins with
FUNCTIONS = {
    "allreduce": "AllReduce", "allgather": "AllGather", "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast", "reduce": "Reduce",
}  # fmt: skip
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


def choices(lines: Iterable[str], pattern: str) -> list[Value]:
    """Observations of what was chosen for `pattern`, from log lines; nothing for a pattern that is not tuned.

    `algorithm X` (COPY_ENGINE: no kernel), `protocol X`, `channels N`, `cluster N` (blocks) and `kernel X` (of
    symmetric memory) each have the number of operations that a line says it of; `multicast` that of those whose
    algorithm or kernel uses NVLink multicast, 0 being none.
    `read NAME=VALUE` is a variable that NCCL took from the environment.
    """
    function = FUNCTIONS.get(pattern)
    found: Counter[str] = Counter()
    read: dict[str, str] = {}
    operations = multicast = 0
    channels: int | None
    for line in lines:
        if variable := _READ.search(line):
            read[variable["name"]] = variable["value"][:_LONGEST_VALUE]
            continue
        tuned, symmetric, copied = _TUNED.search(line), _SYMMETRIC.search(line), _COPIED.search(line)
        if tuned and tuned["function"] == function:
            if tuned["algorithm"] not in _ALGORITHMS or tuned["protocol"] not in _PROTOCOLS:
                continue
            names = [f"algorithm {tuned['algorithm']}", f"protocol {tuned['protocol']}"]
            names += [f"cluster {int(tuned['cluster'])}"] if tuned["cluster"] else []
            channels = int(tuned["high"]) - int(tuned["low"]) + 1
            uses = tuned["algorithm"].startswith("NVLS")
        elif symmetric and symmetric["function"] == function:
            names, channels = [f"kernel {symmetric['kernel']}"], int(symmetric["channels"])
            names += [f"cluster {int(symmetric['cluster'])}"] if symmetric["cluster"] else []
            uses = re.search(r"MC(?:_|$)", symmetric["kernel"]) is not None
        elif copied and copied["function"] == function:
            names, channels, uses = ["algorithm COPY_ENGINE"], None, False
        else:
            continue
        if channels is not None and channels < 1:
            continue
        found.update([*names, *([] if channels is None else [f"channels {channels}"])])
        operations += 1
        multicast += uses
    values = [Value(f"{_READ_AS} {name}={value}", 1.0, "") for name, value in sorted(read.items())]
    values += [Value(name, float(count), _OPERATIONS) for name, count in sorted(found.items())]
    return [*values, Value("multicast", float(multicast), _OPERATIONS)] if operations else values


def chosen(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What of a case's observations belongs into its evidence: `chosen`, with what most operations were given.

    `algorithm`, `protocol`, `kernel`, `channels` and `cluster` as far as they are known, and `multicast`, whether any
    operation used it; `via`, how most channels within the node go; how many channels go which way, of all ranks
    together. Empty where the log said nothing.
    """
    most: dict[str, tuple[float, str]] = {}
    counts: dict[str, int] = {}
    for row in rows:
        if row["subject"] == SUBJECT and row["name"] in _COUNTS:
            counts[row["name"]] = counts.get(row["name"], 0) + int(row["value"])
        elif row["subject"] == SUBJECT and not str(row["name"]).startswith(f"{_READ_AS} "):
            what, _, which = str(row["name"]).partition(" ")
            most[what] = max(most.get(what, (-1.0, "")), (float(row["value"]), which))
    if not most:
        return {"chosen": counts} if counts else {}
    found: dict[str, Any] = {**{what: which for what, (_, which) in most.items()}, **counts}
    found |= {name: int(found[name]) for name in ("channels", "cluster") if name in found}
    if "multicast" in most:
        found["multicast"] = most["multicast"][0] > 0
    return {"chosen": found}


def variables_read(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What NCCL took from the environment, by observations: variables with their values."""
    told = (str(row["name"]).partition(" ") for row in rows if row["subject"] == SUBJECT)
    return dict(rest.split("=", 1) for what, _, rest in told if what == _READ_AS and "=" in rest)


def connected(lines: Iterable[str]) -> list[Value]:
    """Observations of how a process' channels go, to other nodes and within its own; nothing where no line tells."""
    ways: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for line in lines:
        if outside := _CONNECTED.search(line):
            found.update({NETWORK_CHANNELS: 1, DIRECT_CHANNELS: "GDRDMA" in outside["way"].split("/")})
        elif inside := _WITHIN.search(line):
            parts = inside["way"].split("/")
            ways[f"{_VIA} {inside['way']}"] += 1
            found.update({PEER_CHANNELS: parts[0] == "P2P", SHARED_CHANNELS: parts[0] == "SHM",
                          COPIED_CHANNELS: "CE" in parts})  # fmt: skip
    return [Value(name, float(count), "") for name, count in [*found.items(), *ways.items()]]


class NcclLog:
    """The log of this process, read from where it was when a case began."""

    def __init__(self, path: Path) -> None:
        """Read `path`, which need not be there yet."""
        self._path = path
        self._begin = self._read = 0
        self._connected: Counter[str] = Counter()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> NcclLog | None:
        """The log that the launch's environment asks NCCL for; None where it asks for none to a file."""
        pattern = environment.get("NCCL_DEBUG_FILE", "")
        if environment.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE") or not pattern:
            return None
        # As debug.cc of NCCL expands it: the host's name up to its first dot.
        parts = {"%h": os.uname().nodename.split(".")[0], "%p": str(os.getpid()), "%%": "%"}
        return cls(Path(re.sub(r"%[hp%]", lambda part: parts[part[0]], pattern)))

    def begin(self) -> None:
        """A case begins: what is in the log by now is of others."""
        try:
            self._begin = self._path.stat().st_size
        except OSError:
            self._begin = 0

    def choices(self, pattern: str) -> list[Value]:
        """What was chosen for `pattern` since `begin`, and how channels go that were made then or before."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                unread = file.read()
        except OSError:
            return []
        since = unread[max(0, self._begin - self._read) :]
        self._read += len(unread)
        for value in connected(unread.decode(errors="replace").splitlines()):
            self._connected[value.name] += int(value.value)
        channels = [Value(name, float(count), "") for name, count in self._connected.items()]
        return [*choices(since.decode(errors="replace").splitlines(), pattern), *channels]
