"""All pairs of devices at the largest size at which all were measured, by the best mechanism: the matrix of a run."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from linkgauge.findings.filled import FILLED_SHARE
from linkgauge.findings.wiring import Way, Wiring
from linkgauge.model.case import MECHANISM, held_apart, values_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import over_host
from linkgauge.stats.alike import LEAST_DIFFERENCE
from linkgauge.view.alike import Kinds, apart, half_width
from linkgauge.view.ceilings import Ceilings
from linkgauge.view.results import Results
from linkgauge.view.row import Row

Pair = tuple[int, int]
Place = TypeVar("Place")

ONE_WAY = ("unidirectional", "pingpong")
BOTH_WAYS = ("bidirectional",)
_LEAST_SAMPLES = 6
_RATE = "goodput_bytes_per_s"
_APART = held_apart("size", "devices", *MECHANISM)


@dataclasses.dataclass(frozen=True)
class PairClass:
    """Ordered pairs that are alike, and those of them whose goodput differs from the others' beyond the noise."""

    pairs: tuple[Pair, ...]
    low: float  # of those that do not stand apart, as `high`; bytes per second
    high: float
    apart: tuple[Pair, ...]
    sure: bool  # every member's median is known closely enough to compare it

    @property
    def within(self) -> float:
        """The width of the range of those that do not stand apart, over its upper end."""
        return 1 - self.low / self.high if self.high else 0.0


class FullPairs:
    """The ordered pairs between device memories of one pattern and mechanism at one size. Goodputs in bytes/s."""

    def __init__(self, results: Results, ceilings: Ceilings, kinds: Kinds, rows: dict[Pair, Row]) -> None:
        """Take the chosen rows, one for each pair."""
        self.rows = rows
        self._results, self._kinds = results, kinds
        known = ceilings.system is not None and len(kinds.hosts) <= 1
        self._wiring = Wiring(ceilings.system) if known else None
        self._first = next(iter(rows.values()))

    @property
    def pattern(self) -> str:
        """The pattern of all rows."""
        return str(self._first["pattern"])

    @property
    def size(self) -> int:
        """The size of all rows, in bytes."""
        return int(self._first["size"])

    @property
    def label(self) -> str:
        """The mechanism's name."""
        return self._results.label(self._first)

    @functools.cached_property
    def devices(self) -> list[int]:
        """The devices of the run's pairs."""
        return sorted({end for pair in self.rows for end in pair})

    @functools.cached_property
    def complete(self) -> bool:
        """Whether every ordered pair of the devices that took part in the run was measured."""
        every = set(self._kinds.devices) | set(self.devices)
        return len(self.rows) == len(every) * (len(every) - 1)

    @functools.cached_property
    def limits(self) -> dict[Pair, float]:
        """What the narrowest link on each pair's way carries, both ways' sum where that is measured, in bytes/s.

        Pairs whose way or rate is not known are left out: all, without a system, or across hosts.
        """
        lanes = PATTERNS[self.pattern].ways
        ways = {pair: self.way(pair) for pair in self.rows}
        return {pair: way.rate * lanes for pair, way in ways.items() if way is not None and way.rate}

    def way(self, pair: Pair) -> Way | None:
        """Return the way that a pair's bytes take, by fewest links; None where it is not known."""
        over = over_host(self._first["transport"], self._first["path"] or "")
        return None if self._wiring is None else self._wiring.way(*pair, over_host=over)

    def share(self, pair: Pair) -> float | None:
        """Return a pair's goodput over what its way carries; None where either is not known."""
        return float(self.rows[pair][_RATE]) / self.limits[pair] if pair in self.limits else None

    @functools.cached_property
    def shares(self) -> list[float]:
        """The shares of all pairs whose way is known."""
        return [share for pair in self.rows if (share := self.share(pair)) is not None]

    @property
    def filled(self) -> bool:
        """Whether a link was what limited the fastest pair, as far as ways are known."""
        return max(self.shares, default=0.0) >= FILLED_SHARE

    @functools.cached_property
    def classes(self) -> list[PairClass]:
        """The classes of alike pairs, the fastest first."""
        groups: dict[Any, list[Pair]] = {}
        for pair in sorted(self.rows):
            groups.setdefault(self._kinds.key(self.rows[pair]), []).append(pair)
        found = []
        for pairs in groups.values():
            rates = [float(self.rows[pair][_RATE]) for pair in pairs]
            outside = apart(rates, [self.rows[pair] for pair in pairs])
            usual = [rate for place, rate in enumerate(rates) if place not in outside]
            sure = all(_known(self.rows[pair]) for pair in pairs)
            found.append(PairClass(tuple(pairs), min(usual), max(usual), tuple(pairs[i] for i in outside), sure))
        return sorted(found, key=lambda one: -one.high)


def _known(row: Row) -> bool:
    """Whether a row has samples enough, and an interval no wider than what alike ones may differ."""
    return row["samples"] >= _LEAST_SAMPLES and half_width(row) <= LEAST_DIFFERENCE


def full_pairs(results: Results, ceilings: Ceilings, kinds: Kinds, patterns: tuple[str, ...]) -> FullPairs | None:
    """Return the pairs of these patterns at the largest size at which all were measured, by the best mechanism.

    Where no mechanism measured all of them, those of the most pairs count. None where none was measured.
    """
    plain = [
        row
        for row in results.rows
        if row["pattern"] in patterns
        and row["source_memory"] == row["target_memory"] == "device"
        and row["groups"] == 1
        and not row["beside"]
        and len(set(row["devices"])) == 2
    ]
    rows = fullest(results, plain, lambda row: (int(row["devices"][0]), int(row["devices"][1])))
    return FullPairs(results, ceilings, kinds, rows) if rows else None


def fullest(results: Results, rows: Iterable[Row], place: Callable[[Row], Place]) -> dict[Place, Row]:
    """Return a row for each place, of one mechanism and task and of the largest size that has the most places.

    Of several mechanisms with as many places the one of the highest median goodput; empty where there is no goodput.
    """
    groups: dict[tuple[Any, ...], dict[int, dict[Place, Row]]] = {}
    for row in sorted(rows, key=lambda row: row["effective_samples"] or 0, reverse=True):
        if row[_RATE]:
            key = (results.label(row), *values_of(row, _APART))
            groups.setdefault(key, {}).setdefault(row["size"], {}).setdefault(place(row), row)
    found = []
    for sizes in groups.values():
        most = max(len(own) for own in sizes.values())
        found.append(sizes[max(size for size, own in sizes.items() if len(own) == most)])

    def rank(own: dict[Place, Row]) -> tuple[int, float]:
        return (len(own), statistics.median(float(row[_RATE]) for row in own.values()))

    return max(found, key=rank, default={})


def percent_up(share: float) -> int:
    """Return a share in whole percent, rounded up: what lies within it does."""
    return max(1, math.ceil(100 * share - 1e-9))
