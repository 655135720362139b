"""Limits for what is drawn: each case's rules by name, where the run says on what system it was measured."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from linkgauge.errors import LinkgaugeError
from linkgauge.expect.of_run import RunLimits, system_of_run
from linkgauge.model.patterns import lanes_of

if TYPE_CHECKING:
    from linkgauge.model.result import Measured
    from linkgauge.store.run import Run
    from linkgauge.system.model import System


@dataclasses.dataclass(frozen=True)
class LimitLine:
    """One rule's value for a row, counted as the row's headline is: goodput in bytes per second or latency in ns."""

    rule: str
    kind: str
    goodput_bytes_per_s: float | None
    latency_ns: float | None
    basis: str

    @property
    def rate(self) -> float:
        """The goodput of a limit that has one, as those of `limit_of` do."""
        assert self.goodput_bytes_per_s is not None
        return self.goodput_bytes_per_s

    @property
    def binds(self) -> bool:
        """Whether nothing can be better: an upper bound of the rate, a least time."""
        return self.kind == "upper bound"


class Limits:
    """The limits of a run's rows by the rules of linkgauge.expect; none without a run, or where it holds no system.

    `problem` says in one line why there are none although there is a system, `notes` why some rows have none.
    """

    def __init__(self, run: Run | None = None) -> None:
        """Read the system of run.json, if there is one."""
        self.problem = ""
        self.system: System | None = None
        self._of_run: RunLimits | None = None
        self._known: dict[tuple[str, int], list[LimitLine]] = {}
        if run is None or run.info.get("system") is None:
            return
        try:
            self.system = system_of_run(run)
            self._of_run = RunLimits(run, self.system)
        except LinkgaugeError as error:
            self.problem = str(error)

    def of(self, row: Measured) -> list[LimitLine]:
        """Return the limits of a row, the surest kind first; where lanes are summed, of all of them."""
        if self._of_run is None:
            return []
        key = (row.case_key, row.launch)
        if key not in self._known:
            self._known[key] = self._lines(row)
        return self._known[key]

    def limit_of(self, row: Measured) -> LimitLine | None:
        """Return the lowest bound on a row's goodput, or None."""
        bounds = [line for line in self.of(row) if line.binds and line.goodput_bytes_per_s]
        return min(bounds, key=lambda line: line.rate, default=None)

    def share_of(self, row: Measured) -> float | None:
        """Return a row's goodput over the lowest bound on it; None where either is not known."""
        bound = self.limit_of(row)
        return None if bound is None or row.goodput_bytes_per_s is None else row.goodput / bound.rate

    def on_one_node(self, row: Measured) -> bool:
        """Return whether a row's ranks lay on one node, so that the system's links join them."""
        return self._of_run is None or self._of_run.placed(row).nodes == 1

    @functools.cached_property
    def hops(self) -> dict[tuple[int, ...], int]:
        """The number of links on a shortest path between each two devices of the run's system."""
        if self.system is None:
            return {}
        ordinals = {device.name: device.ordinal for device in self.system.devices if device.ordinal is not None}
        return {
            (ordinal, ordinals[end]): hops
            for name, ordinal in ordinals.items()
            for end, hops in self.system.wires.hops(name).items()
            if end in ordinals
        }

    def sockets_apart(self, first: int, second: int) -> bool:
        """Return whether a shortest path between two devices passes two hosts, as from a processor to another."""
        if self.system is None:
            return False
        names = self.system.names_by_ordinal
        if first not in names or second not in names:
            return False
        hosts = {host.name for host in self.system.hosts}
        return len(hosts.intersection(self.system.wires.shortest(names[first], names[second]) or ())) > 1

    @property
    def notes(self) -> list[str]:
        """Why some of the run's cases have no limits, a line for each reason."""
        return [] if self._of_run is None else self._of_run.notes

    def _lines(self, row: Measured) -> list[LimitLine]:
        try:
            found = [] if self._of_run is None else self._of_run.of(row)
        except LinkgaugeError as error:
            self.problem = str(error)
            return []
        ways = lanes_of(row.pattern, row.ranks, row.case.groups)
        rates = (None if one.value_bytes_per_s is None else one.value_bytes_per_s * ways for one in found)
        return [LimitLine(one.rule, one.kind, rate, one.latency_ns, one.basis)
                for one, rate in zip(found, rates, strict=True)]  # fmt: skip


NONE = Limits()
"""Of no run: for charts that draw none."""
