"""`linkgauge topology`: show, draw or dump a machine, described, recorded or at hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from linkgauge.app.command_line import PATH, argument, command, flag, option
from linkgauge.app.listing import print_systems
from linkgauge.app.options import offers, unit_of_rates
from linkgauge.app.output import CSV, JSON, output_options, print_data
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.system import Link, System, catalog
from linkgauge.system.draw import matrix, svg
from linkgauge.system.dump import to_data, to_json
from linkgauge.system.units import rate_units, show_rate
from linkgauge.system.visible import hidden_here

if TYPE_CHECKING:
    from rich.console import Console

_EXAMPLE = "Example: linkgauge topology --here"


@command("topology", help="Discover, describe and draw devices, switches and links.", epilog=_EXAMPLE)
@argument(
    "name",
    metavar="[NAME|FILE]",
    default=None,
    help="Described system, a file of one, or a recording; without it, the list of them.",
)
@flag("--here", help="Discover this machine.")
@option("--recorded", type=PATH, metavar="FOLDER", help="Recorded machine to discover.")
@output_options(", which can be edited and loaded")
@option("--svg", "svg_file", type=PATH, metavar="FILE", help="SVG file to draw into.")
@offers(unit=unit_of_rates())
def topology_command(
    name: str | None,
    here: bool,
    recorded: Path | None,
    form: str,
    svg_file: Path | None,
    unit: str,
) -> None:
    """Show a system: its devices, what joins them, hosts, NICs and network, each figure with its source."""
    if unit not in rate_units():
        raise UsageError(f"unknown unit {unit!r}: expected one of {', '.join(rate_units())}")
    if sum((name is not None, here, recorded is not None)) > 1:
        raise UsageError("name a system, or --here, or --recorded FOLDER: one of them")
    if name is None and not here and recorded is None:
        if svg_file is not None:
            raise UsageError("--svg draws one system: expected a name of 'linkgauge list systems', or --here")
        print_systems(form)
        return
    system = find(name, here=here, recorded=recorded)
    if svg_file is not None:
        try:
            svg_file.write_text(svg(system), encoding="utf-8")
        except OSError as error:
            raise EnvironmentLackingError(f"{svg_file}: cannot be written ({error.strerror})") from None
        click.echo(f"drawn in {svg_file}", err=True)
    if form == JSON:
        click.echo(to_json(system), nl=False)
    elif form == CSV:
        print_data(to_data(system)["link"], form)
    elif svg_file is None:
        show(system, unit)


def find(name: str | None, *, here: bool = False, recorded: Path | None = None) -> System:
    """Return the system that a command line asks for: a name or file, this machine, or a recorded one."""
    if here or recorded is not None:
        from linkgauge.system import discover

        if here:
            for words in hidden_here():
                click.echo(f"linkgauge: {words}", err=True)
        return discover(recorded)
    assert name is not None
    return catalog.load(name)


def show(system: System, unit: str) -> None:
    """Print a system to the terminal."""
    from linkgauge.app.inert import InertConsole, bold
    from linkgauge.view.screen import Table

    console = InertConsole()
    console.print(bold(system.name), f" {system.title}")
    devices = Table(title=None, box=None, pad_edge=False)
    for heading in ("device", "model", "memory", f"memory {unit}", "host", "NIC", "PCIe"):
        devices.add_column(heading, justify="right" if heading.startswith("memory") else "left", overflow="fold")
    for device in system.devices:
        devices.add_row(
            f"{device.ordinal}  {device.name}",
            device.model or "",
            f"{device.memory_bytes.value / 2**30:.4g} GiB" if device.memory_bytes else "unknown",
            show_rate(device.memory_rate.value, unit).split()[0] if device.memory_rate else "unknown",
            ", ".join(system.nearest(device.name, "host", over_fabric=False)),
            ", ".join(system.nearest(device.name, "nic")),
            ", ".join(
                _pcie(link)
                for link in system.links_of(device.name)
                if link.kind == "pcie" and link.width and system.node(link.other(device.name)).kind != "nic"
            ),
        )
    console.print(devices)
    _show_matrix(system, unit, console)
    for host in system.hosts:
        size = f"{host.memory_bytes.value / 2**30:.4g} GiB" if host.memory_bytes else "size unknown"
        rate = show_rate(host.memory_rate.value, unit) if host.memory_rate else "rate unknown"
        console.print(f"{host.name}: {host.model or 'host'}, memory {size}, {rate}" + _cores(host.cores))
    for nic in system.of_kind("nic"):
        rate = show_rate(nic.port_rate.value, unit) if nic.port_rate else "rate unknown"
        console.print(f"{nic.name}: {nic.model or 'NIC'}, {rate}")
    if system.network is not None:
        figures = ", ".join(
            f"{key} {figure.value:g}" for key, figure in system.network.figures.items() if figure.unit == "1"
        )
        console.print(f"network: {system.network.name or ''} {system.network.topology}; {figures or 'no figures'}")
    for note in system.notes:
        console.print(f"note: {note}")
    sources = dict.fromkeys(
        figure.source
        for entry in (*system.nodes, *system.links)
        for figure in vars(entry).values()
        if hasattr(figure, "provenance")
    )
    for source in sources:
        console.print(f"source: {source}")


def _pcie(link: Link) -> str:
    """Return a PCIe link's generation and width, and what it could train to where that is more."""
    words = f"{link.version or '?'} x{link.width}"
    if link.data_rate and link.possible_rate and link.possible_rate.value > 1.01 * link.data_rate.value:
        words += f" ({show_rate(link.possible_rate.value)} possible)"
    return words


def _cores(cores: str | None) -> str:
    return f", cores {cores}" if cores else ""


def _show_matrix(system: System, unit: str, console: Console) -> None:
    from rich.text import Text

    from linkgauge.view.screen import Table

    if not 2 <= len(system.devices) <= 16:
        return
    cells = matrix(system, unit)
    between = {cell for place, row in enumerate(cells) for at, cell in enumerate(row) if at != place}
    if len(between) == 1:  # a matrix of one figure says less, and eight columns are wider than a terminal
        (cell,) = between
        way = "no link of their own: by way of the host" if cell == "host" else f"{cell} {unit} in one direction"
        console.print(f"between any two devices: {way}")
        return
    console.print(f"links between devices, {unit} in one direction")
    widest = max(len(cell) for cell in (*between, *(device.name for device in system.devices)))
    narrow = (widest + 2) * (len(cells) + 1) > console.width  # then the figure is below what carries it
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for device in system.devices:
        table.add_column(device.name, justify="right", overflow="fold")
    for device, row in zip(system.devices, cells, strict=True):
        parts = [map(console.render_str, cell.rsplit(" ", 1) if narrow else [cell]) for cell in row]
        table.add_row(device.name, *map(Text("\n").join, parts))
    console.print(table)
