"""Routing as named rules: from what a stage asks for to bytes on each class of links.

No rule is a machine's own. `minimal` and `third_group` are what dragonflies do at their two ends (Kim et al. 2008,
Valiant 1982); adaptive routing such as UGAL lies between them, `mixed` states how far, `best` (best.py) is what no
routing can pass. Trees: `best` spreads evenly over all ways up, `static` (static.py) hashes each flow onto one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from linkgauge.errors import UsageError
from linkgauge.simulate.arrays import Floats, sums
from linkgauge.simulate.demand import Demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import Layout

RULES = {
    "minimal": "over the links that join the two groups, evenly",
    "third_group": "through every third group, evenly (Valiant)",
    "mixed": "mixed:F: a share F by minimal, the rest by third_group",
    "best": "by a linear program: no routing does better",
    "static": "each flow on one way up, by a hash: a distribution over seeds",
}
_OF_KIND = {
    "dragonfly": ("minimal", "third_group", "mixed", "best"),
    "dragonfly+": ("minimal", "third_group", "mixed", "best"),
    "fat_tree": ("static", "best"),
    "torus": ("minimal",),
    "endpoints": ("best",),
}


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule's name, and of `mixed` the share that goes by minimal."""

    name: str
    share: float = 1.0

    def __str__(self) -> str:
        """As it is written."""
        return f"mixed:{self.share:g}" if self.name == "mixed" else self.name


def rules_of(fabric: Fabric) -> tuple[str, ...]:
    """The names of the rules that a fabric of this kind has."""
    return _OF_KIND[fabric.kind]


def parse_rules(text: str, fabric: Fabric) -> list[Rule]:
    """The rules of a list such as `minimal,mixed:0.5`; all but `mixed` where it is empty. UsageError."""
    known = rules_of(fabric)
    found = []
    for part in text.split(",") if text else [name for name in known if name != "mixed"]:
        name, _, share = part.strip().partition(":")
        if name not in known:
            raise UsageError(f"no rule '{part[:40]}' on a {fabric.kind}: expected one of {', '.join(known)}")
        if name != "mixed" and share:
            raise UsageError(f"rule '{part[:40]}': only mixed has a share")
        if name == "mixed" and not re.fullmatch(r"0?\.\d{1,9}|[01](\.0{1,9})?", share):
            raise UsageError(f"rule '{part[:40]}': expected a share from 0 to 1, such as mixed:0.5")
        found.append(Rule(name, float(share)) if name == "mixed" else Rule(name))
    return found


def shares(fabric: Fabric, rule: Rule) -> bool:
    """Whether a rule spreads alike whatever else is under way, so that jobs' shares can be told."""
    if fabric.kind in ("fat_tree", "endpoints"):
        return rule.name == "best"
    return fabric.kind != "torus" and rule.name in ("minimal", "third_group", "mixed")


def refuse_uneven(fabric: Fabric, rule: Rule) -> None:
    """UsageError for a rule that does not."""
    if not shares(fabric, rule):
        raise UsageError(f"concurrent jobs by rule {rule} on a {fabric.kind}: expected one that spreads evenly")


