"""Why the network is slow, from what every node says and counts: lost packets, links that are or went down, MTUs.

These findings state what was counted, and are told in place of "slow" where they explain it (rules.py).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, keys
from linkgauge.findings.rule import rule
from linkgauge.model.quantity import percent
from linkgauge.run.machine.net_counters import TCP_DUPLICATES, TCP_OUT_OF_ORDER, TCP_RETRANSMITTED, TCP_SENT
from linkgauge.run.rank.node_counters import CARRIER_CHANGES, DROPPED, NIC, PROTOCOLS, RETRIES, RX_TX_ERRORS
from linkgauge.stats.node_counts import of_cards, packets_sent

_LEAST_LOSS = 0.002  # of the packets: TCP's own full queues lose less in most cases
_TIMES_USUAL = 4.0  # as much as between the better pairs
_LEAST_LOST = 8  # packets of one way: fewer are chance
_PAIR_TIMES = 5  # as much must be lost where one pair alone shows it
_AGREE = 0.75
_NAMED = 8
Way = tuple[str, str]
"""From a node to another."""


@dataclasses.dataclass
class _Loss:
    """What was lost from one node to another, over all cases of these two alone."""

    lost: float = 0.0
    sent: float = 0.0
    out_of_order: float = 0.0

    @property
    def share(self) -> float:
        """Of the packets sent."""
        return self.lost / self.sent if self.sent else 0.0

    def is_high(self, limit: float) -> bool:
        """Whether more than the limit was lost, and not by chance."""
        return self.lost >= _LEAST_LOST and self.share >= limit


@rule("packets that are lost between nodes, from the counters at both ends", faults=True, whole=True)
def lossy_link(facts: Facts) -> Iterable[Finding]:
    """The nodes at whose links packets are lost: the least set that explains which pairs send packets again."""
    ways, cases = _losses(facts)
    if not ways:
        return
    shares = sorted(one.share for one in ways.values())
    limit = max(_LEAST_LOSS, _TIMES_USUAL * shares[len(shares) // 4])
    bad = {way for way, one in ways.items() if one.is_high(limit)}
    explaining, left = _least_set(bad, set(ways))
    for what, node, explained in [*explaining, *_pairs_alone(left, ways, limit)]:
        own = [ways[way] for way in explained]
        share = sum(one.lost for one in own) / sum(one.sent for one in own)
        sent_again, out_of_order = (sum(getattr(one, name) for one in own) for name in ("lost", "out_of_order"))
        card = facts.cards.get(node, "")
        where = f"{card} of {node}" if card else node
        words = {"in": f"into {where}", "out": f"out of {where}", "both": f"at {where}, in both directions"}
        place = words.get(what, f"between {node} and {what}")
        others = sorted({other for way in explained for other in way if other != node})
        mine = [m for way in explained for m in cases[way]]
        drops = _drops(facts, node)
        yield Finding(
            "lossy_link",
            "fault",
            f"{card} of {node}" if what in words and card else f"node {node}" if what in words else f"{node} - {what}",
            f"{percent(share, 2)} of the packets {place} are lost: the senders sent {sent_again:.0f} packets again"
            f"{f', and the receivers got {out_of_order:.0f} out of order' if out_of_order else ''}. Of the other "
            f"pairs at most {percent(max((one.share for way, one in ways.items() if way not in bad), default=0.0), 2)} "
            "are lost.",
            (
                Evidence(f"with {', '.join(others[:_NAMED])}: {sent_again:.0f} of {sum(o.sent for o in own):.0f} "
                         "packets sent again", keys(mine)),
                *([Evidence(drops)] if drops else []),
            ),
            0.97,
            f"Look at the cable, transceiver and switch port of {where} (ethtool -S {card or 'NAME'}, ip -s link, "
            "iptables -L -v on the node), and at the switch port's error and discard counters.",
            min(1.0, max(0.1, 10 * share)),
            tuple(sorted({device for m in mine for device in m.devices if facts.host_of(device) == node})),
        )  # fmt: skip


def _losses(facts: Facts) -> tuple[dict[Way, _Loss], dict[Way, list[Measure]]]:
    """By way what was lost, and in which cases. Of cases of two nodes alone.

    A sender also sends again what was only late: a busy node, a long queue, the last packet of a message. Then its
    receiver gets it twice, or sees no gap. So a packet is lost where it is sent again, not got twice, and the receiver
    has got later ones before it; where the kernel does not count these, the sender's word stands.
    """
    found: defaultdict[Way, _Loss] = defaultdict(_Loss)
    cases: defaultdict[Way, list[Measure]] = defaultdict(list)
    for measure in facts.measures:
        nodes = sorted({facts.host_of(device) for device in measure.devices})
        for identity in measure.identities if len(nodes) == 2 else ():
            counts = facts.counts.grown.get(identity, {})
            if set(counts) != set(nodes):
                continue
            for a, b in itertools.permutations(nodes):
                again = counts[a].get((PROTOCOLS, TCP_RETRANSMITTED), 0.0)
                lost = max(0.0, again - counts[b].get((PROTOCOLS, TCP_DUPLICATES), 0.0))
                out_of_order = counts[b].get((PROTOCOLS, TCP_OUT_OF_ORDER), lost)
                found[a, b].lost += min(lost, out_of_order) + of_cards(counts[a], RETRIES)
                found[a, b].sent += packets_sent(counts[a], TCP_SENT)
                found[a, b].out_of_order += out_of_order
                cases[a, b].append(measure)
    return dict(found), dict(cases)


def _least_set(bad: set[Way], every: set[Way]) -> tuple[list[tuple[str, str, list[Way]]], set[Way]]:
    """Nodes' directions that explain the bad ways, `(in, out or both, node, ways)`, and what is left.

    A node's direction is taken if three quarters of its ways are bad, and no other explains more of what is left.
    """
    nodes = sorted({node for way in every for node in way})
    left, found = set(bad), []
    candidates = {(what, node): {way for way in every if belongs(way, node)}
                  for node in nodes for what, belongs in _DIRECTIONS.items()}  # fmt: skip
    while left:
        able = {key: ways for key, ways in candidates.items()
                if len(ways & bad) >= _AGREE * len(ways) and len(nodes) > 2 and len(ways) > 1}  # fmt: skip
        # Of those that explain as much, the one with the fewest ways that are good.
        key = max(able, key=lambda key: (len(able[key] & left), -len(able[key] - bad)), default=None)
        if key is None or not able[key] & left:
            break
        found.append((*key, sorted(able[key] & bad)))
        left -= able[key]
        del candidates[key]
    return found, left


def _pairs_alone(left: set[Way], ways: Mapping[Way, _Loss], limit: float) -> list[tuple[str, str, list[Way]]]:
    """Pairs that no node's direction explains: told only where far more is lost, since full queues drop in bursts."""
    found = []
    left = {
        way for way in left if ways[way].share >= _PAIR_TIMES * limit and ways[way].lost >= _PAIR_TIMES * _LEAST_LOST
    }
    while left:
        a, b = min(left)
        own = sorted({(a, b), (b, a)} & left)
        found.append((b, a, own))
        left -= set(own)
    return found


