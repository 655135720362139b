"""How sure a finding is: how often findings of its rule, with evidence as strong, were right.

The shares were counted, not reasoned: bench/planted.py plants each cause into many made-up runs whose noise is one to
twelve times the usual, and counts what of a rule's findings was true, by their strength
(docs/reference/findings.md, Confidence).
"""

from __future__ import annotations

import itertools

SLOW_BY_KIND = {
    "link": "slow_link", "port": "slow_port", "pair": "slow_pair", "device": "slow_device", "nic": "slow_nic",
    "trunk": "slow_link", "node": "slow_node", "switch": "slow_switch", "host": "slow_host_link",
    "uplink": "slow_uplink",
}  # fmt: skip
"""What a slow element of a kind is told as."""
SLOW = tuple(dict.fromkeys(SLOW_BY_KIND.values()))

_SLOW = (
    (0.72, 0.03),
    (0.745, 0.22),
    (0.768, 0.53),
    (0.798, 0.66),
    (0.81, 0.84),
    (0.848, 0.92),
    (0.886, 0.99),
)  # 208
_COUNTED: dict[str, tuple[tuple[float, float], ...]] = {
    **dict.fromkeys(SLOW, _SLOW),
    "anti_locality": ((0.95, 0.99),),  # 60
    "collective_below_limit": ((0.7, 0.99),),  # 98
    "copy_engine_cap": ((0.95, 0.99),),  # 60
    "device_counts": ((0.9, 0.99),),  # 61
    "drifting": ((0.95, 0.99),),  # 58
    "falling_goodput": ((0.9, 0.94),),  # 76
    "host_staging": ((0.9, 0.99),),  # 60
    "latency_step": ((0.84, 0.98),),  # 23
    "library_choice": ((0.9, 0.99),),  # 57
    "rail_unused": ((0.9, 0.98),),  # 30
    "pcie_below_width": ((0.7, 0.99),),  # 60
    "periodic_spikes": ((0.9, 0.96),),  # 56
    "straggler": ((0.932, 0.99),),  # 60
}
"""Strength of evidence, and the share of findings of about that strength that were right; between them a straight line.

Behind each the number of findings counted. Made by bench/planted.py --calibrate.
"""
LEAST = 0.9
"""Below it a fault or loss is told as a note: of ten such findings more than one would be wrong."""


def calibrated(rule: str) -> bool:
    """Whether shares were counted for a rule; others state what they read, or were never planted."""
    return bool(_COUNTED.get(rule))


def confidence_of(rule: str, strength: float) -> float:
    """Return the share right of a rule's findings of this strength; the strength itself where none was counted."""
    points = _COUNTED.get(rule)
    if not points:
        return strength
    if strength <= points[0][0]:
        return points[0][1]
    for (low, at_low), (high, at_high) in itertools.pairwise(points):
        if strength <= high:
            return at_low + (at_high - at_low) * (strength - low) / (high - low)
    return points[-1][1]
