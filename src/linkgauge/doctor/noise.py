"""What takes cores away from a thread that wants nothing but them: timers, daemons, other programs, a hypervisor."""

from __future__ import annotations

import dataclasses
import importlib
import os
import threading
from collections.abc import Sequence

import numpy as np

from linkgauge.stats.basics import Floats, median
from linkgauge.stats.spikes import period_of

LEAST_NS = 1_000
"""Shorter ones are the reads' own jitter: caches, the processor's own clock changes."""
_NOISY = 0.01  # share of time lost, from which latencies of microseconds are not a machine's alone
_LONG_NS = 1_000_000.0
LEVEL = 0.001


@dataclasses.dataclass(frozen=True)
class CoreNoise:
    """One core: detours of LEAST_NS and more, in all `count` in `span_s` seconds.

    `share` is the time that they took of it; `typical_ns` and `longest_ns` of their lengths; `period_ns` between those
    that come at a steady period, None where none stands out (stats/spikes.py, binomial test below LEVEL).
    """

    core: int
    span_s: float
    count: int
    share: float
    typical_ns: float
    longest_ns: float
    period_ns: float | None

    @property
    def noisy(self) -> bool:
        """Whether it is busy enough with other things to be seen in times of microseconds."""
        return self.share > _NOISY or self.longest_ns > _LONG_NS


def core_noise(seconds: float, cores: Sequence[int] | None = None) -> list[CoreNoise]:
    """Look at all cores that this process may use, or these, at once, a thread bound to each."""
    chosen = sorted(os.sched_getaffinity(0)) if cores is None else list(cores)
    core = importlib.import_module("linkgauge._core")
    found: dict[int, tuple[Floats, Floats, int]] = {}
    together = threading.Barrier(len(chosen))

    def look(number: int) -> None:
        os.sched_setaffinity(0, {number})  # of this thread
        together.wait()
        starts, lengths, span_ns, _ = core.find_detours(int(seconds * 1e9), LEAST_NS)
        found[number] = starts.astype(np.float64), lengths.astype(np.float64), span_ns

    threads = [threading.Thread(target=look, args=(number,)) for number in chosen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [_told(number, *found[number]) for number in chosen]


def _told(core: int, starts: Floats, lengths: Floats, span_ns: int) -> CoreNoise:
    if not lengths.size:
        return CoreNoise(core, span_ns / 1e9, 0, 0.0, 0.0, 0.0, None)
    return CoreNoise(core, span_ns / 1e9, int(lengths.size), float(lengths.sum()) / span_ns, median(lengths),
                     float(lengths.max()), _period(starts, lengths))  # fmt: skip


def _period(starts: Floats, lengths: Floats) -> float | None:
    """The period of all, or else of those longer than most: a daemon's among the timer's."""
    for fence in (0.0, float(np.percentile(lengths, 90))):
        period, _ = period_of(starts[lengths >= fence], LEAST_NS, LEVEL)
        if period is not None:
            return period
    return None
