"""Limits of latency: what nothing can be faster than, and what papers and tools saw on such devices and links.

A bound on a time is a least time. What must cross a link takes its bytes over the most that all ways together carry,
and what a processor does takes one cycle of its clock: true of any machine, and far below what controllers and
protocols take. What a run reached itself is `linkgauge.expect.achieved`'s.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from linkgauge.expect import cuts, paths
from linkgauge.expect.graph import FABRIC, HOST, Wires
from linkgauge.expect.limit import Limit
from linkgauge.expect.query import HOST_MEMORY, Query, hosts_for, show
from linkgauge.expect.rules import RULES
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import read_toml
from linkgauge.system.model import FABRIC_KINDS
from linkgauge.system.units import SIZE, TIME, parse, show_rate

_WORD_BYTES = 8  # a pointer, or a flag
_FILE = Path(__file__).with_name("latencies.toml")
OWN, HOST_WAY = "own", "host"


def latencies(q: Query) -> list[Limit]:
    """Return the latency limits that the system alone gives a case: bounds where only latency is measured, and what
    was seen elsewhere on such devices and ways."""
    if q.nodes > 1:
        return []
    return [*_bounds(q), *_seen(q)]


def way(q: Query) -> str:
    """Return how a case's two ends are joined: `own` memory, `host` memory, or the kind of link; empty where another
    device lies between, or nothing is known."""
    if q.source_memory != "device" or q.target_memory != "device":
        return HOST_WAY
    if len(q.names) < 2:
        return OWN
    a, b = q.names[0], q.names[-1]
    graph = q.graph()
    if not {a, b} <= set(graph.vertices):
        return ""
    found = paths.shortest(graph, a, b)
    if found is None or set(found[1:-1]) & set(graph.devices.values()):
        return ""
    fabric = graph.scope == FABRIC
    kinds = {link.kind for link in q.system.links_of(a) if (link.kind in FABRIC_KINDS) == fabric}
    kinds -= {"internal"}
    return kinds.pop() if len(kinds) == 1 else ""


def _bounds(q: Query) -> list[Limit]:
    if q.pattern == "pointer_chase":
        return _load(q)
    if q.pattern == "flag_pingpong":
        if len(q.names) < 2:
            return _cycle(q)
        # Half a round trip: the mean of both directions.
        a, b = [q.names[0]], [q.names[-1]]
        there, back = (_across(q.graph(q.outer), *ends, _WORD_BYTES) for ends in ((a, b), (b, a)))
        if there is None or back is None:
            return []
        return [_wire((there[0] + back[0]) / 2, f"a flag of {_WORD_BYTES} bytes, {there[1]}")]
    if q.pattern == "empty_op":
        if q.clock == "event":
            return _cycle(q)
        hosts = [host.name for host in q.system.hosts]
        there = _across(q.graph(HOST), hosts, q.names, 1)
        back = _across(q.graph(HOST), q.names, hosts, 1)
        if there is None or back is None:
            return _cycle(q)
        return [_wire(there[0] + back[0], f"a byte to start it and a byte to tell its end, {there[1]}")]
    return []


def _load(q: Query) -> list[Limit]:
    """Return the bound of a dependent load: its pointer comes from wherever the ring lies."""
    walker = q.names[0]
    if q.source_memory in HOST_MEMORY:
        found = _across(q.graph(HOST), hosts_for(q.system, walker, q.source_node), [walker], _WORD_BYTES)
    elif q.source_memory == "device" and len(q.names) > 1:
        found = _across(q.graph(q.outer), [q.names[-1]], [walker], _WORD_BYTES)
    else:
        return _cycle(q)
    return [] if found is None else [_wire(found[0], f"a pointer of {_WORD_BYTES} bytes, {found[1]}")]


def _across(graph: Wires, sources: Sequence[str], targets: Sequence[str], count: int) -> tuple[float, str] | None:
    """Return the ns that `count` bytes take over all ways at once, and over what; None where a rate is unknown."""
    known = set(graph.vertices)
    tails, heads = [s for s in sources if s in known], [t for t in targets if t in known]
    if not tails or not heads:
        return None
    rate = cuts.max_flow_between(graph, tails, heads).value
    if rate is None or not 0 < rate < float("inf"):
        return None
    return count / rate * 1e9, f"{show(tails)} to {show(heads)} at {show_rate(rate)} over the {graph.scope} links"


def _wire(latency_ns: float, basis: str) -> Limit:
    return of_latency("wire_time", latency_ns, basis)


def _cycle(q: Query) -> list[Limit]:
    cycles = {name: figure.value for name in q.names if (figure := q.device(name).cycle) is not None}
    if len(cycles) < len(q.names):
        return []
    name = min(cycles, key=lambda key: cycles[key])
    return [of_latency("cycle", cycles[name], f"one cycle of {name}")]


def of_latency(rule: str, latency_ns: float, basis: str, *, kind: str | None = None, source: str = "") -> Limit:
    """Return a latency limit of a rule in the table."""
    known = RULES[rule]
    return Limit(rule, kind or known.kind, None, basis, source or known.source, latency_ns=latency_ns)


@dataclass(frozen=True)
class _Seen:
    """An entry of the table, with its texts."""

    kind: str
    patterns: Sequence[str]
    transport: str
    model: str
    way: str
    source: str
    value: str
    most: str = ""

    @functools.cached_property
    def latency_ns(self) -> float:
        return parse(self.value, TIME)

    @functools.cached_property
    def most_bytes(self) -> float:
        return parse(self.most, SIZE) if self.most else float("inf")


@functools.cache
def _table() -> tuple[_Seen, ...]:
    return tuple(_Seen(**entry) for entry in read_toml(_FILE, "latencies that were seen")["latency"])


def _seen(q: Query) -> list[Limit]:
    """Return what papers and tools saw of this transport and pattern on devices of the model, joined like these."""
    entries = [e for e in _table() if q.pattern in e.patterns and q.transport in (None, e.transport)]
    models = [q.device(name).model or "" for name in q.names]
    entries = [entry for entry in entries if all(entry.model in model for model in models)]
    if not PATTERNS[q.pattern].latency_only:
        # Only small messages take the latency alone; without a size nothing is said of a time.
        entries = [entry for entry in entries if q.size_bytes is not None and q.size_bytes <= entry.most_bytes]
    if not entries:
        return []
    joined = way(q)
    return [
        of_latency("seen_latency", e.latency_ns, f"{e.model}, {e.way}", kind=e.kind, source=e.source)
        for e in entries
        if e.way == joined
    ]
