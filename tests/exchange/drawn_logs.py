"""Logs of other tools as their programs print them, drawn by seed, each with the cases that must come back.

`python tests/exchange/drawn_logs.py 2000` draws so many of each tool; a few seeds are in the tests.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from linkgauge.exchange.importers import Hints, read_log
from linkgauge.exchange.jobs import join
from linkgauge.model.patterns import PATTERNS


class Expected(NamedTuple):
    """A case as it must be read; its time per iteration in ns, within what its tool's digits say."""

    transport: str
    pattern: str
    size: int
    devices: tuple[int, ...]
    ns: float
    variant: str = ""
    node: int = -1


Drawn = tuple[str, Hints, list[Expected]]
SIZES = [1 << shift for shift in range(2, 31)]
NAMES = ("NVIDIA A40", "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X")
PREFIXES = ("", "", "[1,0]<stdout>:", "2026-11-25T10:00:00.123456Z ", "\x1b[0m")


def rate(rng: random.Random) -> str:
    return f"{10 ** rng.uniform(0, 3.2):.2f}"


def matrix(rng: random.Random, names: list[str], corner: str, cell: Callable[[int, int], str]) -> list[str]:
    width = rng.choice((6, 9, 12))
    lines = [corner + "".join(f"{name:>{width}}" for name in names) + rng.choice(("", "  "))]
    return lines + [f"{name:>6} " + " ".join(f"{cell(i, j):>{width}}" for j in range(len(names)))
                    for i, name in enumerate(names)]  # fmt: skip


def copied(transport: str, source: int, target: int, size: int, value: float, ways: int = 1) -> Expected:
    """A copy between devices; -1 and below are the host's NUMA nodes, -1 the near one."""
    ns = ways * size / value
    if source >= 0 and target >= 0:
        if source == target:
            return Expected(transport, "local_copy", size, (source,), ns)
        return Expected(transport, "bidirectional" if ways == 2 else "unidirectional", size, (source, target), ns)
    name = "host_device_bidirectional" if ways == 2 else "host_to_device" if source < 0 else "device_to_host"
    return Expected(transport, name, size, (max(source, target),), ns, node=-2 - min(source, target))


def p2p(rng: random.Random) -> Drawn:
    count = rng.randint(2, 6)
    lines = ["[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"]
    lines += [f"Device: {k}, {NAMES[1]}, pciBusID: {k + 1:x}, pciDeviceID: 0, pciDomainID:0" for k in range(count)]
    names, expected = [str(k) for k in range(count)], []
    titles = ["Unidirectional P2P=Disabled Bandwidth", "Unidirectional P2P=Enabled Bandwidth (P2P Writes)",
              "Unidirectional P2P=Enabled Bandwidth (P2P Reads)", "Bidirectional P2P=Enabled Bandwidth"]  # fmt: skip
    for title in rng.sample(titles, rng.randint(1, 4)):
        cells = {(i, j): rate(rng) for i in range(count) for j in range(count)}
        lines += [f"{title} Matrix (GB/s)", *matrix(rng, names, "   D\\D", lambda i, j, c=cells: c[i, j])]
        if "Enabled" not in title:
            continue
        for (i, j), value in cells.items():
            source, target = (j, i) if "Reads" in title else (i, j)
            if title.startswith("Bi") and i != j:
                expected.append(copied("copy_engine", source, target, 160_000_000, float(value), 2))
            elif title.startswith("Uni"):
                expected.append(copied("copy_engine", source, target, 160_000_000, float(value) / (1 + (i == j))))
    if rng.random() < 0.5:
        cells = {(i, j): rate(rng) for i in range(count) for j in range(count)}
        lines += [
            "P2P=Enabled Latency (P2P Writes) Matrix (us)",
            *matrix(rng, names, "   GPU", lambda i, j: cells[i, j]),
        ]
        lines += ["", *matrix(rng, names, "   CPU", lambda i, j: "1.23")]
        expected += [copied("copy_engine", i, j, 4, 4 / (float(us) * 1e3)) for (i, j), us in cells.items()]
    return "\n".join([*lines, ""]), Hints(), expected


