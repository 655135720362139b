"""What a fabric would give a job alone on it: time and goodput by rule, and which links bind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from linkgauge.errors import UsageError
from linkgauge.simulate.arrays import Floats, Ints
from linkgauge.simulate.crossing import ways
from linkgauge.simulate.demand import Demand, demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.fair import TooManyError
from linkgauge.simulate.layout import DISTANCES, Layout
from linkgauge.simulate.placement import Placement, place
from linkgauge.simulate.playing import listed, played, unlike
from linkgauge.simulate.routes import LinkClass, Rule, end_links, fabric_links, time_of
from linkgauge.simulate.stage import Request, Stage
from linkgauge.simulate.static import static_links, static_ways
from linkgauge.simulate.torus import torus_links, torus_ways
from linkgauge.simulate.traffic import stages

_SHOWN_CLASSES = 4
DRAWS = 20
"""Seeds of `static`, of which quantiles are taken."""


@dataclasses.dataclass(frozen=True)
class Binding:
    """A class of links: what its fullest link takes of the time that all links take, and which one that is."""

    name: str
    share: float
    where: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Answer:
    """What one rule gives a job. Times in seconds; goodput in bytes per second a GPU, as the pattern counts it.

    Of `best`, `seconds` is what no routing can pass, and `reached` the goodput of a way that was found. Of `static`,
    figures are the median over seeds, and `quantiles` the 5th and 95th percentile of goodput. `bound`: the time is the
    fullest link's alone, which flows of unlike bytes exceed, and the goodput what none exceeds.
    """

    rule: str
    gpus: int
    nodes: int
    seconds: float
    latency_seconds: float
    goodput: float
    bindings: tuple[Binding, ...]
    reached: float | None = None
    quantiles: tuple[float, float] | None = None
    with_library: float | None = None  # goodput times the library's factor
    bound: bool = False

    def plain(self) -> dict[str, Any]:
        """As JSON has it: rates in bytes per second, times in seconds."""
        return dataclasses.asdict(self)


def latency(layout: Layout, stage: Stage, asked: Demand) -> float:
    """Seconds of a stage's messages one after the other, each as long as one between the farthest ranks; 0 of what no
    source states."""
    known = layout.fabric.latency_ns
    far = next((known[name] for name in reversed(DISTANCES[: DISTANCES.index(asked.farthest) + 1]) if name in known), 0)
    near = known.get("same_domain", 0)
    return (stage.steps * far + stage.inside_steps * near) * 1e-9


@dataclasses.dataclass(frozen=True)
class _Load:
    """What a stage puts on links, the seconds that no way undercuts, and those of the way that the loads are of.

    `upper bound`: flows differ in their bytes, and were too many to be played out.
    """

    links: list[LinkClass]
    seconds: float
    reached: float
    bound: bool


def _links(layout: Layout, stage: Stage, asked: Demand, rule: Rule, seed: int = 0) -> _Load:
    f = layout.fabric
    ends = end_links(layout, asked)
    if f.kind == "torus":
        links = [*ends, *torus_links(layout, stage)]
    elif rule.name == "static":
        links = [*ends, *static_links(layout, stage, asked, seed)]
    elif rule.name == "best" and f.kind in ("dragonfly", "dragonfly+"):
        from linkgauge.simulate.best import best  # the solver takes a second to load

        found = best(f, asked, time_of(ends))
        return _Load([*ends, *found.links], found.seconds, found.reached, unlike(stage))
    else:
        links = [*ends, *fabric_links(f, asked, rule)]
    seconds = time_of(links)
    if not unlike(stage):
        return _Load(links, seconds, seconds, False)

    def taken(source: Ints, target: Ints) -> tuple[csr_matrix, Floats]:
        if f.kind == "torus":
            return torus_ways(f, source, target)
        return static_ways(f, source, target, seed) if rule.name == "static" else ways(f, rule, source, target)

    try:
        if stage.terms:
            raise TooManyError
        seconds = played(layout, stage, taken, seconds)
    except TooManyError:
        return _Load(links, seconds, seconds, True)
    return _Load(links, seconds, seconds, False)


def alone(layout: Layout, stage: Stage, rule: Rule) -> float:
    """Seconds that a stage takes by a rule, its latencies aside; of unlike flows that are too many a bound."""
    return _links(layout, stage, demand(layout, stage), rule).seconds


def each_listed(made: Sequence[Stage]) -> list[Stage]:
    """Stages whose flows differ with each flow by itself, where they are few enough to be played out."""
    found = []
    for stage in made:
        try:
            found.append(listed(stage) if unlike(stage) else stage)
        except TooManyError:
            found.append(stage)
    return found


def _bindings(of_stages: Sequence[tuple[int, list[LinkClass]]], total: float) -> tuple[Binding, ...]:
    longest: dict[str, float] = {}
    where: dict[str, tuple[float, str]] = {}
    for times, links in of_stages:
        for one in links:
            longest[one.name] = longest.get(one.name, 0.0) + times * one.longest
            if one.longest >= where.get(one.name, (0.0, ""))[0]:
                where[one.name] = (one.longest, one.fullest())
    found = [
        Binding(name, seconds / total if total else 0.0, where[name][1], seconds)
        for name, seconds in longest.items()
        if seconds > 0
    ]
    return tuple(sorted(found, key=lambda one: -one.share)[:_SHOWN_CLASSES])


def answer(layout: Layout, request: Request, rule: Rule, factor: float | None = None) -> Answer:
    """What a rule gives a job alone on the fabric. UsageError for patterns that are not simulated."""
    return answers(layout, request, [rule], factor)[0]


def answers(layout: Layout, request: Request, rules: Sequence[Rule], factor: float | None = None) -> list[Answer]:
    """The same of several rules, which share what does not depend on them."""
    made = each_listed(stages(layout, request))
    asked = [demand(layout, stage) for stage in made]
    waits = sum(s.times * latency(layout, s, d) for s, d in zip(made, asked, strict=True))
    return [_answer(layout, request, rule, made, asked, waits, factor) for rule in rules]


def of_stages(layout: Layout, made: Sequence[Stage], rule: Rule) -> tuple[float, float]:
    """Seconds of the latencies of stages that follow each other, and of their bytes by a rule. UsageError: `static`,
    which draws, has no one time."""
    if rule.name == "static":
        raise UsageError("rule static has quantiles, and no one time: expected another")
    made = each_listed(made)
    asked = [demand(layout, stage) for stage in made]
    both = list(zip(made, asked, strict=True))
    waits = sum(stage.times * latency(layout, stage, one) for stage, one in both)
    return waits, sum(stage.times * _links(layout, stage, one, rule).seconds for stage, one in both)


def _answer(
    layout: Layout, request: Request, rule: Rule, made: Sequence[Stage], asked: Sequence[Demand], waits: float,
    factor: float | None,
) -> Answer:  # fmt: skip
    payload = request.payload(layout.ranks)
    common: dict[str, Any] = {
        "rule": str(rule),
        "gpus": layout.ranks,
        "nodes": len(layout.nodes),
        "latency_seconds": waits,
    }
    if rule.name == "static":
        times, shown, bound = _drawn(layout, made, asked, rule, request.seed)
        low, middle, high = (float(np.quantile(times, q)) for q in (0.05, 0.5, 0.95))
        if middle + waits <= 0:
            raise _nothing(request)
        goodput = payload / (middle + waits)
        quantiles = payload / (high + waits), payload / (low + waits)
        return Answer(
            seconds=middle + waits, goodput=goodput, bindings=_bindings(shown, float(times[len(times) // 2])),
            quantiles=quantiles, with_library=None if factor is None else goodput * factor, bound=bound, **common,
        )  # fmt: skip
    parts = [_links(layout, stage, one, rule) for stage, one in zip(made, asked, strict=True)]
    seconds = sum(stage.times * part.seconds for stage, part in zip(made, parts, strict=True))
    reached = sum(stage.times * part.reached for stage, part in zip(made, parts, strict=True))
    if seconds + waits <= 0:
        raise _nothing(request)
    goodput = payload / (seconds + waits)
    shown = [(stage.times, part.links) for stage, part in zip(made, parts, strict=True)]
    bound = any(part.bound for part in parts)
    return Answer(
        seconds=seconds + waits,
        goodput=goodput,
        bindings=_bindings(shown, reached),
        reached=payload / (reached + waits) if rule.name == "best" and not bound else None,
        with_library=None if factor is None else goodput * factor,
        bound=bound,
        **common,
    )


def _nothing(request: Request) -> UsageError:
    return UsageError(
        f"{request.pattern} stays within NVLink domains whose rate is not stated: ask for more GPUs, or set domain_rate"
    )


def _drawn(
    layout: Layout, made: Sequence[Stage], asked: Sequence[Demand], rule: Rule, seed: int
) -> tuple[Floats, list[tuple[int, list[LinkClass]]], bool]:
    """Times of each draw, sorted, the loads of the median one, and whether some are bounds alone."""
    drawn = []
    for number in range(DRAWS):
        parts = [_links(layout, *both, rule, seed * DRAWS + number) for both in zip(made, asked, strict=True)]
        drawn.append((sum(s.times * part.seconds for s, part in zip(made, parts, strict=True)), number, parts))
    drawn.sort(key=lambda one: one[:2])
    shown = [(stage.times, part.links) for stage, part in zip(made, drawn[DRAWS // 2][2], strict=True)]
    return np.array([one[0] for one in drawn]), shown, any(part.bound for one in drawn for part in one[2])


def laid_out(fabric: Fabric, gpus: int, placement: Placement, per_node: int = 0) -> Layout:
    """A job of so many GPUs, placed alone on a fabric. UsageError where there are too few."""
    per_node = per_node or fabric.gpus
    if gpus < 1:
        raise UsageError(f"{gpus} GPUs: expected 1 or more")
    if not 1 <= per_node <= fabric.gpus:
        raise UsageError(f"{per_node} GPUs a node: {fabric.name} has {fabric.gpus}")
    count = -(-gpus // per_node)
    if count > fabric.nodes:
        raise UsageError(f"{gpus} GPUs are {count} nodes: {fabric.name} has {fabric.nodes}")
    return Layout.of(fabric, place(fabric, [count], placement)[0], gpus, per_node)
