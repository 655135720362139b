"""Settings that are changed while a launch goes on, so that hundreds are measured in one: as a dimension of its cases.

MPI_T's control variables are written before a case and its communicator, UCX gets them with the context that is made
for a case, NCCL with a communicator of the case's own. What is recommended is measured on launches of its own, by its
exports, all the same (tune/confirm.py).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from linkgauge.model.worded import LibrarySettings
from linkgauge.tune.record import Config

LAST_S = 1.0
"""Of the budget for what comes after the last launch."""
_SHARE_TOGETHER = 0.1  # of the budget, for a launch of several: it may end beyond what the search would begin
_TIMES_TOGETHER = 5.0  # of a short budget as many times what a launch takes, of which the launch itself is then a fifth
_MOST_SHARE_TOGETHER = 0.3


@dataclasses.dataclass(frozen=True)
class InLaunch:
    """What can be changed. `taken`: by variable and value what the library is told; `usual`: what it has without.

    `env`: what such a launch is started with, without which the variables are not heeded.
    """

    taken: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    usual: Mapping[str, str] = dataclasses.field(default_factory=dict)
    env: tuple[tuple[str, str], ...] = ()

    def written(self, config: Config) -> LibrarySettings | None:
        """The setting as a case has it; empty for the default, None where it needs a launch of its own."""
        words = [(name, self.taken.get(name, {}).get(value) or "") for name, value in config]
        return LibrarySettings.of(words) if all(_is_word(told) for _, told in words) else None

    def spelled(self, written: LibrarySettings, number: int) -> LibrarySettings | None:
        """The same setting in its n-th way: a launch has each case once, so further ones say what is usual anyway.

        None where there are no more ways.
        """
        mine = dict(written.pairs)
        spare = [(name, value) for name, value in self.usual.items() if name not in mine and _is_word(value)]
        if number >> len(spare):
            return None
        more = (pair for place, pair in enumerate(spare) if number >> place & 1)
        return LibrarySettings.of((*written.pairs, *more))

    def meant(self, spelled: LibrarySettings) -> LibrarySettings:
        """What a case's settings come to, however they are spelled."""
        return LibrarySettings.of(pair for pair in spelled.pairs if self.usual.get(pair[0]) != pair[1])

    def each_once(self, wanted: Sequence[LibrarySettings], most: int) -> list[tuple[LibrarySettings, LibrarySettings]]:
        """The first of `wanted`, each with the way in which it is spelled, as far as all of them differ.

        The default is always spelled out, as it is where others are: under the same conditions as these.
        """
        told = Counter({LibrarySettings(): 1})
        found = []
        for written in wanted[:most]:
            spelled = self.spelled(written, told[written])
            if spelled is None:
                break
            told[written] += 1
            found.append((written, spelled))
        return found


def room_together_s(budget_s: float, left_s: float, usual_s: float) -> float:
    """How long a launch of several settings may take beside the `usual_s` that any launch takes; 0 or less: no time."""
    most_s = max(_SHARE_TOGETHER * budget_s, min(_TIMES_TOGETHER * usual_s, _MOST_SHARE_TOGETHER * budget_s))
    return min(most_s, left_s - LAST_S) - usual_s


def _is_word(text: str) -> bool:
    return text != "" and not any(letter.isspace() for letter in text)
