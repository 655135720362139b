"""How long a case may take: a guess on the slow side before the run, corrected by what has been seen during it."""

from __future__ import annotations

from linkgauge.apps import catalog
from linkgauge.apps.program import amounts
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import TRANSPORTS
from linkgauge.model.transports import over_host as over_host_links
from linkgauge.plan.machine import PlanMachine

# Buffers, handles, verification set-up and the journal's fsync, whatever the size. Seen on a 2-core machine.
_FIXED_S = 0.012
_TURN_S = 0.04  # loads rest and are back at their rate, once a window of the same case alone
_TURNS = 12
LAUNCH_S = 1.2  # processes started and connected: 0.2 s (MPICH) to 1.2 s (Open MPI)


_START_S = 0.6  # that a process of this program takes to start on a core of its own, where that was not seen
# What of a run is no launch, in such starts, as seen between two nodes at loads of 14 and 17 of two cores: this program
# itself, its look at devices, its warnings, the tables at its end. A launch takes 1.5 from its start to its first case
# and from its last one to its end.
_AROUND = 3.2
_LAUNCH = 1.5
_LOOKS_S = 2.5  # at several nodes: they wait for connections, on free cores as long as on busy ones
# Estimates of cases are guesses on the slow side, so that a time limit is kept. On host devices what the cases of a
# plan took together was a half of theirs (the default plan) to once as much (--quick).
_LIKELY = {"host": 0.75}


def around_s(machine: PlanMachine) -> float:
    """Seconds of a run that are of no launch: its start, its looks at nodes, and its end."""
    return _AROUND * (machine.start_s or _START_S) + (_LOOKS_S if machine.nodes > 1 else 0.0)


def likely_launch_s(cases_s: float, machine: PlanMachine) -> float:
    """Seconds that a launch is likely to take, whose cases are assumed to take `cases_s` together."""
    return max(LAUNCH_S, _LAUNCH * machine.start_s) + _LIKELY.get(machine.kind, 1.0) * cases_s


def operation_s(case: Case, machine: PlanMachine) -> float:
    """Seconds that one operation is assumed to take, oversubscription included."""
    n = max(case.ranks, 1)
    n_group = max(case.group_ranks, 1)
    total = PATTERNS[case.pattern].bytes_total(case.size, n_group, case.window, case.distribution)
    payload = float(total) * case.groups
    least, messages = 0.0, case.window
    if PATTERNS[case.pattern].scripted:
        least, messages, payload = _of_application(case)
    share = max(1.0, n / len(case.nodes) / machine.cores) if machine.kind == "host" else 1.0
    over_host = (
        over_host_links(case.transport, case.path)
        or TRANSPORTS[case.transport].own_way
        or {case.source_memory, case.target_memory} != {"device"}
    )
    rate = machine.assumed_bytes_per_s(over_host=over_host)
    return share * (least + machine.assumed_latency_s * messages + payload / rate)


def _of_application(case: Case) -> tuple[float, int, float]:
    """Seconds of computing and steps of an iteration, of the rank with most of each, and bytes that all ranks move."""
    if catalog.why_not_here(case.app, case.ranks):
        return 0.0, 1, 0.0
    program = catalog.program(case.app, case.ranks)
    computed, steps, moved = 0.0, 1, 0.0
    for rank in range(case.ranks):
        found = amounts(program, rank)
        computed = max(computed, found["compute"].total / 1e9 if "compute" in found else 0.0)
        steps = max(steps, sum(one.count for one in found.values()))
        for name, one in found.items():
            if name != "compute":
                moved += one.total * (case.ranks if name in PATTERNS and PATTERNS[name].per_peer else 1)
    return computed, steps, moved


def samples_wanted(case: Case) -> int:
    """How many samples the stop rule is taken to need: all that `count` says; 120 where an interval decides."""
    return case.stop.samples if case.stop.rule == "count" else min(case.stop.samples, 120)


def case_s(case: Case, machine: PlanMachine, slowdown: float = 1.0) -> float:
    """Seconds that a case is assumed to take from begin to the next one's begin.

    `slowdown`: so many times as long as on free cores take all its steps, but no longer its stop rule's time.
    """
    operation = slowdown * operation_s(case, machine)
    per_sample = operation * (case.batch if case.cadence in ("streaming", "gated") else 1)
    limit = case.stop.time_ns / 1e9
    timed = limit if case.stop.rule == "duration" else min(limit, per_sample * samples_wanted(case))
    if case.background:
        timed = min(limit, 2 * timed + _TURNS * _TURN_S) + LAUNCH_S * len(case.background.own_launches)
    # A sample that has begun is finished, and warm-up is at least one sample.
    timed = max(timed, per_sample) + per_sample + operation * case.warmup
    checked = slowdown * 1.5 * case.size * max(case.ranks, 1) / machine.assumed_checked_bytes_per_s
    more = min(limit, case.checks * (operation + checked))
    return slowdown * _FIXED_S + timed + 2 * checked + more


def longest_sample_s(case: Case, machine: PlanMachine) -> float:
    """The estimated length of one sample: the watcher's patience before any sample has been seen."""
    return operation_s(case, machine) * (case.batch if case.cadence in ("streaming", "gated") else 1)
