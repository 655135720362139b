"""`linkgauge run` for a new run: plan, check, show or measure."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linkgauge import started
from linkgauge.app.alone import taken
from linkgauge.app.options import AUTO
from linkgauge.app.output import TABLE
from linkgauge.app.planning import planned, resolve_mpis
from linkgauge.app.presenting import MakingReport, present
from linkgauge.app.progress import reporter_for
from linkgauge.app.request import EarlierRun, Machine, Request
from linkgauge.errors import Exit, LinkgaugeError, UsageError
from linkgauge.files import read_file
from linkgauge.model.quantity import format_duration
from linkgauge.plan.joined import parts_of
from linkgauge.plan.launches import estimated_s, likely_run_s
from linkgauge.plan.model import Plan
from linkgauge.run.machine.binding import cores_by_rank, with_own_core
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.devices import DeviceSet, find_devices
from linkgauge.run.parent.fallback import KEY, found_steps, library_of
from linkgauge.run.parent.hosts import hosts_of_job
from linkgauge.run.parent.info import run_info
from linkgauge.run.parent.measure import check_out, default_out, measure
from linkgauge.run.parent.nodes import Nodes, cores_there, ways_between
from linkgauge.run.parent.prepare import described_devices, prepare, prepare_from, prepare_on, system_data
from linkgauge.run.parent.prepared import Prepared, TimeLimit, write_launches
from linkgauge.run.parent.reporter import Reporter
from linkgauge.store.folder import RunFolder
from linkgauge.store.parts import write_parts
from linkgauge.system.switches import Switches, of_text

_SAID_FROM_S = 10.0  # shorter runs are over before their estimate is read
_ANY_CORE = range(1 << 16)
_MOST_FABRIC_BYTES = 1 << 28


def new_run(request: Request) -> int:
    """Plan, and print the plan or measure it. Returns the exit status."""
    began = time.monotonic()
    started.done()
    machine, allocation, execution, shown = request.machine, request.allocation, request.execution, request.shown
    if execution.out is not None:
        check_out(execution.out)
    if execution.history is not None and not shown.dry_run:
        from linkgauge.store.history import History

        History.open(execution.history, make=True)  # what is wrong with it is said before measuring
    given = resolve_mpis(request.launch.mpi)
    if shown.dry_run and machine.system is not None:
        return _print_plan_of_system(request, machine.system, given)
    devices = find_devices(machine.devices)
    reporter = reporter_for()
    if devices.hidden:
        reporter.note(devices.hidden)
    switches = _switches(allocation.fabric, allocation.names())
    nodes = Nodes(
        devices, reporter.note, switches=switches, look=not shown.dry_run, keep_going=bool(execution.keep_going),
        folder=execution.out or Path("runs"),
    )  # fmt: skip
    plan = planned(request, given, devices.kind)
    limit_ns = plan.time_limit_ns
    detect = request.rounds.detected()
    if detect is not None:  # each round has all cases, and the limit is of the rounds together
        from linkgauge.judge.detecting import MOST_ROUNDS

        rounds = 1 if shown.dry_run else request.rounds.repeat or MOST_ROUNDS
        plan = dataclasses.replace(plan, time_limit_ns=None, repeat=rounds)
    prepared = _prepared(request.earlier, plan, devices, given, nodes)
    if shown.dry_run:
        return _print_plan(plan, prepared, devices, shown.form, detect, limit_ns)
    _say_what_waits(request, prepared, devices, nodes, reporter)
    out = execution.out or default_out(plan.name)
    here = devices if not any(launch.settings.hosts for launch in prepared.launches) else None
    with taken(allocation, here, out, reporter.note):
        folder = _new_folder(out, request, plan, prepared, devices, reporter)
        limited = _within_limits(request, plan, prepared, limit_ns, began, reporter)
        status = measure(limited, folder, reporter, resumable=shown.summary)
    if status != Exit.INTERRUPTED:  # the batch system kills soon, and what is kept can be shown at any time
        _present(request, prepared, folder, reporter)
    return status


def _print_plan_of_system(request: Request, system: str, given: Sequence[MpiInstallation]) -> int:
    """Print what a described system would measure, and what is expected of it."""
    from linkgauge.app.dry_run import Expected, print_plan

    expected = Expected(system)
    if request.earlier.from_run is not None or request.machine.devices != AUTO:
        raise UsageError("--dry-run --system plans for that system's devices: leave out --from and --devices")
    plan = planned(request, given, described_devices(expected.system).kind)
    print_plan(plan, prepare_on(plan, expected.system, given), form=request.shown.form, expected=expected)
    return 0


def _print_plan(
    plan: Plan, prepared: Prepared, devices: DeviceSet, form: str, detect: float | None, limit_ns: int | None
) -> int:
    """Print what would be measured here."""
    from linkgauge.app.dry_run import print_plan

    for launch in prepared.launches:  # of lists of cores only their form: they may be those of another node
        cores_by_rank(launch.settings.bind, launch.settings.devices, devices.infos, _ANY_CORE)
    print_plan(plan, prepared, form=form)
    if detect is not None and form == TABLE:
        from linkgauge.judge.detecting import planned_words

        for line in planned_words(detect, estimated_s(prepared.launches, prepared.machine), limit_ns):
            print(line)
    return 0


def _say_what_waits(request: Request, prepared: Prepared, devices: DeviceSet, nodes: Nodes, reporter: Reporter) -> None:
    """Say which nodes of the job are left out, how nodes will reach each other, and which ranks share cores."""
    allocation = request.allocation
    job = None if allocation.nodes or allocation.hosts or request.launch.threads else hosts_of_job()
    if job is not None and len(job[0]) > 1:
        reporter.note(f"this {job[1]} job has {len(job[0])} nodes: --nodes all measures every device of each")
    crowded, ways = _crowded(prepared, devices, nodes)
    for text in ways:
        reporter.note(text)
    for bind, words in crowded.items():
        reporter.note(f"warning: --bind '{bind}': {words}: latencies include waits for one (oversubscribed)")


def _new_folder(
    out: Path, request: Request, plan: Plan, prepared: Prepared, devices: DeviceSet, reporter: Reporter
) -> RunFolder:
    """Make the run folder with what is known before anything is measured, and say what the doctor warns of."""
    machine, detect = request.machine, request.rounds.detected()
    info = run_info(
        arguments=sys.argv[1:],
        plan_name=plan.name,
        asked={
            "devices": machine.devices,
            "time_limit": request.execution.time_limit,
            "memory_limit": str(plan.memory_limit),
            "library_choices": plan.library_choices,
            "every_s": request.rounds.every_s,
            **({"detect": detect} if detect is not None else {}),
            **({"class_weights": dict(plan.class_weights)} if plan.class_weights else {}),
        },
        devices=devices,
        mpis=list(prepared.mpis.values()),
        seed=plan.seed,
        absent=prepared.machine.absent,
    )
    info["system"] = system_data(machine.system, devices)
    steps = found_steps(prepared.mpis.values(), prepared.without_mpi)
    info |= {KEY: [step.as_row() for step in steps]} if steps else {}
    folder = RunFolder.create(out, info)
    write_launches(folder.path, prepared.launches)
    if parts := parts_of(plan, prepared.machine):
        write_parts(folder.path, parts)
    for step in steps:
        reporter.note(str(step))
    said = [devices.hidden] if devices.hidden else []
    folder.update_info({"warnings": said + warn(machine, devices, prepared, reporter)})
    return folder


def _within_limits(
    request: Request, plan: Plan, prepared: Prepared, limit_ns: int | None, began: float, reporter: Reporter
) -> Prepared:
    """What is measured, with the limits of time, failures and rounds; says how long it will take."""
    limit = None if limit_ns is None else TimeLimit.of(limit_ns / 1e9, began)
    limited = dataclasses.replace(
        prepared,
        max_failures=request.execution.max_failures,
        time_limit=limit,
        every_s=request.rounds.every_s,
        core_use=request.execution.core_use,
    )
    takes_s = likely_run_s(prepared.launches, prepared.machine)
    if (detect := request.rounds.detected()) is not None:
        from linkgauge.judge.detecting import Detecting, planned_words

        round_s = estimated_s(prepared.launches, prepared.machine) / max(plan.repeat, 1)
        limit_s = None if limit is None else limit.last_end - time.monotonic()
        limited = dataclasses.replace(limited, rounds=Detecting(detect, reporter.note, limit_s))
        for line in planned_words(detect, round_s, limit_ns):
            reporter.note(line)
    elif takes_s >= _SAID_FROM_S:
        count = sum(len(launch.cases) for launch in prepared.launches)
        reporter.note(f"{count} cases in {len(prepared.launches)} launches, about {format_duration(takes_s * 1e9)}")
    return limited


def _present(request: Request, prepared: Prepared, folder: RunFolder, reporter: Reporter) -> None:
    """Show a run that has ended, alternate with peers, and add it to a history, as was requested."""
    execution, shown = request.execution, request.shown
    if shown.summary:
        present(folder.path, reporter, report=shown.report and not execution.peers)
    if execution.peers:
        from linkgauge.peers.alternate import measure_alternating

        mpi = library_of(folder.info, next((one.settings.mpi for one in prepared.launches), ""))
        try:
            measure_alternating(
                folder.path, execution.peers, mpi=mpi, devices=request.machine.devices, bind="none", tell=reporter.note
            )
        finally:
            if shown.report:
                MakingReport(folder.path).tell(reporter)
    if execution.history is not None:
        from linkgauge.app.fleet import add_run

        try:
            add_run(execution.history, folder.path, reporter.note)
        except LinkgaugeError as error:  # the run is whole all the same
            again = f"linkgauge history {execution.history} {folder.path}"
            reporter.problem(f"not in the history: {error}; '{again}' adds it")


def _crowded(prepared: Prepared, devices: DeviceSet, nodes: Nodes) -> tuple[dict[str, str], list[str]]:
    """How ranks share cores by what --bind asks for, and by which interface nodes will reach each other.

    UsageError for cores that are not there: no failed launch.
    """
    crowded, said = {}, dict[str, None]()
    for launch in prepared.launches:
        settings, bind = launch.settings, launch.settings.bind
        if there := nodes.of(prepared.mpis.get(settings.mpi), settings.ranks, settings.launcher_args, settings.hosts):
            cores_there(there, bind, settings.devices, devices.ordinals)
            environment = {**os.environ, **dict(settings.env)}
            transports = {case.transport for case in launch.cases}
            said |= dict.fromkeys(
                ways_between(prepared.mpis[settings.mpi], environment, there, transports, devices.kind)
            )
            continue
        cores = cores_by_rank(bind, settings.devices, devices.infos)
        if bind != "nearest" and cores is not None and with_own_core(cores) < len(cores):  # else the doctor says so
            count = len({core for rank in cores for core in rank})
            crowded[bind] = f"{len(cores)} ranks share {count} core{'' if count == 1 else 's'}"
    return crowded, list(said)


def _switches(path: Path | None, hosts: Sequence[str]) -> Switches | None:
    """Which node `--fabric` connects to which switch. UsageError where it lacks one of the run's hosts."""
    if path is None:
        return None
    text = read_file(path, _MOST_FABRIC_BYTES, "a network's switches")
    found = of_text(text.decode(errors="replace"), str(path))
    found.check(hosts)
    return found


def warn(machine: Machine, devices: DeviceSet, prepared: Prepared, reporter: Any) -> list[str]:
    """The doctor's first look: it warns and never stops the run. Returns what it says."""
    from linkgauge.doctor.stage import warnings_before_run

    gpus_asked = machine.devices.partition(":")[0] != "host"
    found = warnings_before_run(devices, prepared, gpus_asked=gpus_asked)
    for text in found:
        reporter.note(f"warning: {text}")
    return found


def _prepared(
    earlier: EarlierRun, plan: Plan, devices: DeviceSet, given: Sequence[MpiInstallation], nodes: Nodes
) -> Prepared:
    if earlier.from_run is None:
        return prepare(plan, devices, given, nodes)
    from linkgauge.store.run import load

    words = [word for text in earlier.cases for word in text.split(",")]
    return prepare_from(load(earlier.from_run), words, plan, devices, given, nodes)
