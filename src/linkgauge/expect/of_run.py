"""The system that a run was measured on, as its run folder holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkgauge.errors import UsageError
from linkgauge.system.form import read
from linkgauge.system.model import System

if TYPE_CHECKING:
    from linkgauge.store.run import Run


def system_of_run(run: Run) -> System:
    """Return the system in run.json (its JSON form under `system`); `UsageError` where the run holds none."""
    described = run.info.get("system")
    if not isinstance(described, dict):
        raise UsageError(f"{run.path}: holds no system; name one: linkgauge expect NAME, or expect RUN --system NAME")
    return read(described, f"{run.path}: run.json")
