"""What to do about a slow element, by its kind."""

from __future__ import annotations

CORES_FIX = (
    "Look at what else ran on these cores and their memory (uptime, top), keep ranks and buffers in place (--bind), "
    "and measure again."
)


FIXES = {
    "link": "Look at the link's state and error counters (nvidia-smi nvlink -s -e, rocm-smi --showxgmierr); reseat or "
    "replace the bridge, cable or device, and measure this pair again.",
    "port": "Look at each link of this device (nvidia-smi nvlink -s -e): one that is down or replays names itself "
    "there.",
    "pair": "Look at what only these two share: the switch's routes for them (fabric manager), whether both "
    "reach each other's memory (linkgauge doctor), and what else moved data between them.",
    "device": "All that this device does is slow: look at its clocks, power limit, temperature and errors, then at "
    "its slot.",
    "nic": "Look at the port's rate and width (ibstat, ethtool), its PCIe width, and its cable; compare counters of "
    "errors.",
    "trunk": "Look at the links between these switches: their state, width and error counters.",
    "node": "Every pair of this node is slow: look at its switch port, its routes, and what else runs there.",
    "switch": "Every pair over this switch is slow: look at its links, their errors and its configuration, and at "
    "what else goes through it.",
    "uplink": "Pairs within these nodes are full, and all pairs to the others are slow: look at the links from "
    "their switch upwards: how many are up, at which rate, with which errors.",
    "host": "Look at the PCIe link as trained (nvidia-smi -q -d PCIE, lspci -vv LnkSta), the slot, the riser, and the "
    "NUMA node of the buffers (--bind).",
}
