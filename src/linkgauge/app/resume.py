"""`linkgauge run --resume RUN`: resume a run where it stopped, with its own plan."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path

from linkgauge.app.alone import taken
from linkgauge.app.options import AUTO
from linkgauge.app.planning import parse_env, resolve_mpis
from linkgauge.app.presenting import present
from linkgauge.app.progress import reporter_for
from linkgauge.app.request import Request
from linkgauge.errors import Exit, RunFolderError, UsageError
from linkgauge.model.case import STATUSES
from linkgauge.plan.environment import is_stand_in
from linkgauge.plan.launches import PlannedLaunch
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.parent.devices import find_devices
from linkgauge.run.parent.fallback import end_of, started_in, taken_of
from linkgauge.run.parent.hosts import asked_hosts, hosts_of_job
from linkgauge.run.parent.info import now, run_info
from linkgauge.run.parent.measure import measure, whole_again
from linkgauge.run.parent.nodes import Nodes
from linkgauge.run.parent.prepare import changes, known_curves, machine_of, resumed_mpis, resumed_pending
from linkgauge.run.parent.prepared import (
    Pending,
    Prepared,
    TimeLimit,
    on_hosts,
    read_launches,
    unsafe_settings,
    with_secrets,
)
from linkgauge.store.folder import RunFolder


def resume_run(request: Request, path: Path) -> int:
    """Measure what is left of the run at `path`. Returns the exit status.

    UsageError where the machine or a version has changed and `--force` was not given, naming what changed.
    """
    from linkgauge.store.run import load

    began = time.monotonic()
    execution = request.execution
    retry = _retry(request.earlier.retry)
    folder = RunFolder.open(path)
    folder.check_resumable()
    folder.hold()
    stored_launches = read_launches(folder.path)
    env = parse_env(request.launch.env)
    hosts = _hosts_for(folder.path, request.allocation.hosts, stored_launches)
    launches = tuple(with_secrets(on_hosts(launch, hosts), env, os.environ) for launch in stored_launches)
    # What the user's own environment or command line holds is not a stranger's.
    secrets = {name for one in stored_launches for name, value in one.settings.env if is_stand_in(name, value)}
    allowed = frozenset({*env, *secrets, *(["--launcher-args"] if request.launch.launcher_args else []),
                         *(["--hosts"] if hosts else [])})  # fmt: skip
    for launch in launches:
        unsafe = unsafe_settings(launch, allowed)
        if unsafe:
            raise UsageError(f"{path} sets {unsafe}: what a run folder says is not executed unless it is given again "
                             f"to 'linkgauge run --resume {path}'")  # fmt: skip
    given = resolve_mpis(request.launch.mpi)
    asked = request.machine.devices
    devices = find_devices(_stored_devices(folder) if asked == AUTO else asked)
    mpis, replaced = resumed_mpis(launches, given, path, taken_of(folder.info))
    if "seed" not in folder.info:
        raise RunFolderError(f"{path}: run.json has no seed: expected that of a run")
    seed = folder.info["seed"]
    present_info = run_info(
        arguments=[], plan_name="", asked={}, devices=devices, mpis=list(mpis.values()), seed=seed, absent={}
    )
    changed = changes(folder.info, present_info)
    if changed and not request.earlier.force:
        raise UsageError(f"{path} cannot be resumed as it was: {'; '.join(changed)}; --force resumes it all the same")
    reporter = reporter_for()
    if devices.hidden:
        reporter.note(devices.hidden)
    whole_again(folder, reporter)
    relaunched = folder.info.get("relaunched", {})
    run = load(path)
    pending = resumed_pending(launches, run, relaunched, retry)
    curves = known_curves(launches, run)
    left = sum(len(one.entries) for one in pending)
    if not left:
        reporter.note(f"{path} has nothing left to measure")
        if folder.info.get("end") is None:  # its parent was ended after the last case
            folder.update_info({"end": now(), "left": 0})
        folder.compact(finish=True)
        return 0
    reporter.note(f"{left} cases are left of {path}")
    limit_ns = execution.time_limit_ns()
    limit = None if limit_ns is None else TimeLimit.of(limit_ns / 1e9, began)
    asked_then = folder.info.get("requested", {})
    choices = asked_then.get("library_choices", False)
    nodes = Nodes(devices, reporter.note, keep_going=bool(execution.keep_going), folder=folder.path)
    for settings in {one.planned.settings for one in pending if one.planned.settings.hosts}:
        mpi = mpis[settings.mpi if settings.mpi_requested else end_of(replaced, settings.mpi)]
        nodes.meet(mpi, settings.hosts, settings.launcher_args, {**os.environ, **dict(settings.env)})
    machine = machine_of({one.planned.settings for one in pending}, devices, mpis, nodes)
    _check_devices(path, pending, machine)
    relaunched = {**relaunched, **{str(one.number): one.planned.number for one in pending}}
    resumed = [*folder.info.get("resumed", []), {"when": now(), "changed": changed}]
    folder.update_info({"relaunched": relaunched, "resumed": resumed, "end": None})
    rounds = None
    if (detect := asked_then.get("detect")) is not None:
        from linkgauge.judge.detecting import Detecting

        rounds = Detecting(detect, reporter.note, None if limit is None else limit.last_end - time.monotonic())
        rounds.learn(run, launches)
    prepared = Prepared(
        pending,
        devices,
        machine,
        mpis,
        seed,
        max_failures=execution.max_failures,
        time_limit=limit,
        every_s=asked_then.get("every_s", 0.0),
        rounds=rounds,
        library_choices=choices if request.choice.library_choices is None else request.choice.library_choices,
        taken=replaced,
        started={*started_in(run), *(one.name for one in given)},
        curves=curves,
        nodes=nodes,
    )
    here = devices if not any(launch.settings.hosts for launch in launches) else None
    with taken(request.allocation, here, folder.path, reporter.note):
        status = measure(prepared, folder, reporter)
    if status != Exit.INTERRUPTED:
        present(folder.path, reporter, report=request.shown.report)
    return status


def _check_devices(path: Path, pending: Sequence[Pending], machine: PlanMachine) -> None:
    """UsageError where a launch, or a load that is one of its own, is on a device that is not here."""
    for one in pending:
        cases = [entry.case for entry in one.entries.values()]
        loads = [load.case.devices for case in cases for load in case.background.each]
        worst = max(itertools.chain(one.planned.settings.devices, *loads), default=0)
        if worst >= machine.places:
            raise UsageError(f"{path} needs device {worst}, here are {machine.places}: see --devices")


def _hosts_for(path: Path, asked: str | None, launches: Sequence[PlannedLaunch]) -> tuple[str, ...]:
    """The nodes that a run over several goes on with: --hosts, else as many of this job's as it has, else its own.

    Its own only where the folder is this user's: ssh starts nothing on hosts that a stranger's folder names.
    """
    own = max((launch.settings.hosts for launch in launches), key=len, default=())
    if not own or asked is not None:
        return asked_hosts(None, asked)
    job = hosts_of_job()
    if job is not None:
        return job[0][: len(own)]
    return asked_hosts(None, ",".join(own)) if path.stat().st_uid == os.getuid() else ()


def _retry(text: str | None) -> frozenset[str]:
    words = frozenset(text.split(",")) if text else frozenset()
    for word in words:
        if word not in STATUSES:
            raise UsageError(f"--retry '{word}': expected statuses among {', '.join(STATUSES)}")
    return words


def _stored_devices(folder: RunFolder) -> str:
    stored = folder.info.get("devices", {})
    kind, ordinals = stored.get("kind"), stored.get("ordinals")
    if not kind or not ordinals:
        raise RunFolderError(f"{folder.path}: run.json does not say which devices were used")
    return f"host:{len(ordinals)}" if kind == "host" else f"{kind}:{','.join(map(str, ordinals))}"
