"""The commands that judge: findings, compare, check, baseline, advise, reproduce. Thin; heavy imports wait for use."""

from __future__ import annotations

import dataclasses
import json as json_module
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import click

from linkgauge.app.command_line import (
    PATH,
    FiniteRange,
    argument,
    command,
    flag,
    option,
    run_argument,
    runs_argument,
    taken_over,
)
from linkgauge.app.output import CSV, JSON, TABLE, output_options, print_data
from linkgauge.app.run import RUN_EXITS
from linkgauge.app.run import run_command as run_as_asked
from linkgauge.app.verbosity import verbosity_options, verbosity_words
from linkgauge.errors import Exit, UsageError

_system = option("--system", default="", metavar="NAME|FILE", help="System to judge by, in place of that of the run.")
_limit = option("--limit", type=click.IntRange(min=1), default=40, help="Rows of a long table to show.")


@command(
    "findings",
    exits=(Exit.FAIL,),
    help="Report faults, performance losses and notes of a run, each with evidence and a fix.",
    epilog="Example: linkgauge findings runs/2026-01-02 --notes",
)
@run_argument()
@_system
@option("--notes/--no-notes", default=False, help="Show notes too, not only faults and losses.")
@option("--evidence", type=click.IntRange(min=0), default=3, help="Lines of evidence to show of each finding.")
@output_options()
@flag("--rules", help="Name the rules that were applied.")
@flag("--exit-code", help="End with 1 where there is a fault or a performance loss.")
def findings_command(
    run: Path, system: str, notes: bool, evidence: int, form: str, rules: bool, exit_code: bool
) -> int:
    """Print the findings of a run, the surest and costliest first."""
    from linkgauge.collector import uncollected
    from linkgauge.findings.finding import Finding
    from linkgauge.findings.rules import apply, in_words
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.view import terminal
    from linkgauge.view.screen import console
    from linkgauge.view.unseen import unseen_of

    with uncollected():
        facts = load_subjects([run], system)[0].facts
        found = apply(facts)
    if form != TABLE:
        print_data([finding.as_json() for finding in found], form, of=Finding)
    else:
        out = console()
        cases = ((measure.pattern, measure.devices) for measure in facts.measures)
        unseen = unseen_of(cases, facts.devices, facts.launches, {one.name for one in facts.observations})
        terminal.print_findings(out, found, notes=notes, evidence=evidence, unjudged=facts.unjudged, unseen=unseen)
        if rules:
            out.print(f"Rules applied: {in_words()}", markup=False)
    return int(exit_code and any(finding.severity != "note" for finding in found))


@command(
    "compare",
    exits=(Exit.UNKNOWN,),
    help="Compare two runs: what became better, worse or stayed the same.",
    epilog="Example: linkgauge compare runs/before runs/after",
)
@argument(
    "runs",
    metavar="A B...",
    type=PATH,
    nargs=-1,
    required=True,
    help="Run folders; each other one is compared with A.",
)
@option("--margin", type=FiniteRange(min=0.0), default=0.01, help="Smallest change that counts, as a share.")
@option("--level", type=FiniteRange(min=1e-6, max=0.5), default=0.05, help="False-discovery rate over all cases.")
@option("--dependence", default="positive", metavar="positive|any", help="Dependence of the cases.")
@flag("--bootstrap", help="Show the interval of a hierarchical bootstrap too.")
@_limit
@output_options()
def compare_command(
    runs: tuple[Path, ...], margin: float, level: float, dependence: str, bootstrap: bool, limit: int, form: str
) -> int:
    """Compare runs case by case, and pooled by device, pair and transport."""
    if len(runs) < 2:
        raise UsageError("compare needs two run folders or more: linkgauge compare BEFORE AFTER")
    if dependence not in ("positive", "any"):
        raise UsageError(f"unknown dependence '{dependence}': expected positive or any")
    from linkgauge.collector import uncollected
    from linkgauge.judge.compare_runs import compare_runs
    from linkgauge.judge.subjects import refuse_repeated
    from linkgauge.store.run import load
    from linkgauge.view import terminal
    from linkgauge.view.screen import console

    refuse_repeated(map(load, runs))
    first = load(runs[0])
    plain = []
    compared = 0
    out = None if form != TABLE else console()
    for path in runs[1:]:
        kind = cast(Literal["positive", "any"], dependence)
        with uncollected():
            second = load(path)
            found = compare_runs(first, second, level, margin, kind, bootstrap)
        compared += len(found.cases) + len(found.failed)
        if out is None:
            plain.append({"first": str(runs[0]), "second": str(path), **found.plain(second)})
        else:
            terminal.print_comparison(out, found, (str(runs[0]), str(path)), limit)
    if form != TABLE:
        print_data(
            plain,
            form,
            rows=({"run": one["second"], **row} for one in plain for row in [*one["cases"], *one["failed"]]),
        )
    return 0 if compared else 3


