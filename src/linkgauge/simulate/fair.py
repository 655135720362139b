"""Max-min fair shares of flows that are alike, played out until all are through.

Flows are merged into classes: as many flows, each with the same use of the same links. The rate of a class rises until
a link on its way is full (Bertsekas and Gallager 1992, 6.5.2). Links are closed many at a time: one whose fair share is
no larger than those of all links that its flows pass will be closed at that share whatever happens elsewhere, because
closing a link never lowers the share of another. So a solution takes some tens of passes over a sparse table, where one
link a pass would take thousands.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from scipy.sparse import csr_matrix

from linkgauge.simulate.arrays import Floats, Ints, Mask

_CLOSE = 1e-9  # shares that differ by less are one
_MOST_EVENTS = 20_000
_OVERFULL = 1.05


class TooManyError(Exception):
    """More flows, classes of them or parts on links than are played out one by one."""


@dataclasses.dataclass(frozen=True)
class _Table:
    """Which class uses which link, an entry each: `key` is the sorted one of the two, `other` the other.

    Plain arrays: a sparse matrix takes three times as long to leave rows out.
    """

    key: Ints
    row: Ints
    column: Ints
    part: Floats
    other: Ints

    def of(self, left: Mask) -> _Table:
        """The entries of these classes alone."""
        kept = left[self.row]
        return _Table(self.key[kept], self.row[kept], self.column[kept], self.part[kept], self.other[kept])

    def sums(self, values: Floats, links: int) -> Floats:
        """Sums of the entries' values by link."""
        return np.bincount(self.column, weights=values, minlength=links).astype(np.float64)

    def reduced(self, values: Floats, how: np.ufunc, empty: float, size: int) -> Floats:
        """`how` of the values at each key's others; `empty` where it has none."""
        found = np.full(size, empty)
        if self.key.size:
            starts = np.flatnonzero(np.append(True, self.key[1:] != self.key[:-1]))
            found[self.key[starts]] = how.reduceat(values[self.other], starts)
        return found


@dataclasses.dataclass(frozen=True)
class Classes:
    """C classes over L links.

    `uses` (C x L) is the part of each flow of a class that passes a link, `count` how many flows it has, `bytes` of one
    flow (inf: it never ends), `capacity` of the links in bytes per second.
    """

    uses: csr_matrix
    count: Floats
    bytes: Floats
    capacity: Floats

    @functools.cached_property
    def tables(self) -> tuple[_Table, _Table]:
        """The uses in the order of classes, and in the order of links."""
        row = np.repeat(np.arange(self.uses.shape[0]), np.diff(self.uses.indptr))
        column, part = self.uses.indices, self.uses.data
        order = np.argsort(column, kind="stable")
        return (_Table(row, row, column, part, column),
                _Table(column[order], row[order], column[order], part[order], row[order]))  # fmt: skip


def max_min(classes: Classes, active: Mask | None = None, most: Floats | None = None) -> Floats:
    """The fair rate of each flow, by class; 0 of those not active. `most` bounds each, as a port of its own would.

    A flow that passes no link has an infinite rate.
    """
    n, links = classes.uses.shape
    rates = np.zeros(n)
    left = np.ones(n, dtype=bool) if active is None else active.copy()
    count, bound = classes.count, np.full(n, np.inf) if most is None else most
    by_class, by_link = (table.of(left) for table in classes.tables)
    residual = classes.capacity.astype(float).copy()
    while left.any():
        wanted = by_class.sums(by_class.part * count[by_class.row], links)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(wanted > 0, np.maximum(residual, 0.0) / wanted, np.inf)
        on_links = by_class.reduced(share, np.minimum, np.inf, n)
        least = np.minimum(on_links, bound)
        # The least that any flow of a link gets anywhere: equal to the link's own share where it is to be closed.
        lowest = by_link.reduced(least, np.minimum, np.inf, links)
        closing = share <= lowest * (1 + _CLOSE)
        reached = by_class.reduced(np.where(closing, share, -1.0), np.maximum, -1.0, n)
        # A flow's own bound closes it where no link of it has a smaller share.
        done = ((reached >= 0) & (least >= reached * (1 - _CLOSE)) & (reached >= least * (1 - 2 * _CLOSE))) | (
            np.isfinite(bound) & (least >= bound * (1 - _CLOSE)) & (on_links >= bound * (1 - _CLOSE))
        )
        done = (done | ~np.isfinite(least)) & left
        if not done.any():  # rounding: the very least is always closed
            done = left & (least <= least[left].min() * (1 + 10 * _CLOSE))
        rates[done] = least[done]
        taken = np.where(done & np.isfinite(least), count * np.where(np.isfinite(least), least, 0.0), 0.0)
        residual -= by_class.sums(by_class.part * taken[by_class.row], links)
        left &= ~done
        by_class, by_link = by_class.of(left), by_link.of(left)
    return rates


