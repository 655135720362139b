"""Rules about curves over size: falls, steps, choices that lose, crossing points, small-message overhead."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterable

import numpy as np
import scipy

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding, Severity
from linkgauge.findings.measure import LEAST_EFFECTIVE, Measure, Settings, keys, median, rate_text
from linkgauge.findings.rule import rule
from linkgauge.model.device_words import device_words
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.quantity import percent
from linkgauge.model.transports import TRANSPORTS, over_host
from linkgauge.stats.basics import Floats

_LONE_FALL = 0.25
"""What one case alone must fall by: from launch to launch a case may differ by what its intervals do not hold.

Alltoalls by kernels of 256 MiB on four H200 differed by 14 %.
"""
_STEP_SIDE = 4  # sizes on either side of a step
_STEP_APART = 8  # times the size before at most
_STEP_OUT = 4.0  # deviations, of what scatter and intervals explain
_LEAST_SCATTER = 0.01


def _apart(fast: Measure, slow: Measure, least: float) -> bool:
    """Whether one time is above another by at least `least` even at the near ends of both intervals."""
    return slow.time_ns * (1 - slow.half_width) > fast.time_ns * (1 + fast.half_width) * (1 + least)


def _attains(low: Measure, top: Measure) -> bool:
    """Whether some sample of a case reaches another's goodput: then its size can, and its median was disturbed."""
    return (low.goodput or 0.0) * low.time_ns >= (top.goodput or 0.0) * low.fastest_ns


def _better(facts: Facts, top: Measure, low: Measure) -> Measure | None:
    """Return what does the task of a falling collective of this program's own at more than its peak, None otherwise.

    These collectives are plain algorithms to compare libraries with; how they fall says nothing of the machine then.
    """
    if TRANSPORTS[low.transport].collects(low.case.variant) or not PATTERNS[low.pattern].collective:
        return None
    alike = [
        m
        for m in facts.measures
        if m.transport != low.transport and (m.task, m.devices, m.size) == (low.task, low.devices, low.size)
    ]
    best = max(alike, key=lambda m: m.goodput or 0.0, default=None)
    return best if best is not None and (best.goodput or 0.0) > (top.goodput or 0.0) else None


@rule("goodput that falls or dips as size grows")
def falling_goodput(facts: Facts) -> Iterable[Finding]:
    """Goodput that is lower at a larger size."""
    for sweep in facts.sweeps:
        peak: Measure | None = None
        worst: tuple[float, Measure, Measure] | None = None
        below: dict[int, int] = {}  # by the size of a peak, how many larger sizes lie well below it
        for measure in sweep:
            if measure.goodput is None:
                break
            if measure.effective < LEAST_EFFECTIVE:
                continue
            if peak is not None and peak.goodput is not None and measure.goodput < peak.goodput:
                noise = measure.half_width + peak.half_width
                fall = 1 - measure.goodput / peak.goodput
                if fall >= 0.1 + noise:
                    below[peak.size] = below.get(peak.size, 0) + 1
                    if worst is None or fall > worst[0]:
                        worst = (fall, peak, measure)
            if peak is None or measure.goodput > (peak.goodput or 0.0):
                peak = measure
        if worst is None:
            continue
        fall, top, low = worst
        if below[top.size] < 2 and (fall < _LONE_FALL or _attains(low, top)):
            continue
        last = sweep[-1]
        dip = last.size > low.size and (last.goodput or 0.0) > 0.95 * (top.goodput or 0.0)
        words = f"dips at {size_text(low.size)}" if dip else f"falls beyond {size_text(top.size)}"
        # Copies by cores, and those through host memory, leave the cores' caches there, which no setting changes.
        cached = facts.are_cores(top.devices) or over_host(top.transport, top.case.path)
        severity: Severity = "note" if not dip and cached else "loss"
        sentence = (
            f"Goodput of {top.label} on {_devices(top)} {words}: {rate_text(low.goodput)} after "
            f"{rate_text(top.goodput)} ({percent(fall)} less)."
        )
        better = _better(facts, top, low)
        if better is not None:
            severity = "note"
            sentence += f" {better.label} reaches {rate_text(better.goodput)} there."
        lasting = [] if dip else [Evidence(f"{size_text(last.size)}: {rate_text(last.goodput)}", (last.case_key,))]
        yield Finding(
            "falling_goodput",
            severity,
            f"{top.label} on {_devices(top)}",
            sentence,
            (
                Evidence(f"peak at {size_text(top.size)}: {rate_text(top.goodput)}", (top.case_key,)),
                Evidence(f"{size_text(low.size)}: {rate_text(low.goodput)}", (low.case_key,)),
                *(lasting if last is not low else ()),
            ),
            0.9,
            "Send in pieces of the size of the peak, or change the library's threshold or chunk size at that size; "
            "beyond a cache's size the peak may be the cache's and not the link's.",
            fall,
        )


