"""What is known of a kind of machine, and how a run compares: for `check`, and for the finding `below_known`.

A described system states accepted shares (`[[accepted]]`): what a source, or this project, measured of a link's data
rate there. A case falls under the most particular entry of its kind of link, transport and pattern whose size it
reaches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding, Severity
from linkgauge.findings.measure import Measure, keys, rate_text
from linkgauge.findings.rule import rule
from linkgauge.findings.wiring import Wiring
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.quantity import percent
from linkgauge.model.transports import over_host
from linkgauge.stats.alike import ClassRow, class_rows, members_text
from linkgauge.stats.launches import nodes_of
from linkgauge.system.likeness import Likeness, like
from linkgauge.system.model import Accepted, System, most_particular
from linkgauge.system.remembered import remembered

TOLERANCE = 0.05
"""What a case may stay below the share that the source saw: machines of one kind differ by a few per cent."""


@dataclasses.dataclass(frozen=True)
class Held:
    """A case and what is known of its kind: rates in bytes per second.

    `kind` is that of the link (empty for collectives), `nominal` the data rate that the share is of, `required` what is
    asked. `short`: the near end of the goodput's interval is below that.
    """

    measure: Measure
    kind: str
    entry: Accepted
    nominal: float
    required: float

    @property
    def usual(self) -> float:
        """The goodput that the entry's source saw."""
        return self.nominal * self.entry.share.value

    @property
    def way(self) -> tuple[str, str, str]:
        """Transport, variant and pattern."""
        return self.measure.transport, self.measure.case.variant, self.measure.pattern

    @property
    def dims(self) -> Mapping[str, object]:
        """The case's dimensions with its devices, as classes take them."""
        return self.measure.dims

    @property
    def goodput(self) -> float:
        """The median goodput."""
        return self.measure.goodput or 0.0

    @property
    def short(self) -> bool:
        """Whether less was reached than is asked, beyond the interval: noise alone fails no case."""
        return self.goodput / max(1e-9, 1 - self.measure.half_width) < self.required


@remembered
def known_shares(facts: Facts) -> dict[str, Held]:
    """Return by case key what is known of a run's cases from machines of its kind; empty where nothing is."""
    kind = facts.likeness
    held = [] if kind is None or not kind.system.accepted else held_against(facts, kind.system)[0]
    return {one.measure.case_key: one for one in held}


def held_against(facts: Facts, system: System, tolerance: float = TOLERANCE) -> tuple[list[Held], int]:
    """Return the cases that the system states a share for, and how many others there are.

    A share is of the data rate of the links on the pair's way (both directions of `bidirectional`, the device's host
    link for host copies, half of the memory's rate for local ones), and for collectives of the lowest bound that the
    links set. Rates are the described ones, so that a missing link shows; where the run's machine is joined in another
    way than the description says (a switch in place of direct links), its own. A way over a link of unknown rate (as
    between two processors) falls under the entries of that link's kind: those of the others say nothing of it.
    """
    judge = _Nominal(facts, system)
    held, without = [], 0
    for measure in facts.measures:
        found = judge.of(measure)
        nodes = max(1, len(nodes_of(facts.places(measure))))
        entry = None
        if found is not None:
            entry = most_particular(e for e in system.accepted if _fits(e, measure, found[0], nodes))
        if found is None or entry is None or measure.goodput is None:
            without += 1
            continue
        held.append(Held(measure, found[0], entry, found[1], found[1] * entry.share.value * (1 - tolerance)))
    return held, without


