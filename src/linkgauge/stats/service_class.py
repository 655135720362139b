"""Whether the service class that a case asked for took effect: its cards counted its bytes on that priority, or not.

A library may not know the variable, and a network may give each class the same queue. The first is proved here, where
cards count bytes by priority (run/node_counters.py); the second is what slow-downs beside loads are measured for.
"""

from __future__ import annotations

import dataclasses

from linkgauge.stats.crossing import NETWORK, Crossing

_ALL = 0.9  # of what must cross


@dataclasses.dataclass(frozen=True)
class Effect:
    """`proved`, and by what or why not, in a few words."""

    proved: bool
    words: str


def priority_of(service_class: str) -> int | None:
    """The priority of Ethernet on which a class is counted; None where no counter of it is known.

    A service level is a priority by its lower three bits on RoCE (IBTA, annex A17); of a DSCP the upper three bits are,
    unless a card is told otherwise (RFC 2474, 4.2.2.1: class selectors).
    """
    if service_class.isdecimal():
        return int(service_class) % 8
    return int(service_class.removeprefix("dscp:")) >> 3 if service_class.startswith("dscp:") else None


def effect_of(crossing: Crossing) -> Effect | None:
    """Whether a case's class took effect; None of a case that asked for none."""
    if not crossing.service_class:
        return None
    priority = priority_of(crossing.service_class)
    if priority is None:
        return Effect(False, "no counter of Slingshot's classes is known")
    if not crossing.priorities:
        return Effect(False, "cards here count no bytes by priority")
    if crossing.went_by != NETWORK:
        return Effect(False, "too few of its own bytes crossed the network to tell")
    counted = crossing.priorities.get(priority, 0)
    if counted >= _ALL * crossing.payload_bytes:
        return Effect(True, f"by what cards counted on priority {priority}")
    most = max(crossing.priorities, key=lambda one: crossing.priorities[one])
    if most == priority or not crossing.priorities[most]:
        return Effect(False, f"cards counted too few of its bytes on priority {priority}")
    return Effect(False, f"cards counted most on priority {most}, not on {priority}")
