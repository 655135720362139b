"""Whether GPUDirect RDMA was on or off as a case asked for: proved by the library's own word, or not.

NCCL says of each channel to another node whether its card reaches the GPU's memory itself (run/nccl_log.py), where it
is asked (`library_choices`). Other libraries tell nobody which way they took.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from linkgauge.model.case import Case
from linkgauge.model.shape import json_object
from linkgauge.model.transports import TRANSPORTS
from linkgauge.run.nccl_log import DIRECT_CHANNELS, NETWORK_CHANNELS
from linkgauge.stats.service_class import Effect

if TYPE_CHECKING:
    from linkgauge.store.run import Run


def effect_of(case: Case, chosen: Mapping[str, Any], cards: bool) -> Effect | None:
    """Whether the switch took effect; None of a case that asked for none.

    `chosen`: what its library said that it chose. `cards`: whether the nodes have RDMA cards.
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
    if case.transport == "ccl":
        return Effect(False, "NCCL was not asked: --library-choices does")
    if case.transport == "staging" or "device" not in (case.source_memory, case.target_memory):
        return Effect(False, "its messages are in host memory, which cards reach either way")
    return Effect(False, f"the library below {TRANSPORTS[case.transport].name} tells nobody which way it took")


def effects(run: Run) -> Iterator[tuple[str, Effect]]:
    """What cases that ended well asked for, and whether it took effect."""
    cards = any((node.get("network") or {}).get("rdma") for node in run.info.get("nodes") or ())
    for row in run.rows():
        if row.status == "ok" and row.case.gpudirect:
            chosen = json_object(row.record["evidence"]).get("chosen") or {}
            effect = effect_of(row.case, chosen, cards)
            if effect is not None:
                yield row.case.gpudirect, effect
