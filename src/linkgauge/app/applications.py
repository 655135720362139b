"""`linkgauge apps` and `predict`: the applications there are, and what each takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from linkgauge.app.command_line import COMMON, argument, command
from linkgauge.app.dimension_options import applications
from linkgauge.app.options import counts, repeated, switch, takes, value
from linkgauge.app.output import TABLE, form_of_output, output_options, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import Exit, UsageError
from linkgauge.model.quantity import parse_duration, parse_size

if TYPE_CHECKING:
    from linkgauge.apps.step_file import StepFile
    from linkgauge.expect.cluster import Cluster
    from linkgauge.expect.curves import Curves, CurvesOfRun
    from linkgauge.expect.sureness import Ends
    from linkgauge.model.worded import App
    from linkgauge.store.run import Run
    from linkgauge.view.predicted import WhatIf


_FROM, _ON = "Where the curves come from", "On a described system"


@command("apps", epilog="Example: linkgauge run --app llh --set n=64 --devices host:2")
@output_options(" with parameters and sources")
def apps_command(form: str) -> None:
    """List the applications by what they communicate; 'linkgauge run --app NAME' measures one."""
    from linkgauge.app.listing import print_table
    from linkgauge.apps.catalog import builtin, names

    files = [builtin(name) for name in names()]
    if form != TABLE:
        rows = [{"name": one.name, "what": one.description, "parameters": one.parameters, "presets": one.presets,
                 "source": one.document.get("source", ""), "digest": one.digest} for one in files]  # fmt: skip
        print_data(rows, form)
        return
    print_table(
        "applications",
        ("name", "what", "parameters"),
        [{"name": one.name, "what": one.description, "parameters": _settings(one)} for one in files],
    )


def _settings(file: StepFile) -> str:
    told = " ".join(f"{name}={value}" for name, value in file.parameters.items())
    return f"{told} or {', '.join(file.presets)}" if file.presets else told


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What is predicted, from which curves."""

    panel: ClassVar = "What to predict"

    from_run: Path | None = value(
        "RUN", "Run whose curves predict, as of --plan applications.", panel=_FROM, flags="--from"
    )
    system: str | None = value("NAME|FILE", "System whose links give the least time, in place of a run.", panel=_FROM)
    curves: str | None = value(
        "NAME|FILE", "Published curves in place of a run, such as tartan-summitdev.", panel=_FROM
    )
    measured: Path | None = value("RUN", "Run that measured the applications; that of --from by default.", panel=_FROM)
    overlap: Path | None = value("RUN", "Run of --plan overlap; that of --from by default.", panel=_FROM)
    settings: tuple[str, ...] = repeated(
        "NAME=NUMBER", "Parameter (n=64, n=32*ranks), or preset; repeatable.", flags="--set"
    )
    ranks: str = value("LIST", "Numbers of ranks: 4 or 1:8:x2; all by default.", "")
    transport: str | None = value("NAMES", "Transports to predict; all that are known by default.")
    collectives: str = value("TRANSPORT", "Mechanism of collectives; that of messages by default.", "")
    copies: str = value("copy_engine|kernel", "Mechanism of copies and emulated kernels.", "")
    blocks: int = value("", "Thread blocks of an emulated kernel; 0 sets no limit.", 0, type=click.IntRange(min=0))
    between_nodes: bool = switch("Place each rank on a node of its own, with --system.", panel=_ON)
    routing: str | None = value("RULE", "Routing rule of 'linkgauge simulate', with --system: best, ...", panel=_ON)
    placement: str = value("WHICH", "Placement of the ranks, with --routing.", "packed", panel=_ON)
    latencies: tuple[str, ...] = repeated(
        "KIND=TIME", "Least time of a kind of step, with --system.", panel=_ON, flags="--latency"
    )
    factors: tuple[str, ...] = repeated(
        "KIND=NUMBER", "Factor for a kind of step that is faster: message=2.", flags="--faster"
    )
    algorithm: str = value("NAME", "Algorithm of collectives to suppose, as --from measured it.", "")
    bucket: str = value("SIZE", "Size of buckets to suppose for reductions that are begun, as DDP's: 25MiB.", "")
    no_overlap: bool = switch("Suppose that collectives are waited for at once, so that nothing overlaps them.")
    statistic: str = value("median|mean|q1|p5|min", "Statistic of what was measured.", "median")
    form: str = form_of_output(": times in ns", panel=COMMON)


