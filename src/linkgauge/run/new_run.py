"""`linkgauge run` for a new run: plan, check, show or measure."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.errors import UsageError
from linkgauge.plan.builtin import builtin_plan
from linkgauge.plan.estimate import case_s
from linkgauge.plan.launches import skips_of
from linkgauge.plan.memory import total_bytes
from linkgauge.plan.model import Plan
from linkgauge.plan.quantity import format_bytes, format_duration, format_size
from linkgauge.run import options
from linkgauge.run.binding import cores_by_rank
from linkgauge.run.devices import DeviceSet, find_devices
from linkgauge.run.info import run_info
from linkgauge.run.measure import Work, check_out, default_out, make_report, measure, present
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.on_system import Expected, prepare_on, system_data
from linkgauge.run.prepare import Prepared, new_pending, prepare, prepare_from
from linkgauge.run.progress import case_text, reporter_for
from linkgauge.run.runner import RunSettings, TimeLimit
from linkgauge.run.stored_plan import write_launches
from linkgauge.store.folder import RunFolder

if TYPE_CHECKING:
    from linkgauge.run.command import Asked


def new_run(asked: Asked, *, dry_run: bool, as_json: bool, report: bool) -> int:
    """Plan, and print the plan or measure it. Returns the exit status."""
    from linkgauge.run.command import command_line

    began = time.monotonic()
    if asked.out is not None:
        check_out(asked.out)
    given = options.resolve_mpis(asked.mpi)
    if dry_run and asked.system is not None:
        expected = Expected(asked.system)
        if asked.from_run is not None or asked.devices != "auto":
            raise UsageError("--dry-run --system plans for that system's devices: leave out --from and --devices")
        plan = _asked_plan(asked, options.parse_env(asked.env), given)
        print_plan(prepare_on(plan, expected.system, given), as_json=as_json, expected=expected)
        return 0
    devices = find_devices(asked.devices)
    prepared = _prepared(asked, devices, given)
    if dry_run:
        print_plan(prepared, as_json=as_json)
        return 0
    for launch in prepared.planned.launches:  # cores that are not there are bad input, not a failed launch
        cores_by_rank(launch.settings.bind, launch.settings.devices, devices.infos)
    reporter = reporter_for()
    out = asked.out or default_out(prepared.plan.name)
    info = run_info(
        arguments=command_line(),
        plan_name=prepared.plan.name,
        asked={
            "devices": asked.devices,
            "time_limit": asked.time_limit,
            "memory_limit": str(prepared.plan.memory_limit),
            "library_choices": prepared.plan.library_choices,
        },
        devices=devices,
        mpis=list(prepared.mpis.values()),
        seed=prepared.plan.seed,
        absent=prepared.machine.absent,
    )
    info["system"] = system_data(asked.system, devices)
    folder = RunFolder.create(out, info)
    write_launches(folder.path, prepared.planned.launches)
    warn(devices, prepared, reporter)
    limit_ns = prepared.plan.time_limit_ns
    work = Work(
        folder=folder,
        pending=new_pending(prepared.planned),
        next_number=len(prepared.planned.launches),
        devices=devices,
        machine=prepared.machine,
        mpis=prepared.mpis,
        settings=RunSettings(
            prepared.plan.seed,
            asked.max_failures,
            None if limit_ns is None else TimeLimit.of(limit_ns / 1e9, began),
            library_choices=prepared.plan.library_choices,
        ),
        skipped=prepared.planned.launches,
        left_out=prepared.planned.left_out,
    )
    status = measure(work, reporter)
    present(folder.path, reporter, report=report and not asked.beside)
    if asked.beside:
        from linkgauge.peers.beside import measure_beside
        from linkgauge.store.run import load

        launched = prepared.planned.launches
        mpi = "" if asked.threads or not launched else str(prepared.mpis[launched[0].settings.mpi].library)
        try:
            measure_beside(folder.path, asked.beside, mpi=mpi, devices=asked.devices, bind="none", tell=reporter.note)
        finally:
            if report:
                make_report(load(folder.path), folder.path, reporter)
    return status


def warn(devices: DeviceSet, prepared: Prepared, reporter: Any) -> None:
    """The doctor's first look: it warns and never stops the run."""
    try:
        from linkgauge.doctor.stage import warnings_before_run
    except ImportError:
        return
    for text in warnings_before_run(devices, prepared):
        reporter.note(f"warning: {text}")


