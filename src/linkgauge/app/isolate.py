"""`linkgauge isolate`: which of many nodes is slow, by rounds of groups that are compared with each other."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from linkgauge.app.command_line import COMMON, FiniteRange, command
from linkgauge.app.dimension_options import dimension_values
from linkgauge.app.options import switch, takes, value
from linkgauge.app.output import TABLE, form_of_output, print_data
from linkgauge.app.planning import apply_dimensions, estimated_run_s, resolve_mpis
from linkgauge.app.request import NOT_OF_VERDICTS, PlanChoice, Presentation, Request
from linkgauge.app.run import enter_allocation, refuse_ranks
from linkgauge.app.verbosity import QUIET, USUAL, quieten, verbosity, verbosity_options
from linkgauge.errors import EnvironmentLackingError, Exit, UsageError
from linkgauge.model.listed import listed
from linkgauge.model.quantity import format_duration, percent

if TYPE_CHECKING:
    from linkgauge.judge.isolate import Group, Search
    from linkgauge.plan.model import Plan

_BY = ("halves", "pairs")
_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class Isolation:
    """What is sought, and how."""

    by: str = value("WHICH", "Groups of a round: halves, or pairs if several nodes may be slow.", "halves",
                    type=click.Choice(_BY))  # fmt: skip
    loss: float = value("", "Least loss of rate to find, as a share.", 0.2, type=FiniteRange(0.02, 0.9))
    noise: float = value("", "Spread of a group's time between launches, as a share.", 0.03,
                         type=FiniteRange(0.001, 0.3))  # fmt: skip
    seed: int = value("", "Seed of the groups.", 1)
    out: Path = value("FOLDER", "Folder for a run folder of each round.", Path("isolate"))
    dry_run: bool = switch("Print nodes, rounds and minutes; measure nothing.")
    form: str = form_of_output(panel=COMMON)


@command(
    "isolate",
    exits=(Exit.FAIL, Exit.UNKNOWN),
    help="Find the slow node of many: rounds of halves or pairs, about log2 N of them.",
    epilog="Example: linkgauge isolate --hosts n[0-63] --pattern allreduce --size 64MiB",
)
@takes(Isolation)
@verbosity_options("Print each case as it ends.")
@takes(
    Request, of="run",
    without=(*NOT_OF_VERDICTS, "seed", "out", "keep_going", "history", "peers", "threads"),
)  # fmt: skip
def isolate_command(options: Isolation, request: Request) -> int:
    """Find the slow node of many; estimate beforehand how many rounds and minutes that takes (--dry-run).

    Ends with 1 where a node is named, with 3 where none could be named or cleared.
    """
    refuse_ranks(os.environ)
    allocation = request.allocation
    if not (allocation.hosts or allocation.nodes):
        raise UsageError("which nodes? give --hosts A,B,C,D, or --nodes all in a job")
    from linkgauge.judge.isolate import LEAST_NODES, Search, refuse_few, rounds_for

    # Before a job is requested, which may take hours.
    if options.out.exists():
        raise UsageError(f"{options.out} exists already: give --out a folder that does not")
    if allocation.nodes is not None and allocation.nodes in map(str, range(1, LEAST_NODES)):
        refuse_few(int(allocation.nodes))
    if not options.dry_run:
        enter_allocation(allocation)

    search = Search(allocation.names(), options.loss, options.noise, options.by, options.seed)
    level = verbosity()
    if level == USUAL:
        quieten()
    rounds = rounds_for(len(search.nodes), options.loss, options.noise, options.by)
    each_s = _estimated_s(request, search, options)
    times = [format_duration(count * each_s * 1e9) for count in (rounds.usual, rounds.most)]
    head = (
        f"{len(search.nodes)} nodes ({_some(search.nodes)}): about {rounds.usual} rounds, at most {rounds.most}, "
        f"of {options.by}: {times[0]}, at most {times[1]}"
    )
    if options.dry_run:
        if options.form != TABLE:
            data = {"nodes": list(search.nodes), "rounds": rounds.usual, "most_rounds": rounds.most, "round_s": each_s}
            print_data(data, options.form)
        else:
            click.echo(head)
        return 0
    if level != QUIET:
        click.echo(f"linkgauge: {head}", err=True)
    while not search.ended:
        status = _round(request, search, options, say=level != QUIET)
        if status == Exit.INTERRUPTED:
            return status
    return _print_verdict(search, options)


def _print_verdict(search: Search, options: Isolation) -> int:
    likely = search.probabilities()
    gone = f"; without {_some(tuple(search.gone))}, which did not answer" if search.gone else ""
    if search.slow:
        found = ", ".join(f"{node} ({percent(likely[node], 1)} sure)" for node in search.slow)
        line, status = f"FAIL: slow: {found}, after {search.rounds} rounds{gone}", Exit.FAIL
    elif search.cleared:
        line = f"PASS: no node loses {percent(options.loss)} or more, after {search.rounds} rounds{gone}"
        status = Exit.DONE
    else:
        line = f"UNKNOWN: after {search.rounds} rounds the suspects are {_some(search.suspects)}{gone}"
        status = Exit.UNKNOWN
    if options.form == TABLE:
        click.echo(line)
    else:
        rows = [{"node": node, "probability": one} for node, one in sorted(likely.items(), key=lambda pair: -pair[1])]
        data = {"line": line, "exit_status": int(status), "rounds": search.rounds, "slow": search.slow,
                "gone": search.gone, "nodes": rows}  # fmt: skip
        print_data(data, options.form, rows=rows)
    return status


def _some(nodes: Sequence[str]) -> str:
    return listed(nodes, _SHOWN)


def _plan(request: Request, groups: Sequence[Group], nodes: Sequence[str], devices: int) -> Plan:
    """A case for each group, of all devices of its nodes; the nodes are the run's in this order."""
    from linkgauge.plan.builtin import builtin_plan

    place = {node: at for at, node in enumerate(nodes)}
    firsts = [sorted(place[node] * devices for node in group) for group in groups]
    of_group = tuple(tuple(first + ordinal for first in one for ordinal in range(devices)) for one in firsts)
    plan = apply_dimensions(builtin_plan("isolate"), dimension_values(request.dimensions), named=False)
    return dataclasses.replace(plan, cases=tuple(dataclasses.replace(table, places=of_group) for table in plan.cases))


