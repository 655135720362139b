"""`linkgauge doctor`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linkgauge.app.command_line import command, flag, option
from linkgauge.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.doctor.check import Check, Result

_SHOWN = 8


@command("doctor", epilog="Example: linkgauge doctor --mpi /opt/openmpi")
@option("--mpi", help="The MPI library that a run would use.")
@option("--devices", default="auto", help="The devices that a run would use.")
@option("--nodes", metavar="NUMBER", help="On so many nodes of this job, or 'all', at once: what differs between them.")
@option("--hosts", metavar="A,B|FILE", help="On these nodes, reached by ssh.")
@option("--noise", metavar="TIME", help="How long to look for what takes the cores away, all at once: 5s.")
@flag("--json", "as_json", help="As JSON.")
def doctor_command(
    mpi: str | None, devices: str, nodes: str | None, hosts: str | None, noise: str | None, as_json: bool
) -> int:
    """Look for what is wrong with this set-up: each check with its cost and fix. Exit status 1 if one fails."""
    if noise is not None:
        if nodes is not None or hosts is not None:
            raise UsageError("--noise is of this node: leave out --nodes and --hosts")
        return _noise(noise, as_json)
    if nodes is not None or hosts is not None:
        return _on_nodes(mpi, devices, nodes, hosts, as_json)
    from linkgauge.doctor.check import FAILING, as_row, run_checks
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
        _print_checks(found)
    return 1 if any(result.status == FAILING for _, result in found) else 0


def _print_checks(found: Sequence[tuple[Check, Result]]) -> None:
    """What fails and what warns, each with its impact and fix; then what was skipped, by reason, and what is well."""
    from rich.console import Console
    from rich.text import Text

    from linkgauge.doctor.check import FAILING, NOT_CHECKED, OK, WARNING

    console = Console()
    for status, style in ((FAILING, "red"), (WARNING, "yellow")):
        for one, result in found:
            if result.status == status:
                line = Text(f"{status:<9}", style=style) + Text(f"{one.name.replace('_', ' ')}: {result.finding}")
                console.print(line, soft_wrap=True)
                _print_cost(console, result.cost, result.fix)
    skipped: dict[str, list[str]] = {}
    for one, result in found:
        if result.status == NOT_CHECKED:
            skipped.setdefault(result.finding, []).append(one.name.replace("_", " "))
    for why, names in skipped.items():
        console.print(Text(f"skipped  {', '.join(names)}: {why}", style="dim"))
    well = [one.name.replace("_", " ") for one, result in found if result.status == OK]
    if well:
        console.print(Text("ok       ", style="green") + Text(f"{', '.join(well)}"))
    words = {FAILING: "failed", WARNING: "warned", NOT_CHECKED: "skipped", OK: "ok"}
    counts = {word: sum(result.status == status for _, result in found) for status, word in words.items()}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    console.print(f"{len(found)} checks: {said}. --json has what each found.")


def _noise(asked: str, as_json: bool) -> int:
    """What takes each core away: a line a core, the noisiest first; those that are quiet together."""
    import dataclasses

    from rich.console import Console
    from rich.table import Table

    from linkgauge.doctor.noise import LEAST_NS, core_noise
    from linkgauge.model.quantity import format_duration, parse_duration

    seconds = parse_duration(asked) / 1e9
    if not 0.1 <= seconds <= 3600:
        raise UsageError(f"--noise {asked}: expected 100ms to 1h")
    found = sorted(core_noise(seconds), key=lambda one: -one.share)
    if as_json:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
        return 0
    noisy = [one for one in found if one.noisy]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("core", "time lost", "detours/s", "typical", "longest", "period"):
        table.add_column(name, justify="right")
    for one in (noisy or found)[:_SHOWN]:
        table.add_row(str(one.core), f"{100 * one.share:.2f} %", f"{one.count / one.span_s:.0f}",
                      format_duration(one.typical_ns), format_duration(one.longest_ns),
                      format_duration(one.period_ns) if one.period_ns else "-")  # fmt: skip
    console = Console()
    console.print(table)
    rest = f"; {len(noisy) - _SHOWN} more like these" if len(noisy) > _SHOWN else ""
    looked, least = (format_duration(time_ns) for time_ns in (seconds * 1e9, LEAST_NS))
    line = f"{len(noisy)} of {len(found)} cores lost more than 1 % of {looked}, or 1 ms at a time, to what is not ours"
    console.print(f"{line}{rest}. Detours are {least} and longer.", soft_wrap=True)
    return 0


def _on_nodes(mpi: str | None, devices: str, nodes: str | None, hosts: str | None, as_json: bool) -> int:
    """The doctor on every node: what most have first, and what differs before what is alike."""
    import dataclasses

    from rich.console import Console
    from rich.text import Text

    from linkgauge.doctor.check import FAILING, NOT_CHECKED, OK, WARNING
    from linkgauge.doctor.on_nodes import look_on_nodes
    from linkgauge.run.hosts import asked_hosts
    from linkgauge.run.mpi_library import default_installation, resolve

    names = asked_hosts(nodes, hosts)
    found = look_on_nodes(resolve(mpi) if mpi is not None else default_installation(), names, devices)
    if as_json:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
        return 1 if any(one.status == FAILING for one in found) else 0
    console = Console()
    differing = [one for one in found if one.differs]
    for one in differing:
        console.print(Text(f"differs     {one.name}:", style="yellow"), soft_wrap=True)
        for status, finding, on in one.found:
            said = f"{finding}" if status == OK else f"{status}: {finding}"
            console.print(Text(f"{'':12}{_hosts_text(on)}: {said}"), soft_wrap=True)
        _print_cost(console, one.cost, one.fix)
    for one in found:
        if not one.differs and one.status in (FAILING, WARNING):
            status, finding, _ = one.found[0]
            console.print(Text(f"{status:<12}{one.name}, on all {len(names)}: {finding}"), soft_wrap=True)
            _print_cost(console, one.cost, one.fix)
    alike = [one for one in found if not one.differs]
    well, not_looked = (sum(one.status == status for one in alike) for status in (OK, NOT_CHECKED))
    rest = f", {not_looked} could not be looked at" if not_looked else ""
    console.print(f"{len(names)} nodes: {len(differing)} things differ, {well} are alike and well{rest}")
    return 1 if any(one.status == FAILING for one in found) else 0


def _hosts_text(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:_SHOWN]) + (f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else "")


def _print_cost(console: Console, cost: str, fix: str) -> None:
    from rich.text import Text

    for word, text in (("Impact", cost), ("Fix", fix)):
        if text:
            console.print(Text(f"{'':9}{word}: {text}"), soft_wrap=True)
