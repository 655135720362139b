"""`linkgauge run` for a new run: plan, check, show or measure."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.errors import UsageError
from linkgauge.plan.builtin import builtin_plan
from linkgauge.plan.curves import FULL, Step, Until
from linkgauge.plan.estimate import case_s
from linkgauge.plan.launches import PlannedLaunch, skips_of
from linkgauge.plan.memory import total_bytes
from linkgauge.plan.model import Plan
from linkgauge.plan.quantity import format_bytes, format_duration, format_size
from linkgauge.run import options
from linkgauge.run.binding import cores_by_rank
from linkgauge.run.devices import DeviceSet, find_devices
from linkgauge.run.fallback import KEY, found_steps, library_of
from linkgauge.run.info import run_info
from linkgauge.run.measure import Work, check_out, default_out, make_report, measure, present
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.on_system import Expected, described_devices, prepare_on, system_data
from linkgauge.run.prepare import Prepared, new_pending, prepare, prepare_from
from linkgauge.run.progress import case_text, reporter_for
from linkgauge.run.runner import RunSettings
from linkgauge.run.stored_plan import write_launches
from linkgauge.run.time_limit import TimeLimit
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
        plan = _asked_plan(asked, options.parse_env(asked.env), given, described_devices(expected.system).kind)
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
    steps = found_steps(prepared.mpis.values(), prepared.without_mpi)
    info |= {KEY: [step.as_row() for step in steps]} if steps else {}
    folder = RunFolder.create(out, info)
    write_launches(folder.path, prepared.planned.launches)
    for step in steps:
        reporter.note(str(step))
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
    )
    status = measure(work, reporter)
    present(folder.path, reporter, report=report and not asked.beside)
    if asked.beside:
        from linkgauge.peers.beside import measure_beside
        from linkgauge.store.run import load

        mpi = library_of(folder.info, next((one.settings.mpi for one in prepared.planned.launches), ""))
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
    return prepare(_asked_plan(asked, env, given, devices.kind), devices, given)


def _asked_plan(asked: Asked, env: dict[str, tuple[str, ...]], given: list[MpiInstallation], kind: str) -> Plan:
    values = options.dimension_values(asked.dimensions)
    named = bool(asked.plan or asked.quick or asked.full)
    whole = options.asked_plan(asked.plan, asked.quick, asked.full)
    plan = options.apply_dimensions(whole, values, named=named, kind=kind)
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
                           **_step_json(launch.steps.get(case.case_key)),
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
        curves = curve_lines(launch)
        for case in launch.cases:
            step = launch.steps.get(case.case_key)
            if step is not None and step.until is not None and step.curve in curves:
                print(f"  {curves.pop(step.curve)}")
            stated = case.size_asked in (case.size, FULL)
            restated = "" if stated else f" (restated as {format_size(case.size)})"
            print(f"  {case.case_key}  {case_text(case)}{restated}")
            if expected is not None and (allowed := expected.text(case)):
                print(f"      {allowed}")
    for reason, count in skips_of(planned.launches).items():
        print(f"skipped: {count} cases: {reason}")
    for transport, reason in machine.absent.items():
        print(f"absent: {transport}: {reason}")
    if planned.left_out:
        print(
            f"beyond the time limit, by these estimates: {planned.left_out} more cases, measured as far as time is left"
        )
    print(
        f"in all: {len(cases)} cases in {len(planned.launches)} launches, about "
        f"{format_duration(planned.estimated_s * 1e9)}, at most {format_bytes(memory)} of memory at once"
    )


def curve_lines(launch: PlannedLaunch) -> dict[str, str]:
    """A line for each curve of a launch: its sizes, and how it ends."""
    sizes: dict[str, list[int]] = {}
    until: dict[str, str] = {}
    for case in launch.cases:
        step = launch.steps.get(case.case_key)
        if step is not None and step.until is not None:
            sizes.setdefault(step.curve, []).append(case.size_asked)
            until[step.curve] = until_text(step.until)
    return {
        curve: f"curve of {len(sizes[curve])} sizes, {format_size(min(sizes[curve]))} to "
        f"{format_size(max(sizes[curve]))}, until {words}:"
        for curve, words in until.items()
    }


def _step_json(step: Step | None) -> dict[str, Any]:
    if step is None:
        return {}
    if step.until is None:
        return {"at_full": step.curve}
    return {"curve": step.curve, "until_gain": step.until.gain, "until_time_ns": step.until.time_ns}


def until_text(until: Until) -> str:
    """How a curve ends, in words."""
    words = [f"goodput rises by less than {until.gain * 100:.3g}%"] if until.gain else []
    if until.time_ns:
        words.append(f"an operation would take more than {format_duration(until.time_ns)}")
    return " or ".join(words)


def report_path(folder: Path) -> Path:
    """Where a run's report lies."""
    return folder / "report.html"
