"""What any schedule can reach on a drawn system, by plain linear programs that share no code with the product's rules.

`python tests/oracle.py 300 [SEED]` tries as many systems, from a seed on.

Every flow is a commodity of its own, every tree is listed, a throughput is a limit on what enters a vertex. Two nodes
are two copies of the node, joined where their NICs meet.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

from linkgauge.expect import limits
from linkgauge.system import System, from_toml
from trees import arborescences

GB = 1e9
Arc = tuple[str, str]
FABRIC, NODE, HOST, MACHINE = "fabric", "node", "host", "machine"
MOST_TREES = 3000

# Rules whose value is the optimum over the links that their basis names, where devices alone repeat data.
EXACT = ("max_flow", "concurrent_flow", "tree_packing", "rooted_cut", "scatter_cut", "host_links", "allreduce_trees")
ONE_NODE = (
    "unidirectional", "pingpong", "bidirectional", "ring_shift", "pairs_unidirectional", "pairs_bidirectional",
    "pairs_pingpong", "alltoall", "scatter", "gather", "one_to_all", "all_to_one", "broadcast", "reduce", "allgather",
    "reduce_scatter", "allreduce", "host_to_device", "device_to_host",
)  # fmt: skip
SEVERAL = ("unidirectional", "bidirectional", "alltoall", "broadcast", "allgather", "reduce_scatter", "allreduce")


def drawn(chance: random.Random) -> str:
    """A description: devices joined directly, by switches, or both; perhaps hosts and NICs; directions often unlike."""
    devices = chance.randint(2, 5)
    names = [f"d{i}" for i in range(devices)]
    text = f'name = "drawn"\nsource = "made up"\n[[device]]\nname = "d0..{devices - 1}"\n'
    text += "routes = true\n" if chance.random() < 0.2 else ""

    def link(kind: str, a: str, b: str) -> str:
        back = f'back_rate = "{chance.randint(1, 9)} GB/s"\n' if chance.random() < 0.4 else ""
        return f'[[link]]\nkind = "{kind}"\na = "{a}"\nb = "{b}"\ndata_rate = "{chance.randint(1, 9)} GB/s"\n{back}'

    links = ""
    for pair in itertools.combinations(names, 2):
        if chance.random() < (0.5 if devices < 5 else 0.3):
            links += link("nvlink", *pair)
    for index in range(chance.choice([0, 0, 1, 1, 2])):
        text += f'[[switch]]\nname = "s{index}"\n'
        text += f'throughput = "{chance.randint(2, 20)} GB/s"\n' if chance.random() < 0.4 else ""
        joined = [name for name in names if chance.random() < 0.8]
        links += "".join(link("nvlink", name, f"s{index}") for name in joined)
        links += link("nvlink", "s0", "s1") if index and chance.random() < 0.3 else ""
    hosts = chance.choice([0, 1, 2])
    for index in range(hosts):
        text += f'[[host]]\nname = "h{index}"\nnuma = {index}\n'
    for name in names if hosts else []:
        links += link("pcie", name, f"h{chance.randrange(hosts)}")
    links += link("upi", "h0", "h1") if hosts == 2 else ""
    for index in range(chance.choice([0, 1, 2])):
        text += f'[[nic]]\nname = "n{index}"\nport_rate = "{chance.randint(1, 9)} GB/s"\n'
        ends = [f"h{i}" for i in range(hosts)] or names
        links += link("pcie", f"n{index}", chance.choice(ends))
    return text + links


class Links:
    """The arcs of some of a system's links in GB/s, and what may enter vertices that have a throughput."""

    def __init__(self, system: System, scope: str, copies: int = 1) -> None:
        kinds = {node.name: node.kind for node in system.nodes}
        self.arcs: dict[Arc, float] = {}
        self.limits: dict[str, float] = {}
        self.hosts: list[str] = [node.name for node in system.nodes if node.kind == "host"]
        for copy in range(copies):
            mark = "" if copies == 1 else f"@{copy}"
            for one in system.links:
                ends = {kinds[one.a], kinds[one.b]}
                peer = one.kind in ("nvlink", "xgmi", "sli") and ends <= {"device", "switch"}
                if (scope == FABRIC and not peer) or (scope == HOST and peer) or (scope != MACHINE and "nic" in ends):
                    continue
                back = one.back_rate or one.data_rate
                assert one.data_rate is not None
                assert back is not None
                for arc, figure in (((one.a, one.b), one.data_rate), ((one.b, one.a), back)):
                    arc = (arc[0] + mark, arc[1] + mark)
                    self.arcs[arc] = self.arcs.get(arc, 0.0) + figure.value * one.count / GB
            for node in system.nodes:
                if node.throughput is not None:
                    self.limits[node.name + mark] = node.throughput.value / GB
                if node.port_rate is not None and scope == MACHINE:
                    rate = node.port_rate.value / GB
                    self.arcs[node.name + mark, "*"] = self.arcs["*", node.name + mark] = rate

    def rows(self, used: Any) -> tuple[Any, Any]:
        """What columns use of every arc, of which `used` has a row each, and the limits of arcs and of vertices."""
        into = [[float(head == name) for _, head in self.arcs] for name in self.limits]
        matrix = scipy.sparse.vstack([used, np.array(into).reshape(-1, len(self.arcs)) @ used])
        return matrix, np.array([*self.arcs.values(), *self.limits.values()])

    def reaches(self, start: str, passing: set[str] | None = None) -> set[str]:
        found, queue = {start}, [start]
        while queue:
            tail = queue.pop()
            if tail == start or passing is None or tail in passing:
                new = [b for a, b in self.arcs if a == tail and b not in found]
                found.update(new)
                queue.extend(new)
        return found

    def at_once(self, demands: Mapping[tuple[str, str], float], *, equal: bool = True) -> float:
        """The largest x at which all demands times x flow, each a flow of its own; not `equal`: the sum of flows."""
        if not self.arcs:
            return 0.0
        vertices = list(dict.fromkeys(v for arc in (*self.arcs, *demands) for v in arc))
        place, size = {v: i for i, v in enumerate(vertices)}, len(self.arcs)
        step = np.zeros((len(vertices), size))
        for column, (tail, head) in enumerate(self.arcs):
            step[place[tail], column], step[place[head], column] = -1.0, 1.0
        gains = np.zeros((len(demands) * len(vertices), 1 if equal else len(demands)))
        for number, ((source, target), amount) in enumerate(demands.items()):
            for vertex, sign in ((source, amount), (target, -amount)):
                gains[number * len(vertices) + place[vertex], 0 if equal else number] += sign
        balance = scipy.sparse.hstack([scipy.sparse.block_diag([step] * len(demands)), gains])
        used = scipy.sparse.hstack([scipy.sparse.eye(size)] * len(demands) + [np.zeros((size, gains.shape[1]))])
        cost = np.zeros(balance.shape[1])
        cost[-gains.shape[1] :] = -1.0
        return solved(cost, *self.rows(used.tocsr()), balance, np.zeros(balance.shape[0]))

    def trees(self, names: Sequence[str], root: str) -> Iterator[Counter[Arc]]:
        """What each tree out of `root` over `names` uses; its steps pass through others, which repeat nothing."""
        ways = {pair: list(self._ways(*pair, set(names))) for pair in itertools.permutations(names, 2)}
        for tree in arborescences([pair for pair, found in ways.items() if found], names, root):
            for taken in itertools.product(*(ways[step] for step in tree)):
                yield Counter(itertools.chain(*taken))

    def _ways(self, source: str, target: str, stations: set[str]) -> Iterator[tuple[Arc, ...]]:
        queue = [(source,)]
        while queue:
            path = queue.pop()
            for tail, head in self.arcs:
                if tail == path[-1] and head == target:
                    yield tuple(itertools.pairwise((*path, head)))
                elif tail == path[-1] and head not in path and head not in stations:
                    queue.append((*path, head))

    def turned(self) -> Links:
        """The same with every arc turned round; what may enter a vertex is then what may leave it."""
        other = object.__new__(_Turned)
        other.arcs, other.limits = {(b, a): rate for (a, b), rate in self.arcs.items()}, self.limits
        return other

    def packed(self, shares: Mapping[str, float], names: Sequence[str], *, reduced: bool = False) -> float | None:
        """The most that trees carry in all, of each root its share; `reduced`: what trees bring to roots first.

        None where they are too many to list.
        """
        if not self.arcs:
            return 0.0
        out = [(v, tree) for v in shares for tree in itertools.islice(self.trees(names, v), MOST_TREES)]
        listed = ((v, tree) for v in shares for tree in self.turned().trees(names, v))
        turned = list(itertools.islice(listed, MOST_TREES)) if reduced else []
        into = [(v, Counter({(b, a): n for (a, b), n in tree.items()})) for v, tree in turned]
        columns = [*out, *into]
        if len(columns) >= MOST_TREES:
            return None
        used = np.array([[float(tree[arc]) for _, tree in columns] + [0.0] for arc in self.arcs])
        rows = [[float(i < len(out)) for i in range(len(columns))] + [-1.0]]
        for root, share in shares.items():
            if reduced:
                signs = [1.0 if i < len(out) else -1.0 for i in range(len(columns))]
                rows.append([(v == root) * sign for (v, _), sign in zip(columns, signs, strict=True)] + [0.0])
            else:
                rows.append([float(v == root) for v, _ in columns] + [-share])
        cost = np.zeros(len(columns) + 1)
        cost[-1] = -1.0
        return solved(cost, *self.rows(used), np.array(rows), np.zeros(len(rows)))


