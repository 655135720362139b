"""`linkgauge against`: an installed peer and our cases in turn, by the peer's own estimator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from linkgauge.errors import UsageError

app = typer.Typer()


@app.command("against")
def against_command(
    peer: Annotated[
        str, typer.Argument(metavar="PEER=FOLDER", help="osu, nccl-tests or nvbandwidth, and where it lies.")
    ],
    tests: Annotated[str, typer.Option(help="Its tests, comma-separated; all by default.")] = "",
    size: Annotated[str, typer.Option(help="Sizes: 8, 64KiB, or a range 8:1GiB:x8.")] = "8,1MiB",
    ranks: Annotated[int, typer.Option(help="How many ranks.")] = 2,
    iterations: Annotated[int, typer.Option(help="Operations that each side times.")] = 1000,
    warmup: Annotated[int, typer.Option(help="Operations before.")] = 100,
    mpi: Annotated[str, typer.Option(help="The MPI library of both; without it threads of one process.")] = "",
    devices: Annotated[str, typer.Option(help="As in linkgauge run.")] = "auto",
    memory: Annotated[str, typer.Option(help="Kinds sent from and received into: device,device.")] = "device,device",
    bind: Annotated[str, typer.Option(help="Cores of the ranks on both sides: none, or core for one each.")] = "none",
    pairs: Annotated[int, typer.Option(help="At most so many pairs of launches; at least 9 are made.")] = 31,
    out: Annotated[Path, typer.Option(help="Folder for both sides' results.")] = Path("against"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Measure an installed peer and our same cases alternately; show both, the ratio and its interval.

    Example: linkgauge against osu=/opt/osu --tests osu_latency --size 8,1MiB --mpi openmpi-4.1.4 --devices host:2
    """
    from linkgauge.peers.catalogue import peer_tests
    from linkgauge.peers.drive import Request, alternate
    from linkgauge.peers.show import named_peer, print_rows, row_of, write_rows
    from linkgauge.plan.quantity import parse_sizes

    name, folder = named_peer(peer)
    kinds = memory.split(",")
    if len(kinds) != 2:
        raise UsageError(f"--memory '{memory}': expected two kinds, such as device,device")
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out '{out}' is not empty: expected a new folder")
    if bind not in ("none", "core"):
        raise UsageError(f"--bind '{bind}': expected none or core")
    sizes = tuple(size_bytes for word in size.split(",") for size_bytes in parse_sizes(word))
    request = Request(
        peer=name,
        folder=folder,
        tests=peer_tests(name, tuple(word for word in tests.split(",") if word)),
        sizes=sizes,
        ranks=ranks,
        iterations=iterations,
        warmup=warmup,
        mpi=mpi,
        devices=devices,
        memory=(kinds[0], kinds[1]),
        out=out,
        bind=bind,
        max_pairs=pairs,
    )
    lines = alternate(request, lambda text: typer.echo(text, err=True))
    rows = [row_of(line) for line in lines]
    write_rows(out, rows)
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        print_rows(rows)
