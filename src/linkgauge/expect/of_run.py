"""A run's system, as its run folder holds it, and the limits of its cases there."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from linkgauge.errors import UsageError
from linkgauge.model.result import Row
from linkgauge.system.form import read
from linkgauge.system.model import System

if TYPE_CHECKING:
    from linkgauge.expect.limit import Limit
    from linkgauge.expect.network import Network
    from linkgauge.expect.of_places import Placed
    from linkgauge.store.run import Run


def system_of_run(run: Run) -> System:
    """Return the system in run.json (its JSON form under `system`); `UsageError` where the run holds none."""
    described = run.info.get("system")
    if described is None:
        raise UsageError(f"{run.path}: holds no system; name one: linkgauge expect NAME, or expect RUN --system NAME")
    return read(described, f"{run.path}: run.json")


class RunLimits:
    """What a system and the run itself allow each case of the run, by the nodes that its ranks lay on."""

    def __init__(self, run: Run, system: System) -> None:
        """Take a run and the system to ask."""
        from linkgauge.stats.launches import Places

        self._run, self._system = run, system
        self._places = Places(run.launched)

    @functools.cached_property
    def _achieved(self) -> Callable[[Mapping[str, Any]], list[Limit]]:
        from linkgauge.expect.achieved import achieved_limits

        return achieved_limits(self._run, self._system)

    def placed(self, row: Row) -> Placed:
        """Return how the rules are asked for a row; `problem` says why none is."""
        from linkgauge.expect.of_places import in_domain, placed

        places = in_domain(self._system, self._places.hosts, self._places.of_row(row))
        return placed(self._system, row.case.dimensions(), places)

    def of(self, row: Row) -> list[Limit]:
        """Return the limits of a row: those of the rules, and on one node what the run's own primitives reached."""
        from linkgauge.expect.of_places import limits_there

        case = self.placed(row)
        found = limits_there(self._system, case)
        if case.nodes == 1:
            return [*found, *self._achieved(case.cases[0])]
        stated = None if self._network is None else self._network.limit(row.case, row.launch)
        return found if stated is None else [*found, stated]

    @functools.cached_property
    def _network(self) -> Network | None:
        from linkgauge.expect.network import Network

        return Network.of_run(self._run)

    def _problem(self, row: Row) -> str:
        case = self.placed(row)
        if case.nodes == 1 or self.of(row):
            return "" if case.nodes != 1 else case.problem
        if case.problem:
            return case.problem
        return f"no rule or figure is of {row.pattern} there"

    @functools.cached_property
    def notes(self) -> list[str]:
        """Return why cases that lie on several nodes have no limits: a line for each reason, none where all have."""
        if len(self._places.hosts) < 2:
            return []
        rows = self._run.rows()
        why = collections.Counter(problem for row in rows if (problem := self._problem(row)))
        return [
            f"No limits for {count} of {len(rows)} cases, whose ranks lie on several nodes: {problem}."
            for problem, count in why.items()
        ]