@command(
    "predict",
    exits=(Exit.UNKNOWN,),
    epilog="Example: linkgauge predict llh,pipeline --from runs/curves --transport mpi",
)
@argument("app", metavar="APP|FILE|all|seen", help="Applications, separated by commas; seen: those of --curves.")
@takes(Prediction)
@verbosity_options("Print each stage.")
def predict_command(asked: Prediction, app: str) -> int:
    """Predict an application's time from a run's curves or a system's links; compare it with the measured one."""
    if app == "seen" and asked.curves is None:
        raise UsageError("'seen' goes with --curves: the applications that a paper measured beside its curves")
    if asked.overlap is not None and asked.from_run is None:
        raise UsageError("--overlap goes with --from: curves of links have no slow-downs")
    from_run, system, routing = asked.from_run, asked.system, asked.routing
    if asked.curves is not None:
        if from_run is not None or asked.measured is not None or asked.transport or asked.collectives:
            raise UsageError(
                "--curves have ways of their own: give no --from, --measured, --transport or --collectives"
            )
        return _by_published(asked, app, asked.curves)
    from linkgauge.apps import catalog
    from linkgauge.expect.curves import Faster
    from linkgauge.expect.slow_downs import SlowDowns
    from linkgauge.model.case import DIMENSIONS
    from linkgauge.stats.interference import interferences
    from linkgauge.stats.launches import shown_transports
    from linkgauge.store.run import load
    from linkgauge.view.predicted import AS_IT_IS, WhatIf, misses, predictions
    from linkgauge.view.predicted_table import print_predictions

    if (from_run is None) == (system is None):
        raise UsageError(
            "give --from RUN, as 'linkgauge run --plan applications' makes one, or --system NAME: expected one of both"
        )
    if system is None and routing is not None:
        raise UsageError("--routing goes with --system, whose cluster it is")
    if system is not None and asked.algorithm:
        raise UsageError("--algorithm goes with --from, which has measured it: links know no algorithm")
    if system is None and (asked.between_nodes or asked.latencies):
        raise UsageError("--between-nodes and --latency go with --system: a run's curves have both in them")
    named = applications(app, asked.settings)
    listed = counts("--ranks", asked.ranks) if asked.ranks else []
    for one in named:
        catalog.asked(one, max(listed, default=1))
    other = str(DIMENSIONS["collectives"].from_text(asked.collectives)[0]) if asked.collectives else ""
    copied = str(DIMENSIONS["copies"].from_text(asked.copies)[0]) if asked.copies else ""
    statistic = asked.statistic
    if statistic not in ("median", "mean", "q1", "p5", "min"):
        raise UsageError(f"--statistic '{statistic}': expected median, mean, q1, p5 or min")
    factor_of = _by_kind("--faster", asked.factors, _factor, ())
    latency_ns = _by_kind("--latency", asked.latencies, parse_duration, ("barrier",))
    supposed = WhatIf(asked.algorithm, asked.no_overlap, _bucket(asked.bucket))
    changed = bool(factor_of) or supposed != AS_IT_IS
    there = None if asked.measured is None else load(asked.measured)
    source = slow = ends = missed = None
    on_host = False
    shown: dict[str, str] = {}
    if from_run is not None:
        source = load(from_run)
        shown = shown_transports(source.launched)
        on_host = source.info.get("devices", {}).get("kind") == "host"
        beside = interferences(source if asked.overlap is None else load(asked.overlap))
        if asked.overlap is not None and not beside:
            raise UsageError(
                f"--overlap {asked.overlap}: no case beside a load in it: expected a run of "
                "'linkgauge run --plan overlap'"
            )
        slow = SlowDowns(beside)
        of_run, known, most, ends = _of_run(source, f"{statistic}_ns")
        found_curves: Curves = of_run
        ends = None if changed or statistic != "median" else ends
        if asked.algorithm and asked.algorithm not in of_run.algorithms:
            measured = of_run.algorithms and f"it: expected one of {', '.join(sorted(of_run.algorithms))}"
            raise UsageError(
                f"--algorithm {asked.algorithm}: {from_run} has no collective by {measured or 'a named algorithm'}; "
                "'linkgauge run --algorithm' measures some"
            )
        missed = misses(source, found_curves, f"{statistic}_ns", slow, on_host=on_host)
        there = source if there is None else there
    else:
        # Of a cluster only copies are by curves, each device's own.
        found_curves, known, most = _of_system(str(system), latency_ns, asked.between_nodes or routing is not None)
        shown = _shown_of_system(str(system))
    cluster = None
    if routing is not None:
        cluster = _cluster(str(system), routing, asked.placement, one_a_node=asked.between_nodes)
        known = known[:1]
    elif system is not None and not asked.between_nodes and max(listed, default=1) > most:
        raise UsageError(f"--ranks: {max(listed)} ranks: {system} has {most} devices a node; see --between-nodes")
    transports = [str(one) for one in DIMENSIONS["transport"].from_text(asked.transport)] if asked.transport else known
    of = (
        there, listed or [most], transports, other, copied, f"{statistic}_ns", cluster, asked.blocks, slow, ends,
        on_host, missed,
    )  # fmt: skip
    with Stages("predict") as stages:
        count = len(named) * len(listed or [most]) * len(transports) * (2 if changed else 1)
        stages.stage("predicting", count, "times")
        usual = predictions(named, found_curves, *of, stages.advance)
        by = Faster(found_curves, factor_of) if factor_of else found_curves
        found = predictions(named, by, *of, stages.advance, supposed) if changed else usual
    late = _host_decides(named)
    if asked.form != TABLE:
        rows = [one.plain() | {"host_decides": late.get(one.app.partition(" ")[0], "")} for one in found]
        for row, what_if, before in zip(rows, found, usual, strict=True) if changed else ():
            row["as_it_is_ns"] = before.plain()["predicted_ns"]
            row["gain_low_ns"], row["gain_high_ns"] = what_if.gain_over(before) or (None, None)
        print_data(rows, asked.form)
    else:
        bound_of = system if routing is None else f"{system}, {routing} and placed {asked.placement},"
        print_predictions(found, bound_of=bound_of, as_it_is=usual if changed else None, shown=shown)
        for name, words in late.items():
            click.echo(f"{name}: {words}")
        for line in (*(_others(source) if source else ()), *_supposed(factor_of, supposed)):
            click.echo(f"assumed: {line}")
    return Exit.DONE if any(one.predicted is not None for one in found) else Exit.UNKNOWN


