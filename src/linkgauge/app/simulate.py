"""`linkgauge simulate`: a whole cluster from its description, by named routing rules."""

from __future__ import annotations

import dataclasses
import json as json_module
import time
from collections.abc import Callable
from pathlib import Path

import click

from linkgauge.app.command_line import PATH, FiniteRange, argument, command, flag, option
from linkgauge.errors import UsageError

_MOST_GPUS = 10_000_000
_SAID_EVERY_S = 10


@command("simulate", help="What a whole cluster would give a pattern, by named routing rules.")
@argument("system", metavar="SYSTEM|FILE", default=None, help="A described system, or a file of one, with its network.")
@option("--pattern", default="alltoall", help="alltoall, allreduce, permutation, ...; one at a time.")
@option("--size", default="2MiB", help="Size of the pattern, as in 'linkgauge run'.")
@option("--gpus", default="", help="Counts of GPUs as 64,1024 or 8:4096:x2; by default doubling up to all.")
@option("--algorithm", default="", help="Of a collective: ring, tree, halving, doubling, hierarchical, pairwise.")
@option("--distribution", default="", help="Of alltoallv and halo; also classes:4,1;1,4 (docs/how-to/predict.md).")
@option("--placement", default="packed", help="packed, linear, random, shuffled, spread, groups:.., over:K, nodes:..")
@option("--routing", default="", help="Rules as minimal,mixed:0.5,best; trees: static,best. All by default.")
@option("--gpus-per-node", type=click.IntRange(min=0), default=0, help="Fewer GPUs of each node than it has.")
@option("--root", type=click.IntRange(min=0), default=0, help="The root's rank.")
@option("--seed", type=click.IntRange(min=0), default=0, help="Of all that is drawn.")
@option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A figure of the network, assumed by you.")
@option(
    "--background", multiple=True, metavar="PATTERN:GPUS[:SIZE]", help="A job that goes on beside it, placed with it."
)
@option(
    "--background-share",
    type=FiniteRange(0, 1),
    default=0.0,
    help="Fill this share of the other nodes with drawn jobs.",
)
@option("--draws", type=click.IntRange(1, 1000), default=20, help="Of the background.")
@flag("--pessimistic", help="With --background: overfull ports hold back all that shares links with what goes there.")
@option("--calibrate", type=PATH, metavar="RUN", help="A run on 2 to 8 nodes, for the library's factor.")
@option("--paper", default="", metavar="FIGURE", help="A paper's figure: sc24:9, sc24:10, sc24:12 or sc24:13.")
@flag("--figures", help="List the figures of a network that can be stated or set.")
@flag("--no-what-if", help="Leave out other placements and more links.")
@flag("--json", help="Print JSON: rates in bytes per second, times in seconds.")
@option("--chart", type=PATH, metavar="FILE", help="Write the curves as .svg, .pdf, .png or .json.")
@option("--html", type=PATH, metavar="FILE", help="Write a page that opens offline.")
@option("--unit", default="Gb/s", help="Unit of the rates shown.")
def simulate_command(
    system: str | None,
    pattern: str,
    size: str,
    gpus: str,
    algorithm: str,
    distribution: str,
    placement: str,
    routing: str,
    gpus_per_node: int,
    root: int,
    seed: int,
    settings: tuple[str, ...],
    background: tuple[str, ...],
    background_share: float,
    draws: int,
    pessimistic: bool,
    calibrate: Path | None,
    paper: str,
    figures: bool,
    no_what_if: bool,
    json: bool,
    chart: Path | None,
    html: Path | None,
    unit: str,
) -> None:
    """Print what each rule gives over counts of GPUs, what binds, and what would change it."""
    from linkgauge.model.quantity import parse_size
    from linkgauge.simulate import Request, of_system, parse_placement, parse_rules, study
    from linkgauge.simulate.described import COUNTS, RATES, TIMES, parse_setting
    from linkgauge.simulate.others import Others, parse_load
    from linkgauge.system import catalog
    from linkgauge.view.units import rate_unit

    rate_unit(unit)
    if figures:
        for name, what in {**COUNTS, **RATES, **TIMES}.items():
            click.echo(f"{name}: {what}")
        return
    if paper:
        if system is not None:
            raise UsageError("--paper names its systems itself: leave the system out")
        _paper(paper, seed, json=json, chart=chart, html=html, unit=unit)
        return
    if system is None:
        raise UsageError("name a system (linkgauge topology lists the described ones), or ask for --figures")
    fabric = of_system(catalog.load(system), dict(parse_setting(text) for text in settings))
    request = Request(pattern, parse_size(size), algorithm, distribution, root, seed)
    gpu_counts = _counts(gpus, fabric.nodes * (gpus_per_node or fabric.gpus))
    rules = parse_rules(routing, fabric)
    where = parse_placement(placement, seed)
    if (background and background_share) or (pessimistic and not background):
        raise UsageError(
            "--background and --background-share exclude each other, and --pessimistic goes with --background"
        )
    others = None
    if background or background_share:
        others = Others(tuple(parse_load(text) for text in background), background_share, draws, pessimistic)
    factor = None
    if calibrate is not None:
        from linkgauge.simulate.calibrate import calibrate as calibrated
        from linkgauge.store.run import load

        factor = calibrated(load(calibrate), fabric, request)
    found = study(
        fabric, request, gpu_counts, rules, where, per_node=gpus_per_node, factor=factor, what_if=not no_what_if,
        others=others, told=_now_and_then(),
    )  # fmt: skip
    from linkgauge.view import simulated  # after what may be refused: charts' libraries take long to load

    if chart is not None:
        simulated.write_chart(found, unit, chart)
    if html is not None:
        from linkgauge.simulate.papers import Curves

        _write(html, simulated.page([Curves(found, ())], simulated.title_of(found), unit))
    if json:
        click.echo(json_module.dumps(found.plain(), indent=1))
        return
    from linkgauge.app.inert import InertConsole

    simulated.print_study(InertConsole(), found, unit)


