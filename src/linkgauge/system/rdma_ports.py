"""A node's RDMA ports as /sys/class/infiniband shows them: state, rate and width, and which subnet each is on.

A port's switch is not there: LIDs are given out by the subnet manager in the order of its own sweep, and say nothing
of where a port is. That takes a query of the subnet (ibnetdiscover, which needs privilege) or its file
(system/switches.py). What is there: ports with another subnet prefix, or another subnet manager, cannot reach each
other.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.system.sysfs import entries


@dataclasses.dataclass(frozen=True)
class RdmaPort:
    """One port. `rate` as the kernel says it ("400 Gb/sec (4X NDR)"), empty where it does not.

    `subnet`: of InfiniBand the prefix of its first GID and the LID of its subnet manager, else empty.
    """

    name: str  # card/port
    state: str
    rate: str
    layer: str  # InfiniBand, Ethernet
    lid: int | None = None
    subnet: str = ""


def rdma_ports(root: Path = Path("/")) -> list[RdmaPort]:
    """Return this node's, by name."""
    found = []
    for device in entries(root / "sys/class/infiniband"):
        for port in entries(device / "ports"):
            layer = kernel_text(port / "link_layer")
            state = kernel_text(port / "state").rpartition(":")[2].strip()
            lid, manager = (_lid(kernel_text(port / name)) for name in ("lid", "sm_lid"))
            prefix = ":".join(kernel_text(port / "gids/0").split(":")[:4])
            on_subnet = layer == "InfiniBand" and prefix and manager is not None
            subnet = f"{prefix}, subnet manager at LID {manager}" if on_subnet else ""
            found.append(RdmaPort(f"{device.name}/{port.name}", state, kernel_text(port / "rate"), layer, lid, subnet))
    return found


def _lid(text: str) -> int | None:
    """A LID as the kernel writes it, "0x1a"; None for none, 0 included: no subnet manager has been there."""
    try:
        return int(text, 16) or None
    except ValueError:
        return None
