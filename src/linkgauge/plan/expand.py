"""From tables to cases: products, all ordered pairs, device subsets and counts, sizes restated as whole blocks.

The result is a list of `PlannedCase`, each to be measured or skipped with its reason. Nothing is allocated.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from linkgauge.apps import catalog
from linkgauge.apps.in_turn import why_not_in_turn
from linkgauge.errors import UsageError
from linkgauge.model import quantity
from linkgauge.model.background import MPI, Load
from linkgauge.model.case import NAMING_DEVICES, Case
from linkgauge.model.elements import restated_size
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.stop_rule import STOP_FIELDS, StopRule
from linkgauge.model.transports import EVERY_TRANSPORT
from linkgauge.model.values import EACH_SHIFT, OTHERS, WHOLE_NODES
from linkgauge.model.worded import App
from linkgauge.plan.choice import node_counts
from linkgauge.plan.curves import FULL, Step, Until, curve_id, family
from linkgauge.plan.device_sets import device_sets
from linkgauge.plan.estimate import operation_s
from linkgauge.plan.jobs import AbsentDeviceError, swapped_roles, with_loads
from linkgauge.plan.machine import PlanMachine, rank_devices
from linkgauge.plan.memory import over_limit
from linkgauge.plan.model import CaseTable, Plan, of_kind
from linkgauge.plan.why_not import why_not_here
from linkgauge.plan.words import check_words

# Of a run in all its launches: days of measuring. With some retried, such a folder is still read in 2 GB.
MOST_CASES = 200_000
# What is not even made to be counted: a case takes a third of a millisecond, and many may be of one key.
_MOST_MADE = 1_000_000
_NOT_CASE_FIELDS = {"ranks", "background", *STOP_FIELDS}


@dataclasses.dataclass(frozen=True)
class PlannedCase:
    """A case and what becomes of it: measured in the launches of `launch` (empty: all), or skipped with `skip`.

    `step`: what it is to a curve. The size asked for of a case at a full curve is FULL, and its size a guess, until the
    curve is known.
    """

    case: Case
    launch: tuple[str, ...] = ()
    skip: str = ""
    step: Step | None = None
    fits: bool = False  # its size may shrink where a link is slow


@dataclasses.dataclass
class _Ladder:
    """A curve while a plan is expanded: its devices, and the sizes asked for, in bytes."""

    curve: str
    devices: tuple[int, ...]
    until: Until
    sizes: list[int] = dataclasses.field(default_factory=list)
    begun: bool = False  # a size of it can be measured


_Ladders = dict[str, dict[str, _Ladder]]  # by family and curve


def expand(plan: Plan, machine: PlanMachine) -> list[PlannedCase]:
    """All cases of the plan on this machine, each case_key once, in the plan's order.

    Raises UsageError for what no machine of this size can mean: a device or a number of ranks that is not there, a
    root outside of the ranks, more than MOST_CASES.
    """
    planned: dict[tuple[str, tuple[str, ...]], PlannedCase] = {}
    ladders: _Ladders = {}
    for table in plan.cases:
        if not of_kind(table, machine.kind):
            continue
        if table.until is not None:
            sizes = sorted(size for size in table.values["size"] if isinstance(size, int))
            table = dataclasses.replace(table, values={**table.values, "size": tuple(sizes)})
        names = sorted(table.values)
        count = math.prod(len(table.values[name]) for name in names)
        if count > _MOST_MADE:
            raise UsageError(f"{table.where}: stands for {count} combinations: expected at most {_MOST_MADE}")
        where, lacking = _absent_device(table, machine)
        if lacking and not plan.any_machine:
            raise UsageError(f"{where}: {lacking}")
        check_words(table)
        _check_pairs(table, machine)
        # "all transports" means those that are here; one that is named is skipped with its reason.
        everything = table.where_present or set(table.values["transport"]) == set(EVERY_TRANSPORT)
        for combination in itertools.product(*(table.values[name] for name in names)):
            if everything and combination[names.index("transport")] in machine.absent:
                continue
            for one in _cases_of(dict(zip(names, combination, strict=True)), table, plan, machine, ladders):
                planned.setdefault((one.case.case_key, one.launch), one)
                if len(planned) > MOST_CASES:
                    raise UsageError(f"plan '{plan.name}' has more than {MOST_CASES} cases: expected fewer")
    return list(planned.values())


def _absent_device(table: CaseTable, machine: PlanMachine) -> tuple[str, str]:
    """Where a table names a device that is not here, and which; empty where all are."""
    named = [(name, value) for name in NAMING_DEVICES for value in table.values.get(name, ())]
    subsets = (("devices", device) for device in itertools.chain.from_iterable(table.devices))
    for name, device in (*subsets, *named):
        if isinstance(device, int) and device >= machine.device_count:
            used = f"{machine.device_count} {machine.kind} device{' is' if machine.device_count == 1 else 's are'} used"
            return table.where_of(name), f"no device {device}: expected 0 to {machine.device_count - 1} ({used})"
    return "", ""


def _check_pairs(table: CaseTable, machine: PlanMachine) -> None:
    """UsageError where all pairs are too many: those of a thousand nodes take minutes and gigabytes to write down."""
    places = min([len(subset) * machine.nodes for subset in table.devices] or [machine.places])
    places = min([places, *(ranks for ranks in table.values.get("ranks", ()) if isinstance(ranks, int))])
    patterns = sum(PATTERNS[str(name)].ranks in ("2", "1 or 2") for name in table.values["pattern"])
    transports = sum(name not in machine.absent for name in table.values["transport"])
    others = math.prod(len(values) for name, values in table.values.items() if name not in ("pattern", "transport"))
    count = places * (places - 1) * patterns * transports * others
    if table.pairs in ("all", "ordered") and count > _MOST_MADE:
        raise UsageError(
            f"{table.where}: all pairs of {places} devices stand for {count} cases: expected at most {_MOST_MADE}; "
            "--pairs nodes, first or root has fewer"
        )


def _cases_of(
    values: dict[str, Any], table: CaseTable, plan: Plan, machine: PlanMachine, ladders: _Ladders
) -> Iterator[PlannedCase]:
    pattern = PATTERNS[values["pattern"]]
    per_device = values.get("ranks_per_device", 1)
    if values.get("ranks") == WHOLE_NODES:
        of_node = machine.device_count * per_device
        for nodes in node_counts(machine.nodes):
            yield from _cases_of({**values, "ranks": nodes * of_node}, table, plan, machine, ladders)
        return
    all_ranks = rank_devices(machine.places, per_device)
    most = min([len(subset) * per_device * machine.nodes for subset in table.devices] or [len(all_ranks)])
    ranks = _ranks_of(values.get("ranks"), most)
    _, lacking = _absent_device(table, machine)
    if ranks is not None and ranks > most:
        if any(isinstance(other, int) and other <= most for other in table.values["ranks"]):
            return  # of 1, 2, 4, 8 those that are here
        lacking = (
            f"{ranks} ranks on {machine.places} {machine.kind} devices: expected at most {len(all_ranks)}; see "
            "--ranks-per-device and --devices"
        )
        if not plan.any_machine:
            raise UsageError(f"{table.where_of('ranks')}: {lacking}")
        ranks = None
    for devices in device_sets(pattern, table, ranks, all_ranks, machine, plan.seed):
        # Host memory is no other device's: a chase through it is each device's own.
        if pattern.ranks == "1 or 2" and len(devices) == 2 and values.get("source_memory", "device") != "device":
            continue
        for placed in _placed(values, devices, machine):
            ladder = None
            if values["size"] == FULL:
                ladder = _ladder_of(placed, devices, table, ladders, machine)
                placed = {**placed, "size": _likely_size(placed, devices, ladder, machine)}
            case, reason = _case(placed, devices, machine.device_count)
            reason = lacking or reason
            if loads := values.get("background"):
                of_load = functools.partial(_job, table=table, machine=machine)
                try:
                    case, unplaced = with_loads(case, loads, machine, of_load)
                except AbsentDeviceError as absent:
                    if not plan.any_machine:
                        raise UsageError(f"{table.where}: {absent}") from None
                    unplaced = str(absent)
                reason = reason or unplaced
            if ladder is not None:
                if ladder.curve == curve_id(case):
                    continue  # its own point at that size
                case = dataclasses.replace(case, size_requested=FULL)
            if pattern.rooted and case.root >= max(case.group_ranks, 1):
                raise UsageError(
                    f"{table.where_of('root')}: root {case.root} of {case.group_ranks} ranks: expected 0 to "
                    f"{case.group_ranks - 1}"
                )
            reason = reason or why_not_here(case, pattern, table, machine)
            no_room = over_limit(case, machine, plan.memory_limit)
            if ladder is not None:
                step: Step | None = Step(ladder.curve)
            else:
                step = _step_of(case, table.until, reason, no_room, ladders)
            if step is None or not step.no_room:
                reason = reason or no_room
            fits = table.fit_size and step is None and len(case.nodes) > 1 and not case.background
            yield PlannedCase(case, table.launch, reason, step, fits)
            if table.swap_roles and not reason:
                for other, lost in swapped_roles(case):
                    other_reason = lost or over_limit(other, machine, plan.memory_limit)
                    yield PlannedCase(other, table.launch, other_reason)


def _ranks_of(asked: object, most: int) -> int | None:
    """How many ranks are asked for; of a share of all two at least."""
    if isinstance(asked, str):
        return min(most, max(2, round(quantity.parse_percentage(asked) * most)))
    assert asked is None or isinstance(asked, int)
    return asked


def _step_of(case: Case, until: Until | None, reason: str, no_room: str, ladders: _Ladders) -> Step | None:
    """What a case is to the curves of its table; sizes come in rising order."""
    if until is None:
        return None
    curve = curve_id(case)
    ladder = ladders.setdefault(family(case), {}).setdefault(curve, _Ladder(curve, case.devices, until))
    if not reason and (ladder.begun or not no_room):
        ladder.begun = True
        ladder.sizes.append(case.size_requested)
        return Step(curve, until, no_room)
    return Step(curve, until)


def _ladder_of(
    values: dict[str, Any], devices: tuple[int, ...], table: CaseTable, ladders: _Ladders, machine: PlanMachine
) -> _Ladder:
    """The curve at whose full size a case is measured: the one on the same devices, else the first."""
    case, _ = _case({**values, "size": 1 << 30}, devices, machine.device_count)
    known = list(ladders.get(family(case), {}).values())
    if not known:
        raise UsageError(
            f"{table.where}: size 'full' of {case.transport} {case.pattern}: no table before it has its curve, with "
            f"until_gain or until_time and the same settings"
        )
    return next((one for one in known if one.devices == devices), known[0])


def _likely_size(values: dict[str, Any], devices: tuple[int, ...], ladder: _Ladder, machine: PlanMachine) -> int:
    """The size at which that curve may be full, as asked for: the guess that estimates of time and memory rest on."""
    likely = 8
    for size in ladder.sizes:
        case, _ = _case({**values, "size": size}, devices, machine.device_count)
        if size == ladder.sizes[0] or not outlasts(case, ladder.until, machine):
            likely = size
    return likely


def outlasts(case: Case, until: Until, machine: PlanMachine) -> bool:
    """Whether one operation is assumed to take longer than a curve goes on for."""
    return until.time_ns > 0 and operation_s(case, machine) * 1e9 > until.time_ns


def _placed(values: dict[str, Any], devices: tuple[int, ...], machine: PlanMachine) -> Iterator[dict[str, Any]]:
    """The values with every device and NUMA node named: `others` by turns, and all pairs of nodes of host_stream."""
    pattern = PATTERNS[values["pattern"]]
    if pattern.name == "host_stream":
        cores = [values["cpu_node"]] if "cpu_node" in values else machine.core_nodes
        stated = [values[name] for name in ("source_node", "target_node") if name in values]
        for core in cores:
            for node in stated[:1] or machine.memory_nodes:
                target = values.get("target_node", node)
                yield {**values, "cpu_node": core, "source_node": node, "target_node": target}
        return
    if pattern.distributed and values.get("distribution") == EACH_SHIFT:
        for places in _shifts(devices[: len(devices) // values.get("groups", 1)], machine):
            yield {**values, "distribution": f"shift:{places}" if places else ""}
        return
    # The devices that it names are on its first one's node.
    node = (devices[0] if devices else 0) // machine.device_count
    first = node * machine.device_count
    named = [name for name in NAMING_DEVICES if values.get(name, -1) >= 0]
    values = {**values, **{name: first + values[name] for name in named}}
    ends = [name for name in ("source_device", "target_device") if values.get(name) == OTHERS]
    if not ends:
        yield values
        return
    for other in range(first, first + machine.device_count):
        if other not in devices:
            yield {**values, **dict.fromkeys(ends, other)}


def _shifts(devices: Sequence[int], machine: PlanMachine) -> range:
    """By how many places all shifts go: by whole nodes where there are several, each with as many of the ranks.

    Of one rank 0: there is none.
    """
    nodes = Counter(device // machine.device_count for device in devices)
    alike = len(nodes) > 1 and len(set(nodes.values())) == 1
    step = len(devices) // len(nodes) if alike else 1
    return range(step, len(devices), step) or range(1)


def _case(values: dict[str, Any], devices: tuple[int, ...], per_node: int) -> tuple[Case, str]:
    pattern = PATTERNS[values["pattern"]]
    fields = {name: value for name, value in values.items() if name not in _NOT_CASE_FIELDS}
    stop = StopRule(**{of: values[name] for name, of in STOP_FIELDS.items() if name in values})
    # The host end of a host-device pattern is pinned unless the plan says otherwise.
    if pattern.host_end and f"{pattern.host_end}_memory" not in values:
        fields[f"{pattern.host_end}_memory"] = "pinned"
    if not pattern.windowed:
        fields["window"] = 1  # only windowed patterns have one; else one case would have several keys
    if not pattern.rooted:
        fields["root"] = 0
    if not pattern.distributed:
        fields.pop("distribution", None)
    if not pattern.scripted:
        fields.pop("app", None)
        fields.pop("collectives", None)
        fields.pop("copies", None)
    if pattern.name == "host_stream":
        fields["source_memory"] = fields["target_memory"] = "pageable"
    if "managed" not in (fields.get("source_memory"), fields.get("target_memory")):
        fields.pop("managed", None)  # a use of what the case has not
    if devices in ((fields.get("source_device"),), (fields.get("target_device"),)):
        for name in ("source_device", "target_device"):
            if (fields.get(name),) == devices:
                fields[name] = -1  # its own
    size_requested = 0 if pattern.size_means == "-" else values["size"]
    datatype = fields.get("datatype", "float32")
    groups = fields.get("groups", 1)
    each = len(devices) // groups if len(devices) % groups == 0 else len(devices)
    fields["size"], reason = restated_size(pattern, size_requested, each, datatype)
    if pattern.scripted:
        fields["app"] = catalog.asked(fields.get("app", App()), len(devices)).app
        reason = catalog.why_not_here(fields["app"], len(devices))
        if not reason:
            program = catalog.program(fields["app"], len(devices))  # a mistake in it is said before anything runs
            reason = why_not_in_turn(program) if fields["transport"] == "ccl" else ""
    if max(devices, default=0) >= per_node:
        fields["devices_per_node"] = per_node
    return Case(size_requested=size_requested, devices=devices, stop=stop, **fields), reason


def _job(load: Load, devices: tuple[int, ...], table: CaseTable, machine: PlanMachine) -> tuple[Case, str]:
    """The case of a load, and why it cannot be; empty where it can."""
    pattern = PATTERNS[load.values["pattern"]]
    if load.mpi:  # by processes of its own, whatever the measured launch is of
        machine = dataclasses.replace(machine, absent={k: why for k, why in machine.absent.items() if k != MPI})
    case, reason = _case(load.values, devices, machine.device_count)
    fits = "" if pattern.takes(case.group_ranks) else f"{pattern.name} is not of {case.group_ranks} ranks"
    return case, reason or fits or why_not_here(case, pattern, table, machine)