@dataclasses.dataclass(frozen=True)
class LinkClass:
    """Links that are alike: bytes on each, and what each carries, in bytes per second one way."""

    name: str
    load: Floats
    rate: Floats | float
    where: Sequence[str] = ()  # what each axis counts

    @property
    def seconds(self) -> Floats:
        """What each takes by itself."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.where(self.load > 0, self.load / self.rate, 0.0)
        return found

    @property
    def longest(self) -> float:
        """What the fullest takes, in seconds."""
        return float(self.seconds.max(initial=0.0))

    def fullest(self) -> str:
        """Which one that is, in words."""
        if not self.load.size:
            return self.name
        index = np.unravel_index(int(self.seconds.argmax()), self.load.shape)
        return f"{self.name} of {', '.join(f'{axis} {place}' for axis, place in zip(self.where, index, strict=True))}"


def end_links(layout: Layout, asked: Demand) -> list[LinkClass]:
    """Ports, the links behind them and NVLink domains, which no routing changes."""
    f = layout.fabric
    found = [
        LinkClass("port out", asked.port_out, f.port_rate, ("node", "port")),
        LinkClass("port in", asked.port_in, f.port_rate, ("node", "port")),
    ]
    for name, load, links in (("out", asked.rank_out, f.behind_out), ("in", asked.rank_in, f.behind_in)):
        if links:
            shares = np.array([link.shares for link in links])[:, layout.gpu]
            rates = np.array([link.rate for link in links])
            table = np.stack([sums(layout.node, load * row, len(layout.nodes)) for row in shares], axis=1)
            found.append(LinkClass(f"link to ports {name}", table, rates, ("node", "link")))
    if f.domain_rate is not None:
        found.append(LinkClass("domain out", asked.domain_out, f.domain_rate, ("GPU",)))
        found.append(LinkClass("domain in", asked.domain_in, f.domain_rate, ("GPU",)))
    return found


def fabric_links(fabric: Fabric, asked: Demand, rule: Rule) -> list[LinkClass]:
    """Links between switches under a rule that spreads evenly: all but `best` of dragonflies, `static` and tori."""
    if fabric.kind in ("endpoints", "torus"):
        return []
    if fabric.kind == "fat_tree":
        return tree_links(fabric, asked)
    if rule.name == "minimal" or fabric.groups < 3:
        return _dragonfly(fabric, asked, 1.0)
    return _dragonfly(fabric, asked, rule.share if rule.name == "mixed" else 0.0)


def tree_links(fabric: Fabric, asked: Demand) -> list[LinkClass]:
    """A fat tree's links, every leaf's traffic spread evenly over its ways up: no routing does better."""
    up = (asked.local_out + asked.out.sum(axis=2)) / fabric.up_links
    down = (asked.local_in + asked.into.sum(axis=2)) / fabric.up_links
    found = [
        LinkClass("leaf up", up, fabric.link_rate, ("group", "leaf")),
        LinkClass("leaf down", down, fabric.link_rate, ("group", "leaf")),
    ]
    if fabric.groups > 1:
        ways = fabric.spines * fabric.core_links
        between = asked.between
        found.append(LinkClass("pod up", between.sum(axis=1) / ways, fabric.link_rate, ("pod",)))
        found.append(LinkClass("pod down", between.sum(axis=0) / ways, fabric.link_rate, ("pod",)))
    return found


def _dragonfly(f: Fabric, asked: Demand, direct: float) -> list[LinkClass]:
    """Loads where a share `direct` goes straight and the rest through every third group alike."""
    share = f.gateway_shares  # g, r, h
    spread = f.groups - 2
    out, into = asked.out, asked.into
    if direct < 1.0:
        out = direct * asked.out + (1 - direct) * _legs(asked.out, spread)
        into = direct * asked.into + (1 - direct) * _legs(asked.into, spread)
    load = share * out.sum(axis=1)[:, None, :]  # on the links of router r of group g to h
    moved = None
    if direct < 1.0:
        through, moved = _third(f, (1 - direct) * asked.between / spread)
        load = load + through
        if moved is not None:
            load = load + moved.sum(axis=1)[:, None, :] * share
    with np.errstate(invalid="ignore", divide="ignore"):
        per_link = np.where(f.gateways > 0, load / np.maximum(f.gateways, 1e-300), 0.0)
    links = [LinkClass("global", per_link, f.link_rate, ("group", "switch", "to group"))]
    inner = local_links if f.kind == "dragonfly" else spine_links
    return [*inner(f, asked, out, into, moved), *links]


def _legs(table: Floats, spread: int) -> Floats:
    """What a leaf sends to each group on the first leg (or gets on the last): to h all that goes to others than h."""
    found: Floats = (table.sum(axis=2, keepdims=True) - table) / spread
    own = np.arange(len(table))
    found[own, :, own] = 0.0
    return found


def _third(f: Fabric, each: Floats) -> tuple[Floats, Floats | None]:
    """What passes through each group: on its routers' links onward, and what first changes the router there.

    `each`: g x h, what goes from g to h through any one third group. A router that has links to where it goes keeps
    it (k x r x h); else it moves to those that have (k x r x h, by the router it came in by).
    """
    arriving = np.einsum("krg,gh->krh", f.gateway_shares, each)
    own = np.arange(f.groups)
    # Neither from nor to the group itself: that is no third group's traffic.
    arriving -= f.gateway_shares[own, :, own][:, :, None] * each[own][:, None, :]
    arriving[own, :, own] = 0.0
    has = f.gateways > 0
    kept = np.where(has, arriving, 0.0)
    moved = np.where(has, 0.0, arriving)
    return kept, moved if moved.any() else None


def local_links(f: Fabric, asked: Demand, out: Floats, into: Floats, moved: Floats | None) -> list[LinkClass]:
    """A dragonfly's links inside groups: from leaves to gateways, from gateways to leaves, and between leaves."""
    assert asked.local is not None
    share = f.gateway_shares
    across = share.transpose(0, 2, 1)  # g, h, r
    local = asked.local + out @ across + share @ into.transpose(0, 2, 1)
    if moved is not None:
        local = local + moved @ across
    own = np.arange(f.leaves)
    local[:, own, own] = 0.0
    if f.rows == 1:
        return [LinkClass("local", local / f.local_links, f.link_rate, ("group", "switch", "to switch"))]
    g, rows, columns = f.groups, f.rows, f.leaves // f.rows
    boxed = local.reshape(g, rows, columns, rows, columns)
    # Along the row first, to the column of the target, then along the column.
    along = boxed.sum(axis=3) / f.local_links  # g, row, column, to column
    up = boxed.sum(axis=2).transpose(0, 3, 1, 2) / f.local_links  # g, column, row, to row
    i, j = np.arange(columns), np.arange(rows)
    along[:, :, i, i] = 0.0
    up[:, :, j, j] = 0.0
    return [
        LinkClass("local row", along, f.link_rate, ("group", "row", "column", "to column")),
        LinkClass("local column", up, f.link_rate, ("group", "column", "row", "to row")),
    ]


def spine_links(f: Fabric, asked: Demand, out: Floats, into: Floats, moved: Floats | None) -> list[LinkClass]:
    """A dragonfly+'s links inside groups: leaves to the spines that have the links, evenly to all within the group."""
    share = f.gateway_shares
    across = share.transpose(0, 2, 1)
    up = asked.local_out[:, :, None] / f.spines + out @ across  # g, leaf, spine
    down = asked.local_in[:, :, None] / f.spines + into @ across
    if moved is not None:  # a spine reaches another one through any leaf
        down = down + moved.sum(axis=2)[:, None, :] / f.leaves
        up = up + (moved.sum(axis=1)[:, None, :] @ across) / f.leaves
    each = f.up_links / f.spines
    return [
        LinkClass("leaf up", up / each, f.link_rate, ("group", "leaf", "spine")),
        LinkClass("leaf down", down / each, f.link_rate, ("group", "leaf", "spine")),
    ]


def time_of(links: Sequence[LinkClass]) -> float:
    """Seconds until the fullest link is through.

    Exact under max-min fair sharing where all flows have as many bytes: the link that is fullest for its rate is the
    first to be full, all its flows have the same least rate, and all others are at least as fast (Bertsekas and
    Gallager 1992, 6.5.2). A bound from below where flows differ (fair.py plays those out).
    """
    return max((one.longest for one in links), default=0.0)