@dataclasses.dataclass(frozen=True)
class Played:
    """When each class ended (inf of those that never do, and of what could not be sent), and first rates."""

    ends: Floats
    rates: Floats


def play(
    classes: Classes, pessimistic_ports: Ints | None = None, within: float = 1e-9, *, together: float = 0.0,
    most: float = np.inf,
) -> Played:  # fmt: skip
    """Play flows out: fair rates, until a class ends, and again; until all that end have.

    Classes that would end within a part `within` of each other, or `together` seconds, end together.
    `pessimistic_ports`: links that, where they are full, hold back all flows that share a link with theirs
    (`held_back`). TooManyError where `most` parts of flows on links were looked at before all was through.
    """
    left = classes.bytes.astype(float).copy()
    ends = np.full(len(left), np.inf)
    active = np.ones(len(left), dtype=bool)
    finite = np.isfinite(left)
    ends[finite & (left <= 0)] = 0.0
    active &= left > 0
    now, first, looked = 0.0, None, 0.0
    entries = np.diff(classes.uses.indptr)
    for _ in range(_MOST_EVENTS):
        if not (active & finite).any():
            break
        looked += float(entries[active].sum())
        if looked > most:
            raise TooManyError
        rates = max_min(classes, active)
        if pessimistic_ports is not None:
            rates = held_back(classes, active, rates, pessimistic_ports)
        first = rates if first is None else first
        going = active & finite & (rates > 0)
        if not going.any():
            break
        with np.errstate(invalid="ignore"):
            times = np.where(going, left / np.where(going, rates, 1.0), np.inf)
        step = float(times.min())
        over = going & (times <= step * (1 + within) + max(together, 1e-300))
        step = float(times[over].max())
        now += step
        left = np.where(going & np.isfinite(left), np.maximum(0.0, left - rates * step), left)
        ends[over] = now
        active &= ~over
    return Played(ends, np.zeros(len(left)) if first is None else first)


def held_back(classes: Classes, active: Mask, rates: Floats, ports: Ints) -> Floats:
    """The pessimistic rule: a full port into a node holds back all that shares a link with what goes there.

    Flows into a port that is full drop to its share; whatever shares one of the links before it with them waits behind
    them, and has no more. It is what a lossless network without congestion control does at its worst, one step back.
    """
    uses = classes.uses
    # Over-full: more would come than the port takes, were it wide. A balanced alltoall fills its ports, and waits for
    # none.
    wide = classes.capacity.copy()
    wide[ports] = np.inf
    free = max_min(dataclasses.replace(classes, capacity=wide), active)
    wanted = np.asarray(uses.T @ np.where(active, classes.count * np.where(np.isfinite(free), free, 0.0), 0.0))
    full = ports[wanted.reshape(-1)[ports] > classes.capacity[ports] * _OVERFULL]
    most = np.full(len(rates), np.inf)
    by_link = uses.T.tocsr()
    ends = np.zeros(uses.shape[1], dtype=bool)
    ends[ports] = True
    for port in full:
        into = by_link.indices[by_link.indptr[port] : by_link.indptr[port + 1]]
        into = into[active[into]]
        if not len(into):
            continue
        share = float(rates[into].min())
        before = np.unique(uses[into].indices)
        before = before[~ends[before]]
        for link in before:
            behind = by_link.indices[by_link.indptr[link] : by_link.indptr[link + 1]]
            most[behind] = np.minimum(most[behind], share)
    return max_min(classes, active, most) if np.isfinite(most).any() else rates
