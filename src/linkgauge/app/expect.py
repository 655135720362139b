"""`linkgauge expect`: what a system, or a run's system, allows each pattern, rule by rule."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from linkgauge.app.command_line import COMMON, argument, command
from linkgauge.app.dimension_options import some_dimensions
from linkgauge.app.limits_shown import plain, print_fits, print_limits, print_rules, print_schedules
from linkgauge.app.options import distribution_of_blocks, root_rank, switch, takes, unit_of_rates, value
from linkgauge.app.output import TABLE, form_of_output, print_data
from linkgauge.app.progress import Stages
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import UsageError
from linkgauge.expect.limit import Limit
from linkgauge.model.case import DIMENSIONS, ONLY_BY_NAME, Case
from linkgauge.model.patterns import PATTERNS, STRIPED, lanes_of
from linkgauge.model.quantity import parse_size
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.model import CaseTable
from linkgauge.plan.why_not import why_not_routed
from linkgauge.plan.words import check_words
from linkgauge.system import System, catalog
from linkgauge.system.units import rate_units, show_rate

if TYPE_CHECKING:
    from linkgauge.simulate import Answer


# Python refuses to read thousands of digits; no ordinal has ten.
_ORDINALS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_MOST_RANKS = 4096
_SIMULATED_SIZE = 1 << 30  # where none is asked for: as good as without latencies
# Of machines whose description does not say how many nodes they have; the largest ones have some ten thousands.
_MOST_NODES = 1_000_000


_SYSTEM = "Which system"


@dataclasses.dataclass(frozen=True)
class Question:
    """What is to be computed, of which system."""

    panel: ClassVar = "What to compute"

    here: bool = switch("Discover this machine.", panel=_SYSTEM)
    system_name: str = value("NAME|FILE", "System to judge a run by.", "", panel=_SYSTEM, flags="--system")
    pattern: str = value("NAMES", "Patterns, separated by commas, or all.", "all")
    devices: str = value("ORDINALS", "Devices, such as 0,1,4-7, one for each rank; all by default.", "")
    transport: str = value("NAME", "Transport; without it, the links alone.", "")
    size: str = value("SIZE", "Size, such as 64MiB; limits of memory depend on it.", "")
    distribution: str = distribution_of_blocks()
    mechanism: Mapping[str, str] = some_dimensions(
        "variant", "via", "path", "algorithm", "source_memory", "target_memory"
    )
    nodes: int = value(
        "", "Number of nodes of this kind, joined by its network.", 1, type=click.IntRange(min=1), panel=_SYSTEM
    )
    root: int = root_rank()
    rules: bool = switch("List the rules: formula, source and limits.", panel=COMMON)
    schedule: bool = switch("Show the schedule that reaches each limit: trees or paths.", panel=COMMON)
    fits: bool = switch("Show latency and rate fitted to a run's sweeps.", panel=COMMON)
    form: str = form_of_output(": rates in bytes per second", panel=COMMON)
    unit: str = unit_of_rates()

    def of_case(self) -> bool:
        """Whether it names what a run's own cases have."""
        return self.pattern != Question.pattern or any(
            (self.devices, self.transport, self.size, self.distribution, self.mechanism)
        )