_BESIDE = {
    DROPPED: "packets dropped", RX_TX_ERRORS: "errors", "rx_pause": "pause frames received",
    "tx_pause": "pause frames sent",
}  # fmt: skip
_DIRECTIONS: Mapping[str, Callable[[Way, str], bool]] = {
    "in": lambda way, node: way[1] == node,
    "out": lambda way, node: way[0] == node,
    "both": lambda way, node: node in way,
}


def _drops(facts: Facts, node: str) -> str:
    """What a node's interfaces counted of packets dropped, errors and pause frames over the run; empty for nothing."""
    words = []
    for (host, (subject, name)), readings in facts.counts.readings.items():
        if host == node and name in _BESIDE and (grown := readings[-1].value - readings[0].value) > 0:
            words.append(f"{subject.removeprefix(NIC)}: {grown:.0f} {_BESIDE[name]}")
    return f"{node} counted {', '.join(words)}" if words else ""


@rule("network interfaces whose carrier went away during the run", faults=True, whole=True)
def flapping_link(facts: Facts) -> Iterable[Finding]:
    """Interfaces whose carrier went away or came back between the look before the run and the last reading of it."""
    at_first = {(node, one.name): one.carrier_changes for node, there in facts.networks.items()
                for one in there.interfaces}  # fmt: skip
    for (node, (subject, name)), readings in sorted(facts.counts.readings.items()):
        if name != CARRIER_CHANGES:
            continue
        card = subject.removeprefix(NIC)
        looked = at_first.get((node, card))  # of a resumed run the last look
        first = readings[0].value
        changes = readings[-1].value - (first if looked is None else min(first, looked))
        if changes <= 0:
            continue
        hit = [(before, after) for before, after in itertools.pairwise(readings) if after.value > before.value]
        cases = [key for before, after in hit for key in (before.case_key, after.case_key)]
        times = int(changes + 1) // 2
        yield Finding(
            "flapping_link",
            "fault",
            f"{card} of {node}",
            f"The link of {card} of {node} went down {times} time{'s' if times > 1 else ''} during the run "
            f"(carrier_changes +{changes:.0f}). Cases meanwhile waited for it.",
            (Evidence(f"carrier_changes of {card} +{changes:.0f}", tuple(dict.fromkeys(cases))),),
            0.98,
            f"Look at the cable, transceiver and switch port of {card} of {node} (dmesg, ethtool {card}), and measure "
            "again.",
            0.5,
            facts.devices_of({node}),
        )