class _Turned(Links):
    def rows(self, used: Any) -> tuple[Any, Any]:
        out = [[float(tail == name) for tail, _ in self.arcs] for name in self.limits]
        matrix = scipy.sparse.vstack([used, np.array(out).reshape(-1, len(self.arcs)) @ used])
        return matrix, np.array([*self.arcs.values(), *self.limits.values()])


def solved(cost: Any, used: Any, room: Any, equal: Any, right: Any) -> float:
    done = scipy.optimize.linprog(cost, A_ub=used, b_ub=room, A_eq=equal, b_eq=right, method="highs")
    assert done.status == 0, done.message
    return -float(done.fun)


def optimum(links: Links, case: Mapping[str, Any]) -> float | None:
    """The goodput in GB/s of the best schedule over these links in which devices alone repeat and add data."""
    pattern, ranks = case["pattern"], [f"d{ordinal}" for ordinal in case["devices"]]
    names, n, weights = list(dict.fromkeys(ranks)), len(ranks), Counter(ranks)
    root = ranks[case.get("root", 0)]
    ahead = list(zip(ranks, (*ranks[1:], ranks[0]), strict=True))
    apart = list(zip(ranks[::2], ranks[1::2], strict=False))
    back = [(b, a) for a, b in apart]
    together = {
        "unidirectional": ahead[:1], "bidirectional": ahead, "ring_shift": ahead, "pairs_unidirectional": apart,
        "pairs_bidirectional": apart + back, "pairs_pingpong": apart + back,
        "alltoall": list(itertools.permutations(ranks, 2)),
        "scatter": [(root, v) for v in ranks], "one_to_all": [(root, v) for v in ranks],
        "gather": [(v, root) for v in ranks], "all_to_one": [(v, root) for v in ranks],
    }  # fmt: skip
    if pattern == "pingpong":
        both = [links.at_once({pair: 1.0}) for pair in ahead]
        return 2 / sum(1 / rate for rate in both) if all(both) else 0.0
    if pattern in together:
        demands = {pair: float(count) for pair, count in Counter(together[pattern]).items() if pair[0] != pair[1]}
        factor = {"alltoall": n - 1, "one_to_all": n - 1, "all_to_one": n - 1, "scatter": n, "gather": n}
        if pattern == "pairs_pingpong":
            # Each pair alternates, so that what a way carries over the whole time is half of the goodput.
            alone = [[links.at_once({pair: 1.0}) for pair in (one, one[::-1])] for one in apart if one[0] != one[1]]
            least = min((2 / sum(1 / rate for rate in ways) for ways in alone if all(ways)), default=math.inf)
            return min(2 * links.at_once(demands), least)
        return factor.get(pattern, 1) * links.at_once(demands) if demands else None
    if pattern in ("host_to_device", "device_to_host"):
        hosts = [host for host in links.hosts if any(host in arc for arc in links.arcs)]
        if not hosts:
            return None
        inward = pattern == "host_to_device"
        wide = links if inward else links.turned()
        for host in hosts:
            wide.arcs["*all", host] = 1e3
        return n * wide.at_once({("*all", v): float(count) for v, count in weights.items()})
    if len(names) < 2:
        return None
    if pattern in ("broadcast", "reduce"):
        return (links if pattern == "broadcast" else links.turned()).packed({root: 1.0}, names)
    if pattern in ("allgather", "reduce_scatter"):
        turned = links if pattern == "allgather" else links.turned()
        return turned.packed({v: count / n for v, count in weights.items()}, names)
    return links.packed(dict.fromkeys(names, 1.0), names, reduced=True)


