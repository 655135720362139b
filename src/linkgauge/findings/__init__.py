"""Findings: rules that read a run against its system and say what is odd, why, and what to do.

`judge(run, system=None) -> list[Finding]` is what others call. Importing this package loads neither scipy nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkgauge.findings.finding import SEVERITIES, Evidence, Finding

if TYPE_CHECKING:
    from linkgauge.store.run import Run
    from linkgauge.system.model import System

__all__ = ["SEVERITIES", "Evidence", "Finding", "judge"]


def judge(run: Run, system: System | None = None, samples: bool = True) -> list[Finding]:
    """Return what is odd in a run, the surest and costliest first.

    `system` is the machine to judge against; without it, what the run itself found there, and without that only rules
    that need no system speak. `samples=False` leaves out the rules that go through every sample (drift, spikes,
    stragglers).

    >>> import linkgauge
    >>> found = judge(linkgauge.load("linkgauge-demo"))
    >>> found[0].severity, found[0].rule, found[0].confidence
    ('note', 'limiting_variables', 0.99)
    """
    from linkgauge.findings import read, rules

    return rules.apply(read.facts_of(run, system), samples)
