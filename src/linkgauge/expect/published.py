"""Curves of messages that a paper or a tool's result files state, and what was seen of applications beside them.

Copies, and what no curve states, take what the links of a described system allow. Collectives are those that MPI
libraries make of messages: trees, doubling and rounds of pairs (Thakur, Rabenseifner and Gropp 2005). A rank that sends
and receives at once takes no longer than one that does either.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.apps import catalog
from linkgauge.errors import UsageError, nearest
from linkgauge.expect.curves import Curve, Curves, kind_of
from linkgauge.expect.mechanism import Mechanism
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import parse_duration
from linkgauge.model.shape import (
    Shape,
    checked,
    each,
    flag,
    label,
    mapping,
    number,
    one_of,
    only,
    parsed_by,
    read_toml,
    text,
    whole,
)
from linkgauge.model.worded import App

FOLDER = Path(__file__).parent.parent / "curves"
_MOST = 1 << 50
_WAY: dict[str, Shape] = {
    "name": label, "words": text, "memory": one_of(("device", "pinned", "pageable")), "copied_out": flag,
    "set": mapping(whole(0, _MOST)), "sizes": each(whole(1, _MOST), 1000, 1),
    "times_us": each(number(1e-3, 1e12), 1000, 1),
}  # fmt: skip
_SEEN: dict[str, Shape] = {
    "app": parsed_by(App.of_text), "ranks": whole(1, 4096), "what": text, "times": mapping(parsed_by(parse_duration)),
}  # fmt: skip
_FILE: dict[str, Shape] = {
    "description": text, "source": text, "system": label, "always": mapping(label),
    "way": each(only(_WAY, ("name", "memory", "sizes", "times_us")), 64, 1), "seen": each(only(_SEEN, tuple(_SEEN))),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Way:
    """One way of messages. `copied_out`: its times have a copy out of the sender's device in them. `settings`: what
    an application is set to by it, if it has such a parameter."""

    name: str
    words: str
    memory: str
    copied_out: bool
    settings: Mapping[str, int]
    curve: Curve

    @property
    def mechanism(self) -> Mechanism:
        """By MPI, from and into this memory."""
        return Mechanism("mpi", "mpi", (self.memory, self.memory), name=self.name)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What an application was seen to take, in ns by the name of a way; `what` of it."""

    app: App
    ranks: int
    what: str
    times_ns: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Published:
    """A file of curves. `always`: which way an application takes whatever is asked."""

    name: str
    source: str
    system: str
    ways: tuple[Way, ...]
    always: Mapping[str, str]
    seen: tuple[Seen, ...]

    def way_of(self, app: App, way: Way) -> Way:
        """The way that an application takes where this one is asked."""
        name = self.always.get(app.name, way.name)
        return next(one for one in self.ways if one.name == name)

    def seen_of(self, app: App, ranks: int) -> Seen | None:
        """What was seen of an application with these parameters, but for those that ways set."""
        wanted = self._without(app)
        return next((one for one in self.seen if one.ranks == ranks and self._without(one.app) == wanted), None)

    def _without(self, app: App) -> App:
        set_by_ways = {key for way in self.ways for key in way.settings}
        found = catalog.asked(app).app
        return App.of(found.name, "", (one for one in found.settings if one[0] not in set_by_ways), "")


def names() -> list[str]:
    """The files that travel with the program."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Published:
    """A built-in file of curves, or one of the user's; UsageError naming file, table and key."""
    path = FOLDER / f"{name}.toml"
    if not path.is_file():
        path = Path(name)
        if path.suffix != ".toml":
            there = names()
            raise UsageError(
                f"no curves '{name}'{nearest(name, there)}: expected a .toml file or one of {', '.join(there)}"
            )
    said = checked(read_toml(path, "a TOML file of curves"), only(_FILE, ("source", "system", "way")), name)
    ways = tuple(_way(one, f"{name}: [[way]] {place}") for place, one in enumerate(said["way"], 1))
    known = {way.name for way in ways}
    seen = tuple(Seen(one["app"], one["ranks"], one["what"], one["times"]) for one in said.get("seen", []))
    for way in {*said.get("always", {}).values(), *itertools.chain.from_iterable(one.times_ns for one in seen)}:
        if way not in known:
            raise UsageError(f"{name}: no way '{way}': expected one of {', '.join(sorted(known))}")
    return Published(name, said["source"], said["system"], ways, said.get("always", {}), seen)


def _way(said: Mapping[str, Any], where: str) -> Way:
    sizes, times = said["sizes"], said["times_us"]
    if len(sizes) != len(times) or sorted(set(sizes)) != sizes:
        raise UsageError(f"{where}: {len(sizes)} sizes and {len(times)} times: expected as many, at rising sizes")
    return Way(said["name"], said.get("words", ""), said["memory"], said.get("copied_out", False),
               said.get("set", {}), Curve(tuple(sizes), tuple(one * 1e3 for one in times)))  # fmt: skip


class CurvesOfWay(Curves):
    """The curves of one way: its messages, collectives made of them, and a system's copies."""

    def __init__(self, way: Way, beneath: Curves) -> None:
        """Take a way, and the curves of what it does not state."""
        self._beneath = beneath
        self._messages = way.curve
        self._message_sizes = way.curve.sizes
        if way.copied_out:
            out = beneath.need("device_to_host", "copy_engine", ("device", way.memory), (1,))
            times = (max(time - out(size), 1.0) for size, time in zip(way.curve.sizes, way.curve.times, strict=True))
            self._messages = Curve(way.curve.sizes, tuple(times))

    def find(
        self, pattern: str, transport: str, memory: tuple[str, str], ranks: Sequence[int], window: int = 1,
        variant: str = "",
    ) -> Curve | None:  # fmt: skip
        """The curve on the first of these numbers of ranks; None where messages do not say it."""
        kind = kind_of(pattern)
        if kind not in ("message", "collective", "barrier"):
            return self._beneath.find(pattern, transport, memory, ranks, window, variant)
        if window > 1 or variant:
            return None
        if kind == "message":
            turns = {"pingpong": 2, "unidirectional": 1, "bidirectional": 1}.get(pattern)
            return None if turns is None else self._made(lambda size: turns * self._messages(size))
        steps = _of_messages(pattern, ranks[0], self._messages)
        return None if steps is None else self._made(steps)

    def _lacking(self, pattern: str, transport: str, ranks: int) -> str:
        return f"published curves of messages say nothing of {pattern} on {ranks} ranks"

    def _made(self, time_of: Callable[[int], float]) -> Curve:
        return Curve(self._message_sizes, tuple(map(time_of, self._message_sizes)))


def _of_messages(pattern: str, count: int, message: Curve) -> Callable[[int], float] | None:
    """A collective's time by its size m (docs/definitions.md) on so many ranks, as messages that follow each other."""
    rounds = max(0, count - 1).bit_length()

    def halving(size: int) -> float:
        """Blocks of m / n, twice as many each round: gather, scatter, allgather, reduce_scatter."""
        return sum(message(min(count - (1 << turn), 1 << turn) * size // count) for turn in range(rounds))

    ways: dict[str, Callable[[int], float]] = {
        "barrier": lambda _: rounds * message(1), "broadcast": lambda size: rounds * message(size),
        "reduce": lambda size: rounds * message(size),
        "allreduce": lambda size: min(rounds * message(size), 2 * halving(size)),
        "alltoall": lambda size: (count - 1) * message(size),
        **dict.fromkeys(("gather", "scatter", "allgather", "reduce_scatter"), halving),
    }  # fmt: skip
    return ways.get(PATTERNS[pattern].spread_of or pattern)