def rocm(rng: random.Random) -> Drawn:
    hosts, gpus, size = rng.randint(1, 2), rng.randint(1, 4), rng.choice(SIZES)
    lines = ["", "          RocmBandwidthTest Version: 2.6.0", ""]
    lines += [f"          Device: {k},  AMD EPYC 9654 96-Core Processor" for k in range(hosts)]
    uuid = rng.choice(("", ",  GPU-1a2b3c"))
    lines += [f"          Device: {hosts + k},  {NAMES[2]}{uuid},  {k + 5:02x}:0.0" for k in range(gpus)]
    names, expected = [str(k) for k in range(hosts + gpus)], []

    def place(k: int) -> int:
        return k - hosts if k >= hosts else -1 if hosts == 1 else -2 - k

    for title in rng.sample(["Unidirectional", "Bidirectional", "Bdirectional"], rng.randint(1, 2)):
        cells = {}
        for i in range(hosts + gpus):
            for j in range(hosts + gpus):
                absent = (i < hosts and j < hosts) or (i == j and title[0] == "B") or rng.random() < 0.05
                cells[i, j] = "N/A" if absent else rate(rng)
                if not absent:
                    value = float(cells[i, j]) / (1 + (i == j))
                    expected.append(copied("copy_engine", place(i), place(j), size, value, 2 if title[0] == "B" else 1))
        gap = rng.choice(("\n", "\n\n"))
        body = gap.join(matrix(rng, names, "D/D", lambda i, j, c=cells: c[i, j]))
        lines += [f"          {title} copy peak bandwidth GB/s", "", body, ""]
    return "\n".join([*lines, ""]), Hints(size_bytes=size), expected


def transferbench(rng: random.Random) -> Drawn:
    form, expected, lines = rng.choice(("text", "borders", "csv", "old")), [], []
    lines += ["TransferBench v1.62.00"]
    if form == "csv":
        lines.append("Test#,Transfer#,NumBytes,Src,Exe,Dst,CUs,BW(GB/s),Time(ms),SrcAddr,DstAddr")
    if form == "old":
        lines.append("Test,SRC mem,Executor,DST mem,CUs,GB/s,Time(ms),Bytes")
    for test in range(1, rng.randint(2, 8)):
        size, value = rng.choice(SIZES[18:]), 10 ** rng.uniform(0.5, 3)
        by, ends = rng.choice("GD"), [rng.choice(("G0", "F1", "G2", "C0", "C1")) for _ in range(2)]
        if ends[0][0] == ends[1][0] == "C":
            ends[0] = "G3"
        at = rng.choice([end for end in ends if end[0] != "C"])
        ms = size / value / 1e6
        numbers = [-2 - int(end[1]) if end[0] == "C" else int(end[1]) for end in ends]
        exact = round(value, 3) if value >= ms else size / (round(ms, 3) * 1e6)
        expected.append(copied("kernel" if by == "G" else "copy_engine", *numbers, size, exact))
        cells = [f"{value:.3f} GB/s", f"{ms:.3f} ms", f"{size} bytes"]
        mark = "│" if form == "borders" else "|"
        path = f"{ends[0]} -> {by}{int(at[1]):03d}:004 -> {ends[1]}"
        if form == "csv":
            lines.append(f"{test},0,{size},{ends[0]},{by}{int(at[1]):02d},{ends[1]},4,{value:.3f},{ms:.3f},0x7f,0x7e")
        elif form == "old":
            lines.append(f"{test},{ends[0]},{by}{at[1]},{ends[1]},4,{value:.3f},{ms:.3f},{size}")
        else:
            lines += [f"Test {test}:", f" Executor: GPU 00 {mark} " + f" {mark} ".join([*cells, "9.9 GB/s (sum)"]),
                      f"     Transfer 00  {mark} " + f" {mark} ".join([*cells, path]),
                      f" Aggregate (CPU) {mark} " + f" {mark} ".join([*cells, "Overhead: 0.1 ms"])]  # fmt: skip
    return "\n".join([*lines, ""]), Hints(), expected


