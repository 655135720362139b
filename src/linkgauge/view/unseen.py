"""What a run's verdict does not cover: which paths had no case, and which observations were not made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from linkgauge.model.patterns import PATTERNS
from linkgauge.stats.launches import not_observed
from linkgauge.view.results import is_pair

if TYPE_CHECKING:
    from linkgauge.store.run import Run
    from linkgauge.view.answer import FirstLook

_OBSERVATIONS = {
    "other processes": ("other_processes",),
    "temperature and throttling": ("temperature", "throttle_reasons"),
    "NVLink errors": ("nvlink_dl_replay_errors", "nvlink_dl_recovery_errors", "nvlink_dl_crc_errors"),
}
"""What a reader expects to be watched, and the observations it needs (docs/reference/run-folder.md)."""


def unseen_line(look: FirstLook) -> str:
    """Return `Not judged: ...; not observed: ...` for what an all-clear does not cover; empty where it covers all."""
    absent, unobserved = list(_without_case(look)), list(_not_observed(look.results.run))
    parts = [f"not judged, since not measured: {', '.join(absent)}"] if absent else []
    if unobserved:
        parts.append(f"not observed: {', '.join(unobserved)}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _without_case(look: FirstLook) -> Iterator[str]:
    rows = look.results.rows
    gpus = look.kinds.of_gpus
    device = "GPU" if gpus else "device"
    patterns = {row["pattern"] for row in rows}
    if len(look.kinds.devices) > 1:
        if not any(is_pair(row) and len(set(row["devices"])) == 2 for row in rows):
            yield f"{device} pairs"
        if not any(PATTERNS[name].algorithm_factor is not None for name in patterns):
            yield "collectives"
    if gpus and not any(PATTERNS[name].host_end for name in patterns):
        yield "host copies"


def _not_observed(run: Run) -> Iterator[str]:
    """Yield what some rank on a GPU could not observe."""
    launches = run.launches.to_pylist()
    if not any(rank.get("device_kind") != "host" for launch in launches for rank in launch["ranks"] or ()):
        return
    absent = set().union(*map(not_observed, launches))
    for words, names in _OBSERVATIONS.items():
        if "NVML" in absent or absent.issuperset(names):
            yield words
