"""Cases between nodes in a line or two: which way their bytes went, as the nodes' network cards counted them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from linkgauge.model.device_words import numbers_text
from linkgauge.model.grouped import grouped
from linkgauge.model.result import Measured
from linkgauge.stats.crossing import NETWORK, SHARED_MEMORY, Crossing
from linkgauge.stats.distance import by_distance
from linkgauge.stats.launches import Places, nodes_of
from linkgauge.system.affinity import words as near_words
from linkgauge.system.switches import CLASSES, GROUP, OTHER_GROUP, SWITCH
from linkgauge.view.alike import Kinds
from linkgauge.view.results import Results, is_pair
from linkgauge.view.units import count_text, range_text, rate_text, size_text

_SHOWN = 4
DISTANCES = {SWITCH: "same switch", GROUP: "other switch", OTHER_GROUP: "other group"}


def places_line(kinds: Kinds) -> str:
    """Return which of the numbers that tables have for devices are on which node; empty where all are on one."""
    if len(kinds.hosts) < 2:
        return ""
    of_host = grouped((rank.host, number) for number, rank in kinds.devices.items())
    words = [f"{numbers_text(numbers)} on {host}" for host, numbers in list(of_host.items())[: 2 * _SHOWN]]
    more = f" and {len(of_host) - len(words)} nodes more" if len(of_host) > len(words) else ""
    return f"{kinds.noun}s are {', '.join(words)}{more}"


def lost_line(info: Mapping[str, Any]) -> str:
    """Return which nodes, and which two of them together, a run went on without, and why the first; else empty."""
    lost, lossy = dict(info.get("nodes_left_out") or {}), dict(info.get("pairs_left_out") or {})
    why = next(iter(lost.values()), "")
    words = [f"without {', '.join(lost)}, which did not answer{f' ({why})' if why else ''}"] if lost else []
    if lossy:
        pairs = [pair.replace(",", " with ") for pair in lossy]
        more = f" and {count_text(len(pairs) - _SHOWN, 'pair')} more" if len(pairs) > _SHOWN else ""
        words.append(f"without cases of {', '.join(pairs[:_SHOWN])}{more}: {next(iter(lossy.values()))}")
    return "; ".join(words)


def between_lines(crossings: Iterable[Crossing]) -> list[str]:
    """Return what is said of cases between nodes; nothing where there is none, or none with bytes enough to tell."""
    found = [one for one in crossings if one.went_by]
    by_network = [one for one in found if one.went_by == NETWORK]
    lines = []
    if by_network:
        shares = sorted(one.share for one in by_network)
        low, high = f"{shares[0]:.2f}", f"{shares[-1]:.2f}"
        lines.append(
            f"between nodes: {count_text(len(by_network), 'case')} by the network, whose cards counted "
            f"{low if low == high else f'{low} to {high}'} of the bytes that must cross; {_rails(by_network)}"
        )
    for word, way in ((SHARED_MEMORY, "by memory that nodes share"), ("partly", "by the network in part only")):
        others = [one for one in found if one.went_by == word]
        if others:
            lines.append(f"between nodes: {count_text(len(others), 'case')} {way}: no figures of the network")
    return lines


def card_lines(results: Results) -> list[str]:
    """Return which cards each device's messages went over, by transport, where nodes have several devices.

    Of cases with one device on each node, whose bytes are its own.
    """
    places = Places(results.run.launched)
    used: dict[str, dict[int, dict[str, None]]] = {}
    for row in results.rows:
        crossing = results.crossings.get(row.identity)
        there = places.of_row(row)
        if crossing is None or crossing.went_by != NETWORK or len(nodes_of(there)) != len(set(there)):
            continue
        for place in dict.fromkeys(there):
            cards = used.setdefault(row.transport, {}).setdefault(place.device, {})
            cards.update(dict.fromkeys(crossing.rails_of.get(place.node, ())))
    near = {transport: {device: tuple(devices[device]) for device in sorted(devices)}
            for transport, devices in used.items() if len(devices) > 1}  # fmt: skip
    return [f"cards by {results.shown(transport)}: {near_words(devices)}" for transport, devices in near.items()]


def distance_lines(results: Results, unit: str) -> list[str]:
    """Return what pairs between nodes reach by how far they are from each other; nothing where that is not known.

    Of the pattern and mechanism with most pairs, at their largest size; and of this mechanism's other service classes.
    With each the spread of the pair whose times spread most: its quartiles' distance over the median.
    """
    known = (row for row in results.rows if row.distance in DISTANCES and row.goodput_bytes_per_s)
    groups = pairs_by_mechanism(results, known)
    if not groups:
        return []
    best, rows = most_pairs(groups)
    alike = {best: rows}
    if rows[0].case.service_class:
        there = (item for item in groups.items() if (item[0][0], item[0][2]) == (best[0], best[2]))
        alike = {key: found for key, found in there if found[0].transport == rows[0].transport}
    source = results.switches.source if results.switches is not None else ""
    return [
        f"{pattern} by {mechanism} at {size_text(size)}: {'; '.join(_of_classes(found, unit))}; the network {source}"
        for (pattern, mechanism, size), found in alike.items()
    ]


Sets = Mapping[tuple[str, str, int], list[Measured]]
"""Pairs of one pattern, mechanism and size."""


def pairs_by_mechanism(results: Results, rows: Iterable[Measured]) -> Sets:
    """Return those of the rows that are of pairs, by pattern, mechanism and size."""
    return grouped(((row.pattern, results.label(row), row.size), row) for row in rows if is_pair(row))


def most_pairs(groups: Sets) -> tuple[tuple[str, str, int], list[Measured]]:
    """Return the pattern and mechanism with most pairs, at their largest size."""
    return max(groups.items(), key=lambda item: (len(item[1]), item[0][2], item[0][0]))


def _of_classes(rows: Sequence[Measured], unit: str) -> Iterator[str]:
    """Give the words of each distance class, the nearest first."""
    classes = by_distance(rows)
    for name in (one for one in CLASSES if one in classes):
        rates = sorted(row.goodput for row in classes[name])
        ends = range_text(rate_text(rates[0], unit), rate_text(rates[-1], unit))
        spread = max(row.spread for row in classes[name])
        pairs = f"{count_text(len(rates), 'pair')}, spread up to {100 * spread:.2g} %"
        yield f"{DISTANCES[name]} {ends} {unit} ({pairs})"


def _rails(found: list[Crossing]) -> str:
    """Return how many cards of a node carried them, and which where all cases and nodes have the same."""
    counts = sorted({one.rails for one in found})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    used = {cards for one in found for cards in one.rails_of.values()}
    names = f": {', '.join(next(iter(used))[:_SHOWN])}" if len(used) == 1 else ""
    return f"{number} card{'' if counts == [1] else 's'} a node{names}"
