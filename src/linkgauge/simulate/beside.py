"""A job beside others: its fair share, played out flow by flow, or where there are too many flows, paced by jobs.

*Paced*: a job's flows all go at the pace of its slowest, as a collective's do in the long run, so that a job is one
class and its use of a link is the number of its flows there. For one job alone of equal flows both ways are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import csr_matrix

from linkgauge.errors import UsageError
from linkgauge.simulate.answer import alone as alone_on
from linkgauge.simulate.answer import each_listed, latency
from linkgauge.simulate.arrays import Floats, Ints
from linkgauge.simulate.crossing import Sharer, crossing
from linkgauge.simulate.demand import demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.fair import Classes, TooManyError, max_min, play
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.others import BACKGROUND, DRAWN_NODES, DRAWS, Load, Share
from linkgauge.simulate.placement import Placement, place
from linkgauge.simulate.routes import Rule, end_links, fabric_links, refuse_uneven, time_of
from linkgauge.simulate.stage import Request, Stage
from linkgauge.simulate.traffic import stages


def job_and_loads(
    fabric: Fabric, gpus: int, loads: Sequence[Load], placement: Placement, per_node: int = 0
) -> tuple[Layout, list[Layout]]:
    """The job's layout and its loads', placed together. UsageError where they do not fit."""
    each = per_node or fabric.gpus
    if not 1 <= each <= fabric.gpus:
        raise UsageError(f"{each} GPUs a node: {fabric.name} has {fabric.gpus}")
    counts = [-(-count // each) for count in (gpus, *(load.gpus for load in loads))]
    placed = place(fabric, counts, placement)
    layouts = [
        Layout.of(fabric, nodes, count, each)
        for nodes, count in zip(placed, (gpus, *(load.gpus for load in loads)), strict=True)
    ]
    return layouts[0], layouts[1:]


def beside(
    layout: Layout, request: Request, loads: Sequence[tuple[Layout, Request]], rule: Rule, *, pessimistic: bool = False
) -> Share:
    """A job's goodput alone and beside loads that never end, by a rule that spreads evenly. UsageError."""
    fabric = layout.fabric
    refuse_uneven(fabric, rule)
    made = each_listed(stages(layout, request))
    others = [(other, each_listed(stages(other, wanted)[:1])[0]) for other, wanted in loads]
    payload = request.payload(layout.ranks)
    alone = together = 0.0
    how = "by flow"
    for stage in made:
        asked = demand(layout, stage)
        waits = latency(layout, stage, asked)
        free = alone_on(layout, stage, rule)
        try:
            shared = _by_flow(fabric, layout, stage, others, rule, pessimistic)
        except TooManyError:
            if pessimistic:
                raise UsageError("--pessimistic on so many flows: ask for fewer GPUs") from None
            shared = free / _pace(fabric, [(layout, stage), *others], rule)[0]
            how = "paced"
        alone += stage.times * (free + waits)
        together += stage.times * (max(free, shared) + waits)
    if together <= 0:
        raise UsageError(f"{request.pattern} stays within NVLink domains: nothing is shared; ask for more GPUs")
    return Share(str(rule), payload / alone, payload / together, how)


def _by_flow(
    fabric: Fabric, layout: Layout, stage: Stage, others: Sequence[tuple[Layout, Stage]], rule: Rule, pessimistic: bool
) -> float:
    """When the job's stage is through, in seconds; what stays inside domains aside."""
    jobs = [Sharer(layout, stage), *(Sharer(other, load, endless=True) for other, load in others)]
    table = crossing(fabric, jobs, rule)
    # Flows that end within a thousandth of each other end together: an error of as much at most.
    played = play(table.classes, table.ports_in if pessimistic else None, within=1e-3)
    mine = table.job == 0
    return float(played.ends[mine].max(initial=0.0))


