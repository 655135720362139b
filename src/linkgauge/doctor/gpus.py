"""Which GPUs a check looks at, of either vendor."""

from __future__ import annotations

from collections.abc import Iterable

from linkgauge.doctor.amd import amd_gpus
from linkgauge.doctor.check import NotCheckedError, Result, not_checked
from linkgauge.doctor.facts import GpuFacts
from linkgauge.doctor.readers import Readers


def gpus_or_why(readers: Readers, vendor: str = "") -> tuple[list[GpuFacts], Result | None]:
    """Those that NVML or AMD's driver shows, and a result where neither shows any, or none of that vendor."""
    found, why = readers.gpus()
    found = [gpu for gpu in found if not gpu.lost] or amd_gpus(readers)
    if not found:
        return [], not_checked(why or "no GPU", "GPU")
    if vendor and found[0].vendor != vendor:
        return [], not_checked("the GPUs are of another vendor", {"nvidia": "NVIDIA", "amd": "AMD"}[vendor])
    return found, None


def gpus_of(readers: Readers, vendor: str = "") -> list[GpuFacts]:
    """Those that NVML or AMD's driver shows, at least one. NotCheckedError, which ends a check, where there is none."""
    found, none = gpus_or_why(readers, vendor)
    if none:
        raise NotCheckedError(none)
    return found


def named(gpus: Iterable[GpuFacts]) -> str:
    """Their names, for findings."""
    return ", ".join(f"GPU {gpu.index}" for gpu in gpus)