def ucx(rng: random.Random) -> Drawn:
    lines, expected = [], []
    tests = {"tag match latency": ("pingpong", ""), "tag match bandwidth": ("unidirectional", ""),
             "put bandwidth": ("unidirectional", "put"), "put latency": ("pingpong", "put")}  # fmt: skip
    for name in rng.sample(sorted(tests), rng.randint(1, 4)):
        pattern, variant = tests[name]
        size, us, count = rng.choice(SIZES[8:]), round(10 ** rng.uniform(0, 3), 3), rng.randint(10, 10**6)
        window = rng.choice((16, 32))
        says = "latency" if pattern == "pingpong" else "overhead"
        per_s = 1e6 / us
        lines += [f"|              |              |       {says} (usec)        |   bandwidth (MB/s)  |  message rate |",
                  "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average |",
                  "| API:          protocol layer       |", f"| Test:         {name}    |",
                  "| Send memory:  cuda      |", "| Recv memory:  host      |", f"| Message size: {size}   |",
                  f"| Window size:  {window}   |",
                  f"[thread 0]   {count // 2}  1.0  1.0  1.0  1.0  1.0  10  10"]  # fmt: skip
        mb = size * per_s / (1 << 20)
        lines.append(f"Final:  {count}  {us:.3f}  {us:.3f}  {us:.3f}  {mb:.2f}  {mb:.2f}  {per_s:.0f}  {per_s:.0f}")
        expected.append(Expected("ucx", pattern, size, (0, 1), us * 1e3 * (2 if pattern == "pingpong" else window),
                                 variant))  # fmt: skip
    return "\n".join([*lines, ""]), Hints(), expected


def fabtests(rng: random.Random) -> Drawn:
    ours = rng.random() < 0.5
    program = rng.choice(("fi_rdm_pingpong", "fi_msg_bw"))
    pattern = "pingpong" if ours or "pingpong" in program else "unidirectional"
    heading = "bytes   #sent   #ack     total" if ours else "bytes   iters   total"
    lines = [f"$ {program} -p efa 10.0.0.1", f"{heading}       time     MB/sec    usec/xfer   Mxfers/sec"]
    expected = []
    for size in sorted(rng.sample(SIZES[4:], rng.randint(1, 8))):
        us, count = round(10 ** rng.uniform(0.5, 3), 2), rng.choice((10, 1000, 10_000))
        unit = next(k for k in (30, 20, 10, 0) if size >= 1 << k)
        text = f"{size >> unit}{'kmg'[unit // 10 - 1] if unit else ''}"
        counts = f"{count}" if count < 1000 else f"{count // 1000}k"
        lines.append(
            f"{text:8}{counts:8}{f'={counts:8}' if ours else ''}1m      0.10s {size / us:10.2f} {us:10.2f}  0.01"
        )
        ns = us * 1e3 * (2 if pattern == "pingpong" else 64)
        expected.append(Expected("ofi", pattern, size, (0, 1), ns))
    return "\n".join([*lines, ""]), Hints(), expected