@command(
    "expect",
    help="Compute what a system's links allow, by named rules.",
    epilog="Example: linkgauge expect hgx-h200-8 --pattern allreduce",
)
@argument("system", metavar="[SYSTEM|RUN]", default=None, help="Described system, a file of one, or a run folder.")
@takes(Question)
@verbosity_options("Print each stage.")
def expect_command(asked: Question, system: str | None) -> None:
    """Print the limits of patterns on a system: rule, kind, value, and what each rests on."""
    if asked.unit not in rate_units():
        raise UsageError(f"unknown unit {asked.unit!r}: expected one of {', '.join(rate_units())}")
    if asked.rules:
        print_rules()
        return
    if (system is not None) == asked.here:
        raise UsageError("name a system, a run folder, or --here (linkgauge topology lists the described ones)")
    simulated: dict[str, list[Answer]] = {}
    # Not Path.is_file, which raises for a name that is too long to be one.
    shown: Mapping[str, str] = {}
    noun = "GPU"
    is_run = system is not None and os.path.isfile(os.path.join(system, "run.json"))
    if asked.fits:
        if not is_run:
            raise UsageError("--fits needs a run folder: parameters are fitted to what was measured")
        print_fits(Path(str(system)), form=asked.form, unit=asked.unit)
        return
    if system is not None and is_run:
        if asked.of_case() or asked.schedule:
            raise UsageError(
                "a run has its own cases: leave out --pattern, --devices, --schedule and others of a case, or name a "
                "system in place of the run; --here is this machine"
            )
        with Stages("expect") as stages:
            groups, notes, shown, noun = _of_run(Path(system), asked.system_name, stages)
    else:
        if asked.system_name:
            raise UsageError("--system goes with a run; name the system itself instead")
        described = _system(system)
        _check_nodes(described, asked.nodes)
        asked, shown = _own_name(asked)
        cases = _cases(described, asked)
        if asked.schedule:
            print_schedules(described, cases, form=asked.form, unit=asked.unit)
            return
        from linkgauge.expect import limits

        groups, notes = [], []
        with Stages("expect") as stages:
            stages.stage("computing limits", len(cases), "cases")
            for case in cases:
                groups.append((case, limits(described, case)))
                stages.advance()
        if asked.nodes > 1:
            cases_simulated = {case["pattern"]: _simulated(described, case) for case in cases}
            simulated = {name: found for name, found in cases_simulated.items() if found}
    if asked.form != TABLE:
        rows = [plain(case, found) for case, found in groups]
        for (case, _), row in zip(groups, rows, strict=True):
            if case["pattern"] in simulated:
                row["simulated"] = [one.plain() for one in simulated[case["pattern"]]]
        print_data(rows, asked.form, rows=_flat_rows(rows))
        return
    from linkgauge.app.inert import InertConsole

    console = InertConsole()
    for alike in [[group] for group in groups] if is_run else _alike(groups):
        case, found = alike[0]
        print_limits(console, case, found, asked.unit, shown, noun, [other["devices"] for other, _ in alike[1:]])
        for one in simulated.get(case["pattern"], []):
            value = show_rate(one.goodput, asked.unit)
            console.print(f"  simulated, {one.rule}: {value}, nodes packed; fullest: {one.bindings[0].where}")
    for note in notes:
        console.print(note)


def _alike(groups: Sequence[tuple[dict[str, Any], list[Limit]]]) -> list[list[tuple[dict[str, Any], list[Limit]]]]:
    """Cases that differ by their devices alone and have the same limits, together."""
    from linkgauge.model.grouped import grouped

    def key(case: Mapping[str, Any], found: Sequence[Limit]) -> str:
        # Another maximum of the same flow may differ in its last digits.
        rates = [(one.rule, f"{one.value_bytes_per_s or 0:.6g}", one.latency_ns) for one in found]
        return repr((sorted((name, value) for name, value in case.items() if name != "devices"), len(case["devices"]),
                     rates))  # fmt: skip

    return list(grouped((key(*group), group) for group in groups).values())


def _own_name(asked: Question) -> tuple[Question, dict[str, str]]:
    """The question with the transport's own name, and what the user calls it. UsageError for none, or several."""
    if not asked.transport:
        return asked, {}
    named = DIMENSIONS["transport"].from_text(asked.transport)
    if len(named) != 1:
        raise UsageError(f"--transport {asked.transport}: expected one transport")
    return dataclasses.replace(asked, transport=str(named[0])), {str(named[0]): asked.transport.strip()}


def _simulated(system: System, case: Mapping[str, Any]) -> list[Answer]:
    """What each routing rule gives a collective of whole nodes, packed; nothing where the network is not described."""
    from linkgauge.simulate import Placement, Request, answers, laid_out, of_system, parse_rules

    whole = len(case["devices"]) == len(system.devices) and len(set(case["devices"])) == len(system.devices)
    if case["pattern"] not in ("alltoall", "allreduce", "allgather", "reduce_scatter") or not whole:
        return []
    try:
        fabric = of_system(system)
        if fabric.kind == "endpoints":  # ports alone: the rules above say as much
            return []
        layout = laid_out(fabric, case["nodes"] * fabric.gpus, Placement())
        request = Request(case["pattern"], case.get("size") or _SIMULATED_SIZE)
        return answers(layout, request, parse_rules("", fabric))
    except UsageError:
        return []


