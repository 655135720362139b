"""`linkgauge run --dry-run`: what would be measured, and what a described system allows each case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.app.output import TABLE, print_data
from linkgauge.expect import limits
from linkgauge.model.case import DIMENSIONS, Case
from linkgauge.model.device_words import device_noun
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes, format_duration
from linkgauge.model.transports import shown_names
from linkgauge.plan.curves import FULL, Step, Until
from linkgauge.plan.environment import shown
from linkgauge.plan.estimate import case_s
from linkgauge.plan.launches import PlannedLaunch, likely_run_s, skips_of
from linkgauge.plan.memory import total_bytes
from linkgauge.plan.model import Plan
from linkgauge.run.parent.prepared import Prepared
from linkgauge.run.parent.reporter import case_text
from linkgauge.system import load
from linkgauge.system.units import show_rate
from linkgauge.view.units import count_text


class Expected:
    """What a system allows each case, for the dry run."""

    def __init__(self, name_or_file: str | Path) -> None:
        """Load the system."""
        self.system = load(name_or_file)

    def of(self, case: Case) -> list[Mapping[str, Any]]:
        """The limits of a case as plain tables: rule, kind, and goodput in bytes per second or latency in ns."""
        known = limits(self.system, case.dimensions())
        return [
            {
                "rule": c.rule,
                "kind": c.kind,
                **({} if c.value_bytes_per_s is None else {"value_bytes_per_s": c.value_bytes_per_s}),
                **({} if c.latency_ns is None else {"latency_ns": c.latency_ns}),
            }
            for c in known
        ]

    def text(self, case: Case) -> str:
        """The least bound and the best of what is constructive, in words; empty where no figure supports one."""
        known = self.of(case)
        times = {c["rule"]: c["latency_ns"] for c in known if "latency_ns" in c}
        if times and PATTERNS[case.pattern].latency_only:
            rule = max(times, key=lambda name: times[name])
            return f"{'at least' if rule in ('wire_time', 'cycle') else 'seen'} {times[rule]:.4g} ns ({rule})"
        found = [c for c in known if "value_bytes_per_s" in c]
        words = []
        for kind, choose, label in (
            ("upper bound", min, "at most"),
            ("achievable schedule", max, "by a known schedule"),
        ):
            rates = {c["rule"]: c["value_bytes_per_s"] for c in found if c["kind"] == kind}
            if rates:
                rule = choose(rates, key=lambda name: rates[name])
                words.append(f"{label} {show_rate(rates[rule])} ({rule})")
        return "; ".join(words)


def print_plan(plan: Plan, prepared: Prepared, *, form: str, expected: Expected | None = None) -> None:
    """What of a plan would be measured: launches, cases, what is skipped and why, estimated time and memory.

    With `expected`, what that system allows each case too.
    """
    launches, machine = prepared.launches, prepared.machine
    cases = [case for launch in launches for case in launch.cases]
    later = sum(len(launch.later) for launch in launches)
    takes_s = likely_run_s(launches, machine)
    memory = max((total_bytes(case) for case in cases), default=0)
    if form != TABLE:
        data = {
            "plan": plan.name,
            "estimated_s": round(takes_s, 3),
            "memory_bytes": memory,
            "left_out": later,
            "absent_transports": dict(machine.absent),
            "launches": [{
                "launch": launch.number, "repeat": launch.repeat, "mpi": launch.settings.mpi,
                "env": shown(launch.settings.env), "derived_env": shown(launch.settings.derived_env),
                "ranks": launch.settings.ranks, "threads": launch.settings.threads,
                "cases": [{"case_key": case.case_key, "estimated_s": round(case_s(case, machine), 4),
                           "memory_bytes": total_bytes(case), **case.dimensions(),
                           **_step_json(launch.steps.get(case.case_key)),
                           **({} if expected is None else {"expected": expected.of(case)})} for case in launch.cases],
                "skipped": [{"case_key": case.case_key, "reason": reason, **case.dimensions()}
                            for case, reason in launch.skipped],
            } for launch in launches],
        }  # fmt: skip
        print_data(data, form, rows=_case_rows(data["launches"]))
        return
    called, noun = shown_names({machine.kind}), device_noun({machine.kind})
    for launch in launches:
        settings = launch.settings
        words = ["threads" if settings.threads else settings.mpi, f"{settings.ranks} ranks"]
        words += [f"{name}={value}" for name, value in shown((*settings.env, *settings.derived_env)).items()]
        words += [f"{name}={value} on {','.join(map(str, devices))}" for devices, env in settings.job_env
                  for name, value in env]  # fmt: skip
        print(
            f"launch {launch.number} (repeat {launch.repeat}): {', '.join(words)}: "
            f"{count_text(len(launch.cases), 'case')}"
        )
        curves = curve_lines(launch)
        apart = _apart(launch.cases, lambda case: case_text(case, called, noun))
        for case in launch.cases:
            step = launch.steps.get(case.case_key)
            if step is not None and step.until is not None and step.curve in curves:
                print(f"  {curves.pop(step.curve)}")
            stated = case.size_requested in (case.size, FULL)
            restated = "" if stated else f" (restated as {format_bytes(case.size)})"
            print(f"  {case.case_key}  {case_text(case, called, noun)}{restated}{apart.get(case.case_key, '')}")
            if expected is not None and (allowed := expected.text(case)):
                print(f"      {allowed}")
    for reason, count in skips_of(launches).items():
        print(f"skipped: {count_text(count, 'case')}: {reason}")
    named = {transport for table in plan.cases for transport in table.values["transport"]}
    for transport, reason in machine.absent.items():
        if transport in named:
            print(f"absent: {called.get(transport, transport)}: {reason}")
    if later:
        print(f"beyond the time limit, by these estimates: {later} more cases, measured as far as time is left")
    started = f"{len(launches)} launch{'es' if len(launches) != 1 else ''}"
    print(
        f"in all: {count_text(len(cases), 'case')} in {started}, about "
        f"{format_duration(takes_s * 1e9)}, at most {format_bytes(memory)} of memory at once"
    )


def _apart(cases: Sequence[Case], text: Callable[[Case], str]) -> dict[str, str]:
    """By case key, of cases whose words are the same, the dimensions that they differ in: ` (window=64)`."""
    found = {}
    for same in (alike for alike in grouped((text(case), case) for case in cases).values() if len(alike) > 1):
        each = [case.dimensions() for case in same]
        names = [name for name in each[0] if any(one[name] != each[0][name] for one in each)]
        for case, own in zip(same, each, strict=True):
            found[case.case_key] = f" ({', '.join(f'{name}={_word(name, own[name])}' for name in names)})"
    return found


def _word(name: str, value: object) -> object:
    """A dimension's value as a flag takes it: `plain` for the empty one of --buffer."""
    if value != "":
        return value
    choices = DIMENSIONS[name].values.choices if name in DIMENSIONS else ()
    return next((word for word in choices if DIMENSIONS[name].from_text(word) == ("",)), "default")


