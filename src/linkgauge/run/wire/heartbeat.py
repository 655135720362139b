"""The heartbeat file: counters that ranks raise and the parent reads, in memory that both map.

Layout, little-endian 64-bit words: 8 words of header (magic, version, ranks, stop request, 0...), then 8 words for each
rank: count (completed samples), phase (number of the phase in hand), process id, case in hand + 1, state, bytes that
its node's network cards have counted (of ranks on other nodes than the parent's), 0... A rank's words share no cache
line with another's. Raising a counter is one store; nothing is written in a timed region.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_MAGIC = 0x4C47_4845_4152_5431
_VERSION = 1
_WORDS = 8
_STOP = 3
COUNT, PHASE, PID, CASE, STATE, CROSSED = range(6)
STATE_STARTING, STATE_MEASURING, STATE_IDLE, STATE_ENDED = range(4)
# The phases of docs/definitions.md and of the sampler, by the number that it stores; `compile` is within `prepare`.
PHASE_NAMES = (
    "none", "prepare", "check", "warm up", "align", "time", "record", "finished", "verify", "release", "compile",
    "other jobs",
)  # fmt: skip


class HeartbeatFile:
    """The mapped file of one launch on one node."""

    def __init__(self, path: Path, ranks: int, *, create: bool) -> None:
        """Map `path`, making it for `ranks` ranks where `create`. OSError where there is no room for it."""
        # A sixth of the processor time of a process that starts ranks, or looks at a node, and has no such file.
        import numpy as np

        self.path = path
        self.ranks = ranks
        size = 8 * _WORDS * (ranks + 1)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:  # memory that is not there is found here: touching it would end the process by SIGBUS
                os.posix_fallocate(descriptor, 0, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._words = np.frombuffer(self._map, dtype=np.uint64)
        if create:
            self._words[:3] = (_MAGIC, _VERSION, ranks)
        elif int(self._words[0]) != _MAGIC or int(self._words[2]) != ranks:
            raise ValueError(f"{path} is not the heartbeat file of {ranks} ranks")

    def rank_words(self, rank: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """A view of one rank's 8 words; it keeps the mapping alive."""
        start = _WORDS * (rank + 1)
        return self._words[start : start + _WORDS]

    def word(self, rank: int, which: int) -> int:
        """One word of one rank."""
        return int(self._words[_WORDS * (rank + 1) + which])

    def set_word(self, rank: int, which: int, value: int) -> None:
        """Set one word of one rank."""
        self._words[_WORDS * (rank + 1) + which] = value

    def words(self) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
        """A view of all ranks' words, a rank a row."""
        return self._words[_WORDS:].reshape(self.ranks, _WORDS)

    def beats(self) -> bytes:
        """What moves while a launch is alive: count, phase, case and state of every rank."""
        return self.words()[:, [COUNT, PHASE, CASE, STATE]].tobytes()

    def crossed(self, ranks: Sequence[int]) -> int:
        """Bytes that the cards of these ranks' nodes have counted: of the node with most, as it was last told."""
        return int(self.words()[ranks, CROSSED].max(initial=0))

    def known(self) -> frozenset[int]:
        """The ranks that have said their process ids in this very file: those of its node."""
        return frozenset(self.words()[:, PID].nonzero()[0].tolist())

    def pids(self) -> list[int]:
        """Process ids of the ranks that have said theirs."""
        said = self.words()[:, PID]
        return [int(pid) for pid in said[said != 0]]

    def phase_name(self, rank: int) -> str:
        """The phase that a rank is in."""
        number = self.word(rank, PHASE)
        return PHASE_NAMES[number] if number < len(PHASE_NAMES) else str(number)

    def request_stop(self) -> None:
        """Ask the ranks to end after the case in hand."""
        self._words[_STOP] = 1

    @property
    def stop_requested(self) -> bool:
        """Whether the parent has asked the ranks to end after the case in hand."""
        return bool(self._words[_STOP])