_BY, _FILES = "What to judge by", "Files to write"


@command(
    "check",
    exits=(Exit.FAIL, Exit.UNKNOWN),
    help="Judge whether a machine is as fast as it should be: PASS, FAIL or UNKNOWN.",
    epilog="Example: linkgauge check runs/2026-01-02 --junit check.xml",
)
@runs_argument("Run folders, of one or several nodes")
@option(
    "--against",
    default="",
    metavar="FILE|SYSTEM",
    panel=_BY,
    help="Baseline, rules (TOML) or system to judge by.",
)
@option(
    "--tolerance",
    type=FiniteRange(min=0.0, max=0.9),
    default=0.05,
    panel=_BY,
    help="Share below the expected value that still passes.",
)
@option(
    "--margin",
    type=FiniteRange(min=0.0),
    default=None,
    panel=_BY,
    help="Smallest loss against a baseline that counts, as a share; 0.01 by default.",
)
@option("--findings/--no-findings", default=True, panel=_BY, help="Count faults of the findings, or not.")
@_system
@option("--junit", type=PATH, metavar="FILE", panel=_FILES, help="File to write in JUnit's format.")
@option("--prometheus", type=PATH, metavar="FILE", panel=_FILES, help="File to write in Prometheus' text format.")
@option(
    "--page",
    type=PATH,
    metavar="FILE",
    panel=_FILES,
    help="HTML file to write: which nodes differ, in what, since when.",
)
@_limit
@output_options()
def check_command(
    runs: tuple[Path, ...],
    against: str,
    tolerance: float,
    margin: float | None,
    findings: bool,
    system: str,
    junit: Path | None,
    prometheus: Path | None,
    page: Path | None,
    limit: int,
    form: str,
) -> int:
    """Judge runs, name what fails worst first, and return the exit status."""
    from linkgauge.collector import uncollected
    from linkgauge.judge import exporters
    from linkgauge.judge.check import check
    from linkgauge.judge.fleet import LEAST_NODES
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.judge.verdicts import Verdict
    from linkgauge.store.folder import write_atomically
    from linkgauge.view import terminal
    from linkgauge.view.screen import console

    if page is not None and len(runs) < LEAST_NODES:
        raise UsageError(f"--page is of a fleet: expected {LEAST_NODES} runs or more, {len(runs)} given")
    with uncollected():
        subjects = load_subjects(runs, system)
        result = check(subjects, against, tolerance=tolerance, margin=margin, with_findings=findings)
    if junit is not None:
        write_atomically(junit, exporters.as_junit(result.checked).encode())
    if prometheus is not None:
        write_atomically(prometheus, exporters.as_prometheus(result.checked, result.findings).encode())
    if page is not None:
        from linkgauge.judge.baseline import times_of
        from linkgauge.view.fleet_page import write_fleet

        write_fleet(page, subjects, result, times_of(against))
    if form == JSON:
        click.echo(exporters.as_json(result.checked, result.findings))
    elif form == CSV:
        print_data([dataclasses.asdict(verdict) for verdict in result.checked.verdicts], form, of=Verdict)
    else:
        terminal.print_check(console(), result.checked, result.standings, limit)
    return result.checked.exit_status


