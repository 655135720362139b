"""Planted requests: a library, a card or a path that followed what a case requested, or that did not.

Each is drawn from a seed as what really happened, then written as a run would store it: lines of NCCL's log, bytes of
cards and NVLinks around the case. Nothing of the judges is used. A no-op is a library that does what it does anyway.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import linkgauge
from linkgauge.model.case import Case
from linkgauge.run.machine import host_pages, nccl_log
from linkgauge.stats.crossing import must_cross
from linkgauge.store.run import load
from synthetic import make_case, make_run

MIB = 1 << 20
DEMO = Path(linkgauge.__file__).parent / "demo"
SAMPLES, OPERATIONS = 5, 12  # with warm-up and checks


@dataclasses.dataclass(frozen=True)
class Planted:
    """A run folder's case with one request, and whether that held."""

    kind: str
    requested: str
    held: bool
    case: Case
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    log: Sequence[str] = ()
    grown: Mapping[tuple[int, str, str], float] = dataclasses.field(default_factory=dict)
    """By rank, subject and name the share of the payload that was counted."""
    hosts: Sequence[str] = ("n0", "n0", "n0", "n0")
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pages: Mapping[tuple[int, str], float] = dataclasses.field(default_factory=dict)
    """By rank and name bytes of host buffers."""


FUNCTIONS = {"allreduce": "AllReduce", "allgather": "AllGather", "reduce_scatter": "ReduceScatter"}
ALGORITHMS = {
    "allreduce": ("RING", "TREE", "NVLS", "NVLS_TREE", "COLLNET_CHAIN"),
    "allgather": ("RING", "NVLS", "PAT"),
    "reduce_scatter": ("RING", "NVLS", "PAT"),
}
PROTOCOLS = ("LL", "LL128", "SIMPLE")
SPELLED = {"RING": ("Ring", "ring"), "TREE": ("Tree", "TREE"), "NVLS": ("NVLS", "nvls"), "NVLS_TREE": ("NVLSTree",),
           "COLLNET_CHAIN": ("CollNetChain",), "PAT": ("PAT",)}  # fmt: skip