def _case_rows(launches: Any) -> list[dict[str, Any]]:
    """A row for each case, as CSV has them, with its launch and why it is skipped."""
    return [{"launch": launch["launch"], "reason": "", **case}
            for launch in launches for case in (*launch["cases"], *launch["skipped"])]  # fmt: skip


def curve_lines(launch: PlannedLaunch) -> dict[str, str]:
    """A line for each curve of a launch: its sizes, and how it ends."""
    sizes: dict[str, list[int]] = {}
    until: dict[str, str] = {}
    for case in launch.cases:
        step = launch.steps.get(case.case_key)
        if step is not None and step.until is not None:
            sizes.setdefault(step.curve, []).append(case.size_requested)
            until[step.curve] = until_text(step.until)
    return {
        curve: f"curve of {len(sizes[curve])} sizes, {format_bytes(min(sizes[curve]))} to "
        f"{format_bytes(max(sizes[curve]))}, until {words}:"
        for curve, words in until.items()
    }


def _step_json(step: Step | None) -> dict[str, Any]:
    if step is None:
        return {}
    if step.until is None:
        return {"at_full": step.curve}
    return {"curve": step.curve, "until_gain": step.until.gain, "until_time_ns": step.until.time_ns}


def until_text(until: Until) -> str:
    """How a curve ends, in words."""
    words = [f"goodput rises by less than {until.gain * 100:.3g}%"] if until.gain else []
    if until.time_ns:
        words.append(f"an operation would take more than {format_duration(until.time_ns)}")
    return " or ".join(words)
