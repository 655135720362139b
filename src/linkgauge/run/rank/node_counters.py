"""What a node counts beside a case: bytes of its network cards, and what its cores did.

Cards' counters are read before and after a case that spans nodes. They are the proof of the way: a library may carry
what should cross a network through memory that nodes share, or over another card than was meant. A network card is one
subject, however many of its interfaces count: the kernel's of its network interfaces (/proc/net/dev, in bytes) and of
its ports as an RDMA device (port_xmit_data and port_rcv_data of /sys/class/infiniband, in units of 4 bytes).
Ethernet's count RDMA apart from the rest and InfiniBand's all of it, so that of either the larger is taken.

Of RDMA ports errors are read too (symbols, links that went down), packets sent again, and for how long they had data to
send and no credit to (port_xmit_wait, in ticks of the card's own): a port with a bad cable, or before one that is full.

Of network interfaces errors, drops, carrier changes and pause frames are read too, and what TCP sent again
(run/machine/net_counters.py): they say why a case is slow.

One reading takes some 70 us and 10 us more a port and counter, of the first rank of a case on each node, outside of all
timed parts. Of cases with a service class bytes by priority are read too, where the card's driver counts them (mlx5,
bnxt_en: on Ethernet; InfiniBand's service levels are counted where none but root reads), or a file of its RDMA ports
does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.run.machine.core_ticks import all_cores, process_ticks
from linkgauge.run.machine.net_counters import InterfaceCounts, interface_counts, protocol_counts
from linkgauge.run.machine.observe import COUNTED_ERRORS, Value
from linkgauge.system.allowance import Quotas
from linkgauge.system.ethernet import statistics as ethtool_statistics
from linkgauge.system.resctrl import MemoryTraffic
from linkgauge.system.sysfs import entries, number

NIC = "nic "
"""What the subjects of these observations begin with; the card's name follows."""
SENT, RECEIVED = "nic_sent", "nic_received"
OF_PRIORITY = "_priority_"
"""What follows in the names of bytes of one priority alone, before its number: `nic_sent_priority_3`."""
ERRORS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors",
)  # fmt: skip
"""Of a port's `counters` (IBTA, PortCounters): what a sound port has none of."""
LOADED = {"port_xmit_wait": "ticks", "port_xmit_discards": "packets"}
"""Likewise: what a full network costs a port, with its unit."""
RETRIES = ("local_ack_timeout_err", "packet_seq_err", "rnr_nak_retry_err")
"""Of a port's `hw_counters` (mlx5): packets that were lost, late or refused, and sent again."""
MARKED = ("np_ecn_marked_roce_packets", "rp_cnp_handled", "out_of_sequence")
"""Likewise: packets marked for congestion, notices of it that slowed this port, and packets out of order."""
PROTOCOLS = "protocols"
"""The subject of what a node's TCP and IP count, over all of its interfaces."""
RX_TX_ERRORS, DROPPED, CARRIER_CHANGES = "interface_errors", "interface_dropped", "carrier_changes"
_PAUSE = re.compile(r"(tx|rx)_(?:\w*pause(?:_ctrl_phy|_frames)?|prio\d_pause)")
_BY_PRIORITY = re.compile(r"(tx|rx)_(?:prio(\d)_bytes|bytes_pri(\d))")
_WAYS = {"tx": SENT, "rx": RECEIVED}

Counts = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class _Card:
    """A card's network interfaces, and the folders of its RDMA ports' counters."""

    interfaces: tuple[str, ...]
    ports: tuple[Path, ...] = ()