class _Nominal:
    """The kind of link and the data rate that a case's share is of."""

    def __init__(self, facts: Facts, system: System) -> None:
        self.facts, self.system = facts, system
        self.described = Wiring(system)
        self.own = facts.wiring
        found = None if facts.system is None else like(facts.system, system)
        self.same_host = self.own is None or found is None or found.host_links

    def of(self, measure: Measure) -> tuple[str, float] | None:
        """Return kind and rate in bytes per second, None for what no entry is about."""
        info = PATTERNS[measure.pattern]
        if measure.case.routed or not (info.collective or self.facts.on_one_node(measure)):
            return None
        devices = self.facts.ordinals(measure)
        if info.ranks == "2" and len(set(measure.devices)) == 2:
            return self._pair(measure, devices)
        if len(info.host_ways) == 1 and measure.ranks == 1:
            wiring = self.described if self.same_host or self.own is None else self.own
            rate = wiring.host_rates.get(devices[0])
            return None if rate is None else (_host_kind(wiring, devices[0]), rate)
        if info.within_device and measure.ranks == 1:
            device = next((d for d in self.system.devices if d.ordinal == devices[0]), None)
            rate = None if device is None or device.memory_rate is None else device.memory_rate.value / 2
            return None if rate is None else ("memory", rate)
        if info.collective:
            bound = self.facts.bound(measure)
            return None if bound is None or not bound.value_bytes_per_s else ("", bound.value_bytes_per_s)
        return None

    def _pair(self, measure: Measure, devices: tuple[int, ...]) -> tuple[str, float] | None:
        by_host = over_host(measure.transport, measure.case.path)
        way = self.described.way(devices[0], devices[1], by_host)
        own = None if self.own is None else self.own.way(devices[0], devices[1], by_host)
        is_described = own is None or (way is not None and way.kind == own.kind)
        if not is_described:
            way = own
        if way is None or way.rate is None or way.kind == "routed":
            return None
        wiring = self.described if is_described or self.own is None else self.own
        return wiring.bounding_kind(way), way.rate * PATTERNS[measure.pattern].ways


def _fits(entry: Accepted, measure: Measure, kind: str, nodes: int) -> bool:
    case = measure.case
    # Groups at once share ports, and no source measured any.
    if case.groups > 1 or case.ranks % nodes:
        return False
    if not entry.fits(case.transport, case.pattern, case.size, case.ranks // nodes, case.algorithm, nodes,
                      case.initiator):  # fmt: skip
        return False
    # A collective's share is of its own bound, so only an entry of that very collective is about it.
    return entry.pattern == measure.pattern if PATTERNS[measure.pattern].collective else entry.kind == kind


def _host_kind(wiring: Wiring, device: int) -> str:
    name = wiring.names[device]
    for link in wiring.system.links_of(name):
        other = wiring.system.node(link.other(name))
        if other.kind == "host" or (other.kind == "switch" and link.kind == "pcie"):
            return link.kind
    return ""


# --- the finding -----------------------------------------------------------------------------------------------------

PCIE = "PCIe"
_WORDS = {"nvlink": "NVLink", "pcie": PCIE, "memory": "device memory", "": "collectives"}


@dataclasses.dataclass(frozen=True)
class _Low:
    """A class of cases all of which reach less than is known: by which share, and what was usual in B/s."""

    loss: float
    row: ClassRow[Held]

    @property
    def one(self) -> Measure:
        return self.row.members[0].measure

    @property
    def usual(self) -> float:
        return self.row.members[0].usual

    @property
    def words(self) -> str:
        where = members_text([one.measure.devices for one in self.row.members], self.one.noun)
        return f"{self.one.label} on {where} reaches {rate_text(self.row.middle)} at {size_text(self.one.size)}"


@rule("links that reach less than what is known of that kind of machine, all of them alike")
def below_known(facts: Facts) -> Iterable[Finding]:
    """Kinds of link over which all reaches less than what is known of that kind of machine: no sibling shows it."""
    kind = facts.likeness
    if kind is None or not kind.system.accepted:
        return
    ways: dict[str, dict[tuple[str, str, str], list[_Low]]] = {}
    well: set[tuple[str, str, str]] = set()
    for row in class_rows(
        known_shares(facts).values(),
        key=lambda h: (h.measure.settings, h.measure.size, facts.classes.of(h.measure.case)),
        value=lambda h: h.goodput,
        half_width=lambda h: h.measure.half_width,
    ):
        first = row.members[0]
        found = ways.setdefault(first.kind, {}).setdefault(first.way, [])
        if row.middle / max(1e-9, 1 - row.half_width) < first.required:
            found.append(_Low(1 - row.middle / first.usual, row))
        else:
            well.add(first.way)
    # A way that is as fast as known at one size is no slow one: what is low at another is that size's.
    for by_way in ways.values():
        for way in well & by_way.keys():
            by_way[way] = []
    slow = {link for link, by_way in ways.items() if 2 * sum(map(bool, by_way.values())) >= len(by_way)}
    for link, by_way in ways.items():
        low = [max(items, key=lambda item: item.loss) for items in by_way.values() if items]
        # Where the links are slow, so is what goes over them.
        if low and not (link == "" and slow - {""}):
            yield _told(kind, link, low, len(by_way), "loss" if link in slow else "note")