@command(
    "baseline",
    help="Make a baseline of five runs or more, for 'linkgauge check --against'.",
    epilog="Example: linkgauge baseline runs/night-* -o baseline.json",
)
@argument(
    "runs", metavar="RUN...", type=PATH, nargs=-1, required=True, help="Runs of the same plan on the same machine."
)
@option("--out", "-o", type=PATH, required=True, metavar="FILE", help="File to write.")
def baseline_command(runs: tuple[Path, ...], out: Path) -> None:
    """Write a baseline file: what this machine measures, run by run."""
    from linkgauge.collector import uncollected
    from linkgauge.judge.baseline import make_baseline
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.store.folder import write_atomically

    with uncollected():
        made = make_baseline(load_subjects(runs))
    write_atomically(out, (json_module.dumps(made, indent=1) + "\n").encode())
    left = f"; {made['left_out']} cases that fewer than five runs share were left out" if made["left_out"] else ""
    click.echo(f"{out}: {len(made['cases'])} cases of {len(runs)} runs{left}")


@command(
    "advise",
    exits=(Exit.UNKNOWN,),
    help="Recommend the mechanism and settings for each pattern, devices and size.",
    epilog="Example: linkgauge advise runs/2026-01-02 --pattern allreduce",
)
@run_argument()
@option("--pattern", default="", metavar="NAMES", help="Patterns, separated by commas; all by default.")
@option(
    "--tuned",
    multiple=True,
    type=PATH,
    metavar="FOLDER",
    help="Run folder of 'linkgauge tune', for its settings; repeatable.",
)
@output_options()
def advise_command(run: Path, pattern: str, tuned: tuple[Path, ...], form: str) -> int:
    """Print the best mechanism by range of sizes, with its margin; says where it does not matter.

    Of a search's run folder it prints the settings that were proved there.
    """
    from linkgauge.judge.advise import Advice, advise, not_measured
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.model.case import DIMENSIONS
    from linkgauge.tune.proved import is_search, proved_in
    from linkgauge.view import terminal
    from linkgauge.view.screen import console

    searched = is_search(run)
    facts = None if searched else load_subjects([run])[0].facts
    found = [] if facts is None else advise(facts)
    settings = [one for folder in (*((run,) if searched else ()), *tuned) for one in proved_in(folder)]
    if pattern:
        wanted = {name for word in pattern.split(",") for name in DIMENSIONS["pattern"].from_text(word)}
        found = [one for one in found if one.task.split()[0] in wanted]
        settings = [one for one in settings if wanted & {word.strip(",") for word in one.task.split()}]
    if form != TABLE:
        print_data([*map(dataclasses.asdict, found), *map(dataclasses.asdict, settings)], form, of=Advice)
        return 0 if found or settings else 3
    if found and facts is not None:
        terminal.print_advice(console(), found, not_measured(facts))
    elif not searched:
        what = f"of {pattern} " if pattern else ""
        click.echo(f"There is nothing to choose between: no case {what}was measured by two mechanisms or more.")
    for one in settings:
        click.echo(one.words)
    if (searched or tuned) and not settings:
        click.echo("No setting is proved to be faster than the library's own default.")
    return 0 if found or settings else 3