def imb(rng: random.Random) -> Drawn:
    from linkgauge.exchange.readers.imb import _PATTERNS, _PER_BLOCK, _VARIANTS

    lines, expected = ["#    Intel(R) MPI Benchmarks 2021.7, MPI-1 part", "#", "# Calling sequence was:"], []
    for name in rng.sample(sorted(_PATTERNS), rng.randint(1, 5)):
        info = PATTERNS[_PATTERNS[name]]
        n = 2 if info.pair else rng.choice((2, 4, 24))
        lines += ["#------", f"# Benchmarking {name} ", f"# #processes = {n} ", "#------"]
        rated = info.pair or name == "Sendrecv"
        columns = ["#bytes"] * (name != "Barrier") + ["#repetitions"]
        columns += ["t[usec]"] if info.pair else ["t_min[usec]", "t_max[usec]", "t_avg[usec]"]
        lines.append("   ".join([*columns, *(["Mbytes/sec"] * rated)]))
        for size in [0] if name == "Barrier" else sorted(rng.sample(SIZES[6:24], 3)):
            us, count = round(10 ** rng.uniform(0.5, 3), 2), rng.randint(1, 1000)
            figures = [f"{us:.2f}"] if info.pair else [f"{us * 0.9:.2f}", f"{us:.2f}", f"{us * 0.95:.2f}"]
            mb = [f"{size * (2 if name == 'Sendrecv' else 1) / us:.2f}"] * rated
            lines.append("   ".join(["", *([str(size)] if name != "Barrier" else []), str(count), *figures, *mb]))
            m = size * n if name in _PER_BLOCK else size
            if not PATTERNS[info.name].blocks or m % n == 0:
                ns = us * 1e3 * (2 if info.half_round_trip else 1)
                expected.append(Expected("mpi", info.name, m, tuple(range(n)), ns, _VARIANTS.get(name, "")))
        lines.append("")
    return "\n".join([*lines, ""]), Hints(), expected


def nixlbench(rng: random.Random) -> Drawn:
    reads, old = rng.random() < 0.5, rng.random() < 0.5
    said = {"backend": "UCX", "initiator_seg_type": "VRAM", "target_seg_type": "DRAM", "scheme": "pairwise",
            "mode": "SG", "op_type": "READ" if reads else "WRITE", "num_initiator_dev": "1",
            "num_threads": "1"}  # fmt: skip
    lines = [
        "NIXLBench Configuration",
        *(f"Some words (--{key}=[A,B])        : {value}" for key, value in said.items()),
    ]
    names = ["Block Size (B)", "Batch Size"]
    names += ["Avg Lat. (us)", "B/W (MiB/Sec)", "B/W (GiB/Sec)", "B/W (GB/Sec)"] if old else [
        "B/W (GB/Sec)", "Avg Lat. (us)", "Avg Prep (us)", "P99 Prep (us)"]  # fmt: skip
    lines += ["      ".join(names), "-" * 40]
    expected = []
    for _ in range(rng.randint(1, 6)):
        block, batch, value = rng.choice(SIZES[10:20]), rng.choice((1, 4)), round(10 ** rng.uniform(0, 2), 6)
        us = block * batch / value / 1e3
        cells = [f"{us:g}", "1", "1", f"{value:g}"] if old else [f"{value:.6f}", f"{us:.1f}", "16.0", "17.0"]
        if not old and us < 1:
            continue
        value = float(f"{value:g}") if old else value
        lines.append("   ".join([str(block), str(batch), *cells]))
        expected.append(Expected("nixl", "unidirectional", block * batch, (0, 1), block * batch / value,
                                 "get" if reads else ""))  # fmt: skip
    return "\n".join([*lines, ""]), Hints(), expected


def dcgm(rng: random.Random) -> Drawn:
    new, results, expected = rng.random() < 0.5, [], []
    for gpu in range(rng.randint(1, 8)):
        words = []
        known = {"GPU to Host": (gpu, -1, 1), "Host to GPU": (-1, gpu, 1), "bidirectional": (-1, gpu, 2)}
        for what, (source, target, ways) in known.items():
            value = rate(rng)
            words.append(f"{'' if new else f'GPU {gpu} '}{what} bandwidth:\t\t{value} GB/s")
            expected.append(copied("copy_engine", source, target, 40_000_000, float(value), ways))
        info: Any = words if rng.random() < 0.5 else ", ".join(words)
        results.append({"entity_id": gpu, "info": info, "status": "Pass"} if new else
                       {"gpu_ids": str(gpu), "info": info, "status": "PASS"})  # fmt: skip
    tests = [{"name": "pcie", "results": results}]
    name = "DCGM Diagnostic" if new else "DCGM GPU Diagnostic"
    return (
        json.dumps({name: {"test_categories": [{"category": "Integration", "tests": tests}]}}, indent=2),
        Hints(),
        expected,
    )


