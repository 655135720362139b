"""How often a planted no-op is named, and what held is accused: drawn run folders, and real libraries of this machine.

    .venv/bin/python bench/requested.py --seeds 0:24 --real mpich,openmpi,ucx --out found.jsonl
    .venv/bin/python bench/requested.py --seeds 0:0 --gpus --out found.jsonl       # two NVIDIA GPUs, NVLink

Drawn ones are those of tests/planted_requests.py: NCCL's log, bytes of cards, bytes of NVLinks. Of a real library one
launch has all of its variables at once: half are its own with a value that it takes, half are misspelled, another
library's, or values that it does not take. On GPUs some values are such as NCCL reads and does not understand, and some
contradict each other, of which NCCL's source says which one it follows. A line of JSON each.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benching import PROGRAM, options, seeds, write_lines
from linkgauge.findings.read import system_of
from linkgauge.stats.requested import requests_of
from linkgauge.store.run import load
from planted_requests import KINDS, drawn, stored

MPICH = {
    "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recursive_doubling", "MPIR_CVAR_BCAST_INTRA_ALGORITHM": "binomial",
    "MPIR_CVAR_ALLGATHER_INTRA_ALGORITHM": "ring", "MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE": "4096",
    "MPIR_CVAR_BCAST_SHORT_MSG_SIZE": "65536", "MPIR_CVAR_BCAST_MIN_PROCS": "4",
    "MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE": "128", "MPIR_CVAR_REDUCE_SHORT_MSG_SIZE": "1024",
    "MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE": "262144", "MPIR_CVAR_GATHER_INTER_SHORT_MSG_SIZE": "1024",
}  # fmt: skip
OPENMPI = {
    "OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": "3",
    "OMPI_MCA_coll_tuned_bcast_algorithm": "6", "OMPI_MCA_coll_tuned_allgather_algorithm": "4",
    "OMPI_MCA_coll_tuned_alltoall_algorithm": "2", "OMPI_MCA_coll_tuned_reduce_algorithm": "4",
    "OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize": "65536",
    "OMPI_MCA_coll_tuned_bcast_algorithm_segmentsize": "8192",
    "OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_leave_pinned": "1",
}  # fmt: skip
UCX = {
    "UCX_TLS": "self,sm,tcp", "UCX_RNDV_THRESH": "8192", "UCX_ZCOPY_THRESH": "16384", "UCX_MAX_RNDV_RAILS": "1",
    "UCX_RNDV_SCHEME": "put_zcopy", "UCX_BCOPY_THRESH": "1024", "UCX_TCP_TX_SEG_SIZE": "16384",
    "UCX_MM_FIFO_SIZE": "128", "UCX_MAX_EAGER_RAILS": "1", "UCX_PROTO_ENABLE": "y",
}  # fmt: skip
REAL = {"mpich": (MPICH, ("--transport", "mpi", "--mpi", "mpich")),
        "openmpi": (OPENMPI, ("--transport", "mpi", "--mpi", "openmpi")),
        "ucx": (UCX, ("--transport", "ucx", "--mpi", "mpich"))}  # fmt: skip


NCCL = ("--transport", "nccl", "--pattern", "unidirectional,allreduce", "--pairs", "first", "--size", "64MiB",
        "--buffer", "plain", "--library-choices")  # fmt: skip
SYMMETRIC = ("--transport", "nccl", "--pattern", "allreduce", "--size", "64MiB", "--buffer", "symmetric",
             "--library-choices")  # fmt: skip
OURS = ("--transport", "copy_engine,kernel", "--pattern", "unidirectional", "--pairs", "first", "--size", "64MiB")
UCX_ON_GPUS = ("--transport", "ucx", "--pattern", "unidirectional", "--pairs", "first", "--size", "64MiB")
_ENV = re.compile(r"[A-Za-z]\w+=")
ON_GPUS: dict[str, tuple[tuple[str, ...], dict[str, bool]]] = {
    "nccl ring": ((*NCCL, "--path", "direct"), {
        "NCCL_ALGO=Ring": True, "NCCL_PROTO=Simple": True, "NCCL_MAX_NCHANNELS=8": True, "NCCL_BUFFSIZE=8388608": True,
        "path direct": True}),
    "nccl tree": (NCCL, {"NCCL_ALGO=Tree": True, "NCCL_PROTO=LL128": True, "NCCL_MIN_NCHANNELS=8": True,
                         "NCCL_NVLS_ENABLE=0": True, "NCCL_P2P_USE_CUDA_MEMCPY=0": True}),
    "nccl host": (NCCL, {"NCCL_P2P_DISABLE=1": True, "NCCL_PROTO=LL": True, "NCCL_MAX_CTAS=4": True}),
    "nccl path host": ((*NCCL, "--path", "host"), {"path host": True, "NCCL_NTHREADS=256": True}),
    "nccl level": (NCCL, {"NCCL_P2P_LEVEL=LOC": True, "NCCL_SHM_USE_CUDA_MEMCPY=0": True, "NCCL_ALGO=^Tree": True}),
    "nccl copies": (NCCL, {"NCCL_P2P_USE_CUDA_MEMCPY=1": True, "NCCL_SHM_DISABLE=1": True}),
    "nccl names": (NCCL, {
        "NCCL_TYPO_X=1": False, "NCCL_MAXCHANNELS=8": False, "NCCL_PROTOCOL=LL": False, "NCCL_ALGORITHM=Tree": False,
        "NCCL_DISABLE_P2P=1": False, "UCX_TLS=self": False, "FI_PROVIDER=tcp": False, "OMPI_MCA_pml=ob1": False,
        "NVSHMEM_DISABLE_P2P=1": False, "MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD=0": False}),
    # With NCCL_BUFFSIZE=8M, which it reads as 8, NCCL 2.28.9 dies of SIGFPE.
    "nccl words": (NCCL, {"NCCL_P2P_DISABLE=true": False}),
    # NCCL applies the greatest number of channels first, then the least.
    "nccl both": (NCCL, {"NCCL_P2P_DISABLE=1": True, "NCCL_P2P_LEVEL=SYS": False, "NCCL_MAX_NCHANNELS=4": False,
                         "NCCL_MIN_NCHANNELS=16": True}),
    # Kernels of symmetric memory follow none of these but the last.
    "nccl symmetric": (SYMMETRIC, {"NCCL_ALGO=Ring": False, "NCCL_PROTO=LL": False, "NCCL_P2P_DISABLE=1": False,
                                   "NCCL_MIN_NCHANNELS=16": False, "NCCL_NVLS_ENABLE=0": True}),
    "nccl symmetric path": ((*SYMMETRIC, "--path", "host"), {"path host": False}),
    "our own": ((*OURS, "--no-peer-access", "--threads"), {"--peer-access off": True}),
    "no library": ((*OURS, "--bind", "0:1"), {
        "--bind 0:1": True, "NCCL_P2P_DISABLE=1": False, "NCCL_ALGO=Ring": False, "UCX_TLS=self,sm": False}),
    "ucx around": (UCX_ON_GPUS, {"UCX_TLS=self,sm,cuda_copy": True, "UCX_RNDV_THRESH=8192": True,
                                 "UCX_MAX_RNDV_RAILS=1": True}),
    "ucx names": (UCX_ON_GPUS, {"UCX_TSL=self,sm": False, "UCX_RNDV_TRESH=8192": False, "UCX_CUDA_IPC=n": False,
                                "NCCL_ALGO=Ring": False}),
}  # fmt: skip
"""By name the words of a run, and its requests with whether each is to hold."""


def no_ops(own: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    """As many variables that this library has not: its own, misspelled in four ways, and another's."""
    wrong: dict[str, str] = {}
    for place, (name, value) in enumerate(own.items()):
        head, _, last = name.rpartition("_")
        foreign = list(others)[place]
        wrong |= [{f"{name}S": value}, {f"{head}_{last[:-1]}": value}, {f"{head}_THE_{last}": value},
                  {f"{name}_X": value}, {foreign: others[foreign]}][place % 5]  # fmt: skip
    return wrong


