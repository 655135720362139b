"""`linkgauge tune`: which settings to export for a pattern, searched for on this machine, with proof."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.app.command_line import FiniteRange, command, option, taken_over
from linkgauge.app.output import CSV, JSON, TABLE, output_options, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.run import Asked, refuse_ranks, run_command, typed_dimensions
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import Exit, UsageError
from linkgauge.model.quantity import format_size, parse_duration

if TYPE_CHECKING:
    from linkgauge.model.case import Case
    from linkgauge.run.parent.devices import DeviceSet
    from linkgauge.tune.choice import Choice
    from linkgauge.tune.launches import FolderBench
    from linkgauge.tune.wanted import Wanted

_NOT_OF_A_SEARCH = (
    "from_run", "cases", "resume", "retry", "force", "repeat", "time_limit", "peers", "library_choices", "report",
    "dry_run", "form", "json", "full", "quiet", "verbose", "quick", "plan", "system", "swap_roles", "concurrent_pairs",
    "max_failures", "keep_going",
)  # fmt: skip
_SEARCH = "The search"


@command(
    "tune",
    exits=(Exit.SOME_FAILED,),
    epilog="Example: linkgauge tune --pattern allreduce --size 8:1MiB:x8 --transport mpi --time-limit 5m",
)
@option(
    "--time-limit", default="10m", metavar="TIME", panel=_SEARCH, help="End within this time, over all resumed parts."
)
@option(
    "--settings",
    "among",
    metavar="WHICH",
    panel=_SEARCH,
    help="Libraries or variables to choose among; those in use by default.",
)
@option(
    "--guard",
    "guards",
    multiple=True,
    metavar='"PATTERN SIZE"',
    panel=_SEARCH,
    help="Case that must not become slower; repeatable.",
)
@option(
    "--allow",
    type=FiniteRange(min=0, max=100),
    default=1.0,
    metavar="PERCENT",
    panel=_SEARCH,
    help="Percent by which guard cases may become slower.",
)
@option(
    "--list",
    "listed",
    is_flag=False,
    flag_value="all",
    metavar="[LIBRARY]",
    panel=_SEARCH,
    help="List a library's settings; search nothing.",
)
@output_options(" of the answer, or of the table of --list", panel=_SEARCH)
@verbosity_options("Print each stage.")
def tune_command(
    time_limit: str, among: str | None, guards: tuple[str, ...], allow: float, listed: str | None, form: str,
    **words: Any,
) -> int:  # fmt: skip
    """Find which settings of a library to export for a pattern, by measurement, with proof.

    Takes --pattern, --size, --transport, --devices and other options of 'linkgauge run' (--help-all names them). The
    same command with the same --out resumes an interrupted search.
    """
    if listed is not None:
        _list(listed, form)
        return 0
    refuse_ranks(os.environ)
    began = time.monotonic()
    budget_s = parse_duration(time_limit) / 1e9
    if budget_s < 5:
        raise UsageError(f"--time-limit {time_limit}: expected 5 s or more")
    dimensions = typed_dimensions(words)
    if "app" not in dimensions and (lacking := [name for name in ("pattern", "transport") if name not in dimensions]):
        examples = {"pattern": "--pattern allreduce", "transport": "--transport nccl"}
        raise UsageError(
            f"give {' and '.join(examples[name] for name in lacking)}, or --app NAME: tune searches for one"
        )
    asked = Asked(**words, dimensions=dimensions)
    asked.check()
    chosen = tuple(word for word in (among or "").split(",") if word)
    return _search(asked, chosen, guards, allow / 100, budget_s, began, form)


tune_command.params += taken_over("run", (one for one in run_command.params if one.name not in _NOT_OF_A_SEARCH))


def _search(
    asked: Asked, words: Sequence[str], guards: Sequence[str], allowed: float, budget_s: float, began: float,
    form: str,
) -> int:  # fmt: skip
    from linkgauge.app import run_options
    from linkgauge.app.progress import reporter_for
    from linkgauge.run.parent.device_hold import held
    from linkgauge.run.parent.devices import find_devices
    from linkgauge.run.parent.measure import default_out
    from linkgauge.tune.choice import choose, preset_in
    from linkgauge.tune.confirm import tune
    from linkgauge.tune.exports import FOLDER, PAGE
    from linkgauge.tune.launches import InterruptedSearchError
    from linkgauge.tune.page import page, plain, with_proof
    from linkgauge.tune.record import DEFAULT

    given = run_options.resolve_mpis(asked.mpi)
    devices = find_devices(asked.devices)
    wanted = _wanted(asked, guards, devices, given)
    preset = preset_in(os.environ, dict(wanted.settings.env))
    choice = choose(words, wanted.cases, wanted.settings, wanted.prepared, preset)
    reporter = reporter_for()
    factors = choice.factors()
    grid = math.prod(len(one.values) + 1 for one in factors)
    subject = _subject(wanted.cases, devices.kind)
    reporter.note(f"{subject}: {len(factors)} settings with {grid:,} combinations, at most {budget_s:.0f} s")
    if not words:
        for why in choice.refused.values():
            if "does not read it" in why:
                reporter.note(why)
    stages = Stages("tune")
    out = asked.out or default_out("tune")
    here = None if wanted.settings.hosts else devices
    try:
        with held(here, out, asked.wait_s(), reporter.note), stages:
            bench = _bench(asked, out, wanted, choice, allowed, devices, budget_s, began, reporter, stages)
            stages.stage("searching", at_most_s=budget_s)
            found = tune(factors, bench, wanted.prepared.seed, allowed)
            for one in found.confirmed:
                bench.unread(one.config)  # their own launches tell of what the search had as settings of cases alone
    except InterruptedSearchError:
        reporter.problem(f"interrupted: {bench.launches} launches kept in {bench.path}; resume: the same command with "
                      f"--out {bench.path}")  # fmt: skip
        return Exit.INTERRUPTED
    choice = choice.with_read(bench.read_in_launches)
    found = with_proof(found, choice)
    best = found.best
    chosen = (bench.chosen(DEFAULT), bench.chosen(best.config)) if best else ({}, {})
    if best and (bad := bench.went_wrong.get(best.config)):
        found.record.rule_out(best.config, bad)
        found = with_proof(found, choice)
        best = found.best
    text, data = page(found, choice, subject, chosen), plain(found, choice, subject, chosen)
    _hand_out(bench.path, text, data, choice.exports(best.config) if best else {}, wanted)
    if form == CSV:
        print_data(json.loads(data)["tried"], form)
    else:
        print(data if form == JSON else text, end="")
    if form == TABLE:
        lies = f"what to export: {bench.path / FOLDER}" if best else f"the page: {bench.path / FOLDER / PAGE}"
        print(f"run folder: {bench.path} ({bench.launches} launches); {lies}")
    return Exit.DONE if found.record.last_defaults() else Exit.SOME_FAILED


def _wanted(asked: Asked, guards: Sequence[str], devices: DeviceSet, given: Any) -> Wanted:
    """The cases of the search and its guard cases, which are under the same kind of launch."""
    import dataclasses

    from linkgauge.app.new_run import asked_plan
    from linkgauge.run.parent.library_choice import LOG_VARIABLES
    from linkgauge.run.parent.nodes import Nodes
    from linkgauge.run.parent.prepare import prepare
    from linkgauge.tune.confirm import CHECKS
    from linkgauge.tune.wanted import Wanted

    nodes = Nodes(devices, lambda text: None)

    def planned(dimensions: Mapping[str, Sequence[str]]) -> Any:
        plan = asked_plan(dataclasses.replace(asked, dimensions=dimensions), given, devices.kind)
        return prepare(dataclasses.replace(plan, time_limit_ns=None, repeat=1), devices, given, nodes)

    prepared = planned(asked.dimensions)
    launches = [one for one in prepared.launches if one.cases]
    if not launches:
        why = next((reason for one in prepared.launches for _, reason in one.skipped), "the plan has no case")
        raise UsageError(f"nothing can be tuned: {why}")
    if len(launches) > 1:
        raise UsageError(
            f"a search is of one kind of launch, here are {len(launches)}: give one --mpi and no --env lists"
        )
    settings, cases = launches[0].settings, launches[0].cases
    if settings.threads and any(case.transport == "mpi" for case in cases):
        raise UsageError("a search of an MPI library's settings needs processes, and here are threads only: give --mpi")
    found = {case.case_key: case for case in cases}
    kept: dict[str, Case] = {}
    for dimensions in _guards(asked.dimensions, guards, cases):
        for launch in planned(dimensions).launches:
            if launch.settings == settings:
                kept |= {case.case_key: case for case in launch.cases if case.case_key not in found}
    log = any(case.transport == "ccl" for case in cases) and not {name for name, _ in settings.env} & {*LOG_VARIABLES}
    return Wanted(dataclasses.replace(prepared, variables_read=log), settings, cases, tuple(kept.values()), CHECKS)


def _guards(
    typed: Mapping[str, Sequence[str]], guards: Sequence[str], cases: Sequence[Case]
) -> list[Mapping[str, Sequence[str]]]:
    """The dimensions of guard cases: those asked for, else sizes beside those of the search, and another pattern."""
    found: list[Mapping[str, Sequence[str]]] = []
    if guards:
        for text in guards:
            pattern, _, size = text.partition(" ")
            if not size:
                raise UsageError(f'--guard "{text}": expected a pattern and a size, such as "alltoall 64KiB"')
            found.append({**typed, "pattern": [pattern], "size": [size.strip()]})
        return found
    if "app" in typed:
        return []
    sizes = sorted(case.size_asked for case in cases)
    beside = [size for size in (sizes[0] // 8, min(sizes[-1] * 8, 64 << 20)) if size and size not in sizes]
    other = "alltoall" if any(case.pattern == "allreduce" for case in cases) else "allreduce"
    found = [{**typed, "pattern": [other], "size": [format_size(sizes[len(sizes) // 2])]}]
    found += [{**typed, "size": [format_size(size)]} for size in beside]
    return found


def _subject(cases: Sequence[Case], kind: str = "") -> str:
    """What is tuned, in words; `kind` is the devices' runtime, by whose library `ccl` is called."""
    from linkgauge.apps.catalog import label
    from linkgauge.model.background import beside_text
    from linkgauge.model.transports import shown_names

    called = shown_names({kind})
    beside = beside_text(" or ".join(dict.fromkeys(case.background for case in cases)), called)
    where = f"on {cases[0].ranks} ranks{beside}"
    transport = called.get(cases[0].transport, cases[0].transport)
    if apps := [*dict.fromkeys(label(case.app) for case in cases if case.app)]:
        return f"{transport} application {', '.join(apps)} {where}"
    sizes = sorted({case.size_asked for case in cases})
    span = format_size(sizes[0]) + (f" to {format_size(sizes[-1])}" if len(sizes) > 1 else "")
    patterns = ", ".join(sorted({case.pattern for case in cases}))
    return f"{transport} {patterns} of {span} {where}"