@rule("jumps of time between two sizes: a switch of protocol")
def latency_step(facts: Facts) -> Iterable[Finding]:
    """Times that jump from one size to the next by more than the bytes explain: a switch of protocol.

    A jump is between a line through the sizes below and one through the sizes above (`_STEP_SIDE` each, none more than
    `_STEP_APART` times the one before), and must stand out from what the curves of the same transport scatter by.
    Without a library nothing chooses protocols, so that a jump there is a note.
    """
    sweeps = [sweep for sweep in facts.sweeps if len(sweep) >= 2 * _STEP_SIDE]
    lines = [(sweep, _lines_at(sweep)) for sweep in sweeps]
    scatter: dict[str, list[float]] = {}
    for sweep, places in lines:
        scatter.setdefault(str(sweep[0].transport), []).extend(place.scatter for place in places)
    for sweep, places in lines:
        usual = median(scatter[str(sweep[0].transport)]) if places else 0.0
        for place in places:
            before, after = sweep[place.index], sweep[place.index + 1]
            noise = math.hypot(
                max(place.scatter, usual, _LEAST_SCATTER) * after.time_ns,
                before.half_width / 1.96 * before.time_ns,
                after.half_width / 1.96 * after.time_ns,
            )
            if place.jump > 0.25 * before.time_ns + noise and place.jump > _STEP_OUT * noise:
                yield _step(before, after, after.time_ns - place.jump, place.jump, place.jump / noise)


@dataclasses.dataclass(frozen=True)
class _Place:
    """A possible step after `index`: its `jump` in ns, and how far measures lie from the two lines, as a share."""

    index: int
    jump: float
    scatter: float


def _lines_at(sweep: list[Measure]) -> list[_Place]:
    """Return what may be a step between two sizes, for each place with sizes enough on either side."""
    size = np.array([m.size for m in sweep], dtype=np.float64)
    time = np.array([m.time_ns for m in sweep])
    near = size[1:] <= _STEP_APART * np.maximum(size[:-1], 1.0)
    found = []
    for index in range(_STEP_SIDE - 1, len(sweep) - _STEP_SIDE):
        first, last = index - _STEP_SIDE + 1, index + _STEP_SIDE
        if not near[first:last].all():
            continue
        low, high = slice(first, index + 1), slice(index + 1, last + 1)
        below, above = _line(size[low], time[low]), _line(size[high], time[high])
        rest = [*(below(size[low]) / time[low] - 1), *(above(size[high]) / time[high] - 1)]
        scatter = float(np.sqrt(np.square(rest).sum() / (len(rest) - 4)))
        at, then = size[index], size[index + 1]
        # Of what the bytes between the two sizes take, the steeper line says how much; of the jump, both must say it.
        rise = max(below(then) - below(at), above(then) - above(at))
        jump = min(time[index + 1] - time[index] - 1.1 * rise, above(at) - below(at), above(then) - below(then))
        found.append(_Place(index, float(jump), scatter))
    return found


