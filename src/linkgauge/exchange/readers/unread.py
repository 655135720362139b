"""Tools whose output Linkgauge knows and does not read: they are refused by name, and their rows are nobody else's."""

from __future__ import annotations

import re

from linkgauge.exchange.readers.base import Reader

UNREAD = {
    "p2pBandwidthLatencyTest": r"\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]|.*P2P=(?:En|Dis)abled .*Matrix",
    "the CUDA sample bandwidthTest": r"\[CUDA Bandwidth Test\]",
    "perftest": (
        r"\s*(?:RDMA_Write|RDMA_Read|Send|Atomic\w*|RawEthernet\w*|Write|Read)\s[\w ]*(?:BW|Latency) (?:Test|Post)"
        r"|\s*#bytes\s+#iterations\b"
    ),
    "TransferBench": r"(?:TransferBench v|Test,SRC mem,|Test #?,.*Executor)|Test\s+\d+:\s*$",
    "ucx_perftest": r"\|\s*(?:Stage|API:|Test:)\s|\[thread \d+\]\s|Final:\s+\d+\s",
    "rocm_bandwidth_test": r"\s*(?:RocmBandwidthTest|rocm[_-]bandwidth[_-]test)\b.*[Vv]ersion",
    "Intel MPI Benchmarks": r"#.*Intel\(R\) MPI Benchmarks|#\s*Benchmarking\s+\w+",
    "iperf3": r"\[ *(?:ID|\d+)\]\s+Interval\s+Transfer",
    "fabtests": r"bytes\s+#sent\s+#ack\s+total\b|bytes\s+iters\s+total\s+time\s+MB/sec\b",
    "NVSHMEM's performance tests": r"#?\s*(?:shmem|nvshmem)\w*\s*\w*.*\b(?:bw|lat|latency|bandwidth)\b.*\bGB/sec\b",
    "the OSU suite for NCCL or OpenSHMEM": r"\s*#?\s*OSU (?!MPI)[A-Z]",
    "nvidia-smi topo": r"\s*(?:GPU0\s+GPU1|GPU0\s+.*CPU Affinity)\b",
    "ibnetdiscover": r"Switch\s+\d+\s+\"S-|vendid=0x",
    "dcgmi": r"\|\s*(?:Diagnostic|Deployment)\s+\|",
}
"""By the tool's name how a line of its own begins. What is read goes first: a row here may be loose."""

for _tool, _starts in UNREAD.items():
    Reader(_tool, re.compile(_starts), None).register()
