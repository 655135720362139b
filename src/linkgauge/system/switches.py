"""Which node is attached to which switch, and so how far two nodes are from each other: their distance class.

Read from Slurm (`SLURM_TOPOLOGY_ADDR` of a rank, `scontrol show topology`, topology.conf or .yaml), from LLDP
(lldp.py, lldp_printed.py), from ibnetdiscover's output, or from a file by hand with a node and its switches a line;
inferred from measured pairs by `inferred`, which says so. Two nodes are as far as the lowest place where their ways
upwards meet: the first switch, the second (a group), or beyond. Where a fabric is no tree, as InfiniBand's are, two
leaf switches with a common neighbor are of one group.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from linkgauge.errors import UsageError
from linkgauge.model.names import MOST_HOSTS, host_names
from linkgauge.model.shape import clean
from linkgauge.system import units
from linkgauge.system.fabric_forms import is_yaml, not_read, rows_of_yaml
from linkgauge.system.lldp_printed import above_by_lldp, is_lldp
from linkgauge.system.slurm_blocks import above_by_blocks, is_blocks

DEVICE, NODE, SWITCH, GROUP, OTHER_GROUP = "device", "node", "switch", "group", "other group"
CLASSES = (DEVICE, NODE, SWITCH, GROUP, OTHER_GROUP)
"""From near to far. What is not known of two nodes is said by an empty word."""
INFERRED = "inferred from"
"""How the source of switches begins that no one stated."""
_BEYOND = 3
_EXPECTED = (
    "expected topology.conf, topology.yaml, `scontrol show topology`, ibnetdiscover's output, lldpctl's of several "
    "nodes, or lines of a node and its switches"
)
_IB_NODE = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-f]+)"')
_IB_PORT = re.compile(r'\[\d+\](?:\[ext \d+\])?\s+"([SHR]-[0-9a-f]+)"\[\d+\](?:\([0-9a-f]+\))?\s*(?:#\s*"([^"]*)")?')
# A card that no host has named describes its model, and a switch's aggregation node (SHARP) is no host.
_IB_NO_HOST = re.compile(
    r"Aggregation Node|^SHARP\b|^localhost\b|Mellanox Technologies|NVIDIA (?:Corporation|Networking)|^MT\d{3,}\b|"
    r"ConnectX|^(?:Quantum|HCA|InfiniHost)\b",
    re.IGNORECASE,
)
_RATE = units.quantity(units.RATE, *units.WITHIN[units.RATE])
MOST_SWITCHES = 32  # above one node: a fabric of 10^5 nodes has three or four


@dataclasses.dataclass(frozen=True)
class Switches:
    """`above`: of each node the switches above it, the nearest first. `source`: where that is from, in a few words.

    `rates`: by node or switch what its links upwards carry together, each way, in bytes per second; of none that is not
    stated.
    """

    above: Mapping[str, tuple[str, ...]]
    source: str
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def way(self, a: str, b: str) -> tuple[tuple[str, str], ...] | None:
        """The links' directions from a node to another, `(from, to)`, up to the first switch above both and down again.

        None where a node is not known, or nothing above both is: then there may be several ways.
        """
        one, other = (a, *self.above.get(a, ())), (b, *self.above.get(b, ()))
        top = next((name for name in one[1:] if name in other[1:]), None)
        if top is None:
            return None
        up, down = one[: one.index(top) + 1], other[: other.index(top) + 1]
        return (*itertools.pairwise(up), *((over, under) for under, over in reversed(list(itertools.pairwise(down)))))

    def rate(self, a: str, b: str) -> float | None:
        """What the links from one to the other, the one above the other, carry; None where it is not stated."""
        upwards = (pair for node, names in self.above.items() for pair in itertools.pairwise((node, *names)))
        return self.rates.get(a if (a, b) in upwards else b)

    def distance(self, a: str, b: str) -> str:
        """The distance class of two nodes; empty where one of them is not known."""
        if a == b:
            return NODE
        one, other = self.above.get(a, ()), self.above.get(b, ())
        shared = [level for level, (x, y) in enumerate(itertools.zip_longest(one, other), start=1) if x == y]
        if not one or not other:
            return ""
        return {1: SWITCH, 2: GROUP}.get(shared[0] if shared else _BEYOND, OTHER_GROUP)

    def farthest(self, nodes: Sequence[str]) -> str:
        """The class of the two of these nodes that are farthest from each other."""
        distinct = list(dict.fromkeys(nodes))
        found = [self.distance(a, b) for a, b in itertools.combinations(distinct, 2)] or [NODE]
        return "" if "" in found else max(found, key=CLASSES.index)

    def check(self, hosts: Sequence[str]) -> None:
        """UsageError where not every one of these hosts is a node here."""
        missing = [host for host in hosts if host not in self.above]
        if missing:
            what = "none of the hosts" if len(missing) == len(hosts) else f"no {', '.join(missing[:8])}"
            known = ", ".join(list(self.above)[:4]) + (", ..." if len(self.above) > 4 else "")
            raise UsageError(f"{self.source}: has {what}: expected a line for each of {', '.join(hosts[:8])} (it has "
                             f"{known})")  # fmt: skip

    def plain(self) -> dict[str, object]:
        """As JSON values."""
        rates = {"rates": dict(self.rates)} if self.rates else {}
        return {"source": self.source, "above": {node: list(names) for node, names in self.above.items()}, **rates}


def of_addresses(addresses: Mapping[str, str]) -> Switches | None:
    """From Slurm's SLURM_TOPOLOGY_ADDR of each node, `core.g0.s0.n0`; None where a node has none."""
    if not addresses or any("." not in address for address in addresses.values()):
        return None
    above = {node: tuple(reversed(address.split(".")[:-1])) for node, address in addresses.items()}
    return Switches(above, "SLURM_TOPOLOGY_ADDR")


