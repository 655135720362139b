"""How often a planted no-op is named, and what held is accused: drawn run folders, and real libraries of this machine.

    PYTHONPATH=src python bench/requested.py --seeds 0:24 --real mpich,openmpi,ucx --out found.jsonl

Drawn ones are those of tests/planted_requests.py: NCCL's log, bytes of cards, bytes of NVLinks. Of a real library one
launch has all of its variables at once: half are its own with a value that it takes, half are misspelled, another
library's, or values that it does not take. A line of JSON each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

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


def no_ops(own: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    """As many variables that this library has not: its own, misspelled in four ways, and another's."""
    wrong: dict[str, str] = {}
    for place, (name, value) in enumerate(own.items()):
        head, _, last = name.rpartition("_")
        foreign = list(others)[place]
        wrong |= [{f"{name}S": value}, {f"{head}_{last[:-1]}": value}, {f"{head}_THE_{last}": value},
                  {f"{name}_X": value}, {foreign: others[foreign]}][place % 5]  # fmt: skip
    return wrong


def real(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Plant into one real launch of a library what it takes, and into another one what it does not."""
    from linkgauge.findings.read import system_of
    from linkgauge.stats.requested import requests_of
    from linkgauge.store.run import load

    own, words = REAL[name]
    wrong = no_ops(own, OPENMPI if name == "mpich" else MPICH)
    for held, variables in ((True, own), (False, wrong)):
        out = folder / f"{name}-{held}"
        env = [word for one in variables.items() for word in ("--env", "=".join(one).replace(",", "\\,"))]
        command = [sys.executable, "-m", "linkgauge", "run", *words, "--ranks", "2", "--pattern", "pingpong",
                   "--size", "64KiB", "--source-memory", "pinned", "--target-memory", "pinned", "--stop-rule", "count",
                   "--stop-samples", "5", "--no-report", "--out", str(out), *env]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "src")})  # fmt: skip
        run = load(out)
        found = {one.requested: one for verdicts in requests_of(run, system_of(run)).values() for one in verdicts}
        if not found:
            print(done.stdout, done.stderr, [(row.status, row.reason) for row in run.rows()], file=sys.stderr)
        library = next((launch.mpi_name for launch in run.launched), "")
        for variable, value in variables.items():
            one = found.get(f"{variable}={value}")
            yield {"kind": f"{name} ({library})", "requested": f"{variable}={value}", "held": held,
                   "state": one.state if one else "none", "evidence": one.evidence if one else ""}  # fmt: skip


def drawn_ones(seeds: range, folder: Path) -> Iterator[dict[str, Any]]:
    """Judge drawn run folders, one that held and one no-op for each kind and seed."""
    from linkgauge.findings.read import system_of
    from linkgauge.stats.requested import requests_of
    from linkgauge.store.run import load
    from planted_requests import KINDS, drawn, stored

    for kind in KINDS:
        for seed in seeds:
            for held in (True, False):
                planted = drawn(kind, seed, held)
                run = load(stored(planted, folder / f"{kind}-{seed}-{held}"))
                verdicts = [one for each in requests_of(run, system_of(run)).values() for one in each]
                (one,) = [one for one in verdicts if one.requested == planted.requested]
                yield {"kind": kind, "seed": seed, "requested": planted.requested, "held": held, "state": one.state,
                       "evidence": one.evidence}  # fmt: skip


def main() -> None:
    """Print for each kind how many no-ops were named and how much that held was accused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:20", help="first and behind the last seed of drawn run folders")
    parser.add_argument("--real", default="", help="of mpich, openmpi, ucx, by commas")
    parser.add_argument("--out", type=Path, help="file of JSON lines")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [*drawn_ones(range(*map(int, given.seeds.split(":"))), Path(folder))]
        for name in filter(None, given.real.split(",")):
            found += real(name, Path(folder))
    if given.out is not None:
        given.out.write_text("".join(json.dumps(one) + "\n" for one in found))
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