def _bench(
    asked: Asked, out: Path, wanted: Wanted, choice: Choice, allowed: float, devices: DeviceSet, budget_s: float,
    began: float, reporter: Any, stages: Stages,
) -> FolderBench:  # fmt: skip
    from linkgauge.app.new_run import warn
    from linkgauge.plan.environment import shown
    from linkgauge.run.parent.info import run_info
    from linkgauge.run.parent.measure import check_out, whole_again
    from linkgauge.store.folder import RunFolder
    from linkgauge.tune.launches import KEY, FolderBench

    what = json.dumps({
        "its cases": [case.case_key for case in (*wanted.cases, *wanted.guards)], "--mpi": wanted.settings.mpi,
        "environment": shown(choice.preset), "settings": [[name, *one.values] for name, one in choice.known.items()],
        "--allow": allowed, "--seed": wanted.prepared.seed, "operations checked": wanted.checks,
    })  # fmt: skip
    if (out / "run.json").exists():
        folder = RunFolder.open(out)
        folder.hold()
        whole_again(folder, reporter)
    else:
        check_out(out)
        prepared = wanted.prepared
        info = run_info(arguments=sys.argv[1:], plan_name="tune", asked={"devices": asked.devices}, devices=devices,
                        mpis=list(prepared.mpis.values()), seed=prepared.seed,
                        absent=prepared.machine.absent)  # fmt: skip
        folder = RunFolder.create(Path(out), {**info, KEY: {"asked": what, "spent_s": []}})
        warn(asked, devices, prepared, reporter)
    return FolderBench(folder, wanted, choice.environment, what, budget_s, began, stages.doing, choice.in_launch())


