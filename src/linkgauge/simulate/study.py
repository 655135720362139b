"""A study of a fabric: curves over counts of GPUs by rule, other placements, and one more link of each kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.simulate.answer import Answer, answers, laid_out
from linkgauge.simulate.calibrate import Calibration
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.others import Others, Share
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import Rule, shares
from linkgauge.simulate.stage import Request

LIMITS = (
    "No queues: no tails, no head-of-line blocking, no incast collapse. Steady state, all ranks start at once.",
    "Congestion control is taken as perfect (max-min fair shares), unless --pessimistic is given.",
)
"""What the answers leave out, said with each of them."""

MOST_COUNTS = 64


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """A change and what it gives at the largest count: goodput in bytes per second by rule."""

    change: str
    goodput: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Study:
    """All that was asked of a fabric. `counts` is by count of GPUs, a list of answers, one a rule."""

    fabric: Fabric
    request: Request
    placement: Placement
    curves: tuple[tuple[Answer, ...], ...]
    placements: tuple[WhatIf, ...]
    links: tuple[WhatIf, ...]
    factor: Calibration | None = None
    shares: tuple[Share, ...] = ()  # beside other jobs, at the largest count, by rule
    beside: str = ""  # which others, in words

    def plain(self) -> dict[str, Any]:
        """As JSON has it: rates in bytes per second, times in seconds."""
        f = self.fabric
        return {
            "fabric": {
                "name": f.name, "kind": f.kind, "nodes": f.nodes, "gpus_per_node": f.gpus, "ports_per_node": f.ports,
                "port_rate": f.port_rate, "groups": f.groups, "unknown": list(f.unknown), "assumed": list(f.assumed),
                "sources": dict(f.sources),
            },
            "request": dataclasses.asdict(self.request),
            "placement": str(self.placement),
            "library_factor": None if self.factor is None else dataclasses.asdict(self.factor),
            "answers": [one.plain() for row in self.curves for one in row],
            "other_placements": [dataclasses.asdict(one) for one in self.placements],
            "one_more_link": [dataclasses.asdict(one) for one in self.links],
            "background": self.beside,
            "shares": [one.plain() for one in self.shares],
            "limits": list(LIMITS),
        }  # fmt: skip


def study(
    fabric: Fabric, request: Request, counts: Sequence[int], rules: Sequence[Rule], placement: Placement | None = None,
    *, per_node: int = 0, factor: Calibration | None = None, what_if: bool = True, others: Others | None = None,
    told: Callable[[str, int, int], None] | None = None,
) -> Study:  # fmt: skip
    """Simulate a pattern over counts of GPUs. UsageError, one line, for what cannot be.

    `told` hears what is done, and how many of how many parts are.
    """
    placement = placement or Placement()
    if not 1 <= len(counts) <= MOST_COUNTS:
        raise UsageError(f"{len(counts)} counts of GPUs: expected 1 to {MOST_COUNTS}")
    curves = []
    asked = sorted(set(counts))
    for number, count in enumerate(asked):
        if told is not None:
            told(f"simulating {count:,} GPUs", number, len(asked))
        layout = laid_out(fabric, count, placement, per_node)
        curves.append(tuple(answers(layout, request, rules, None if factor is None else factor.factor)))
    elsewhere: list[WhatIf] = []
    links: list[WhatIf] = []
    if what_if:
        most = max(counts)
        for other in ("packed", "random", "spread"):
            if other != placement.name:
                another = Placement(other, "", placement.seed)
                elsewhere.append(_with(fabric, request, most, rules, another, per_node, f"placed {another}"))
        for change, grown in one_more(fabric):
            links.append(_with(grown, request, most, rules, placement, per_node, change))
    beside: list[Share] = []
    if others is not None:
        beside = _shares(fabric, request, max(counts), rules, placement, per_node, others, told)
    words = "" if others is None else str(others)
    return Study(
        fabric, request, placement, tuple(curves), tuple(elsewhere), tuple(links), factor, tuple(beside), words
    )


def _shares(
    fabric: Fabric, request: Request, gpus: int, rules: Sequence[Rule], placement: Placement, per_node: int,
    others: Others, told: Callable[[str, int, int], None] | None,
) -> list[Share]:  # fmt: skip
    from linkgauge.simulate.beside import background, job_and_loads
    from linkgauge.simulate.beside import beside as beside_loads

    kept = [rule for rule in rules if shares(fabric, rule)]
    if not kept:
        raise UsageError(
            f"concurrent jobs on a {fabric.kind}: expected a rule that spreads evenly, not {', '.join(map(str, rules))}"
        )
    if others.share:
        return [
            background(
                fabric, gpus, request, rule, placement, others.share, per_node=per_node, draws=others.draws, told=told
            )
            for rule in kept
        ]
    layout, placed = job_and_loads(fabric, gpus, others.loads, placement, per_node)
    loads = [(there, load.request) for there, load in zip(placed, others.loads, strict=True)]
    return [beside_loads(layout, request, loads, rule, pessimistic=others.pessimistic) for rule in kept]


def _with(
    fabric: Fabric, request: Request, gpus: int, rules: Sequence[Rule], placement: Placement, per_node: int, words: str
) -> WhatIf:
    found = answers(laid_out(fabric, gpus, placement, per_node), request, rules)
    return WhatIf(words, {one.rule: one.goodput for one in found})


def one_more(fabric: Fabric) -> list[tuple[str, Fabric]]:
    """The fabric with one more link of each kind, everywhere: between groups, inside them, of each port."""
    found: list[tuple[str, Fabric]] = []
    if fabric.kind in ("dragonfly", "dragonfly+") and fabric.groups > 1:
        grown = fabric.with_more(pair_links=fabric.pair_links + 1)
        found.append((f"{grown.pair_links} links between two groups, not {fabric.pair_links}", grown))
    if fabric.kind == "dragonfly" and fabric.leaves > 1:
        grown = fabric.with_more(local_links=fabric.local_links + 1)
        words = f"{grown.local_links:g} links between two switches of a group, not {fabric.local_links:g}"
        found.append((words, grown))
    if fabric.kind in ("dragonfly+", "fat_tree"):
        grown = fabric.with_more(up_links=fabric.up_links + 1)
        found.append((f"{grown.up_links:g} links up a leaf switch, not {fabric.up_links:g}", grown))
    if fabric.kind == "fat_tree" and fabric.groups > 1:
        grown = fabric.with_more(core_links=fabric.core_links + 1)
        found.append((f"{grown.core_links:g} links up a spine, not {fabric.core_links:g}", grown))
    found.append(("ports of twice the rate", fabric.with_more(port_rate=2 * fabric.port_rate)))
    return found