def _system(name: str | None) -> System:
    if name is None:
        from linkgauge.system import discover

        return discover()
    return catalog.load(name)


def ordinals(text: str, count: int) -> tuple[int, ...] | None:
    """Return the ordinals of a list such as `0,1,4-7`; None for an empty one. `UsageError` names a wrong part.

    A range's ends are looked at before it is expanded.
    """
    if not text:
        return None
    result: list[int] = []
    for part in text.split(","):
        match = _ORDINALS.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"--devices: {part!r} is no ordinal or range; write them as 0,1,4-7")
        first, last = int(match[1]), int(match[2] or match[1])
        for ordinal in (first, last):
            if ordinal >= count:
                raise UsageError(f"--devices: there is no device {ordinal}: expected ordinals 0 to {count - 1}")
        if last < first:
            raise UsageError(f"--devices: {part!r} runs backwards; write the smaller ordinal first, {last}-{first}")
        result.extend(range(first, last + 1))
        if len(result) > _MOST_RANKS:
            raise UsageError(f"--devices: more than {_MOST_RANKS} ranks on a node; expected at most so many")
    return tuple(result)


def _check_nodes(system: System, nodes: int) -> None:
    """UsageError for more nodes than the system has; where nobody states how many it has, for more than any has."""
    stated = system.network.value("nodes") if system.network is not None else None
    if nodes > (stated or _MOST_NODES):
        words = f"{system.name} has {stated:.0f}" if stated else "its description states no number"
        raise UsageError(f"--nodes {nodes}: {words}: expected 1 to {stated or _MOST_NODES:.0f}")


def _cases(system: System, asked: Question) -> list[dict[str, Any]]:
    """Return the cases that are asked for; pairs that nobody names are the first device with each other."""
    named = ordinals(asked.devices, len(system.devices))
    (distribution, *_) = DIMENSIONS["distribution"].from_text(asked.distribution or "default")
    base: dict[str, Any] = {"transport": asked.transport or None, "nodes": asked.nodes, "root": asked.root,
                            "distribution": distribution, **_mechanism(asked)}  # fmt: skip
    if base.get("via", -1) >= len(system.devices):
        raise UsageError(f"--via: no device {base['via']}: expected 0 to {len(system.devices) - 1}")
    routed = base.get("via", -1) >= 0 or base.get("variant") == STRIPED
    usual = [
        name for name, info in PATTERNS.items()
        if name not in ONLY_BY_NAME and not (info.collective and info.latency_only)  # no figure bounds these
    ]  # fmt: skip
    if routed:
        usual = [name for name in usual if PATTERNS[name].routed]
    names = usual if asked.pattern == "all" else [name.strip() for name in asked.pattern.split(",")]
    if asked.size:
        base["size"] = parse_size(asked.size)
    if not system.devices:
        raise UsageError(f"{system.name} has no devices: nothing to exchange between")
    cases: list[dict[str, Any]] = []
    for name in names:
        info = PATTERNS.get(name)
        if info is None:
            raise UsageError(f"unknown pattern {name!r}: expected all or some of {', '.join(PATTERNS)}")
        devices = named or tuple(range(len(system.devices)))
        if info.ranks == "2" and asked.nodes == 1:
            sets = _pairs(devices, bool(named))
        elif info.ranks == "1":
            sets = [(devices[0],)]
        elif info.ranks == "1 or 2":
            sets = [(devices[0],), *_pairs(devices, bool(named))] if len(devices) > 1 else [(devices[0],)]
        else:
            sets = [devices]
        cases.extend({**base, "pattern": name, "devices": chosen} for chosen in sets)
    return _routed(cases) if routed else cases


