"""`linkgauge expect`: what a system, or a run's system, allows each pattern, rule by rule."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linkgauge.app.command_line import argument, command, flag, option, unit_option
from linkgauge.app.output import TABLE, output_options, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import UsageError
from linkgauge.expect.rules import Limit
from linkgauge.model.case import DIMENSIONS, ONLY_BY_NAME
from linkgauge.model.patterns import PATTERNS, lanes_of
from linkgauge.model.quantity import parse_size, percent
from linkgauge.model.transports import TRANSPORTS
from linkgauge.system import System, catalog
from linkgauge.system.units import rate_units, show_rate

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.simulate import Answer


# Python refuses to read thousands of digits; no ordinal has ten.
_ORDINALS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_MOST_RANKS = 4096
_MOST_PARTS = 16  # of a schedule that are printed as text
_SIMULATED_SIZE = 1 << 30  # where none is asked for: as good as without latencies
# Of machines whose description does not say how many nodes they have; the largest ones have some ten thousands.
_MOST_NODES = 1_000_000


_SYSTEM, _CASE = "Which system", "What to compute"


@command(
    "expect",
    help="Compute what a system's links allow, by named rules.",
    epilog="Example: linkgauge expect hgx-h200-8 --pattern allreduce",
)
@argument("system", metavar="[SYSTEM|RUN]", default=None, help="Described system, a file of one, or a run folder.")
@flag("--here", panel=_SYSTEM, help="Discover this machine.")
@option("--system", "system_name", default="", metavar="NAME|FILE", panel=_SYSTEM, help="System to judge a run by.")
@option("--pattern", default="all", metavar="NAMES", panel=_CASE, help="Patterns, separated by commas, or all.")
@option(
    "--devices",
    default="",
    metavar="ORDINALS",
    panel=_CASE,
    help="Devices, such as 0,1,4-7, one for each rank; all by default.",
)
@option("--transport", default="", metavar="NAME", panel=_CASE, help="Transport; without it, the links alone.")
@option("--size", default="", metavar="SIZE", panel=_CASE, help="Size, such as 64MiB; limits of memory depend on it.")
@option(
    "--distribution",
    default="",
    metavar="NAME",
    panel=_CASE,
    help="Distribution of alltoallv and halo, as in 'linkgauge run'.",
)
@option(
    "--nodes",
    type=click.IntRange(min=1),
    default=1,
    panel=_SYSTEM,
    help="Number of nodes of this kind, joined by its network.",
)
@option("--root", type=click.IntRange(min=0), default=0, panel=_CASE, help="Rank of the root.")
@flag("--rules", help="List the rules: formula, source and limits.")
@flag("--schedule", help="Show the schedule that reaches each limit: trees or paths.")
@flag("--fits", help="Show latency and rate fitted to a run's sweeps.")
@output_options(": rates in bytes per second")
@unit_option()
@verbosity_options("Print each stage.")
def expect_command(
    system: str | None,
    here: bool,
    system_name: str,
    pattern: str,
    devices: str,
    transport: str,
    size: str,
    distribution: str,
    nodes: int,
    root: int,
    rules: bool,
    schedule: bool,
    fits: bool,
    form: str,
    unit: str,
) -> None:
    """Print the limits of patterns on a system: rule, kind, value, and what each rests on."""
    if unit not in rate_units():
        raise UsageError(f"unknown unit {unit!r}: expected one of {', '.join(rate_units())}")
    if rules:
        _show_rules()
        return
    if (system is not None) == here:
        raise UsageError("name a system, a run folder, or --here (linkgauge topology lists the described ones)")
    simulated: dict[str, list[Answer]] = {}
    # Not Path.is_file, which raises for a name that is too long to be one.
    shown: Mapping[str, str] = {}
    is_run = system is not None and os.path.isfile(os.path.join(system, "run.json"))
    if fits:
        if not is_run:
            raise UsageError("--fits needs a run folder: parameters are fitted to what was measured")
        _fits(Path(str(system)), form=form, unit=unit)
        return
    if system is not None and is_run:
        if devices or transport or size or distribution or schedule or pattern != "all":
            raise UsageError(
                "a run has its own cases: --pattern, --devices, --transport, --size, --distribution and --schedule go "
                "with a system"
            )
        with Stages("expect") as stages:
            groups, notes, shown = _of_run(Path(system), system_name, stages)
    else:
        if system_name:
            raise UsageError("--system goes with a run; name the system itself instead")
        described = _system(system)
        _check_nodes(described, nodes)
        wanted = {"devices": ordinals(devices, len(described.devices)), "transport": transport, "size": size,
                  "distribution": DIMENSIONS["distribution"].from_text(distribution or "default")[0]}  # fmt: skip
        cases = _cases(described, pattern, wanted, nodes, root)
        if schedule:
            _schedules(described, cases, form=form, unit=unit)
            return
        from linkgauge.expect import limits

        groups, notes = [], []
        with Stages("expect") as stages:
            stages.stage("computing limits", len(cases), "cases")
            for case in cases:
                groups.append((case, limits(described, case)))
                stages.advance()
        if nodes > 1:
            cases_simulated = {case["pattern"]: _simulated(described, case) for case in cases}
            simulated = {name: found for name, found in cases_simulated.items() if found}
    if form != TABLE:
        rows = [_plain(case, found) for case, found in groups]
        for (case, _), row in zip(groups, rows, strict=True):
            if case["pattern"] in simulated:
                row["simulated"] = [one.plain() for one in simulated[case["pattern"]]]
        print_data(rows, form, rows=_flat_rows(rows))
        return
    from linkgauge.app.inert import InertConsole

    console = InertConsole()
    for case, found in groups:
        _show(console, case, found, unit, shown)
        for one in simulated.get(case["pattern"], []):
            value = show_rate(one.goodput, unit)
            console.print(f"  simulated, {one.rule}: {value}, nodes packed; fullest: {one.bindings[0].where}")
    for note in notes:
        console.print(note)


def _simulated(system: System, case: Mapping[str, Any]) -> list[Answer]:
    """What each routing rule gives a collective of whole nodes, packed; nothing where the network is not described."""
    from linkgauge.simulate import Placement, Request, answers, laid_out, of_system, parse_rules

    whole = len(case["devices"]) == len(system.devices) and len(set(case["devices"])) == len(system.devices)
    if case["pattern"] not in ("alltoall", "allreduce", "allgather", "reduce_scatter") or not whole:
        return []
    try:
        fabric = of_system(system)
        if fabric.kind == "endpoints":  # ports alone: the rules above say as much
            return []
        layout = laid_out(fabric, case["nodes"] * fabric.gpus, Placement())
        request = Request(case["pattern"], case.get("size") or _SIMULATED_SIZE)
        return answers(layout, request, parse_rules("", fabric))
    except UsageError:
        return []


def _system(name: str | None) -> System:
    if name is None:
        from linkgauge.system import discover

        return discover()
    return catalog.load(name)


def ordinals(text: str, count: int) -> tuple[int, ...] | None:
    """Return the ordinals of a list such as `0,1,4-7`; None for an empty one. `UsageError` names a wrong part.

    A range's ends are looked at before it is expanded.
    """
    if not text:
        return None
    result: list[int] = []
    for part in text.split(","):
        match = _ORDINALS.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"--devices: {part!r} is no ordinal or range; write them as 0,1,4-7")
        first, last = int(match[1]), int(match[2] or match[1])
        for ordinal in (first, last):
            if ordinal >= count:
                raise UsageError(f"--devices: there is no device {ordinal}: expected ordinals 0 to {count - 1}")
        if last < first:
            raise UsageError(f"--devices: {part!r} runs backwards; write the smaller ordinal first, {last}-{first}")
        result.extend(range(first, last + 1))
        if len(result) > _MOST_RANKS:
            raise UsageError(f"--devices: more than {_MOST_RANKS} ranks on a node; expected at most so many")
    return tuple(result)


def _check_nodes(system: System, nodes: int) -> None:
    """UsageError for more nodes than the system has; where nobody states how many it has, for more than any has."""
    stated = system.network.value("nodes") if system.network is not None else None
    if nodes > (stated or _MOST_NODES):
        words = f"{system.name} has {stated:.0f}" if stated else "its description states no number"
        raise UsageError(f"--nodes {nodes}: {words}: expected 1 to {stated or _MOST_NODES:.0f}")


def _cases(system: System, pattern: str, wanted: Mapping[str, Any], nodes: int, root: int) -> list[dict[str, Any]]:
    """Return the cases that are asked for; pairs that nobody names are the first device with each other."""
    usual = [
        name for name, info in PATTERNS.items()
        if name not in ONLY_BY_NAME and not (info.collective and info.latency_only)  # no figure bounds these
    ]  # fmt: skip
    names = usual if pattern == "all" else [name.strip() for name in pattern.split(",")]
    if wanted["transport"] and wanted["transport"] not in TRANSPORTS:
        raise UsageError(f"unknown transport {wanted['transport']!r}: expected one of {', '.join(TRANSPORTS)}")
    base: dict[str, Any] = {"transport": wanted["transport"] or None, "nodes": nodes, "root": root,
                            "distribution": wanted["distribution"]}  # fmt: skip
    if wanted["size"]:
        base["size"] = parse_size(wanted["size"])
    if not system.devices:
        raise UsageError(f"{system.name} has no devices: nothing to exchange between")
    cases: list[dict[str, Any]] = []
    for name in names:
        info = PATTERNS.get(name)
        if info is None:
            raise UsageError(f"unknown pattern {name!r}: expected all or some of {', '.join(PATTERNS)}")
        devices = wanted["devices"] or tuple(range(len(system.devices)))
        if info.ranks == "2" and nodes == 1:
            sets = _pairs(devices, bool(wanted["devices"]))
        elif info.ranks == "1":
            sets = [(devices[0],)]
        elif info.ranks == "1 or 2":
            sets = [(devices[0],), *_pairs(devices, bool(wanted["devices"]))] if len(devices) > 1 else [(devices[0],)]
        else:
            sets = [devices]
        cases.extend({**base, "pattern": name, "devices": chosen} for chosen in sets)
    return cases


def _schedules(system: System, cases: Sequence[Mapping[str, Any]], *, form: str, unit: str) -> None:
    """Print schedules: the largest parts as text, everything as JSON. Of all patterns those that have one."""
    from linkgauge.expect.query import query
    from linkgauge.expect.schedule import PATTERNS_OF_SCHEDULES, schedule

    several = len({case["pattern"] for case in cases}) > 1
    chosen = [case for case in cases if not several or case["pattern"] in PATTERNS_OF_SCHEDULES]
    found = [(case, schedule(query(system, case))) for case in chosen]
    if form != TABLE:
        names = {name: ordinal for ordinal, name in system.names_by_ordinal.items()}
        rows = [
            {"case": _plain(case, [])["case"], "devices": names, **dataclasses.asdict(made)} for case, made in found
        ]
        print_data(rows, form)
        return
    from linkgauge.app.inert import InertConsole, bold

    console = InertConsole()
    for case, made in found:
        devices = ",".join(str(device) for device in case["devices"])
        value = show_rate(made.value_bytes_per_s, unit)
        best = "" if made.exact else ", perhaps not the best"
        words = f" devices {devices}: {value} by {len(made.parts)} parts at once over the {made.scope} links"
        console.print(bold(made.pattern), f"{words} ({made.rule}{best})")
        for part in made.parts[:_MOST_PARTS]:
            steps = [f"{word} {' - '.join(path)}" for word in ("reduce", "copy") for path in getattr(part, word)]
            console.print(f"  {show_rate(part.rate_bytes_per_s, unit)} {part.root}: {', '.join(steps)}")
        if len(made.parts) > _MOST_PARTS:
            console.print(f"  and {len(made.parts) - _MOST_PARTS} more, which --json prints")


def _pairs(devices: Sequence[int], stated: bool) -> list[tuple[int, ...]]:
    """Return the stated pair; without one, the first device with each other, since pairs need not be alike."""
    if stated and len(devices) == 2:
        return [tuple(devices)]
    return [(devices[0], other) for other in devices[1:]] or [(devices[0], devices[0])]


def _of_run(
    folder: Path, name: str, stages: Stages
) -> tuple[list[tuple[dict[str, Any], list[Limit]]], list[str], dict[str, str]]:
    """Return the limits of each distinct case of a run on the system that it was measured on, and why some have none.

    Of a case on several nodes `over_nodes` is their number. The last are what screens call the run's transports.

    A case that was measured carries the largest of its medians as `measured_bytes_per_s`, counted as its limits are:
    of patterns whose headline is the sum of several lanes (`bidirectional`, pairs side by side), their mean. Where only
    latency is measured it carries the least as `measured_ns`.
    """
    from linkgauge.expect.of_run import RunLimits, system_of_run
    from linkgauge.stats.attempts import counted
    from linkgauge.stats.launches import shown_transports
    from linkgauge.store import run as store

    run = store.load(folder)
    system = catalog.load(name) if name else system_of_run(run)
    allowed = RunLimits(run, system)
    best: dict[str, float] = {}
    fastest: dict[str, float] = {}
    for summary in (one for group in counted(run).measured for one in group):
        rate = summary.goodput_bytes_per_s
        if PATTERNS[summary.pattern].latency_only and summary.latency_ns:
            key = summary.case_key
            fastest[key] = min(fastest.get(key, math.inf), summary.latency_ns)
        if rate and math.isfinite(rate):
            rate /= lanes_of(summary.pattern, summary.ranks, summary.case.groups)
            best[summary.case_key] = max(best.get(summary.case_key, 0.0), rate)
    groups = {}
    rows = run.rows()
    stages.stage("computing limits", len(rows), "cases")
    for row in rows:
        stages.advance()
        if row.case_key not in groups:
            case = row.case.dimensions()
            found, nodes = allowed.of(row), allowed.placed(row).nodes
            if nodes > 1:
                case["over_nodes"] = nodes
            if row.case_key in best:
                case["measured_bytes_per_s"] = best[row.case_key]
            if row.case_key in fastest:
                case["measured_ns"] = fastest[row.case_key]
            groups[row.case_key] = (case, found)
    order = {name: number for number, name in enumerate(PATTERNS)}

    def place(group: tuple[dict[str, Any], list[Limit]]) -> tuple[int, str, int, list[int], int]:
        case = group[0]
        return order[case["pattern"]], case["transport"], len(case["devices"]), case["devices"], case["size"]

    return sorted(groups.values(), key=place), allowed.notes, shown_transports(run.launched)


def _fits(folder: Path, *, form: str, unit: str) -> None:
    from linkgauge.expect.fits_of_run import as_data, sweeps_of
    from linkgauge.stats.attempts import counted
    from linkgauge.stats.launches import shown_transports
    from linkgauge.store import run as store

    run = store.load(folder)
    shown = shown_transports(run.launched)
    sweeps = sweeps_of(counted(run).rows)
    if form != TABLE:
        print_data([as_data(sweep) for sweep in sweeps], form)
        return
    if not sweeps:
        click.echo("no sweep of four sizes or more in this run")
    for sweep in sweeps:
        d = sweep.dimensions
        devices = ",".join(str(device) for device in d["devices"])
        click.echo(f"{shown.get(d['transport'], d['transport'])} {d['pattern']} {d['cadence']}, devices {devices}")
        for piece in sweep.fit.pieces:
            latency, rate = piece.latency, piece.rate
            low, high = (show_rate(end, unit).split()[0] for end in (rate.low, rate.high))
            click.echo(
                f"  {piece.first_bytes} to {piece.last_bytes} B ({piece.points} points): "
                f"{latency.value / 1e3:.3g} µs ({latency.low / 1e3:.3g} to {latency.high / 1e3:.3g}) + "
                f"size / {show_rate(rate.value, unit)} ({low} to {high})"
            )
        if sweep.loggp is not None:
            known = [name for name in ("L + 2o", "G", "g") if name not in sweep.loggp.missing]
            lacking = "; ".join(f"{name}: {why}" for name, why in sweep.loggp.missing.items())
            click.echo(f"  identifies {', '.join(known)}; missing {lacking}")


def _plain(case: Mapping[str, Any], found: Sequence[Limit]) -> dict[str, Any]:
    return {
        "case": {key: value for key, value in case.items() if value is not None},
        "limits": [
            {key: value for key, value in dataclasses.asdict(limit).items() if value is not None} for limit in found
        ],
    }


def _flat_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each limit of each case, as CSV has them."""
    return [{**row["case"], **one} for row in rows for one in row["limits"]]


