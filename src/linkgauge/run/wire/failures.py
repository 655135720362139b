"""Which cases are left out after failures (--max-failures): by node or nodes together, as docs/definitions.md has it.

Rank 0 asks before each case of a launch, and the parent before each launch. One bad node of a hundred is to cost its
own cases alone; a transport that works nowhere is to cost few failures, since each hang takes 10 s or more.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from linkgauge.model.case import Case
from linkgauge.run.wire.spec import BROKEN

_Nodes = TypeVar("_Nodes", bound=Collection[Any])


@dataclasses.dataclass(frozen=True)
class Exhausted:
    """Why a case is left out: `count` cases of its transport failed with all these nodes, by their numbers in the run.

    `everywhere`: with each of them, and nothing alike was ok on any other.
    """

    nodes: tuple[int, ...]
    count: int
    everywhere: bool = False


@dataclasses.dataclass
class _Failed:
    """A failed case: which nodes it counts against, what it was, and when, counted in cases."""

    nodes: frozenset[int]
    alike: str
    when: int


def nodes_of(case: Case) -> frozenset[int]:
    """The numbers of the nodes that a case and its loads lie on."""
    jobs = (case, *(load.case for load in case.background.each))
    return frozenset(case.node_of(device) for job in jobs for device in job.devices)


def least_nodes(sets: Iterable[_Nodes], place: Callable[[Any], int] = int) -> Iterator[tuple[Any, list[_Nodes]]]:
    """The least nodes that explain all of these sets, one by one, each with those that it explains.

    The one of most sets first, of several the one of the last place.
    """
    left = list(sets)
    while left:
        counts = Counter(node for one in left for node in one)
        worst = max(counts, key=lambda node: (counts[node], place(node)))
        yield worst, [one for one in left if worst in one]
        left = [one for one in left if worst not in one]


class Failures:
    """The failures of each transport so far."""

    def __init__(self, limit: int, plain: Mapping[str, Any] | None = None) -> None:
        """Take --max-failures, and what `to_plain` gave."""
        self._limit = limit
        self._cases = 0
        self._failed: dict[str, list[_Failed]] = {}
        self._last_ok: dict[str, dict[int, int]] = {}  # of each node, of cases between nodes
        self._were_ok: dict[str, set[str]] = {}
        self._left_out: dict[str, list[Exhausted]] = {}
        if plain:
            self._cases = int(plain["cases"])
            for transport, known in plain["transports"].items():
                self._failed[transport] = [_Failed(frozenset(nodes), alike, when)
                                           for nodes, alike, when in known["failed"]]  # fmt: skip
                self._last_ok[transport] = {int(node): when for node, when in known["last_ok"].items()}
                self._were_ok[transport] = set(known["were_ok"])

    def to_plain(self) -> dict[str, Any]:
        """As it travels to the ranks; nothing where nothing has failed, since what was ok matters to failures alone."""
        if not any(self._failed.values()):
            return {}
        return {
            "cases": self._cases,
            "transports": {
                transport: {
                    "failed": [[sorted(one.nodes), one.alike, one.when] for one in failed],
                    "last_ok": self._last_ok.get(transport, {}),
                    "were_ok": sorted(self._were_ok.get(transport, ())),
                }
                for transport, failed in self._failed.items()
            },
        }

    def note(self, case: Case, status: str, node: int | None = None) -> None:
        """A case has ended; `node`: of which node its failure is, where that is sure."""
        self._cases += 1
        nodes = nodes_of(case)
        if status == "ok":
            self._were_ok.setdefault(case.transport, set()).add(_alike(case))
            if len(nodes) > 1:
                self._last_ok.setdefault(case.transport, {}).update(dict.fromkeys(nodes, self._cases))
        elif status in BROKEN or (status == "timeout" and node is not None):
            against = nodes if node is None else frozenset({node})
            self._failed.setdefault(case.transport, []).append(_Failed(against, _alike(case), self._cases))
        else:
            return
        self._left_out.pop(case.transport, None)

    def why_left_out(self, case: Case) -> Exhausted | None:
        """Why no more of a case's kind are measured; None: they are."""
        if case.transport not in self._failed:
            return None
        if case.transport not in self._left_out:
            self._left_out[case.transport] = list(self._exhausted(case.transport))
        nodes = nodes_of(case)
        return next((one for one in self._left_out[case.transport] if one.everywhere or nodes.issuperset(one.nodes)),
                    None)  # fmt: skip

    def _exhausted(self, transport: str) -> Iterator[Exhausted]:
        failed = self._failed[transport]
        ok = self._were_ok.get(transport, set())
        nowhere = [one.nodes for one in failed if one.alike not in ok]
        guilty = [node for node, _ in least_nodes(nowhere)]
        most = max(self._limit, 2) ** 2  # fewer may be broken nodes, of which good ones come later
        never = not self._last_ok.get(transport) and len(nowhere) >= 2 * most and len(guilty) >= self._limit
        if len(guilty) >= most or never:
            yield Exhausted(tuple(sorted(guilty)), len(nowhere), everywhere=True)
        together = Counter(one.nodes for one in failed)
        yield from (Exhausted(tuple(sorted(nodes)), n) for nodes, n in together.items() if n >= self._limit)
        yield from self._single(transport)

    def _single(self, transport: str) -> Iterator[Exhausted]:
        """Nodes that alone explain twice the limit of failures with half of the others, and had no ok case since.

        At random a sound node among few may have as many failures as a broken one for a while: of two alike none is
        accused before three times the limit. Large frames may be lost between a few nodes of many.
        """
        last = self._last_ok.get(transport, {})
        seen = set(last).union(*(one.nodes for one in self._failed[transport]))
        few = min(2 * self._limit, max(2, len(seen) // 2))
        left = [one for one in self._failed[transport] if len(one.nodes) > 1]
        while left:
            since = Counter(node for one in left for node in one.nodes if one.when > last.get(node, 0))
            (node, count), *others = since.most_common(2) or [(0, 0)]
            alike = any(other == count for _, other in others)
            kinds = {one.nodes for one in left if node in one.nodes and len(one.nodes) < len(seen)}
            if count < self._limit * (3 if alike else 2) or len(kinds) < few:
                return
            yield Exhausted((node,), count)
            left = [one for one in left if node not in one.nodes]


def _alike(case: Case) -> str:
    """What a case was, whichever nodes it had: on one node and between nodes are not alike."""
    return f"{case.pattern} {case.size} {'between' if len(nodes_of(case)) > 1 else 'on'}"
