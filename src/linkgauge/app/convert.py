"""`linkgauge convert`: an application from a program's traces, or as traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from linkgauge.app.command_line import PATH, argument, command, flag, option
from linkgauge.app.dimension_options import applications
from linkgauge.errors import UsageError
from linkgauge.model.quantity import parse_duration


@command("convert", epilog="Example: linkgauge convert trace.*.json -o mine.toml && linkgauge run --app mine.toml")
@argument(
    "traces",
    metavar="TRACE...|APP",
    nargs=-1,
    required=True,
    help="Traces: a file for each rank, a folder or archive of them, or one for all.",
)
@option("-o", "--output", type=PATH, metavar="FILE", help="Step file to write; printed by default.")
@flag("--host-time", help="Count the time in which a GPU waits for its host's launches as computing.")
@flag("--exposed", help="Print how long GPUs wait for communication, by collective, in place of a step file.")
@option("--program-time", metavar="TIME", help="Time of what was profiled without the profiler, with --exposed: 80ms.")
@option("--overlap", type=PATH, metavar="RUN", help="Run of --plan overlap, with --exposed.")
@option("--chakra", type=PATH, metavar="FOLDER", help="Folder to write an application to, as Chakra traces.")
@option("--ranks", type=click.IntRange(min=1), help="Number of ranks to write traces of, with --chakra; default 2.")
@option("--set", "settings", multiple=True, metavar="NAME=NUMBER", help="Parameter, or preset, with --chakra.")
def convert_command(
    traces: Sequence[str], output: Path | None, host_time: bool, exposed: bool, program_time: str | None,
    overlap: Path | None, chakra: Path | None, ranks: int | None, settings: tuple[str, ...],
) -> None:  # fmt: skip
    """Convert a program's traces to an application: what its ranks communicate, in their order.

    Reads traces of PARAM, PyTorch, Chakra and OTF2, and SQLite exports of Nsight Systems with NCCL's and MPI's calls.
    """
    if not exposed and (program_time is not None or overlap is not None):
        raise UsageError("--program-time and --overlap go with --exposed, whose advice they make surer")
    if chakra is None and (ranks is not None or settings):
        raise UsageError("--ranks and --set go with --chakra, which writes an application's traces")
    if chakra is not None and (exposed or host_time):
        raise UsageError("--chakra and --exposed or --host-time: expected one, for --chakra takes an application")
    if exposed and output is not None:
        raise UsageError("--exposed writes no step file: expected no --output")
    if exposed and host_time:
        raise UsageError("--host-time is of a step file: expected no --exposed, which says what the host costs")
    if chakra is not None:
        if len(traces) != 1 or output is not None:
            raise UsageError("--chakra FOLDER takes one application, by name or file, and no --output")
        _to_chakra(traces[0], settings, ranks or 2, chakra)
    elif exposed:
        from linkgauge.app.exposed import print_exposed

        program_ns = 0.0 if program_time is None else parse_duration(program_time)
        print_exposed([Path(trace) for trace in traces], program_ns, overlap)
    else:
        _from_traces([Path(trace) for trace in traces], output, host_time=host_time)


def _to_chakra(app: str, settings: tuple[str, ...], ranks: int, folder: Path) -> None:
    from linkgauge.apps import catalog
    from linkgauge.apps.chakra import write_chakra

    (asked,) = applications(app, settings)
    if reason := catalog.why_not_here(asked, ranks):
        raise UsageError(f"--ranks {ranks}: {reason}")
    lost = write_chakra(catalog.program(asked, ranks), folder, catalog.asked(asked).file.name)
    click.echo(f"traces of {ranks} ranks: {folder}")
    _say_lost(lost)


def _from_traces(traces: Sequence[Path], output: Path | None, *, host_time: bool) -> None:
    from linkgauge.apps.step_file import as_toml, step_file_of
    from linkgauge.apps.traces import convert
    from linkgauge.files import write_atomically
    from linkgauge.model.values import LONGEST_APP

    document, lost = convert(traces, host_time=host_time)
    step_file_of(document, str(traces[0]))
    text = as_toml(document)
    if len(text) > LONGEST_APP:
        raise UsageError(
            f"{traces[0]}: {len(text) >> 10} KiB of steps: expected at most {LONGEST_APP >> 10}, which travel with "
            "a case; give a trace of fewer iterations"
        )
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
        click.echo(f"step file: {output}: {document['description']}")
    _say_lost(lost, err=output is None)


def _say_lost(lost: Mapping[str, int], *, err: bool = False) -> None:
    for words, count in lost.items():
        if count:
            click.echo(f"not in it: {words}{f' ({count} times)' if count > 1 else ''}", err=err)