_WIDE = 118  # columns of a terminal


def _show(
    console: Console, case: Mapping[str, Any], found: Sequence[Limit], unit: str, named: Mapping[str, str]
) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from linkgauge.app.inert import bold
    from linkgauge.view.screen import Table

    shown = [str(case["pattern"])]
    if case.get("transport"):
        shown.append(named.get(case["transport"], str(case["transport"])))
    shown.append("devices " + ",".join(str(device) for device in case["devices"]))
    if int(case.get("nodes") or 1) > 1:
        shown.append(f"on each of {case['nodes']} nodes")
    if "over_nodes" in case:
        shown.append(f"over {case['over_nodes']} nodes")
    if case.get("size"):
        shown.append(f"{case['size']} B")
    console.print(bold(shown[0]), f" {', '.join(shown[1:])}")
    if "measured_bytes_per_s" in case:
        console.print(f"  measured {measured_words(float(case['measured_bytes_per_s']), found, unit)}")
    if "measured_ns" in case:
        console.print(f"  measured {latency_words(float(case['measured_ns']), found)}")
    if not found:
        console.print("  no limit is known: this system's description lacks a figure for it")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    narrow = console.width < _WIDE  # what a value stands on is below it
    for limit in found:
        if limit.latency_ns is not None:
            value = show_time(limit.latency_ns)
        else:
            value = show_rate(limit.value_bytes_per_s, unit)
        if narrow:
            console.print(Text(f"  {limit.rule} ({limit.kind}): {value}"))
            console.print(Padding(Text(limit.basis, style="dim"), (0, 0, 0, 6)))
        else:
            table.add_row(f"  {limit.rule}", limit.kind, value, limit.basis)
    if not narrow:
        console.print(table)


