"""Exposed communication of a trace: how long a device waits for it with nothing to compute, and what follows.

Several ranks' traces say more: a collective itself takes as long as on the rank that came last. What it takes longer
elsewhere is waiting for that rank.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from linkgauge.apps.trace_steps import RankSteps, Timed
from linkgauge.model.quantity import percent

_EACH_TO_EACH = re.compile(r"max\(4, (\d+) // ranks // 4 \* 4\)")  # an alltoall's, as trace_steps.py writes it
_LITTLE = 0.02  # of the time: what no change can win much of
_MOST = 0.5
_NEAR = 1.2  # times the least possible
# Of 14 programs of PyTorch on H100: the profiler made them 1.0 to 2.6 times as slow, their kernels 1.0 to 1.2 times.
# As CUDA graphs they took up to 5 us a kernel more than their kernels' sum.
_UNPROFILED = 0.35  # of a profile's time, at least
QUICKER, _SLOWER = 0.85, 1.1  # of its kernels' time
_GAP_NS = 5e3  # behind each
MOST_OF_PROFILED = 2.0  # times a profile's: what the same steps take without the profiler, at most


@dataclasses.dataclass(frozen=True)
class Exposed:
    """Collectives of one kind and size on one rank; times in ns. `waited_ns`: for ranks that came later, None where one
    trace alone does not say. `at_once_ns`: exposed since nothing was computed while they went on."""

    what: str
    pattern: str
    count: int
    ns: float
    exposed_ns: float
    at_once_ns: float
    waited_ns: float | None


class Beside(Protocol):
    """What computing and a collective cost each other while both are under way: times over those alone."""

    @property
    def collective(self) -> float:
        """Of the collective."""

    @property
    def work(self) -> float:
        """Of computing."""


class Advice(NamedTuple):
    """One sentence, and between which ends the time lies that it saves, of so much of the program; ns. It is none where
    the lower end is 0: `why_not` says what is not known."""

    words: str
    low_ns: float = 0.0
    high_ns: float = 0.0
    of_ns: float = 0.0
    why_not: str = ""
    profiled: bool = True  # `of_ns` is of the profile, not of the program without the profiler

    @property
    def promised(self) -> bool:
        """Whether it saves anything worth while for sure."""
        return self.low_ns > _LITTLE * self.of_ns


@dataclasses.dataclass(frozen=True)
class Exposure:
    """Of the rank that computes longest: the kinds, the most exposed first, and its times in ns.

    `least_ns`: what no order hides, for it is more than there is to compute. `idle_ns`: waiting for the host.
    `launches`: of what it computes and communicates.
    """

    rank: int
    kinds: Sequence[Exposed]
    busy_ns: float
    idle_ns: float
    least_ns: float
    launches: int

    @property
    def exposed_ns(self) -> float:
        """Of all kinds."""
        return sum(one.exposed_ns for one in self.kinds)

    @property
    def profiled_ns(self) -> float:
        """The time of the rank's steps in the profile."""
        return self.busy_ns + self.exposed_ns + self.idle_ns

    @property
    def share(self) -> float:
        """Of computing and waiting for communication."""
        whole = self.busy_ns + self.exposed_ns
        return self.exposed_ns / whole if whole else 0.0

    @property
    def waited_ns(self) -> float:
        """What of the exposed time is for ranks that came later."""
        return min(self.exposed_ns, sum(one.waited_ns or 0.0 for one in self.kinds))

    @property
    def own_ns(self) -> float:
        """Of all kinds, what they take where nobody is waited for."""
        return sum(one.ns - (one.waited_ns or 0.0) for one in self.kinds)

    def advice(self, program_ns: float = 0.0, beside: Callable[[str], Beside | None] | None = None) -> Advice:
        """What follows from the trace. `program_ns`: what the program takes without the profiler; 0: not known.
        `beside`: what computing and a collective of a pattern cost each other, where that was measured."""
        found = self._advice(program_ns, beside)
        high_ns = max(0.0, min(found.high_ns, found.of_ns - self._computes_ns(program_ns)))
        return found._replace(low_ns=min(found.low_ns, high_ns), high_ns=high_ns, profiled=not program_ns)

    def _computes_ns(self, program_ns: float) -> float:
        """What the device computes in the program at least. Without the profiler kernels are quicker, by no more than
        the program is."""
        quicker = program_ns / self.profiled_ns if program_ns and self.profiled_ns else 1.0
        return min(1.0, max(QUICKER, quicker)) * self.busy_ns

    def _advice(self, program_ns: float, beside: Callable[[str], Beside | None] | None) -> Advice:
        own_exposed = self.exposed_ns - self.waited_ns
        if self.idle_ns > max(own_exposed, _LITTLE * self.profiled_ns):
            return self._without_the_host(program_ns)
        if self.share < _LITTLE:
            return Advice(f"Communication is hidden: no change of it saves more than {percent(self.share, 1)} of both.")
        of_ns = program_ns or self.profiled_ns
        if self.waited_ns > _MOST * self.exposed_ns:
            return Advice("Another rank comes later: balance the ranks' work before communication.", 0.0,
                          self.waited_ns, of_ns, "what moves from one rank to another is not known")  # fmt: skip
        if self.exposed_ns <= _NEAR * self.least_ns:
            return Advice("There is too little to compute beside it: send half as many bytes.", 0.0,
                          min(self.exposed_ns, self.own_ns / 2), of_ns, "making them fewer takes time too")  # fmt: skip
        worst, saved = self.kinds[0], max(0.0, self.exposed_ns - self.least_ns)
        slow = None if beside is None else beside(worst.pattern)
        # A collective takes `collective` times as long, and computing does 1 / `work` of what it else does meanwhile.
        hidden = 0.0 if slow is None else max(0.0, 1 - slow.collective * (1 - 1 / slow.work))
        why_not = "computing slows beside it" + (", which --overlap RUN tells" if slow is None else " as much")
        at_once = sum(one.at_once_ns for one in self.kinds)
        if at_once > _MOST * self.exposed_ns and worst.count == 1:
            words = f"{worst.what} begins when computing has ended: make the last bucket smaller (bucket_cap_mb)."
            return Advice(words, 0.0, min(worst.at_once_ns, saved), of_ns, "how small it may be is not known")
        if at_once > _MOST * self.exposed_ns:
            words = f"{worst.what} is waited for at once: begin it earlier (async_op=True, or prefetch)."
            return Advice(words, hidden * min(saved, worst.exposed_ns), saved, of_ns, why_not)
        words = f"{worst.what} outlasts computing: begin it earlier, in smaller buckets (bucket_cap_mb)."
        return Advice(words, 0.0, saved, of_ns, "when its bytes are ready is not known")

    def _without_the_host(self, program_ns: float) -> Advice:
        """What launches that cost nothing save: then the GPU computes, and waits at most for all communication and, as
        stages of a pipeline do, for messages of other ranks."""
        before = (program_ns, program_ns) if program_ns else (_UNPROFILED * self.profiled_ns, self.profiled_ns)
        staged_ns = sum(one.waited_ns or 0.0 for one in self.kinds if one.pattern in ("send", "receive"))
        gpu_ns = self.busy_ns + self.own_ns + staged_ns
        after = (self._computes_ns(program_ns), _SLOWER * gpu_ns + _GAP_NS * self.launches)
        return Advice(
            "The host decides: make its launches cheaper (CUDA graphs, torch.compile) before communication.",
            max(0.0, before[0] - after[1]), max(0.0, before[1] - after[0]), program_ns or self.profiled_ns,
            "computing and communication may take as long" if program_ns
            else "the profiler slows the host: --program-time says how long the program takes without it",
        )  # fmt: skip