def binding(system: System, case: Mapping[str, Any]) -> str:
    """The links that a kernel is bound by: the fabric's where hardware joins all devices over them, else the node's."""
    if case["pattern"] in ("host_to_device", "device_to_host"):
        return HOST
    fabric = Links(system, FABRIC)
    names = {f"d{ordinal}" for ordinal in case["devices"]}
    routing = {node.name for node in system.nodes if node.routes or node.kind == "switch"}
    return FABRIC if all(names <= fabric.reaches(name, routing) for name in names) else NODE


def over_two_nodes(system: System, case: Mapping[str, Any]) -> float | None:
    """The best goodput on two nodes joined by a network that limits nothing."""
    links, pattern = Links(system, MACHINE, copies=2), case["pattern"]
    names = [f"d{ordinal}" for ordinal in case["devices"]]
    every, n = [f"{name}@{copy}" for copy in (0, 1) for name in names], 2 * len(names)
    across = [(f"{name}@0", f"{name}@1") for name in names]
    if pattern in ("unidirectional", "bidirectional"):
        both = [*across, *((b, a) for a, b in across)] if pattern == "bidirectional" else across
        return len(names) * links.at_once(dict.fromkeys(both, 1.0))
    if pattern == "alltoall":
        return (n - 1) * links.at_once(dict.fromkeys(itertools.permutations(every, 2), 1.0))
    if len(every) > 4:
        return None
    if pattern == "broadcast":
        return links.packed({every[0]: 1.0}, every)
    if pattern == "allreduce":
        return links.packed(dict.fromkeys(every, 1.0), every, reduced=True)
    return (links if pattern == "allgather" else links.turned()).packed(dict.fromkeys(every, 1 / n), every)


