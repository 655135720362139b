"""Which described system a discovered one is of the kind of: by the devices' model and the links, never by name.

A machine is like a description where its devices are the same chip (H200, MI250X), are no more, and are joined as
there: by the same kind and version of link at the same rate, to each other or to switches, and to hosts by the same
kind. Devices whose memory has another rate than described are another board. A machine may be a part of a description
(4 devices of 8), and have fewer links than there, up to half: those that are missing are what a check should find, and
are told as differences. One device alone, of which no link to others is to be seen, is like one of a description whose
memory is as fast.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping

from linkgauge.system.model import Link, System, is_fabric

_CHIP = re.compile(r"[A-Z]{0,2}\d{2,4}[A-Z]?")
_SAME_RATE = 0.02
_SAME_MEMORY = 0.1  # data sheets round; a chip's other boards differ by more (H100: 2.0, 3.35 and 3.9 TB/s)


@dataclasses.dataclass(frozen=True)
class Likeness:
    """A described system that a discovered one is like.

    `words` say by what, `differences` what is less there than described; `part`: it has fewer devices. `host_links`:
    those to hosts are as described too.
    """

    system: System
    words: str
    differences: tuple[str, ...]
    part: bool
    host_links: bool

    @property
    def fewer_links(self) -> tuple[str, ...]:
        """Return the differences between devices: an older host is another machine, not one with a fault."""
        return self.differences if self.host_links else self.differences[:-1]


@dataclasses.dataclass(frozen=True)
class _Ends:
    """How one device is joined: links by kind of link, its version, its rate in B/s, and to what."""

    fabric: Mapping[tuple[str, str], int]  # (kind of link, device | switch) -> how many links
    neighbors: tuple[int, ...]  # links to each other device, most first
    versions: frozenset[str]
    rates: frozenset[float]
    host_kinds: frozenset[str]
    host_rate: float | None  # of the widest link towards hosts, as it could train, in B/s


def chips(model: str | None) -> frozenset[str]:
    """Return the chips that a model names: `NVIDIA H100 80GB HBM3` and `H100 SXM` are `H100`; empty where none is."""
    words = re.split(r"[^A-Z0-9]+", (model or "").upper())
    return frozenset(word for word in words if _CHIP.fullmatch(word))


def like(found: System, described: System) -> Likeness | None:
    """Return how a discovered system is like a described one, None where it is not."""
    ours, theirs = found.devices, described.devices
    if not ours or not theirs or len(ours) > len(theirs):
        return None
    should = frozenset().union(*(chips(device.model) for device in theirs))
    if not all(chips(device.model) & should for device in ours):
        return None
    mine, built = _ends_of(found), _ends_of(described)
    alone = len(mine) == 1 and not mine[0].fabric
    if (alone and not _same_memory(found, described)) or _other_memory(found, described):
        return None
    if not _fits(mine, built, alone):
        return None
    part = len(ours) < len(theirs)
    if part and not alone and any(ends.neighbors for ends in built):
        return None  # of devices that are joined directly a part is another graph
    most = max(built, key=lambda ends: sum(ends.fabric.values()))
    differences = []
    for device, ends, whole in zip(ours, mine, _ordered_like(mine, built), strict=True):
        have, built_with = sum(ends.fabric.values()), sum(whole.fabric.values())
        if have < built_with and not alone:
            kind = next(iter(whole.fabric))[0]
            differences.append(f"{device.name} has {have} of {built_with} {kind} links")
    rates = {ends.host_rate for ends in mine if ends.host_rate}, {ends.host_rate for ends in built if ends.host_rate}
    host_links = not rates[0] or not rates[1] or min(rates[0]) >= min(rates[1]) * (1 - _SAME_RATE)
    if not host_links:
        differences.append(
            f"links to hosts could give {min(rates[0]) / 1e9:.3g} GB/s, {min(rates[1]) / 1e9:.3g} described"
        )
    words = f"one of its {len(theirs)} devices, alone" if alone else _words(part, len(ours), len(theirs), most)
    return Likeness(described, words, tuple(differences), part, host_links)


def described_like(found: System) -> Likeness | None:
    """Return the described system that this one is most like: of as many devices, with the fewest differences.

    Of several whose devices are joined alike it is the one whose switches and NICs are nearest in number.
    """
    from linkgauge.system.catalog import described_nodes

    alike = [likeness for system in described_nodes() if (likeness := like(found, system)) is not None]
    return min(
        alike,
        key=lambda one: (
            not one.host_links,
            one.part,
            len(one.differences),
            not one.system.accepted,
            _apart(found, one.system),
            one.system.name,
        ),
        default=None,
    )


def _apart(found: System, described: System) -> int:
    """Return by how many switches and NICs two systems differ."""
    return sum(
        abs(sum(1 for _ in found.of_kind(kind)) - sum(1 for _ in described.of_kind(kind))) for kind in ("switch", "nic")
    )


def _ends_of(system: System) -> list[_Ends]:
    kinds, result = system.kinds, []
    for device in system.devices:
        fabric: Counter[tuple[str, str]] = Counter()
        neighbors: Counter[str] = Counter()
        versions, rates, host_kinds, host_rates = set(), set(), set(), []
        for link in system.links_of(device.name):
            other = link.other(device.name)
            if is_fabric(link, kinds):
                fabric[link.kind, kinds[other]] += link.count
                if kinds[other] == "device":
                    neighbors[other] += link.count
                versions |= {link.version} if link.version else set()
                rates |= {link.data_rate.value} if link.data_rate is not None else set()
            elif kinds[other] in ("host", "switch"):
                host_kinds.add(link.kind)
                host_rates.append(_could(link, device.name))
        host_rate = max((rate for rate in host_rates if rate), default=None)
        counts = tuple(sorted(neighbors.values(), reverse=True))
        result.append(_Ends(fabric, counts, frozenset(versions), frozenset(rates), frozenset(host_kinds), host_rate))
    return result


def _could(link: Link, source: str) -> float | None:
    """Return what a link could give from `source`, in B/s: what it trained to may be less, which is a finding."""
    trained = link.rate(source)
    possible = None if link.possible_rate is None else link.possible_rate.value * link.count
    return max((rate for rate in (trained, possible) if rate), default=None)


def _same_memory(found: System, described: System) -> bool:
    """Whether all memory rates that are known, of both, are about the same, and one of each is."""
    rates = [[d.memory_rate.value for d in one.devices if d.memory_rate is not None] for one in (found, described)]
    return all(rates) and all(abs(mine / theirs - 1) < _SAME_MEMORY for mine in rates[0] for theirs in rates[1])


def _other_memory(found: System, described: System) -> bool:
    """Whether devices whose memory rate is known have another one than described: another board of the same chip."""
    mine, theirs = (
        {d.memory_rate.value for d in one.devices if d.memory_rate is not None} for one in (found, described)
    )
    return bool(mine and theirs) and all(abs(a / b - 1) >= _SAME_MEMORY for a in mine for b in theirs)


def _fits(mine: list[_Ends], built: list[_Ends], alone: bool) -> bool:
    """Whether every device is joined as one of the description is, with at least half of its links.

    Of a device that is `alone` only the links to hosts are looked at.
    """
    return all(
        (not ends.host_kinds or not whole.host_kinds or bool(ends.host_kinds & whole.host_kinds))
        and (alone or _same_fabric(ends, whole))
        for ends, whole in zip(mine, _ordered_like(mine, built), strict=True)
    )


def _same_fabric(ends: _Ends, whole: _Ends) -> bool:
    return (
        set(ends.fabric) == set(whole.fabric)
        and (not ends.versions or not whole.versions or ends.versions == whole.versions)
        and _same_rates(ends, whole)
        and all(2 * ends.fabric[key] >= count >= ends.fabric[key] for key, count in whole.fabric.items())
        and len(ends.neighbors) <= len(whole.neighbors)
    )


def _same_rates(ends: _Ends, whole: _Ends) -> bool:
    return all(abs(mine / theirs - 1) < _SAME_RATE for mine in ends.rates for theirs in whole.rates)


def _ordered_like(mine: list[_Ends], built: list[_Ends]) -> list[_Ends]:
    """Return for each device one of the description's, the one with the most links for the one with the most."""

    def links(ends: _Ends) -> tuple[int, tuple[int, ...]]:
        return (sum(ends.fabric.values()), ends.neighbors)

    order = sorted(range(len(mine)), key=lambda i: links(mine[i]), reverse=True)
    theirs = sorted(built, key=links, reverse=True)
    beside = {place: theirs[rank] for rank, place in enumerate(order)}
    return [beside[place] for place in range(len(mine))]


def _words(part: bool, count: int, of: int, ends: _Ends) -> str:
    version = "/".join(sorted(ends.versions))
    joined = [
        f"each with {links} {f'NVLink {version}'.strip() if kind == 'nvlink' else kind} "
        f"to {'switches' if to == 'switch' else 'others'}"
        for (kind, to), links in ends.fabric.items()
    ]
    return ", ".join([f"{count} of its {of} devices" if part else f"its {of} devices", *joined])
