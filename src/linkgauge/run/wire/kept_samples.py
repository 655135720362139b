"""What a case beside loads of its own launch keeps when one of them takes the launch along.

A rank of the measured job adds its samples to a file beside the journal after each round, with the loads at rest or
about to be; where the run folder is shared, also from other nodes. When a load's rank has hung or died, so that the
launch had to end, the parent makes the case's record of them (run/parent/launch_end.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Any

import numpy as np

from linkgauge.model.case import Case
from linkgauge.run.wire.outcome import RankOutcome
from linkgauge.run.wire.spec import WorkerSpec, job_ranks

_SAMPLE = np.dtype([  # core/measure/sampler.h, Sample
    ("scheduled_ns", "<i8"), ("start_ns", "<i8"), ("ns", "<i8"), ("iterations", "<i8"), ("sample", "<i4"),
    ("lane", "<i2"), ("phase", "|u1"), ("clock", "|u1")])  # fmt: skip


class KeptSamples:
    """A rank's file of the case in hand, as the core takes it."""

    def __init__(self, spec: WorkerSpec, case: Case, rank: int) -> None:
        """Make it, where the rank is of the measured job and loads are beside it; where it cannot be, none is kept."""
        self._file = -1
        if case.background.within and rank in job_ranks(case, spec.devices)[0]:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with contextlib.suppress(OSError):
                self._file = os.open(_path(spec, rank), flags, 0o600)

    def fields(self) -> dict[str, Any]:
        """What of it the core's case has."""
        return {"kept": self._file} if self._file >= 0 else {}

    def close(self) -> None:
        """Close it; its bytes stay until the next case, or the launch's end."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _path(spec: WorkerSpec, rank: int) -> Path:
    return Path(spec.journal).with_suffix(f".kept{rank}")


def forget(spec: WorkerSpec) -> None:
    """Remove the files of a launch that is over."""
    journal = Path(spec.journal)
    for path in journal.parent.glob(f"{journal.stem}.kept*"):
        with contextlib.suppress(OSError):
            path.unlink()


def kept(spec: WorkerSpec, case: Case) -> list[RankOutcome]:
    """What the ranks of the measured job have kept: the samples that all of them have."""
    found = []
    for place, rank in enumerate(job_ranks(case, spec.devices)[0]):
        data = b""
        with contextlib.suppress(OSError):
            data = _path(spec, rank).read_bytes()
        found.append((place, rank, np.frombuffer(data, _SAMPLE, len(data) // _SAMPLE.itemsize)))
    numbers = [rows["phase"].astype(np.int64) << 32 | rows["sample"] for _, _, rows in found]
    timed = [one for one in numbers if one.size]  # not every rank keeps time
    if not timed:
        return []
    whole = functools.reduce(np.intersect1d, timed)
    outcomes = []
    for (place, rank, rows), number in zip(found, numbers, strict=True):
        told = np.isin(number, whole)
        samples = {name: np.ascontiguousarray(rows[told][name]) for name in _SAMPLE.names or ()}
        samples["rank"] = np.full(int(told.sum()), place, np.int32)
        outcomes.append(RankOutcome(rank, "disturbed", samples=samples))
    return outcomes
