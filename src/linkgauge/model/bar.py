"""A bar: what somebody requires of a machine, as a file of theirs states it."""

from __future__ import annotations

import dataclasses

BUS, GOODPUT, PORT = "busbw", "goodput", "port"
"""What a bar is of: bus bandwidth as nccl-tests print it, goodput, or the rate of one NIC port."""


@dataclasses.dataclass(frozen=True)
class Bar:
    """One requirement: at least `value` (B/s) of `quantity`.

    `system`: a described one, empty where the file does not say which machine. `ranks`: of one node, 0 for all of its
    devices. `size`: of the message in bytes, for an alltoall over all blocks; 0 where it is not said. `unread`: why it
    is no rate, else empty. `text`: as the file has it.
    """

    text: str
    value: float
    pattern: str = "allreduce"
    system: str = ""
    transport: str = "ccl"
    ranks: int = 0
    nodes: int = 1
    size: int = 0
    quantity: str = BUS
    source: str = ""
    unread: str = ""
