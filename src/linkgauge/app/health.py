"""`linkgauge health`: the shortest measurement that names a bad link, for schedulers: one line and an exit status."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from linkgauge.app.command_line import COMMON, FiniteRange, command
from linkgauge.app.options import takes, value
from linkgauge.app.output import TABLE, form_of_output, print_data
from linkgauge.app.planning import estimated_run_s
from linkgauge.app.request import NOT_OF_VERDICTS, Execution, PlanChoice, Presentation, Request
from linkgauge.app.verbosity import QUIET, USUAL, quieten, verbosity, verbosity_options
from linkgauge.errors import Exit, UsageError
from linkgauge.model.quantity import parse_duration

if TYPE_CHECKING:
    from linkgauge.judge.health import Known, Power
    from linkgauge.judge.verdicts import Verdict
    from linkgauge.store.history import History

_LEAST_BUDGET_S = 5.0
_JUDGING_S = 2.5
"""Kept of the budget for reading and judging a look, and for this program's own start."""
_FIRST_LOOK = 0.6
"""Share of the time that the first look may take; the rest is for the second, after a failure."""
_TURN = 0.5
"""Share of the budget for which another look on this machine is waited for."""
_LOOKS = "looks"
"""Folder in a history for run folders while they are measured."""
_OF_THE_NODE = ("host", "devices", "gpu_state", "links")
"""Modules of the doctor whose checks are about hardware; others are about a user's set-up."""


@dataclasses.dataclass(frozen=True)
class Health:
    """How long the look may take, what it is to find, and what it is compared with."""

    budget: str = value(
        "TIME", "End within this time; of a longer look a line says what took it.", "60s", flags="--time-limit --budget"
    )
    loss: float = value("", "Loss of rate to find, as a share.", 0.1, type=FiniteRange(0.01, 0.9))
    history: str | None = value("DATASET", "History to judge by; the run is added unless the node fails.")
    partner: str | None = value("A,B|FILE", "Nodes to measure the network with; two show whose link is slow.")
    max_size: str | None = value("SIZE", "Cap the message sizes, for example 256KiB on slow links.")
    out: Path | None = value("FOLDER", "Folder for the run folders; they are removed without it.")
    node_condition: str | None = value("NODE", "Kubernetes node whose condition LinkSlow to set, from a pod.")
    form: str = form_of_output(panel=COMMON)


@command(
    "health",
    exits=(Exit.FAIL, Exit.UNKNOWN),
    help="Check this node's paths in a minute: one line and an exit status for a scheduler.",
    epilog="Example: linkgauge health --time-limit 45s --history /shared/fleet --partner n1,n2",
)
@takes(Health)
@verbosity_options("Print each case as it ends.")
@takes(Request, of="run", without=(*NOT_OF_VERDICTS, Execution, "dimensions", "nodes", "hosts"))
def health_command(options: Health, request: Request) -> int:
    """Check this node: hardware states, and each path against its own history and its kind."""
    began = time.monotonic()
    from linkgauge.judge.health import line_of
    from linkgauge.run.parent.hosts import asked_hosts
    from linkgauge.run.parent.one_look import one_look

    budget_s = parse_duration(options.budget) / 1e9
    if budget_s < _LEAST_BUDGET_S:
        given = options.budget
        raise UsageError(f"--time-limit '{given}': expected {_LEAST_BUDGET_S:.0f}s or more: a launch takes seconds")
    if options.out is not None and options.out.exists():
        raise UsageError(f"{options.out} exists already: give --out a folder that does not")
    if (level := verbosity()) == USUAL:
        quieten()
    host = os.uname().nodename
    partners = tuple(name for name in asked_hosts(None, options.partner) if name != host) if options.partner else ()
    say = _say if level != QUIET else lambda _: None
    look = Look(options, request, host, partners, began + budget_s, say)
    with look.timed("looking at the hardware"):
        troubles = _hardware(request.machine.devices)
    waited = time.monotonic()
    with one_look(began + _TURN * budget_s, say) as alone, look.folder() as folder:
        look.spent["waiting for another look"] = time.monotonic() - waited
        power, verdicts, status = look.measured(folder, healthy=not troubles) if alone else look.not_measured()
    if status == Exit.INTERRUPTED:
        return status
    why = "no path was measured within the budget" if alone else "another look on this machine took half of the budget"
    line, verdict = line_of(
        verdicts, troubles, power.source, unmeasured="" if power.repeats else why, history=options.history is not None
    )
    if late := over_budget(time.monotonic() - began, budget_s, look.spent):
        say(late)
    if options.form == TABLE:
        click.echo(line)
    else:
        data = {"line": line, "exit_status": int(verdict), **dataclasses.asdict(power), "budget_s": budget_s,
                "took_s": round(time.monotonic() - began, 3)}  # fmt: skip
        print_data(data | {"verdicts": [one.as_json() for one in verdicts]}, options.form, rows=[data])
    if options.node_condition is not None:
        from linkgauge.app.node_condition import set_condition

        set_condition(options.node_condition, line, verdict)
    return verdict


