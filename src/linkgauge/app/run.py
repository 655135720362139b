"""`linkgauge run`: the command, and its options as they were typed."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from linkgauge.app import run_options
from linkgauge.app.command_line import PATH, command, flag, option
from linkgauge.app.nccl_options import nccl_options, with_nccl_options
from linkgauge.app.output import TABLE, output_options
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import Exit, UsageError
from linkgauge.model.case import DIMENSIONS
from linkgauge.model.quantity import parse_duration, parse_share
from linkgauge.plan.model import CHOICES, PAIRS, THREAD_LEVELS, Plan

_PLAN, _LAUNCH, _RUN = "What to measure", "How it is launched", "The run"
_MAX_FAILURES = 3


def refuse_ranks(environment: Mapping[str, str]) -> None:
    """UsageError on rank 0 where `linkgauge run` itself was started by mpirun or srun; other ranks end silently."""
    from linkgauge.run.launchers import started_by

    found = started_by(environment)
    if found is None:
        return
    launcher, rank = found
    if rank != "0":
        raise click.exceptions.Exit(2)
    raise UsageError(
        f"'linkgauge run' was started by {launcher}, but it starts the ranks itself: run it alone, without {launcher}"
    )


RUN_EXITS = (Exit.SOME_FAILED, Exit.NOTHING)


@command(
    "run", exits=RUN_EXITS, epilog="Example: linkgauge run --pattern pingpong --size 8:16MiB:x8 --transport mpi,kernel"
)
@option("--plan", metavar="NAME|FILE", panel=_PLAN, help="Plan: a name of 'linkgauge list plans', or a TOML file.")
@flag("--quick", panel=_PLAN, help="Take the plan quick: a few seconds.")
@flag("--full", panel=_PLAN, help="Take the plan full: an hour or more.")
@option("--pairs", metavar="WHICH", panel=_PLAN, help=f"Pairs to measure: {', '.join(PAIRS[:4])}, ...")
@option(
    "--placement",
    metavar="WHICH",
    panel=_PLAN,
    advanced=True,
    help="Devices that --ranks takes of more: " + ", ".join(CHOICES) + ".",
)
@option(
    "--class-weights",
    metavar="0=1,3=3",
    panel=_PLAN,
    advanced=True,
    help="Weights of the service classes at the network's ports, with --service-class.",
)
@option(
    "--max-size",
    metavar="SIZE",
    panel=_PLAN,
    advanced=True,
    help="Cap the plan's message sizes, for example 256KiB on slow links.",
)
@flag(
    "--swap-roles",
    panel=_PLAN,
    advanced=True,
    help="Measure each background load as well, with the case as its load.",
)
@flag(
    "--concurrent-pairs",
    panel=_PLAN,
    advanced=True,
    help="Measure disjoint pairs at the same time, on all devices at once.",
)
@option(
    "--library-choices/--no-library-choices",
    default=None,
    panel=_PLAN,
    advanced=True,
    help="Record what NCCL chose for each case, in untimed launches.",
)
@option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=NUMBER",
    panel=_PLAN,
    advanced=True,
    help="Parameter of --app (n=64, n=32*ranks), or a preset; repeatable.",
)
@option(
    "--from",
    "from_run",
    metavar="RUN",
    type=PATH,
    panel=_PLAN,
    advanced=True,
    help="Measure cases of this run again, into a new run.",
)
@option(
    "--cases", metavar="WHICH", multiple=True, panel=_PLAN, advanced=True, help="Cases of --from: failed, or case keys."
)
@option("--resume", metavar="RUN", type=PATH, panel=_PLAN, help="Resume a run that was interrupted.")
@option(
    "--retry",
    metavar="STATUSES",
    panel=_PLAN,
    advanced=True,
    help="Measure cases of these statuses again, such as failed,hung; with --resume.",
)
@flag("--force", panel=_PLAN, advanced=True, help="Resume even where the machine or a version changed.")
@option(
    "--devices",
    metavar="WHICH",
    default="auto",
    show_default=False,
    panel=_LAUNCH,
    help="Devices: auto (default), cuda, cuda:0,2, hip, host:4.",
)
@option(
    "--system",
    metavar="NAME|FILE",
    panel=_PLAN,
    advanced=True,
    help="System to judge by, in place of the discovered one; with --dry-run, to plan for.",
)
@flag("--threads", panel=_LAUNCH, help="Run the ranks as threads of one process, without MPI.")
@option(
    "--mpi",
    metavar="LIBRARY",
    multiple=True,
    panel=_LAUNCH,
    help="MPI prefix, mpiexec, or name of 'linkgauge list mpi'.",
)
@option(
    "--env",
    metavar="NAME=A,B",
    multiple=True,
    panel=_LAUNCH,
    help="Environment: a launch for each value; repeatable.",
)
@option(
    "--bind",
    metavar="CORES",
    panel=_LAUNCH,
    advanced=True,
    help="Cores of the ranks: nearest, none, or by rank 0-3:4-7.",
)
@option(
    "--peer-access/--no-peer-access",
    default=None,
    panel=_LAUNCH,
    advanced=True,
    help="Let devices access each other's memory directly, or not.",
)
@option(
    "--thread-level",
    metavar="LEVEL",
    panel=_LAUNCH,
    advanced=True,
    help="MPI thread level: single, funneled (default), serialized or multiple.",
)
@option(
    "--launcher-args", metavar="ARGUMENTS", panel=_LAUNCH, advanced=True, help="Arguments to add to mpiexec or srun."
)
@option("--nodes", metavar="NUMBER|all", panel=_LAUNCH, help="Number of nodes to use, of this job or of --hosts.")
@option(
    "--fabric",
    type=PATH,
    metavar="FILE",
    panel=_LAUNCH,
    advanced=True,
    help="Switches of the nodes: a topology.conf, or ibnetdiscover's output.",
)
@option(
    "--wait", metavar="TIME", panel=_LAUNCH, advanced=True, help="Time to wait for GPUs that another run uses: 10m."
)
@option("--hosts", metavar="A,B|FILE", panel=_LAUNCH, help="Nodes to measure, by name; ssh starts the ranks.")
@option(
    "--repeat",
    callback=run_options.whole(1),
    metavar="NUMBER",
    panel=_RUN,
    help="Repeat everything so many times, in fresh launches.",
)
@option(
    "--seed",
    callback=run_options.whole(0),
    metavar="NUMBER",
    panel=_RUN,
    advanced=True,
    help="Seed of the order of cases and of the data.",
)
@option("--out", metavar="FOLDER", type=PATH, panel=_RUN, help="Run folder to make; runs/DATE-TIME-PLAN by default.")
@option("--time-limit", metavar="TIME", panel=_RUN, help="End within this time, such as 10m.")
@option(
    "--memory-limit",
    metavar="SHARE",
    panel=_RUN,
    advanced=True,
    help="Share of free memory to use at most, or a size: 50%, 4GiB.",
)
@option(
    "--max-failures",
    callback=run_options.whole(1),
    default=str(_MAX_FAILURES),
    metavar="NUMBER",
    panel=_RUN,
    advanced=True,
    help="Skip the rest of a transport's cases after this many failures.",
)
@option(
    "--keep-going",
    metavar="nodes",
    panel=_RUN,
    advanced=True,
    help="Continue without nodes that do not answer; skip their cases.",
)
@option(
    "--with",
    "peers",
    multiple=True,
    metavar="PEER=FOLDER",
    panel=_RUN,
    advanced=True,
    help="Alternate with osu, nccl-tests or nvbandwidth afterwards; repeatable.",
)
@option("--report/--no-report", default=True, panel=_RUN, advanced=True, help="Make report.html in the run folder.")
@flag("--dry-run", panel=_RUN, help="Print the cases, skips and estimates; measure nothing.")
@output_options(" of the cases, with --dry-run", panel=_RUN, advanced=True)
@run_options.dimension_options
@nccl_options
@verbosity_options("Print each case as it ends.")
def run_command(report: bool, dry_run: bool, form: str, **words: Any) -> int:
    """Measure this machine into a run folder; print the verdict and make a report.

    Takes -b -e -f -g -w -n of nccl-tests. NO_COLOR=1 turns colors off.
    """
    refuse_ranks(os.environ)
    dimensions = typed_dimensions(words)
    asked = Asked(**words, dimensions=dimensions)
    asked.check()
    if form != TABLE and not dry_run:
        raise UsageError(f"-o {form} needs --dry-run: 'linkgauge show -o {form}' prints a run's results")
    if asked.nodes and not dry_run:
        enter_allocation(asked.nodes, asked.hosts)
    if asked.resume is not None:
        from linkgauge.app.resume import resume_run

        return resume_run(asked, asked.resume, report=report)
    from linkgauge.app.new_run import new_run

    return new_run(asked, dry_run=dry_run, form=form, report=report)


def typed_dimensions(words: dict[str, Any]) -> Mapping[str, Sequence[str]]:
    """What was typed of each dimension, taken out of a command line's `words`, with the settings of its applications.

    Raises:
        UsageError: `--set` without `--app`, or not of its form; an option of nccl-tests beside ours of the same.
    """
    typed = {name: texts for name, one in DIMENSIONS.items() if (texts := words.pop(one.key))}
    dimensions = with_nccl_options(typed, words)
    return run_options.application_texts(dimensions, words.pop("settings"))


def enter_allocation(nodes: str | None, hosts: str | None) -> None:
    """Where `--nodes` asks for nodes that only a job has, and none is there: become the batch system's starter of one.

    It runs this very command again, in the job.
    """
    from linkgauge.run.parent.hosts import starts_allocation

    starter = starts_allocation(nodes, hosts, os.environ)
    if starter:
        click.echo(f"asking for a job: {shlex.join(starter)} (more of its options by SALLOC_* variables)", err=True)
        os.execv(starter[0], [*starter, sys.executable, "-m", "linkgauge", *sys.argv[1:]])


@dataclasses.dataclass(frozen=True)
class Asked:
    """The command line of `run`, as typed; what another command has no word for is as where nothing was typed."""

    dimensions: Mapping[str, Sequence[str]]
    plan: str | None = None
    quick: bool = False
    full: bool = False
    from_run: Path | None = None
    cases: tuple[str, ...] = ()
    resume: Path | None = None
    retry: str | None = None
    force: bool = False
    devices: str = "auto"
    threads: bool = False
    mpi: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    bind: str | None = None
    peer_access: bool | None = None
    thread_level: str | None = None
    launcher_args: str | None = None
    nodes: str | None = None
    hosts: str | None = None
    fabric: Path | None = None
    repeat: int | None = None
    seed: int | None = None
    out: Path | None = None
    time_limit: str | None = None
    memory_limit: str | None = None
    max_failures: int = _MAX_FAILURES
    keep_going: str | None = None
    wait: str | None = None
    system: str | None = None
    concurrent_pairs: bool = False
    swap_roles: bool = False
    peers: tuple[str, ...] = ()
    pairs: str | None = None
    placement: str | None = None
    max_size: str | None = None
    class_weights: str | None = None
    library_choices: bool | None = None
    every_s: float = 0.0  # of `linkgauge watch`

    def check(self) -> None:
        """UsageError for flags that exclude each other or need one another."""
        if self.cases and self.from_run is None:
            raise UsageError("--cases needs --from RUN")
        if self.from_run is not None and not self.cases:
            raise UsageError("--from needs --cases failed or case keys")
        if self.thread_level is not None and self.thread_level not in THREAD_LEVELS:
            raise UsageError(f"--thread-level '{self.thread_level}': expected one of {', '.join(THREAD_LEVELS)}")
        for name, word, known in (("--pairs", self.pairs, PAIRS), ("--placement", self.placement, CHOICES)):
            if word is not None and word not in known:
                raise UsageError(f"{name} '{word}': expected one of {', '.join(known)}")
            if word is not None and (self.resume or self.from_run):
                raise UsageError(f"{name} is of a new plan: leave it out with --resume and --from")
        if self.keep_going not in (None, "nodes"):
            raise UsageError(f"--keep-going '{self.keep_going}': expected nodes")
        if self.threads and (self.nodes or self.hosts):
            raise UsageError("--threads is one process: leave out --nodes and --hosts, or --threads")
        if self.resume is not None and self.nodes:
            raise UsageError("--resume has the run's own nodes: leave out --nodes; --hosts gives others in their place")
        if self.threads and self.mpi:
            raise UsageError("--threads has no MPI: leave out --mpi, or --threads")
        if self.peers:
            from linkgauge.peers.drive import named_peer

            for peer in self.peers:
                named_peer(peer)
            if self.resume is not None:
                raise UsageError("--with goes with a new run: leave out --resume, or use 'linkgauge crosscheck'")
        if self.retry is not None and self.resume is None:
            raise UsageError("--retry needs --resume RUN")
        if self.max_size is not None and "size" in self.dimensions:
            raise UsageError("--max-size is of a plan's own sizes: leave it out with --size")
        of_plan = {
            "--concurrent-pairs": self.concurrent_pairs, "--swap-roles": self.swap_roles, "--max-size": self.max_size,
        }  # fmt: skip
        for name, given in of_plan.items():
            if given and (self.resume or self.from_run):
                raise UsageError(f"{name} is of a new plan: leave it out with --resume and --from")
        other = self.plan or self.quick or self.full or self.from_run or self.dimensions or self.out or self.repeat
        if self.resume is not None and other:
            raise UsageError("--resume uses that run's own plan: leave out other plans, dimensions and --out")
        if self.from_run is not None and (self.plan or self.quick or self.full or self.dimensions):
            raise UsageError("--from takes its cases from that run: leave out other plans and dimensions")

    def settled(self, plan: Plan) -> Plan:
        """The plan with the run's settings of the command line."""
        values: dict[str, Any] = {}
        if self.repeat is not None:
            values["repeat"] = self.repeat
        if self.seed is not None:
            values["seed"] = self.seed
        if self.time_limit is not None:
            values["time_limit_ns"] = _positive_time(self.time_limit)
        if self.memory_limit is not None:
            values["memory_limit"] = parse_share(self.memory_limit)
        if self.class_weights is not None:
            values["class_weights"] = run_options.asked_class_weights(self.class_weights)
        if self.library_choices is not None:
            values["library_choices"] = self.library_choices
        return dataclasses.replace(plan, **values)

    def settled_time_limit_s(self) -> float | None:
        """--time-limit in seconds; None without one."""
        return None if self.time_limit is None else _positive_time(self.time_limit) / 1e9

    def wait_s(self) -> float:
        """--wait in seconds; 0 without one."""
        return 0.0 if self.wait is None else parse_duration(self.wait) / 1e9

    def launcher_words(self) -> tuple[str, ...]:
        """--launcher-args, split as a shell would."""
        try:
            return tuple(shlex.split(self.launcher_args or ""))
        except ValueError as error:
            raise UsageError(
                f"--launcher-args '{self.launcher_args}': {error}: expected words as for a shell"
            ) from None


def _positive_time(text: str) -> int:
    time_ns = parse_duration(text)
    if time_ns <= 0:
        raise UsageError(f"--time-limit '{text}': expected a time above 0")
    return time_ns