def _told(kind: Likeness, link: str, low: list[_Low], judged: int, severity: Severity) -> Finding:
    low.sort(key=lambda item: -item.loss)
    middle = low[len(low) // 2]
    what = _WORDS.get(link, link)
    share = "Everything" if len(low) == judged else f"{len(low)} of {judged} ways"
    over = f"over {what}" if link else "of the collectives"
    sentence = (
        f"{share} {over} is {percent(middle.loss)} below what is known of {kind.system.name}: {middle.words}, where "
        f"{rate_text(middle.usual)} was measured. All of a class are alike, so no sibling shows it."
    )
    evidence = tuple(
        Evidence(
            f"{item.words}, {percent(item.loss)} below {rate_text(item.usual)} "
            f"({item.row.members[0].entry.share.source})",
            keys(h.measure for h in item.row.members),
        )
        for item in low
    )
    fix = (
        "Look at what all devices share: clocks and power limits (nvidia-smi -q -d CLOCK,POWER), the driver, error "
        "counters, virtualisation, other users of the node; then whether the description fits this machine "
        f"(linkgauge topology {kind.system.name})."
    )
    return Finding("below_known", severity, what, sentence, evidence, 0.95, fix, middle.loss)


# --- more than can be ------------------------------------------------------------------------------------------------

IMPOSSIBLE = 1.1
"""Share of a limit that neither rounding nor noise explains: the description is another machine's."""
_ABOVE = 0.03
"""A description's rate is a nominal one, rounded; what is above it by more is no rounding."""


def wrong_system(facts: Facts, share: float, system: System | None = None) -> str:
    """Say that a share of a limit cannot be, and of which system; empty where it can."""
    of = system or facts.system
    if share <= IMPOSSIBLE or of is None:
        return ""
    return f"above the limit of {of.name}: the wrong system?"


@rule("goodput above a bound: the system's description or the measurement is wrong")
def above_bound(facts: Facts) -> Iterable[Finding]:
    """Goodput that the links do not allow, beyond its interval. One case a class is held against its bound."""
    most: dict[Hashable, Measure] = {}
    for measure in facts.measures:
        key = (measure.settings, facts.classes.of(measure.case))
        if measure.goodput and (key not in most or measure.goodput > (most[key].goodput or 0.0)):
            most[key] = measure
    above = [
        (sure / bound.value_bytes_per_s - 1, measure, bound)
        for measure in most.values()
        if (bound := facts.bound(measure)) is not None
        and bound.value_bytes_per_s
        and (sure := (measure.goodput or 0.0) / (1 + measure.half_width)) > (1 + _ABOVE) * bound.value_bytes_per_s
    ]
    if not above:
        return
    above.sort(key=lambda item: -item[0])
    share, one, bound = above[0]
    yield Finding(
        "above_bound",
        "note",
        one.label,
        f"{one.label} of {size_text(one.size)} on {members_text([one.devices], facts.noun)} reaches "
        f"{rate_text(one.goodput)}, {percent(share)} more than the links allow "
        f"({bound.rule}: {rate_text(bound.value_bytes_per_s)}).",
        tuple(
            Evidence(f"{m.label} at {size_text(m.size)}: {percent(s)} above {b.rule}", (m.case_key,))
            for s, m, b in above
        ),
        0.9,
        "The system's rates may be wrong for this machine (linkgauge topology), or part of the data did not take this "
        "way: trust neither the share nor, before that is known, the rate.",
        share,
    )
