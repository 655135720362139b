"""How a case's bytes were moved, and whether its requests held, in a few words: beside each figure of a report."""

from __future__ import annotations

from collections.abc import Sequence

from linkgauge.stats.chosen import chosen_words
from linkgauge.stats.requests import Known, RequestVerdict

_MOST_SHARE = 2.1
"""Of the payload: protocols with flags move twice as much, and more is others'."""
STATES = {"not_held": "not held", "held": "held", "unknown": "unknown"}
"""Verdicts in words, the worst first."""


def nvlink_words(known: Known) -> str:
    """Return the share of the payload that NVLinks counted: `NVLink bytes 1.00 of payload`; empty if not known."""
    return known.moved.words if known.moved is not None and known.moved.share <= _MOST_SHARE else ""


def moved_words(known: Known) -> str:
    """Return what moved a case's bytes, with what proves it: `RING SIMPLE, 16 channels by P2P/CUMEM (NCCL's log);
    NVLink bytes 1.00 of payload`; empty where nothing tells."""
    chosen = chosen_words({"chosen": known.chosen})
    by_log = " (NCCL's log)" if chosen and known.case.transport == "ccl" else ""
    parts = [chosen + by_log, nvlink_words(known)]
    if (crossing := known.crossing) is not None and crossing.went_by:
        cards = dict.fromkeys(card for cards in crossing.rails_of.values() for card in cards)
        by = f" by {', '.join(cards)}" if cards else ""
        parts.append(f"network bytes {crossing.share:.2f} of payload{by}")
    if known.huge_share is not None:
        parts.append(f"{known.huge_share:.2f} of host buffers on huge pages")
    return "; ".join(filter(None, parts))


def state_words(verdicts: Sequence[RequestVerdict]) -> str:
    """Return what held and what did not: `not held NCCL_ALGO=Tree; held NCCL_PROTO=LL, path direct`."""
    by_state = {state: [one.requested for one in verdicts if one.state == state] for state in STATES}
    return "; ".join(f"{word} {', '.join(by_state[state])}" for state, word in STATES.items() if by_state[state])
