"""The commands that judge: findings, compare, check, baseline, advise. Thin; heavy imports wait for use."""

from __future__ import annotations

import dataclasses
import json as json_module
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import click

from linkgauge.app.command_line import (
    COMMON,
    PATH,
    FiniteRange,
    argument,
    command,
    option,
    run_argument,
    runs_argument,
)
from linkgauge.app.options import Detects, pair, switch, system_to_judge_by, takes, value
from linkgauge.app.output import CSV, JSON, TABLE, form_of_output, output_options, print_data
from linkgauge.errors import Exit, UsageError

_FILES = "Files to write"


def _rows_shown() -> Any:
    return value("", "Rows of a long table to show.", 40, type=click.IntRange(min=1), panel=COMMON)


@dataclasses.dataclass(frozen=True)
class FindingsShown:
    """What `linkgauge findings` judges by and shows."""

    system: str = system_to_judge_by()
    notes: bool = pair("Show notes too, not only faults and losses.", False)
    evidence: int = value("", "Lines of evidence to show of each finding.", 3, type=click.IntRange(min=0))
    form: str = form_of_output()
    rules: bool = switch("Name the rules that were applied.")
    exit_code: bool = switch("End with 1 where there is a fault or a performance loss.")


@command(
    "findings",
    exits=(Exit.FAIL,),
    help="Report faults, performance losses and notes of a run, each with evidence and a fix.",
    epilog="Example: linkgauge findings runs/2026-01-02 --notes",
)
@run_argument()
@takes(FindingsShown)
def findings_command(asked: FindingsShown, run: Path) -> int:
    """Print the findings of a run, the surest and costliest first."""
    from linkgauge.collector import uncollected
    from linkgauge.findings.finding import Finding
    from linkgauge.findings.not_measured import not_measured
    from linkgauge.findings.rules import apply, in_words
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.view import terminal
    from linkgauge.view.screen import console
    from linkgauge.view.unseen import looked_at, unseen_of

    with uncollected():
        facts = load_subjects([run], asked.system)[0].facts
        found = apply(facts)
    if asked.form != TABLE:
        print_data([finding.as_json() for finding in found], asked.form, of=Finding)
    else:
        out = console()
        cases = ((measure.pattern, measure.devices) for measure in facts.measures)
        observed = {one.name for one in facts.observations}
        unseen = unseen_of(cases, facts.devices, facts.launches, observed, looked_at(facts.info))
        terminal.print_findings(
            out, found, notes=asked.notes, evidence=asked.evidence, unjudged=facts.unjudged, unseen=unseen,
            not_measured=tuple(not_measured(facts, str(run))),
        )  # fmt: skip
        if asked.rules:
            out.print(f"Rules applied: {in_words()}", markup=False)
    return int(asked.exit_code and any(finding.is_alarm for finding in found))


@dataclasses.dataclass(frozen=True)
class RunsCompared(Detects):
    """How `linkgauge compare` compares."""

    margin: float = value("", "Smallest change that counts, as a share.", 0.01, type=FiniteRange(min=0.0))
    level: float = value("", "False-discovery rate over all cases.", 0.05, type=FiniteRange(min=1e-6, max=0.5))
    dependence: str = value("positive|any", "Dependence of the cases.", "positive")
    detect: str | None = value("SHARE", "Find shifts as small as this, 0.3%, in many rounds of runs by turns: A B A B.")
    bootstrap: bool = switch("Show the interval of a hierarchical bootstrap too.")
    limit: int = _rows_shown()
    form: str = form_of_output()


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
    help="Run folders, or logs of other tools; each other one is compared with A.",
)
@takes(RunsCompared)
def compare_command(asked: RunsCompared, runs: tuple[Path, ...]) -> int:
    """Compare runs case by case, and pooled by device, pair and transport."""
    if len(runs) < 2:
        raise UsageError("compare needs two run folders or more: linkgauge compare BEFORE AFTER")
    if asked.dependence not in ("positive", "any"):
        raise UsageError(f"unknown dependence '{asked.dependence}': expected positive or any")
    if (detect := asked.detected()) is not None:
        return _compare_by_turns(asked, runs, detect)
    from linkgauge.collector import uncollected
    from linkgauge.exchange.opened import opened
    from linkgauge.judge.compare_runs import compare_runs
    from linkgauge.judge.subjects import refuse_repeated
    from linkgauge.store.run import load
    from linkgauge.view import terminal
    from linkgauge.view.screen import console

    plain = []
    compared = 0
    out = None if asked.form != TABLE else console()
    with uncollected(), opened(runs) as folders:
        refuse_repeated(map(load, folders.runs))
        first = load(folders.runs[0])
        for path in folders.runs[1:]:
            kind = cast(Literal["positive", "any"], asked.dependence)
            second = load(path)
            found = compare_runs(first, second, asked.level, asked.margin, kind, asked.bootstrap)
            compared += len(found.cases) + len(found.failed)
            names = folders.name(folders.runs[0]), folders.name(path)
            if out is None:
                plain.append({"first": names[0], "second": names[1], **found.plain(second)})
            else:
                terminal.print_comparison(out, found, names, asked.limit)
    if asked.form != TABLE:
        print_data(
            plain,
            asked.form,
            rows=({"run": one["second"], **row} for one in plain for row in [*one["cases"], *one["failed"]]),
        )
    return 0 if compared else 3


