"""How `linkgauge expect` shows limits, schedules, fits and rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from linkgauge.app.output import TABLE, print_data
from linkgauge.expect.limit import Limit
from linkgauge.model.device_words import device_words, with_parts_named
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import percent
from linkgauge.stats.alike import members_text
from linkgauge.system import System
from linkgauge.system.units import show_rate

if TYPE_CHECKING:
    from rich.console import Console

_JUSTIFIED: tuple[Literal["left", "right"], ...] = ("left", "left", "right", "left")  # rule, kind, value, basis
_MOST_PARTS = 16  # of a schedule that are printed as text
_BOTH_WAYS = ("bidirectional", "pairs_bidirectional")  # whose limit is one direction's, where `show` has the sum


def print_limits(
    console: Console, case: Mapping[str, Any], found: Sequence[Limit], unit: str, named: Mapping[str, str], noun: str,
    others: Sequence[Sequence[int]] = (),
) -> None:  # fmt: skip
    """Print a case and its limits as a table; `named` is what screens call a run's transports, `noun` a device.

    `others`: the devices of cases that have the same limits; what these rest on is shown of the first.
    """
    from linkgauge.app.inert import bold
    from linkgauge.view.screen import Table

    shown = [named.get(case["transport"], str(case["transport"]))] if case.get("transport") else []
    members = [tuple(one) for one in (case["devices"], *others)]
    shown.append(f"on {members_text(members, noun) if others else device_words(members[0], noun)}")
    shown += [f"by {case['variant']}"] if case.get("variant") else []
    shown += [f"via {noun} {case['via']}"] if case.get("via", -1) >= 0 else []
    if int(case.get("nodes") or 1) > 1:
        shown.append(f"of each of {case['nodes']} nodes")
    if "over_nodes" in case:
        shown.append(f"over {case['over_nodes']} nodes")
    if case.get("size"):
        shown.append(f"at {size_text(case['size'])}")
    if case["pattern"] in _BOTH_WAYS:
        shown.append("(each direction)")
    console.print(bold(str(case["pattern"])), " ".join(shown))
    if "measured_bytes_per_s" in case:
        console.print(f"  measured {measured_words(float(case['measured_bytes_per_s']), found, unit)}")
    if "measured_ns" in case:
        console.print(f"  measured {latency_words(float(case['measured_ns']), found)}")
    if not found:
        console.print("  no limit is known: this system's description lacks a figure for it")
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in _JUSTIFIED:
        table.add_column(justify=justify, overflow="fold")
    for limit in found:
        if limit.latency_ns is not None:
            value = show_time(limit.latency_ns)
        else:
            value = show_rate(limit.value_bytes_per_s, unit)
        table.add_row(f"  {limit.rule}", limit.kind, value, with_parts_named(limit.basis))
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


def print_rules() -> None:
    """Print each rule: formula, source and limits."""
    from linkgauge.expect.rules import RULES

    for rule in RULES.values():
        click.echo(f"{rule.name} ({rule.kind}; {rule.patterns})")
        click.echo(f"    {rule.formula}")
        click.echo(f"    source: {rule.source}")
        click.echo(f"    limits: {rule.limits}")


def print_schedules(system: System, cases: Sequence[Mapping[str, Any]], *, form: str, unit: str) -> None:
    """Print schedules: the largest parts as text, everything as JSON. Of all patterns those that have one."""
    from linkgauge.expect.query import query
    from linkgauge.expect.schedule import PATTERNS_OF_SCHEDULES, schedule

    several = len({case["pattern"] for case in cases}) > 1
    chosen = [case for case in cases if not several or case["pattern"] in PATTERNS_OF_SCHEDULES]
    found = [(case, schedule(query(system, case))) for case in chosen]
    if form != TABLE:
        names = {name: ordinal for ordinal, name in system.names_by_ordinal.items()}
        rows = [{"case": plain(case, [])["case"], "devices": names, **dataclasses.asdict(made)} for case, made in found]
        print_data(rows, form)
        return
    from linkgauge.app.inert import InertConsole, bold

    console = InertConsole()
    for case, made in found:
        value = show_rate(made.value_bytes_per_s, unit)
        best = "" if made.exact else ", perhaps not the best"
        parts = f"{len(made.parts)} parts at once over the {made.scope} links"
        words = f" on {device_words(case['devices'], 'GPU')}: {value} by {parts}"
        console.print(bold(made.pattern), f"{words} ({made.rule}{best})")
        for part in made.parts[:_MOST_PARTS]:
            steps = [f"{word} {' - '.join(path)}" for word in ("reduce", "copy") for path in getattr(part, word)]
            words = with_parts_named(f"{part.root}: {', '.join(steps)}")
            console.print(f"  {show_rate(part.rate_bytes_per_s, unit)} {words}")
        if len(made.parts) > _MOST_PARTS:
            console.print(f"  and {len(made.parts) - _MOST_PARTS} more, which --json prints")


def print_fits(folder: Path, *, form: str, unit: str) -> None:
    """Print the latency and the rate that are fitted to each sweep of the run in `folder`."""
    from linkgauge.app.inert import InertConsole
    from linkgauge.expect.fits_of_run import as_data, sweeps_of
    from linkgauge.stats.attempts import counted
    from linkgauge.stats.launches import device_noun, shown_transports
    from linkgauge.store import run as store
    from linkgauge.view.screen import Table

    run = store.load(folder)
    shown, noun = shown_transports(run.launched), device_noun(run.launched)
    sweeps = sweeps_of(counted(run).rows)
    if form != TABLE:
        print_data([as_data(sweep) for sweep in sweeps], form)
        return
    if not sweeps:
        click.echo("no sweep of four sizes or more in this run")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("sweep", "sizes", "points", "latency", f"rate, {unit}"):
        table.add_column(name, justify="right" if name == "points" else "left", overflow="fold")
    identified: dict[str, list[str]] = {}
    order = {name: number for number, name in enumerate(PATTERNS)}
    for sweep in sorted(sweeps, key=lambda one: order[one.dimensions["pattern"]]):
        d = sweep.dimensions
        cadence = "" if d["cadence"] == "isolated" else f", {d['cadence']}"
        name = f"{shown.get(d['transport'], d['transport'])} {d['pattern']}"
        head = f"{name} on {device_words(d['devices'], noun)}{cadence}"
        for place, piece in enumerate(sweep.fit.pieces):
            latency, rate = piece.latency, piece.rate
            low, high = (_digits(end, unit) for end in (rate.low, rate.high))
            rates = f"at least {low}" if math.isinf(rate.high) else f"{low} to {high}"
            table.add_row(
                "" if place else head,
                f"{size_text(piece.first_bytes)} to {size_text(piece.last_bytes)}",
                str(piece.points),
                f"{latency.value / 1e3:.3g} µs ({latency.low / 1e3:.3g} to {latency.high / 1e3:.3g})",
                f"{_digits(rate.value, unit)} ({rates})" if math.isfinite(rate.value) else rates,
            )
        if sweep.loggp is not None:
            known = [name for name in ("L + 2o", "G", "g") if name not in sweep.loggp.missing]
            lacking = "; ".join(f"{parameter} {why}" for parameter, why in sweep.loggp.missing.items())
            identified.setdefault(f"known {', '.join(known)}; not known: {lacking}", []).append(name)
    console = InertConsole()
    console.print("A time is the latency plus size / rate, each with its 95 % interval.")
    console.print(table)
    for words, names in identified.items():
        console.print(f"LogGP parameters of {', '.join(dict.fromkeys(names))}: {words}.")


def _digits(rate: float, unit: str) -> str:
    """Return a rate in a unit that the heading names."""
    from linkgauge.view.units import digits

    return digits(float(show_rate(rate, unit).removesuffix(unit)))


def plain(case: Mapping[str, Any], found: Sequence[Limit]) -> dict[str, Any]:
    """Return a case and its limits as JSON has them, without what is unknown."""
    return {
        "case": {key: value for key, value in case.items() if value is not None},
        "limits": [
            {key: value for key, value in dataclasses.asdict(limit).items() if value is not None} for limit in found
        ],
    }