def faults(seed: int, share: float = 1.0) -> tuple[list[str], int]:
    """Hold the limits of one drawn system to the optima; return what is wrong, and how many values were looked at.

    `share` is how much of the patterns is tried.
    """
    chance = random.Random(seed)
    text = drawn(chance)
    system = from_toml(text)
    count = len(system.devices)
    wrong: list[str] = []
    looked = 0
    for pattern in ONE_NODE:
        devices = chance.sample(range(count), chance.randint(2, count))
        if chance.random() < 0.2 and "pair" not in pattern:
            devices.append(chance.choice(devices))
        if pattern in ("unidirectional", "pingpong", "bidirectional"):
            devices = devices[:2]
        if pattern.startswith("pairs_"):
            devices = devices[: len(devices) // 2 * 2]
        case: dict[str, Any] = {"pattern": pattern, "devices": tuple(devices)}
        if pattern in ("broadcast", "reduce", "scatter", "gather", "one_to_all", "all_to_one"):
            case["root"] = chance.randrange(len(devices))
        if chance.random() > share:
            continue
        best = {scope: optimum(Links(system, scope), case) for scope in (FABRIC, HOST, NODE)}
        most = best[binding(system, case)]
        for c in limits(system, case):
            value = (c.value_bytes_per_s or 0.0) / GB
            scope = next((word for word in best if f"over the {word} links" in c.basis), "")
            words = f"seed {seed}: {case}: {c.rule} ({c.kind}, {c.basis}) is {value:.9g}"
            if most is not None:
                looked += 1
                if c.kind == "upper bound" and value < most * (1 - 1e-6):
                    wrong.append(f"{words}, and {most:.9g} is reached")
                if c.kind == "achievable schedule" and value > max(most, best[NODE] or 0.0) * (1 + 1e-6):
                    wrong.append(f"{words}, and nothing passes {most:.9g}")
            exact = best.get(scope)
            if c.rule in EXACT and exact is not None and not (c.rule == "max_flow" and pattern != "pingpong" and
                                                              pattern != "unidirectional"):  # fmt: skip
                above = pattern == "pairs_pingpong" and c.rule == "concurrent_flow" and value >= exact
                if not above and not math.isclose(value, exact, rel_tol=1e-6) and "held to the bound" not in c.basis:
                    wrong.append(f"{words}, the optimum {exact:.9g}")
        for c in limits(system, {**case, "transport": "ccl"}):
            value = (c.value_bytes_per_s or 0.0) / GB
            if c.kind == "upper bound" and most is not None and value < most * (1 - 1e-6):
                wrong.append(f"seed {seed}: ccl {case}: {c.rule} ({c.basis}) is {value:.9g}, and {most:.9g} is reached")
    for pattern in SEVERAL if any(node.kind == "nic" for node in system.nodes) else ():
        case = {"pattern": pattern, "devices": tuple(range(min(count, 3))), "nodes": 2, "transport": "ccl"}
        if chance.random() > share:
            continue
        found = limits(system, case)
        most = over_two_nodes(system, case)
        for c in found if most is not None else ():
            value = (c.value_bytes_per_s or 0.0) / GB
            looked += 1
            words = f"seed {seed}: {case}: {c.rule} ({c.kind}, {c.basis}) is {value:.9g}"
            if c.kind == "upper bound" and value < most * (1 - 1e-6):
                wrong.append(f"{words}, and {most:.9g} is reached")
            if c.kind == "achievable schedule" and value > most * (1 + 1e-6):
                wrong.append(f"{words}, and nothing passes {most:.9g}")
    return wrong, looked


def tried(first: int, count: int, share: float) -> tuple[list[str], int]:
    """The same of so many systems, from a seed on."""
    found = [faults(seed, share) for seed in range(first, first + count)]
    return [line for wrong, _ in found for line in wrong], sum(looked for _, looked in found)


if __name__ == "__main__":
    begun = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    lines, values = tried(begun, int(sys.argv[1]), 1.0)
    print("\n".join([*lines, f"{sys.argv[1]} systems from seed {begun} on, {values} values, {len(lines)} wrong"]))
    sys.exit(bool(lines))
