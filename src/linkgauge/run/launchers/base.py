"""What every launcher is: how a family is told to start ranks, how it is known, and how it says that a rank died.

A family is one file of this folder with one class, which registers itself. Every launcher gives the same two things:
the command line, and the environment that keeps what the MPI library writes inside the launch's private folders. Our
ranks bind themselves to cores (worker), so launchers are told not to; peers' programs are started by the same words,
and bound by the launcher where that is asked.
"""

from __future__ import annotations

import abc
import dataclasses
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from linkgauge.run.machine.environment import usable_environment
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.private_folder import LaunchFolders

# What batch systems (PBS, LSF, Grid Engine) and users say of hosts to any MPI library's launcher.
_HOST_VARIABLES = ("PBS_NODEFILE", "LSB_MCPU_HOSTS", "PE_HOSTFILE", "HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile")


@dataclasses.dataclass(frozen=True)
class LaunchRequest:
    """What is to be started: so many ranks of a command, with this environment, in these folders.

    `folders`: None where the library's own places are left as they are. `bind`: `none`, or `core` for a core of its own
    for each rank. `hosts`: the nodes, each of which gets as many ranks, one node after the other; none: the launcher's
    own choice. `others_stay`: where the launcher can, it does not end the other ranks when one has died: which that was
    can then be known. `beside`: other launches of the same job go on at the same time, on the same nodes.
    """

    ranks: int
    command: Sequence[str]
    env: Mapping[str, str]
    folders: LaunchFolders | None = None
    launcher_args: Sequence[str] = ()
    bind: str = "none"  # none | core
    hosts: Sequence[str] = ()
    others_stay: bool = False
    beside: bool = False

    @property
    def ranks_on_each(self) -> int:
        """Ranks on each of the hosts."""
        return self.ranks // max(len(self.hosts), 1)


@dataclasses.dataclass(frozen=True)
class NodeShell:
    """By what words for a shell run on one node by itself: ssh, or a step of a batch system's job."""

    words: tuple[str, ...]  # up to the node
    option: str = ""  # that the node is the value of; none: it is a word of its own
    of_job: bool = False  # a step may have to wait or be refused for the job's sake: that says nothing of the node

    def command(self, host: str, script: str) -> list[str]:
        """Return the command line that runs a script on a node."""
        if self.option:
            return [*self.words, f"{self.option}={host}", "sh", "-c", script]
        return [*self.words, host, script]


