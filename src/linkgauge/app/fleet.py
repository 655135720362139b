"""`linkgauge history` and `linkgauge fleet`: many runs of many nodes, kept and compared without a server."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linkgauge.app.command_line import COMMON, PATH, argument, command
from linkgauge.app.options import Detects, Whole, switch, takes, value
from linkgauge.app.output import TABLE, form_of_output, print_data
from linkgauge.errors import Exit, UsageError
from linkgauge.model.quantity import format_bytes, percent

if TYPE_CHECKING:
    from linkgauge.judge.fleet_history import Drift
    from linkgauge.judge.small_shifts import Shifts
    from linkgauge.judge.standing import Standing

_DATASET = "Folder of the history, or an address such as s3://BUCKET/PATH."


@dataclasses.dataclass(frozen=True)
class Kept:
    """What `linkgauge history` does besides adding runs."""

    compact: bool = switch("Join the files of each day and kind of node to one, and those of past months.")
    keep: int | None = value("DAYS", "Remove days that are older.", type=Whole(1))


@command("history", epilog="Example: linkgauge history /shared/fleet runs/2026-01-02 --compact --keep 400")
@argument("dataset", metavar="DATASET", help=_DATASET)
@argument("runs", metavar="RUN...", type=PATH, nargs=-1, help="Run folders to add.")
@takes(Kept)
def history_command(asked: Kept, dataset: str, runs: tuple[Path, ...]) -> None:
    """Add runs to a fleet's history of Parquet files, compact it, and remove old days.

    Without runs and options it says what the history holds. Any number of nodes may add at the same time.
    """
    from linkgauge.store.history import History
    from linkgauge.view.units import count_text

    history = History.open(dataset, make=bool(runs))
    for run in runs:
        add_run(dataset, run, click.echo)
    if asked.keep is not None:
        gone = history.expire(asked.keep, datetime.now(timezone.utc).date())
        click.echo(f"{count_text(gone, 'file')} older than {asked.keep} days removed")
    if asked.compact:
        joined, made = history.compact()
        click.echo(f"{count_text(joined, 'file')} joined to {made}" if joined else "nothing to join")
    if not (runs or asked.compact or asked.keep):
        parts = history.parts()
        kinds = sorted({one.kind for one in parts})
        span = f", {min(one.day for one in parts)} to {max(one.last_day for one in parts)}" if parts else ""
        size = format_bytes(sum(one.size for one in parts))
        click.echo(f"{dataset}: {count_text(len(parts), 'file')}, {size}{span}")
        for kind in kinds:
            click.echo(f"  {kind}: {count_text(sum(one.kind == kind for one in parts), 'file')}")


def add_run(dataset: str, run: Path, say: Callable[[str], object]) -> None:
    """Add a run folder to a history, and say which files it became."""
    from linkgauge.collector import uncollected
    from linkgauge.judge.history import add
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.store.history import History
    from linkgauge.view.units import count_text

    with uncollected():
        (subject,) = load_subjects([run])
        files, count = add(History.open(dataset, make=True), subject)
    say(f"{subject.name}: {count_text(count, 'result')} in {', '.join(files)}")


@dataclasses.dataclass(frozen=True)
class Fleet(Detects):
    """Which part of a history, and how it is shown."""

    node: str | None = value("NAME", "Node whose drift to show: a host's name, or the lowest UUID of its devices.")
    days: int | None = value("NUMBER", "Days to read, up to the last one; by default 7, and every day with --node.",
                             type=Whole(1))  # fmt: skip
    kind: str = value("NAME", "Kind of node; all by default.", "")
    by: str = value("NAMES", "Groups to compare besides, such as rail,driver; all by default.", "")
    detect: str | None = value(
        "SHARE", "Find nodes that are slower by as little as this, such as 0.3%; each run is a round."
    )
    limit: int = value("", "Rows of a long table to show.", 40, type=click.IntRange(min=1), panel=COMMON)
    form: str = form_of_output(panel=COMMON)


@command("fleet", exits=(Exit.FAIL, Exit.UNKNOWN), epilog="Example: linkgauge fleet /shared/fleet --node n17")
@argument("dataset", metavar="DATASET", help=_DATASET)
@takes(Fleet)
def fleet_command(asked: Fleet, dataset: str) -> int:
    """Compare the nodes and links of a fleet's history, or show how one node changed and what changed with it.

    Ends with 1 where a node, link or group is an outlier, or the node is slower than it was.
    """
    from linkgauge.judge.fleet_history import GROUPINGS, drift, shifts_of_kinds, standings
    from linkgauge.store.history import History, day_after
    from linkgauge.store.history_sql import database

    if asked.node is not None and not asked.node.strip():
        raise UsageError("--node '': expected a node's name; leave out --node for the whole fleet")
    by = [name for name in asked.by.split(",") if name] or GROUPINGS
    if unknown := set(by) - set(GROUPINGS):
        raise UsageError(f"--by '{sorted(unknown)[0]}': expected some of {', '.join(GROUPINGS)}")
    if asked.node and asked.detect is not None:
        raise UsageError("--detect compares all nodes: leave out --node, or --detect")
    detect = asked.detected()
    history = History.open(dataset)
    since = ""
    days = asked.days or (None if asked.node else 7)
    parts = history.parts((asked.kind,) if asked.kind else ()) if asked.kind or days is not None else []
    if asked.kind and not parts:
        kinds = sorted({one.kind for one in history.parts()})
        raise UsageError(f"no node of kind '{asked.kind}': expected {' or '.join(kinds) or 'a history with runs'}")
    if days is not None:
        last = max((one.last_day for one in parts), default="")
        since = day_after(date.fromisoformat(last), 1 - days).isoformat() if last else ""
    with (
        tempfile.TemporaryDirectory(prefix="linkgauge-fleet-") as spill,
        database(history, (asked.kind,) if asked.kind else (), since, spill=Path(spill)) as found,
    ):
        if detect is not None:
            return _show_shifts(shifts_of_kinds(found, detect), asked, dataset)
        if asked.node:
            return _show_drift(drift(found, asked.node, dataset), asked)
        return _show_standings(standings(found, tuple(by)), asked, dataset)


def _show_standings(found: list[Standing], asked: Fleet, dataset: str) -> int:
    from linkgauge.judge.standing import Standing
    from linkgauge.view.fleet_drift import print_fleet
    from linkgauge.view.screen import console

    if asked.form != TABLE:
        print_data([vars(one) | {"outlier": one.outlier} for one in found], asked.form, of=Standing)
    elif found:
        print_fleet(console(), found, asked.limit)
    else:
        _say_few(dataset)
    return int(any(one.outlier for one in found)) if found else Exit.UNKNOWN


def _say_few(dataset: str) -> None:
    click.echo(
        "UNKNOWN: nothing to compare: a case counts from four nodes of a kind on: "
        f"add runs: linkgauge history {dataset} RUN"
    )


def _show_shifts(found: dict[str, Shifts], asked: Fleet, dataset: str) -> int:
    from linkgauge.judge.small_shifts import Named
    from linkgauge.view.screen import console
    from linkgauge.view.small_shifts import print_shifts
    from linkgauge.view.units import count_text

    if asked.form != TABLE:
        rows = [{"node_kind": kind, **dataclasses.asdict(one)} for kind, some in found.items() for one in some.named]
        print_data(rows, asked.form, of=Named)
    else:
        for kind, some in found.items():
            count = len(some.named)
            if some.unknown:
                least = percent(asked.detected() or 0.0, 2)
                click.echo(
                    f"UNKNOWN: {kind}: {some.unknown} of {count_text(count, 'node')} may be slower by {least} or not: "
                    f"{' '.join(some.power)}"
                )
            if some.unknown < count:
                click.echo(f"{kind}:")
                print_shifts(console(), some, asked.limit)
        if not found:
            _say_few(dataset)
    if any(some.slower for some in found.values()):
        return Exit.FAIL
    return Exit.DONE if any(some.unknown < len(some.named) for some in found.values()) else Exit.UNKNOWN


def _show_drift(found: Drift, asked: Fleet) -> int:
    from linkgauge.view.fleet_drift import print_drift
    from linkgauge.view.screen import console

    if asked.form != TABLE:
        plain = dataclasses.asdict(found)
        runs = [{"end": end, "share": share, "cases": cases} for end, share, cases in found.runs]
        print_data(plain | {"runs": runs}, asked.form, rows=runs)
    elif found.runs:
        print_drift(console(), found, asked.limit)
    else:
        click.echo(f"UNKNOWN: no case of {found.node} has two runs in these days")
    return int(any(one.share > 0 for one in found.shifts)) if found.runs else Exit.UNKNOWN
