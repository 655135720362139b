"""`linkgauge simulate`: a whole cluster from its description, by named routing rules."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from linkgauge.app.command_line import PATH, FiniteRange, argument, command, flag, option, unit_option
from linkgauge.app.output import TABLE, output_options, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import UsageError

_MOST_GPUS = 10_000_000
_TRAFFIC, _WHERE, _OTHERS = "What is simulated", "Where it runs", "Other jobs"


@command(
    "simulate",
    help="Simulate a whole cluster's bandwidth by placement and routing.",
    epilog="Example: linkgauge simulate leonardo-booster --pattern alltoall --gpus 64,1024",
)
@argument("system", metavar="SYSTEM|FILE", default=None, help="Described system, or a file of one, with its network.")
@option(
    "--pattern",
    default="alltoall",
    metavar="NAME",
    panel=_TRAFFIC,
    help="Pattern: alltoall, allreduce, permutation, ...",
)
@option("--size", default="2MiB", metavar="SIZE", panel=_TRAFFIC, help="Message size, as in 'linkgauge run'.")
@option("--gpus", default="", metavar="COUNTS", panel=_WHERE, help="Numbers of GPUs: 64,1024 or 8:4096:x2.")
@option(
    "--algorithm",
    default="",
    metavar="NAME",
    panel=_TRAFFIC,
    help="Algorithm of a collective: ring, tree, halving, ...",
)
@option(
    "--distribution",
    default="",
    metavar="NAME",
    panel=_TRAFFIC,
    help="Distribution of alltoallv and halo, as in 'linkgauge run'.",
)
@option(
    "--placement",
    default="packed",
    metavar="WHICH",
    panel=_WHERE,
    help="Placement: packed, linear, random, spread, over:K, ...",
)
@option(
    "--routing",
    default="",
    metavar="RULES",
    panel=_WHERE,
    help="Routing rules: minimal,mixed:0.5,best; all by default.",
)
@option(
    "--gpus-per-node", type=click.IntRange(min=0), default=0, panel=_WHERE, help="GPUs to use of each node; 0 is all."
)
@option("--root", type=click.IntRange(min=0), default=0, panel=_TRAFFIC, help="Rank of the root.")
@option("--seed", type=click.IntRange(min=0), default=0, panel=_WHERE, help="Seed of everything random.")
@option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    panel=_WHERE,
    help="Figure of the network to assume; repeatable.",
)
@option(
    "--background",
    multiple=True,
    metavar="PATTERN:GPUS[:SIZE]",
    panel=_OTHERS,
    help="Job that runs at the same time; repeatable.",
)
@option(
    "--background-share",
    type=FiniteRange(0, 1),
    default=0.0,
    panel=_OTHERS,
    help="Share of the other nodes to fill with random jobs.",
)
@option("--draws", type=click.IntRange(1, 1000), default=20, panel=_OTHERS, help="Number of random backgrounds.")
@flag("--pessimistic", panel=_OTHERS, help="Let congested ports hold back all that shares their links.")
@option(
    "--calibrate", type=PATH, metavar="RUN", panel=_TRAFFIC, help="Run on 2 to 8 nodes that gives the library's factor."
)
@option("--paper", default="", metavar="FIGURE", help="Figure of a paper: sc24:9, sc24:10, sc24:12 or sc24:13.")
@flag("--figures", help="List the figures of a network that --set takes.")
@flag("--no-what-if", help="Leave out other placements and additional links.")
@output_options(": rates in bytes per second, times in seconds")
@option("--chart", type=PATH, metavar="FILE", help="File for the curves: .svg, .pdf, .png or .json.")
@option("--html", type=PATH, metavar="FILE", help="HTML file to write; it opens offline.")
@unit_option("Gb/s")
@verbosity_options("Print each stage.")
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
    form: str,
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
        _paper(paper, seed, form=form, chart=chart, html=html, unit=unit)
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
    with Stages("simulate") as stages:
        found = study(
            fabric, request, gpu_counts, rules, where, per_node=gpus_per_node, factor=factor, what_if=not no_what_if,
            others=others, told=stages.told,
        )  # fmt: skip
    from linkgauge.view import simulated  # after what may be refused: charts' libraries take long to load

    if chart is not None:
        simulated.write_chart(found, unit, chart)
    if html is not None:
        from linkgauge.simulate.papers import Curves

        _write(html, simulated.page([Curves(found, ())], simulated.title_of(found), unit))
    if form != TABLE:
        data = found.plain()
        print_data(data, form, rows=data["answers"])
        return
    from linkgauge.app.inert import InertConsole

    simulated.print_study(InertConsole(), found, unit)


def _paper(figure: str, seed: int, *, form: str, chart: Path | None, html: Path | None, unit: str) -> None:
    """Simulate and show a paper's figure beside what the paper states of it."""
    from linkgauge.app.inert import InertConsole
    from linkgauge.simulate import papers
    from linkgauge.view import simulated

    console = InertConsole()
    words = papers.FIGURES[papers.known(figure)]
    if figure == "sc24:12":
        if chart is not None or html is not None:
            raise UsageError("sc24:12 is a table: leave --chart and --html out")
        with Stages("simulate") as stages:
            stages.stage(f"simulating {figure}")
            mixes = papers.mixes(seed)
        if form != TABLE:
            print_data([dataclasses.asdict(mix) for mix in mixes], form)
            return
        console.print(f"{figure}: {words}")
        simulated.print_mixes(console, mixes, unit)
        console.print(
            "The paper: the incast lowers the allreduce, on either service level; not where jobs share no switches."
        )
        return
    with Stages("simulate") as stages:
        stages.stage(f"simulating {figure}")
        found = papers.curves(figure, seed)
    if chart is not None:
        for one in found:
            name = chart.with_name(f"{chart.stem}-{one.study.fabric.name}-{one.study.request.pattern}{chart.suffix}")
            simulated.write_chart(one.study, unit, name, one.statements)
    if html is not None:
        _write(html, simulated.page(found, f"{figure}: {words}", unit))
    if form != TABLE:
        rows = [{**one.study.plain(), "statements": one.statements, "prose": one.prose} for one in found]
        print_data(rows, form, rows=(answer for row in rows for answer in row["answers"]))
        return
    console.print(f"{figure}: {words}")
    for one in found:
        simulated.print_study(console, one.study, unit)
        for text, _ in one.statements:
            console.print(f"{text[0].upper()}{text[1:]}.")
        for line in one.prose:
            console.print(line)


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
