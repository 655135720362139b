"""What Linux counts of a node's network: bytes, errors and drops of each interface, and what TCP sent again.

All are totals since the node or the interface began. A read takes some 30 us, and 10 us more an interface. The kernel
resets none of them, so two reads tell what came between, whoever made them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from linkgauge.files import kernel_text

TCP_RETRANSMITTED, TCP_SENT = "tcp_retransmitted", "tcp_sent"
TCP_OUT_OF_ORDER, TCP_DUPLICATES, ECN_MARKED = "tcp_out_of_order", "tcp_duplicates", "ecn_marked"
_PROTOCOLS = {
    ("Tcp", "RetransSegs"): TCP_RETRANSMITTED,
    ("Tcp", "OutSegs"): TCP_SENT,
    ("TcpExt", "TCPOFOQueue"): TCP_OUT_OF_ORDER,
    ("TcpExt", "TCPDSACKOldSent"): TCP_DUPLICATES,
    ("IpExt", "InCEPkts"): ECN_MARKED,
}
"""By the kernel's name ours: segments sent again and sent; received out of order, and twice; packets marked by ECN."""


class InterfaceCounts(NamedTuple):
    """Of one interface: bytes; packets with errors, and dropped, of both directions together."""

    received: int
    sent: int
    errors: int
    dropped: int


def interface_counts(dev: Path) -> dict[str, InterfaceCounts]:
    """What /proc/net/dev says, by interface."""
    found = {}
    for line in kernel_text(dev, 1 << 20).splitlines()[2:]:
        name, _, counts = line.partition(":")
        words = counts.split()
        if len(words) >= 12 and all(word.isdecimal() for word in words[:12]):
            of = list(map(int, words))
            found[name.strip()] = InterfaceCounts(of[0], of[8], of[2] + of[10], of[3] + of[11])
    return found


def protocol_counts(net: Path) -> dict[str, int]:
    """By our name what /proc/net/snmp and netstat say of TCP and IP; without what this kernel does not count."""
    said = dict(_pairs(kernel_text(net / "snmp", 1 << 16))) | dict(_pairs(kernel_text(net / "netstat", 1 << 16)))
    return {ours: said[theirs] for theirs, ours in _PROTOCOLS.items() if theirs in said}


def _pairs(text: str) -> Iterator[tuple[tuple[str, str], int]]:
    """A line of names, then one of values, each beginning with the protocol."""
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        protocol, _, named = names.partition(":")
        for name, value in zip(named.split(), values.partition(":")[2].split(), strict=False):
            if value.isdecimal():
                yield (protocol, name), int(value)