def _compare_by_turns(asked: RunsCompared, runs: tuple[Path, ...], detect: float) -> int:
    """Compare the runs at odd places with those at even places, round by round."""
    if len(runs) % 2:
        raise UsageError(
            f"--detect compares runs by turns, A B A B: expected an even number of runs, {len(runs)} given"
        )
    from linkgauge.collector import uncollected
    from linkgauge.exchange.opened import opened
    from linkgauge.judge.small_shifts import between_runs
    from linkgauge.judge.subjects import refuse_repeated
    from linkgauge.store.run import load
    from linkgauge.view.screen import console
    from linkgauge.view.small_shifts import print_shifts

    with uncollected(), opened(runs) as folders:
        loaded = [load(path) for path in folders.runs]
        refuse_repeated(loaded)
        found = between_runs(loaded[::2], loaded[1::2], detect, asked.level)
    if asked.form == TABLE:
        print_shifts(console(), found, asked.limit)
    else:
        print_data([dataclasses.asdict(one) for one in found.named], asked.form)
    return Exit.DONE if found.rounds else Exit.UNKNOWN


@dataclasses.dataclass(frozen=True)
class Check(Detects):
    """What `linkgauge check` judges by, and what it writes."""

    panel: ClassVar = "What to judge by"

    against: str = value("RUN|FILE|SYSTEM", "Run folder, log, baseline, rules (TOML) or system to judge by.", "")
    by_ordinal: bool = switch("Match devices of that run or baseline by ordinal, not by UUID: after an exchange.")
    tolerance: float = value("", "Share below the expected value that still passes.", 0.05, type=FiniteRange(0.0, 0.9))
    margin: float | None = value(
        "", "Smallest loss against a run or a baseline that counts, as a share.", type=FiniteRange(min=0.0)
    )
    detect: str | None = value(
        "SHARE", "Find nodes that are slower by as little as this, such as 0.3%, over many rounds."
    )
    findings: bool = pair("Count faults of the findings, or not.", True)
    system: str = system_to_judge_by()
    junit: Path | None = value("FILE", "File to write in JUnit's format.", panel=_FILES)
    prometheus: Path | None = value("FILE", "File to write in Prometheus' text format.", panel=_FILES)
    page: Path | None = value("FILE", "HTML file to write: which nodes differ, in what, since when.", panel=_FILES)
    limit: int = _rows_shown()
    form: str = form_of_output(panel=COMMON)


@command(
    "check",
    exits=(Exit.FAIL, Exit.UNKNOWN),
    help="Judge whether a machine is as fast as it should be: PASS, FAIL or UNKNOWN.",
    epilog="Example: linkgauge check all_reduce.log --system hgx-h100-8",
)
@runs_argument("Run folders or logs of other tools, of any nodes")
@takes(Check)
def check_command(asked: Check, runs: tuple[Path, ...]) -> int:
    """Judge runs, name what fails worst first, and return the exit status."""
    from linkgauge.collector import uncollected
    from linkgauge.exchange.opened import is_log, opened
    from linkgauge.files import write_atomically
    from linkgauge.judge import exporters
    from linkgauge.judge.check import check
    from linkgauge.judge.small_shifts import fleet_rounds
    from linkgauge.judge.standing import LEAST_NODES
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.judge.verdicts import Verdict
    from linkgauge.view import terminal
    from linkgauge.view.screen import console

    if asked.page is not None and len(runs) < LEAST_NODES:
        raise UsageError(f"--page is of a fleet: expected {LEAST_NODES} runs or more, {len(runs)} given")
    detect = asked.detected()
    logs = [Path(asked.against)] if asked.against and is_log(Path(asked.against)) else []
    with uncollected(), opened([*runs, *logs], asked.system) as found:
        subjects = load_subjects(found.runs, asked.system, found.names)
        other = subjects.pop() if logs else None
        of_rounds = ([], []) if detect is None else fleet_rounds(found.runs[: len(subjects)], detect)
        result = check(
            subjects, asked.against, tolerance=asked.tolerance, margin=asked.margin, with_findings=asked.findings,
            by_ordinal=asked.by_ordinal, other=other, of_rounds=of_rounds,
        )  # fmt: skip
    for line in found.left_out:
        click.echo(f"linkgauge: {line}", err=True)
    if asked.junit is not None:
        write_atomically(asked.junit, exporters.as_junit(result.checked).encode())
    if asked.prometheus is not None:
        write_atomically(asked.prometheus, exporters.as_prometheus(result.checked, result.findings).encode())
    if asked.page is not None:
        from linkgauge.judge.baseline import times_of
        from linkgauge.view.fleet_page import write_fleet

        write_fleet(asked.page, subjects, result, times_of(asked.against))
    if asked.form == JSON:
        click.echo(exporters.as_json(result.checked, result.findings))
    elif asked.form == CSV:
        print_data([dataclasses.asdict(verdict) for verdict in result.checked.verdicts], asked.form, of=Verdict)
    else:
        terminal.print_check(console(), result.checked, result.standings, asked.limit, passed=bool(found.names))
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
    from linkgauge.files import write_atomically
    from linkgauge.judge.baseline import make_baseline
    from linkgauge.judge.subjects import load_subjects

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
    left_out = 0 if facts is None else len(facts.measures) - len(facts.undisturbed.measures)
    if left_out:
        who = f"others used the machine meanwhile: 'linkgauge findings {run}'"
        click.echo(f"Left out are sizes of {left_out} disturbed measurements ({who}).")
    if found and facts is not None:
        terminal.print_advice(console(), found, not_measured(facts))
    elif not searched:
        what = f"of {pattern} " if pattern else ""
        by = "by two mechanisms or more" + (", none of them disturbed" if left_out else "")
        click.echo(f"There is nothing to choose between: no case {what}was measured {by}.")
    for one in settings:
        click.echo(one.words)
    if (searched or tuned) and not settings:
        click.echo("No setting is proved to be faster than the library's own default.")
    return 0 if found or settings else 3
