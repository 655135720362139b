"""Tools whose output Linkgauge knows and does not read: they are refused by name, and their rows are nobody else's."""

from __future__ import annotations

import re

from linkgauge.exchange.readers.base import Reader

UNREAD = {
    "the CUDA sample bandwidthTest": r"\[CUDA Bandwidth Test\]",
    "iperf3": r"\[ *(?:ID|\d+)\]\s+Interval\s+Transfer",
    "NVSHMEM's performance tests": r"#?\s*(?:shmem|nvshmem)\w*\s*\w*.*\b(?:bw|lat|latency|bandwidth)\b.*\bGB/sec\b",
    "the OSU suite for OpenSHMEM or UPC": r"\s*#?\s*OSU (?!MPI|[NR]CCL)[A-Z]",
    "NCCL RAS": r"Job summary\s*$|[NR]CCL version \S+ compiled with ",
    "nvidia-smi topo": r"\s*(?:GPU0\s+GPU1|GPU0\s+.*CPU Affinity)\b",
    "ibnetdiscover": r"Switch\s+\d+\s+\"S-|vendid=0x",
    "Slurm's topology": r"\s*(?:SwitchName|BlockName|AggregatedBlock)=|- topology:\s",
    "lldpctl": r"(?:[\w.-]+:\s)?lldp\.\S+?\.(?:chassis|port|via)\b",
    "NCCL's or hwloc's topology": r"\s*<(?:system version|topology)\b",
    "dcgmi": r"\|\s*(?:Diagnostic|Deployment)\s+\|",
    "rocm-smi": r".*(?:ROCm System Management|(?:Weight|Hops|Link Type) between two GPUs)",
}
"""By the tool's name how a line of its own begins. What is read goes first: a row here may be loose."""

INSTEAD = {
    "NCCL RAS": "whose JSON is read: give that of 'ncclras -f json'",
    **dict.fromkeys(
        ("nvidia-smi topo", "rocm-smi", "NCCL's or hwloc's topology"),
        "which describes a machine: give it to --system or to 'linkgauge topology'",
    ),
    **dict.fromkeys(
        ("ibnetdiscover", "Slurm's topology", "lldpctl"),
        "which describes a network: give it to 'linkgauge run --fabric'",
    ),
}
"""What is said of some of them in place of the usual words."""

for _tool, _starts in UNREAD.items():
    _instead = {"instead": INSTEAD[_tool]} if _tool in INSTEAD else {}
    Reader(_tool, re.compile(_starts), None, **_instead).register()
