"""`linkgauge tune`: which settings to export for a pattern, searched for on this machine, with proof."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from linkgauge.app.command_line import FiniteRange, command
from linkgauge.app.dimension_options import Texts
from linkgauge.app.options import repeated, takes, value
from linkgauge.app.output import CSV, JSON, TABLE, form_of_output, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.request import EarlierRun, Machine, Presentation, Request, Rounds
from linkgauge.app.run import refuse_ranks
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import Exit, UsageError
from linkgauge.model.quantity import format_bytes, format_size, parse_duration

if TYPE_CHECKING:
    from linkgauge.model.case import Case
    from linkgauge.run.parent.devices import DeviceSet
    from linkgauge.tune.choice import Choice
    from linkgauge.tune.launches import FolderBench
    from linkgauge.tune.wanted import Wanted


@dataclasses.dataclass(frozen=True)
class Search:
    """How settings are searched for."""

    panel: ClassVar = "The search"

    time_limit: str = value("TIME", "End within this time, over all resumed parts.", "10m")
    among: str | None = value(
        "WHICH", "Libraries or variables to choose among; those in use by default.", flags="--settings"
    )
    guards: tuple[str, ...] = repeated(
        '"PATTERN SIZE"', "Case that must not become slower; repeatable.", flags="--guard"
    )
    allow: float = value(
        "PERCENT", "Percent by which guard cases may become slower.", 1.0, type=FiniteRange(min=0, max=100)
    )
    listed: str | None = value(
        "[LIBRARY]", "List a library's settings; search nothing.", is_flag=False, flag_value="all", flags="--list"
    )
    form: str = form_of_output(" of the answer, or of the table of --list")


@command(
    "tune",
    exits=(Exit.SOME_FAILED,),
    epilog="Example: linkgauge tune --pattern allreduce --size 8:1MiB:x8 --transport mpi --time-limit 5m",
)
@takes(Search)
@verbosity_options("Print each stage.")
@takes(
    Request,
    of="run",
    without=(
        EarlierRun, Rounds, Presentation, "time_limit", "peers", "library_choices", "full", "quick", "plan", "system",
        "swap_roles", "concurrent_pairs", "max_failures", "keep_going",
    ),
)  # fmt: skip
def tune_command(search: Search, request: Request) -> int:
    """Find which settings of a library to export for a pattern, by measurement, with proof.

    Takes --pattern, --size, --transport, --devices and other options of 'linkgauge run' (--help-all names them). The
    same command with the same --out resumes an interrupted search.
    """
    if search.listed is not None:
        _list(search.listed, search.form)
        return 0
    refuse_ranks(os.environ)
    began = time.monotonic()
    budget_s = parse_duration(search.time_limit) / 1e9
    if budget_s < 5:
        raise UsageError(f"--time-limit {search.time_limit}: expected 5 s or more")
    request = request.gathered()
    typed = request.dimensions
    if "app" not in typed and (lacking := [name for name in ("pattern", "transport") if name not in typed]):
        examples = {"pattern": "--pattern allreduce", "transport": "--transport nccl"}
        raise UsageError(
            f"give {' and '.join(examples[name] for name in lacking)}, or --app NAME: tune searches for one"
        )
    request.check()
    return _search(request, search, budget_s, began)


def _search(request: Request, search: Search, budget_s: float, began: float) -> int:
    from linkgauge.app.alone import taken
    from linkgauge.app.planning import resolve_mpis
    from linkgauge.app.progress import reporter_for
    from linkgauge.run.parent.devices import find_devices
    from linkgauge.run.parent.measure import default_out
    from linkgauge.tune.choice import choose, preset_in
    from linkgauge.tune.confirm import tune
    from linkgauge.tune.exports import FOLDER, PAGE
    from linkgauge.tune.launches import InterruptedSearchError
    from linkgauge.tune.page import page, plain, with_proof
    from linkgauge.tune.record import DEFAULT
    from linkgauge.view.units import count_text

    words = [word for word in (search.among or "").split(",") if word]
    allowed, form = search.allow / 100, search.form
    given = resolve_mpis(request.launch.mpi)
    devices = find_devices(request.machine.devices)
    wanted = _wanted(request, search.guards, devices, given)
    preset = preset_in(os.environ, dict(wanted.settings.env))
    choice = choose(words, wanted.cases, wanted.settings, wanted.prepared, preset)
    reporter = reporter_for()
    if devices.hidden:
        reporter.note(devices.hidden)
    factors = choice.factors()
    grid = math.prod(len(one.values) + 1 for one in factors)
    subject = _subject(wanted.cases, devices.kind)
    reporter.note(
        f"{subject}: {count_text(len(factors), 'setting')} with {grid:,} combinations, at most {budget_s:.0f} s"
    )
    if not words:
        for why in choice.refused.values():
            if "does not read it" in why:
                reporter.note(why)
    stages = Stages("tune")
    out = request.execution.out or default_out("tune")
    here = None if wanted.settings.hosts else devices
    try:
        with taken(request.allocation, here, out, reporter.note), stages:
            bench = _bench(request.machine, out, wanted, choice, allowed, devices, budget_s, began, reporter, stages)
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


def _wanted(request: Request, guards: Sequence[str], devices: DeviceSet, given: Any) -> Wanted:
    """The cases of the search and its guard cases, which are under the same kind of launch."""
    from linkgauge.app.planning import planned
    from linkgauge.run.parent.library_choice import LOG_VARIABLES
    from linkgauge.run.parent.nodes import Nodes
    from linkgauge.run.parent.prepare import prepare
    from linkgauge.tune.confirm import CHECKS
    from linkgauge.tune.wanted import Wanted

    nodes = Nodes(devices, lambda text: None)

    def prepared_for(dimensions: Texts) -> Any:
        plan = planned(dataclasses.replace(request, dimensions=dimensions), given, devices.kind)
        return prepare(dataclasses.replace(plan, time_limit_ns=None, repeat=1), devices, given, nodes)

    prepared = prepared_for(request.dimensions)
    launches = [one for one in prepared.launches if one.cases]
    if not launches:
        why = next((reason for one in prepared.launches for _, reason in one.skipped), "the plan has no case")
        raise UsageError(f"nothing can be tuned: {why}")
    if len(launches) > 1:
        raise UsageError(
            f"a search is of one kind of launch, here are {len(launches)}: give one --mpi and no --env lists"
        )
    settings, cases = launches[0].settings, _usual_buffers(launches[0].cases, request.dimensions)
    if settings.threads and any(case.transport == "mpi" for case in cases):
        raise UsageError("a search of an MPI library's settings needs processes, and here are threads only: give --mpi")
    found = {case.case_key: case for case in cases}
    kept: dict[str, Case] = {}
    for dimensions in _guards(request.dimensions, guards, cases):
        for launch in prepared_for(dimensions).launches:
            if launch.settings == settings:
                usual = _usual_buffers(launch.cases, dimensions)
                kept |= {case.case_key: case for case in usual if case.case_key not in found}
    log = any(case.transport == "ccl" for case in cases) and not {name for name, _ in settings.env} & {*LOG_VARIABLES}
    return Wanted(dataclasses.replace(prepared, variables_read=log), settings, cases, tuple(kept.values()), CHECKS)


def _usual_buffers(cases: Sequence[Case], typed: Texts) -> Sequence[Case]:
    """The cases in plain buffers, as most programs have them, unless --buffer names others or there are none.

    A plan has NCCL's symmetric windows besides, which versions before 2.27 lack.
    """
    plain = [case for case in cases if not case.buffer]
    return cases if "buffer" in typed or not plain else plain


def _guards(typed: Texts, guards: Sequence[str], cases: Sequence[Case]) -> list[Texts]:
    """The dimensions of guard cases: those asked for, else sizes beside those of the search, and another pattern."""
    found: list[Texts] = []
    if guards:
        for text in guards:
            pattern, _, size = text.partition(" ")
            if not size:
                raise UsageError(f'--guard "{text}": expected a pattern and a size, such as "alltoall 64KiB"')
            found.append({**typed, "pattern": [pattern], "size": [size.strip()]})
        return found
    if "app" in typed:
        return []
    sizes = sorted(case.size_requested for case in cases)
    beside = [size for size in (sizes[0] // 8, min(sizes[-1] * 8, 64 << 20)) if size and size not in sizes]
    other = "alltoall" if any(case.pattern == "allreduce" for case in cases) else "allreduce"
    found = [{**typed, "pattern": [other], "size": [format_size(sizes[len(sizes) // 2])]}]
    found += [{**typed, "size": [format_size(size)]} for size in beside]
    return found


def _subject(cases: Sequence[Case], kind: str = "") -> str:
    """What is tuned, in words; `kind` is the devices' runtime, by whose library `ccl` is called."""
    from linkgauge.model.background import beside_text
    from linkgauge.model.transports import shown_names

    called = shown_names({kind})
    beside = beside_text(" or ".join(dict.fromkeys(case.background.text for case in cases)), called)
    where = f"on {cases[0].ranks} ranks{beside}"
    transport = called.get(cases[0].transport, cases[0].transport)
    if apps := [*dict.fromkeys(case.app.label for case in cases if case.app)]:
        return f"{transport} application {', '.join(apps)} {where}"
    sizes = sorted({case.size_requested for case in cases})
    span = format_bytes(sizes[0]) + (f" to {format_bytes(sizes[-1])}" if len(sizes) > 1 else "")
    patterns = ", ".join(sorted({case.pattern for case in cases}))
    return f"{transport} {patterns} of {span} {where}"


