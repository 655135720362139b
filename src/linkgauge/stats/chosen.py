"""What a library or a transport chose for a case, as its evidence has it, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OURS = ("grid", "way", "completion", "chunk")  # of a choice of the core's own transports


def passes_channels_by(chosen: Mapping[str, Any]) -> bool:
    """Whether NCCL carried it by a kernel of symmetric memory, copies or multicast: its channels are open, and unused.

    Two H100, NCCL 2.28.9: with NCCL_P2P_DISABLE=1 all channels go by shared memory, and such a kernel over NVLink.
    """
    return bool(chosen.get("kernel") or chosen.get("multicast") or chosen.get("algorithm") == "COPY_ENGINE")


def chosen_words(evidence: Mapping[str, Any]) -> str:
    """Return what was chosen: `RING LL, 24 channels by P2P/CUMEM, clusters of 4, multicast`; empty if not known."""
    chosen = evidence.get("chosen", {})
    words = " ".join(chosen[name] for name in ("algorithm", "protocol", "kernel") if chosen.get(name))
    ours = (f"{name} {chosen[name]}" for name in _OURS if chosen.get(name))
    words = ", ".join(part for part in (words, *ours) if part)
    channels = chosen.get("channels")
    by = f" by {chosen['via']}" if chosen.get("via") and not passes_channels_by(chosen) else ""
    counted = f"{channels} channel{'s' if channels != 1 else ''}" if channels else "channels" if by else ""
    parts = [words, counted + by]
    parts.append(f"clusters of {chosen['cluster']}" if chosen.get("cluster") else "")
    parts.append("multicast" if chosen.get("multicast") else "")
    return ", ".join(part for part in parts if part)