def _request_for(request: Request, groups: Sequence[Group], nodes: Sequence[str], out: Path | None) -> Request:
    from linkgauge.run.parent.devices import find_devices

    made = _plan(request, groups, nodes, find_devices(request.machine.devices).count)
    return dataclasses.replace(
        request,
        choice=PlanChoice(made=made),
        dimensions={},
        allocation=dataclasses.replace(request.allocation, hosts=",".join(nodes), nodes=None),
        execution=dataclasses.replace(request.execution, out=out),
        shown=Presentation(report=False, summary=False),
    )


def _estimated_s(request: Request, search: Search, options: Isolation) -> float:
    """How long a round is assumed to take, nodes being as this one."""
    from linkgauge.judge.isolate import Search

    first = Search(search.nodes, options.loss, options.noise, options.by, options.seed).groups()
    return estimated_run_s(_request_for(request, first, search.left, None))


def _round(request: Request, search: Search, options: Isolation, *, say: bool) -> int:
    """Measure a round, or find out which nodes do not answer."""
    from linkgauge.app.new_run import new_run

    groups, nodes = search.groups(), search.left
    out = options.out / f"round-{search.rounds + 1:02d}{'-again' * len(search.gone)}"
    try:
        status = new_run(_request_for(request, groups, nodes, out))
    except EnvironmentLackingError:
        if not _dropped(request, search, nodes, options.out):
            raise
        if say:
            click.echo(f"linkgauge: {_some(tuple(search.gone))}: no answer; the search continues without", err=True)
        return Exit.DONE
    if status == Exit.INTERRUPTED:
        return status
    times = _times(out, groups, nodes)
    search.observe(times)
    if say:
        click.echo(f"linkgauge: round {search.rounds}: {_seen(times)}; suspects: {_some(search.suspects)}", err=True)
    return status


def _seen(times: Mapping[Group, float | None]) -> str:
    known = sorted(time for time in times.values() if time is not None)
    if len(known) < 2:
        return "too few groups could be measured"
    return f"the slowest of {len(known)} groups took {percent(known[-1] / known[0] - 1, 1)} longer than the fastest"


def _times(out: Path, groups: Sequence[Group], nodes: Sequence[str]) -> dict[Group, float | None]:
    """Each group's time in ns: of several mechanisms the geometric mean; None where it was not measured."""
    from statistics import geometric_mean

    from linkgauge.judge.subjects import load_subjects

    (subject,) = load_subjects([out])
    found: dict[Any, dict[Any, float]] = {}
    for measure in subject.facts.undisturbed.measures:
        hosts = frozenset(subject.facts.devices[number].host for number in measure.devices)
        case = (measure.case.transport, measure.case.size_requested, measure.launch_key)
        found.setdefault(hosts, {})[case] = measure.time_ns
    each = {group: found.get(frozenset(group), {}) for group in groups}
    measured = [one for one in each.values() if one]
    common = set.intersection(*(set(one) for one in measured)) if measured else set()
    return {group: geometric_mean(one[case] for case in common) if one and common else None
            for group, one in each.items()}  # fmt: skip


def _dropped(request: Request, search: Search, hosts: Sequence[str], folder: Path) -> bool:
    """Drop the nodes that do not answer; whether there are any."""
    from linkgauge.run.parent.devices import find_devices
    from linkgauge.run.parent.mpi_library import default_installation
    from linkgauge.run.parent.nodes import Nodes

    given = resolve_mpis(request.launch.mpi)
    mpi = given[0] if given else default_installation()
    nodes = Nodes(find_devices(request.machine.devices), lambda _: None, keep_going=True, folder=folder)
    nodes.meet(mpi, hosts, request.launch.launcher_words())
    for host, why in nodes.gone.items():
        search.drop(host, why)
    return bool(nodes.gone)