def _bench(
    machine: Machine, out: Path, wanted: Wanted, choice: Choice, allowed: float, devices: DeviceSet, budget_s: float,
    began: float, reporter: Any, stages: Stages,
) -> FolderBench:  # fmt: skip
    from linkgauge.app.new_run import warn
    from linkgauge.plan.environment import shown
    from linkgauge.run.parent.info import run_info
    from linkgauge.run.parent.measure import check_out, whole_again
    from linkgauge.store.folder import RunFolder
    from linkgauge.tune.launches import FolderBench
    from linkgauge.tune.stored import KEY

    what = json.dumps({
        "its cases": [case.case_key for case in (*wanted.cases, *wanted.guards)], "--mpi": wanted.settings.mpi,
        "environment": shown(choice.preset), "settings": [[name, *one.values] for name, one in choice.known.items()],
        "--allow": allowed, "--seed": wanted.prepared.seed, "operations checked": wanted.checks,
    })  # fmt: skip
    if (out / "run.json").exists():
        folder = RunFolder.open(out)
        folder.check_resumable()
        folder.hold()
        whole_again(folder, reporter)
    else:
        check_out(out)
        prepared = wanted.prepared
        info = run_info(arguments=sys.argv[1:], plan_name="tune", asked={"devices": machine.devices}, devices=devices,
                        mpis=list(prepared.mpis.values()), seed=prepared.seed,
                        absent=prepared.machine.absent)  # fmt: skip
        folder = RunFolder.create(Path(out), {**info, KEY: {"requested": what, "spent_s": []}})
        warn(machine, devices, prepared, reporter)
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