@command(
    "reproduce",
    exits=RUN_EXITS,
    help="Measure a paper's figures here; without a figure, list them.",
    epilog="Example: linkgauge reproduce sc24:3 --devices cuda",
)
@argument("figure", metavar="[PAPER[:FIGURE]]", default="", help="Figure, such as sc24, sc24:3, openpower:table2.")
@option("--out", type=PATH, metavar="FOLDER", help="Run folder to make.")
@option("--of", "of_run", type=PATH, metavar="RUN", help="Run to show beside the paper's numbers; measure nothing.")
@flag("--dry-run", help="Print the plan's launches and cases; measure nothing.")
@option("--system", default="", metavar="NAME|FILE", help="System to plan for, with --dry-run.")
@flag("--csv", help="Print the figure's data of a run (--of) as CSV, in its statistic and unit.")
@flag("--list", "list_only", help="List the figures, even where one is named.")
@verbosity_options("Print each case as it ends.")
def reproduce_command(
    figure: str,
    out: Path | None,
    of_run: Path | None,
    dry_run: bool,
    system: str,
    csv: bool,
    list_only: bool,
    **launched: Any,
) -> int:
    """List the papers' figures, or measure one with the paper's sizes and counts and show both numbers.

    Takes the launch options of 'linkgauge run' (--help-all names them).
    """
    from linkgauge.plan.papers import left_out
    from linkgauge.view import paper_points, paper_screen, reproduce
    from linkgauge.view.screen import console

    found = reproduce.chosen(figure)
    if csv and (of_run is None or len(found) > 1):
        raise UsageError("--csv prints one figure of a run: linkgauge reproduce PAPER:FIGURE --of RUN --csv")
    screen = console()
    if list_only or len(found) > 1:
        paper_screen.print_figures(screen, found, left_out())
        return 0
    one = found[0]
    if of_run is None:
        from linkgauge.app.cli import run_command
        from linkgauge.app.run import enter_allocation
        from linkgauge.run.parent.devices import find_devices
        from linkgauge.run.parent.hosts import asked_hosts

        if launched["nodes"] and not dry_run:
            enter_allocation(launched["nodes"], launched["hosts"])
        extra = ["--dry-run"] if dry_run else []
        extra += ["--system", system] if system else []
        if out is None and not dry_run:
            from linkgauge.run.parent.measure import default_out

            out = default_out(one.plan)
        extra += ["--out", str(out)] if out is not None else []
        if system and dry_run:
            from linkgauge.system import catalog

            count = len(catalog.load(system).devices)
        else:
            hosts = asked_hosts(launched["nodes"], launched["hosts"])
            count = find_devices(launched["devices"]).count * max(1, len(hosts))
        extra += [*_typed(launched), *verbosity_words()]
        status = run_command(reproduce.run_arguments(one, count, extra))
        if dry_run or status not in (0, 4) or out is None:
            paper_screen.print_numbers(screen, one)
            return status
        of_run = out
    else:
        status = 0
    from linkgauge.store.run import load

    loaded = load(of_run)
    if one.against:
        if csv:
            raise UsageError(f"{one.name} has no picture: leave out --csv")
        paper_screen.print_effects(screen, one, reproduce.effects(loaded))
        return status
    drawings = paper_points.drawings(loaded, one)
    if csv:
        click.echo(paper_points.as_csv(record for each in drawings for record in each.records()), nl=False)
        return status
    paper_screen.print_reproduced(screen, one, drawings)
    paper_screen.print_pictures(screen, reproduce.pictures(loaded, one, drawings, loaded.path))
    return status


# Of `run`: how the figure's plan is launched here.
_LAUNCHED = tuple(taken_over("run", (one for one in run_as_asked.params if one.name in (
    "devices", "threads", "mpi", "env", "bind", "thread_level", "launcher_args", "nodes", "fabric", "hosts",
    "time_limit", "memory_limit", "max_failures", "keep_going", "wait", "seed", "max_size", "placement",
))))  # fmt: skip
reproduce_command.params += _LAUNCHED


def _typed(values: Mapping[str, Any]) -> list[str]:
    """Options of a launch as they are typed, those that are not their defaults."""
    words: list[str] = []
    for parameter in _LAUNCHED:
        value = values[str(parameter.name)]
        if str(value) != str(parameter.default) and value not in (None, False, ()):
            each = value if isinstance(value, tuple) else (value,)
            words += (
                [parameter.opts[0]] if value is True else [w for one in each for w in (parameter.opts[0], str(one))]
            )
    return words
