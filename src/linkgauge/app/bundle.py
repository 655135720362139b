"""`linkgauge bundle`: a run with all that a vendor requires, in one archive."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from linkgauge.app.command_line import command, run_argument
from linkgauge.app.options import AUTO, switch, takes, value
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import verbosity_options


@dataclasses.dataclass(frozen=True)
class Bundled:
    """What goes into the archive, and where it goes."""

    output: Path | None = value("FILE", "Archive to write, .tar.gz; RUN.tar.gz by default.", flags="-o --output")
    anonymous: bool = switch("Replace hosts, users, UUIDs, serial numbers, addresses and paths.")


@command("bundle", epilog="Example: linkgauge bundle runs/2026-01-02 --anonymous -o case-1234.tar.gz")
@run_argument()
@takes(Bundled)
@verbosity_options("Name each step.")
def bundle_command(options: Bundled, run: Path) -> None:
    """Pack the run folder, its report, a page for a ticket, the versions, and the state of this node now.

    The page is index.html. The doctor's checks and error counters are of the node that runs this command.
    """
    from linkgauge.app.doctor import installation_for
    from linkgauge.doctor.readers import Readers
    from linkgauge.run.parent.devices import find_devices
    from linkgauge.store.run import load
    from linkgauge.view.bundle import write_bundle

    loaded = load(run)
    output = options.output or Path(f"{loaded.path.resolve().name}.tar.gz")
    library, problem = installation_for(None)
    readers = Readers(mpi=library, mpi_problem=problem, ranks=max(find_devices(AUTO).count, 1))
    with Stages("bundle") as stages:
        stages.stage("checking this node")
        for line in write_bundle(loaded, output, readers, stages.doing, anonymous=options.anonymous):
            stages.note(line)
    click.echo(f"{output}: {output.stat().st_size / 1e6:.2g} MB")
    if options.anonymous:
        click.echo("Look into the archive before you pass it on.", err=True)
