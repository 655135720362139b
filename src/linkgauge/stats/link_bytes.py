"""What a case moved over its GPUs' NVLinks, as a share of the bytes that its pattern must move between them.

GPUs count bytes before and after each case (run/machine/observe.py). Of messages over NVLink 1.00 of the payload was
counted on H100 and H200, of messages through host memory 0.00; protocols with flags move up to twice as much, and
kernels that are chosen by measuring up to a hundred times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from linkgauge.model.result import Identity, Observation, Row
from linkgauge.run.machine.observe import NVLINK_RECEIVED, NVLINK_SENT
from linkgauge.stats.crossing import LEAST_BYTES, LEAST_EACH, NONE, must_cross
from linkgauge.stats.launches import Places, nodes_of
from linkgauge.system.model import System, is_fabric

_CARRIED = 0.5
"""Of the payload. Reduced in the switches, an allreduce of n GPUs moves n + 1 of the 2 (n - 1) buffers of a ring."""


@dataclasses.dataclass(frozen=True)
class LinkBytes:
    """Bytes of a case on one node. `payload_bytes` must go between GPUs; `counted_bytes` went over NVLink, one way.

    `joined`: whether NVLink joins each two of its GPUs; None where no system is known.
    """

    payload_bytes: int
    counted_bytes: int
    joined: bool | None

    @property
    def share(self) -> float:
        """Counted over payload."""
        return self.counted_bytes / self.payload_bytes

    @property
    def by_nvlink(self) -> bool:
        """Whether NVLink carried the payload."""
        return self.share >= _CARRIED

    @property
    def past_nvlink(self) -> bool:
        """Whether the payload took another way."""
        return self.share <= NONE

    @property
    def words(self) -> str:
        """The share in words."""
        return f"NVLink bytes {self.share:.2f} of payload"


def link_bytes(
    rows: Iterable[Row], observations: Iterable[Observation], places: Places, system: System | None
) -> dict[Identity, LinkBytes]:
    """Return what is known of cases that ended well, lie on one node, and move enough between GPUs to tell."""
    counted = _counted(observations)
    found = {}
    for row in rows:
        moved = counted.get(row.identity)
        there = places.of_row(row)
        case = row.case
        if moved is None or row.status != "ok" or len(nodes_of(there)) != 1 or case.background or case.managed:
            continue
        devices = [str(device) for device in row.devices]
        if case.routed or case.app or set(range(len(devices))) != moved.keys() or len(set(devices)) != len(devices):
            continue
        each = must_cross(case, devices)  # as if each device were a node
        payload = each * (row.operations_total or 0)
        if each >= LEAST_EACH and payload >= LEAST_BYTES:
            joined = None if system is None else joined_by_fabric(system, [place.device for place in there])
            sent, received = (sum(both[way] for both in moved.values()) for way in (0, 1))
            found[row.identity] = LinkBytes(payload, (sent + received) // 2, joined)
    return found


def joined_by_fabric(system: System, ordinals: Iterable[int]) -> bool:
    """Return whether links of the devices' fabric, or a switch of it, join each two of these devices."""
    peers = []
    for name in (system.names_by_ordinal.get(ordinal) for ordinal in ordinals):
        if name is None:
            return False
        others = (link.other(name) for link in system.links_of(name) if is_fabric(link, system.kinds))
        peers.append({name, *others})
    return all(one & other for place, one in enumerate(peers) for other in peers[:place])


def _counted(observations: Iterable[Observation]) -> dict[Identity, dict[int, tuple[int, int]]]:
    """By case and rank the bytes that its GPU sent and received; without ranks of which a look is missing."""
    looks: dict[Identity, dict[int, dict[tuple[str, str], float]]] = {}
    for one in observations:
        if one.name in (NVLINK_SENT, NVLINK_RECEIVED):
            looks.setdefault(one.identity, {}).setdefault(one.rank, {})[one.moment, one.name] = one.value
    return {identity: {rank: both for rank, seen in ranks.items() if (both := _grown(seen)) is not None}
            for identity, ranks in looks.items()}  # fmt: skip


def _grown(seen: Mapping[tuple[str, str], float]) -> tuple[int, int] | None:
    grown = [seen["after", name] - seen["before", name] for name in (NVLINK_SENT, NVLINK_RECEIVED)
             if ("before", name) in seen and ("after", name) in seen]  # fmt: skip
    return (int(grown[0]), int(grown[1])) if len(grown) == 2 and min(grown) >= 0 else None