def superbench(rng: random.Random) -> Drawn:
    n, node, expected = rng.choice((4, 8)), {"node": "node-1", "gemm-flops/fp64:0": 12.5, "return_code:0": 0}, []
    for size in sorted(rng.sample(SIZES[18:], 3)):
        us = round(10 ** rng.uniform(1, 4), 2)
        algbw = size / us / 1e3
        for what, value in (("time", us), ("algbw", algbw), ("busbw", algbw * 2 * (n - 1) / n)):
            node[f"nccl-bw:nvlink/allreduce_{size}_{what}:0"] = value if what == "time" else round(value, 4)
        expected.append(Expected("ccl", "allreduce", size, tuple(range(n)), us * 1e3))
    return json.dumps(node) + "\n", Hints(), expected


def rccl_csv(rng: random.Random) -> Drawn:
    n, expected, each, mpi = rng.choice((2, 4, 8)), [], rng.choice((1, 1, 2)), rng.random() < 0.6
    # With MPI a row has the number of nodes too, which the heading lacks.
    heading = "ranks,rankspernode,gpusperrank" if mpi else "gpus"
    lines = [f"numCycle,collective,{heading},size,type,redop,inplace,time,algbw,busbw,#wrong"]
    counts = f"1,{n // each},{n // each},{each}" if mpi else f"{n}"
    for size in sorted(rng.sample(SIZES[16:], 3)):
        us = round(10 ** rng.uniform(1, 4), 2)
        algbw = size / us / 1e3
        lines.append(f'0,"AllReduce",{counts},{size},"float","sum",0,{us},{algbw:.5f},'
                     f'{algbw * 2 * (n - 1) / n:.5f},"0"')  # fmt: skip
        expected.append(Expected("ccl", "allreduce", size, tuple(range(n)), us * 1e3))
    return "\n".join([*lines, ""]), Hints(), expected


def inspector(rng: random.Random) -> Drawn:
    n, expected, lines = rng.choice((2, 4)), [], []
    patterns = {"AllReduce": "allreduce", "AllGather": "allgather", "ReduceScatter": "reduce_scatter"}
    number = 0
    for name in sorted(rng.sample(sorted(patterns), 2), key=lambda one: patterns[one]):
        size, times = rng.choice(SIZES[16:]), []
        for _ in range(rng.randint(1, 5)):
            number += 1
            us = [rng.randint(200, 90_000) for _ in range(n)]
            times.append(min(us) * 1e3)
            for rank in range(n):
                told = size if name == "AllReduce" or rng.random() < 0.5 else size // n
                perf = {"coll": name, "coll_sn": number, "coll_msg_size_bytes": told, "coll_exec_time_us": us[rank],
                        "coll_algobw_gbs": round(size / us[rank] / 1e3, 6), "coll_busbw_gbs": 1.0}  # fmt: skip
                header = {"id": "0x7f", "rank": rank, "n_ranks": n, "nnodes": 1}
                metadata = {"hostname": "a", "pid": 10 + rank}
                lines.append(json.dumps({"header": header, "metadata": metadata, "coll_perf": perf}))
        expected.append(Expected("ccl", patterns[name], size, tuple(range(n)), sum(times) / len(times)))
    return "\n".join([*lines, ""]), Hints(), expected