def _mechanism(asked: Question) -> dict[str, Any]:
    """The values of the options that say how the bytes move. UsageError for more than one, or an unknown word."""
    values = {name: DIMENSIONS[name].from_text(text) for name, text in asked.mechanism.items()}
    for name, found in values.items():
        if len(found) != 1:
            raise UsageError(f"{DIMENSIONS[name].flag} {asked.mechanism[name]}: expected one value")
    named = tuple(name for name in asked.pattern.split(",") if name in PATTERNS)
    transports = (asked.transport,) if asked.transport in TRANSPORTS else tuple(TRANSPORTS)
    of = {"transport": transports, "pattern": named or tuple(PATTERNS)}
    check_words(CaseTable({**values, **of}, chosen=frozenset(values)))
    return {name: one for name, (one,) in values.items()}


def _routed(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases whose copies can go through the device that they name. UsageError where none can, with the reason."""
    reasons = {}
    for place, case in enumerate(cases):
        size = case.get("size") or 1
        asked = Case(case["transport"] or "copy_engine", case["pattern"], size, size, tuple(case["devices"]),
                     variant=case.get("variant", ""), via=case.get("via", -1))  # fmt: skip
        reasons[place] = why_not_routed(asked, PATTERNS[case["pattern"]])
    if all(reasons.values()):
        raise UsageError(next(iter(reasons.values()), "no pattern is routed"))
    return [case for place, case in enumerate(cases) if not reasons[place]]


def _pairs(devices: Sequence[int], stated: bool) -> list[tuple[int, ...]]:
    """Return the stated pair; without one, the first device with each other, since pairs need not be alike."""
    if stated and len(devices) == 2:
        return [tuple(devices)]
    return [(devices[0], other) for other in devices[1:]] or [(devices[0], devices[0])]


def _of_run(
    folder: Path, name: str, stages: Stages
) -> tuple[list[tuple[dict[str, Any], list[Limit]]], list[str], dict[str, str], str]:
    """Return the limits of each distinct case of a run on the system that it was measured on, and why some have none.

    Of a case on several nodes `over_nodes` is their number. The last are what screens
    call the run's transports and devices.

    A case that was measured carries the largest of its medians as `measured_bytes_per_s`, counted as its limits are:
    of patterns whose headline is the sum of several lanes (`bidirectional`, pairs side by side), their mean. Where only
    latency is measured it carries the least as `measured_ns`.
    """
    from linkgauge.expect.of_run import RunLimits, system_of_run
    from linkgauge.stats.attempts import counted
    from linkgauge.stats.launches import device_noun, shown_transports
    from linkgauge.store import run as store

    run = store.load(folder)
    system = catalog.load(name) if name else system_of_run(run)
    allowed = RunLimits(run, system)
    best: dict[str, float] = {}
    fastest: dict[str, float] = {}
    for summary in (one for group in counted(run).measured for one in group):
        rate = summary.goodput_bytes_per_s
        if PATTERNS[summary.pattern].latency_only and summary.latency_ns:
            key = summary.case_key
            fastest[key] = min(fastest.get(key, math.inf), summary.latency_ns)
        if rate and math.isfinite(rate):
            rate /= lanes_of(summary.pattern, summary.ranks, summary.case.groups)
            best[summary.case_key] = max(best.get(summary.case_key, 0.0), rate)
    groups = {}
    rows = run.rows()
    stages.stage("computing limits", len(rows), "cases")
    for row in rows:
        stages.advance()
        if row.case_key not in groups:
            case = row.case.dimensions()
            found, nodes = allowed.of(row), allowed.placed(row).nodes
            if nodes > 1:
                case["over_nodes"] = nodes
            if row.case_key in best:
                case["measured_bytes_per_s"] = best[row.case_key]
            if row.case_key in fastest:
                case["measured_ns"] = fastest[row.case_key]
            groups[row.case_key] = (case, found)
    order = {name: number for number, name in enumerate(PATTERNS)}

    def place(group: tuple[dict[str, Any], list[Limit]]) -> tuple[int, str, int, list[int], int]:
        case = group[0]
        return order[case["pattern"]], case["transport"], len(case["devices"]), case["devices"], case["size"]

    return sorted(groups.values(), key=place), allowed.notes, shown_transports(run.launched), device_noun(run.launched)


def _flat_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each limit of each case, as CSV has them."""
    return [{**row["case"], **one} for row in rows for one in row["limits"]]