def over_budget(took_s: float, budget_s: float, spent_s: Mapping[str, float]) -> str:
    """Say what a look took that was longer than its budget, the longest part first; empty for one that was not."""
    if took_s <= budget_s:
        return ""
    parts = sorted({**spent_s, "the rest": took_s - sum(spent_s.values())}.items(), key=lambda one: -one[1])
    words = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in parts if seconds >= 0.05 * took_s)
    return f"the look took {took_s:.1f} s, more than its {budget_s:g} s: {words}"


def _say(text: str) -> None:
    click.echo(f"linkgauge: {text}", err=True)


def _hardware(devices: str) -> list[str]:
    """What the doctor's checks of hardware find failing, a line each."""
    from linkgauge.doctor.check import FAILING, run_checks
    from linkgauge.doctor.readers import Readers
    from linkgauge.run.parent.devices import find_devices

    found = run_checks(Readers(mpi=None, mpi_problem="", ranks=max(1, find_devices(devices).count)), quick_only=True)
    return [f"{one.name.replace('_', ' ')}: {result.finding}" for one, result in found
            if result.status == FAILING and one.look.__module__.rpartition(".")[2] in _OF_THE_NODE]  # fmt: skip


def _repeats_within(limit_s: float, each_s: float) -> int:
    """Return how many repeats a time limit has room for: launches share it, and one needs time to start."""
    from linkgauge.judge.health import MOST_REPEATS
    from linkgauge.plan.launches import measuring_s

    return max(1, min(MOST_REPEATS, int(measuring_s(limit_s) / each_s)))


