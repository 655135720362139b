"""Cases between nodes in a line or two: which way their bytes went, as the nodes' network cards counted them."""

from __future__ import annotations

from collections.abc import Iterable

from linkgauge.stats.crossing import NETWORK, SHARED_MEMORY, Crossing

_SHOWN = 4


def between_lines(crossings: Iterable[Crossing]) -> list[str]:
    """Return what is said of cases between nodes; nothing where there is none, or none with bytes enough to tell."""
    found = [one for one in crossings if one.went_by]
    by_network = [one for one in found if one.went_by == NETWORK]
    lines = []
    if by_network:
        shares = sorted(one.share for one in by_network)
        low, high = f"{shares[0]:.2f}", f"{shares[-1]:.2f}"
        lines.append(
            f"between nodes: {_cases(len(by_network))} by the network, whose cards counted "
            f"{low if low == high else f'{low} to {high}'} of the bytes that must cross; {_rails(by_network)}"
        )
    for word, way in ((SHARED_MEMORY, "by memory that nodes share"), ("partly", "by the network in part only")):
        others = [one for one in found if one.went_by == word]
        if others:
            lines.append(f"between nodes: {_cases(len(others))} {way}: no figures of the network")
    return lines


def _cases(count: int) -> str:
    return f"{count} case{'' if count == 1 else 's'}"


def _rails(found: list[Crossing]) -> str:
    """Return how many cards of a node carried them, and which where all cases and nodes have the same."""
    counts = sorted({one.rails for one in found})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    used = {cards for one in found for cards in one.rails_of.values()}
    names = f": {', '.join(next(iter(used))[:_SHOWN])}" if len(used) == 1 else ""
    return f"{number} card{'' if counts == [1] else 's'} a node{names}"
