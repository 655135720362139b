"""Makes the copies of some pairs slow, from inside a rank: loaded by a worker whose spec names this file (tests only).

`spec.fault` is {"planter": this file, "pairs": [[1, 2], ...], "times": 8}: the first device's rank makes each copy of
such a case `times` times (kind `slow` of tests/core/planted_faults.h).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from linkgauge.model.case import Case
from linkgauge.run.wire.spec import WorkerSpec

sys.path.append(str(Path(__file__).parents[1]))  # a rank knows no folder of the tests

from planted_faults import clear, plant


class Planter:
    """One rank's planter."""

    def __init__(self, spec: WorkerSpec, session: Any) -> None:
        assert spec.fault is not None
        self.session = session
        self.pairs = [tuple(pair) for pair in spec.fault["pairs"]]
        self.times = int(spec.fault["times"])

    def before(self, case: Case) -> None:
        """Called by every rank before a case."""
        if case.devices in self.pairs:
            plant(self.session, kind="slow", phase="prepare", rank=case.devices[0], times=self.times)
        else:
            clear(self.session)