@dataclasses.dataclass(frozen=True)
class Look:
    """A measurement of this node until `end` of the clock, repeated where it finds something."""

    options: Health
    request: Request
    host: str
    partners: tuple[str, ...]
    end: float
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    spent: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add to what was spent on `what`, in seconds."""
        began = self.clock()
        yield
        self.spent[what] = self.spent.get(what, 0.0) + self.clock() - began

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Give the folder of the run folders. Partners must see it: it is in the history, or the current folder."""
        if self.options.out is not None:
            yield self.options.out
            return
        place = None
        if self.partners:
            place = Path()
            if (history := self._history()) is not None and history.local:
                place = Path(history.root) / _LOOKS
                place.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"linkgauge-health-{self.host}-", dir=place) as made:
            yield Path(made).resolve()

    def _history(self) -> History | None:
        """Return the history, made where there is none yet; None without --history."""
        from linkgauge.store.history import History

        return None if self.options.history is None else History.open(self.options.history, make=True)

    def measured(self, folder: Path, *, healthy: bool) -> tuple[Power, list[Verdict], int]:
        """Measure once, and again where something fails. Return what that finds, the verdicts, and how it ended.

        The run is added to the history if the node is `healthy` otherwise, and this finds nothing either.
        """
        from linkgauge.app.fleet import add_run
        from linkgauge.judge.health import confirmed, is_usual, power_for

        known = self.known()
        limit_s, each_s = self._limit_s(_FIRST_LOOK), self.repeat_s()
        power = power_for(known, self.options.loss, _repeats_within(limit_s, each_s))
        more = "" if power.loss <= self.options.loss else "; more runs in the history, or time, find less"
        self.say(f"{power.words}{more}")
        last = folder / "first"
        verdicts, status, repeats = self.once(last, power.repeats, limit_s, known)
        if status != Exit.INTERRUPTED and any(one.outcome == "fail" for one in verdicts):
            last = folder / "second"
            limit_s = self._limit_s(1.0)
            again, status, repeats = self.once(
                last, min(power.repeats, _repeats_within(limit_s, each_s)), limit_s, known
            )
            verdicts = confirmed(verdicts, again)
        power = dataclasses.replace(power_for(known, 0.0, repeats), repeats=repeats)
        usual = healthy and status != Exit.INTERRUPTED and repeats > 0 and is_usual(verdicts)
        if self.options.history is not None and usual:
            add_run(self.options.history, last, lambda _: None)
        return power, verdicts, status

    def not_measured(self) -> tuple[Power, list[Verdict], int]:
        """Return what `measured` does of a look that had no time."""
        from linkgauge.judge.health import Known, power_for

        return dataclasses.replace(power_for(Known(), 0.0), repeats=0), [], Exit.DONE

    def _limit_s(self, share: float) -> float:
        """Return the time limit of a measurement that takes this share of what is left, judging included."""
        return max(1.0, (self.end - self.clock()) * share - _JUDGING_S)

    def _request_for(self, out: Path | None, repeats: int, limit_s: float | None) -> Request:
        from linkgauge.plan.builtin import builtin_plan

        hosts = ",".join((self.host, *self.partners)) if self.partners else None
        plan = dataclasses.replace(builtin_plan("health"), repeat=repeats)
        limit, keep_going = f"{limit_s:.3f}s" if limit_s is not None else None, "nodes" if hosts else None
        return dataclasses.replace(
            self.request,
            choice=PlanChoice(made=plan, max_size=self.options.max_size),
            allocation=dataclasses.replace(self.request.allocation, hosts=hosts),
            execution=Execution(out=out, time_limit=limit, keep_going=keep_going, core_use=True),
            shown=Presentation(report=False, summary=False),
        )

    def repeat_s(self) -> float:
        """Return how long a repeat is assumed to take, its launch included, which takes longer on several nodes."""
        from linkgauge.run.parent.prepared import SHORTEST_TURN_S

        least = SHORTEST_TURN_S * (2 if self.partners else 1)
        return max(least, estimated_run_s(self._request_for(None, 1, None)))

    def once(self, out: Path, repeats: int, limit_s: float, known: Known) -> tuple[list[Verdict], int, int]:
        """Measure into a run folder within a time, and judge it: the verdicts, the run's status, and its repeats."""
        from linkgauge.app.new_run import new_run
        from linkgauge.collector import uncollected
        from linkgauge.judge.check import check
        from linkgauge.judge.health import against_history, excused, not_reached, of_this_node
        from linkgauge.judge.subjects import load_subjects

        with self.timed("measuring"):
            status = new_run(self._request_for(out, repeats, limit_s))
        if status == Exit.INTERRUPTED:
            return [], status, 0
        with self.timed("judging"), uncollected():
            (subject,) = load_subjects([out])
            found = [*check([subject], "").checked.verdicts, *against_history(subject, known, self.host, self.partners)]
            repeats = max((len(one.repeats) for one in subject.facts.undisturbed.measures), default=0)
        found = [*of_this_node(excused(found, subject), subject, self.host, self.partners)]
        return [*found, *not_reached(subject, self.partners)], status, repeats

    def known(self) -> Known:
        """What the history knows of this node and its kind; nothing without one, or while it is empty."""
        from linkgauge.judge.health import Known, known_of
        from linkgauge.run.parent.devices import find_devices

        if (history := self._history()) is None:
            return Known()
        infos = find_devices(self.request.machine.devices).infos
        return known_of(history, self.host, infos, self.partners)