def _hand_out(path: Path, text: str, data: str, environment: Mapping[str, str], wanted: Wanted) -> None:
    from linkgauge.tune.exports import ANSWER, FOLDER, PAGE, files, hand_out

    mpi = wanted.prepared.mpis.get(wanted.settings.mpi)
    kind = mpi.launcher_kind if mpi is not None else "single"
    found = {PAGE: text, ANSWER: data}
    if environment:
        found |= files(environment, wanted.cases, kind, max(len(wanted.settings.hosts), 1))
    hand_out(path / FOLDER, found)


def _list(which: str, form: str) -> None:
    from linkgauge.app.listing import print_table
    from linkgauge.tune.table import SEEN, libraries, library

    chosen = list(libraries().values()) if which == "all" else [library(which)]
    rows = []
    for one in chosen:
        for setting in one.settings:
            values = f"{setting.values[0]} .. {setting.values[-1]}" if setting.ordered else " ".join(setting.values)
            rows.append({
                "library": one.name, "setting": setting.name, "values": values, "scale": setting.scale,
                "default": setting.default, "what": setting.what, "patterns": " ".join(setting.patterns),
                "risk": setting.risk, "seen by": SEEN[one.seen], "evidence": one.evidence,
                "relaunch": setting.relaunch, "conflicts": " ".join(setting.conflicts),
                "needs": " ".join(f"{name}={value}" for name, value in setting.needs),
                "only with": " ".join(f"{name}={value}" for name, value in setting.only_with),
            })  # fmt: skip
    print_table("settings", ("setting", "default", "values", "what"), rows, form)