def _paper(figure: str, seed: int, *, json: bool, chart: Path | None, html: Path | None, unit: str) -> None:
    """Simulate and show a paper's figure beside what the paper states of it."""
    from linkgauge.app.inert import InertConsole
    from linkgauge.simulate import papers
    from linkgauge.view import simulated

    console = InertConsole()
    words = papers.FIGURES[papers.known(figure)]
    if figure == "sc24:12":
        if chart is not None or html is not None:
            raise UsageError("sc24:12 is a table: leave --chart and --html out")
        mixes = papers.mixes(seed)
        if json:
            click.echo(json_module.dumps([dataclasses.asdict(mix) for mix in mixes], indent=1))
            return
        console.print(f"{figure}: {words}")
        simulated.print_mixes(console, mixes, unit)
        console.print(
            "The paper: the incast lowers the allreduce, on either service level; not where jobs share no switches."
        )
        return
    found = papers.curves(figure, seed)
    if chart is not None:
        for one in found:
            name = chart.with_name(f"{chart.stem}-{one.study.fabric.name}-{one.study.request.pattern}{chart.suffix}")
            simulated.write_chart(one.study, unit, name, one.statements)
    if html is not None:
        _write(html, simulated.page(found, f"{figure}: {words}", unit))
    if json:
        rows = [{**one.study.plain(), "statements": one.statements, "prose": one.prose} for one in found]
        click.echo(json_module.dumps(rows, indent=1))
        return
    console.print(f"{figure}: {words}")
    for one in found:
        simulated.print_study(console, one.study, unit)
        for text, _ in one.statements:
            console.print(f"{text[0].upper()}{text[1:]}.")
        for line in one.prose:
            console.print(line)


def _now_and_then() -> Callable[[str], None]:
    """Says on stderr how far it is, every 10 s: a thousand draws take minutes."""
    last = time.monotonic()

    def told(words: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SAID_EVERY_S:
            last = time.monotonic()
            click.echo(f"linkgauge: {words}", err=True)

    return told


def _write(path: Path, page: str) -> None:
    from linkgauge.store.folder import write_atomically

    write_atomically(path, page.encode())


def _counts(text: str, most: int) -> list[int]:
    """Counts of GPUs of a list and ranges such as 8:4096:x2; doubling from 8 to all where it is empty."""
    if not text:
        usual = [8]
        while usual[-1] * 4 <= min(most, 4096):
            usual.append(usual[-1] * 4)
        return sorted({min(count, most) for count in usual} | {min(most, 4096)})
    from linkgauge.app.run_options import counts

    found = counts("--gpus", text)
    if max(found) > min(most, _MOST_GPUS):
        raise UsageError(f"--gpus: {max(found)} GPUs: there are {most}")
    return found