@rule("network cards that are down on a node and carry data on the others", faults=True, whole=True)
def link_down(facts: Facts) -> Iterable[Finding]:
    """Interfaces and RDMA devices that most nodes have up, and a few nodes not.

    A fault where the others' cards of this name carried payload: else it may be that nobody uses it.
    """
    carried = _carried(facts)
    for name, (up, states) in sorted(_states(facts).items()):
        down = {host: words for host, words in states.items() if host not in up}
        if len(up) <= len(down):
            continue
        users = sorted(carried.get(name, set()) - down.keys())
        in_use = len(users) > 1
        use = f"carried data on {', '.join(users[:_NAMED])}" if in_use else "carried no data there"
        for host, words in sorted(down.items()):
            own = [m.case_key for m in facts.measures if _leaves(facts, host, m.devices)]
            own += [one.case_key for one in facts.failures if _leaves(facts, host, one.devices)]
            yield Finding(
                "link_down",
                "fault" if in_use else "note",
                f"{name} of {host}",
                f"{name} of {host} {words}. It is up on {', '.join(sorted(up)[:_NAMED])}, and {use}.",
                (Evidence(f"{name} {words} on {host}", tuple(own) if in_use else ()),),
                0.98,
                f"Look at the cable, transceiver and switch port of {name} of {host} (ip link show {name}, ethtool "
                f"{name}, ibstat), and set it up (ip link set {name} up).",
                1 / max(2, facts.rails_of(sorted(up)[0])) if in_use else 0.0,
                facts.devices_of({host}),
            )  # fmt: skip


def _leaves(facts: Facts, host: str, devices: Iterable[int]) -> bool:
    """Whether a case of these devices goes from or to a node over the network."""
    there = set(map(facts.host_of, devices))
    return host in there and len(there) > 1


def _carried(facts: Facts) -> dict[str, set[str]]:
    """By card the nodes on which it carried payload in some case."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for crossing in facts.crossings.values():
        for node, cards in crossing.rails_of.items():
            for card in cards:
                found[card].add(node)
    return found


def _states(facts: Facts) -> dict[str, tuple[set[str], dict[str, str]]]:
    """By interface and RDMA device the nodes where it is up, and what it is on each node that is otherwise."""
    up: defaultdict[str, set[str]] = defaultdict(set)
    words: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for host, there in facts.networks.items():
        for one in there.interfaces:
            if one.kind == "network" and one.down_words:
                words[one.name][host] = one.down_words
            elif one.kind == "network":
                up[one.name].add(host)
        for device in there.rdma:
            up[device].add(host)
    return {name: (hosts, {host: words[name].get(host, "is not there, or has no active port")
                           for host in facts.networks.keys() - hosts}) for name, hosts in up.items()}  # fmt: skip


@rule("network interfaces of one network whose MTUs differ", faults=True, whole=True)
def mtu_mismatch(facts: Facts) -> Iterable[Finding]:
    """Interfaces of one name and network whose largest packet is not the same on all nodes."""
    sizes: dict[tuple[str, str], dict[str, int]] = {}
    for host, there in facts.networks.items():
        for one in there.usable:
            if one.kind == "network" and one.mtu:
                sizes.setdefault((one.name, ".".join(one.address.split(".")[:2])), {})[host] = one.mtu
    for (name, _), by_host in sorted(sizes.items()):
        told = unlike(by_host)
        if told is None:
            continue
        usual, others = told
        words = ", ".join(f"{size} on {', '.join(hosts)}" for size, hosts in others.items())
        ends = {host for hosts in others.values() for host in hosts}
        failed = [one for one in facts.failures if ends & {facts.host_of(device) for device in one.devices}]
        failing = f" {len(failed)} cases of these nodes did not end well." if failed else ""
        yield Finding(
            "mtu_mismatch",
            "fault",
            f"{name} of {', '.join(sorted(ends))}",
            f"The MTU of {name} is {words}, and {usual} on the other nodes. Packets that are larger than a node or "
            f"switch on the way takes are lost without a word, and large messages hang.{failing}",
            (Evidence(f"MTU of {name}: {words}", tuple(one.case_key for one in failed)),),
            0.98,
            f"Set one MTU on all nodes and switch ports (ip link set {name} mtu {usual}).",
            0.5,
            facts.devices_of(ends),
        )


def unlike(by_host: Mapping[str, int]) -> tuple[int, dict[int, list[str]]] | None:
    """The value of most hosts, and by other values the hosts with them; None where all are alike."""
    most = Counter(by_host.values()).most_common()
    if len(most) < 2:
        return None
    usual = max(most, key=lambda item: (item[1], -item[0]))[0]
    return usual, {value: sorted(host for host, own in by_host.items() if own == value)
                   for value, _ in most if value != usual}  # fmt: skip
