"""What a run is asked for: the options of `linkgauge run`, which other commands take over, grouped by what they say.

What a command has no option for is as where nothing was given.
"""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any, ClassVar

from linkgauge.app.dimension_options import AsNcclTests, Texts, application_texts, dimension_texts
from linkgauge.app.options import Detects, Whole, devices_to_use, pair, repeated, switch, value
from linkgauge.app.output import form_of_output
from linkgauge.errors import UsageError
from linkgauge.model.quantity import parse_duration, parse_share
from linkgauge.plan.model import CHOICES, PAIRS, THREAD_LEVELS, USUAL_MAX_FAILURES, Plan
from linkgauge.plan.plan_file import class_weights
from linkgauge.run.parent.hosts import asked_hosts

_WHAT, _LAUNCH, _RUN = "What to measure", "How it is launched", "The run"


@dataclasses.dataclass(frozen=True)
class PlanChoice:
    """Which plan, and what of it is taken otherwise than it says."""

    panel: ClassVar = _WHAT

    plan: str | None = value("NAME|FILE", "Plan: a name of 'linkgauge list plans', or a TOML file.")
    quick: bool = switch("Take the plan quick: a few seconds.")
    full: bool = switch("Take the plan full: an hour or more.")
    pairs: str | None = value("WHICH", f"Pairs to measure: {', '.join(PAIRS[:4])}, ...")
    placement: str | None = value("WHICH", f"Devices that --ranks takes of more: {', '.join(CHOICES)}.", advanced=True)
    class_weights: str | None = value(
        "0=1,3=3", "Weights of the service classes at the network's ports, with --service-class.", advanced=True
    )
    max_size: str | None = value(
        "SIZE", "Cap the plan's message sizes, for example 256KiB on slow links.", advanced=True
    )
    swap_roles: bool = switch("Measure each background load as well, with the case as its load.", advanced=True)
    concurrent_pairs: bool = switch("Measure disjoint pairs at the same time, on all devices at once.", advanced=True)
    library_choices: bool | None = pair(
        "Record what NCCL chose for each case, in untimed launches.", None, advanced=True
    )
    made: Plan | None = None  # by another command, in place of one that is named
    settings: tuple[str, ...] = repeated(
        "NAME=NUMBER", "Parameter of --app (n=64, n=32*ranks), or a preset; repeatable.", advanced=True, flags="--set"
    )

    @property
    def named(self) -> bool:
        """Whether a plan is asked for."""
        return bool(self.plan or self.quick or self.full or self.made)


@dataclasses.dataclass(frozen=True)
class EarlierRun:
    """A run that is resumed, or whose cases are measured again."""

    panel: ClassVar = _WHAT

    from_run: Path | None = value(
        "RUN", "Measure cases of this run again, into a new run.", advanced=True, flags="--from"
    )
    cases: tuple[str, ...] = repeated("WHICH", "Cases of --from: failed, or case keys.", advanced=True)
    resume: Path | None = value("RUN", "Resume a run that was interrupted.")
    retry: str | None = value(
        "STATUSES", "Measure cases of these statuses again, such as failed,hung; with --resume.", advanced=True
    )
    force: bool = switch("Resume even where the machine or a version changed.", advanced=True)


