"""`linkgauge run`: the command."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping

import click

from linkgauge.app.command_line import command
from linkgauge.app.options import takes
from linkgauge.app.output import TABLE
from linkgauge.app.request import Allocation, Request
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import Exit, UsageError

RUN_EXITS = (Exit.SOME_FAILED, Exit.NOTHING)


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


@command(
    "run", exits=RUN_EXITS, epilog="Example: linkgauge run --pattern pingpong --size 8:16MiB:x8 --transport mpi,kernel"
)
@takes(Request)
@verbosity_options("Print each case as it ends.")
def run_command(request: Request) -> int:
    """Measure this machine into a run folder; print the verdict and make a report.

    Takes -b -e -f -g -w -n of nccl-tests. NO_COLOR=1 turns colors off.
    """
    refuse_ranks(os.environ)
    return start(request.gathered())


def start(request: Request) -> int:
    """Measure, resume or show what is asked for. Returns the exit status."""
    request.check()
    form, dry_run = request.shown.form, request.shown.dry_run
    if form != TABLE and not dry_run:
        raise UsageError(f"-o {form} needs --dry-run: 'linkgauge show -o {form}' prints a run's results")
    if not dry_run:
        enter_allocation(request.allocation)
    if request.earlier.resume is not None:
        from linkgauge.app.resume import resume_run

        return resume_run(request, request.earlier.resume)
    from linkgauge.app.new_run import new_run

    return new_run(request)


def enter_allocation(allocation: Allocation) -> None:
    """Where `--nodes` asks for nodes that only a job has, and none is there: become the batch system's starter of one.

    It runs this very command again, in the job.
    """
    if not allocation.nodes:
        return
    from linkgauge.run.parent.hosts import starts_allocation

    starter = starts_allocation(allocation.nodes, allocation.hosts, os.environ)
    if starter:
        click.echo(f"asking for a job: {shlex.join(starter)} (more of its options by SALLOC_* variables)", err=True)
        os.execv(starter[0], [*starter, sys.executable, "-m", "linkgauge", *sys.argv[1:]])