def perftest(rng: random.Random) -> Drawn:
    lines, expected = [], []
    verbs = {"Send": "", "RDMA_Write": "put", "RDMA_Read": "get"}
    for _ in range(rng.randint(1, 4)):
        verb, by_rate, both = rng.choice(sorted(verbs)), rng.random() < 0.6, rng.random() < 0.5
        window, queues, timed = rng.choice((1, 128, 512)), rng.choice((1, 1, 4)), rng.random() < 0.3
        unit, gigabits = rng.choice((("MB/sec", False), ("MiB/sec", False), ("Gb/sec", True)))
        title = f"{verb} {'Bidirectional ' if both else ''}{rng.choice(('', 'Post List '))}BW Test"
        lines += [*(["cuMemAlloc() of a 131072 bytes GPU buffer"] if rng.random() < 0.3 else []), "-" * 87,
                  f"                    {title if by_rate else f'{verb} Latency Test'}",
                  " Dual-port       : OFF\t\tDevice         : mlx5_0",
                  f" Number of qps   : {queues}\t\tTransport type : IB",
                  " Connection type : RC\t\tUsing SRQ      : OFF", f" TX depth        : {window}", "-" * 87,
                  " local address: LID 0x1 QPN 0x8 PSN 0x6d058e RKey 0x1 VAddr 0x007f58a406e000", "-" * 87]  # fmt: skip
        if by_rate:
            port = rng.random() < 0.2
            lines.append(f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
                         + f"   BW Port1[{unit}]   MsgRate Port1[Mpps]" * port + "    CPU_Util[%]" * timed)  # fmt: skip
        elif timed:
            lines.append(" #bytes        #iterations       t_avg[usec]    tps average")
        else:
            tail = "    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
            old = rng.random() < 0.3
            lines.append(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]" + tail * (not old))
        for size in sorted(rng.sample(SIZES[6:24], rng.randint(1, 5))):
            count = rng.randint(10, 10**7)
            if by_rate:
                per_s = 125e6 if gigabits else 1 << 20
                printed = float(f"{10 ** rng.uniform(1, 2.6 if gigabits else 4.6):.2f}")
                cells = [f"{printed * 1.01:.2f}", f"{printed:.2f}", f"{printed * per_s / size / 1e6:.6f}"]
                lines.append("   ".join(["", str(size), str(count), *cells, *(["0.00", "0.000000"] * port),
                                         *(["3.10"] * timed)]))  # fmt: skip
                ways, ns = 1 + both, window * queues * size / (printed * per_s) * 1e9
                expected.append(Expected("verbs", "bidirectional" if both else "unidirectional", size, (0, 1),
                                         ways * ns, verbs[verb]))  # fmt: skip
            else:
                us = float(f"{10 ** rng.uniform(0, 3):.2f}")
                whole = verb == "RDMA_Read"
                cells = [f"{us:.2f}", f"{1e6 / us / (2 - whole):.2f}"] if timed else [
                    f"{us * 0.9:.2f}", f"{us * 2:.2f}", f"{us:.2f}",
                    *([] if old else [f"{us * 1.1:.2f}", "0.00", f"{us * 1.5:.2f}", f"{us * 1.9:.2f}"])]  # fmt: skip
                lines.append("   ".join(["", str(size), str(count), *cells]))
                expected.append(Expected("verbs", "unidirectional" if whole else "pingpong", size, (0, 1),
                                         us * 1e3 * (2 - whole), verbs[verb]))  # fmt: skip
        lines.append("-" * 87)
    return "\n".join([*lines, ""]), Hints(), expected