def _pace(fabric: Fabric, jobs: Sequence[tuple[Layout, Stage]], rule: Rule) -> Floats:
    """What part of its pace alone each job keeps, all under way at once."""
    rows, sizes = [], []
    for layout, stage in jobs:
        asked = demand(layout, stage)
        inner = fabric_links(fabric, asked, rule)
        flat = [np.ravel(one.load) for one in inner]
        load = np.concatenate(flat) if flat else np.zeros(0)
        size = _flow_bytes(stage)
        own = time_of(end_links(layout, asked))
        rows.append((load / size, own / size))
        sizes.append(max([own, *(one.longest for one in inner)]) / size)
    width = len(rows[0][0])
    rates = np.full(width, fabric.link_rate) if width else np.zeros(0)
    n = len(rows)
    uses = csr_matrix(np.hstack([np.array([load for load, _ in rows]), np.diag([own for _, own in rows])]))
    classes = Classes(uses, np.ones(n), np.full(n, np.inf), np.concatenate([rates, np.ones(n)]))
    pace = max_min(classes)
    found: Floats = np.minimum(1.0, pace * np.array(sizes))
    return found


def _flow_bytes(stage: Stage) -> float:
    """The mean bytes of a flow."""
    if stage.terms:
        term = stage.terms[0]
        n = len(term.a)
        return term.total / max(1, n * (n - 1))
    return float(stage.bytes.mean()) if len(stage.bytes) else 1.0


def background(
    fabric: Fabric, gpus: int, request: Request, rule: Rule, placement: Placement, share: float, *, per_node: int = 0,
    draws: int = DRAWS, told: Callable[[str, int, int], None] | None = None,
) -> Share:  # fmt: skip
    """A job beside jobs drawn to fill `share` of the other nodes: quantiles of its goodput over draws, paced.

    Each drawn job has 2 to 128 nodes (the logarithm drawn evenly) anywhere among those free, and does one of
    BACKGROUND without end; `told` hears what is done, and how many draws of how many. UsageError as for `background`.
    """
    if not 0 < share <= 1 or not 1 <= draws <= 1000:
        raise UsageError("a background of other jobs: expected a share above 0, up to 1, and 1 to 1000 draws")
    refuse_uneven(fabric, rule)
    layout, _ = job_and_loads(fabric, gpus, [], placement, per_node)
    made = stages(layout, request)
    payload = request.payload(layout.ranks)
    free = [demand(layout, stage) for stage in made]
    alone = [time_of([*end_links(layout, one), *fabric_links(fabric, one, rule)]) for one in free]
    waits = [latency(layout, stage, one) for stage, one in zip(made, free, strict=True)]
    times = [stage.times for stage in made]
    found = []
    for number in range(draws):
        others = _drawn(fabric, layout.nodes, share, np.random.default_rng([placement.seed, number]))
        seconds = 0.0
        for stage, own, wait, count in zip(made, alone, waits, times, strict=True):
            pace = float(_pace(fabric, [(layout, stage), *others], rule)[0])
            seconds += count * (own / pace + wait)
        found.append(payload / seconds)
        if told is not None:
            told(f"drawing other jobs, {rule}", number + 1, draws)
    low, middle, high = (float(np.quantile(found, q)) for q in (0.05, 0.5, 0.95))
    by_itself = payload / sum(c * (own + wait) for c, own, wait in zip(times, alone, waits, strict=True))
    return Share(str(rule), by_itself, middle, "paced", (low, middle, high))


def _drawn(fabric: Fabric, taken: Ints, share: float, drawn: np.random.Generator) -> list[tuple[Layout, Stage]]:
    """Jobs on so much of the nodes that are not taken."""
    free = np.setdiff1d(np.arange(fabric.nodes), taken)
    free = drawn.permutation(free)[: round(share * len(free))]
    jobs: list[tuple[Layout, Stage]] = []
    low, high = (np.log(count) for count in DRAWN_NODES)
    at = 0
    while len(free) - at >= DRAWN_NODES[0]:
        count = min(len(free) - at, round(float(np.exp(drawn.uniform(low, high)))))
        nodes = np.sort(free[at : at + count])
        at += count
        pattern = BACKGROUND[int(drawn.integers(len(BACKGROUND)))]
        layout = Layout.of(fabric, nodes, count * fabric.gpus)
        if layout.units > 1:
            jobs.append((layout, stages(layout, Request(pattern, 128 << 10, seed=int(drawn.integers(1 << 30))))[0]))
    return jobs
