"""Which pages the kernel gave host buffers that requested huge ones, or a NUMA node (core/device/host_pages.h).

The core reads the kernel's lists as soon as a buffer's pages are touched. Rows are a case's own: subject, name, bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from linkgauge.run.machine.observe import Row, Value, row_of

SUBJECT = "host pages"
HUGE_REQUESTED, HUGE_GIVEN = "huge_requested", "huge_given"
_NODE_REQUESTED, _NODE_GIVEN = "node_requested", "node_given"


def page_rows(place: int, pages: Mapping[str, int]) -> list[Row]:
    """Rows of what a rank's buffers requested of the kernel and were given, in bytes."""
    when_ns = time.monotonic_ns()
    return [row_of(place, SUBJECT, "after", when_ns, Value(name, float(value), "B")) for name, value in pages.items()]


def shares(values: Iterable[tuple[str, float]]) -> tuple[float | None, dict[int, float]]:
    """Return the share of the bytes that are on huge pages, and by requested NUMA node that which is on it.

    `values`: name and value of a case's rows. None, or no node, where nothing was requested or read.
    """
    sums: dict[str, float] = {}
    for name, value in values:
        sums[name] = sums.get(name, 0.0) + value
    asked = sums.get(HUGE_REQUESTED, 0.0)
    nodes = {}
    for name, value in sums.items():
        word, _, node = name.partition(" ")
        if word == _NODE_REQUESTED and node.isdecimal() and value > 0:
            nodes[int(node)] = sums.get(f"{_NODE_GIVEN} {node}", 0.0) / value
    return (sums.get(HUGE_GIVEN, 0.0) / asked if asked > 0 else None), nodes
