"""The nodes that `--hosts` and `--nodes` ask for, by name and in their order."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from linkgauge.errors import UsageError, brief
from linkgauge.files import read_file
from linkgauge.model.names import MOST_HOSTS, host_names, host_parts
from linkgauge.run.launchers import FAMILIES

_MOST_BYTES = 1 << 24
_BLANKS = re.compile(r"\s*,\s*")
# Batch systems without a launcher of their own here: whatever starts the ranks is told of these hosts.
_HOST_FILES = {"PBS": "PBS_NODEFILE", "LSF": "LSB_DJOB_HOSTFILE", "Grid Engine": "PE_HOSTFILE"}


def asked_hosts(nodes: str | None, hosts: str | None) -> tuple[str, ...]:
    """The run's nodes; none where neither `--nodes` nor `--hosts` is given. UsageError for what cannot be had."""
    if nodes is None and hosts is None:
        return ()
    wanted = None if nodes in (None, "all") else _count(str(nodes))
    if hosts is not None:
        known, where = _named(hosts), "--hosts"
    else:
        found = hosts_of_job()
        if found is None:
            raise UsageError(
                f"--nodes {nodes}: this is no job of Slurm, PBS, LSF, Grid Engine or Flux (a run that measures starts "
                "one where salloc is): name the nodes by --hosts a,b or --hosts FILE"
            )
        known, where = found[0], f"this {found[1]} job"
    if wanted is not None and wanted > len(known):
        raise UsageError(f"--nodes {nodes}: {where} has {len(known)}: {', '.join(known[:8])}; expected at most as many")
    return known[:wanted]


def hosts_of_job() -> tuple[tuple[str, ...], str] | None:
    """The nodes of the batch system's job that this process is in, and the system's name; None where it is in none."""
    for one in FAMILIES:
        hosts = one.hosts_of_job()
        if hosts:
            return hosts, {"srun": "Slurm", "flux": "Flux"}.get(one.kind, one.kind)
    for name, variable in _HOST_FILES.items():
        if variable in os.environ:
            return _of_file(Path(os.environ[variable]), variable), name
    return None


def starts_allocation(nodes: str | None, hosts: str | None, environment: Mapping[str, str]) -> list[str]:
    """What to put before this command to have the nodes that `--nodes N` asks for: salloc, outside of any job.

    Empty where the nodes are there already, or nothing is here that gives some.
    """
    if nodes is None or hosts is not None or "SLURM_JOB_ID" in environment or hosts_of_job() is not None:
        return []
    program = shutil.which("salloc")
    if program is None:
        return []
    if nodes == "all":
        raise UsageError("--nodes all: outside of a job it is not known how many: give a number, as --nodes 2")
    return [program, f"--nodes={_count(nodes)}", "--ntasks-per-node=1", "--exclusive"]


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) < 1:
        raise UsageError(f"--nodes '{text}': expected a number of nodes, or all")
    return int(text)


def _named(text: str) -> tuple[str, ...]:
    path = Path(text).expanduser()
    if os.path.isfile(path):  # not Path's own: a list of a hundred names is too long for a file's, which it raises
        return _of_file(path, "--hosts")
    if "/" in text:
        raise UsageError(f"--hosts '{text}': no such file: expected names as a,b or a file with a host a line")
    try:
        listed = [name for part in host_parts(_BLANKS.sub(",", text.strip())) for name in host_names(part)]
    except UsageError as error:
        raise UsageError(f"--hosts: {error}") from None
    if not listed:
        raise UsageError("--hosts '': expected names as a,b or a file with a host a line")
    twice = sorted(name for name, count in Counter(listed).items() if count > 1)
    if twice:
        raise UsageError(f"--hosts '{brief(text)}' names {twice[0]} twice: expected each node once; --devices host:2 "
                         "gives a node two ranks")  # fmt: skip
    return tuple(listed)


def _of_file(path: Path, what: str) -> tuple[str, ...]:
    """The first word of each line, each once; `host:4` and `host slots=4` name a host, # begins a comment."""
    text = read_file(path, _MOST_BYTES, f"a file with a host a line ({what})").decode(errors="replace")
    found: dict[str, None] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            try:
                found |= dict.fromkeys(host_names(words[0].partition(":")[0]))
            except UsageError as error:
                raise UsageError(f"{what} '{path}': {error}") from None
        if len(found) > MOST_HOSTS:
            raise UsageError(f"{what} '{path}' names more than {MOST_HOSTS} hosts: expected fewer")
    if not found:
        raise UsageError(f"{what} '{path}' names no host: expected one a line")
    return tuple(found)
