"""`linkgauge record`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from linkgauge.app.command_line import PATH, argument, command
from linkgauge.app.options import devices_to_use, takes, value
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import QUIET, verbosity, verbosity_options

_FORGET = "Read the file before you pass it on."


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What is looked at, as by `doctor`."""

    mpi: str | None = value("LIBRARY", "MPI library that a run would use.")
    devices: str = devices_to_use("Devices that a run would use.")


@command("record", epilog="Example: linkgauge record machine.json")
@argument("file", type=PATH, metavar="FILE", help="File to write, JSON.")
@takes(Recorded)
@verbosity_options("Name each check while it looks, too.")
def record_command(asked: Recorded, file: Path) -> None:
    """Record what the doctor and discovery read here, to be played back by doctor --recording and topology.

    Host and user names, serial numbers, UUIDs, GUIDs, MAC and IP addresses are replaced by pseudonyms.
    """
    from linkgauge.app.doctor import installation_for
    from linkgauge.doctor.readers import Readers
    from linkgauge.doctor.recorded import record
    from linkgauge.files import write_atomically
    from linkgauge.run.parent.devices import find_devices

    library, problem = installation_for(asked.mpi)
    ranks = max(find_devices(asked.devices).count, 1)
    with Stages("record") as stages:
        stages.stage("recording this machine")
        content = record(Readers(mpi=library, mpi_problem=problem, ranks=ranks), stages.doing)
    write_atomically(file, content.encode(errors="surrogateescape"))
    if verbosity() != QUIET:
        click.echo(f"{file}: {len(content) / 1024:.0f} KiB. {_FORGET}", err=True)
        click.echo(f"Play it back: linkgauge doctor --recording {file}; linkgauge topology {file}", err=True)
