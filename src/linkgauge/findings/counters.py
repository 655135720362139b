"""Error counters of links, cards and bridges that rose from the start of a run to its end, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.rule import rule
from linkgauge.model.grouped import grouped
from linkgauge.run.rank.node_counters import NIC
from linkgauge.system.error_counters import KEY, Rise, rises


@rule("error counters of single links, cards and PCIe bridges that rose during the run", faults=True, whole=True,
      tells=("errors_rose",))  # fmt: skip
def counters_rose(facts: Facts) -> Iterable[Finding]:
    """Replays, flaps and other errors of single parts, read once before the run and once after it."""
    by_part: Counter[tuple[str, str]] = Counter()
    times = facts.info.get(KEY) or ()  # a run that was resumed has several
    for once in times:
        for one in rises(once["before"], once["after"]):
            by_part[one.part, one.counter] += one.by
    seconds = sum(once.get("seconds", 0) for once in times)
    # A card that is observed during cases is reported with these (health.errors_rose).
    observed = {one.subject.removeprefix(NIC) for one in facts.observations if one.subject.startswith(NIC)}
    risen = (Rise(*which, by, seconds) for which, by in by_part.items())
    parts = grouped((one.part, one) for one in risen if not one.few and one.part.partition("/")[0] not in observed)
    for part, found in parts.items():
        words = ", ".join(f"{one.by:,} {one.counter}" for one in found)
        yield Finding(
            "errors_rose",
            "fault" if any(one.grave for one in found) else "loss",
            part,
            f"{part}: {words} in this run.",
            tuple(Evidence(f"{one.counter} +{one.by}") for one in found),
            0.98,
            "Store counters with linkgauge doctor --snapshot FILE, and compare them after the next run with linkgauge "
            "doctor --since FILE; reseat or replace a part whose counters keep rising.",
            0.5 if any(one.grave for one in found) else 0.2,
        )
