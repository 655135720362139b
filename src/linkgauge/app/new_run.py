"""`linkgauge run` for a new run: plan, check, show or measure."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.app import run_options
from linkgauge.app.output import TABLE
from linkgauge.app.presenting import MakingReport, present
from linkgauge.app.progress import reporter_for
from linkgauge.errors import Exit, UsageError
from linkgauge.files import read_file
from linkgauge.model.quantity import format_duration, parse_size
from linkgauge.plan.builtin import builtin_plan
from linkgauge.plan.launches import estimated_s
from linkgauge.plan.model import Plan, capped
from linkgauge.run.machine.binding import cores_by_rank, with_own_core
from linkgauge.run.parent.device_hold import held
from linkgauge.run.parent.devices import DeviceSet, find_devices
from linkgauge.run.parent.fallback import KEY, found_steps, library_of
from linkgauge.run.parent.hosts import asked_hosts, hosts_of_job
from linkgauge.run.parent.info import run_info
from linkgauge.run.parent.measure import check_out, default_out, measure
from linkgauge.run.parent.mpi_library import MpiInstallation
from linkgauge.run.parent.nodes import Nodes, cores_there, ways_between
from linkgauge.run.parent.prepare import described_devices, prepare, prepare_from, prepare_on, system_data
from linkgauge.run.parent.prepared import Prepared, TimeLimit, write_launches
from linkgauge.store.folder import RunFolder
from linkgauge.system.switches import Switches, of_text

if TYPE_CHECKING:
    from linkgauge.app.run import Asked

_SAID_FROM_S = 10.0  # shorter runs are over before their estimate is read
_ANY_CORE = range(1 << 16)
_MOST_FABRIC_BYTES = 1 << 28


def new_run(asked: Asked, *, dry_run: bool = False, form: str = TABLE, report: bool = True) -> int:
    """Plan, and print the plan or measure it. Returns the exit status."""
    began = time.monotonic()
    if asked.out is not None:
        check_out(asked.out)
    given = run_options.resolve_mpis(asked.mpi)
    if dry_run and asked.system is not None:
        from linkgauge.app.dry_run import Expected, print_plan

        expected = Expected(asked.system)
        if asked.from_run is not None or asked.devices != "auto":
            raise UsageError("--dry-run --system plans for that system's devices: leave out --from and --devices")
        plan = asked_plan(asked, given, described_devices(expected.system).kind)
        print_plan(plan.name, prepare_on(plan, expected.system, given), form=form, expected=expected)
        return 0
    devices = find_devices(asked.devices)
    reporter = reporter_for()
    switches = _switches(asked.fabric)
    nodes = Nodes(devices, reporter.note, switches=switches, look=not dry_run, keep_going=bool(asked.keep_going))
    plan = asked_plan(asked, given, devices.kind)
    prepared = _prepared(asked, plan, devices, given, nodes)
    if dry_run:
        from linkgauge.app.dry_run import print_plan

        for launch in prepared.launches:  # of lists of cores only their form: they may be those of another node
            cores_by_rank(launch.settings.bind, launch.settings.devices, devices.infos, _ANY_CORE)
        print_plan(plan.name, prepared, form=form)
        return 0
    job = None if asked.nodes or asked.hosts or asked.threads else hosts_of_job()
    if job is not None and len(job[0]) > 1:
        reporter.note(f"this {job[1]} job has {len(job[0])} nodes: --nodes all measures every device of each")
    crowded, said = _crowded(prepared, devices, nodes)
    for text in said:
        reporter.note(text)
    for bind, words in crowded.items():
        reporter.note(f"warning: --bind '{bind}': {words}: latencies include waits for one (oversubscribed)")
    out = asked.out or default_out(plan.name)
    here = devices if not any(launch.settings.hosts for launch in prepared.launches) else None
    with held(here, out, asked.wait_s(), reporter.note):
        info = run_info(
            arguments=sys.argv[1:],
            plan_name=plan.name,
            asked={
                "devices": asked.devices,
                "time_limit": asked.time_limit,
                "memory_limit": str(plan.memory_limit),
                "library_choices": plan.library_choices,
                "every_s": asked.every_s,
                **({"class_weights": dict(plan.class_weights)} if plan.class_weights else {}),
            },
            devices=devices,
            mpis=list(prepared.mpis.values()),
            seed=plan.seed,
            absent=prepared.machine.absent,
        )
        info["system"] = system_data(asked.system, devices)
        steps = found_steps(prepared.mpis.values(), prepared.without_mpi)
        info |= {KEY: [step.as_row() for step in steps]} if steps else {}
        folder = RunFolder.create(out, info)
        write_launches(folder.path, prepared.launches)
        for step in steps:
            reporter.note(str(step))
        warn(asked, devices, prepared, reporter)
        limit_ns = plan.time_limit_ns
        limit = None if limit_ns is None else TimeLimit.of(limit_ns / 1e9, began)
        limited = dataclasses.replace(
            prepared, max_failures=asked.max_failures, time_limit=limit, every_s=asked.every_s
        )
        takes_s = estimated_s(prepared.launches, prepared.machine)
        if takes_s >= _SAID_FROM_S:
            count = sum(len(launch.cases) for launch in prepared.launches)
            reporter.note(f"{count} cases in {len(prepared.launches)} launches, about {format_duration(takes_s * 1e9)}")
        status = measure(limited, folder, reporter)
    if status == Exit.INTERRUPTED:  # the batch system kills soon, and what is kept can be shown at any time
        return status
    present(folder.path, reporter, report=report and not asked.peers)
    if asked.peers:
        from linkgauge.peers.alternate import measure_alternating

        mpi = library_of(folder.info, next((one.settings.mpi for one in prepared.launches), ""))
        try:
            measure_alternating(
                folder.path, asked.peers, mpi=mpi, devices=asked.devices, bind="none", tell=reporter.note
            )
        finally:
            if report:
                MakingReport(folder.path).tell(reporter)
    return status


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


def _switches(path: Path | None) -> Switches | None:
    """What `--fabric` says of which node hangs on which switch."""
    if path is None:
        return None
    text = read_file(path, _MOST_FABRIC_BYTES, "a network's switches")
    return of_text(text.decode(errors="replace"), str(path))


def warn(asked: Asked, devices: DeviceSet, prepared: Prepared, reporter: Any) -> None:
    """The doctor's first look: it warns and never stops the run."""
    try:
        from linkgauge.doctor.stage import warnings_before_run
    except ImportError:
        return
    gpus_asked = asked.devices.partition(":")[0] != "host"
    for text in warnings_before_run(devices, prepared, gpus_asked=gpus_asked):
        reporter.note(f"warning: {text}")


