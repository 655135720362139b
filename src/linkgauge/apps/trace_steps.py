"""What one rank of a trace does, gathered step by step; and steps that follow themselves as loops."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from linkgauge.errors import UsageError
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS

# Collectives' many names, without their separators. The second: what a file's size is: that which each rank puts "in",
# or what it gets "out", a block of it for each rank.
COLLECTIVES = {
    "allreduce": ("allreduce", "in"), "allreducecoalesced": ("allreduce", "in"), "broadcast": ("broadcast", "in"),
    "reduce": ("reduce", "in"), "allgather": ("allgather", "in"), "allgatherbase": ("allgather", "in"),
    "allgatherintotensor": ("allgather", "in"), "allgatherintotensorcoalesced": ("allgather", "in"),
    "allgathercoalesced": ("allgather", "in"), "allgatherv": ("allgather", "in"),
    "reducescatter": ("reduce_scatter", "out"), "reducescatterbase": ("reduce_scatter", "out"),
    "reducescattertensor": ("reduce_scatter", "out"), "reducescattertensorcoalesced": ("reduce_scatter", "out"),
    "reducescattercoalesced": ("reduce_scatter", "out"), "reducescatterv": ("reduce_scatter", "out"),
    "reducescatterblock": ("reduce_scatter", "out"),
    "alltoall": ("alltoall", "in"), "alltoallbase": ("alltoall", "in"), "alltoallsingle": ("alltoall", "in"),
    "alltoallv": ("alltoall", "in"),
    "allgathersingle": ("allgather", "in"), "reducescattersingle": ("reduce_scatter", "out"),  # torchcomms'
    "alltoallvsingle": ("alltoall", "in"), "alltoallvdynamicdispatch": ("alltoall", "in"),
    "alltoallvdynamiccombine": ("alltoall", "in"), "gather": ("gather", "in"), "scatter": ("scatter", "out"),
}  # fmt: skip
NOTHING = ("init", "batchisendirecv", "coalescedbegin", "coalescedend", "startcoalescing", "endcoalescing")
OF_NOTHING = "collectives whose size is 0 or not recorded: left out"
_LONGEST_LOOP = 512
_LONGEST_SHARES = 4096  # characters: a step of each rank has them, and a file to run has 256 KiB
_SHARED_BYTES = 16  # of which shares are whole multiples (docs/definitions.md, Distributions)
MOST_RANKS = 4096
"""Of traces: each has a file, or its part of one. A trace may name more, as far as devices are numbered."""
_MOST_NAMED = 1 << 20
Group = tuple[int, int, int]
"""Ranks at equal distances: the first, how far apart, and how many."""
Steps = list[dict[str, Any]]


class Timed(NamedTuple):
    """What communicated in a trace, by its step: how long it went on, how long its device waited for it with nothing to
    compute, and how much of that because nothing was computed while it went on; ns."""

    step: Mapping[str, Any]
    ns: float
    exposed_ns: float
    at_once_ns: float


class Stated(NamedTuple):
    """A collective's step, and of which size in bytes its rank says that it is: that of its pattern's side.

    `shares`: of an alltoall what goes to each rank of its group, in any unit; empty where that is not said.
    """

    step: dict[str, Any]
    pattern: str
    size: int
    group: Group | None
    shares: tuple[int, ...]


class RankSteps:
    """What one rank does, gathered step by step."""

    def __init__(self, where: str, lost: Counter[str], *, eager: bool = False, of_all: int = 0,
                 host_time: bool = False) -> None:  # fmt: skip
        """Take the file's name, for errors, where to count what is lost, and whether what is sent goes without its
        receiver: a wait in a step file is one for the receiver too. `of_all`: how many ranks there are; 0: not known.
        `host_time`: whether computing has the time in which the device waits for the host."""
        self.where = where
        self.eager, self.of_all, self.host_time = eager, of_all, host_time
        self.number = -1  # of the rank, where the trace says it
        self.idle_ns = 0.0  # in which the device had nothing to do, for the host came later
        self.busy_ns = 0.0  # in which it computed
        self.launches = 0  # of what it computed and communicated
        self.timed: list[Timed] = []
        self.stated: list[Stated] = []
        self.steps: Steps = []
        self.lost = lost
        self.peers = False  # names ranks, so that it is of so many ranks only
        self.most_ranks = 1
        self._under_way = False
        self._entry = 0

    def fail(self, words: str) -> UsageError:
        """What is wrong with the entry in hand."""
        return UsageError(f"{self.where}: entry {self._entry}: {words}")

    def at(self, entry: int) -> None:
        """From now on errors are of this entry."""
        self._entry = entry

    def whole(self, entry: Mapping[str, Any], key: str, default: int | None = None) -> int:
        """A whole number of 0 or more; some traces write it as a text."""
        value = entry.get(key, default)
        if isinstance(value, str) and value.isdecimal() and len(value) < 19:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 50:
            raise self.fail(f"{key} is {str(value)[:40]!r}: expected a whole number of 0 or more")
        return value

    def compute(self, ns: int) -> None:
        """Time of the rank's own work, added to what went just before."""
        if ns > 0:
            if self.steps and "compute" in self.steps[-1]:
                self.steps[-1]["compute"] += ns
            else:
                self.steps.append({"compute": ns})

    def wait(self) -> None:
        """Wait for all that is under way, if anything is."""
        if self._under_way:
            self.steps.append({"wait": True})
            self._under_way = False

    def sent(self) -> bool:
        """Wait for what was sent, and so for all that is under way; nothing where that goes without its receiver.

        Returns whether it waits.
        """
        if not self.eager:
            self.wait()
        return not self.eager

    def _names(self, rank: int) -> None:
        if rank >= _MOST_NAMED:
            raise self.fail(f"rank {rank}: expected one below {_MOST_NAMED}")
        self.peers = True
        self.most_ranks = max(self.most_ranks, rank + 1)

    def message(self, verb: str, peer: int, size: int) -> None:
        """A message of so many bytes, which is then under way."""
        self._names(peer)
        if size:
            self.steps.append({verb: peer, "bytes": size})
            self._under_way = self._under_way or verb != "send" or not self.eager

    def collective(self, name: str, sizes: Mapping[str, int], group: Group | None, root: int,
                   begun: bool, shares: Sequence[int] = (), *, in_place: bool = False) -> None:  # fmt: skip
        """Of `sizes` in bytes, `in` and `out`; `group`: None for all; `shares`: what each rank gets, where said.

        `in_place`: an allgather whose own block lies where it is gathered."""
        plain = re.sub(r"[^a-z0-9]", "", name.lower())
        step: dict[str, Any]
        if plain == "wait":
            self.wait()
            return
        if plain in NOTHING:
            return
        if plain == "barrier":
            step = {"barrier": True}
        elif plain not in COLLECTIVES:
            self.lost[f"'{name[:40]}', which is no pattern here"] += 1
            return
        else:
            pattern, side = COLLECTIVES[plain]
            size = sizes[side] or max(sizes.values())
            if size == 0 and self.of_all < 2:  # else other ranks' traces have a share of it
                self.lost[OF_NOTHING] += 1
                return
            step = {"collective": pattern, "bytes": self.bytes_of(pattern, size, group)}
            self.stated.append(Stated(step, pattern, size, group, tuple(shares)))
            if PATTERNS[pattern].rooted:
                step["root"] = root
                if root:
                    self._names(root)
            if in_place and pattern == "allgather":
                step["in_place"] = True
            if begun:
                step["begun"] = self._under_way = True
        if group is not None:
            step["group"] = _group_formula(*group)
            self._names(group[0] + (group[2] - 1) * group[1])
        self.steps.append(step)

    def bytes_of(self, pattern: str, size: int, group: Group | None) -> Any:
        """m of the pattern, of so many bytes of one rank; a formula of `ranks` where all take part."""
        words = -(-size // 4) * 4
        if words != size:
            self.lost["sizes that are no whole 4 bytes: rounded up"] += 1
        if PATTERNS[pattern].per_peer:
            if group is not None:
                return max(4, size // group[2] // 4 * 4)
            return f"max(4, {words} // ranks // 4 * 4)"
        if PATTERNS[pattern].blocks:
            return words * group[2] if group is not None else f"{words} * ranks"
        return words


def copy_to_oneself(ranks: Sequence[RankSteps]) -> None:
    """Make messages of a rank to itself, as of periodic boundaries of one rank, copies within its device."""
    for number, rank in enumerate(ranks):
        kept: Steps = []
        for step in rank.steps:
            if step.get("send") == number:
                kept.append({"copy": "within_device", "bytes": step["bytes"]})
            elif step.get("receive") != number:
                kept.append(step)
        rank.steps = kept


def agree(ranks: Sequence[RankSteps]) -> None:
    """Make each collective the same on all its ranks. An alltoall of which all ranks state uneven shares has these;
    else each has the mean of the sizes that ranks state. One that moves nothing on any rank is left out on all of them,
    not on some, which others would wait for."""
    of: dict[Group | None, list[tuple[RankSteps, list[Stated]]]] = {}
    for rank in ranks:
        mine = grouped((one.group, one) for one in rank.stated)
        for group, found in mine.items():
            of.setdefault(group, []).append((rank, found))
    for members in of.values():
        alike = len({tuple(one.pattern for one in found) for _, found in members}) == 1
        nothing: list[set[int]] = [set() for _ in members]
        for turn in zip(*(found for _, found in members), strict=True) if alike else ():
            if _share_unevenly([rank for rank, _ in members], turn):
                continue
            sizes = [one.size for one in turn]
            size = -(-sum(sizes) // len(sizes))
            if len(set(sizes)) > 1:
                members[0][0].lost["collectives of which ranks state unlike sizes: each takes the mean"] += 1
                for (rank, _), one in zip(members, turn, strict=True):
                    one.step["bytes"] = rank.bytes_of(one.pattern, size, one.group)
            elif not size:
                for left_out, one in zip(nothing, turn, strict=True):
                    left_out.add(id(one.step))
        for (rank, found), left_out in zip(members, nothing, strict=True):
            if not alike:  # not the same turns: only what moves something here is known
                left_out.update(id(one.step) for one in found if not one.size)
            if left_out:
                rank.lost[OF_NOTHING] += len(left_out)
                rank.steps = [step for step in rank.steps if id(step) not in left_out]


def _share_unevenly(ranks: Sequence[RankSteps], turn: Sequence[Stated]) -> bool:
    """Make an alltoall one of the shares that its ranks state, where they are uneven; whether it is one now."""
    if any(one.size % (sum(one.shares) or 1) for one in turn):
        ranks[0].lost["shares of an alltoall that are no whole parts of its size: each destination gets the mean"] += 1
        return False
    count = len(turn)
    stated = [[one.size * share // (sum(one.shares) or 1) for share in one.shares] for one in turn]
    rows = [[size * (other != rank) for other, size in enumerate(row)] for rank, row in enumerate(stated)]
    total = sum(map(sum, rows))
    if len(set(itertools.chain.from_iterable(stated))) < 2 or not total:
        return False
    unit = math.gcd(*itertools.chain.from_iterable(rows))
    text = ";".join(",".join(str(size // unit) for size in row) for row in rows)
    group = turn[0].group
    whole = all(len(row) == count for row in rows) and count == (count if group is None else group[2])
    if not whole or count < 2 or len(text) > _LONGEST_SHARES:
        ranks[0].lost["uneven shares of an alltoall: each destination gets the mean"] += 1
        return False
    mean = total / (count * (count - 1))
    for rank, one in zip(ranks, turn, strict=True):
        one.step.update(
            collective="alltoallv", bytes=math.ceil(mean / _SHARED_BYTES) * _SHARED_BYTES, distribution=text
        )
        rank.peers, rank.most_ranks = True, max(rank.most_ranks, count)
    return True


def _group_formula(first: int, stride: int, count: int) -> str:
    """What is 0 on the ranks of a group, and on each other rank something of its own."""
    within = f"rank >= {first} and rank < {first + stride * count}"
    if stride > 1:
        within += f" and (rank - {first}) % {stride} == 0"
    return f"0 if {within} else 1 + rank"


def looped(steps: Steps) -> Steps:
    """The same steps, with what follows itself as a loop; the longest stretch that does so first."""
    keys = [json.dumps(step, sort_keys=True) for step in steps]
    found: Steps = []
    at = 0
    while at < len(steps):
        best, times = 0, 1
        for length in range(1, min(_LONGEST_LOOP, (len(steps) - at) // 2) + 1):
            if keys[at] != keys[at + length] or keys[at : at + length] != keys[at + length : at + 2 * length]:
                continue
            turns = 2
            while keys[at : at + length] == keys[at + turns * length : at + (turns + 1) * length]:
                turns += 1
            if (turns - 1) * length > (times - 1) * best:
                best, times = length, turns
        if best:
            found.append({"repeat": times, "step": looped(steps[at : at + best]) if best > 1 else [steps[at]]})
            at += best * times
        else:
            found.append(steps[at])
            at += 1
    return found


def computing(steps: Steps) -> int:
    """How many ns steps compute, loops as often as they turn."""
    return sum(one.get("compute", 0) if "step" not in one else one["repeat"] * computing(one["step"]) for one in steps)
