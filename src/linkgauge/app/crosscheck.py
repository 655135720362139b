"""`linkgauge crosscheck`: alternate with an installed benchmark, by its own estimator."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import ClassVar

import click

from linkgauge.app.command_line import COMMON, argument, command
from linkgauge.app.options import devices_to_use, repeated, takes, value
from linkgauge.app.output import TABLE, form_of_output, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import UsageError
from linkgauge.plan.environment import given_variable

_WHAT, _LAUNCH = "What to measure", "How it is launched"
_KINDS = ("device", "pageable", "pinned", "managed")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is compared, and how both sides are run."""

    panel: ClassVar = "How it is timed"

    tests: str = value("NAMES", "Tests of the benchmark; all by default.", "", panel=_WHAT)
    size: str = value("SIZES", "Message sizes: 8, 64KiB, or a range 8:1GiB:x8.", "8,1MiB", panel=_WHAT)
    ranks: str = value("NUMBERS", "Numbers of ranks: 2,4.", "2", panel=_WHAT)
    iterations: int | None = value(
        "", "Operations that each side times; those of the benchmark by default.", type=click.IntRange(min=1)
    )
    large_iterations: int | None = value(
        "", "Operations above 8 KiB (OSU) or 64 KiB (nccl-tests).", type=click.IntRange(min=1), advanced=True
    )
    warmup: int | None = value("", "Operations before the timed ones.", type=click.IntRange(min=0))
    mpi: str = value("LIBRARY", "MPI library of both sides; threads without it.", "", panel=_LAUNCH)
    devices: str = devices_to_use("Devices, as in 'linkgauge run'.", panel=_LAUNCH)
    hosts: str | None = value("A,B|FILE", "Nodes to measure between, by name; ssh starts the ranks.", panel=_LAUNCH)
    nodes: str | None = value("NUMBER|all", "Number of nodes to use, of this job or of --hosts.", panel=_LAUNCH)
    window: int | None = value(
        "", "Messages in flight in bandwidth tests, in place of 64.", type=click.IntRange(min=1), advanced=True
    )
    memory: tuple[str, ...] = repeated(
        "FROM,INTO", "Memory to send from and receive into: device,device; repeatable.", panel=_WHAT
    )
    buffer: str = value(
        "allocated|plain", "Buffers beside nccl-tests: allocated by NCCL, or plain.", "allocated", panel=_WHAT,
        advanced=True,
    )  # fmt: skip
    bind: str = value("none|core", "Cores of the ranks on both sides: any, or one each.", "none", panel=_LAUNCH)
    pairs: int = value("", "Most rounds; fewer than 6 settle no row.", 31, type=click.IntRange(min=1))
    time_limit: str = value("TIME", "End within this time, such as 8min; --out resumes.", "")
    out: Path | None = value("FOLDER", "Folder of both sides' results; an existing one resumes.", panel=COMMON)
    variables: tuple[str, ...] = repeated(
        "NAME[=VALUE]", "Variable for both sides; NAME alone takes its value here; repeatable.", panel=_LAUNCH,
        flags="--env",
    )  # fmt: skip
    form: str = form_of_output(panel=COMMON)


