"""Whether what a case asked of the network took effect: a class of service, GPUDirect RDMA. Proved, or not and why.

A library may not know the variable of a service class, and a network may give each class the same queue. The first is
proved here, where cards count bytes by priority (run/rank/node_counters.py); the second is what slow-downs beside loads
are measured for. Of GPUDirect RDMA NCCL says of each channel to another node whether its card reaches the GPU's memory
itself (run/machine/nccl_log.py), where it is asked (`library_choices`). Of any library the kernel may count what GPU
memory was registered with the nodes' cards while the case went on (run/rank/peer_memory.py): without, no card
reaches it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.model.case import Case
from linkgauge.model.transports import THROUGH_HOST, TRANSPORTS
from linkgauge.model.worded import ServiceClass
from linkgauge.run.machine.nccl_log import DIRECT_CHANNELS, NETWORK_CHANNELS
from linkgauge.run.rank.peer_memory import HELD, REGISTERED, SUBJECT
from linkgauge.stats.crossing import NETWORK, Crossing

if TYPE_CHECKING:
    from linkgauge.store.run import Run

_ALL = 0.9  # of what must cross
Registered = tuple[int, int]  # on one node: registrations that were made while a case went on, and held before it


@dataclasses.dataclass(frozen=True)
class Effect:
    """`proved`, and by what or why not, in a few words."""

    proved: bool
    words: str


def priority_of(service_class: ServiceClass) -> int | None:
    """The priority of Ethernet on which a class is counted; None where no counter of it is known.

    A service level is a priority by its lower three bits on RoCE (IBTA, annex A17); of a DSCP the upper three bits are,
    unless a card is told otherwise (RFC 2474, 4.2.2.1: class selectors).
    """
    if service_class.level is not None:
        return service_class.level % 8
    return None if service_class.dscp is None else service_class.dscp >> 3


def class_effect(crossing: Crossing) -> Effect | None:
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


def gpudirect_effect(
    case: Case, chosen: Mapping[str, Any], cards: bool, registered: Sequence[Registered] = ()
) -> Effect | None:
    """Whether the switch took effect; None of a case that asked for none.

    `chosen`: what its library said that it chose. `cards`: whether the nodes have RDMA cards. `registered`: GPU memory
    with the cards of each of its nodes; none where that is not counted.
    """
    if not case.gpudirect:
        return None
    channels, direct = (int(chosen.get(name, 0)) for name in (NETWORK_CHANNELS, DIRECT_CHANNELS))
    if channels:
        words = f"by NCCL's log: {direct} of {channels} ends of channels between nodes with GDRDMA"
        return Effect(direct == (channels if case.gpudirect == "on" else 0), words)
    if len(case.nodes) < 2:
        return Effect(False, "nothing of it crosses the network")
    if not cards:
        return Effect(False, "the nodes have no RDMA card that it could act on")
    if case.transport in THROUGH_HOST or "device" not in (case.source_memory, case.target_memory):
        return Effect(False, "its messages are in host memory, which cards reach either way")
    if len(registered) == len(case.nodes):
        return _by_registrations(case.gpudirect == "on", registered)
    if case.transport == "ccl":
        return Effect(False, "NCCL was not queried: --library-choices queries it")
    return Effect(False, f"the library below {TRANSPORTS[case.transport].name} does not report which way it took, and "
                  "the nodes' kernels count no GPU memory that is registered with cards")  # fmt: skip


def _by_registrations(on: bool, registered: Sequence[Registered]) -> Effect:
    made = sum(count > 0 for count, _ in registered)
    if on and made == len(registered):
        return Effect(True, "by GPU memory that was registered with each node's cards meanwhile")
    if not on and not any(map(sum, registered)):
        return Effect(True, "by the nodes' kernels: no GPU memory was registered with a card")
    if made and not on:
        return Effect(False, f"GPU memory was registered with cards all the same on {made} of {len(registered)} nodes")
    if any(held for _, held in registered):
        return Effect(False, "GPU memory that was registered before, by whichever program, may be what was used")
    return Effect(False, f"GPU memory was registered with cards on {made} of {len(registered)} nodes")


def registrations_of(run: Run) -> dict[tuple[Any, ...], list[Registered]]:
    """GPU memory registered with cards around each case that was looked at, a node each, by row identity."""
    found: dict[tuple[Any, ...], dict[int, dict[tuple[str, str], int]]] = {}
    for one in run.observed_of(SUBJECT):
        looks = found.setdefault(one.identity, {}).setdefault(one.rank, {})
        looks[one.moment, one.name] = int(one.value)
    return {
        identity: [(looks["after", REGISTERED] - looks["before", REGISTERED], looks["before", HELD])
                   for looks in ranks.values() if len(looks) == 4]
        for identity, ranks in found.items()
    }  # fmt: skip


def effects(run: Run) -> Iterator[tuple[str, Effect]]:
    """What cases that ended well asked for, and whether it took effect."""
    registered: dict[tuple[Any, ...], list[Registered]] | None = None
    cards = any((node.get("network") or {}).get("rdma") for node in run.info.get("nodes") or ())
    for row in run.rows():
        if row.status == "ok" and row.case.gpudirect:
            chosen = row.evidence.get("chosen") or {}
            registered = registrations_of(run) if registered is None else registered
            effect = gpudirect_effect(row.case, chosen, cards, registered.get(row.identity, ()))
            if effect is not None:
                yield row.case.gpudirect, effect
