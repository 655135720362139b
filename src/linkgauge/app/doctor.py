"""`linkgauge doctor`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linkgauge.app.command_line import PATH, command
from linkgauge.app.options import devices_to_use, takes, value
from linkgauge.app.output import TABLE, form_of_output, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import QUIET, VERBOSE, verbosity, verbosity_options
from linkgauge.errors import Exit, UsageError
from linkgauge.model.listed import listed

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.doctor.check import Check, Result
    from linkgauge.doctor.on_nodes import OnNodes
    from linkgauge.run.machine.installation import MpiInstallation

_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class Look:
    """What the doctor looks at."""

    mpi: str | None = value("LIBRARY", "MPI library that a run would use.")
    devices: str = devices_to_use("Devices that a run would use.")
    nodes: str | None = value("NUMBER|all", "Nodes of this job to compare: a number, or all.")
    hosts: str | None = value("A,B|FILE", "Nodes to compare, by name; ssh starts the ranks.")
    recording: Path | None = value("FILE", "Recorded machine to check (linkgauge record) in place of this.", type=PATH)
    snapshot: Path | None = value("FILE", "File to store error counters in, for --since.", type=PATH)
    since: Path | None = value("FILE", "Snapshot to compare error counters with.", type=PATH)
    noise: str | None = value("TIME", "Time to look for noise on every core at once, such as 5s.")
    form: str = form_of_output()


@command("doctor", exits=(Exit.FAIL,), epilog="Example: linkgauge doctor --mpi /opt/openmpi")
@takes(Look)
@verbosity_options("Name the checks that passed or were skipped, too.")
def doctor_command(asked: Look) -> int:
    """Find what is wrong with this set-up before a run: each problem with its impact and its fix."""
    over_nodes = asked.nodes is not None or asked.hosts is not None
    of_counters = asked.snapshot is not None or asked.since is not None
    if (asked.recording is not None) + (asked.noise is not None) + of_counters > 1:
        raise UsageError("--recording, --noise, and --snapshot with --since exclude each other: give one of them")
    if asked.recording is not None and over_nodes:
        raise UsageError("--recording is of one machine: leave out --nodes and --hosts")
    if asked.noise is not None:
        if over_nodes:
            raise UsageError("--noise is of this node: leave out --nodes and --hosts")
        return _noise(asked.noise, asked.form)
    if of_counters:
        return _counters(asked)
    if over_nodes:
        return _on_nodes(asked)
    from linkgauge.doctor.check import FAILING, as_row, run_checks
    from linkgauge.doctor.readers import Readers
    from linkgauge.run.parent.devices import find_devices

    if asked.recording is not None:
        found = _recorded(asked.recording)
    else:
        library, problem = installation_for(asked.mpi)
        devices = find_devices(asked.devices)
        if devices.hidden and verbosity() != QUIET:
            click.echo(f"linkgauge: {devices.hidden}", err=True)
        with Stages("doctor") as stages:
            stages.stage("checking this machine")
            found = run_checks(Readers(mpi=library, mpi_problem=problem, ranks=devices.count), stages.doing)
    if asked.form != TABLE:
        print_data([as_row(one, result) for one, result in found], asked.form)
    else:
        _print_checks(found)
    return 1 if any(result.status == FAILING for _, result in found) else 0


def installation_for(mpi: str | None) -> tuple[MpiInstallation | None, str]:
    """The MPI library that a run would use, or why there is none."""
    from linkgauge.errors import EnvironmentLackingError
    from linkgauge.run.parent.mpi_library import default_installation, resolve

    try:
        return (resolve(mpi) if mpi is not None else default_installation()), ""
    except EnvironmentLackingError as error:
        return None, str(error)


def _recorded(file: Path) -> list[tuple[Check, Result]]:
    """The checks of a recorded machine."""
    from linkgauge.doctor.check import run_checks
    from linkgauge.doctor.recorded import Recorded
    from linkgauge.system.record import read_recording, unpacked

    recording = read_recording(file)
    with unpacked(recording, str(file)) as root:
        return run_checks(Recorded(recording, root, str(file)))


def _print_checks(found: Sequence[tuple[Check, Result]]) -> None:
    """Print what fails and what warns with its impact and fix, then what was skipped, by reason, and what passed."""
    from rich.text import Text

    from linkgauge.doctor.check import FAILING, NOT_CHECKED, OK, WARNING
    from linkgauge.view import screen

    console = screen.console()
    colors = {FAILING: "red", WARNING: "yellow"}
    skipped: dict[tuple[str, str], list[str]] = {}
    for status in (FAILING, WARNING, NOT_CHECKED):
        for one, result in found:
            name = one.name.replace("_", " ")
            if result.status != status:
                continue
            if status == NOT_CHECKED:
                skipped.setdefault((result.needs, result.finding), []).append(name)
                continue
            screen.print_hanging(console, Text(f"{status:<9}", colors[status]), Text(f"{name}: {result.finding}"))
            _print_cost(console, result.cost, result.fix)
    if verbosity() == QUIET:
        return
    for (needs, why), names in skipped.items():
        which = names[0] if len(names) == 1 else " ".join(filter(None, (str(len(names)), needs, "checks")))
        screen.print_hanging(console, Text(f"{'skipped':<9}", "dim"), Text(f"{which}: {why}", "dim"))
        if len(names) > 1 and verbosity() == VERBOSE:
            screen.print_hanging(console, Text(" " * 9), Text(", ".join(names), "dim"))
    if well := [one for one, result in found if result.status == OK]:
        screen.print_hanging(
            console, Text(f"{'ok':<9}", "green"), Text(f"{len(well)} checks: {', '.join(_counted(well))}")
        )
        if verbosity() == VERBOSE:
            named = ", ".join(one.name.replace("_", " ") for one in well)
            screen.print_hanging(console, Text(" " * 9), Text(named, "dim"))
    words = {FAILING: "failed", WARNING: "warned", NOT_CHECKED: "skipped", OK: "ok"}
    counts = {word: sum(result.status == status for _, result in found) for status, word in words.items()}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    console.print(f"{len(found)} checks: {said}. --json has what each found.")


def _counted(checks: Sequence[Check]) -> Iterator[str]:
    """How many there are of each kind: set-up, devices, links, network."""
    for kind, count in Counter(one.look.__module__.rpartition(".")[2] for one in checks).items():
        yield f"{kind.replace('_', '-')} {count}"


def _noise(asked: str, form: str) -> int:
    """What takes each core away: a line a core, the noisiest first; those that are quiet together."""

    from linkgauge.doctor.noise import LEAST_NS, core_noise
    from linkgauge.model.quantity import format_duration, parse_duration
    from linkgauge.view import screen
    from linkgauge.view.screen import Table

    seconds = parse_duration(asked) / 1e9
    if not 0.1 <= seconds <= 3600:
        raise UsageError(f"--noise {asked}: expected 100ms to 1h")
    # Said beforehand and not watched: what looks meanwhile would be noise itself.
    if verbosity() != QUIET:
        click.echo(f"linkgauge: looking for noise on every core at once for {asked}", err=True)
    found = sorted(core_noise(seconds), key=lambda one: -one.share)
    if form != TABLE:
        print_data([dataclasses.asdict(one) for one in found], form)
        return 0
    noisy = [one for one in found if one.noisy]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("core", "time lost", "detours/s", "typical", "longest", "period"):
        table.add_column(name, justify="right")
    for one in (noisy or found)[:_SHOWN]:
        table.add_row(str(one.core), f"{100 * one.share:.2f} %", f"{one.count / one.span_s:.0f}",
                      format_duration(one.typical_ns), format_duration(one.longest_ns),
                      format_duration(one.period_ns) if one.period_ns else "-")  # fmt: skip
    console = screen.console()
    console.print(table)
    rest = f"; {len(noisy) - _SHOWN} more like these" if len(noisy) > _SHOWN else ""
    looked, least = (format_duration(time_ns) for time_ns in (seconds * 1e9, LEAST_NS))
    line = f"{len(noisy)} of {len(found)} cores lost more than 1 % of {looked}, or 1 ms at a time, to other work"
    console.print(f"{line}{rest}. Detours are {least} and longer.", soft_wrap=True)
    return 0


def _on_nodes(asked: Look) -> int:
    """The doctor on every node: what most have first, and what differs before what is alike."""
    from linkgauge.doctor.check import FAILING
    from linkgauge.doctor.on_nodes import MOST_S, look_on_nodes
    from linkgauge.run.parent.hosts import asked_hosts
    from linkgauge.run.parent.mpi_library import default_installation, resolve

    names = asked_hosts(asked.nodes, asked.hosts)
    library = resolve(asked.mpi) if asked.mpi is not None else default_installation()
    with Stages("doctor") as stages:
        stages.stage(f"checking {len(names)} nodes at once", at_most_s=MOST_S)
        found = look_on_nodes(library, names, asked.devices)
    if asked.form != TABLE:
        print_data([dataclasses.asdict(one) for one in found], asked.form)
        return 1 if any(one.status == FAILING for one in found) else 0
    _print_nodes(found, len(names))
    return 1 if any(one.status == FAILING for one in found) else 0


def _print_nodes(found: Sequence[OnNodes], nodes: int) -> None:
    """Print what differs between nodes, the majority first, then what is alike and a problem."""
    from rich.text import Text

    from linkgauge.doctor.check import FAILING, NOT_CHECKED, OK, WARNING
    from linkgauge.doctor.on_nodes import START
    from linkgauge.view import screen
    from linkgauge.view.units import count_text

    console = screen.console()
    differing = [one for one in found if one.differs]
    for one in differing:
        screen.print_hanging(console, Text(f"{'differs':<9}", "yellow"), Text(f"{_title(one.name)}:", "yellow"))
        for status, finding, on in one.found:
            said = f"{finding}" if status == OK else f"{status}: {finding}"
            screen.print_hanging(console, Text(" " * 9), Text(f"{listed(on, _SHOWN)}: {said}"))
        _print_cost(console, one.cost, one.fix)
    silent = sum(len(on) for one in found for status, _, on in one.found if (one.name, status) == (START, FAILING))
    whose = f", on all {nodes - silent}" if nodes > 1 else ""
    for one in found:
        if not one.differs and one.status in (FAILING, WARNING):
            status, finding, _ = one.found[0]
            words = Text(f"{_title(one.name)}{whose}: {finding}")
            screen.print_hanging(console, Text(f"{status:<9}"), words)
            _print_cost(console, one.cost, one.fix)
    alike = [one for one in found if not one.differs]
    well, not_looked = (sum(one.status == status for one in alike) for status in (OK, NOT_CHECKED))
    rest = f", {not_looked} skipped on all" if not_looked else ""
    said = f"{count_text(len(differing), 'difference')}, {count_text(well, 'check')} passed on all{rest}"
    console.print(f"{count_text(nodes, 'node')}: {said}.")


def _counters(asked: Look) -> int:
    """Store error counters, of this node or of all that were named, and say which rose since they were last stored."""
    import os

    from linkgauge.doctor.since import compared, counters_here, counters_on_nodes, read_snapshot, snapshot, worst
    from linkgauge.files import write_atomically
    from linkgauge.run.parent.hosts import asked_hosts
    from linkgauge.run.parent.mpi_library import default_installation, resolve

    before = None if asked.since is None else read_snapshot(asked.since)
    if asked.nodes is not None or asked.hosts is not None:
        names = asked_hosts(asked.nodes, asked.hosts)
        library = resolve(asked.mpi) if asked.mpi is not None else default_installation()
        nodes = counters_on_nodes(library, names)
    else:
        nodes = {os.uname().nodename: counters_here()}
    if asked.snapshot is not None:
        write_atomically(asked.snapshot, snapshot(nodes).encode())
        if verbosity() != QUIET:
            click.echo(
                f"linkgauge: error counters of {listed(sorted(nodes), _SHOWN)} are in {asked.snapshot}", err=True
            )
    if before is None:
        return 0
    found = compared(before, nodes)
    if asked.form != TABLE:
        print_data([dataclasses.asdict(one) for one in found], asked.form)
    else:
        _print_nodes(found, len(nodes))
    return worst(found)


def _title(name: str) -> str:
    """Return what a check is called; the name of an interface stays as it is."""
    return name if name.startswith("interface ") else name.replace("_", " ")


def _print_cost(console: Console, cost: str, fix: str) -> None:
    from rich.text import Text

    from linkgauge.view.screen import print_hanging

    for word, text in (("Impact", cost), ("Fix", fix)):
        if text:
            print_hanging(console, Text(" " * 9), Text(f"{word}: {text}"))