class NicCounters:
    """The cards of this node, found once. `root` is that of the file system, of tests only, as is `statistics`."""

    def __init__(
        self, root: Path = Path("/"), statistics: Callable[[str], Mapping[str, int]] = ethtool_statistics
    ) -> None:
        """Find the cards: those that are hardware; where none is, as in a container, all that leave this node."""
        self._statistics = statistics
        self._proc = root / ("proc/net" if root != Path("/") else "proc/self/net")
        self._net = root / "sys/class/net"
        self.cards = _cards(root / "sys/class", interface_counts(self._proc / "dev"))

    def read(self, *, priorities: bool = False) -> list[tuple[str, list[Value]]]:
        """Subjects and their values of this moment: bytes since the counters began; of each priority too, if asked."""
        interfaces = interface_counts(self._proc / "dev")
        found = []
        for name, card in self.cards.items():
            own = [interfaces[one] for one in card.interfaces if one in interfaces]
            sent, received = self._moved(card, interfaces)
            more = [*self._links(card, own), *_troubles(card.ports), *(self._of_priorities(card) if priorities else [])]
            found.append((NIC + name, [Value(SENT, sent, "B"), Value(RECEIVED, received, "B"), *more]))
        protocols = [Value(name, count, "packets") for name, count in protocol_counts(self._proc).items()]
        return [*found, *([(PROTOCOLS, protocols)] if protocols else [])]

    def _links(self, card: _Card, counts: Sequence[InterfaceCounts]) -> list[Value]:
        """Of a card's interfaces together errors, drops, carrier changes and pause frames."""
        if not counts:
            return []
        found = [Value(RX_TX_ERRORS, sum(one.errors for one in counts), COUNTED_ERRORS),
                 Value(DROPPED, sum(one.dropped for one in counts), "packets")]  # fmt: skip
        changes = [
            count for one in card.interfaces if (count := number(self._net / one / "carrier_changes")) is not None
        ]
        if changes:
            found.append(Value(CARRIER_CHANGES, sum(changes), "times"))
        counted = [item for one in card.interfaces for item in self._statistics(one).items()]
        paused = {way: sum(count for name, count in counted if _PAUSE.fullmatch(name) and name.startswith(way))
                  for way in _WAYS}  # fmt: skip
        return found + [Value(f"{way}_pause", count, "frames") for way, count in paused.items() if count]

    def crossed(self) -> int:
        """Bytes that all cards have sent and received since the counters began."""
        interfaces = interface_counts(self._proc / "dev")
        return sum(sum(self._moved(card, interfaces)) for card in self.cards.values())

    def _moved(self, card: _Card, interfaces: Mapping[str, InterfaceCounts]) -> Counts:
        own = [interfaces[one] for one in card.interfaces if one in interfaces]
        sent, received = map(max, _sum((one.sent, one.received) for one in own), _rdma(card.ports))
        return sent, received

    def _of_priorities(self, card: _Card) -> list[Value]:
        sums: dict[str, int] = {}
        counters = [item for one in card.interfaces for item in self._statistics(one).items()]
        counters += [(file.name, _number(file)) for port in card.ports for file in entries(port.parent / "hw_counters")]
        for name, value in counters:
            if match := _BY_PRIORITY.fullmatch(name):
                named = f"{_WAYS[match[1]]}{OF_PRIORITY}{match[2] or match[3]}"
                sums[named] = sums.get(named, 0) + value
        return [Value(name, sums[name], "B") for name in sorted(sums)]


def _sum(counts: Iterable[Counts]) -> Counts:
    listed = list(counts)
    return sum(sent for sent, _ in listed), sum(received for _, received in listed)


def _rdma(ports: tuple[Path, ...]) -> Counts:
    return _sum((4 * _number(port / "port_xmit_data"), 4 * _number(port / "port_rcv_data")) for port in ports)


def _troubles(ports: tuple[Path, ...]) -> list[Value]:
    """Errors, waiting and retries of a card's RDMA ports together, as far as they are counted."""
    units = {**dict.fromkeys(ERRORS, COUNTED_ERRORS), **LOADED, **dict.fromkeys(RETRIES, "retries"),
             **dict.fromkeys(MARKED, "packets")}  # fmt: skip
    files = [port / name for port in ports for name in (*ERRORS, *LOADED)]
    files += [port.parent / "hw_counters" / name for port in ports for name in (*RETRIES, *MARKED)]
    sums: dict[str, int] = {}
    for file in files:
        if (text := kernel_text(file)).isdecimal():
            sums[file.name] = sums.get(file.name, 0) + int(text)
    return [Value(name, count, units[name]) for name, count in sums.items()]


def _number(path: Path) -> int:
    """A counter, however large; 0 where there is none."""
    text = kernel_text(path)
    return int(text) if text.isdecimal() else 0


