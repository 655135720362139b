"""Which links of its devices a case leaves idle, as far as the case alone says."""

from __future__ import annotations

import operator

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import over_host

_OWN = ("copy_engine", "kernel")
DIRECT = (*_OWN, "ccl")
"""Transports whose bytes go between devices, and through the host only where a case says so."""


def reaches_elsewhere(case: Case) -> bool:
    """Whether the case's buffers may lie on another device than its ranks': managed, or placed by number."""
    memories = f"{case.source_memory} {case.target_memory}"
    return bool(case.managed) or "managed" in memories or case.source_device >= 0 or case.target_device >= 0


def leaves_fabric_idle(case: Case) -> bool:
    """Whether the case moves nothing between devices, but within one, or through the host.

    A library may take another path than the one requested: NCCL's kernels of symmetric memory know none.
    """
    by_host = over_host(case.transport, case.path if case.transport in _OWN else "")
    alone = len(set(case.devices)) == 1 or PATTERNS[case.pattern].host_end or by_host
    return alone and not reaches_elsewhere(case)


def leaves_host_link_idle(case: Case) -> bool:
    """Whether all of the case's bytes stay within its one device."""
    info = PATTERNS[case.pattern]
    # An application also moves bytes to and from the host.
    own = info.own_memory and len(set(case.devices)) == 1 and not info.host_end and not info.scripted
    return own and case.transport in DIRECT and not case.devices_per_node and not reaches_elsewhere(case)


kind_of = operator.attrgetter(
    "transport", "pattern", "devices", "variant", "source_memory", "target_memory", "path", "buffer", "algorithm",
    "via", "host_leg", "distribution", "root", "gpudirect", "app", "settings", "copies",
)  # fmt: skip
"""What cases have in common whose bytes go the same way, whatever their sizes: a tuple."""