@command(
    "crosscheck",
    epilog="Example: linkgauge crosscheck osu=/opt/osu --tests osu_latency --size 8:1MiB:x2 --mpi openmpi-4.1.4 "
    "--devices host:2",
)
@argument(
    "peer",
    metavar="PEER=FOLDER",
    help="Benchmark (osu, nccl-tests, nvbandwidth, ucx_perftest, ...) and its folder.",
)
@takes(Comparison)
@verbosity_options("Print each stage.")
def crosscheck_command(asked: Comparison, peer: str) -> None:
    """Alternate with an installed benchmark; show both sides, their ratio and its interval.

    Each round runs Linkgauge once and each peer benchmark once. At least 6 and at most 31 rounds run, until every
    ratio's confidence interval is narrow enough.
    """
    from linkgauge.model.quantity import parse_duration, parse_sizes
    from linkgauge.peers.catalog import BETWEEN_NODES, peer_tests
    from linkgauge.peers.drive import Outcome, alternate, named_peer, print_rows, row_of, undecided, write_rows
    from linkgauge.peers.ours import checked_so_far
    from linkgauge.peers.request import Request, rows_of
    from linkgauge.run.parent.device_hold import held
    from linkgauge.run.parent.devices import find_devices
    from linkgauge.run.parent.hosts import asked_hosts
    from linkgauge.run.parent.measure import default_out

    name, folder = named_peer(peer)
    if asked.bind not in ("none", "core"):
        raise UsageError(f"--bind '{asked.bind}': expected none or core")
    if asked.buffer not in ("allocated", "plain"):
        raise UsageError(f"--buffer '{asked.buffer}': expected allocated or plain")
    if name in BETWEEN_NODES and not asked.mpi:
        raise UsageError(f"{name} is started by an MPI library's launcher: expected --mpi, one of 'linkgauge list mpi'")
    if name not in BETWEEN_NODES and (asked.hosts or asked.nodes or asked.window):
        theirs = ", ".join(BETWEEN_NODES)
        raise UsageError(f"--hosts, --nodes and --window are of {theirs}: leave them out with {name}")
    results = asked.out or default_out(name, Path("crosscheck"))
    places = asked_hosts(asked.nodes, asked.hosts)
    if places and asked.bind != "none":
        raise UsageError("--bind core is of one node's cores: leave it out with --hosts and --nodes")
    chosen = peer_tests(name, tuple(word for word in asked.tests.split(",") if word))
    rows, cannot = rows_of(
        name,
        tuple(test.with_window(asked.window) for test in chosen) if asked.window else chosen,
        _ranks(asked.ranks),
        [_memory(text) for text in asked.memory or ["device,device"]],
        [size_bytes for word in asked.size.split(",") for size_bytes in parse_sizes(word)],
    )
    if not rows:
        raise UsageError(f"nothing is left to compare: {next(iter(cannot.values()), 'no size was requested')}")
    request = Request(
        peer=name,
        folder=folder,
        rows=rows,
        mpi=asked.mpi,
        devices=asked.devices,
        hosts=places,
        out=results,
        iterations=asked.iterations,
        large_iterations=asked.large_iterations,
        buffer=asked.buffer,
        warmup=asked.warmup,
        bind=asked.bind,
        env=dict(_variable(text) for text in asked.variables),
        max_pairs=asked.pairs,
        time_limit_s=parse_duration(asked.time_limit) / 1e9 if asked.time_limit else None,
    )
    here = None if places else find_devices(asked.devices)
    known = Outcome([], {})

    def keep(outcome: Outcome) -> None:
        nonlocal known
        known = outcome
        write_rows(results, [row_of(line) for line in known.lines])

    try:
        with Stages("crosscheck") as stages, held(here, results, note=stages.note):
            if here is not None and here.hidden:
                stages.note(here.hidden)
            keep(alternate(request, stages.note, keep, stages.told))
    finally:  # also of one that was ended
        table = [row_of(line) for line in known.lines]
        if asked.form != TABLE:
            print_data(table, asked.form)
        elif table:
            print_rows(table, {**cannot, **known.left_out})
            for words in undecided(table):
                click.echo(words)
            if words := checked_so_far(results):
                click.echo(f"Linkgauge: {words}; the benchmark's operations were not checked here.")
        if table and asked.out is None:
            click.echo(f"results: {results}; --out {results} continues this comparison", err=True)


def _ranks(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() and 0 < int(word) < 1 << 20 for word in words):
        raise UsageError(f"--ranks '{text}': expected whole numbers, such as 4 or 2,4")
    return sorted({int(word) for word in words})


def _variable(text: str) -> tuple[str, str]:
    name, value = given_variable(text, os.environ)
    return name, os.environ[name] if value is None else value


def _memory(text: str) -> tuple[str, str]:
    kinds = text.split(",")
    if len(kinds) != 2 or any(kind not in _KINDS for kind in kinds):
        raise UsageError(f"--memory '{text}': expected two of {', '.join(_KINDS)}, such as device,device")
    return kinds[0], kinds[1]