@dataclasses.dataclass(frozen=True)
class Machine:
    """The devices of a node, and the system that they are judged by."""

    panel: ClassVar = _LAUNCH

    devices: str = devices_to_use("Devices: auto (default), cuda, cuda:0,2, hip, host:4.", show_default=False)
    system: str | None = value(
        "NAME|FILE", "System to judge by, in place of the discovered one; with --dry-run, to plan for.", panel=_WHAT,
        advanced=True,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Launch:
    """How the ranks are started."""

    panel: ClassVar = _LAUNCH

    threads: bool = switch("Run the ranks as threads of one process, without MPI.")
    mpi: tuple[str, ...] = repeated("LIBRARY", "MPI prefix, mpiexec, or name of 'linkgauge list mpi'.")
    env: tuple[str, ...] = repeated("NAME=A,B", "Environment: a launch for each value; repeatable.")
    bind: str | None = value("CORES", "Cores of the ranks: nearest, none, or by rank 0-3:4-7.", advanced=True)
    peer_access: bool | None = pair("Let devices access each other's memory directly, or not.", None, advanced=True)
    thread_level: str | None = value(
        "LEVEL", "MPI thread level: single, funneled (default), serialized or multiple.", advanced=True
    )
    launcher_args: str | None = value("ARGUMENTS", "Arguments to add to mpiexec or srun.", advanced=True)

    def launcher_words(self) -> tuple[str, ...]:
        """--launcher-args, split as a shell would."""
        try:
            return tuple(shlex.split(self.launcher_args or ""))
        except ValueError as error:
            raise UsageError(
                f"--launcher-args '{self.launcher_args}': {error}: expected words as for a shell"
            ) from None


@dataclasses.dataclass(frozen=True)
class Allocation:
    """The nodes, and how long devices and idleness are waited for."""

    panel: ClassVar = _LAUNCH

    nodes: str | None = value("NUMBER|all", "Number of nodes to use, of this job or of --hosts.")
    fabric: Path | None = value(
        "FILE", "Switches of the nodes: a topology.conf, or ibnetdiscover's output.", advanced=True
    )
    wait: str | None = value("TIME", "Time to wait for GPUs that another run uses: 10m.", advanced=True)
    wait_idle: str | None = value(
        "TIME", "Time to wait until no other process uses the GPUs and cores: 10m.", advanced=True
    )
    exclusive: bool = switch("Refuse to start while other processes use the GPUs or cores.", advanced=True)
    hosts: str | None = value("A,B|FILE", "Nodes to measure, by name; ssh starts the ranks.")

    def names(self) -> tuple[str, ...]:
        """The nodes by name; none where neither --nodes nor --hosts is given. UsageError for what cannot be had."""
        return asked_hosts(self.nodes, self.hosts)

    def wait_s(self) -> float:
        """--wait in seconds; 0 without one."""
        return 0.0 if self.wait is None else parse_duration(self.wait) / 1e9

    @property
    def unshared(self) -> bool:
        """Whether the run is to begin only when nobody else uses its devices."""
        return self.exclusive or self.wait_idle is not None

    def wait_idle_s(self) -> float:
        """--wait-idle in seconds; 0 without one: nobody is waited for. UsageError for a time that is none."""
        if self.wait_idle is None:
            return 0.0
        time_s = parse_duration(self.wait_idle) / 1e9
        if time_s <= 0:
            raise UsageError(f"--wait-idle '{self.wait_idle}': expected a time above 0, or --exclusive")
        return time_s


@dataclasses.dataclass(frozen=True)
class Rounds(Detects):
    """How often everything is measured, and `linkgauge watch`'s time from one round to the next."""

    panel: ClassVar = _RUN

    repeat: int | None = value("NUMBER", "Repeat everything so many times, in fresh launches.", type=Whole(1))
    every_s: float = 0.0
    detect: str | None = value(
        "SHARE", "Repeat until a shift as small as this can be found, such as 0.3%.", advanced=True
    )


@dataclasses.dataclass(frozen=True)
class Execution:
    """Where the run is kept, when it ends, and what it goes on without."""

    panel: ClassVar = _RUN

    seed: int | None = value("NUMBER", "Seed of the order of cases and of the data.", type=Whole(0), advanced=True)
    out: Path | None = value("FOLDER", "Run folder to make; runs/DATE-TIME-PLAN by default.")
    time_limit: str | None = value("TIME", "End within this time, such as 10m.")
    memory_limit: str | None = value(
        "SHARE", "Share of free memory to use at most, or a size: 50%, 4GiB.", advanced=True
    )
    max_failures: int = value(
        "NUMBER", "Skip a transport on a node, or between nodes, after this many failures.", USUAL_MAX_FAILURES,
        type=Whole(1), advanced=True,
    )  # fmt: skip
    keep_going: str | None = value(
        "nodes", "Continue without nodes that do not answer; skip their cases.", advanced=True
    )
    core_use: bool = False  # observed beside each case, for a command that judges by it
    history: str | None = value("DATASET", "Add the run to this fleet's history at its end.", advanced=True)
    peers: tuple[str, ...] = repeated(
        "PEER=FOLDER", "Alternate with osu, nccl-tests or nvbandwidth afterwards; repeatable.", advanced=True,
        flags="--with",
    )  # fmt: skip

    def time_limit_ns(self) -> int | None:
        """--time-limit; None without one."""
        if self.time_limit is None:
            return None
        time_ns = parse_duration(self.time_limit)
        if time_ns <= 0:
            raise UsageError(f"--time-limit '{self.time_limit}': expected a time above 0")
        return time_ns


@dataclasses.dataclass(frozen=True)
class Presentation:
    """What is shown, of the run or instead of it."""

    panel: ClassVar = _RUN

    report: bool = pair("Make report.html in the run folder.", True, advanced=True)
    dry_run: bool = switch("Print the cases, skips and estimates; measure nothing.")
    form: str = form_of_output(" of the cases, with --dry-run", advanced=True)
    summary: bool = True  # printed at the run's end, unless another command has its own, and keeps no run to resume


@dataclasses.dataclass(frozen=True)
class Request:
    """A run that is asked for; `dimensions` are texts, not yet read."""

    choice: PlanChoice = PlanChoice()
    earlier: EarlierRun = EarlierRun()
    machine: Machine = Machine()
    launch: Launch = Launch()
    allocation: Allocation = Allocation()
    rounds: Rounds = Rounds()
    execution: Execution = Execution()
    shown: Presentation = Presentation()
    dimensions: Texts = dimension_texts()
    nccl: AsNcclTests = AsNcclTests()

    def gathered(self) -> Request:
        """The request with `dimensions` that have nccl-tests' options and --set in them too; UsageError where not so.

        To be asked for once, of what a command line says.
        """
        dimensions = application_texts(self.nccl.added_to(self.dimensions), self.choice.settings)
        return dataclasses.replace(self, dimensions=dimensions)

    def check(self) -> None:
        """UsageError for options that exclude each other or need one another."""
        choice, earlier, launch, allocation = self.choice, self.earlier, self.launch, self.allocation
        again = earlier.resume or earlier.from_run
        if earlier.cases and earlier.from_run is None:
            raise UsageError("--cases needs --from RUN")
        if earlier.from_run is not None and not earlier.cases:
            raise UsageError("--from needs --cases failed or case keys")
        if launch.thread_level is not None and launch.thread_level not in THREAD_LEVELS:
            raise UsageError(f"--thread-level '{launch.thread_level}': expected one of {', '.join(THREAD_LEVELS)}")
        for name, word, known in (("--pairs", choice.pairs, PAIRS), ("--placement", choice.placement, CHOICES)):
            if word is not None and word not in known:
                raise UsageError(f"{name} '{word}': expected one of {', '.join(known)}")
            if word is not None and again:
                raise UsageError(f"{name} is of a new plan: leave it out with --resume and --from")
        if self.execution.keep_going not in (None, "nodes"):
            raise UsageError(f"--keep-going '{self.execution.keep_going}': expected nodes")
        if allocation.exclusive and allocation.wait_idle is not None:
            raise UsageError("--exclusive refuses what --wait-idle waits for: leave one of them out")
        allocation.wait_idle_s()
        if launch.threads and (allocation.nodes or allocation.hosts):
            raise UsageError("--threads is one process: leave out --nodes and --hosts, or --threads")
        if earlier.resume is not None and allocation.nodes:
            raise UsageError("--resume has the run's own nodes: leave out --nodes; --hosts gives others in their place")
        if launch.threads and launch.mpi:
            raise UsageError("--threads has no MPI: leave out --mpi, or --threads")
        if self.execution.peers:
            from linkgauge.peers.drive import named_peer

            for peer in self.execution.peers:
                named_peer(peer)
            if earlier.resume is not None:
                raise UsageError("--with goes with a new run: leave out --resume, or use 'linkgauge crosscheck'")
        if self.execution.history is not None and earlier.resume is not None:
            raise UsageError("--history goes with a new run: add a resumed one with 'linkgauge history DATASET RUN'")
        if self.rounds.detected() is not None and earlier.resume is not None:
            raise UsageError("--resume has the run's own --detect: leave it out")
        if earlier.retry is not None and earlier.resume is None:
            raise UsageError("--retry needs --resume RUN")
        if choice.max_size is not None and "size" in self.dimensions:
            raise UsageError("--max-size is of a plan's own sizes: leave it out with --size")
        of_plan = {
            "--concurrent-pairs": choice.concurrent_pairs, "--swap-roles": choice.swap_roles,
            "--max-size": choice.max_size,
        }  # fmt: skip
        for name, given in of_plan.items():
            if given and again:
                raise UsageError(f"{name} is of a new plan: leave it out with --resume and --from")
        planned = choice.named or self.dimensions
        if earlier.resume is not None and (planned or earlier.from_run or self.execution.out or self.rounds.repeat):
            raise UsageError("--resume uses that run's own plan: leave out other plans, dimensions and --out")
        if earlier.from_run is not None and planned:
            raise UsageError("--from takes its cases from that run: leave out other plans and dimensions")

    def settled(self, plan: Plan) -> Plan:
        """The plan with the run's settings of the request."""
        values: dict[str, Any] = {
            "repeat": self.rounds.repeat,
            "seed": self.execution.seed,
            "time_limit_ns": self.execution.time_limit_ns(),
            "library_choices": self.choice.library_choices,
        }
        if self.execution.memory_limit is not None:
            values["memory_limit"] = parse_share(self.execution.memory_limit)
        if self.choice.class_weights is not None:
            values["class_weights"] = _weights(self.choice.class_weights)
        return dataclasses.replace(plan, **{name: given for name, given in values.items() if given is not None})


NOT_OF_VERDICTS: tuple[Any, ...] = (
    PlanChoice, EarlierRun, Presentation, Rounds, AsNcclTests, "exclusive", "wait_idle"
)  # fmt: skip
"""What commands lack that measure a plan of their own and print a verdict: `takes(without=...)`."""


def _weights(text: str) -> dict[str, float]:
    """Weights by service class, `0=1,3=3`. UsageError naming the option."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = (word.strip() for word in part.partition("="))
        try:
            if name in found:
                raise ValueError("twice")
            found[name] = float(weight)
        except ValueError:
            raise UsageError(f"--class-weights '{text}': expected classes, each once, and weights: 0=1,3=3") from None
    return class_weights(found, "--class-weights")
