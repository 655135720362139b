"""A run as OpenMetrics: the same families for every run, so that a dashboard needs no edit, labeled by whose it is."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from linkgauge.findings.finding import SEVERITIES, Finding
from linkgauge.findings.measure import Measure
from linkgauge.judge.exporters import labels_text
from linkgauge.judge.subjects import Subject
from linkgauge.model.patterns import COLLECTIVES, HOST_COPIES, PAIRS, PATTERNS, group_of

SMALL = 1 << 20
"""The least size in bytes of the smaller of the two sizes that a collective is reported at."""

FAMILIES = {
    "linkgauge_pair_goodput_bytes_per_second": "Goodput of device pairs, each by its best mechanism and size.",
    "linkgauge_collective_busbw_bytes_per_second": "Bus bandwidth of a collective by its best mechanism.",
    "linkgauge_host_link_goodput_bytes_per_second": "Goodput between a device and the host, each device at its best.",
    "linkgauge_findings": "Findings by severity.",
    "linkgauge_not_observed": "Kinds of observations that were not made.",
    "linkgauge_cases": "Cases by how they ended.",
    "linkgauge_run_end_timestamp_seconds": "When the run ended, in seconds since 1970.",
    "linkgauge_run_duration_seconds": "How long the run took.",
}
"""Each family with its help; all are gauges."""

Sample = tuple[str, dict[str, str], float]


def open_metrics(runs: Sequence[tuple[Subject, Sequence[Finding], int]]) -> str:
    """Return runs, each with its findings and how many kinds of observations it lacks, as OpenMetrics.

    Each sample has the labels `host`, `uuid` (the lowest of the run's devices) and `run`.
    """
    samples: dict[str, dict[str, float]] = {name: {} for name in FAMILIES}
    for subject, findings, unobserved in runs:
        whose = {"host": subject.host, "uuid": min(subject.uuids.values(), default=""), "run": subject.name}
        for name, labels, value in _of_run(subject, findings, unobserved):
            samples[name][labels_text(whose | labels)] = value
    lines: list[str] = []
    for name, about in FAMILIES.items():
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {value:.15g}" for labels, value in samples[name].items()]
    return "\n".join(lines) + "\n# EOF\n"


def _of_run(subject: Subject, findings: Sequence[Finding], unobserved: int) -> Iterator[Sample]:
    facts = subject.facts
    rated = [one for one in facts.undisturbed.measures if one.goodput]
    for name, group in (("pair", PAIRS), ("host_link", HOST_COPIES)):
        for pattern in sorted({one.pattern for one in rated if group_of(one.pattern, one.devices) == group}):
            best = _best((one for one in rated if one.pattern == pattern), lambda one: one.devices)
            for statistic, value in (("min", min(best.values())), ("median", statistics.median(best.values()))):
                labels = {"pattern": pattern, "statistic": statistic}
                yield f"linkgauge_{name}_goodput_bytes_per_second", labels, value
    whole = [one for one in rated if group_of(one.pattern, one.devices) == COLLECTIVES
             and PATTERNS[one.pattern].algorithm_factor is not None]  # fmt: skip
    for pattern in sorted({one.pattern for one in whole}):
        own = [one for one in whole if one.pattern == pattern]
        most = max(one.ranks for one in own)
        rates = _best((one for one in own if one.ranks == most), lambda one: (one.size_class,), bus=True)
        sizes = sorted(size for (size,) in rates)
        for which, size in (("small", next((one for one in sizes if one >= SMALL), sizes[-1])), ("large", sizes[-1])):
            labels = {"collective": pattern, "ranks": str(most), "size": which, "size_bytes": str(size)}
            yield "linkgauge_collective_busbw_bytes_per_second", labels, rates[(size,)]
    counts = Counter(finding.severity for finding in findings)
    for severity in SEVERITIES:
        yield "linkgauge_findings", {"severity": severity}, float(counts[severity])
    yield "linkgauge_not_observed", {}, float(unobserved)
    ended = Counter(str(row.status or "left") for row in facts.rows if row.is_headline)
    for status in sorted({"ok", "failed", *ended}):
        yield "linkgauge_cases", {"status": status}, float(ended[status])
    start, end = _seconds(facts.info.get("start")), _seconds(facts.info.get("end"))
    if end is not None:
        yield "linkgauge_run_end_timestamp_seconds", {}, end
        if start is not None:
            yield "linkgauge_run_duration_seconds", {}, end - start


def _best(
    measures: Iterator[Measure], key: Callable[[Measure], tuple[int, ...]], bus: bool = False
) -> dict[tuple[int, ...], float]:
    found: dict[tuple[int, ...], float] = {}
    for one in measures:
        rate = (one.bus if bus else one.goodput) or 0.0
        found[key(one)] = max(rate, found.get(key(one), 0.0))
    return found


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
