"""Which network card each device is near to, and which devices stand for the cards: one each."""

from __future__ import annotations

from collections.abc import Mapping

from linkgauge.model.grouped import grouped
from linkgauge.system.model import System


def near_nics(system: System) -> dict[int, tuple[str, ...]]:
    """By a device's ordinal the NICs that are the fewest links away; nothing where the system has none."""
    return {device.ordinal: near for device in system.devices
            if device.ordinal is not None and (near := system.nearest(device.name, "nic"))}  # fmt: skip


def one_a_nic(system: System) -> tuple[int, ...]:
    """Of each NIC a device that is near to it, by ordinal: as SC'24 has a pair a NIC (on LUMI the dies 1, 3, 5, 7).

    Those that are the fewest links away come first, of as near ones the lower ordinal; each takes the first of its
    NICs that no other has. Nothing where it is not known which is near which.
    """
    near = near_nics(system)
    names = {device.ordinal: device.name for device in system.devices}
    hops = {ordinal: system.wires.hops(names[ordinal])[cards[0]] for ordinal, cards in near.items()}
    taken: dict[str, int] = {}
    for ordinal in sorted(near, key=lambda one: (hops[one], one)):
        free = next((card for card in near[ordinal] if card not in taken), None)
        if free is not None:
            taken[free] = ordinal
    return tuple(sorted(taken.values()))


def words(near: Mapping[int, tuple[str, ...]]) -> str:
    """Which card each device is near to, in words, devices of the same cards together."""
    alike = grouped((cards, ordinal) for ordinal, cards in near.items())
    return "; ".join(f"device{'s' if len(of) > 1 else ''} {', '.join(map(str, of))}: {', '.join(cards)}"
                     for cards, of in alike.items())  # fmt: skip