def _host_decides(named: Sequence[App]) -> dict[str, str]:
    """Of which step files the trace says that the GPU waited for its host's launches: a prediction may lack that."""
    from linkgauge.apps import catalog
    from linkgauge.apps.traces import host_decides

    found = {one.name: host_decides(catalog.asked(one, 1).file.description) for one in named}
    return {name: words for name, words in found.items() if words}


def _bucket(text: str) -> int:
    """--bucket in bytes; 0 without one."""
    size = parse_size(text) if text else 0
    if text and size < 1:
        raise UsageError(f"--bucket '{text}': expected at least 1 byte")
    return size


def _others(source: Run) -> Iterator[str]:
    """That others go on using the machine, where they did while its curves were measured."""
    from linkgauge.findings.read import disturbed_in

    if disturbed := len(disturbed_in(source)):
        measured = len({row.identity for row in source.rows() if row.status == "ok"})
        of = f"{disturbed} of {measured} measurements of {source.path}"
        yield f"others use the machine as in {of} ('linkgauge findings {source.path}')"


def _supposed(factor_of: Mapping[str, float], supposed: WhatIf) -> Iterator[str]:
    """What a prediction that changes something takes as it is."""
    for kind, factor in factor_of.items():
        yield f"{kind} keeps its latency and moves its bytes {factor:g} times as fast; errors are as without the change"
    if supposed.algorithm:
        yield f"collectives of which --from has {supposed.algorithm} take that long, begun or not; others their own"
    if supposed.bucket:
        yield (
            "reductions begun between two waits go in buckets of that size, each when its bytes are ready: evenly "
            "while the rank computes from one bucket's begin to the next; the first bucket's bytes all at its begin"
        )
    if supposed.at_once:
        yield "collectives are waited for where they begin, and what they went on beside follows; messages as they are"


