"""Where the time of an application's iteration went, rank by rank, as its case stored it (subject `steps`)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from linkgauge.run.observe import STEPS

if TYPE_CHECKING:
    from linkgauge.store.run import Run

Identity = tuple[str, int, int, int]
KINDS = ("compute", "host_to_device", "device_to_host", "within_device", "message", "collective", "barrier", "sync")
"""Kinds of steps in the order of the core's (core/pattern/application.cpp)."""


@dataclasses.dataclass(frozen=True)
class RankSteps:
    """One rank's iteration. `ns` by kind: the median of the host's time in such steps. The rest is what the step file
    says: how many, and how many bytes, by name of apps/program.py's `amounts`."""

    rank: int
    ns: dict[str, float]
    counts: dict[str, int]
    bytes: dict[str, int]


def step_times(run: Run) -> dict[Identity, list[RankSteps]]:
    """By row identity what its ranks told, in the order of ranks; cases without are left out."""
    import pyarrow.compute as pc

    table = run.observations
    rows = table.filter(pc.equal(table["subject"], STEPS)).to_pylist()
    found: dict[Identity, dict[int, RankSteps]] = {}
    for row in rows:
        identity = (row["case_key"], row["launch"], row["repeat"], row["attempt"])
        one = found.setdefault(identity, {}).setdefault(row["rank"], RankSteps(row["rank"], {}, {}, {}))
        name, _, quantity = str(row["name"]).rpartition("_")
        if quantity == "time" and name in KINDS:
            one.ns[name] = float(row["value"])
        elif quantity in ("count", "bytes"):
            (one.counts if quantity == "count" else one.bytes)[name] = int(row["value"])
    return {identity: [ranks[rank] for rank in sorted(ranks)] for identity, ranks in found.items()}
