"""`linkgauge list`: what is here, and what is not, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.app.command_line import Group
from linkgauge.app.options import AUTO, devices_to_use, offers
from linkgauge.app.output import TABLE, output_options, print_data

list_command = Group(
    "list",
    help="List devices, transports, patterns, dimensions, plans, MPI libraries or described systems.",
    epilog="Example: linkgauge list mpi",
    no_args_is_help=True,
)
devices_option = offers(devices=devices_to_use("Devices: auto, cuda, cuda:0,2, hip, sycl, host:4."))
form_option = output_options()


_SHORT = 16  # letters of a cell that is not folded


def print_table(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]], form: str = TABLE) -> None:
    """Rows as a table of the columns that have something, or as JSON or CSV with every key."""
    if form != TABLE:
        print_data(rows, form)
        return
    from linkgauge.view import screen
    from linkgauge.view.screen import Table

    cells = {column: [_text(row.get(column, "")) for row in rows] for column in columns}
    shown = [column for column in columns if any(cells[column])] or columns
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for column in shown:
        short = column == shown[0] or max(map(len, cells[column]), default=0) <= _SHORT
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=short)
    for row in zip(*(cells[column] for column in shown), strict=True):
        table.add_row(*row)
    console = screen.console()
    console.print(title, style="bold")
    console.print(table)


def _text(value: object) -> str:
    from rich.markup import escape

    return escape(str(value)) if value is not None else ""


@list_command.command("devices", epilog="Example: linkgauge list devices --devices host:4")
@devices_option
@form_option
def list_devices(devices: str, form: str) -> None:
    """List the devices that a run would use, and why there are no others."""
    from linkgauge.model.quantity import format_bytes
    from linkgauge.model.runtimes import GPU_RUNTIMES
    from linkgauge.run.parent.devices import find_devices, probe

    found = find_devices(devices)
    rows = []
    for ordinal, info in zip(found.ordinals, found.infos, strict=True):
        memory = int(info.get("memory_bytes", 0) or 0)
        row = {**info, "device": f"{found.kind}:{ordinal}", "memory": format_bytes(memory) if memory else ""}
        rows.append(row)
    print_table("devices", ("device", "name", "pci_address", "numa_node", "memory", "architecture", "uuid"), rows, form)
    if form == TABLE and devices == AUTO:
        for kind in GPU_RUNTIMES:
            reason = probe(kind).reason
            if found.kind != kind and reason:
                print(f"no {kind} devices: {reason}")


@list_command.command("transports", epilog="Example: linkgauge list transports")
@devices_option
@form_option
def list_transports(devices: str, form: str) -> None:
    """List the transports: where each can run, or why it cannot."""
    from linkgauge.errors import EnvironmentLackingError
    from linkgauge.model.runtimes import RUNTIMES
    from linkgauge.model.transports import IMPORTED, NIC_LIBRARIES, TRANSPORT_ALIASES, TRANSPORTS, shown_names
    from linkgauge.run.machine.transports import LibraryVersion, absent_transports, ccl_version, nic_version
    from linkgauge.run.parent.devices import find_devices
    from linkgauge.run.parent.mpi_library import default_installation

    found = find_devices(devices)
    try:
        without_mpi = ""
        default_installation()
    except EnvironmentLackingError as error:
        without_mpi = str(error)
    absent = absent_transports(found.kind, mpi=without_mpi)
    ccl = LibraryVersion() if "ccl" in absent else ccl_version(found.kind)
    nics = {name: LibraryVersion() if name in absent else nic_version(name) for name in NIC_LIBRARIES}
    absent = {**absent, **{name: one.reason for name, one in {"ccl": ccl, **nics}.items() if one.reason}}
    libraries = {"ccl": f"{RUNTIMES[found.kind].ccl} {ccl.version} at {ccl.file}"}
    for name, one in nics.items():
        brought = ", or what the MPI library brings" if NIC_LIBRARIES[name].with_mpi else ""
        libraries[name] = f"{NIC_LIBRARIES[name].name} {one.version} at {one.file}{brought}"
    rows = [
        {
            "transport": transport,
            "here": "no" if transport in absent else "yes",
            "runs_on": "" if transport in absent else f"{found.count} {found.kind} devices",
            "library": "" if transport in absent else libraries.get(transport, ""),
            "reason": absent.get(transport, ""),
            "what": traits.what,
        }
        for transport, traits in TRANSPORTS.items()
        if transport not in IMPORTED
    ]
    if form == TABLE:
        called = shown_names({found.kind})
        if "ccl" in absent and not RUNTIMES[found.kind].gpus:  # none of them is the one in use
            called["ccl"] = ", ".join(one for one, transport in TRANSPORT_ALIASES.items() if transport == "ccl")
        rows = [{**row, "transport": called.get(row["transport"], row["transport"]),
                 "library, or why not": row["library"] or row["reason"]} for row in rows]  # fmt: skip
    print_table("transports", ("transport", "here", "runs_on", "library, or why not", "what"), rows, form)


@list_command.command("patterns", epilog="Example: linkgauge list patterns --json")
@form_option
def list_patterns(form: str) -> None:
    """List the patterns: what each does, what its size means, and on how many devices it runs."""
    from linkgauge.model.patterns import PATTERNS

    devices = {
        "2": "pairs",
        "1": "each alone",
        "first": "the first",
        "1 or 2": "each, pairs",
        "pairs": "disjoint pairs",
        "any": "all, subsets",
    }
    rows = [
        {
            "pattern": info.name,
            "what": info.what,
            "size_means": info.size_means,
            "timekeeper": info.timekeeper,
            "devices": devices[info.ranks],
            "kind": "collective" if info.collective else "latency" if info.latency_only else "point to point",
        }
        for info in PATTERNS.values()
    ]
    print_table("patterns", ("pattern", "what", "size_means", "devices"), rows, form)


@list_command.command("dimensions", epilog="Example: linkgauge list dimensions")
@form_option
def list_dimensions(form: str) -> None:
    """List the dimensions of a case and their values: option, plan key and column have the same name."""
    from linkgauge.model.case import DIMENSIONS

    rows = [
        {"dimension": name, "what": one.help, "values": one.expected, "group": one.group, "flag": one.flag}
        for name, one in DIMENSIONS.items()
    ]
    print_table("dimensions", ("dimension", "what", "values"), rows, form)


@list_command.command("plans", epilog="Example: linkgauge list plans")
@form_option
def list_plans(form: str) -> None:
    """List the built-in plans, for --plan."""
    from linkgauge.plan.builtin import builtin_plan, file_of, names

    rows = []
    for name in names():
        plan = builtin_plan(name)
        rows.append({"plan": name, "description": plan.description, "tables": len(plan.cases),
                     "file": str(file_of(name))})  # fmt: skip
    print_table("plans", ("plan", "description"), rows, form)


@list_command.command("mpi", epilog="Example: linkgauge list mpi")
@form_option
def list_mpi(form: str) -> None:
    """List the MPI libraries here, in the order in which a run tries them."""
    from linkgauge.run.parent.mpi_library import find_all

    rows = [
        {
            "name": one.name,
            "version": one.version,
            "abi": one.abi,
            "launcher": one.launcher,
            "library": one.library,
            "found": one.source,
            "launcher_kind": one.launcher_kind,
            "large_count": one.large_count,
            "problem": one.problem,
        }
        for one in find_all()
    ]
    print_table("MPI libraries", ("name", "abi", "found", "launcher", "library", "problem"), rows, form)


@list_command.command("systems", epilog="Example: linkgauge list systems")
@form_option
def list_systems(form: str) -> None:
    """List the described systems, for --system; 'linkgauge topology NAME' shows one."""
    print_systems(form)


def print_systems(form: str) -> None:
    """Print the described systems, by name."""
    from linkgauge.system import catalog
    from linkgauge.system.shipped import names

    rows = [{"system": name, "description": catalog.load(name).title} for name in names()]
    print_table("systems", ("system", "description"), rows, form)
