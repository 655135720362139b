"""What ideal adaptive routing could do on a dragonfly: a linear program over the ways between groups.

Variables: of what each group sends to each other one, how much goes straight and how much through each third group.
Minimized: the time until the fullest bundle of links between two groups is through. Symmetry first: groups that send
and get alike are one class (the mean of a solution over all exchanges of alike groups is a solution, as good by
convexity). Where all groups differ, columns are made as they are needed: prices of bundles say which third group is
cheapest for a pair, a table of all pairs at once. All is in units of one bundle's rate, so that numbers are near 1.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from linkgauge.errors import LinkgaugeError
from linkgauge.simulate.arrays import Floats, Ints
from linkgauge.simulate.demand import Demand
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.routes import LinkClass, Rule, fabric_links, local_links, spine_links

_GAP = 1e-3  # of the time: where the program's columns do not do better, none can
_MOST_CLASSES = 40  # 40^3 ways: a second
_MOST_PAIRS = 20_000  # of unlike groups; 10,000 take 20 s
_ROUNDS = 12


@dataclasses.dataclass(frozen=True)
class Best:
    """`seconds`: no routing takes less, by what bounds it. `reached`: what a found way takes, with its links."""

    seconds: float
    reached: float
    links: list[LinkClass]
    basis: str


@dataclasses.dataclass(frozen=True)
class _Ways:
    """A division of what goes between groups: straight (G x G), and through third groups (from, by, to, amount)."""

    seconds: float
    bound: float
    straight: Floats
    source: Ints
    by: Ints
    target: Ints
    amount: Floats


def best(fabric: Fabric, asked: Demand, floor: float) -> Best:
    """The least time, `empty_op` being what ports and domains take (seconds). Errors: none but a solver that fails."""
    cut, what = _cuts(fabric, asked)
    if fabric.groups < 2 or not asked.between.any():
        links = fabric_links(fabric, asked, Rule("minimal"))
        return Best(max(floor, cut), max([floor, cut, *(one.longest for one in links)]), links, what)
    ways = _between(asked.between / (fabric.pair_links * fabric.link_rate), max(floor, cut))
    links = _links(fabric, asked, ways)
    reached = max([floor, *(one.longest for one in links)])
    # Even routing is a way too, and may suit the links inside groups better than what the program chose between them.
    for rule in (Rule("minimal"), Rule("third_group")):
        plain = fabric_links(fabric, asked, rule)
        longest = max([floor, *(one.longest for one in plain)])
        if longest < reached * (1 - 1e-9):
            reached, links = longest, plain
    bound = max(floor, cut, ways.bound)
    basis = "links between groups" if ways.bound >= max(floor, cut) else what if cut > floor else "ports"
    return Best(bound, max(reached, bound), links, basis)


def _cuts(f: Fabric, asked: Demand) -> tuple[float, str]:
    """What leaf switches and groups must send and get, over all links that leave them: no routing changes it."""
    out = asked.local_out + asked.out.sum(axis=2)
    into = asked.local_in + asked.into.sum(axis=2)
    if f.kind == "dragonfly":
        columns = f.leaves // f.rows
        ports = (columns - 1 + f.rows - 1) * f.local_links + f.gateways.sum(axis=2)
    else:
        ports = np.full(out.shape, f.up_links)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = float(np.nanmax(np.where(out + into > 0, np.maximum(out, into) / (ports * f.link_rate), 0.0)))
    return most, "links of a leaf switch"


def _between(wanted: Floats, floor: float) -> _Ways:
    """Divide what groups send each other (in seconds of a bundle) so that the fullest bundle is soonest through."""
    g = len(wanted)
    none_i, none_f = np.zeros(0, dtype=np.int64), np.zeros(0)
    straight = float(wanted.max())
    # Whatever leaves a group, or enters it, has all of its bundles at best.
    cut = float(max(wanted.sum(axis=1).max(), wanted.sum(axis=0).max())) / (g - 1)
    if straight <= max(floor, cut) * (1 + 1e-9) or g < 3:
        return _Ways(straight, straight if g < 3 else min(straight, max(cut, 0.0)), wanted, none_i, none_i, none_i,
                     none_f)  # fmt: skip
    classes = _alike(wanted)
    if classes is not None:
        return _by_class(wanted, classes)
    if np.count_nonzero(wanted) > _MOST_PAIRS:  # not solved: what leaves a group bounds, and straight ways are found
        return _Ways(straight, cut, wanted, none_i, none_i, none_i, none_f)
    return _by_columns(wanted, max(floor, cut))


def _alike(wanted: Floats) -> Ints | None:
    """The class of each group, where groups of a class send and get alike; None where there are too many."""
    g = len(wanted)
    scale = wanted.max()
    rounded = np.round(wanted / scale, 9)
    of = np.zeros(g, dtype=np.int64)
    for _ in range(g):
        # A group's class, and the sorted (class, amount) pairs of what it sends and gets: colors refined to a fix.
        order = np.argsort(of, kind="stable")
        rows = []
        for i in range(g):
            others = order[order != i]
            key = of[others]
            both = np.lexsort((rounded[others, i], rounded[i, others], key))
            rows.append(np.concatenate(([of[i]], rounded[i, others][both], rounded[others, i][both])))
        _, fresh = np.unique(np.array(rows), axis=0, return_inverse=True)
        fresh = fresh.reshape(-1)
        if fresh.max() == of.max():
            break
        of = fresh
        if of.max() >= _MOST_CLASSES:
            return None
    # Alike by color is not alike by exchange: all pairs of two classes must send the same.
    for a in range(of.max() + 1):
        for b in range(of.max() + 1):
            block = rounded[np.ix_(of == a, of == b)]
            if a == b:
                block = block[~np.eye(len(block), dtype=bool)]
            if block.size and block.max() - block.min() > 2e-9:
                return None
    found: Ints = of
    return found


def _by_class(wanted: Floats, of: Ints) -> _Ways:
    c = int(of.max()) + 1
    size = np.bincount(of)
    firsts = [np.flatnonzero(of == k) for k in range(c)]

    def pairs(a: int, b: int) -> int:
        return int(size[a] * (size[b] - (a == b)))

    listed = [(a, b) for a in range(c) for b in range(c) if pairs(a, b)]
    place = {pair: k for k, pair in enumerate(listed)}
    amount = np.array([wanted[firsts[a][0], firsts[b][0 if a != b else 1]] for a, b in listed])
    rows, columns, values, ways = [], [], [], []
    for a, b in listed:
        for e in range(-1, c):
            if e >= 0 and size[e] - (e == a) - (e == b) <= 0:
                continue
            if (a, b) not in place or (e >= 0 and ((a, e) not in place or (e, b) not in place)):
                continue
            ways.append((a, e, b))
    # A way's variable: what one pair of groups sends by all third groups of the class together.
    for k, (a, e, b) in enumerate(ways):
        for x, y in ((a, b),) if e < 0 else ((a, e), (e, b)):
            rows.append(place[x, y])
            columns.append(k)
            # Spread over the bundles of these classes by all pairs alike.
            values.append(pairs(a, b) / pairs(x, y))
    n = len(ways)
    rows += list(range(len(listed)))
    columns += [n] * len(listed)
    values += [-1.0] * len(listed)
    upper = coo_matrix((values, (rows, columns)), shape=(len(listed), n + 1)).tocsr()
    equal = coo_matrix(
        (np.ones(n), ([place[a, b] for a, _, b in ways], np.arange(n))), shape=(len(listed), n + 1)
    ).tocsr()
    cost = np.zeros(n + 1)
    cost[n] = 1.0
    scale = float(amount.max())
    solved = linprog(cost, A_ub=upper, b_ub=np.zeros(len(listed)), A_eq=equal, b_eq=amount / scale, method="highs-ipm")
    _need(solved)
    seconds = float(solved.fun) * scale
    straight = np.zeros_like(wanted)
    parts: list[list[NDArray[Any]]] = [[], [], [], []]
    for k, (a, e, b) in enumerate(ways):
        value = max(0.0, float(solved.x[k])) * scale
        if value <= 1e-12 * scale:
            continue
        i, j = (side.reshape(-1) for side in np.meshgrid(firsts[a], firsts[b], indexing="ij"))
        i, j = i[i != j], j[i != j]
        if e < 0:
            straight[i, j] += value
            continue
        by = np.broadcast_to(firsts[e][None, :], (len(i), size[e])).reshape(-1)
        s, t = np.repeat(i, size[e]), np.repeat(j, size[e])
        kept = (by != s) & (by != t)
        parts[0].append(s[kept])
        parts[1].append(by[kept])
        parts[2].append(t[kept])
        count = size[e] - (e == a) - (e == b)
        parts[3].append(np.full(int(kept.sum()), value / count))
    joined = [np.concatenate(part) if part else np.zeros(0) for part in parts]
    source, by, target = (one.astype(np.int64) for one in joined[:3])
    return _Ways(seconds, seconds, straight, source, by, target, joined[3])


def _need(solved: object) -> None:
    if getattr(solved, "status", 1) != 0:
        raise LinkgaugeError(f"the linear program of rule best was not solved: {getattr(solved, 'message', '')}")


def _by_columns(wanted: Floats, floor: float) -> _Ways:
    g = len(wanted)
    scale = float(wanted.max())
    need = wanted / scale
    source, target = np.nonzero(need > 0)
    amount = need[source, target]
    m = len(source)
    known = np.zeros(0, dtype=np.int64)  # columns by pair * g + third group
    prices = np.exp(8 * (need - 1))  # at first steep in what each bundle carries when all goes straight
    np.fill_diagonal(prices, 1e9)
    best_bound, solved = floor / scale, None
    for _ in range(_ROUNDS):
        fresh = []
        for _turn in range(6):
            # The cheapest third group of each pair by the present prices; then prices move a little, for variety.
            cheapest, cost = _cheapest(prices)
            wins = cost[source, target] < prices[source, target] * (1 - 1e-12)
            fresh.append((np.arange(m) * g + cheapest[source, target])[wins])
            if solved is None or not wins.any():
                break
            crowd = np.zeros_like(prices)
            via = cheapest[source, target]
            np.add.at(crowd, (source[wins], via[wins]), amount[wins])
            np.add.at(crowd, (via[wins], target[wins]), amount[wins])
            prices = prices + 0.2 * crowd / max(1e-300, crowd.sum())
        known = np.unique(np.concatenate([known, *fresh]))
        solved, prices, t = _master(g, source, target, amount, known, floor / scale)
        total = prices.sum()
        if total > 0:
            cheapest, cost = _cheapest(prices)
            paid = float((amount * np.minimum(prices, cost)[source, target]).sum()) / float(total)
            best_bound = max(best_bound, paid)
        if t <= max(best_bound, floor / scale) * (1 + _GAP):
            break
    assert solved is not None
    x = solved
    straight = np.zeros_like(wanted)
    straight[source, target] = x[:m] * scale
    pair, by = known // g, known % g
    kept = x[m:-1] > 1e-12
    return _Ways(
        float(x[-1]) * scale, best_bound * scale, straight, source[pair[kept]], by[kept], target[pair[kept]],
        x[m:-1][kept] * scale,
    )  # fmt: skip


def _cheapest(prices: Floats) -> tuple[Ints, Floats]:
    """Of each pair the third group by which both legs cost least, and that cost."""
    g = len(prices)
    priced = prices.copy()
    np.fill_diagonal(priced, 1e18)
    which = np.zeros((g, g), dtype=np.int64)
    cost = np.full((g, g), np.inf)
    for i in range(g):
        legs = priced[i][:, None] + priced
        which[i] = legs.argmin(axis=0)
        cost[i] = legs[which[i], np.arange(g)]
    return which, cost


def _master(
    g: int, source: Ints, target: Ints, amount: Floats, known: Ints, floor: float
) -> tuple[Floats, Floats, float]:
    """The program with the columns known so far: amounts (straight, by columns, and the time), prices, the time."""
    m, n = len(source), len(known)
    pair, by = known // g, known % g
    rows = np.concatenate([source * g + target, source[pair] * g + by, by * g + target[pair]])
    columns = np.concatenate([np.arange(m), m + np.arange(n), m + np.arange(n)])
    used, back = np.unique(rows, return_inverse=True)
    back = back.reshape(-1)
    k = len(used)
    upper = coo_matrix(
        (np.concatenate([np.ones(len(rows)), -np.ones(k)]),
         (np.concatenate([back, np.arange(k)]), np.concatenate([columns, np.full(k, m + n)]))),
        shape=(k, m + n + 1),
    ).tocsr()  # fmt: skip
    equal = coo_matrix(
        (np.ones(m + n), (np.concatenate([np.arange(m), pair]), np.arange(m + n))), shape=(m, m + n + 1)
    ).tocsr()
    cost = np.zeros(m + n + 1)
    cost[-1] = 1.0
    bounds = np.zeros((m + n + 1, 2))
    bounds[:, 1] = np.inf
    bounds[-1, 0] = floor
    solved = linprog(cost, A_ub=upper, b_ub=np.zeros(k), A_eq=equal, b_eq=amount, bounds=bounds, method="highs-ipm")
    _need(solved)
    prices = np.zeros(g * g)
    prices[used] = np.maximum(0.0, -solved.ineqlin.marginals)
    found = prices.reshape(g, g)
    return np.maximum(solved.x, 0.0), found, float(solved.x[-1])


def _links(f: Fabric, asked: Demand, ways: _Ways) -> list[LinkClass]:
    """Loads of that division: leaves take the same share of each way as of all their group sends there."""
    bundle = f.pair_links * f.link_rate
    g = f.groups
    straight = ways.straight * bundle
    amount = ways.amount * bundle
    whole = asked.between
    flat = straight.copy()
    np.add.at(flat, (ways.source, ways.by), amount)
    np.add.at(flat, (ways.by, ways.target), amount)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(whole > 0, 1.0 / np.where(whole > 0, whole, 1.0), 0.0)
    # First legs: what each leaf sends towards each group, be it the last or a third one; last legs likewise.
    shared_out, shared_in = asked.out * part[:, None, :], asked.into * part.T[:, None, :]
    out, into = shared_out * straight[:, None, :], shared_in * straight.T[:, None, :]
    order = np.argsort(ways.source, kind="stable")
    for own in np.unique(ways.source):
        mine = order[np.searchsorted(ways.source[order], own) : np.searchsorted(ways.source[order], own, "right")]
        moved = np.zeros((g, g))  # by target and third group
        np.add.at(moved, (ways.target[mine], ways.by[mine]), amount[mine])
        out[own] += shared_out[own] @ moved
    order = np.argsort(ways.target, kind="stable")
    for own in np.unique(ways.target):
        mine = order[np.searchsorted(ways.target[order], own) : np.searchsorted(ways.target[order], own, "right")]
        moved = np.zeros((g, g))
        np.add.at(moved, (ways.source[mine], ways.by[mine]), amount[mine])
        into[own] += shared_in[own] @ moved
    share = f.gateway_shares
    has = f.gateways > 0
    load = share * (out.sum(axis=1)[:, None, :])
    kept, moved_on = np.zeros_like(load), np.zeros_like(load)
    order = np.argsort(ways.by, kind="stable")
    for own in np.unique(ways.by):
        mine = order[np.searchsorted(ways.by[order], own) : np.searchsorted(ways.by[order], own, "right")]
        through = np.zeros((g, g))
        np.add.at(through, (ways.source[mine], ways.target[mine]), amount[mine])
        arriving = share[own] @ through  # router x to group
        kept[own] = np.where(has[own], arriving, 0.0)
        moved_on[own] = np.where(has[own], 0.0, arriving)
    load = load + kept + moved_on.sum(axis=1)[:, None, :] * share
    with np.errstate(invalid="ignore", divide="ignore"):
        per_link = np.where(has, load / np.maximum(f.gateways, 1e-300), 0.0)
    bounced = moved_on if moved_on.any() else None
    between = LinkClass("global", per_link, f.link_rate, ("group", "switch", "to group"))
    if f.kind == "dragonfly":
        inside = [_levelled(one) if one.name == "local" else one for one in local_links(f, asked, out, into, bounced)]
    else:
        inside = spine_links(f, asked, out, into, bounced)
    return [*inside, between]


def _levelled(links: LinkClass) -> LinkClass:
    """Links of full meshes, where what exceeds a level on one goes through all third switches of the group alike.

    The least level that holds is found by halving: groups of a switches, load <= T where each pair keeps T at most.
    """
    load = links.load
    a = load.shape[1]
    if a < 3:
        return links

    def detoured(level: Floats) -> Floats:
        kept = np.minimum(load, level[:, None, None])
        over = load - kept
        out, into = over.sum(axis=2), over.sum(axis=1)
        # From s to x goes what s sends elsewhere than to x; from x to t what others than x send to t.
        found: Floats = kept + (out[:, :, None] - over + into[:, None, :] - over) / (a - 2)
        own = np.arange(a)
        found[:, own, own] = 0.0
        return found

    high = load.max(axis=(1, 2))
    low = high / a
    for _ in range(30):
        middle = (low + high) / 2
        holds = detoured(middle).max(axis=(1, 2)) <= middle * (1 + 1e-9)
        high, low = np.where(holds, middle, high), np.where(holds, low, middle)
    return dataclasses.replace(links, load=detoured(high))