def of_text(text: str, source: str) -> Switches:
    """Whichever of the known forms a text has. UsageError where it is none of them, or no network is so."""
    text = "\n".join(text.splitlines())
    if what := not_read(text):
        raise UsageError(f"{source}: this is {what}; {_EXPECTED}")
    if clean(text) != text:
        raise UsageError(f"{source}: has control characters: {_EXPECTED}")
    found = _of_form(text, source)
    for node, names in found.above.items():
        if len(names) > MOST_SWITCHES or len({node, *names}) <= len(names):
            raise UsageError(
                f"{source}: {len(names)} switches above {node[:60]}: expected {MOST_SWITCHES} at most, each once"
            )
    return found


def _of_form(text: str, source: str) -> Switches:
    if re.search(r"^(?:Switch\s+\d+\s+\"S-|vendid=0x)", text, re.MULTILINE):
        return of_ibnetdiscover(text, source)
    if re.search(r"^\s*SwitchName=", text, re.MULTILINE | re.IGNORECASE):
        return of_slurm(text, source)
    if is_yaml(text):
        rows = rows_of_yaml(text, source)
        return of_blocks(rows, source) if is_blocks(rows) else of_slurm(rows, source)
    if is_blocks(text):
        return of_blocks(text, source)
    if is_lldp(text):
        return of_lldp(text, source)
    above: dict[str, tuple[str, ...]] = {}
    rates: dict[str, float] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 1:
            raise UsageError(f"{source}: '{words[0][:60]}' has no switch: {_EXPECTED}")
        if words:
            names = [_rated(word, rates, source) for word in words]
            above[names[0]] = tuple(names[1:])
            _few(len(above), source)
    if not above:
        raise UsageError(f"{source} names no node: {_EXPECTED}")
    return Switches(above, source, rates)


def _rated(word: str, rates: dict[str, float], source: str) -> str:
    """The name in `s0=50Gb/s`, whose links upwards carry that together; or in `s0`."""
    name, equals, text = word.partition("=")
    if not equals:
        return name
    if not name:
        raise UsageError(f"{source}: '{word[:60]}': expected NAME=RATE, as in s0=50Gb/s")
    rate = _RATE(text[:60], f"{source}: {name[:60]}")
    if rates.setdefault(name, rate) != rate:
        raise UsageError(f"{source}: {name} has two rates: what its links upwards carry together is one")
    return name


def of_slurm(text: str, source: str) -> Switches:
    """From topology.conf or `scontrol show topology`: lines `SwitchName=s0 Level=0 Nodes=n[0-1]` and `Switches=...`."""
    parent: dict[str, str] = {}
    leaf: dict[str, str] = {}
    rates: dict[str, float] = {}
    listed = 0
    for line in text.splitlines():
        words = {key.lower(): value for key, value in re.findall(r"(\w+)=(\S+)", line.partition("#")[0])}
        name = words.get("switchname")
        if name is None:
            continue
        if words.get("linkspeed", "")[-2:] == "/s":  # a number alone is in units of the site's own
            _rated(f"{name}={words['linkspeed']}", rates, source)
        # scontrol gives the nodes below of every switch.
        into, key = (parent, "switches") if "switches" in words else (leaf, "nodes")
        listed += len(below := _expanded(words.get(key, ""), source))
        _few(listed, source)
        into |= dict.fromkeys(below, name)
    if not leaf:
        raise UsageError(f"{source} names no switch with nodes: {_EXPECTED}")
    return Switches({node: _upwards(name, parent) for node, name in leaf.items()}, source, rates)