def exposure_of(ranks: Sequence[RankSteps]) -> Exposure:
    """What the ranks' traces say of the one that computes longest."""
    number = max(range(len(ranks)), key=lambda one: ranks[one].busy_ns)
    own = _own_ns(ranks, number)
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 5)
    for one, alone in zip(ranks[number].timed, own, strict=True):
        found = sums[_words(one), _verb(one)]
        for place, value in enumerate((1, one.ns, one.exposed_ns, one.at_once_ns, one.ns - alone)):
            found[place] += value
    kinds = [Exposed(what, pattern, int(count), ns, exposed, at_once, waited if len(ranks) > 1 else None)
             for (what, pattern), (count, ns, exposed, at_once, waited) in sums.items()]  # fmt: skip
    kinds.sort(key=lambda one: (-one.exposed_ns, -one.ns))
    mine = ranks[number]
    return Exposure(number, kinds, mine.busy_ns, mine.idle_ns, max(0.0, sum(own) - mine.busy_ns), mine.launches)


def _own_ns(ranks: Sequence[RankSteps], number: int) -> list[float]:
    """How long each of a rank's collectives and messages takes where nobody is waited for: as on the rank that came
    last. Collectives of groups are the rank's own, for others' traces do not have them in the same order."""
    mine = ranks[number].timed
    ends = _other_ends(ranks, number)
    alike = [rank.timed for rank in ranks if [one.step.get("group") for one in rank.timed] == [None] * len(mine)]
    found = []
    for place, one in enumerate(mine):
        # Of an alltoall with uneven blocks each rank says its own bytes.
        others = [timed[place].ns for timed in alike if _verb(timed[place]) == _verb(one)]
        found.append(min([one.ns, *others, *ends.get(place, ())]))
    return found


def _other_ends(ranks: Sequence[RankSteps], number: int) -> dict[int, list[float]]:
    """Of a rank's messages, by their place among what is timed, how long the other rank was at it.

    The k-th that is sent from one rank to another is the k-th that is received; of unlike numbers none is known.
    """
    found: dict[int, list[float]] = {}
    mine = _messages(ranks[number])
    for (verb, peer), places in mine.items():
        other = "receive" if verb == "send" else "send"
        theirs = _messages(ranks[peer]).get((other, number), []) if peer < len(ranks) else []
        if len(theirs) == len(places):
            found |= {place: [ranks[peer].timed[end].ns] for place, end in zip(places, theirs, strict=True)}
    return found


def _messages(rank: RankSteps) -> dict[tuple[str, int], list[int]]:
    """Where a rank's messages are among what is timed, by verb and peer."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, one in enumerate(rank.timed):
        for verb in ("send", "receive"):
            if verb in one.step:
                found[verb, int(one.step[verb])].append(place)
    return found


def _words(one: Timed) -> str:
    """A kind of step, for people: its pattern and bytes."""
    size = one.step.get("bytes")
    return _verb(one) if size is None else f"{_verb(one)} of {_bytes_of(size)}"


def _verb(one: Timed) -> str:
    step = one.step
    return str(step.get("collective", "")) or next((word for word in ("send", "receive") if word in step), "barrier")


def _bytes_of(size: object) -> str:
    """Bytes as they stand in a step: of all ranks a formula."""
    text = str(size).removesuffix(" * ranks")
    each = " from each rank" if text != str(size) else ""
    if found := _EACH_TO_EACH.fullmatch(text):
        text, each = found[1], " from each rank"
    return f"{int(text):,} B{each}" if text.isdecimal() else f"{text} B"
