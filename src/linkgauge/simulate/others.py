"""What goes on beside a job: loads that are named, or a background that is drawn; and what a rule leaves of the job."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from linkgauge.errors import UsageError, nearest
from linkgauge.model.quantity import parse_size, percent
from linkgauge.simulate.stage import Request
from linkgauge.simulate.traffic import TRAFFIC

_LOAD = re.compile(r"([a-z_]{1,40}):([0-9]{1,9})(?::([0-9A-Za-z.]{1,20}))?")
BACKGROUND = ("alltoall", "permutation", "ring_shift", "all_to_one")
"""What drawn jobs do, each as likely."""
DRAWN_NODES = (2, 128)
"""Nodes of a drawn job: its logarithm is drawn evenly between these."""
DRAWS = 20


@dataclasses.dataclass(frozen=True)
class Load:
    """A job that goes on for as long as the one that is asked about: its request and GPUs."""

    request: Request
    gpus: int


@dataclasses.dataclass(frozen=True)
class Share:
    """What a rule leaves of a job: goodput in bytes per second a GPU alone and beside; quantiles over draws."""

    rule: str
    alone: float
    beside: float
    how: str  # "by flow" or "paced"
    quantiles: tuple[float, float, float] | None = None  # 5th, 50th, 95th percentile of goodput over draws

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)


def parse_load(text: str) -> Load:
    """A load as `all_to_one:128` or `alltoall:256:128KiB`: pattern, GPUs, size. UsageError."""
    found = _LOAD.fullmatch(text)
    if found is None or found[1] not in TRAFFIC:
        hint = nearest(text.split(":")[0], list(TRAFFIC)) if found is None or found[1] not in TRAFFIC else ""
        raise UsageError(f"--background '{text[:60]}'{hint}: expected PATTERN:GPUS or PATTERN:GPUS:SIZE")
    if int(found[2]) < 2:
        raise UsageError(f"--background '{text[:60]}': expected 2 GPUs or more")
    size = parse_size(found[3]) if found[3] else 128 << 10
    if size < 1:
        raise UsageError(f"--background '{text[:60]}': expected a size of 1 B or more")
    return Load(Request(found[1], size), int(found[2]))


@dataclasses.dataclass(frozen=True)
class Others:
    """What goes on beside the job: loads, placed with it, or a background drawn to fill `share` of the other nodes."""

    loads: tuple[Load, ...] = ()
    share: float = 0.0
    draws: int = DRAWS
    pessimistic: bool = False

    def __str__(self) -> str:
        """In words."""
        if self.share:
            low, high = DRAWN_NODES
            return (
                f"jobs drawn on {percent(self.share)} of the other nodes, {low} to {high} nodes each, "
                f"{', '.join(BACKGROUND)}; {self.draws} draws"
            )
        named = ", ".join(f"{load.request.pattern} of {load.gpus} GPUs" for load in self.loads)
        return named + (", overfull ports holding back what shares links with theirs" if self.pessimistic else "")