def nccl(draw: random.Random, held: bool) -> Planted:
    """NCCL's choice by its log, of an algorithm, a protocol, NVLink SHARP or channels."""
    pattern = draw.choice([*FUNCTIONS])
    size = draw.choice((32, 64, 128, 256)) * MIB
    what = draw.choice(("algorithm", "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_MAX_NCHANNELS",
                        "NCCL_MIN_NCHANNELS"))  # fmt: skip
    did = {"algorithm": draw.choice(ALGORITHMS[pattern]), "protocol": draw.choice(PROTOCOLS),
           "channels": draw.choice((4, 8, 16, 24))}  # fmt: skip
    case = make_case("ccl", pattern, size, (0, 1, 2, 3))
    env: dict[str, str] = {}
    if what in ("algorithm", "NCCL_ALGO"):
        others = [one for one in ALGORITHMS[pattern] if one != did["algorithm"]]
        name = draw.choice(SPELLED[str(did["algorithm"] if held else draw.choice(others))])
        if what == "algorithm":
            case = dataclasses.replace(case, algorithm=name.lower())
            requested = f"algorithm {name.lower()}"
        else:
            env[what] = name
            requested = f"{what}={name}"
    elif what == "NCCL_PROTO":
        others = [one for one in PROTOCOLS if one != did["protocol"]]
        env[what] = str(did["protocol"] if held else draw.choice(others)).capitalize()
        requested = f"{what}={env[what]}"
    elif what == "NCCL_NVLS_ENABLE":
        env[what] = draw.choice("01")
        did["algorithm"] = "NVLS" if (env[what] == "1") == held else "RING"
        requested = f"{what}={env[what]}"
    else:
        did["algorithm"] = "RING"
        channels = int(did["channels"])
        more = (what == "NCCL_MAX_NCHANNELS") == held
        env[what] = str(channels * 2 if more else channels // 2)
        requested = f"{what}={env[what]}"
    line = (f"n0:77:77 [0] NCCL INFO {FUNCTIONS[pattern]}: {case.size} Bytes -> Algo {did['algorithm']} proto "
            f"{did['protocol']} channel{{Lo..Hi}}={{0..{int(did['channels']) - 1}}}")  # fmt: skip
    return Planted("nccl", requested, held, case, env, [line] * 3)


CARDS = ("mlx5_0", "mlx5_1", "eth0", "eth1")


def cards(draw: random.Random, held: bool) -> Planted:
    """The card that carried a case between two nodes, by what a library's variable names."""
    variable, transport = draw.choice(
        (("UCX_NET_DEVICES", "ucx"), ("UCX_NET_DEVICES", "mpi"), ("NCCL_IB_HCA", "ccl"),
         ("OMPI_MCA_btl_tcp_if_include", "mpi"), ("OMPI_MCA_btl_tcp_if_exclude", "mpi"), ("FI_TCP_IFACE", "ofi"))
    )  # fmt: skip
    there = CARDS[:2] if variable in ("UCX_NET_DEVICES", "NCCL_IB_HCA") else CARDS[2:]
    used = draw.choice(there)
    other = there[1 - there.index(used)]
    excludes = variable.endswith("exclude")
    named = used if held != excludes else other
    value = f"{named}:1" if variable == "UCX_NET_DEVICES" else named
    case = Case(transport, "unidirectional", MIB, MIB, (0, 1), devices_per_node=1)
    grown = {}
    for rank, (sent, received) in enumerate(((draw.uniform(1.0, 1.1), 0.01), (0.01, draw.uniform(1.0, 1.1)))):
        for card in CARDS:
            share = 1.0 if card == used else draw.uniform(0, 0.01)
            grown |= {(rank, f"nic {card}", "nic_sent"): share * sent,
                      (rank, f"nic {card}", "nic_received"): share * received}  # fmt: skip
    network = {"interfaces": [{"name": name, "kind": "network", "up": True} for name in CARDS[2:]], "rdma": CARDS[:2]}
    info = {"nodes": [{"host": host, "network": {**network, "rdma": [*CARDS[:2]]}} for host in ("n0", "n1")]}
    return Planted("cards", f"{variable}={value}", held, case, {variable: value}, (), grown, ("n0", "n1"), info)


def paths(draw: random.Random, held: bool) -> Planted:
    """NVLink, or past it, by the bytes that it counted."""
    kind = draw.choice(
        ("path direct", "path host", "NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=LOC", "UCX_TLS=sm,self,cuda_copy")
    )
    over = (kind == "path direct") == held
    transport = "mpi" if kind.startswith("UCX") else "ccl"
    case = make_case(transport, draw.choice(("unidirectional", "pingpong")), draw.choice((1, 16, 64)) * MIB, (0, 1))
    env = dict([kind.split("=", 1)]) if "=" in kind else {}
    if not env:
        case = dataclasses.replace(case, path=kind.split()[1])
    share = draw.uniform(1.0, 2.0) if over else draw.uniform(0.0, 0.01)
    both = case.pattern == "pingpong"
    grown = {}
    for rank, subject in enumerate(("cuda:0", "cuda:1")):
        for way, carries in (("tx", both or rank == 0), ("rx", both or rank == 1)):
            grown[rank, subject, f"nvlink_data_{way}_bytes"] = share * (0.5 if both else 1.0) * carries
    system = {"system": load(DEMO).info["system"]}  # two GPUs that NVLink joins
    return Planted("paths", kind, held, case, env, (), grown, ("n0", "n0"), system)


def channels(draw: random.Random, held: bool) -> Planted:
    """The memory by which NCCL's channels within a node go, and what moves their bytes, by its log."""
    peer = draw.choice(("P2P/CUMEM", "P2P/IPC", "P2P/direct pointer", "P2P/CUMEM/read", "P2P/MNNVL"))
    ways = {"peer": peer, "peer copied": f"{peer}/CE", "shared": "SHM/direct/direct", "shared copied": "SHM/CE/direct"}
    requests = {"path direct": ("peer", "shared"), "path host": ("shared", "peer"),
                "NCCL_P2P_DISABLE=1": ("shared", "peer"), "NCCL_P2P_DISABLE=yes": ("shared", "peer"),
                "NCCL_P2P_LEVEL=LOC": ("shared", "peer"), "NCCL_SHM_DISABLE=1": ("peer", "shared"),
                "NCCL_P2P_USE_CUDA_MEMCPY=1": ("peer copied", "peer"),
                "NCCL_SHM_USE_CUDA_MEMCPY=1": ("shared copied", "shared")}  # fmt: skip
    requested = draw.choice([*requests])
    did = ways[requests[requested][not held]]
    case = make_case(
        "ccl", draw.choice(("unidirectional", "pingpong", "allreduce")), draw.choice((1, 16)) * MIB, (0, 1)
    )
    env = dict([requested.split("=", 1)]) if "=" in requested else {}
    if not env:
        case = dataclasses.replace(case, path=requested.split()[1])
    number = "{0:02d}/0" if did.startswith("P2P") else "{0:02d}"
    lines = [f"n0:77:77 [0] NCCL INFO Channel {number.format(one)} : 0[0] -> 1[1] via {did}"
             for one in range(draw.choice((2, 16, 24)))]  # fmt: skip
    return Planted("channels", requested, held, case, env, lines)


def policy(draw: random.Random, held: bool) -> Planted:
    """Collectives without thread blocks: by copies, or by a kernel all the same."""
    case = make_case("ccl", "allgather", draw.choice((4, 64)) * MIB, (0, 1, 2, 3), variant="zero_cta")
    head = f"n0:77:77 [0] NCCL INFO AllGather{{}}: {case.size} Bytes -> "
    way = head.format(" [Copy Engine]") + draw.choice(("cudaMemcpy", "cudaMemcpy; CE synchronization with NVLS"))
    if not held:
        kernel = head.format(" [Symmetric]") + "Kernel AllGather_ST nchannels 8 nthreads 512 nWorks 1"
        way = draw.choice((head.format("") + "Algo RING proto SIMPLE channel{Lo..Hi}={0..15}", kernel))
    return Planted("policy", "CTA policy zero", held, case, {}, [way])


def pages(draw: random.Random, held: bool) -> Planted:
    """Pages of host buffers by the kernel's lists: huge ones, or of a NUMA node."""
    huge, node, size = draw.random() < 0.5, draw.choice((0, 1, 3)), draw.choice((4, 64)) * MIB
    given = draw.uniform(0.95, 1.0) if held else draw.choice((0.0, 0.5, draw.uniform(0.0, 0.8)))
    words = ("huge_requested", "huge_given") if huge else (f"node_requested {node}", f"node_given {node}")
    dimensions: dict[str, Any] = {"huge_pages": True} if huge else {draw.choice(("source_node", "target_node")): node}
    case = make_case(draw.choice(("staging", "copy_engine")), "unidirectional", size, (0, 1), source_memory="pinned",
                     **dimensions)  # fmt: skip
    requested = "huge_pages" if huge else f"memory of NUMA node {node}"
    found = {(rank, name): size * share for rank in (0, 1) for name, share in zip(words, (1.0, given), strict=True)}
    return Planted("pages", requested, held, case, pages=found)


KINDS: dict[str, Callable[[random.Random, bool], Planted]] = {
    "nccl": nccl, "cards": cards, "paths": paths, "channels": channels, "policy": policy, "pages": pages,
}  # fmt: skip


def stored(planted: Planted, path: Path) -> Path:
    """The run folder of a planted case."""
    case, ranks = planted.case, len(planted.case.devices)
    parts = [str(device) for device in case.devices]
    payload = must_cross(case, parts) * OPERATIONS
    rows = [
        {"rank": rank, "subject": subject, "moment": moment, "when_ns": int(moment == "after"),
         "name": name, "unit": "B",
         "value": 4096.0 + (share * payload if moment == "after" else 0.0)}
        for (rank, subject, name), share in planted.grown.items() for moment in ("before", "after")
    ]  # fmt: skip
    rows += [
        {"rank": rank, "subject": host_pages.SUBJECT, "moment": "after", "when_ns": 0, "name": name, "unit": "B",
         "value": value} for (rank, name), value in planted.pages.items()
    ]  # fmt: skip
    said = [*nccl_log.choices(planted.log, case.pattern), *nccl_log.connected(planted.log)]
    log = [{"rank": 0, "subject": nccl_log.SUBJECT, "moment": "after", "when_ns": 0, "name": one.name,
            "value": one.value, "unit": one.unit} for one in said]  # fmt: skip
    launch = {"launch_key": "0" * 16, "mpi": {"name": "MPICH", "version": "5.0.2"}, "env": dict(planted.env)}
    return make_run(path, cases=[case], samples=SAMPLES, time_ns=lambda _: 1e5, hosts=planted.hosts[:ranks],
                    info=planted.info, launches=[launch], observations=[*rows, *log],
                    evidence=nccl_log.chosen(log))  # fmt: skip


def drawn(kind: str, seed: int, held: bool) -> Planted:
    """The planted case of a kind and a seed."""
    return KINDS[kind](random.Random(f"{kind} {seed} {held}"), held)