def of_lldp(text: str, source: str) -> Switches:
    """From what lldpctl prints on several nodes: the switch that each one's fastest interface hears."""
    above, words = above_by_lldp(text, source)
    return Switches(above, f"{source} ({words})")


def of_blocks(text: str, source: str) -> Switches:
    """From Slurm's topology/block: a block counts as a switch, larger blocks as groups."""
    above = above_by_blocks(text, source, _expanded, MOST_HOSTS)
    return Switches(above, f"{source} (blocks of topology/block in place of switches)")


def _upwards(name: str, parent: Mapping[str, str]) -> tuple[str, ...]:
    """The switch and those above it; of a circle, or of very many, as many as are refused."""
    found = [name]
    while found[-1] in parent and len(found) <= MOST_SWITCHES:
        found.append(parent[found[-1]])
    return tuple(found)


def _few(count: int, source: str) -> None:
    if count > MOST_HOSTS:
        raise UsageError(f"{source}: more than {MOST_HOSTS} nodes: expected a network's")


def _expanded(text: str, source: str) -> list[str]:
    """The names of a list with ranges, `n[0-1,4]`; empty for `(null)`."""
    try:
        return [] if text in ("", "(null)") else host_names(text)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def of_ibnetdiscover(text: str, source: str) -> Switches:
    """From ibnetdiscover's output: switches with their ports, and hosts by the first word of their node description.

    A group is leaf switches that have a neighbor in common, and all that such leaves join.
    """
    hosts: dict[str, str] = {}
    neighbors: defaultdict[str, set[str]] = defaultdict(set)
    here = ""
    unnamed = 0
    for line in text.splitlines():
        if match := _IB_NODE.match(line):
            here = match[2] if match[1] == "Switch" else ""
        elif here and (match := _IB_PORT.match(line)):
            if match[1].startswith("S"):
                neighbors[here].add(match[1])
                neighbors[match[1]].add(here)
            elif not (words := (match[2] or "").split()) or _IB_NO_HOST.search(match[2]):
                unnamed += 1
            else:
                hosts.setdefault(words[0], here)  # of several cards the first
                _few(len(hosts), source)
    left_out = f"{unnamed} ports of cards that no host has named" if unnamed else ""
    if not hosts:
        raise UsageError(f"{source} names no host on a switch{f' ({left_out})' if left_out else ''}: {_EXPECTED}")
    group = _groups(sorted(set(hosts.values())), neighbors)
    return Switches({host: (leaf, group[leaf]) for host, leaf in hosts.items()},
                    f"{source} (without {left_out})" if left_out else source)  # fmt: skip


def _groups(leaves: Sequence[str], neighbors: Mapping[str, set[str]]) -> dict[str, str]:
    """By leaf switch the name of its group: the first leaf of those that are joined by common neighbors."""
    of_spine: defaultdict[str, list[str]] = defaultdict(list)
    first = {leaf: leaf for leaf in leaves}
    for leaf in leaves:
        for spine in neighbors.get(leaf, ()):
            if spine not in first:
                of_spine[spine].append(leaf)

    def root(leaf: str) -> str:
        while first[leaf] != leaf:
            first[leaf] = leaf = first[first[leaf]]
        return leaf

    for joined in of_spine.values():
        for leaf in joined[1:]:
            low, high = sorted((root(joined[0]), root(leaf)))
            first[high] = low
    return {leaf: f"group of {root(leaf)}" for leaf in leaves}


_LEAST_STEP = 1.15
"""Classes of pairs whose times differ by less are not told apart."""
_CLEAR = 1.5
_MOST_CUTS = 3
_STRAYS = (
    0.1  # of the pairs on either side of a cut that may lie beyond it: noise alone joins few that are near each other
)
_MOST_STEPS = 12  # widest, that are tried as cuts


