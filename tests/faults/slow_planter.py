"""Makes the copies of some pairs slow, from inside a rank: loaded by a worker whose spec names this file (tests only).

`spec.fault` is {"planter": this file, "pairs": [[1, 2], ...], "times": 8}: the first device's rank makes each copy of
such a case `times` times (kind `slow` of core/run/fault.h).
"""

from __future__ import annotations

from typing import Any

from linkgauge.model.case import Case
from linkgauge.run.wire.spec import WorkerSpec


class Planter:
    """One rank's planter."""

    def __init__(self, spec: WorkerSpec, session: Any) -> None:
        assert spec.fault is not None
        self.session = session
        self.pairs = [tuple(pair) for pair in spec.fault["pairs"]]
        self.times = int(spec.fault["times"])

    def before(self, case: Case) -> None:
        """Called by every rank before a case."""
        slow = case.devices in self.pairs
        fault = {"kind": "slow", "phase": "prepare", "rank": case.devices[0], "times": self.times}
        self.session.set_fault(fault if slow else None)
