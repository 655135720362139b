"""`linkgauge simulate`: a whole cluster from its description, by named routing rules."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from linkgauge.app.command_line import COMMON, FiniteRange, argument, command
from linkgauge.app.options import (
    counts,
    distribution_of_blocks,
    repeated,
    root_rank,
    switch,
    takes,
    unit_of_rates,
    value,
)
from linkgauge.app.output import TABLE, form_of_output, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import UsageError

if TYPE_CHECKING:
    from linkgauge.simulate.calibrate import Calibration

_MOST_GPUS = 10_000_000
_WHERE, _OTHERS = "Where it runs", "Other jobs"


@dataclasses.dataclass(frozen=True)
class Study:
    """What is simulated, where, beside which jobs, and what is shown of it."""

    panel: ClassVar = "What is simulated"

    pattern: str = value("NAME", "Pattern: alltoall, allreduce, permutation, ...", "alltoall")
    size: str = value("SIZE", "Message size, as in 'linkgauge run'.", "2MiB")
    gpus: str = value("COUNTS", "Numbers of GPUs: 64,1024 or 8:4096:x2.", "", panel=_WHERE)
    algorithm: str = value("NAME", "Algorithm of a collective: ring, tree, halving, ...", "")
    distribution: str = distribution_of_blocks()
    placement: str = value("WHICH", "Placement: packed, linear, random, spread, over:K, ...", "packed", panel=_WHERE)
    routing: str = value("RULES", "Routing rules: minimal,mixed:0.5,best; all by default.", "", panel=_WHERE)
    gpus_per_node: int = value("", "GPUs to use of each node; 0 is all.", 0, type=click.IntRange(min=0), panel=_WHERE)
    root: int = root_rank()
    seed: int = value("", "Seed of everything random.", 0, type=click.IntRange(min=0), panel=_WHERE)
    settings: tuple[str, ...] = repeated(
        "NAME=VALUE", "Figure of the network to assume; repeatable.", panel=_WHERE, flags="--set"
    )
    background: tuple[str, ...] = repeated(
        "PATTERN:GPUS[:SIZE]", "Job that runs at the same time; repeatable.", panel=_OTHERS
    )
    background_share: float = value(
        "", "Share of the other nodes to fill with random jobs.", 0.0, type=FiniteRange(0, 1), panel=_OTHERS
    )
    draws: int = value("", "Number of random backgrounds.", 20, type=click.IntRange(1, 1000), panel=_OTHERS)
    pessimistic: bool = switch("Let congested ports hold back all that shares their links.", panel=_OTHERS)
    calibrate: Path | None = value("RUN", "Run on 2 to 8 nodes that gives the library's factor.")
    efficiency: str = value("SHARE", "Library's measured share of what the network allows: 75%.", "")
    paper: str = value("FIGURE", "Figure of a paper: sc24:9 or sc24:10.", "", panel=COMMON)
    figures: bool = switch("List the figures of a network that --set takes.", panel=COMMON)
    no_what_if: bool = switch("Leave out other placements and additional links.", panel=COMMON)
    form: str = form_of_output(": rates in bytes per second, times in seconds", panel=COMMON)
    chart: Path | None = value("FILE", "File for the curves: .svg, .pdf, .png or .json.", panel=COMMON)
    html: Path | None = value("FILE", "HTML file to write; it opens offline.", panel=COMMON)
    unit: str = unit_of_rates("Gb/s")


@command(
    "simulate",
    help="Simulate a whole cluster's bandwidth by placement and routing.",
    epilog="Example: linkgauge simulate leonardo-booster --pattern alltoall --gpus 64,1024",
)
@argument("system", metavar="SYSTEM|FILE", default=None, help="Described system, or a file of one, with its network.")
@takes(Study)
@verbosity_options("Print each stage.")
def simulate_command(asked: Study, system: str | None) -> None:
    """Print what each rule gives over counts of GPUs, what binds, and what would change it."""
    from linkgauge.model.quantity import parse_size
    from linkgauge.simulate import Request, of_system, parse_placement, parse_rules, study
    from linkgauge.simulate.described import COUNTS, RATES, TIMES, parse_setting
    from linkgauge.simulate.others import Others, parse_load
    from linkgauge.system import catalog
    from linkgauge.view.units import rate_unit

    rate_unit(asked.unit)
    if asked.figures:
        for name, what in {**COUNTS, **RATES, **TIMES}.items():
            click.echo(f"{name}: {what}")
        return
    if asked.paper:
        if system is not None:
            raise UsageError("--paper names its systems itself: leave the system out")
        if asked.calibrate is not None:
            raise UsageError(
                "--calibrate is of one system: with --paper give the factor that it prints as --efficiency"
            )
        _paper(asked, _factor(asked))
        return
    if system is None:
        raise UsageError("name a system (linkgauge topology lists the described ones), or ask for --figures")
    fabric = of_system(catalog.load(system), dict(parse_setting(text) for text in asked.settings))
    request = Request(
        asked.pattern, parse_size(asked.size), asked.algorithm, asked.distribution, asked.root, asked.seed
    )
    gpu_counts = _counts(asked.gpus, fabric.nodes * (asked.gpus_per_node or fabric.gpus))
    rules = parse_rules(asked.routing, fabric)
    where = parse_placement(asked.placement, asked.seed)
    jobs, share = asked.background, asked.background_share
    if (jobs and share) or (asked.pessimistic and not jobs):
        raise UsageError(
            "--background and --background-share exclude each other, and --pessimistic goes with --background"
        )
    others = None
    if jobs or share:
        others = Others(tuple(parse_load(text) for text in jobs), share, asked.draws, asked.pessimistic)
    factor = _factor(asked)
    if asked.calibrate is not None:
        if factor is not None:
            raise UsageError("--calibrate and --efficiency exclude each other: expected one of them")
        from linkgauge.simulate.calibrate import calibrate
        from linkgauge.store.run import load

        factor = calibrate(load(asked.calibrate), fabric, request)
    with Stages("simulate") as stages:
        found = study(
            fabric, request, gpu_counts, rules, where, per_node=asked.gpus_per_node, factor=factor,
            what_if=not asked.no_what_if, others=others, told=stages.told,
        )  # fmt: skip
    from linkgauge.view import simulated  # after what may be refused: charts' libraries take long to load

    if asked.chart is not None:
        simulated.write_chart(found, asked.unit, asked.chart)
    if asked.html is not None:
        from linkgauge.simulate.papers import Curves

        _write(asked.html, simulated.page([Curves(found, ())], simulated.title_of(found), asked.unit))
    if asked.form != TABLE:
        data = found.plain()
        print_data(data, asked.form, rows=data["answers"])
        return
    from linkgauge.app.inert import InertConsole

    simulated.print_study(InertConsole(), found, asked.unit)


def _factor(asked: Study) -> Calibration | None:
    """What --efficiency says; None without it."""
    if not asked.efficiency:
        return None
    from linkgauge.model.quantity import parse_percentage
    from linkgauge.simulate.calibrate import Calibration

    return Calibration(parse_percentage(asked.efficiency), "--efficiency")


def _paper(asked: Study, factor: Calibration | None) -> None:
    """Simulate and show a paper's figure beside what the paper states of it."""
    from linkgauge.app.inert import InertConsole
    from linkgauge.simulate import papers
    from linkgauge.view import simulated

    console = InertConsole()
    figure, form, chart, html, unit = asked.paper, asked.form, asked.chart, asked.html, asked.unit
    words = papers.FIGURES[papers.known(figure)]
    with Stages("simulate") as stages:
        stages.stage(f"simulating {figure}")
        found = papers.curves(figure, asked.seed, factor)
    if chart is not None:
        for one in found:
            name = chart.with_name(f"{chart.stem}-{one.study.fabric.name}-{one.study.request.pattern}{chart.suffix}")
            simulated.write_chart(one.study, unit, name, one.statements, one.prose)
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
    from linkgauge.files import write_atomically

    write_atomically(path, page.encode())


def _counts(text: str, most: int) -> list[int]:
    """Counts of GPUs of a list and ranges such as 8:4096:x2; doubling from 8 to all where it is empty."""
    if not text:
        usual = [8]
        while usual[-1] * 4 <= min(most, 4096):
            usual.append(usual[-1] * 4)
        return sorted({min(count, most) for count in usual} | {min(most, 4096)})
    found = counts("--gpus", text)
    if max(found) > min(most, _MOST_GPUS):
        raise UsageError(f"--gpus: {max(found)} GPUs: there are {most}")
    return found
