"""Whose turn it is: the order of a run's launches, their shares of a time limit, and the pace of repeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from linkgauge.plan.estimate import LAUNCH_S, case_s
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.parent.ending import Ending
from linkgauge.run.parent.prepared import SHORTEST_TURN_S, Pending, TimeLimit


def take_turns(
    turns: Sequence[Pending],
    every_s: float,
    ending: Ending,
    run: Callable[[Pending], None],
    enough: Callable[[], bool] = lambda: False,
) -> None:
    """Launch after launch, repeats `every_s` apart, until after one of them `enough` is known."""
    due, last = time.monotonic(), turns[0].planned.repeat if turns else 0
    for one in turns:
        if one.planned.repeat != last:
            if enough():
                break
            last = one.planned.repeat
            due = max(due + every_s, time.monotonic())  # one that was late is not caught up with
            ending.rest_until(due)
        if ending.is_due():
            break
        run(one)


def use_time(
    pending: Sequence[Pending], limit: TimeLimit, machine: PlanMachine, ending: Ending, run: Callable[[Pending], None]
) -> None:
    """Launch after launch, each for its share of the time; then again those with cases left, while time is left.

    At first the shares are those of what by the estimates fits: of the most telling cases. First rounds share all of
    the time, so that one that takes longer than estimated takes it from what is less telling.
    """
    turns, first = list(pending), True
    while turns:
        before = cases_left(pending)
        for place, one in enumerate(turns):
            weights = [
                0.0 if one.planned.first > other.planned.first else _likely_s(other, machine) if first else 1.0
                for other in turns[place:]
            ]
            ending.turn_ends = limit.share(time.monotonic(), weights)
            if ending.turn_ends > 0:
                run(one)
            if ending.is_due():
                break
        first = False
        turns = [one for one in pending if one.entries]
        over = ending.is_due() or time.monotonic() + SHORTEST_TURN_S > limit.last_end
        if over or cases_left(pending) == before or len(pending) == 1:
            break
    ending.out_of_time |= cases_left(pending) > 0


def cases_left(pending: Sequence[Pending]) -> int:
    """Cases that have no status."""
    return sum(len(one.entries) + len(one.held) for one in pending)


def _likely_s(one: Pending, machine: PlanMachine) -> float:
    likely = {case.case_key for case in one.planned.cases}
    estimates = [case_s(e.case, machine) for key, e in one.entries.items() if key[0] in likely]
    return sum(estimates) + LAUNCH_S if estimates else 0.0
