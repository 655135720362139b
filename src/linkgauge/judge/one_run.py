"""One run against one other run, by what healthy runs of one machine were seen to differ by.

Five runs make a baseline, whose own spread is the threshold (judge/baseline.py). One run has no spread between runs:
its threshold is what was stored of others.
"""

from __future__ import annotations

import math

from linkgauge.errors import UsageError
from linkgauge.findings.measure import Measure
from linkgauge.findings.naming import case_words
from linkgauge.judge.baseline import figures_at, match_devices
from linkgauge.judge.left_out import left_out_keys
from linkgauge.judge.siblings import CORES_SLOWER
from linkgauge.judge.subjects import Subject
from linkgauge.judge.verdicts import Verdict
from linkgauge.model.patterns import COLLECTIVES, HOST_COPIES, MEMORY, PAIRS, group_of
from linkgauge.model.quantity import change, percent

LEAST_SIZE = 32 << 20
"""In bytes. Below it launches' latencies differ by more than links do."""

# The most that a median changed between two of seven runs of H200 (tests/findings/corpus), in logarithms, and half as
# much again: such runs come from two machines alone. tests/findings/test_one_run.py measures it again.
SPREADS = {PAIRS: 0.04, COLLECTIVES: 0.07, MEMORY: 0.06, HOST_COPIES: 0.3, "": 0.06}
SPREADS_BY = {("kernel", COLLECTIVES): 0.73, ("staging", PAIRS): 0.4, ("staging", COLLECTIVES): 0.57,
              ("staging", ""): 0.16}  # fmt: skip
"""Of collectives of our own kernels one-shot variants vary, of staging the host's memory does."""


def spread_of(measure: Measure) -> float:
    """By how much a case's time may grow from one run to another, as a logarithm, without anything being wrong."""
    group = group_of(measure.pattern, measure.devices)
    return SPREADS_BY.get((measure.transport, group), SPREADS[group])


def check_run(
    subject: Subject, other: Subject, margin: float | None = None, by_ordinal: bool = False
) -> tuple[list[Verdict], list[str], int]:
    """Judge a run against another one, from LEAST_SIZE on: verdicts, notes, and how many cases no verdict is about.

    A case fails where its time grew by more than healthy runs of one machine differ by (`margin` in place of that) and
    than both medians' own intervals. What the other run measured and this one did not is unknown. UsageError for a run
    against itself, and for two that share no case.
    """
    if subject.facts.info.get("id") and subject.facts.info.get("id") == other.facts.info.get("id"):
        raise UsageError(f"{subject.name} and {other.name} are the same run (or a copy of it): expected two runs")
    entries = {(one.case_key, one.launch_key): one for one in other.facts.measures if one.size >= LEAST_SIZE}
    notes, renamed = match_devices(subject, other.facts.hosts, other.uuids, by_ordinal)
    verdicts, seen, without = [], set(), 0
    for measure in subject.facts.measures:
        key = (renamed(measure), measure.launch_key)
        if key not in entries:
            without += 1
            continue
        seen.add(key)
        verdicts.append(_verdict(subject, other, measure, entries[key], margin))
    if not seen:
        raise UsageError(
            f"{subject.name} and {other.name} share no case of 32 MiB or more: expected two runs of one plan, by the "
            f"same libraries"
        )
    left_out = left_out_keys(subject.facts.rows)
    verdicts += [
        subject.verdict("unknown", case_words(one), f"measured in {other.name} and not, or not ok, in this run",
                        other.name, case_key=key[0], devices=one.devices)
        for key, one in entries.items() if key not in seen and key[0] not in left_out
    ]  # fmt: skip
    how = "by ordinal" if by_ordinal or not (subject.uuids and other.uuids) else "by UUID on one host, else by ordinal"
    notes.append(
        f"Judged by one run, {other.name}, devices matched {how}: five runs make a baseline of its own spread."
    )
    return verdicts, notes, without


def _verdict(subject: Subject, other: Subject, mine: Measure, before: Measure, margin: float | None) -> Verdict:
    cores = subject.facts.are_cores(mine.devices)
    allowed = math.log1p(margin) if margin is not None else math.log1p(CORES_SLOWER) if cores else spread_of(mine)
    beyond = math.hypot(mine.half_width, before.half_width)
    shift = math.log(mine.time_ns / before.time_ns)
    short = shift > allowed + beyond
    slower = math.expm1(shift)
    reason = f"{change(slower, 1)} time against {other.name}; {percent(math.expm1(allowed))} more is no difference"
    required, measured, unit = figures_at(mine, before.time_ns * math.exp(allowed))
    return subject.verdict(
        "fail" if short else "pass", case_words(mine), reason, other.name, mine, measured=measured, required=required,
        unit=unit, shortfall=slower / (1 + slower) if short else 0.0,
    )  # fmt: skip
