"""What is handed out of a proved setting: lines for shells, batch systems and launchers, and libraries' own files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError
from linkgauge.files import write_atomically
from linkgauge.model.case import Case
from linkgauge.run.launchers.base import Launcher

FOLDER = "tuned"
"""The folder of a run folder in which it lies."""
PAGE, ANSWER = "page.txt", "tuned.json"
_EXPORTS = ("export.sh", "slurm.txt", "launcher.txt", "ucx.conf", "openmpi-mca-params.conf", "nccl_tuner.csv")

# NCCL's example of a tuner plug-in (plugins/tuner/example): its header and its words. -1: NCCL's own choice.
_TUNER_HEAD = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
_TUNER_COLLECTIVES = {
    "allreduce": "allreduce", "allgather": "allgather", "reduce_scatter": "reducescatter", "broadcast": "broadcast",
    "reduce": "reduce",
}  # fmt: skip
_TUNER_ALGORITHMS = {
    "ring": "ring", "tree": "tree", "nvls": "nvls", "nvlstree": "nvls_tree", "collnetdirect": "collnet_direct",
    "collnetchain": "collnet_chain",
}  # fmt: skip


def withdraw(folder: Path) -> None:
    """Take back what was handed out there, what is to be exported first; a user's own files stay.

    EnvironmentLackingError where one cannot be removed.
    """
    for name in (*_EXPORTS, ANSWER, PAGE):
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise EnvironmentLackingError(f"cannot remove {folder / name}: {error.strerror}") from None


def hand_out(folder: Path, found: Mapping[str, str]) -> None:
    """Write files by name, none of an earlier answer beside them.

    What is to be exported comes last: it never lies beside a page that does not prove it.
    """
    folder.mkdir(exist_ok=True)
    withdraw(folder)
    for name in sorted(found, key=lambda name: name in _EXPORTS):
        write_atomically(folder / name, found[name].encode())


def files(environment: Mapping[str, str], cases: Sequence[Case], launcher_kind: str, nodes: int) -> dict[str, str]:
    """Texts by file name; those of libraries only where a variable is theirs."""
    names = sorted(environment)
    quoted = [f"{name}={shlex.quote(environment[name])}" for name in names]
    found = {
        "export.sh": "".join(f"export {one}\n" for one in quoted),
        "slurm.txt": f"#SBATCH --export=ALL,{','.join(f'{name}={environment[name]}' for name in names)}\n"
        if not any("," in environment[name] for name in names)
        else "".join(f"export {one}\n" for one in quoted) + "#SBATCH --export=ALL\n",
        "launcher.txt": Launcher.registry[launcher_kind].exporting(dict(sorted(environment.items()))) + "\n",
    }
    ucx = [name for name in names if name.startswith("UCX_")]
    if ucx:
        found["ucx.conf"] = "".join(f"{name}={environment[name]}\n" for name in ucx)
    mca = [name for name in names if name.startswith("OMPI_MCA_")]
    if mca:
        found["openmpi-mca-params.conf"] = "".join(
            f"{name.removeprefix('OMPI_MCA_')} = {environment[name]}\n" for name in mca
        )
    if any(name.startswith("NCCL_") for name in names) and (rows := tuner_rows(environment, cases, nodes)):
        found["nccl_tuner.csv"] = "\n".join([_TUNER_HEAD, *rows]) + "\n"
    return found


def tuner_rows(environment: Mapping[str, str], cases: Sequence[Case], nodes: int) -> list[str]:
    """Rows of NCCL's tuner table, one a collective over its sizes; none where it has no word for what is set.

    Only algorithm, protocol and a fixed number of channels can be said there.
    """
    algorithm = environment.get("NCCL_ALGO", "")
    protocol = environment.get("NCCL_PROTO", "").lower()
    low, high = environment.get("NCCL_MIN_CTAS", ""), environment.get("NCCL_MAX_CTAS", "")
    channels = low if low and low == high else "-1"
    if {*environment} - {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"}:
        return []
    if (algorithm and algorithm.lower() not in _TUNER_ALGORITHMS) or ((low or high) and channels == "-1"):
        return []
    rows = []
    for pattern in dict.fromkeys(case.pattern for case in cases):
        if pattern in _TUNER_COLLECTIVES and algorithm and protocol:
            some = [case for case in cases if case.pattern == pattern]
            sizes = [case.size for case in some]
            words = (_TUNER_ALGORITHMS[algorithm.lower()], protocol, channels, nodes, some[0].ranks, -1, -1)
            rows.append(",".join(map(str, (_TUNER_COLLECTIVES[pattern], min(sizes), max(sizes), *words))))
    return rows
