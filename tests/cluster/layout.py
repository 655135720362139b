"""What an emulated cluster looks like: groups of switches of nodes, the rates of its links, and which of them are slow.

Nodes are n0, n1, ..., switches s0, s1, ..., groups g0, g1, ..., numbered through. A node has one link a rail to its
switch, a switch one to its group, where the group has several, and a group one to the core, where there are several.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

MBIT = 1_000_000
# TCP's segments are 1,514 bytes; a tbf's burst is what it lets through at once, and its latency what it lets queue.
_BURST_S = 0.002
_LEAST_BURST = 16_000
_QUEUE_MS = 100
# Of a lossless fabric: what a connection has under way fills its node's link for so long. A rank that two cores have to
# share with seven others is away for some 10 ms, and what waits in a queue is what a next round's first word waits for.
_WINDOW_S = 0.02
_LEAST_WINDOW = 65_536


def tbf_words(interface: str, rate: float, queue: int | None = None) -> list[str]:
    """What tc is told to shape what leaves an interface, `rate` in bits a second; `queue`: bytes that may wait."""
    burst = max(_LEAST_BURST, int(rate / 8 * _BURST_S))
    depth = ["latency", f"{_QUEUE_MS}ms"] if queue is None else ["limit", str(queue)]
    return ["qdisc", "replace", "dev", interface, "root", "tbf", "rate", f"{rate:.0f}bit", "burst", str(burst),
            *depth]  # fmt: skip


def class_lines(
    interface: str, rate: float, weights: Sequence[float], members: Sequence[Sequence[str]], queue: int
) -> list[list[str]]:
    """What tc is told to share what leaves an interface by service classes, each with a queue of its own.

    `members`: of each class the addresses whose packets are of it; what is of none is of the first. A class has its
    weight's part of the rate, and what others leave.
    """
    burst = str(max(_LEAST_BURST, int(rate / 8 * _BURST_S)))
    bursts = ["burst", burst, "cburst", burst]
    whole, made = f"{rate:.0f}bit", ["dev", interface, "parent"]
    lines = [["qdisc", "replace", "dev", interface, "root", "handle", "1:", "htb", "default", "10"],
             ["class", "add", *made, "1:", "classid", "1:1", "htb", "rate", whole, *bursts]]  # fmt: skip
    for number, (weight, addresses) in enumerate(zip(weights, members, strict=True), start=10):
        part = f"{rate * weight / sum(weights):.0f}bit"
        lines += [
            ["class", "add", *made, "1:1", "classid", f"1:{number}", "htb", "rate", part, "ceil", whole, *bursts],
            ["qdisc", "add", *made, f"1:{number}", "bfifo", "limit", str(queue)],
        ]
        lines += [["filter", "add", *made, "1:", "protocol", "ip", "prio", "1", "u32", "match", "ip", "src", address,
                   "flowid", f"1:{number}"] for address in addresses]  # fmt: skip
    return lines


@dataclasses.dataclass(frozen=True)
class Link:
    """One link of a rail, full duplex: `name` is that of its lower end (n3, s1, g0), rate in bits a second.

    `delay`: seconds that it takes longer than no time, one way.
    """

    name: str
    above: str
    rail: int
    rate: float
    delay: float = 0.0


@dataclasses.dataclass(frozen=True)
class Layout:
    """`groups`: of each group, of each of its switches, how many nodes. Rates in bits a second.

    `switch_rate`, `group_rate`: of the links upwards of a switch and of a group; None: of as many nodes as hang below,
    so that they are never the narrow place. `slow`: by link its share of that rate, n3 or, of one rail alone, n3.1;
    0: the link is down. `shared_memory`: all nodes have one /dev/shm, as containers of one host may.

    `lossless`: nothing is dropped, as on fabrics of credits, and queues are short: a connection has a bounded window
    (`window`), and queues hold all of them. Else TCP's own way: full queues, drops, and a fabric's shares only roughly.

    `weights`: of service classes, by which links between switches are shared; `classes`: by node which of them what it
    sends is of, the first where it is not said. For a lossless one.

    `switch_delay`, `group_delay`: seconds that a link upwards of a switch and of a group takes, one way; `delays`: of
    links by name, of nodes too, in place of these.
    """

    groups: tuple[tuple[int, ...], ...] = ((2,),)
    rate: float = 100 * MBIT
    switch_rate: float | None = None
    group_rate: float | None = None
    rails: int = 1
    slow: Mapping[str, float] = dataclasses.field(default_factory=dict)
    shared_memory: bool = False
    lossless: bool = False
    classes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    weights: Sequence[float] = ()
    switch_delay: float = 0.0
    group_delay: float = 0.0
    delays: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what would else be left out without a word."""
        if self.weights and not self.lossless:
            raise ValueError("service classes are of a lossless fabric")
        if any(not 0 <= number < max(1, len(self.weights)) for number in self.classes.values()):
            raise ValueError(f"classes {dict(self.classes)}: there are {len(self.weights)} weights, counted from 0")

    @property
    def window(self) -> int | None:
        """Bytes that a connection may have under way where nothing is to be dropped; None: as TCP finds."""
        return max(_LEAST_WINDOW, int(self.rate / 8 * _WINDOW_S)) if self.lossless else None

    @property
    def queue(self) -> int | None:
        """Bytes that a link's queue holds: the windows of two connections of each two nodes; None: as long as usual."""
        window = self.window
        return None if window is None else 2 * window * len(self.nodes) ** 2

    @classmethod
    def of(cls, nodes: int, **more: object) -> Layout:
        """So many nodes on one switch."""
        return cls(((nodes,),), **more)  # type: ignore[arg-type]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes' names."""
        return tuple(f"n{number}" for number in range(sum(map(sum, self.groups))))

    def place(self, node: str) -> tuple[int, int]:
        """The numbers of a node's group and switch."""
        number, switch = int(node[1:]), 0
        for group, switches in enumerate(self.groups):
            for count in switches:
                if number < count:
                    return group, switch
                number -= count
                switch += 1
        raise KeyError(node)

    def address(self, node: str, rail: int = 0) -> str:
        """A node's IPv4 address on a rail; each rail is a network of its own."""
        return f"10.{77 + rail}.0.{int(node[1:]) + 1}" if node != "login" else f"10.{77 + rail}.1.1"

    def top(self) -> str:
        """The switch that all others hang below."""
        if len(self.groups) > 1:
            return "core"
        return "g0" if len(self.groups[0]) > 1 else "s0"

    def links(self) -> list[Link]:
        """All links, with what makes some of them slow."""
        return [link for rail in range(self.rails) for link in self._of_rail(rail)]

    def _of_rail(self, rail: int) -> list[Link]:
        found, node, switch = [], 0, 0
        for group, switches in enumerate(self.groups):
            for count in switches:
                for _ in range(count):
                    found.append(self._link(f"n{node}", f"s{switch}", rail, self.rate))
                    node += 1
                if len(switches) > 1:
                    rate = self.switch_rate or count * self.rate
                    found.append(self._link(f"s{switch}", f"g{group}", rail, rate, self.switch_delay))
                switch += 1
            if len(self.groups) > 1:
                lower = f"g{group}" if len(switches) > 1 else f"s{switch - 1}"
                rate = self.group_rate or sum(switches) * self.rate
                found.append(self._link(lower, "core", rail, rate, self.group_delay))
        return found

    def _link(self, name: str, above: str, rail: int, rate: float, delay: float = 0.0) -> Link:
        share = self.slow.get(f"{name}.{rail}", self.slow.get(name, 1.0))
        return Link(name, above, rail, rate * share, self.delays.get(name, delay))

    def distance(self, a: str, b: str) -> str:
        """The distance class of two nodes: node, switch, group or other group."""
        if a == b:
            return "node"
        one, other = self.place(a), self.place(b)
        return "switch" if one == other else "group" if one[0] == other[0] else "other group"

    def topology_conf(self) -> str:
        """The switches as Slurm's topology.conf has them."""
        lines, switch, node = [], 0, 0
        for group, switches in enumerate(self.groups):
            first = switch
            for count in switches:
                lines.append(f"SwitchName=s{switch} Nodes={','.join(f'n{node + k}' for k in range(count))}")
                node += count
                switch += 1
            lines.append(f"SwitchName=g{group} Switches={','.join(f's{one}' for one in range(first, switch))}")
        groups = ",".join(f"g{one}" for one in range(len(self.groups)))
        return "\n".join([*lines, f"SwitchName=core Switches={groups}", ""])

    def fabric_file(self) -> str:
        """The switches as `linkgauge run --fabric` reads them: a node and what is above it a line, with rates."""
        rates: dict[str, float] = {}
        for link in self.links():
            rates[link.name] = rates.get(link.name, 0.0) + link.rate
        lines = []
        for node in self.nodes:
            group, switch = self.place(node)
            above = [f"s{switch}"] + ([f"g{group}"] if len(self.groups[group]) > 1 else [])
            above += ["core"] if len(self.groups) > 1 else []
            rated = (f"{one}={rates[one] / MBIT:g}Mb/s" if one in rates else one for one in [node, *above])
            lines.append(" ".join(rated))
        return "\n".join([*lines, ""])

    def shaping(self, interface: str, link: Link) -> list[list[str]]:
        """What tc is told of one end of a link."""
        if not self.weights or link.name in self.nodes or self.queue is None:
            return [tbf_words(interface, link.rate, self.queue)]
        members = [[self.address(node, link.rail) for node in self.nodes if self.classes.get(node, 0) == number]
                   for number in range(len(self.weights))]  # fmt: skip
        return class_lines(interface, link.rate, self.weights, members, self.queue)

    def to_text(self) -> str:
        """As JSON, for the process that makes it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Layout:
        """Of `to_text`."""
        plain = json.loads(text)
        groups: Sequence[Sequence[int]] = plain.pop("groups")
        return cls(tuple(map(tuple, groups)), **{**plain, "weights": tuple(plain["weights"])})
