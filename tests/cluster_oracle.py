"""Drawn clusters, what any routing reaches on them, and when unlike flows end: by code that shares none with ours.

`python tests/cluster_oracle.py 300 [SEED]` tries as many descriptions. Of an alltoall a linear program over every link
says what any routing reaches; of an alltoallv, flows are played out one by one, to their ways in `simulate/per_flow.py`
added what lies inside nodes. Bounds are held against the program and against all that `simulate` says.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

from linkgauge.errors import UsageError
from linkgauge.expect import limits
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.simulate import Placement, Request, answers, laid_out, of_system, parse_rules
from linkgauge.simulate.traffic import TRAFFIC
from linkgauge.system import from_toml
from simulate.per_flow import Small, filled

GB = 1e9
SAME = ("alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather",
        "one_to_all", "all_to_one", "ring_shift")  # fmt: skip
"""Patterns whose goodput both `expect` and `simulate` give."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster by its figures, rates in GB/s. `behind`: how NICs hang on GPUs."""

    small: Small
    in_domain: int
    nvlink: float  # of each GPU to a switch, or of each link of a mesh
    mesh: bool
    behind: str  # "nothing", "own" PCIe switch, "host" of all, or "shared" switches of two ports
    gpu_link: float
    nic_link: float
    up_link: float
    forwarded: bool

    @property
    def nodes(self) -> int:
        return sum(self.small.nodes)

    def text(self) -> str:
        """The description."""
        s, gpus, nics = self.small, self.small.gpus, self.small.ports
        lines = ['name = "drawn"\nsource = "made up"', f'[[device]]\nname = "d0..{gpus - 1}"']
        lines.append(f'[[nic]]\nname = "n0..{nics - 1}"\nport_rate = "{s.port_rate} GB/s"')
        if gpus > 1 or not self.mesh:
            ends = f'mesh = ["d0..{gpus - 1}"]' if self.mesh else f'from = ["d0..{gpus - 1}"]\nto = ["s"]'
            lines += [] if self.mesh else ['[[switch]]\nname = "s"']
            lines.append(f'[[link]]\nkind = "nvlink"\ndata_rate = "{self.nvlink} GB/s"\n{ends}')
        hops = {hop for gpu in range(gpus) for hop in itertools.pairwise(self.way_out(gpu))}
        for name in sorted({end for hop in hops for end in hop if end[0] in "ph"}):
            lines.append(f'[[{"host" if name[0] == "h" else "switch"}]]\nname = "{name}"')
        for a, b in sorted(hops):
            lines.append(f'[[link]]\nkind = "pcie"\na = "{a}"\nb = "{b}"\ndata_rate = "{self.rate_of(a, b)} GB/s"')
        figures: dict[str, Any] = {
            "nodes": self.nodes,
            "switches_per_node": s.homes,
            "nodes_per_domain": self.in_domain,
        }
        figures["rail_forwarding"] = 1 if self.forwarded else None
        if s.kind == "fat_tree":
            figures |= {"nodes_per_leaf": s.block, "leaf_up_ports": s.up * s.spines, "spine_switches": s.spines}
            if s.groups > 1:
                figures |= {"nodes_per_pod": s.nodes[0], "core_links_per_spine": s.core}
        else:
            figures |= {"groups": s.groups, "nodes_per_group": s.nodes[0]}
            figures["links_per_group_pair"] = s.pair if s.groups > 1 else None
            if s.kind == "dragonfly":
                figures |= {"switches_per_group": s.leaves, "switch_endpoint_ports": s.block * nics // s.homes}
                figures["rows_per_group"] = s.rows
            else:
                figures |= {"leaf_switches_per_group": s.leaves, "spine_switches_per_group": s.spines,
                            "nodes_per_leaf": s.block, "leaf_up_ports": s.up * s.spines}  # fmt: skip
        lines.append(f'[network]\ntopology = "{s.kind}"\nport_rate = "{s.link_rate} GB/s"')
        lines += [f"{name} = {value}" for name, value in figures.items() if value is not None]
        return "\n".join(lines) + "\n"

    def way_out(self, gpu: int) -> list[str]:
        """From a GPU to its NIC: vertices."""
        port = gpu // (self.small.gpus // self.small.ports)
        between = {"nothing": None, "own": [f"p{port}"], "host": ["h0"], "shared": [f"p{port // 2}", "h0"]}[self.behind]
        return [] if between is None else [f"d{gpu}", *between, f"n{port}"]

    def rate_of(self, a: str, b: str) -> float:
        return self.gpu_link if a[0] == "d" else self.nic_link if b[0] == "n" else self.up_link

    @property
    def domain_rate(self) -> float | None:
        """What each GPU exchanges with its domain."""
        if self.mesh:
            return self.nvlink * (self.small.gpus - 1) if self.small.gpus > 1 else None
        return self.nvlink if self.small.gpus * self.in_domain > 1 else None

    def domain(self, place: tuple[int, int]) -> tuple[int, int]:
        return place[0], place[1] // self.in_domain


def drawn(seed: int) -> Cluster:
    """A tree, dragonfly or dragonfly+ of up to eight nodes, the last group perhaps shorter."""
    r = random.Random(seed)
    kind = ("fat_tree", "dragonfly", "dragonfly+")[seed % 3]
    nics = r.choice([1, 2, 2, 4])
    gpus = nics * r.choice([1, 1, 2]) if nics < 4 else 4
    homes = r.choice([1, nics])
    block, blocks = r.randint(1, 3), r.randint(1, 3)
    groups = r.randint(1, 4)
    while groups * blocks * block > 9 and groups > 1:
        groups -= 1
    each = blocks * block
    last = r.randint(1, each) if groups > 1 and kind != "fat_tree" else each
    leaves = blocks * homes
    rows = 2 if kind == "dragonfly" and leaves % 2 == 0 and r.random() < 0.3 else 1
    small = Small(
        kind, groups, (*(each,) * (groups - 1), last), gpus, nics, float(r.choice([4, 12, 25, 50])),
        float(r.choice([6, 12, 25])), leaves, homes, block, r.randint(1, 3), r.randint(1, 2), r.randint(1, 4),
        r.randint(1, 2), rows,
    )  # fmt: skip
    wide = gpus > 1 and r.random() < 0.7
    mesh = r.random() < 0.3
    return Cluster(
        small, r.choice([1, 1, 2, 3]), float(r.choice([10, 50, 200])), mesh,
        r.choice(["nothing", "own", "host", "shared", "shared"]), float(r.choice([8, 16, 32, 64])),
        float(r.choice([8, 16, 32, 64])), float(r.choice([8, 16, 32, 64])),
        wide and gpus == nics and r.random() < 0.4,
    )  # fmt: skip


def any_routing(c: Cluster, chosen: list[int]) -> float:
    """The most GB/s at which each GPU of these nodes sends each other one as much, by any ways at all."""
    s = c.small
    places = s.places()
    arcs: dict[tuple[Any, Any], float] = collections.defaultdict(float)

    def both(a: Any, b: Any, rate: float) -> None:
        arcs[a, b] += rate
        arcs[b, a] += rate

    gpus = []
    for place in [places[i] for i in chosen]:
        for gpu in range(s.gpus):
            gpus.append((place, gpu))
            if c.domain_rate is None or (c.in_domain == 1 and s.gpus == 1):
                both((place, gpu), ("domain", c.domain(place)), 1e4)
            elif c.mesh and c.in_domain == 1:
                for other in range(gpu):
                    both((place, gpu), (place, other), c.nvlink)
            else:
                both((place, gpu), ("domain", c.domain(place)), c.domain_rate)
            port = gpu // (s.gpus // s.ports)
            if c.behind == "nothing":  # by any NIC, as nothing says otherwise
                for number in range(s.ports):
                    both((place, gpu), (place, f"n{number}"), 1e4)
            else:
                way = [(place, gpu), *((place, name) for name in c.way_out(gpu)[1:])]
                for a, b in itertools.pairwise(way):
                    first = f"d{gpu}" if a == (place, gpu) else a[1]
                    arcs[a, b] = arcs[b, a] = c.rate_of(first, b[1])
            arcs[(place, f"n{port}"), ("leaf", *s.leaf(place, port))] = s.port_rate
            arcs[("leaf", *s.leaf(place, port)), (place, f"n{port}")] = s.port_rate
    for g in range(s.groups):
        if s.kind == "dragonfly":
            for a, b in itertools.permutations(range(s.leaves), 2):
                for link in s.inside(g, a, b):
                    arcs[("leaf", g, link[2]), ("leaf", g, link[3])] = s.link_rate
        else:
            for leaf, spine in itertools.product(range(s.leaves), range(s.spines)):
                both(("leaf", g, leaf), ("spine", g, spine), s.link_rate * s.up)
        if s.kind == "fat_tree" and s.groups > 1:
            for spine in range(s.spines):
                both(("spine", g, spine), ("core", spine), s.link_rate * s.core)
    word = "leaf" if s.kind == "dragonfly" else "spine"
    for g, h in itertools.permutations(range(s.groups), 2) if s.kind != "fat_tree" else ():
        for router in s.routers(g, h):
            arcs[(word, g, router), ("link", g, h)] += s.link_rate
        for router in s.routers(h, g):
            arcs[("link", g, h), (word, h, router)] += s.link_rate
    return _concurrent(dict(arcs), gpus)


def _concurrent(arcs: dict[tuple[Any, Any], float], ends: list[Any]) -> float:
    vertices = list(dict.fromkeys(v for arc in arcs for v in arc))
    place, size, count = {v: i for i, v in enumerate(vertices)}, len(arcs), len(ends)
    columns = np.arange(size)
    signs = np.concatenate([-np.ones(size), np.ones(size)])
    rows = np.array([place[tail] for tail, _ in arcs] + [place[head] for _, head in arcs])
    step = scipy.sparse.csr_array((signs, (rows, np.concatenate([columns, columns]))), shape=(len(vertices), size))
    gains = np.zeros((count * len(vertices), 1))
    for number, source in enumerate(ends):
        for target in ends:
            if target != source:
                gains[number * len(vertices) + place[target]] -= 1.0
                gains[number * len(vertices) + place[source]] += 1.0
    balance = scipy.sparse.hstack([scipy.sparse.block_diag([step] * count), gains]).tocsr()
    used = scipy.sparse.hstack([scipy.sparse.hstack([scipy.sparse.eye(size)] * count), np.zeros((size, 1))]).tocsr()
    cost = np.zeros(count * size + 1)
    cost[-1] = -1.0
    done = scipy.optimize.linprog(
        cost, A_ub=used, b_ub=np.array(list(arcs.values())), A_eq=balance, b_eq=np.zeros(balance.shape[0]),
        method="highs",
    )  # fmt: skip
    assert done.status == 0, done.message
    return -float(done.fun)


def ends_at(c: Cluster, nodes: list[int], flows: list[tuple[int, int, float]], direct: float) -> float:
    """Seconds until all flows between ranks are through, at max-min fair rates; bytes of flows in units of 10^9."""
    s = c.small
    places = s.places()
    names: dict[Any, int] = {}
    capacity: list[float] = []
    uses = []
    for source, target, _ in flows:
        parts: dict[int, float] = collections.defaultdict(float)

        def passes(link: Any, rate: float, part: float = 1.0, parts: dict[int, float] = parts) -> None:
            if link not in names:
                names[link] = len(names)
                capacity.append(rate)
            parts[names[link]] += part

        (sp, sg), (tp, tg) = ((places[nodes[rank // s.gpus]], rank % s.gpus) for rank in (source, target))
        uses.append(parts)
        own = c.domain_rate or 1e9
        if c.domain(sp) == c.domain(tp):
            passes(("gpu out", sp, sg), own)
            passes(("gpu in", tp, tg), own)
            continue
        by = tg if c.forwarded else sg
        if by != sg:  # the GPU on the target's rail has it first
            passes(("gpu out", sp, sg), own)
            passes(("gpu in", sp, by), own)
        ports = [gpu // (s.gpus // s.ports) for gpu in (by, tg)]
        for place, gpu, way in ((sp, by, "out"), (tp, tg, "in")):
            for a, b in itertools.pairwise(c.way_out(gpu)):
                passes((way, place, a, b), c.rate_of(a, b))
        passes(("out", sp, ports[0]), s.port_rate)
        passes(("in", tp, ports[1]), s.port_rate)
        for part, links in s.ways(s.leaf(sp, ports[0]), s.leaf(tp, ports[1]), direct):
            for link in links:
                passes(link, s.capacity(link), part)
    table = np.zeros((len(flows), len(names)))
    for row, parts in enumerate(uses):
        table[row, list(parts)] = list(parts.values())
    left = np.array([flow[2] for flow in flows])
    now, going, rates = 0.0, left > 0, np.zeros(len(flows))
    while going.any():
        rates = filled(table, np.array(capacity), going)
        step = float((left[going] / rates[going]).min())
        now += step
        over = going & (left <= rates * step * (1 + 1e-9))
        left = left - rates * step
        going &= ~over
    return now


@dataclasses.dataclass
class Found:
    """What a drawn cluster showed: bounds below what is reached, how far times were apart, how much was compared."""

    broken: list[str] = dataclasses.field(default_factory=list)
    apart: float = 0.0
    bounds: int = 0
    times: int = 0
    called_bounds: int = 0


def tried(seed: int) -> Found:
    """Hold everything against everything on one drawn cluster."""
    c, r, found = drawn(seed), random.Random(seed + 1), Found()
    system = from_toml(c.text())
    fabric = of_system(system)
    gpus = c.small.gpus
    count = r.randint(2, c.nodes) if c.nodes > 1 else 1
    if count < 2 and gpus < 2:
        return found
    lowest: dict[tuple[str, str], float] = {}
    for pattern, transport in itertools.product(SAME, ("", "mpi")):
        if count > 1:
            case = {"pattern": pattern, "nodes": count, "transport": transport or None}
            values = [
                one.value_bytes_per_s for one in limits(system, case) if one.kind == "upper bound" and not one.without
            ]
            lowest[pattern, transport] = min((value for value in values if value is not None), default=float("inf"))
    for placed in ("packed", "random", "spread"):
        layout = laid_out(fabric, count * gpus, Placement(placed, "", seed))
        if count > 1:
            reached = any_routing(c, layout.nodes.tolist()) * (count * gpus - 1) * GB
            found.bounds += 1
            if lowest["alltoall", "mpi"] < reached * (1 - 1e-6):
                found.broken.append(f"{seed}: alltoall, {placed}: {lowest['alltoall', 'mpi']:g} below {reached:g}")
            for said in _simulated(layout, SAME):
                found.bounds += 1
                if lowest[said[0], ""] < said[3] * (1 - 1e-6):
                    found.broken.append(f"{seed}: {said}, {placed}: bound {lowest[said[0], '']:g}")
        _played(c, layout, r, found)
    return found


def _simulated(layout: Any, patterns: tuple[str, ...]) -> Iterator[tuple[str, str, str, float]]:
    for pattern in patterns:
        for algorithm in TRAFFIC[pattern]:
            with contextlib.suppress(UsageError):  # halving asks for a power of two
                for one in answers(layout, Request(pattern, 1 << 20, algorithm), parse_rules("", layout.fabric)):
                    yield pattern, algorithm, one.rule, one.goodput


def _played(c: Cluster, layout: Any, r: random.Random, found: Found) -> None:
    n = layout.ranks
    rows = ";".join(",".join(str(r.choice([0, 1, 1, 2, 7])) for _ in range(n)) for _ in range(n))
    text = r.choice(["zipf:1.2", "zipf:0.5", f"moe:{2 * n}:2", rows, "uniform"])
    size = 1 << 20
    try:
        listed = pair_bytes("alltoallv", n, size, text)
    except UsageError:  # nothing goes from any to another
        return
    flows = [(a, b, moved / GB) for a, b, moved in listed if a != b and moved]
    rule, direct = ("best", 1.0) if c.small.kind == "fat_tree" else r.choice(
        [("minimal", 1.0), ("third_group", 0.0), ("mixed:0.4", 0.4)]
    )  # fmt: skip
    try:
        (said,) = answers(layout, Request("alltoallv", size, distribution=text), parse_rules(rule, layout.fabric))
    except UsageError:  # all stays in a domain of unknown rate
        return
    wanted = ends_at(c, layout.nodes.tolist(), flows, direct)
    found.times += 1
    found.called_bounds += said.bound
    apart = said.seconds / wanted - 1
    found.apart = max(found.apart, apart if said.bound else abs(apart))


def main() -> None:
    given = [int(word) for word in sys.argv[1:3]]
    count, first = [*given, *(300, 0)[len(given) :]]
    found = [tried(seed) for seed in range(first, first + count)]
    for line in itertools.chain.from_iterable(one.broken for one in found):
        print(line)
    print(said_of(found))


def said_of(found: Sequence[Found]) -> str:
    """What all of them showed, in a line."""
    return (
        f"{len(found)} clusters: {sum(one.bounds for one in found)} values held against bounds, "
        f"{sum(len(one.broken) for one in found)} above; {sum(one.times for one in found)} times, of which "
        f"{sum(one.called_bounds for one in found)} called bounds, {max(one.apart for one in found):.3%} apart at most"
    )


if __name__ == "__main__":
    main()
