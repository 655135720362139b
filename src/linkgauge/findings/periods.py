"""Delays at a steady period: across all cases of a node on its one clock, else in each case by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from linkgauge.findings.beats import Beat, beats_of, is_near_timer, is_timer, whose
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding, Severity
from linkgauge.findings.measure import Measure, keys
from linkgauge.findings.rule import rule
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.quantity import percent
from linkgauge.stats.spikes import find_spikes

_LEAST_SHARE = 0.02  # of the series that are judged one by one
_NEAR_TIMER = 0.02  # of a period that one case's samples show: they say it less exactly than the clock of all
_TIMERS_BEAT = " It is the beat of the kernel's own timer."
_LEAST_COST = 0.05  # of the time: below that the kernel's timer is nobody's fault


@rule("delays at a steady period, across cases on one clock", reads_samples=True)
def periodic_spikes(facts: Facts) -> Iterable[Finding]:
    """Delays at a steady period: a timer, a daemon, a scan. On several nodes, in each case by itself."""
    found = [_finding(facts, beat) for beat in beats_of(facts)] if len(facts.hosts) <= 1 else []
    yield from found
    if not found:
        yield from _within(facts)


def _finding(facts: Facts, beat: Beat) -> Finding:
    samples, on_beat = beat.samples, beat.on_beat
    device = whose(beat)
    whom, identity, devices = "the node", "", tuple[int, ...]()
    if device is not None:
        whom, identity, devices = facts.name_of(device), facts.identity_of(device), (device,)
        on_beat = on_beat & np.array([device in m.devices for m in samples.measures])[samples.case]
    cases = [samples.measures[i] for i in np.unique(samples.case[on_beat])]
    delay = float(np.median(samples.delay_ns[on_beat])) if on_beat.any() else 0.0
    sentence = (
        f"Every {time_text(round(1 / beat.frequency, -3))} something delays {whom}{identity} by {time_text(delay)}: "
        f"{int(on_beat.sum())} delayed samples of {len(cases)} cases lie on that beat of the node's clock."
    )
    severity: Severity = "loss"
    cost = delay * beat.frequency
    # By which a core's programs take turns too. A rank's core has it also where one device alone shows it.
    if is_timer(beat) and (facts.are_cores(devices or sorted(facts.devices)) or cost < _LEAST_COST):
        severity = "note"
        sentence += _TIMERS_BEAT
    return Finding(
        "periodic_spikes",
        severity,
        whom,
        sentence,
        (
            *(Evidence(f"{m.label} at {size_text(m.size)}", (m.case_key,)) for m in cases[:3]),
            Evidence("all of them", keys(cases)),
        ),
        0.9 + 0.09 * (1 - math.exp(-beat.agreed / 40)),
        _FIX,
        min(1.0, cost),
        devices,
    )


_FIX = (
    "Look for what runs at that period: monitoring (dcgm, nvidia-smi loops), timers and daemons on the ranks' cores, "
    "page scans."
)


def _within(facts: Facts) -> Iterable[Finding]:
    """Delays at a steady period of several cases, each by its own samples."""
    found: list[tuple[Measure, float, float, float]] = []
    tested = 0
    for measure in facts.measures:
        for series in facts.headlines(measure):
            if series.times.size < 100:
                continue
            tested += 1
            spikes = find_spikes(series.times, series.starts_ns if series.rising else None, level=0.0005)
            if spikes is not None and spikes.period is not None and series.rising:
                found.append((measure, spikes.period, spikes.share, spikes.height))
    if not found or len(found) <= 0.005 * tested:
        return
    found.sort(key=lambda item: -item[2] * item[3])
    worst = found[0]
    # What disturbs a node meets more than one case in fifty; a case alone may have a rhythm of its own.
    severity: Severity = "loss" if len(found) >= _LEAST_SHARE * tested else "note"
    sentence = (
        f"{len(found)} of {tested} series are delayed at a steady period: every {time_text(worst[1])} in "
        f"{worst[0].label} at {size_text(worst[0].size)} ({percent(worst[2], 1)} of samples, {worst[3]:.2g} times the "
        "median)."
    )
    if all(is_near_timer(1e9 / p, _NEAR_TIMER) and s * (h - 1) < _LEAST_COST for _, p, s, h in found):
        severity = "note"
        sentence += _TIMERS_BEAT
    yield Finding(
        "periodic_spikes",
        severity,
        "the run",
        sentence,
        tuple(Evidence(f"{m.label} at {size_text(m.size)}: every {time_text(p)}, {percent(s, 1)} of samples, "
                       f"{h:.2g} times the median", (m.case_key,)) for m, p, s, h in found[:12]),
        0.9,
        _FIX,
        0.05,
    )  # fmt: skip
