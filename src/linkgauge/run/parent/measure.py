"""A prepared plan measured into a run folder, and what is said and written when it is over."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime
from pathlib import Path

from linkgauge import interrupts
from linkgauge.errors import EnvironmentLackingError, Exit, LinkgaugeError, UsageError
from linkgauge.model.quantity import format_duration, percent
from linkgauge.run.machine.core_ticks import all_cores, stolen_share
from linkgauge.run.machine.private_folder import PrivateFolders, clean_leftovers
from linkgauge.run.parent.info import now
from linkgauge.run.parent.looks import KEY as LOOKS
from linkgauge.run.parent.looks import Looks, stored
from linkgauge.run.parent.prepared import Prepared
from linkgauge.run.parent.reporter import Reporter
from linkgauge.run.parent.runner import Runner
from linkgauge.run.parent.statuses import FAILED
from linkgauge.run.parent.survivor import Survivor
from linkgauge.run.wire.outcome import OBSERVING
from linkgauge.store.folder import RunFolder
from linkgauge.system.allowance import Quotas, Throttling, allowance
from linkgauge.system.error_counters import KEY as COUNTERS
from linkgauge.system.error_counters import error_counters, plain

_LEAST_STOLEN = 0.01  # of the cores' time: less is within a tick of a short run


def default_out(plan_name: str, base: Path = Path("runs")) -> Path:
    """`runs/DATE-TIME-PLAN`, with a number where that exists."""
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{plan_name}"
    path, number = base / stem, 2
    while path.exists():
        path, number = base / f"{stem}-{number}", number + 1
    return path


def check_out(path: Path) -> None:
    """UsageError where a run folder cannot be made at `path`: it exists, or its folder cannot be written."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"--out '{path}' exists already: expected a folder that does not")
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise UsageError(f"--out '{path}': '{parent}' is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"--out '{path}': folder '{parent}' cannot be written: expected one that can")


def measure(prepared: Prepared, folder: RunFolder, reporter: Reporter, *, resumable: bool = True) -> int:
    """Measure, and return the exit status of docs/definitions.md. The folder is left valid whatever happens.

    `resumable`: whether a user may resume the run: not where a command removes the folder.
    """
    looks = Looks(prepared.devices, any(launch.settings.hosts for launch in prepared.launches))
    folder.hold()
    clean_up(reporter)
    survivor = Survivor()
    folders = PrivateFolders()
    quotas = Quotas()
    before, cores = quotas.read(), all_cores()
    errors, begun = error_counters(), time.monotonic()
    try:
        runner = Runner(prepared, folder, folders, reporter)
        for launch in prepared.launches:
            for case, reason in launch.skipped:
                runner.skip(case, launch, reason)
        looks.found()
        runner.run()
    except LinkgaugeError as error:
        _close_quietly(folder)
        raise EnvironmentLackingError(
            f"{error}; what was measured is intact in {folder.path}: resume with 'linkgauge run --resume {folder.path}'"
        ) from None
    finally:
        folders.close()
        survivor.close()
    _tell_of_quota(folder, quotas.read().since(before), reporter)
    _tell_of_hypervisor(folder, stolen_share(cores, all_cores()), reporter)
    looks.again()
    rose = {"host": os.uname().nodename, "seconds": time.monotonic() - begun, **plain(errors, error_counters())}
    folder.update_info({COUNTERS: [*(folder.info.get(COUNTERS) or ()), rose]})
    status = _finish(folder, runner, reporter, f"; resume: linkgauge run --resume {folder.path}" if resumable else "")
    if found := looks.found():
        folder.update_info({LOOKS: stored(folder.info.get(LOOKS), found)})
    return status


def _tell_of_quota(folder: RunFolder, during: Throttling, reporter: Reporter) -> None:
    """Keep and say for how long the kernel stopped this process's cgroups, ranks and all, for want of CPU quota."""
    if not during.throttled:
        return
    earlier = folder.info.get("throttled") or {}
    folder.update_info({"throttled": {name: count + earlier.get(name, 0) for name, count in during.plain().items()}})
    words = allowance().cores_words or "the cgroup of this process has a CPU quota"
    reporter.note(
        f"{words}: it was stopped in {during.throttled} of {during.periods} periods, for "
        f"{format_duration(during.time_ns)} of cores' time: latencies of host steps suffer"
    )


def _tell_of_hypervisor(folder: RunFolder, share: float, reporter: Reporter) -> None:
    """Keep and say how much of the cores' time a hypervisor gave to other machines during the run."""
    if share < _LEAST_STOLEN:
        return
    folder.update_info({"stolen_share": max(share, folder.info.get("stolen_share") or 0.0)})
    reporter.note(
        f"a hypervisor took {percent(share)} of the cores' time during the run: times vary, and intervals are wider"
    )


def clean_up(reporter: Reporter) -> None:
    """End and remove what ended runs have left on this machine, saying so."""
    removed = clean_leftovers()
    if removed:
        reporter.note(f"removed what {len(removed)} ended runs had left in {', '.join(map(str, removed))}")


def whole_again(folder: RunFolder, reporter: Reporter) -> None:
    """Make a held folder whole that a run left, however that was ended: what its journals have is in its files."""
    clean_up(reporter)  # before the journals are read: ranks of a killed parent may be writing to them still
    folder.clear_unfinished()
    folder.confirm_unjudged()
    folder.close()
    folder.compact()


def _close_quietly(folder: RunFolder) -> None:
    try:
        folder.close()
    except OSError:
        return


def _finish(folder: RunFolder, runner: Runner, reporter: Reporter, resume: str) -> int:
    status = exit_status(runner)
    folder.update_info(
        {
            "end": now(),
            "exit_status": status,
            "counts": runner.statuses.counts,
            "left": runner.left,
            "ended_by": _ended_by(runner),
            "clock": runner.records.clocks,
            **({OBSERVING: runner.records.observing} if runner.records.observing else {}),
        }
    )
    folder.compact(finish=True)
    for damage in folder.damages:
        reporter.problem(damage)
    if status == Exit.INTERRUPTED:
        kept = _kept(folder)
        reporter.problem(
            f"{interrupts.words(runner.ending.signal)}: {kept} of {kept + runner.left} cases kept in {folder.path}"
            f"{resume}"
        )
        return status
    if status == Exit.NOTHING:
        reporter.problem(f"nothing was measured: {_why_nothing(runner)}")
    if runner.left:
        reporter.problem(f"{runner.left} cases are not measured ({_ended_by(runner) or 'the time limit'}){resume}")
    return status


def _kept(folder: RunFolder) -> int:
    """How many cases of the run have a status."""
    from linkgauge.store.run import load

    rows = load(folder.path).rows()
    return len({(row.case_key, row.planned_launch, row.repeat) for row in rows if row.status is not None})


def _why_nothing(runner: Runner) -> str:
    if runner.left:
        return f"the time limit was over before any of {runner.left} cases had ended"
    statuses = runner.statuses
    return f"all {statuses.counts.get('skipped', 0)} cases were skipped, the first since {statuses.first_skipped}"


def _ended_by(runner: Runner) -> str:
    if runner.ending.signal:
        return "interrupted" if runner.ending.signal == signal.SIGINT else signal.Signals(runner.ending.signal).name
    return "time limit" if runner.ending.out_of_time and runner.left else ""


def exit_status(runner: Runner) -> int:
    """130 interrupted, 5 where no launch could be started, 4 where cases failed or nodes were lost, 6 where no case was
    measured, else 0."""
    if runner.ending.signal:
        return Exit.INTERRUPTED
    failed = sum(runner.statuses.counts.get(status, 0) for status in FAILED)
    if runner.last_start_problem and not runner.launches_started:
        raise EnvironmentLackingError(f"nothing could be measured: {runner.last_start_problem}")
    if failed or runner.nodes.any_lost:
        return Exit.SOME_FAILED
    return Exit.DONE if runner.statuses.counts.get("ok") else Exit.NOTHING