def _line(size: Floats, time: Floats) -> Callable[[Floats], Floats]:
    """Fit time = start + size / rate with neither below 0, by the least squares of relative errors."""
    weighted = np.stack([1 / time, size / time], axis=1)
    scale = weighted.max(axis=0)
    start, slope = scipy.optimize.nnls(weighted / scale, np.ones(size.size))[0] / scale
    return lambda at: start + slope * at


def _step(before: Measure, after: Measure, expected: float, jump: float, stands_out: float) -> Finding:
    chooses = TRANSPORTS[after.transport].library
    return Finding(
        "latency_step",
        "loss" if chooses else "note",
        f"{after.label} on {_devices(after)} at {size_text(after.size)}",
        f"{after.label} on {_devices(after)} steps up by {time_text(jump)} between {size_text(before.size)} and "
        f"{size_text(after.size)}, beyond what the bytes explain ({time_text(after.time_ns)} where "
        f"{time_text(expected)} was to be expected){': a switch of protocol' if chooses else ''}.",
        (
            Evidence(f"{size_text(before.size)}: {time_text(before.time_ns)}", (before.case_key,)),
            Evidence(f"{size_text(after.size)}: {time_text(after.time_ns)}", (after.case_key,)),
        ),
        0.97 * (1 - math.exp(-stands_out / 5)),
        "Move the threshold to where the protocols are equal (UCX_RNDV_THRESH, MPICH_GPU_IPC_THRESHOLD, NCCL_PROTO, "
        "eager limits), and measure both sides."
        if chooses
        else "No library chooses a protocol here: measure both sizes again. A step that stays is the mechanism's own.",
        jump / after.time_ns,
    )


@rule("sizes at which a library's own choice loses to another algorithm")
def library_choice(facts: Facts) -> Iterable[Finding]:
    """Sizes at which what a library chooses by itself loses to another algorithm that was asked for."""
    groups = facts.grouped(
        lambda m: (m.without("algorithm", "launch_key"), m.devices, m.size) if TRANSPORTS[m.transport].library else None
    )
    losses: dict[Settings, list[tuple[Measure, Measure]]] = {}
    for (settings, devices, _), group in groups.items():
        default = [m for m in group if not m.case.algorithm]
        asked = [m for m in group if m.case.algorithm]
        if not default or not asked:
            continue
        best = min(asked, key=lambda m: m.time_ns)
        own = min(default, key=lambda m: m.time_ns)
        if _apart(best, own, 0.05):
            losses.setdefault((settings, devices), []).append((own, best))
    for items in losses.values():
        items.sort(key=lambda pair: pair[0].size)
        own, best = max(items, key=lambda pair: pair[0].time_ns / pair[1].time_ns)
        effect = 1 - best.time_ns / own.time_ns
        sizes = ", ".join(size_text(a.size) for a, _ in items)
        yield Finding(
            "library_choice",
            "loss",
            f"{facts.shown(own.transport)} {own.pattern} on {_devices(own)}",
            f"{own.label} on {_devices(own)} chooses badly at {sizes}: {best.case.algorithm} takes "
            f"{time_text(best.time_ns)} where its own choice takes {time_text(own.time_ns)} at {size_text(own.size)}.",
            tuple(Evidence(f"{size_text(a.size)}: own {time_text(a.time_ns)}, "
                           f"{b.case.algorithm} {time_text(b.time_ns)}", keys((a, b))) for a, b in items),
            0.9,
            f"Ask for {best.case.algorithm} at these sizes (NCCL_ALGO, the MPI library's collective selection), or "
            f"raise it with the library's makers.",
            effect,
        )  # fmt: skip


@rule("sizes at which one transport overtakes another")
def crossing_points(facts: Facts) -> Iterable[Finding]:
    """Sizes at which one transport overtakes another, with the interval that the medians' own intervals allow."""
    groups: dict[tuple[Hashable, ...], dict[str, list[Measure]]] = {}
    for sweep in facts.sweeps:
        one = sweep[0]
        if one.case.path or one.case.algorithm or _set_apart(one):
            continue
        groups.setdefault((one.task, one.devices), {}).setdefault(facts.mechanism(one), []).extend(sweep)
    for transports in groups.values():
        names = sorted(transports)
        crossings = (_crossing(transports[a], transports[b], a, b) for a, b in itertools.combinations(names, 2))
        found = [crossing for crossing in crossings if crossing]
        if not found:
            continue
        first = transports[names[0]][0]
        where = f"{first.pattern} on {_devices(first)}"
        yield Finding(
            "crossing_points",
            "note",
            where,
            f"{where}: {'; '.join(text for text, _ in found)}.",
            tuple(Evidence(text, k) for text, k in found),
            0.9,
            "Choose by size: 'linkgauge advise' prints ranges and settings.",
        )


