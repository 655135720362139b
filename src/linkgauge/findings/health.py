"""Rules about the state of the machine and of the measurement: errors, throttling, noise, drift, too few samples."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from linkgauge.findings.by_setting import told_apart, words
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import LEAST_EFFECTIVE, FailedCase, Measure, keys, median
from linkgauge.findings.rule import rule
from linkgauge.model.device_words import device_words
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import change, percent
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.result import Identity, Observation
from linkgauge.run.machine.observe import THROTTLE_BITS, VIOLATIONS
from linkgauge.run.parent.looks import KEY as LOOKS
from linkgauge.stats.compare import false_discovery_rates
from linkgauge.stats.drift import Drift, find_drift
from linkgauge.stats.modes import find_modes
from linkgauge.stats.windows import is_device
from linkgauge.system.error_counters import KEY as COUNTERS

_ERRORS = re.compile(r"(ecc|replay|crc|xid|recovery|remap|flit|symbol_err|link_down|error)", re.IGNORECASE)
_IDLE_OR_CHOSEN = 0x1 | 0x2 | 0x10 | 0x100  # NVML: idle, application clocks, sync boost, display clocks: no throttling
_LEAST_LOAD = 0.5  # of a core
_LEAST_HELD = 0.01  # of the time with clocks held down


def is_error_counter(one: Observation) -> bool:
    """Whether an observation is of a counter of errors."""
    return is_error_name(one.name, one.unit)


def is_error_name(name: str, unit: str) -> bool:
    """Whether values of this name and unit are those of a counter of errors."""
    return _ERRORS.search(name) is not None and unit not in ("Hz", "W", "C", "B")


def _risen(facts: Facts) -> Iterable[tuple[str, str, float, tuple[str, ...]]]:
    """Yield counters of errors that rose: subject, name, by how much, and the cases meanwhile."""
    for window in facts.windows:
        keys = tuple(dict.fromkeys(row.case_key for row in window.rows))
        for name, grown in window.grown.items():
            if grown > 0 and is_error_name(name, window.units[name]):
                yield window.subject, name, grown, keys
    before: dict[tuple[Identity, int, str, str], float] = {}
    for one in facts.observations:  # of cards and what else is no device: before and after a case
        key = (one.identity, one.rank, one.subject, one.name)
        if is_device(one.subject) or not is_error_counter(one) or one.value is None:
            continue
        if one.moment == "before":
            before[key] = one.value
        elif (grown := one.value - before.get(key, one.value)) > 0:
            yield one.subject, one.name, grown, (one.case_key,)


@rule("ECC, link-replay and other error counters that rose during a case", faults=True, whole=True)
def errors_rose(facts: Facts) -> Iterable[Finding]:
    """ECC, link-replay and similar counters that rose while a case ran."""
    rose = grouped(((subject, name), (grown, keys_of)) for subject, name, grown, keys_of in _risen(facts))
    links_by_number = any("NVLink" in part for once in facts.info.get(COUNTERS) or () for part in once["after"])
    for (subject, name), grown in _rose_over_the_run(facts):
        if links_by_number and name.startswith("nvlink_"):
            continue  # counters_rose names the link
        rose.setdefault((subject, name), [(grown, ())])
    for (subject, name), items in rose.items():
        total = sum(count for count, _ in items)
        known = [key for _, meant in items for key in meant]
        meanwhile = f"{len(known)} case{'s' if len(known) > 1 else ''}" if known else "the run"
        yield Finding(
            "errors_rose",
            "fault",
            facts.subject_name(subject),
            f"{facts.subject_name(subject)}: {name} rose by {total:g} during {meanwhile}.",
            (Evidence(f"{name} +{total:g}", tuple(dict.fromkeys(known))),),
            0.98,
            "Look at the link or memory that the counter belongs to (nvidia-smi nvlink -e, nvidia-smi -q -d ECC, "
            "rocm-smi --showrasinfo); a count that keeps rising under load is a part to reseat or replace.",
            0.5,
        )


def _rose_over_the_run(facts: Facts) -> Iterable[tuple[tuple[str, str], float]]:
    """Yield counters that rose from the first look outside the run to the last: those too dear to read at each case."""
    read = grouped(
        ((f"cuda:{one['device']}", name), value)
        for look in facts.info.get(LOOKS) or ()
        for one in look.get("devices", ())
        for name, value in one.get("values", {}).items()
    )
    for (subject, name), values in read.items():
        if _ERRORS.search(name) and values[-1] > values[0]:
            yield (subject, name), values[-1] - values[0]


@rule("devices that lowered their clocks for power or heat", faults=True, whole=True)
def throttled(facts: Facts) -> Iterable[Finding]:
    """Devices that lowered their clocks for power or heat while a case ran."""
    cases: dict[str, dict[str, list[str]]] = {}
    disturbed = facts.used.disturbed  # what others computed there is no fault of the device's
    for window in facts.windows:
        keys_of = [row.case_key for row in window.rows if row.identity not in disturbed]
        for name in window.grown.keys() & VIOLATIONS.keys():
            # A trace of it explains nothing.
            if keys_of and window.grown[name] > _LEAST_HELD * window.lasts_ns:
                cases.setdefault(window.subject, {}).setdefault(VIOLATIONS[name], []).extend(keys_of)
    for one in facts.observations:
        name = one.name.lower()
        throttling = "throttle" in name or "clocks_event" in name
        if one.identity in disturbed or one.moment == "before" or not throttling or one.value is None:
            continue
        value = one.value
        bits = int(value)
        reasons = [word for bit, word in THROTTLE_BITS.items() if bits & bit]
        if "reason" not in name:
            reasons = [one.name] if value > 0 else []
        elif not reasons and bits & ~_IDLE_OR_CHOSEN:
            reasons = [f"reason {bits:#x}"]
        for reason in reasons:
            cases.setdefault(one.subject, {}).setdefault(reason, []).append(one.case_key)
    for subject, by_reason in cases.items():
        words = ", ".join(f"{reason} ({len(set(k))} cases)" for reason, k in by_reason.items())
        yield Finding(
            "throttled",
            "fault",
            facts.subject_name(subject),
            f"{facts.subject_name(subject)} throttled: {words}. Figures of these cases say what it does when hot or "
            f"capped, not what it can do.",
            tuple(
                Evidence(f"{reason} in {len(set(k))} cases", tuple(dict.fromkeys(k))) for reason, k in by_reason.items()
            ),
            0.97,
            "Look at power limit, temperature and fans; lock clocks for comparisons (nvidia-smi -lgc), and measure "
            "again.",
            0.4,
            () if (device := facts.device_of(subject)) is None else (device,),
        )


_HOW_CASES_END = {"corrupt": "gave wrong data", "hung": "hung", "crashed": "crashed", "timeout": "ran out of time",
                  "disturbed": "had a load that failed beside them"}  # fmt: skip


@rule(
    "cases that failed, hung, crashed or gave wrong data, and what they share: a device or a setting",
    faults=True,
    whole=True,
)
def failed_cases(facts: Facts) -> Iterable[Finding]:
    """Cases that failed, hung, crashed or gave wrong data, and the device that they share."""
    # What was out of time was not measured (findings/not_measured.py).
    by_status = grouped((row.status, row) for row in facts.failures if not row.out_of_time)
    for status, rows in by_status.items():
        for settings, some in told_apart(facts, rows).items():
            yield _failed_alike(facts, status, some, words(settings))


def _failed_alike(facts: Facts, status: str, rows: Sequence[FailedCase], settings: str) -> Finding:
    """`settings`: under which alone these cases ended so; empty where nothing sets them apart."""
    count = Counter(device for row in rows for device in set(row.devices))
    ran = Counter(device for m in facts.measures for device in set(m.devices))
    shared = [d for d, n in count.items() if n == len(rows) and n >= 3 and len(ran) > 2 and not ran.get(d)]
    whom = f"; all of them use {facts.name_of(shared[0])}, which no case measured" if len(shared) == 1 else ""
    if settings:
        whom = f" under {settings}, and not without it"
    reasons = Counter(row.reason for row in rows)
    if settings and not any(row.launch_key for row in rows):  # its launches never began
        fix = f"Correct {settings}, or leave it out: without it the same cases are measured well."
    elif settings:
        fix = f"Do not set {settings}; tell the library's maintainers. Without it the same cases are measured well."
    elif status == "corrupt":
        fix = "Data that is wrong once is wrong: take the path out of use, look at IOMMU, ACS and driver."
    else:
        fix = "'linkgauge show RUN' lists them with their reasons; 'linkgauge doctor' looks for the usual causes."
    return Finding(
        "failed_cases",
        "fault",
        settings or status,
        f"{len(rows)} case{'s' if len(rows) != 1 else ''} {_HOW_CASES_END.get(status, 'failed')}{whom}. Most often: "
        f"{reasons.most_common(1)[0][0]}",
        tuple(
            Evidence(f"{n} times: {reason}", tuple(row.case_key for row in rows if row.reason == reason))
            for reason, n in reasons.most_common(5)
        ),
        0.99 if status == "corrupt" else 0.95,
        fix,
        1.0 if status == "corrupt" else 0.6,
        tuple(shared),
    )


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}"


@rule("spread within cases above a threshold")
def noisy(facts: Facts) -> Iterable[Finding]:
    """Spread within cases above a threshold, over the run or for one device or transport."""
    able = [m for m in facts.measures if m.samples >= 10]
    if not able:
        return
    loud = [m for m in able if m.spread > 0.2 or m.tail > 3.0]
    if len(loud) < max(3, 0.2 * len(able)):
        return
    by_transport = Counter(facts.shown(m.transport) for m in loud)
    name, count = by_transport.most_common(1)[0]
    whose = "all" if count == len(loud) else f"{count} of them"
    several = len({m.transport for m in able}) > 1
    where = f" ({whose} by {name})" if several and count > 0.7 * len(loud) else ""
    yield Finding(
        "noisy",
        "note",
        "the run",
        f"{len(loud)} of {len(able)} cases{where} are noisy: IQR above 20 % of the median, or p95 above 3 times "
        f"the median. Their median spread (IQR/median) is {percent(median(m.spread for m in loud))}.{_load(facts)}",
        tuple(Evidence(f"{_where(m)}: spread (IQR/median) {percent(m.spread)}, p95 {_times(m.tail)} times the median",
                       (m.case_key,)) for m in sorted(loud, key=lambda m: -m.spread)[:8]),
        0.9,
        "Bind ranks (--bind), keep other jobs off the node, lock clocks, sample longer; medians and their intervals "
        "already allow for it.",
        0.1,
    )  # fmt: skip


def _where(measure: Measure) -> str:
    return f"{measure.label} at {size_text(measure.size)} on {device_words(measure.devices, measure.noun)}"


def _load(facts: Facts) -> str:
    """Say how busy the host was outside the run, where it was; empty where it was not, or nobody looked."""
    hosts = [host for look in facts.info.get(LOOKS) or () if (host := look.get("host"))]
    most: dict[str, float] = max(hosts, key=lambda host: host.get("others", 0.0) + host.get("stolen", 0.0), default={})
    words = [f"{words} {most.get(name, 0.0):.2g} of its {most.get('cores', 0):g} cores"
             for name, words in (("others", "other programs used"), ("stolen", "a hypervisor took"))
             if most.get(name, 0.0) >= _LEAST_LOAD]  # fmt: skip
    said = f" Beside the run {' and '.join(words)} of the host." if words else ""
    stolen = facts.info.get("stolen_share")
    return said + (f" During the run a hypervisor took {percent(stolen)} of the cores' time." if stolen else "")


@rule("times that move while a case is measured", reads_samples=True)
def drifting(facts: Facts) -> Iterable[Finding]:
    """Cases whose times move while they are measured; the false-discovery rate is held over all cases of the run."""
    tested, drifts = 0, list[tuple[Measure, Drift]]()
    for measure in facts.measures:
        for series in facts.headlines(measure):
            if series.times.size < 40:
                continue
            tested += 1
            drift = find_drift(series.times, least_share=0.03)
            if drift is not None and min(abs(drift.low), abs(drift.high)) > 0.01:
                drifts.append((measure, drift))
    if not drifts:
        return
    p_values = [drift.p_value for _, drift in drifts] + [1.0] * (tested - len(drifts))
    kept = [d for d, q in zip(drifts, false_discovery_rates(p_values), strict=False) if q <= 0.01]
    if not kept:
        return
    kept.sort(key=lambda item: -abs(item[1].share))
    worst, drift = kept[0]
    slower = sum(d.share > 0 for _, d in kept)
    way = "slower" if slower >= len(kept) / 2 else "faster"
    share = median(abs(d.share) for _, d in kept)
    devices = Counter(d for m, _ in kept for d in set(m.devices))
    all_of = Counter(d for m in facts.measures for d in set(m.devices))
    whose = [d for d, n in devices.items() if n == len(kept) and n >= 0.5 * all_of[d] and len(all_of) > 2]
    where = f"; all use {facts.name_of(whose[0])}" if len(whose) == 1 and len(kept) > 2 else ""
    # What gets faster was not yet warm, and a few series of many say nothing of the machine.
    common = len(kept) >= 3 and (len(kept) >= 0.05 * tested or bool(where))
    yield Finding(
        "drifting",
        "loss" if way == "slower" and common else "note",
        "the run" if len(kept) > 1 else f"{worst.label} at {size_text(worst.size)}",
        f"{len(kept)} of {tested} series drift while they are measured, {way} by {percent(share)} (median){where}; "
        f"most: {worst.label} at {size_text(worst.size)}, {change(drift.share)}.",
        (*(Evidence(f"{_where(m)}: {change(d.share, 1)} ({change(d.low, 1)} to {change(d.high, 1)})", (m.case_key,))
           for m, d in kept[:12]),
         Evidence("all of them", keys(m for m, _ in kept))),
        0.95,
        "Look at temperature and clocks over time (a 'duration' stop rule shows where it settles); warm up longer, or "
        "compare only what was measured at the same heat.",
        min(1.0, share),
        tuple(whose),
    )  # fmt: skip


@rule("multimodal times", reads_samples=True)
def multimodal(facts: Facts) -> Iterable[Finding]:
    """Cases whose times lie on several levels: routes, protocols or clocks that change between samples."""
    found = []
    for measure in facts.measures:
        for series in facts.headlines(measure):
            modes = find_modes(series.times, least_gap=0.05)
            if modes is not None:
                found.append((measure, modes))
                break
    if not found:
        return
    found.sort(key=lambda item: -item[1].modes[-1].center / item[1].modes[0].center)
    measure, modes = found[0]
    levels = ", ".join(f"{time_text(m.center)} ({percent(m.share)})" for m in modes.modes)
    yield Finding(
        "multimodal",
        "note",
        "the run",
        f"{len(found)} case{'s are' if len(found) > 1 else ' is'} multimodal; most apart: "
        f"{measure.label} at {size_text(measure.size)}: {levels}"
        + (", one change: a step in time." if modes.changes == 1 else "."),
        tuple(Evidence(f"{m.label} at {size_text(m.size)}: {', '.join(time_text(x.center) for x in levels_of.modes)}",
                       (m.case_key,)) for m, levels_of in found[:12]),
        0.9,
        "A median between two modes describes neither: look at the case's distribution in the report before comparing "
        "it.",
        0.0,
    )  # fmt: skip


@rule("cases with too few samples for a claim")
def too_few_samples(facts: Facts) -> Iterable[Finding]:
    """Cases with fewer than six effective samples: their interval is the whole range and more."""
    few = [m for m in facts.measures if m.effective < LEAST_EFFECTIVE]
    if not few:
        return
    yield Finding(
        "too_few_samples",
        "note",
        "the run",
        f"{len(few)} of {len(facts.measures)} cases have fewer than six independent samples: no interval can be "
        f"given, and no claim rests on them.",
        (Evidence("fewest samples", keys(sorted(few, key=lambda m: m.effective)[:50])),),
        0.99,
        "Sample longer (--stop-rule interval with a larger --max-time), or use the streaming cadence for short "
        "operations.",
    )
