"""A variable of a search, with the values that are tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from linkgauge.tune.record import Config


@dataclasses.dataclass(frozen=True)
class Factor:
    """A variable with its values in order, the default's not among them, which lies before the value at `home`."""

    name: str
    values: tuple[str, ...]
    ordered: bool = False
    home: int | None = None
    only_with: tuple[tuple[str, str], ...] = ()
    conflicts: tuple[str, ...] = ()

    def fits(self, config: Config) -> bool:
        """Whether it may change something beside the others."""
        others = dict(config)
        return all(others.get(name) == value for name, value in self.only_with) and not any(
            name in others for name in self.conflicts
        )

    def spread(self, most: int) -> list[str]:
        """Values to look at first: all, or of ordered ones the ends and some between."""
        if not self.ordered or len(self.values) <= most:
            return list(self.values)
        last = len(self.values) - 1
        return [self.values[round(place * last / (most - 1))] for place in range(most)]

    def beside(self, value: str | None) -> list[str]:
        """Values to go to from this one: all others, or of ordered ones the next two to each side."""
        if not self.ordered:
            return [other for other in self.values if other != value]
        if value is None:
            at = self.home if self.home is not None else len(self.values) // 2
            places = [at - 2, at - 1, at, at + 1]
        else:
            at = self.values.index(value)
            places = [at - 2, at - 1, at + 1, at + 2]
        return [self.values[place] for place in places if 0 <= place < len(self.values)]


def heeded(config: Config, factors: Mapping[str, Factor]) -> Config:
    """The setting without variables that change nothing beside the others, such as the radix of another algorithm."""
    while True:
        kept = tuple(item for item in config if factors[item[0]].fits(tuple(one for one in config if one != item)))
        if kept == config or not kept:
            return kept
        config = kept
