"""Which nodes reach which: whom each tries in the look before a run (first_look.py), and what is at fault.

A node that others cannot connect to, or that loses large packets with all of them, cannot be used. Where two nodes lose
packets only with each other, as those of large MTUs over a switch of a smaller one do, both are used, but not together.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from linkgauge.model.grouped import grouped
from linkgauge.model.shape import mapping, table, text, whole
from linkgauge.run.wire.failures import least_nodes

_ALL_PAIRS = 8  # nodes, of which each tries all others; of more each tries the next ones
PARENT = ""
"""The name of this node, on which the run is started, among those that a node is to reach."""
Pair = frozenset[str]
_UNREACHED = {"why": text, "mtu": whole(0, 1 << 30)}
SAID = mapping(table(_UNREACHED, needed=_UNREACHED))
"""What a node says of those that it does not reach, by name."""


@dataclasses.dataclass
class Reached:
    """Who has tried to reach whom, and has not: `why` in words, and the `mtu` where only full packets are lost."""

    tried: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    failed: dict[tuple[str, str], dict[str, Any]] = dataclasses.field(default_factory=dict)
    of_parent: dict[str, str] = dataclasses.field(default_factory=dict)
    """Why nodes do not reach the one on which the run is started."""

    def try_all(self, tries: Mapping[str, Iterable[str]]) -> None:
        """Note whom nodes try to reach."""
        for node, others in tries.items():
            for other in others:
                self.tried.setdefault(node, set()).add(other)
                self.tried.setdefault(other, set()).add(node)

    def note(self, node: str, said: Mapping[str, Mapping[str, Any]]) -> None:
        """Note whom a node does not reach, as it says it."""
        for other, one in said.items():
            if other == PARENT:
                self.of_parent[node] = one["why"]
            else:
                self.failed[node, other] = dict(one)

    def lossy(self) -> dict[Pair, str]:
        """The pairs of usable nodes between which packets of full size are lost, and why no case has both."""
        hopeless = self._hopeless()
        return {
            frozenset(pair): f"packets of full size are lost between {' and '.join(sorted(pair))} (MTU {one['mtu']} at "
                             f"{pair[0]}): expected one MTU on all nodes and switches"
            for pair, one in sorted(self.failed.items(), key=_names, reverse=True)
            if one["mtu"] and not hopeless.intersection(pair)
        }  # fmt: skip

    def _hopeless(self) -> set[str]:
        """The nodes that lose packets with all nodes that they tried or that tried them."""
        lossy: dict[str, set[str]] = {}
        for source, target in (pair for pair, one in self.failed.items() if one["mtu"]):
            lossy.setdefault(source, set()).add(target)
            lossy.setdefault(target, set()).add(source)
        return {node for node, others in lossy.items() if others == self.tried.get(node)}

    def unusable(self, order: Sequence[str]) -> dict[str, str]:
        """The least set of nodes that explains who cannot reach whom, later ones first, and why each."""
        pairs = self.lossy()
        failed = [pair for pair in self.failed if frozenset(pair) not in pairs and pair[0] not in self.of_parent]
        found = {}
        for worst, explained in least_nodes(failed, list(order).index):
            source, target = explained[0]
            why = self.failed[explained[0]]["why"]
            who = f"{source} does not reach it" if target == worst else f"it does not reach {target}"
            found[worst] = f"{who}: {why}"
        return found


def _names(item: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return item[0]


def own_addresses(hello: Mapping[str, Any]) -> list[str]:
    """A node's IPv4 addresses, as it says them."""
    return [str(address) for address, _ in hello["addresses"].values()]


def first_tries(hellos: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Whom each node tries to reach: all others, or of many the next one, and the next one of its own MTUs.

    Two nodes of large MTUs lose packets over a switch of a smaller one, and neither does with a node of that one.
    """
    names = list(hellos)
    if len(names) <= _ALL_PAIRS:
        return {name: [other for other in names if other != name] for name in names}
    found: dict[str, list[str]] = {name: [] for name in names}
    for ring in (names, *_of_one_mtu(hellos)):
        for one, other in zip(ring, itertools.islice(itertools.cycle(ring), 1, None), strict=False):
            if one != other and other not in found[one]:
                found[one].append(other)
    return found


def further_tries(hellos: Mapping[str, Mapping[str, Any]], lossy: Collection[Pair]) -> dict[str, list[str]]:
    """Whom of many nodes each then tries: of those whose MTUs two have that lose packets, each the next ones."""
    if len(hellos) <= _ALL_PAIRS:
        return {}
    nodes = set().union(*lossy)
    return {
        one: list(ring[at + 1 :])
        for ring in _of_one_mtu(hellos) if nodes.intersection(ring) for at, one in enumerate(ring)
    }  # fmt: skip


def _of_one_mtu(hellos: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    mtus = ((frozenset(int(mtu) for _, mtu in hello["addresses"].values()), name) for name, hello in hellos.items())
    return list(grouped(mtus).values())