def _crossing(first: list[Measure], second: list[Measure], a: str, b: str) -> tuple[str, tuple[str, ...]] | None:
    theirs = {m.size: m for m in second}
    both = [(m, theirs[m.size]) for m in sorted(first, key=lambda m: m.size) if m.size in theirs]
    ratios = [math.log(x.time_ns / y.time_ns) for x, y in both]
    widths = [x.half_width + y.half_width for x, y in both]
    changes = [i for i in range(len(both) - 1) if ratios[i] * ratios[i + 1] < 0]
    sure = [i for i in range(len(both)) if abs(ratios[i]) > widths[i]]
    clear = [i for i in changes if any(j <= i for j in sure) and any(j > i for j in sure)]
    if len(clear) != 1:
        return None  # none, or so close that they cross again and again
    i = clear[0]
    low = max(j for j in sure if j <= i)
    high = min(j for j in sure if j > i)
    if ratios[low] * ratios[high] > 0:
        return None
    x, y = (math.log(max(1, both[k][0].size)) for k in (i, i + 1))
    at = math.exp(x + (y - x) * ratios[i] / (ratios[i] - ratios[i + 1]))
    ahead = b if ratios[high] > 0 else a
    behind = a if ahead == b else b
    between = f"between {size_text(both[low][0].size)} and {size_text(both[high][0].size)}"
    text = f"{ahead} overtakes {behind} near {size_text(round(at))} ({between})"
    return text, keys((*both[low], *both[high]))


@rule("what the smallest message costs by each transport")
def small_message_overhead(facts: Facts) -> Iterable[Finding]:
    """What the smallest message costs by each transport, beside the fastest."""
    groups: dict[tuple[Hashable, ...], dict[str, Measure]] = {}
    for sweep in facts.sweeps:
        one = sweep[0]
        if one.size > 1024 or one.case.path or one.case.algorithm or _set_apart(one):
            continue
        groups.setdefault((one.task, one.devices, one.size), {})[facts.mechanism(one)] = one
    for transports in groups.values():
        if len(transports) < 2:
            continue
        order = sorted(transports.items(), key=lambda item: item[1].time_ns)
        first = order[0][1]
        best = first.time_ns
        share = PATTERNS[first.pattern].latency_share
        texts = [f"{name} {time_text(m.time_ns * share)}" for name, m in order]
        texts = [text + (f" ({_times(m.time_ns / best)})" if m is not first else "")
                 for text, (_, m) in zip(texts, order, strict=True)]  # fmt: skip
        where = f"{first.pattern} of {size_text(first.size)} on {_devices(first)}"
        yield Finding(
            "small_message_overhead",
            "note",
            where,
            f"{where}: {', '.join(texts)}.",
            tuple(Evidence(text, (m.case_key,)) for text, (_, m) in zip(texts, order, strict=True)),
            0.9,
            "Gather small messages, or use the transport that is first here for them.",
        )


def _set_apart(measure: Measure) -> bool:
    """Return whether a measure is of a set-up of its own, which is no plain use of its transport."""
    elsewhere = max(measure.case.source_device, measure.case.target_device) >= 0
    return elsewhere or measure.case.routed or bool(measure.case.managed) or measure.case.blocks > 0


def _times(ratio: float) -> str:
    return f"{ratio:.2g}x" if ratio < 100 else f"{ratio:.0f}x"


def _devices(measure: Measure) -> str:
    return device_words(measure.devices, measure.noun)