def perftest_json(rng: random.Random) -> Drawn:
    verb, by_rate, both = rng.choice(("Send", "RDMA_Write")), rng.random() < 0.6, rng.random() < 0.5
    size, count, variant = rng.choice(SIZES[6:24]), rng.randint(10, 10**6), "put" if verb == "RDMA_Write" else ""
    words = f"{'Bidirectional_' if both else ''}BW" if by_rate else "Latency"
    info: dict[str, Any] = {"test": f"{verb}_{words}_Test", "Device": "mlx5_0", "Number_of_qps": 2, "TX_depth": 64}
    results: dict[str, Any] = {"MsgSize": size, "n_iterations": count}
    if by_rate:
        per_s, printed = rng.choice((125e6, float(1 << 20))), round(10 ** rng.uniform(1, 2.6), 2)
        results |= {"BW_peak": 0.0, "BW_average": printed, "MsgRate": round(printed * per_s / size / 1e6, 6)}
        ns = (1 + both) * 128 * size / (printed * per_s) * 1e9
        expected = Expected("verbs", "bidirectional" if both else "unidirectional", size, (0, 1), ns, variant)
    else:
        us = round(10 ** rng.uniform(0, 3), 2)
        results |= {"t_min": us / 2, "t_max": us * 2, "t_typical": us, "t_avg": us, "t_stdev": 0.0,
                    "percentile_99": us, "percentile_99.9": us * 2}  # fmt: skip
        expected = Expected("verbs", "pingpong", size, (0, 1), 2 * us * 1e3, variant)
    return json.dumps({"test_info": info, "results": results}, indent=1), Hints(), [expected]