def _prepared(asked: Asked, devices: DeviceSet, given: list[MpiInstallation]) -> Prepared:
    env = options.parse_env(asked.env)
    if asked.from_run is not None:
        from linkgauge.store.run import load

        run = load(asked.from_run)
        plan = _launched(asked, builtin_plan("default"), given, env)
        words = [word for text in asked.cases for word in text.split(",")]
        return prepare_from(run, words, plan, devices, given)
    return prepare(_asked_plan(asked, env, given), devices, given)


def _asked_plan(asked: Asked, env: dict[str, tuple[str, ...]], given: list[MpiInstallation]) -> Plan:
    values = options.dimension_values(asked.dimensions)
    named = bool(asked.plan or asked.quick or asked.full)
    plan = options.apply_dimensions(options.asked_plan(asked.plan, asked.quick, asked.full), values, named=named)
    plan = options.apply_choices(plan, pairs=asked.pairs, choose=asked.choose)
    if asked.concurrent_pairs:
        plan = options.apply_concurrent_pairs(plan)
    return _launched(asked, plan, given, env)


def _launched(asked: Asked, plan: Plan, given: list[MpiInstallation], env: dict[str, tuple[str, ...]]) -> Plan:
    plan = options.apply_launches(
        plan,
        mpis=[one.name for one in given],
        env=env,
        threads=asked.threads,
        bind=asked.bind,
        peer_access=asked.peer_access,
        thread_level=asked.thread_level,
        launcher_args=asked.launcher_words(),
    )
    return asked.settled(plan)


def print_plan(prepared: Prepared, *, as_json: bool, expected: Expected | None = None) -> None:
    """What would be measured: the launches and their cases, what is skipped and why, estimated time and memory.

    With `expected`, what that system allows each case too.
    """
    planned, machine = prepared.planned, prepared.machine
    cases = [case for launch in planned.launches for case in launch.cases]
    memory = max((total_bytes(case, machine) for case in cases), default=0)
    if as_json:
        print(json.dumps({
            "plan": prepared.plan.name,
            "estimated_s": round(planned.estimated_s, 3),
            "memory_bytes": memory,
            "left_out": planned.left_out,
            "absent_transports": dict(machine.absent),
            "launches": [{
                "launch": launch.number, "repeat": launch.repeat, "mpi": launch.settings.mpi,
                "env": dict(launch.settings.env), "derived_env": dict(launch.settings.derived_env),
                "ranks": launch.settings.ranks, "threads": launch.settings.threads,
                "cases": [{"case_key": case.case_key, "estimated_s": round(case_s(case, machine), 4),
                           "memory_bytes": total_bytes(case, machine), **case.dimensions(),
                           **({} if expected is None else {"expected": expected.of(case)})} for case in launch.cases],
                "skipped": [{"case_key": case.case_key, "reason": reason, **case.dimensions()}
                            for case, reason in launch.skipped],
            } for launch in planned.launches],
        }, indent=1))  # fmt: skip
        return
    for launch in planned.launches:
        settings = launch.settings
        words = ["threads" if settings.threads else settings.mpi, f"{settings.ranks} ranks"]
        words += [f"{name}={value}" for name, value in (*settings.env, *settings.derived_env)]
        print(f"launch {launch.number} (repeat {launch.repeat}): {', '.join(words)}: {len(launch.cases)} cases")
        for case in launch.cases:
            restated = f" (restated as {format_size(case.size)})" if case.size != case.size_asked else ""
            print(f"  {case.case_key}  {case_text(case)}{restated}")
            if expected is not None and (allowed := expected.text(case)):
                print(f"      {allowed}")
    for reason, count in skips_of(planned.launches).items():
        print(f"skipped: {count} cases: {reason}")
    for transport, reason in machine.absent.items():
        print(f"absent: {transport}: {reason}")
    if planned.left_out:
        print(f"left out: {planned.left_out} cases beyond the time limit")
    print(
        f"in all: {len(cases)} cases in {len(planned.launches)} launches, about "
        f"{format_duration(planned.estimated_s * 1e9)}, at most {format_bytes(memory)} of memory at once"
    )


def report_path(folder: Path) -> Path:
    """Where a run's report lies."""
    return folder / "report.html"