def _cards(classes: Path, interfaces: Mapping[str, object]) -> dict[str, _Card]:
    """By name: of an RDMA device with its network interfaces that device's, else the interface's."""
    net = classes / "net"
    hardware = {name for name in interfaces if (net / name / "device").exists()}
    leaving = hardware or {name for name in interfaces if name != "lo" and not (net / name / "bridge").exists()}
    cards: dict[str, _Card] = {}
    taken: set[str] = set()
    for device in entries(classes / "infiniband"):
        own = tuple(one.name for one in entries(device / "device" / "net") if one.name in interfaces)
        cards[device.name] = _Card(own, tuple(port / "counters" for port in entries(device / "ports")))
        taken.update(own)
    return {**cards, **{name: _Card((name,)) for name in sorted(leaving - taken)}}


def tells_of_nics(node_of: Sequence[int], ranks: Sequence[int], rank: int) -> bool:
    """Whether a rank is the one that reads its node's cards for a case of these ranks: the first there, if it spans
    nodes. `node_of`: of each rank of the launch its node's number; none: all are on one."""
    if not node_of or rank not in ranks or len({node_of[one] for one in ranks}) < 2:
        return False
    return next(one for one in ranks if node_of[one] == node_of[rank]) == rank


CGROUP = "cgroup"
PERIODS, THROTTLED_PERIODS, THROTTLED = "quota_periods", "quota_throttled_periods", "quota_throttled"


def quota_use(quotas: Quotas) -> list[Value]:
    """How often, and for how long (ns of cores' time), the kernel has stopped this process for want of CPU quota."""
    now = quotas.read()
    return [Value(PERIODS, now.periods, ""), Value(THROTTLED_PERIODS, now.throttled, ""),
            Value(THROTTLED, now.time_ns, "ns")]  # fmt: skip


MEMORY, MEMORY_BYTES = "host memory", "memory_bytes"


def memory_use(traffic: MemoryTraffic) -> list[Value]:
    """What all cores have moved from and to memory, in bytes; nothing where a counter is silent."""
    moved = traffic.read()
    return [] if moved is None else [Value(MEMORY_BYTES, moved, "B")]


CORES = "cores"
ALL, BUSY, STOLEN, OWN = "cores_all", "cores_busy", "cores_stolen", "cores_own"
WAITED = "cores_waited"


def core_wait(root: Path = Path("/proc")) -> list[Value]:
    """For how long this thread could run and had no core, in ns since it began (Documentation/scheduler/sched-stats).

    15 us; nothing where the kernel does not count it. `root` is that of /proc, of tests only.
    """
    fields = kernel_text(root / "thread-self" / "schedstat").split()
    return [Value(WAITED, float(fields[1]), "ns")] if len(fields) == 3 and fields[1].isdecimal() else []


class CoreUse:
    """This node's cores: how long they were busy, with this launch's ranks, and taken by a hypervisor.

    Read before and after each case of a watch, whose rounds differ by it, and of a look at a node's health:
    20 us, and 15 us more a process of
    the launch on the node, outside of all timed parts. The kernel counts in ticks of 10 ms, a core's time to what ran
    when the tick came (proc_stat(5)): sums over a round's cases say a share of a few percent, a single short case says
    nothing. `root` is that of /proc, of tests only.
    """

    def __init__(self, pids: Iterable[int], root: Path = Path("/proc")) -> None:
        """Take the launch's processes on this node."""
        self._root = root
        self._own = sorted(set(pids))
        self._tick_ns = 1e9 / os.sysconf("SC_CLK_TCK")

    def read(self) -> list[Value]:
        """Time of all cores together since the node began, in ns; nothing where the kernel does not say."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            ticks = all_cores(self._root)
            if ticks is None:
                return []
            own = sum(map(self._ticks_of, self._own))
            counts = {ALL: ticks.whole, BUSY: ticks.busy, STOLEN: ticks.stolen, OWN: own}
            return [Value(name, count * self._tick_ns, "ns") for name, count in counts.items()]
        return []

    def _ticks_of(self, pid: int) -> int:
        return process_ticks((self._root / str(pid) / "stat").read_text().rpartition(")")[2].split())
