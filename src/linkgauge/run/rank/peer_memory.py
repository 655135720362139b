"""GPU memory registered with a node's RDMA cards: what GPUDirect RDMA needs of any library, as the kernel counts it.

MLNX_OFED's and DOCA's ib_core count what nvidia-peermem (nv_peer_mem before) registers for the cards, of all processes
of the node, in /sys/kernel/mm/memory_peers/CLIENT (NVIDIA, GPUDirect Storage guide, Checking Memory Peer Direct Stats):
`num_alloc_mrs` regions so far, `num_dealloc_mrs` given back. GPU memory that reaches a card as a dma-buf, as with the
kernel's own ib_core, is counted nowhere: then there is no such folder.
"""

from __future__ import annotations

from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.run.machine.observe import Value
from linkgauge.system.sysfs import entries

SUBJECT = "peer_memory"
REGISTERED, HELD = "registrations", "registrations_held"
_STORAGE = "nvidia-fs"  # GPUDirect Storage's


def registrations(root: Path = Path("/")) -> list[Value]:
    """Regions of GPU memory that were registered so far, and that are now; nothing where none are counted."""
    made = given_back = clients = 0
    for client in entries(root / "sys/kernel/mm/memory_peers"):
        counts = [kernel_text(client / name).strip() for name in ("num_alloc_mrs", "num_dealloc_mrs")]
        if client.name != _STORAGE and all(count.isdecimal() for count in counts):
            clients += 1
            made += int(counts[0])
            given_back += int(counts[1])
    return [Value(REGISTERED, made, ""), Value(HELD, made - given_back, "")] if clients else []
