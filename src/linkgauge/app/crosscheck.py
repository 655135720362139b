"""`linkgauge crosscheck`: alternate with an installed benchmark, by its own estimator."""

from __future__ import annotations

import os
from pathlib import Path

import click

from linkgauge.app.command_line import PATH, argument, command, flag, option
from linkgauge.app.output import TABLE, output_options, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import UsageError
from linkgauge.plan.environment import given_variable

_WHAT, _LAUNCH, _TIMED = "What to measure", "How it is launched", "How it is timed"
_KINDS = ("device", "pageable", "pinned", "managed")


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
@option("--tests", default="", metavar="NAMES", panel=_WHAT, help="Tests of the benchmark; all by default.")
@option("--size", default="8,1MiB", metavar="SIZES", panel=_WHAT, help="Message sizes: 8, 64KiB, or a range 8:1GiB:x8.")
@option("--ranks", default="2", metavar="NUMBERS", panel=_WHAT, help="Numbers of ranks: 2,4.")
@option(
    "--iterations", type=click.IntRange(min=1), panel=_TIMED,
    help="Operations that each side times; those of the benchmark by default.",
)  # fmt: skip
@option(
    "--large-iterations",
    type=click.IntRange(min=1),
    panel=_TIMED,
    advanced=True,
    help="Operations above 8 KiB (OSU) or from 1 MiB on (nccl-tests).",
)
@flag("--sizes-apart", panel=_TIMED, advanced=True, help="Start the benchmark anew for each size.")
@option("--warmup", type=click.IntRange(min=0), panel=_TIMED, help="Operations before the timed ones.")
@option("--mpi", default="", metavar="LIBRARY", panel=_LAUNCH, help="MPI library of both sides; threads without it.")
@option("--devices", default="auto", metavar="WHICH", panel=_LAUNCH, help="Devices, as in 'linkgauge run'.")
@option(
    "--hosts",
    metavar="A,B|FILE",
    panel=_LAUNCH,
    help="Nodes to measure between, by name; ssh starts the ranks.",
)
@option("--nodes", metavar="NUMBER|all", panel=_LAUNCH, help="Number of nodes to use, of this job or of --hosts.")
@option(
    "--window",
    type=click.IntRange(min=1),
    panel=_TIMED,
    advanced=True,
    help="Messages in flight in bandwidth tests, in place of 64.",
)
@option(
    "--memory",
    multiple=True,
    metavar="FROM,INTO",
    panel=_WHAT,
    help="Memory to send from and receive into: device,device; repeatable.",
)
@option(
    "--buffer",
    default="allocated",
    metavar="allocated|plain",
    panel=_WHAT,
    advanced=True,
    help="Buffers beside nccl-tests: allocated by NCCL, or plain.",
)
@option(
    "--bind",
    default="none",
    metavar="none|core",
    panel=_LAUNCH,
    help="Cores of the ranks on both sides: any, or one each.",
)
@option(
    "--pairs", type=click.IntRange(min=1), default=31, panel=_TIMED, help="Most rounds; fewer than 9 settle no row."
)
@option(
    "--time-limit",
    default="",
    metavar="TIME",
    panel=_TIMED,
    help="End within this time, such as 8min; --out resumes.",
)
@option(
    "--out",
    type=PATH,
    metavar="FOLDER",
    help="Folder of both sides' results; an existing one resumes.",
)
@option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    panel=_LAUNCH,
    help="Variable for both sides; NAME alone takes its value here; repeatable.",
)
@output_options()
@verbosity_options("Print each stage.")
def crosscheck_command(
    peer: str,
    tests: str,
    size: str,
    ranks: str,
    iterations: int | None,
    large_iterations: int | None,
    sizes_apart: bool,
    warmup: int | None,
    mpi: str,
    devices: str,
    hosts: str | None,
    nodes: str | None,
    window: int | None,
    memory: tuple[str, ...],
    buffer: str,
    bind: str,
    pairs: int,
    time_limit: str,
    out: Path | None,
    variables: tuple[str, ...],
    form: str,
) -> None:
    """Alternate with an installed benchmark; show both sides, their ratio and its interval.

    Each round runs Linkgauge once and each peer benchmark once. At least 9 and at most 31 rounds run, until every
    ratio's confidence interval is narrow enough.
    """
    from linkgauge.model.quantity import parse_duration, parse_sizes
    from linkgauge.peers.catalog import BETWEEN_NODES, peer_tests
    from linkgauge.peers.drive import Outcome, alternate, named_peer, print_rows, row_of, untold, write_rows
    from linkgauge.peers.ours import checked_so_far
    from linkgauge.peers.request import Request, rows_of
    from linkgauge.run.parent.device_hold import held
    from linkgauge.run.parent.devices import find_devices
    from linkgauge.run.parent.hosts import asked_hosts
    from linkgauge.run.parent.measure import default_out

    name, folder = named_peer(peer)
    if bind not in ("none", "core"):
        raise UsageError(f"--bind '{bind}': expected none or core")
    if buffer not in ("allocated", "plain"):
        raise UsageError(f"--buffer '{buffer}': expected allocated or plain")
    if name in BETWEEN_NODES and not mpi:
        raise UsageError(f"{name} is started by an MPI library's launcher: expected --mpi, one of 'linkgauge list mpi'")
    if name not in BETWEEN_NODES and (hosts or nodes or window):
        theirs = ", ".join(BETWEEN_NODES)
        raise UsageError(f"--hosts, --nodes and --window are of {theirs}: leave them out with {name}")
    results = out or default_out(name, Path("crosscheck"))
    places = asked_hosts(nodes, hosts)
    if places and bind != "none":
        raise UsageError("--bind core is of one node's cores: leave it out with --hosts and --nodes")
    chosen = peer_tests(name, tuple(word for word in tests.split(",") if word))
    rows, cannot = rows_of(
        name,
        tuple(test.with_window(window) for test in chosen) if window else chosen,
        _ranks(ranks),
        [_memory(text) for text in memory or ["device,device"]],
        [size_bytes for word in size.split(",") for size_bytes in parse_sizes(word)],
    )
    if not rows:
        raise UsageError(f"nothing is left to compare: {next(iter(cannot.values()), 'no size was asked for')}")
    request = Request(
        peer=name,
        folder=folder,
        rows=rows,
        mpi=mpi,
        devices=devices,
        hosts=places,
        out=results,
        iterations=iterations,
        large_iterations=large_iterations,
        sizes_apart=sizes_apart,
        buffer=buffer,
        warmup=warmup,
        bind=bind,
        env=dict(_variable(text) for text in variables),
        max_pairs=pairs,
        time_limit_s=parse_duration(time_limit) / 1e9 if time_limit else None,
    )
    here = None if places else find_devices(devices)
    known = Outcome([], {})

    def keep(outcome: Outcome) -> None:
        nonlocal known
        known = outcome
        write_rows(results, [row_of(line) for line in known.lines])

    try:
        with Stages("crosscheck") as stages, held(here, results, note=stages.note):
            keep(alternate(request, stages.note, keep, stages.told))
    finally:  # also of one that was ended
        table = [row_of(line) for line in known.lines]
        if form != TABLE:
            print_data(table, form)
        elif table:
            print_rows(table, {**cannot, **known.left_out})
            if hint := untold(table):
                click.echo(hint)
            if words := checked_so_far(results):
                click.echo(f"Linkgauge: {words}; the benchmark's operations were not checked here.")
        if table and out is None:
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
