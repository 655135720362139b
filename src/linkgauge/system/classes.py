"""Which parts of a system are alike: classes under the automorphisms of its graph.

Two devices (or ordered tuples of vertices) are of one class where renaming the system's vertices can put one in the
other's place without changing the graph: kinds, models and rates of vertices, and kind, width, version, number and
rate of the links in each direction. Names, ordinals, addresses, memory sizes and what a link could have trained to do
not count.

What a way does not use must not tell its ends apart, so a class is of a part of the graph, its scope:

- `device`: devices by themselves, without any link;
- `fabric`: devices and the switches between them, by the links of peer access;
- `host`: devices, hosts and PCIe switches, by all other links;
- `node`: both together, without NICs;
- `all`: everything.

The method is exact: color refinement (Weisfeiler and Leman) with individualisation and backtracking decides whether an
automorphism takes u to v while others stay, and a chain of such stabilisers (Schreier and Sims) gives the smallest
image of a tuple, which is its key. Vertices that can simply be swapped, as behind switches, need no search.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from linkgauge.model.grouped import grouped
from linkgauge.system.model import Figure, Node, System, is_fabric

Scope = Literal["device", "fabric", "host", "node", "all"]
Permutation = tuple[int, ...]

_KINDS: dict[Scope, frozenset[str]] = {
    "device": frozenset({"device"}),
    "fabric": frozenset({"device", "switch"}),
    "host": frozenset({"device", "host", "switch"}),
    "node": frozenset({"device", "host", "switch"}),
    "all": frozenset({"device", "host", "switch", "nic"}),
}


class Symmetry:
    """The automorphisms of a graph with colored vertices and labeled arcs, found as they are asked for.

    Vertices are 0 to n - 1. `arcs[u][v]` is the label from u to v; where it is given, `arcs[v][u]` must be too.
    """

    def __init__(self, colors: Sequence[Hashable], arcs: Sequence[dict[int, Hashable]]) -> None:
        """Take the graph; labels and colors need only be hashable."""
        self._colors = _numbered(colors)
        labels = iter(_numbered([label for heads in arcs for label in heads.values()]))
        self._arcs = [{head: next(labels) for head in heads} for heads in arcs]
        self._refined: dict[tuple[int, ...], tuple[tuple[int, ...], Hashable]] = {}
        self._moves: dict[tuple[tuple[int, ...], int], tuple[int, Permutation | None]] = {}

    def smallest(self, vertices: Sequence[int]) -> tuple[int, ...]:
        """Return the lexicographically smallest tuple that an automorphism makes of this one.

        Equal for two tuples exactly where an automorphism takes one to the other.
        """
        rest = list(vertices)
        fixed: tuple[int, ...] = ()
        for place in range(len(rest)):
            least, move = self._move(fixed, rest[place])
            if move is not None:
                rest = [move[vertex] for vertex in rest]
            fixed = (*fixed, least)
        return fixed

    def _move(self, fixed: tuple[int, ...], vertex: int) -> tuple[int, Permutation | None]:
        """Return the least vertex of `vertex`'s orbit while `fixed` stay, and what takes it there (None: nothing)."""
        if (fixed, vertex) not in self._moves:
            cells, _ = self._refine(fixed)
            found: tuple[int, Permutation | None] = (vertex, None)
            for other in range(vertex):
                if cells[other] == cells[vertex]:
                    move = self._swap(other, vertex) or self._search((*fixed, vertex), (*fixed, other))
                    if move is not None:
                        found = (other, move)
                        break
            self._moves[fixed, vertex] = found
        return self._moves[fixed, vertex]

    def _swap(self, a: int, b: int) -> Permutation | None:
        """Return the exchange of two vertices of one color that have the same neighbors, else None."""
        to_a, to_b = self._arcs[a], self._arcs[b]
        same = all(to_b.get(v) == label and self._arcs[v][a] == self._arcs[v][b] for v, label in to_a.items() if v != b)
        if not same or len(to_a) != len(to_b) or to_a.get(b) != to_b.get(a):
            return None
        order = list(range(len(self._arcs)))
        order[a], order[b] = b, a
        return tuple(order)

    def _search(self, left: tuple[int, ...], right: tuple[int, ...]) -> Permutation | None:
        """Return an automorphism that takes `left` to `right` vertex by vertex, None where there is none."""
        cells, shape = self._refine(left)
        others, other_shape = self._refine(right)
        if shape != other_shape:
            return None
        groups, other_groups = _groups(cells), _groups(others)
        guess = self._guess(groups, other_groups)
        if guess is not None:
            return guess
        open_cells = [cell for cell, members in groups.items() if len(members) > 1]
        if not open_cells:
            return None
        cell = min(open_cells, key=lambda cell: len(groups[cell]))
        chosen = groups[cell][0]
        for image in sorted(other_groups[cell], key=lambda vertex: vertex != chosen):
            found = self._search((*left, chosen), (*right, image))
            if found is not None:
                return found
        return None

    def _guess(self, groups: dict[int, list[int]], others: dict[int, list[int]]) -> Permutation | None:
        """Match cell with cell, leaving in place what can stay; return it where it is an automorphism.

        What is repeated (trays of a rack, devices behind a switch) needs no more than this.
        """
        image = [-1] * len(self._arcs)
        for cell, members in groups.items():
            both = set(members) & set(others[cell])
            free = iter([vertex for vertex in others[cell] if vertex not in both])
            for vertex in members:
                image[vertex] = vertex if vertex in both else next(free)
        for vertex, heads in enumerate(self._arcs):
            of_image = self._arcs[image[vertex]]
            if len(heads) != len(of_image) or any(of_image.get(image[v]) != label for v, label in heads.items()):
                return None
        return tuple(image)

    def _refine(self, fixed: tuple[int, ...]) -> tuple[tuple[int, ...], Hashable]:
        """Return the coarsest equitable coloring in which each of `fixed` stands alone, and what it looks like.

        Colors are numbered by what they mean, so that tuples that an automorphism joins get matching ones.
        """
        if fixed not in self._refined:
            if fixed:
                colors = [2 * color for color in self._refine(fixed[:-1])[0]]
                colors[fixed[-1]] += 1
            else:
                colors = list(self._colors)
            while True:
                seen = [
                    (colors[vertex], tuple(sorted((label, colors[v]) for v, label in heads.items())))
                    for vertex, heads in enumerate(self._arcs)
                ]
                number = {signature: i for i, signature in enumerate(sorted(set(seen)))}
                if len(number) == len(set(colors)):
                    break
                colors = [number[signature] for signature in seen]
            plain = {color: i for i, color in enumerate(sorted(set(colors)))}
            self._refined[fixed] = tuple(plain[color] for color in colors), hash(tuple(sorted(seen)))
        return self._refined[fixed]