def measured_words(rate: float, found: Sequence[Limit], unit: str) -> str:
    """Return a measured goodput and its share of the least bound; what is above a bound is said to be wrong."""
    words = show_rate(rate, unit)
    bounds = [c for c in found if c.kind == "upper bound" and c.value_bytes_per_s]
    if not bounds:
        return words
    least = min(bounds, key=lambda c: c.value_bytes_per_s or 0.0)
    share = rate / (least.value_bytes_per_s or 1.0)
    beyond = ": the rule, the description or the measurement is wrong" if share > 1 else ""
    return f"{words}, {percent(share, 1)} of the bound {least.rule}{beyond}"


def latency_words(latency_ns: float, found: Sequence[Limit]) -> str:
    """Return a measured latency over the best that this run reached; one below a bound is said to be wrong."""
    words = show_time(latency_ns)
    known = {c.rule: c.latency_ns for c in found if c.latency_ns is not None}
    broken = [
        c.rule for c in found if c.kind == "upper bound" and c.latency_ns is not None and latency_ns < c.latency_ns
    ]
    if broken:
        return f"{words}, faster than the bound {broken[0]}: the rule, the description or the measurement is wrong"
    best = [c.rule for c in found if c.kind == "measured" and c.rule in known]
    return f"{words}, {latency_ns / (known[best[0]] or 1.0):.2f} of {best[0]}" if best else words


def show_time(ns: float) -> str:
    """Return a time in ns below a microsecond, else in µs."""
    return f"{ns:.3g} ns" if ns < 1e3 else f"{ns / 1e3:.3g} µs"


def _show_rules() -> None:
    from linkgauge.expect.rules import RULES

    for rule in RULES.values():
        click.echo(f"{rule.name} ({rule.kind}; {rule.patterns})")
        click.echo(f"    {rule.formula}")
        click.echo(f"    source: {rule.source}")
        click.echo(f"    limits: {rule.limits}")