class Launcher(abc.ABC):
    """One family of launchers. Registered under `kind`. Patterns are regular expressions."""

    kind: ClassVar[str]
    registry: ClassVar[dict[str, type[Launcher]]] = {}
    word: ClassVar[str] = ""  # its usual program, as messages name it
    says: ClassVar[str] = ""  # what its --version says in small letters; the name decides nothing where all have one
    programs: ClassVar[tuple[str, ...]] = ()  # names that decide
    job_variable: ClassVar[str] = ""  # that is set in a job of the batch system whose program starts ranks
    starts: ClassVar[tuple[str, ...]] = ()  # vendors of libraries whose own launcher it is; none: starts any
    host_options: ClassVar[tuple[str, ...]] = ()  # by which it is told of hosts
    rank_variables: ClassVar[tuple[str, ...]] = ()  # in which a process that it has started finds its rank
    signal_patterns: ClassVar[tuple[str, ...]] = ()  # how it says that a rank died of a signal: the number
    signal_names_pattern: ClassVar[str] = ""  # or its name, as strsignal has it
    status_patterns: ClassVar[tuple[str, ...]] = ()  # with what status one ended
    pid_pattern: ClassVar[str] = ""  # of which process it tells
    rank_pattern: ClassVar[str] = ""  # of which rank
    node_pattern: ClassVar[str] = ""  # how it says that it has lost a node: the name
    fatal_statuses: ClassVar[tuple[int, ...]] = ()  # its own, that are also numbers of signals that a rank died of
    meanings: ClassVar[tuple[tuple[str, str], ...]] = ()  # of words about its own insides: what they mean to a reader

    def __init_subclass__(cls) -> None:
        """Register the family."""
        Launcher.registry[cls.kind] = cls

    def __init__(self, mpi: MpiInstallation | None) -> None:
        """Take the installation whose launcher is used; None for a single process without MPI."""
        self.mpi = mpi

    @abc.abstractmethod
    def command(self, request: LaunchRequest) -> list[str]:
        """Return the command line that starts the ranks."""

    def environment(self, request: LaunchRequest) -> dict[str, str]:
        """Return the variables of this family's own: where its files go, what it refuses without."""
        return {}

    @classmethod
    def exporting(cls, environment: Mapping[str, str]) -> str:
        """Return how a shell has it start ranks with these variables, up to the words for the ranks themselves."""
        return " ".join(["env", *(f"{name}={shlex.quote(value)}" for name, value in environment.items()), cls.word])

    def may_leave(self, launcher_args: Sequence[str]) -> bool:
        """Whether ranks may be started on other nodes than this one: hosts are named, or a batch system gave some."""
        if any(word.partition("=")[0] in self.host_options for word in launcher_args):
            return True
        known = usable_environment()
        if "SLURM_JOB_ID" in known:  # its daemon names the node of what it has started
            return known.get("SLURM_JOB_NUM_NODES") != "1" or "SLURMD_NODENAME" not in known
        return any(name in known for name in _HOST_VARIABLES)

    def remote_shell(self, launcher_args: Sequence[str]) -> list[str] | None:
        """Return by what it starts its part on other nodes, a program that is called as ssh is.

        None where a batch system does that, or the user has it do so in a way of its own.
        """
        return None

    def node_shell(self, launcher_args: Sequence[str]) -> NodeShell | None:
        """Return by what a node of the run is looked at: its remote shell, else a step of the job; None without both.

        Words of `launcher_args` are for the steps of their own launcher alone.
        """
        shell = self.remote_shell(launcher_args)
        if shell is not None:
            return NodeShell((*shell, *(_SSH if Path(shell[0]).name == "ssh" else ())))
        steps = (one.job_step(launcher_args if isinstance(self, one) else ()) for one in Launcher.registry.values())
        return next((step for step in steps if step is not None), None)

    @classmethod
    def job_step(cls, launcher_args: Sequence[str]) -> NodeShell | None:
        """Return how the family starts a step on one node of its job; None where this process is in none of its."""
        return None

    @classmethod
    def hosts_of_job(cls) -> tuple[str, ...] | None:
        """Return the nodes of the batch system's job that this process is in; None where it is in none of its."""
        return None

    @classmethod
    def job_is_over(cls) -> bool:
        """Whether the batch system's job that this process is in has ended under it; False where nobody says so."""
        return False

    @classmethod
    def in_allocation(cls) -> Path | None:
        """Return the program where a batch system's allocation is there to start ranks in."""
        program = shutil.which(cls.programs[0]) if cls.job_variable in os.environ else None
        return None if program is None else Path(program)

    @classmethod
    def rank_in(cls, environment: Mapping[str, str]) -> str | None:
        """Return the rank of a process with this environment that the family has started; None where it has not."""
        return next((environment[name] for name in cls.rank_variables if name in environment), None)

    def node_told_of(self, output: Sequence[str]) -> str:
        """Return the node that the lines of its output say is lost; empty where they name none."""
        found = re.search(self.node_pattern, "\n".join(output)) if self.node_pattern else None
        return found[1] if found else ""

    def plain(self, words: str) -> str:
        """Return a line of its output as a reader needs it."""
        return next((meaning for pattern, meaning in self.meanings if re.search(pattern, words)), words)

    def failed_by_chance(self, output: Sequence[str]) -> bool:
        """Whether the lines of its output tell of a failure that the same start may well not have again."""
        return False


_SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=6", "-o", "ConnectionAttempts=1")
_JOBS = ("SLURM_JOB_ID", "PBS_NODEFILE", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "FLUX_URI")


def ssh_unless(launcher_args: Sequence[str], options: Sequence[str], own: Sequence[str], programs: Sequence[str],
               ) -> list[str] | None:  # fmt: skip
    """Return ssh, or what one of the variables `programs` names; None in a job, or where another way is set.

    `options`: what words of the command line begin with by which it is set; `own`: names of variables likewise.
    """
    known = usable_environment()
    told = any(word.startswith(tuple(options)) for word in launcher_args)
    program = next((known[name] for name in programs if name in known), "ssh")
    others = [name for name in known if name.startswith(tuple(own)) and name not in programs and known[name] != "ssh"]
    if told or others or any(name in known for name in _JOBS):
        return None
    words = shlex.split(program)
    return words if words and shutil.which(words[0]) else None


class Single(Launcher):
    """Threads mode: one process, no MPI."""

    kind = "single"

    def command(self, request: LaunchRequest) -> list[str]:
        """Return the worker's command itself."""
        return list(request.command)


# Sonames that mpi4py's variants ask the loader for.
_SONAMES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}


def library_environment(mpi: MpiInstallation, folder: Path) -> dict[str, str]:
    """Make workers load exactly this library: MPI4PY_LIBMPI, and a link of the expected name where it has another.

    Debian's MPICH is libmpich.so.12 where mpi4py's variant wants libmpi.so.12; the link lies in `folder`.
    """
    expected = _SONAMES.get(mpi.abi)
    if expected is None or mpi.library.name == expected:
        return {"MPI4PY_LIBMPI": str(mpi.library)}
    links = folder / "lib"
    links.mkdir(exist_ok=True)
    link = links / expected
    link.symlink_to(mpi.library)
    before = os.environ.get("LD_LIBRARY_PATH", "")
    return {"MPI4PY_LIBMPI": str(link), "LD_LIBRARY_PATH": f"{links}:{before}" if before else str(links)}
