"""`linkgauge crosscheck`: an installed peer and our cases in turn, by the peer's own estimator."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from linkgauge.app.command_line import PATH, argument, command, flag, option
from linkgauge.errors import UsageError
from linkgauge.plan.environment import given_variable

_KINDS = ("device", "pageable", "pinned", "managed")


@command(
    "crosscheck",
    epilog="Example: linkgauge crosscheck osu=/opt/osu --tests osu_latency --size 8:1MiB:x2 --mpi openmpi-4.1.4 "
    "--devices host:2",
)
@argument(
    "peer",
    metavar="PEER=FOLDER",
    help="osu, nccl-tests, nvbandwidth; ucx_perftest, fabtests, perftest (ib_*); and where it lies.",
)
@option("--tests", default="", help="Its tests, comma-separated; all by default.")
@option("--size", default="8,1MiB", help="Sizes: 8, 64KiB, or a range 8:1GiB:x8.")
@option("--ranks", default="2", help="How many ranks; several: 2,4.")
@option(
    "--iterations", type=click.IntRange(min=1), help="Operations that each side times; by default what the peer times."
)
@option(
    "--large-iterations",
    type=click.IntRange(min=1),
    help="As many above 8 KiB (OSU) or from 1 MiB on (nccl-tests); a launch more.",
)
@flag("--sizes-apart", help="Start the peer anew for each size: nccl-tests then reuses one buffer, as we do.")
@option("--warmup", type=click.IntRange(min=0), help="Operations before.")
@option("--mpi", default="", help="The MPI library of both; without it threads of one process.")
@option("--devices", default="auto", help="As in linkgauge run.")
@option(
    "--hosts",
    metavar="A,B|FILE",
    help="OSU and what is below MPI between these nodes, as in linkgauge run; a pair: the first two.",
)
@option("--nodes", metavar="NUMBER", help="So many nodes of this job's or of --hosts, or 'all', as in linkgauge run.")
@option(
    "--window", type=click.IntRange(min=1), help="Tests of bandwidth: messages in flight on both sides, instead of 64."
)
@option(
    "--memory",
    multiple=True,
    metavar="FROM,INTO",
    help="Kinds sent from and received into: device,device. May be repeated.",
)
@option(
    "--buffer",
    default="allocated",
    help="nccl-tests: our buffers, allocated by NCCL (2.19 or newer) as its own are, or plain.",
)
@option("--bind", default="none", help="Cores of the ranks on both sides: none, or core for one each.")
@option("--pairs", type=click.IntRange(min=1), default=31, help="At most so many rounds; below 9 no row is settled.")
@option(
    "--time-limit",
    default="",
    metavar="TIME",
    help="Begin no round that would end later: 8min. It can be gone on with.",
)
@option(
    "--out",
    type=PATH,
    help="Folder for both sides' results, by default against/DATE-TIME-PEER; one of this comparison is gone on with.",
)
@option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set for both sides; without a value as it is here, unseen in ps. May be repeated.",
)
@flag("--json", "as_json", help="Print the table as JSON.")
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
    as_json: bool,
) -> None:
    """Measure an installed peer and our same cases in turn; show both, the ratio and its interval.

    In each round one launch of ours measures all rows, and each program of the peer runs once over all sizes. The table
    so far is written after each round.
    """
    from linkgauge.model.quantity import parse_duration, parse_sizes
    from linkgauge.peers.catalog import BETWEEN_NODES, peer_tests
    from linkgauge.peers.drive import Outcome, alternate, named_peer, print_rows, row_of, untold, write_rows
    from linkgauge.peers.ours import checked_so_far
    from linkgauge.peers.request import Request, rows_of
    from linkgauge.run.hosts import asked_hosts
    from linkgauge.run.measure import default_out

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
    known = Outcome([], {})

    def keep(outcome: Outcome) -> None:
        nonlocal known
        known = outcome
        write_rows(results, [row_of(line) for line in known.lines])

    try:
        keep(alternate(request, lambda text: click.echo(text, err=True), keep))
    finally:  # also of one that was ended
        table = [row_of(line) for line in known.lines]
        if as_json:
            click.echo(json.dumps(table))
        elif table:
            print_rows(table, {**cannot, **known.left_out})
            if hint := untold(table):
                click.echo(hint)
            if words := checked_so_far(results):
                click.echo(f"Ours: {words}; of the peer's operations none was looked at here.")
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