def inferred(times: Mapping[tuple[str, str], float], what: str) -> Switches | None:
    """The switches and groups that explain the times of all pairs of nodes; None where they show no classes.

    `times`: of each two nodes, in either order or both, a latency or the time of a message, the lower the nearer. Nodes
    are joined by average linkage (scipy) of the logarithms; the joins' heights, sorted, fall into levels (`_levels`).
    The lowest level is a switch, the second a group; what is above is other groups. A tree has two or three levels:
    with more, or one, nothing is said, and nothing where a node is alone on its switch: a slow node looks so too.
    `what`: of what the times are, for the source's words.
    """
    import numpy as np
    from scipy.cluster.hierarchy import average, cophenet, fcluster
    from scipy.spatial.distance import squareform

    nodes = sorted({node for pair in times for node in pair})
    if len(nodes) < 3:
        return None
    at = {node: place for place, node in enumerate(nodes)}
    sums, counts = np.zeros((len(nodes),) * 2), np.zeros((len(nodes),) * 2)
    for (a, b), time in times.items():
        if a != b and time > 0:
            for x, y in ((at[a], at[b]), (at[b], at[a])):
                sums[x, y] += np.log(time)
                counts[x, y] += 1
    if (counts + np.eye(len(nodes)) == 0).any():
        return None  # not all pairs were measured
    logs = sums / np.maximum(counts, 1)
    lowest = float(logs[counts > 0].min())
    pairs = squareform((logs - lowest + 1.0) * (counts > 0), checks=False)
    joins = average(pairs)
    met = cophenet(joins)

    def apart(cut: float) -> bool:
        below, above = pairs[met <= cut], pairs[met > cut]
        return bool(np.quantile(below, 1 - _STRAYS) < np.quantile(above, _STRAYS))

    def none_alone(cut: float) -> bool:
        return bool(np.bincount(fcluster(joins, cut, criterion="distance"))[1:].min() > 1)

    ways = _upwards_of(joins)

    def nested(cuts: tuple[float, ...]) -> bool:
        """Some node has a join in each level on its way up: a level that no node goes through is another's place."""
        return any(len({bisect.bisect(cuts, height) for height in way}) > len(cuts) for way in ways)

    heights = sorted(float(height) for height in joins[:, 2])
    cuts = _levels(heights, lambda cuts: none_alone(cuts[0]) and nested(cuts) and all(map(apart, cuts)))
    if not 1 <= len(cuts) <= 2:
        return None
    above: dict[str, tuple[str, ...]] = dict.fromkeys(nodes, ())
    for level, cut in enumerate(cuts):
        labels = fcluster(joins, cut, criterion="distance")
        names: dict[int, str] = {}
        for node in nodes:  # named by the first node below
            label = int(labels[at[node]])
            above[node] += (names.setdefault(label, f"{('switch', 'group')[level]} of {node}"),)
    return Switches({node: (*names, "all") for node, names in above.items()}, f"{INFERRED} {what} of all pairs")


def _upwards_of(joins: Sequence[Sequence[float]]) -> list[list[float]]:
    """Of each node the heights of the joins above it, from scipy's linkage: two parts, a height, a count each."""
    count = len(joins) + 1
    above: list[list[float]] = [[] for _ in range(2 * count - 1)]
    for number in range(len(joins) - 1, -1, -1):
        one, other, height, _ = joins[number]
        for part in (int(one), int(other)):
            above[part] = [float(height), *above[count + number]]
    return above[:count]


def _levels(heights: Sequence[float], fits: Callable[[tuple[float, ...]], bool]) -> tuple[float, ...]:
    """Where sorted heights, logarithms of times, are cut into levels: the most cuts that hold, three at most.

    A cut holds where the time above is 15 % more than below, and the step half as wide again as any within the levels
    on its two sides. Steps are compared as times, not as ratios, and with their neighbors alone: what a busy node adds
    may be several times the latency within a switch, and is little beside the way to the next one.
    """
    times = [math.exp(height) for height in heights]
    wide = [at for at, (a, b) in enumerate(itertools.pairwise(heights), 1) if b - a >= math.log(_LEAST_STEP)]
    wide = sorted(sorted(wide, key=lambda at: times[at - 1] - times[at])[:_MOST_STEPS])
    best: tuple[float, tuple[float, ...]] = (0.0, ())
    for count in range(1, _MOST_CUTS + 1):
        for places in itertools.combinations(wide, count):
            bounds = [0, *places, len(times)]
            within = [max((b - a for a, b in itertools.pairwise(times[start:end])), default=0.0)
                      for start, end in itertools.pairwise(bounds)]  # fmt: skip
            steps = [times[at] - times[at - 1] for at in places]
            clear = all(
                step > _CLEAR * max(around) for step, around in zip(steps, itertools.pairwise(within), strict=True)
            )
            cuts = tuple((heights[at - 1] + heights[at]) / 2 for at in places)
            margin = min(heights[at] - heights[at - 1] for at in places)
            if clear and (count, margin) > (len(best[1]), best[0]) and fits(cuts):
                best = (margin, cuts)
    return best[1]