def judged(kind: str, words: Iterable[str], requests: Mapping[str, bool], out: Path) -> Iterator[dict[str, Any]]:
    """Launch once with these requests, and judge each of them."""
    variables = (one for one in requests if _ENV.match(one))
    env = [word for one in variables for word in ("--env", one.replace(",", "\\,"))]
    command = [*PROGRAM, "run", *words, "--ranks", "2", "--stop-rule", "count", "--stop-samples",
               "5", "--no-report", "--out", str(out), *env]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except subprocess.TimeoutExpired as error:
        done = subprocess.CompletedProcess(command, -1, str(error.stdout), str(error.stderr))
    run = load(out) if (out / "run.json").exists() else None
    found: dict[str, set[str]] = {}
    evidence: dict[str, list[str]] = {}
    for verdicts in requests_of(run, system_of(run)).values() if run is not None else ():
        for one in verdicts:
            found.setdefault(one.requested, set()).add(one.state)
            evidence.setdefault(one.requested, []).append(one.evidence)
    if not found:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
    if run is not None:
        print([(row.transport, row.status, row.reason) for row in run.rows() if row.status != "ok"], file=sys.stderr)
    library = next((launch.mpi_name for launch in run.launched), "") if run is not None else ""
    for request, held in requests.items():
        states = found.get(request, {"none"})
        state = next(one for one in ("not_held", "held", "unknown", "none") if one in states)
        yield {"kind": f"{kind} ({library})", "requested": request, "held": held, "state": state,
               "evidence": "; ".join(dict.fromkeys(evidence.get(request, ())))}  # fmt: skip


