"""What a library makes of its nodes' ports: a factor from a run on few nodes, apart from what the fabric allows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from linkgauge.errors import UsageError
from linkgauge.model.result import Measured
from linkgauge.simulate.answer import answers, laid_out
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import Rule, rules_of
from linkgauge.simulate.stage import Request

if TYPE_CHECKING:
    from linkgauge.store.run import Run

MOST_NODES = 8


@dataclasses.dataclass(frozen=True)
class Calibration:
    """`factor`: measured goodput over what the fabric's description allows the same case; `words` say of which case."""

    factor: float
    words: str


def calibrate(run: Run, fabric: Fabric, request: Request) -> Calibration:
    """The factor of the run's best case of a pattern: the largest size on the most nodes, 2 to 8.

    UsageError where the run holds none, or where it is faster than the description allows.
    """
    from linkgauge.stats.launches import Places
    from linkgauge.stats.summary import results_of

    places = Places(run.launched)
    found: list[tuple[int, int, float, Measured]] = []
    for row in results_of(run):
        if row.pattern != request.pattern or row.case.distribution or row.size < 1 or not row.is_headline:
            continue
        if not isinstance(row, Measured) or not (goodput := row.goodput_bytes_per_s):
            continue
        hosts = [host for host, _ in places.of_row(row)]
        counts = {host: hosts.count(host) for host in hosts}
        if 2 <= len(counts) <= MOST_NODES and len(set(counts.values())) == 1 and hosts.count(hosts[0]) <= fabric.gpus:
            found.append((len(counts), row.size, goodput, row))
    if not found:
        raise UsageError(
            f"{run.path}: has no case of {request.pattern} on 2 to {MOST_NODES} nodes with as many GPUs of each: "
            f"measure one, or leave --calibrate out"
        )
    nodes, size, goodput, row = max(found, key=lambda one: one[:3])
    ranks = len(places.of_row(row))
    layout = laid_out(fabric, ranks, Placement(), ranks // nodes)
    rule = Rule("best" if "best" in rules_of(fabric) else "minimal")
    allowed = answers(layout, dataclasses.replace(request, size=size, distribution=""), [rule])[0].goodput
    factor = goodput / allowed
    words = (
        f"{row.transport} {request.pattern} of {size} B on {nodes} nodes of {ranks // nodes} GPUs in {run.path.name}"
    )
    if factor > 1.02:
        raise UsageError(
            f"{words}: measured {factor:.2f} times what {fabric.name}'s description allows: it is of another machine"
        )
    return Calibration(min(1.0, factor), words)
