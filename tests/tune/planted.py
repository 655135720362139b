"""Stand-in libraries with a known response: what each setting does to the time, and noise as launches have it."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence

from linkgauge.tune.factor import Factor
from linkgauge.tune.record import Config, Outcome

SIZES = {"8 B": 2e3, "64 KiB": 3e4, "1 MiB": 4e5}


def numbers(*values: int) -> tuple[str, ...]:
    return tuple(map(str, values))


# As an MPI library has them: an algorithm, a threshold with its best in between, a protocol, cells, a radix that is of
# one algorithm alone, a trap, and a name that nobody reads.
FACTORS = (
    Factor("ALGORITHM", ("ring", "tree", "recursive", "smp", "nb")),
    Factor("THRESHOLD", numbers(1024, 2048, 4096, 16384, 32768, 65536, 131072, 262144), ordered=True, home=3),
    Factor("PROTOCOL", ("eager", "rendezvous", "zcopy")),
    Factor("CELLS", numbers(16, 32, 128, 256, 512), ordered=True, home=2),
    Factor("RADIX", numbers(3, 4, 5, 6, 7, 8), ordered=True, home=0, only_with=(("ALGORITHM", "tree"),)),
    Factor("FAST", ("1",)),
    Factor("UNREAD", ("1", "2", "3")),
)
GRID = math.prod(len(one.values) + 1 for one in FACTORS)

Surface = Callable[[Mapping[str, str]], float]


def one_optimum(values: Mapping[str, str]) -> float:
    """Each variable by itself: the best is recursive, 65536, zcopy and 128 cells."""
    time = {"ring": 1.05, "tree": 1.1, "recursive": 0.85, "smp": 1.3, "nb": 1.02}.get(values.get("ALGORITHM", ""), 1.0)
    time *= 1 + 0.02 * (math.log2(int(values.get("THRESHOLD", "8192")) / 65536)) ** 2 - 0.18
    time *= {"eager": 1.08, "rendezvous": 1.0, "zcopy": 0.94}.get(values.get("PROTOCOL", ""), 1.0)
    time *= 1 + 0.01 * (math.log2(int(values.get("CELLS", "64")) / 128)) ** 2
    time *= 0.7 if "FAST" in values else 1.0
    return time


def interaction(values: Mapping[str, str]) -> float:
    """Tree alone is slower, and zcopy alone too: both together are best, with a radix of 5."""
    tree, zcopy = values.get("ALGORITHM") == "tree", values.get("PROTOCOL") == "zcopy"
    time = {"ring": 1.1, "recursive": 0.95, "smp": 1.2, "nb": 1.04}.get(values.get("ALGORITHM", ""), 1.0)
    time *= {"eager": 1.1, "rendezvous": 1.05}.get(values.get("PROTOCOL", ""), 1.0)
    if tree or zcopy:
        time *= 0.75 if tree and zcopy else 1.06
    if tree:
        time *= 1 + 0.015 * (int(values.get("RADIX", "2")) - 5) ** 2 - 0.03
    time *= 1 + 0.01 * (math.log2(int(values.get("CELLS", "64")) / 64)) ** 2
    time *= 0.7 if "FAST" in values else 1.0
    return time


def nothing_helps(values: Mapping[str, str]) -> float:
    """The default is best."""
    time = {"ring": 1.1, "tree": 1.05, "recursive": 1.0, "smp": 1.2, "nb": 1.02}.get(values.get("ALGORITHM", ""), 1.0)
    time *= 1 + 0.02 * (math.log2(int(values.get("THRESHOLD", "8192")) / 8192)) ** 2
    time *= {"eager": 1.08, "rendezvous": 1.0, "zcopy": 1.0}.get(values.get("PROTOCOL", ""), 1.0)
    return time * (0.8 if "FAST" in values else 1.0)


def optimum(surface: Surface) -> float:
    """The least time of what is sound: by looking at the whole grid."""
    sound = [one for one in FACTORS if one.name not in ("FAST", "UNREAD")]
    choices = [[None, *one.values] for one in sound]
    return min(
        surface({one.name: value for one, value in zip(sound, chosen, strict=True) if value is not None})
        for chosen in itertools.product(*choices)
    )


class PlantedBench:
    """Launches of a stand-in: each scatters by some per cent, some are disturbed, and the machine drifts.

    FAST corrupts, in four launches of five; nothing reads UNREAD.
    """

    def __init__(self, surface: Surface, seed: int, launches: int, noise: float = 0.02) -> None:
        self._surface, self._random, self.most = surface, random.Random(seed), launches
        self._noise, self._drift = noise, 0.0
        self.asked: list[Config] = []

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        if len(self.asked) >= self.most:
            return None
        self.asked.append(config)
        values = dict(config)
        if "FAST" in values and self._random.random() < 0.8:
            return Outcome({}, bad="corrupt: 17 wrong bytes")
        self._drift += self._random.gauss(0, self._noise / 5)
        launch = self._random.gauss(0, self._noise) + self._drift
        launch += self._random.expovariate(1 / 0.3) if self._random.random() < 0.05 else 0.0
        factor = self._surface(values)
        times = {size: time * factor * math.exp(launch + self._random.gauss(0, self._noise / 2))
                 for size, time in SIZES.items()}  # fmt: skip
        rest = {"alltoall 64 KiB": 5e4 * math.exp(launch)} if confirms else {}
        return Outcome(times, rest)

    def foresee(self, configs: Sequence[Config]) -> None:
        """Each has a launch of its own."""

    def at_hand(self, config: Config) -> bool:
        return False

    def shares(self, config: Config) -> bool:
        return False

    def launch_share(self) -> float:
        return 1 / self.most if self.asked else 0.0

    def left(self) -> float:
        return 1 - len(self.asked) / self.most

    def unread(self, config: Config) -> frozenset[str]:
        return frozenset({"UNREAD"} & {name for name, _ in config})