def real(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Plant into one real launch of a library what it takes, and into another one what it does not.

    Pages: of private mappings the kernel gives huge ones here, of shared ones (`device` of host devices) it does not.
    """
    if name == "pages":
        for held, kind in ((True, "pageable"), (False, "device")):
            where = ("--devices", "host", "--source-memory", kind, "--target-memory", kind, "--huge-pages", "yes")
            words = ("--transport", "copy_engine", "--threads", "--pattern", "unidirectional", "--size", "64MiB")
            yield from judged(name, (*words, *where), {"huge_pages": held}, folder / f"{name}-{held}")
        return
    own, words = REAL[name]
    size = ("--pattern", "pingpong", "--size", "64KiB", "--source-memory", "pinned", "--target-memory", "pinned")
    for held, variables in ((True, own), (False, no_ops(own, OPENMPI if name == "mpich" else MPICH))):
        requests = {f"{variable}={value}": held for variable, value in variables.items()}
        yield from judged(name, (*words, *size), requests, folder / f"{name}-{held}")


def drawn_ones(chosen: range, folder: Path) -> Iterator[dict[str, Any]]:
    """Judge drawn run folders, one that held and one no-op for each kind and seed."""
    for kind in KINDS:
        for seed in chosen:
            for held in (True, False):
                planted = drawn(kind, seed, held)
                run = load(stored(planted, folder / f"{kind}-{seed}-{held}"))
                verdicts = [one for each in requests_of(run, system_of(run)).values() for one in each]
                (one,) = [one for one in verdicts if one.requested == planted.requested]
                yield {"kind": kind, "seed": seed, "requested": planted.requested, "held": held, "state": one.state,
                       "evidence": one.evidence}  # fmt: skip


def main() -> None:
    """Print for each kind how many no-ops were named and how much that held was accused."""
    parser = options(__doc__)
    parser.add_argument("--seeds", type=seeds, default="0:20", help="FIRST:END, of drawn run folders")
    parser.add_argument("--real", default="", help="of mpich, openmpi, ucx, pages, by commas")
    parser.add_argument(
        "--gpus",
        nargs="?",
        const=",".join(ON_GPUS),
        default="",
        help="on two GPUs; by commas some of " + ", ".join(ON_GPUS),
    )
    parser.add_argument("--runs", type=Path, help="folder in which run folders are kept")
    parser.add_argument("--out", type=Path, help="file of JSON lines")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [*drawn_ones(given.seeds, Path(folder))]
        for name in filter(None, given.real.split(",")):
            found += real(name, given.runs or Path(folder))
        for name in filter(None, given.gpus.split(",")):
            words, requests = ON_GPUS[name]
            found += judged(name, words, requests, (given.runs or Path(folder)) / name.replace(" ", "-"))
    write_lines(given.out, found)
    for kind in dict.fromkeys(one["kind"] for one in found):
        mine = [one for one in found if one["kind"] == kind]
        held, wrong = (Counter(one["state"] for one in mine if one["held"] == which) for which in (True, False))
        print(f"{kind}: named {wrong['not_held']} of {wrong.total()} no-ops; of {held.total()} that held "
              f"{held['not_held']} accused, {held['held']} proved")  # fmt: skip
        for one in mine:
            if one["held"] != (one["state"] == "held") or one["state"] == "none":
                print(f"  {one}")


if __name__ == "__main__":
    main()