def ucc(rng: random.Random) -> Drawn:
    from linkgauge.exchange.readers.ucc_perftest import _PATTERNS

    lines, expected, n, newer = [], [], rng.choice((2, 4, 8, 24)), rng.random() < 0.5
    full, hints = rng.random() < 0.6, Hints(ranks=n)
    for name in rng.sample(sorted(_PATTERNS), rng.randint(1, 4)):
        pattern = _PATTERNS[name]
        info, peers = PATTERNS[pattern], pattern in ("alltoall", "scatter")
        lines += [f"Collective:             {name}", "Memory type:            cuda", "Datatype:               float32",
                  f"Reduction:              {'sum' if info.reduces else 'N/A'}", "Inplace:                0",
                  "Warmup:", "  small                 10", "Iterations:", "  small                 10", ""]  # fmt: skip
        words = "Bus Bandwidth, GB/s" if newer else "Bandwidth, GB/s"
        lines.append(f"       Count        Size                Time, us{'                 ' + words if full else ''}")
        lines.append(" avg  min  max" + "  avg  max  min" * full)
        rows: list[tuple[Expected, float]] = []
        sizes = ["N/A"] if pattern == "barrier" else [str(n << k) for k in sorted(rng.sample(range(8, 20), 3))]
        for text in sizes:
            us, size = float(f"{10 ** rng.uniform(1, 3):.2f}"), 0 if text == "N/A" else int(text)
            blocks = pattern in ("allgather", "gather") or (peers and not newer)
            m = size * n if blocks and info.blocks else size // n if peers and not info.blocks and newer else size
            bus = float(info.payload_bytes(m, n, 1) * info.bus_factor(n)) / us / 1e3
            bandwidth = ["N/A"] * 3 if text == "N/A" else ["N/A", "N/A", f"{bus:.2f}"]
            cells = [
                text if text == "N/A" else str(size // 4),
                text,
                f"{us * 0.99:.2f}",
                f"{us * 0.9:.2f}",
                f"{us:.2f}",
            ]
            rows.append((Expected("ucc", pattern, m, tuple(range(n)), us * 1e3), bus))
            lines.append("   ".join(["", *cells, *(bandwidth * full)]))
        # Without any of both, what a size of these means is not known; of little bandwidth the digits are too few.
        if newer or not peers or (full and any(round(bus, 2) >= 0.1 for _, bus in rows)):
            expected += [one for one, _ in rows]
        lines += ["Total time: 1.5 ms"] * newer + [""]
    return "\n".join(lines), hints, expected


def gpcnet(rng: random.Random) -> Drawn:
    n, expected, verbose = rng.choice((2, 4, 64)), [], rng.random() < 0.5
    bar, names = (
        "+" + "-" * 78 + "+",
        ["Min", "Max", "Avg", "Avg(Worst)", "99%", "99.9%"] if verbose else ["Avg", "99%"],
    )
    lines = ["Network Tests v1.3", f"  Test with {n} MPI ranks ({n} nodes)", "", "  Legend",
             "   RR = random ring communication pattern", "", bar, f"| {'Isolated Network Tests':^76} |", bar,
             "|                            Name | " + " | ".join([*names, "Units"]) + " |", bar]  # fmt: skip
    for test, unit in (("RR Two-sided Lat (8 B)", "usec"), ("RR Put BW (131072 B)", "MiB/s/rank"),
                       ("Nat Two-sided BW (131072 B)", "MiB/s/rank"), ("Multiple Allreduce (8 B)", "usec"),
                       ("Multiple Alltoall (4096 B)", "MiB/s/rank")):  # fmt: skip
        value = float(f"{10 ** rng.uniform(0.5, 4):.1f}")
        cells = [f"{value:.1f}" if name == "Avg" else f"{value * 1.5:.1f}" for name in names]
        lines += [f"| {test:>31} | " + " | ".join([*cells, unit]) + " |", bar]
        per_s = value * (1 << 20)
        if test.startswith("Nat"):
            expected.append(Expected("mpi", "halo", 131072, tuple(range(n)), 16 * 131072 / per_s * 1e9))
        elif "Allreduce" in test:
            expected.append(Expected("mpi", "allreduce", 8, tuple(range(n)), value * 1e3))
        elif "Alltoall" in test:
            expected.append(Expected("mpi", "alltoall", 4096, tuple(range(n)), (n - 1) * 4096 / per_s * 1e9))
    lines += ["", bar, f"| {'Isolated Congestion Tests':^76} |", bar, "|  Name | Avg | 99% | Units |",
              "| Alltoall (4096 B) | 1.0 | 2.0 | MiB/s/rank |", bar]  # fmt: skip
    return "\n".join([*lines, ""]), Hints(), expected


FORMATS: dict[str, Callable[[random.Random], Drawn]] = {
    one.__name__: one
    for one in (p2p, rocm, transferbench, ucx, fabtests, imb, nixlbench, dcgm, superbench, rccl_csv, inspector,
                perftest, perftest_json, ucc, gpcnet)
}  # fmt: skip
AS_JSON = ("dcgm", "superbench", "inspector", "perftest_json")


def check(name: str, seed: int, folder: Path) -> None:
    """Draw one log and read it; AssertionError where a case is lost, made up or of another time."""
    rng = random.Random(f"{name} {seed}")
    text, hints, expected = FORMATS[name](rng)
    if name not in AS_JSON and name != "fabtests":
        prefix = rng.choice(PREFIXES)
        text = "".join(prefix + line + rng.choice(("\n", "\n", "\r\n")) for line in text.splitlines())
    path = folder / "log_0.txt"
    path.write_bytes(text.encode(rng.choice(("utf-8", "utf-8", "utf-16"))))
    log = read_log(path, hints)
    join([log])
    found = sorted(_found(log))
    wanted = sorted(expected)
    assert len(found) == len(wanted), (len(found), len(wanted), log.problems[:5], text)
    for one, other in zip(found, wanted, strict=True):
        assert one[:4] + one[5:] == other[:4] + other[5:], (one, other, text)
        assert abs(one.ns - other.ns) <= 1e-6 * other.ns + 1e-3, (one, other, text)


def _found(log: Any) -> list[Expected]:
    found = []
    for one in log.cases:
        case = one.case
        ns = sum(time for time, _ in one.intervals) / sum(count for _, count in one.intervals)
        node = max(case.source_node, case.target_node)
        found.append(Expected(case.transport, case.pattern, case.size, case.devices, ns, case.variant, node))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for format_name in FORMATS:
            for drawn in range(int(sys.argv[1])):
                check(format_name, drawn, Path(scratch))
            print(f"{format_name}: {sys.argv[1]} logs came back exactly")