def _by_published(asked: Prediction, app: str, name: str) -> int:
    from linkgauge.expect import published
    from linkgauge.view.published import by_ways, print_by_ways

    held = published.load(name)
    latency_ns = _by_kind("--latency", asked.latencies, parse_duration, ("barrier",))
    beneath, _, _ = _of_system(asked.system or held.system, latency_ns, True)
    factor_of = _by_kind("--faster", asked.factors, _factor, ())
    found = []
    if app == "seen":
        for one in held.seen:
            found += by_ways([one.app], held, beneath, [one.ranks], factor_of)
        if not found:
            raise UsageError(f"{name}: nothing was seen: expected applications by name")
    else:
        named = applications(app, asked.settings)
        found = by_ways(named, held, beneath, counts("--ranks", asked.ranks or "2"), factor_of)
    if asked.form != TABLE:
        print_data([one.plain() for one in found], asked.form)
    else:
        print_by_ways(found, held)
    return Exit.DONE if any(one.time_ns is not None for one in found) else Exit.UNKNOWN


def _of_run(source: Run, statistic: str) -> tuple[CurvesOfRun, list[str], int, Ends | None]:
    """A run's curves, the transports that it has, its number of ranks, and its curves' intervals. UsageError where it
    has none of messages or collectives."""
    from linkgauge.expect.curves import CurvesOfRun
    from linkgauge.expect.mechanism import known_transports
    from linkgauge.expect.sureness import Ends
    from linkgauge.view.results import Results

    rows = Results(source).rows
    known = known_transports(rows)
    if not known:
        raise UsageError(
            f"{source.path}: no pingpong and no collective: expected curves, as of 'linkgauge run --plan applications'"
        )
    return CurvesOfRun(rows, statistic), known, max(row.ranks for row in rows), Ends(rows)


def _of_system(name: str, latency_ns: Mapping[str, float], between_nodes: bool) -> tuple[Curves, list[str], int]:
    """What a system's links allow, by MPI directly and by way of the host, and how many devices a node has."""
    from linkgauge.expect.curves import CurvesOfSystem
    from linkgauge.system import catalog

    described = catalog.load(name)
    most = 2 if between_nodes else len(described.devices)
    return CurvesOfSystem(described, latency_ns, between_nodes), ["mpi", "staging"], most


def _shown_of_system(name: str) -> dict[str, str]:
    """What screens call the transports of a described system, by the links between its GPUs."""
    from linkgauge.model.transports import shown_names
    from linkgauge.system import catalog

    runtimes = {"nvlink": "cuda", "xgmi": "hip"}
    return shown_names({runtimes[link.kind] for link in catalog.load(name).links if link.kind in runtimes})


def _cluster(name: str, routing: str, placement: str, *, one_a_node: bool) -> Cluster:
    from linkgauge.expect.cluster import Cluster
    from linkgauge.simulate import of_system, parse_placement, parse_rules
    from linkgauge.system import catalog

    fabric = of_system(catalog.load(name))
    rules = parse_rules(routing, fabric)
    if len(rules) != 1:
        raise UsageError(f"--routing '{routing}': {len(rules)} rules: expected one")
    return Cluster(fabric, rules[0], parse_placement(placement), 1 if one_a_node else 0)


def _by_kind(
    flag_name: str, words: Sequence[str], read: Callable[[str], float], more: tuple[str, ...]
) -> dict[str, float]:
    """KIND=VALUE of an option that may be repeated."""
    from linkgauge.expect.curves import MOVING

    found = {}
    for word in words:
        kind, equals, text = word.partition("=")
        if not equals or kind not in (*MOVING, *more):
            raise UsageError(f"{flag_name} '{word}': expected KIND=VALUE, of {', '.join((*MOVING, *more))}")
        found[kind] = read(text)
    return found


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1e-6 <= factor <= 1e6:
        raise UsageError(f"--faster: '{text}': expected a factor of 1e-6 to 1e6, as 2")
    return factor