def _prepared(asked: Asked, plan: Plan, devices: DeviceSet, given: list[MpiInstallation], nodes: Nodes) -> Prepared:
    if asked.from_run is None:
        return prepare(plan, devices, given, nodes)
    from linkgauge.store.run import load

    words = [word for text in asked.cases for word in text.split(",")]
    return prepare_from(load(asked.from_run), words, plan, devices, given, nodes)


def asked_plan(asked: Asked, given: list[MpiInstallation], kind: str) -> Plan:
    """What is asked for; of the cases of an earlier run only how they are launched."""
    if asked.from_run is not None:
        return _launched(asked, builtin_plan("default"), given)
    values = run_options.dimension_values(asked.dimensions)
    named = bool(asked.plan or asked.quick or asked.full)
    if "app" in values and not named:
        plan = run_options.application_plan(values)
    else:
        whole = run_options.asked_plan(asked.plan, asked.quick, asked.full)
        plan = run_options.apply_dimensions(whole, values, named=named, kind=kind)
    plan = run_options.apply_choices(plan, pairs=asked.pairs, placement=asked.placement, swap_roles=asked.swap_roles)
    if asked.max_size is not None:
        plan = capped(plan, parse_size(asked.max_size))
    if asked.concurrent_pairs:
        plan = run_options.apply_concurrent_pairs(plan)
    return _launched(asked, plan, given)


def _launched(asked: Asked, plan: Plan, given: list[MpiInstallation]) -> Plan:
    plan = run_options.apply_launches(
        plan,
        mpis=[one.name for one in given],
        env=run_options.parse_env(asked.env),
        threads=asked.threads,
        bind=asked.bind,
        peer_access=asked.peer_access,
        thread_level=asked.thread_level,
        launcher_args=asked.launcher_words(),
        hosts=asked_hosts(asked.nodes, asked.hosts),
    )
    return asked.settled(plan)