class Classes:
    """The classes of one system's parts, worked out when first asked for."""

    def __init__(self, system: System) -> None:
        """Take the system as it is; nothing is computed yet."""
        self.system = system
        self._graphs: dict[Scope, tuple[Symmetry, list[str], dict[str, int]]] = {}
        self._names = system.names_by_ordinal

    def of(self, devices: Sequence[int], *, scope: Scope | None = None, hosts: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the class of devices in this order as a key: equal keys, alike tuples. The names of its first tuple.

        `scope` is that of the way; by default `fabric` where that joins all these devices, else `host` for one or two
        and `node` for more. `hosts` are those at which data lies, where the way ends there.
        `KeyError` for a device or host that the system does not have.
        """
        names = [self._names[device] for device in devices]
        return self.key([*names, *hosts], scope or ("host" if hosts else self.scope_of(devices)))

    def scope_of(self, devices: Sequence[int]) -> Scope:
        """Return which part of the graph joins these devices (see `of`)."""
        names = {self._names[device] for device in devices}
        if len(names) > 1 and names <= self.system.fabric.hops(min(names)).keys():
            return "fabric"
        return "host" if len(names) <= 2 else "node"

    def key(self, names: Sequence[str], scope: Scope) -> tuple[str, ...]:
        """Return the class of an ordered tuple of vertices in a scope. `KeyError` for a vertex outside it."""
        graph, order, numbers = self._graph(scope)
        return tuple(order[vertex] for vertex in graph.smallest([numbers[name] for name in names]))

    def devices(self, scope: Scope = "all") -> tuple[tuple[int, ...], ...]:
        """Return the ordinals of all devices, those of one class together, in order."""
        found = grouped((self.key([name], scope), ordinal) for ordinal, name in sorted(self._names.items()))
        return tuple(tuple(members) for members in found.values())

    def pairs(self, scope: Scope = "fabric") -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return all ordered pairs of devices, those of one class together, in order."""
        found: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        for a, first in sorted(self._names.items()):
            for b, second in sorted(self._names.items()):
                if a != b:
                    found.setdefault(self.key([first, second], scope), []).append((a, b))
        return tuple(tuple(members) for members in found.values())

    def _graph(self, scope: Scope) -> tuple[Symmetry, list[str], dict[str, int]]:
        """Return a scope's graph, its vertices' names (devices first, by ordinal), and their numbers by name."""
        if scope not in self._graphs:
            self._graphs[scope] = _graph_of(self.system, scope)
        return self._graphs[scope]


def _graph_of(system: System, scope: Scope) -> tuple[Symmetry, list[str], dict[str, int]]:
    kinds, wanted = system.kinds, _KINDS[scope]
    links = [
        link
        for link in system.links
        if scope != "device"
        and {kinds[link.a], kinds[link.b]} <= wanted
        and (scope not in ("fabric", "host") or is_fabric(link, kinds) == (scope == "fabric"))
    ]
    used = {end for link in links for end in (link.a, link.b)}
    # A switch that nothing of this scope is joined to is no part of it.
    nodes = [node for node in system.nodes if node.kind in wanted and (node.kind != "switch" or node.name in used)]
    nodes.sort(key=lambda node: (node.kind != "device", node.ordinal or 0))
    order = [node.name for node in nodes]
    numbers = {name: i for i, name in enumerate(order)}
    bundles: list[dict[int, list[tuple[Hashable, ...]]]] = [{} for _ in nodes]
    for link in links:
        for tail in dict.fromkeys((link.a, link.b)):
            head = link.other(tail)
            rates = (_rounded(link.rate(tail)), _rounded(link.rate(head)))
            label = (link.kind, link.version or "", link.width or 0, link.count, *rates)
            bundles[numbers[tail]].setdefault(numbers[head], []).append(label)
    arcs: list[dict[int, Hashable]] = [
        {head: tuple(sorted(labels, key=repr)) for head, labels in heads.items()} for heads in bundles
    ]
    return Symmetry([_color(node) for node in nodes], arcs), order, numbers


def _color(node: Node) -> Hashable:
    """Return what of a vertex itself bears on how fast data goes through it."""
    figures: tuple[Figure | None, ...] = (node.memory_rate, node.copy_rate, node.throughput, node.port_rate)
    rates = tuple(_rounded(None if figure is None else figure.value) for figure in figures)
    able = (node.multicast, node.reduction, node.routes)
    return (node.kind, node.model, rates, able, node.kind == "host" and bool(node.cores))


def _rounded(rate: float | None) -> str:
    """Return a rate to four digits: what tools compute of one clock in two ways is one rate."""
    return "" if rate is None else f"{rate:.4g}"


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """Number values by what they are, in an order that does not depend on where they stand."""
    numbers = {value: i for i, value in enumerate(sorted(set(values), key=repr))}
    return [numbers[value] for value in values]


def _groups(cells: Sequence[int]) -> dict[int, list[int]]:
    return grouped((cell, vertex) for vertex, cell in enumerate(cells))
