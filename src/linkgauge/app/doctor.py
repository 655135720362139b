"""`linkgauge doctor`."""

from __future__ import annotations

import json

from linkgauge.app.command_line import command, flag, option


@command("doctor", epilog="Example: linkgauge doctor --mpi /opt/openmpi")
@option("--mpi", help="The MPI library that a run would use.")
@option("--devices", default="auto", help="The devices that a run would use.")
@flag("--json", "as_json", help="As JSON.")
def doctor_command(mpi: str | None, devices: str, as_json: bool) -> int:
    """Look for what is wrong with this set-up: each check with its cost and remedy. Exit status 1 if one fails."""
    from linkgauge.doctor.check import FAILING, NOT_CHECKED, OK, WARNING, as_row, run_checks
    from linkgauge.doctor.readers import Readers
    from linkgauge.errors import EnvironmentLackingError
    from linkgauge.run.devices import find_devices
    from linkgauge.run.mpi_library import default_installation, resolve

    problem = ""
    try:
        library = resolve(mpi) if mpi is not None else default_installation()
    except EnvironmentLackingError as error:
        library, problem = None, str(error)
    count = find_devices(devices).count
    found = run_checks(Readers(mpi=library, mpi_problem=problem, ranks=count))
    if as_json:
        print(json.dumps([as_row(one, result) for one, result in found], indent=1))
    else:
        from rich.console import Console
        from rich.text import Text

        console = Console()
        colours = {OK: "green", WARNING: "yellow", FAILING: "red", NOT_CHECKED: "dim"}
        for one, result in found:
            line = Text()
            line.append(f"{result.status:<12}", style=colours[result.status])
            line.append(f"{one.name.replace('_', ' ')}: {result.finding}")
            console.print(line, soft_wrap=True)
            if result.cost:
                console.print(Text(f"{'':12}costs: {result.cost}"), soft_wrap=True)
            if result.remedy:
                console.print(Text(f"{'':12}remedy: {result.remedy}"), soft_wrap=True)
    return 1 if any(result.status == FAILING for _, result in found) else 0
