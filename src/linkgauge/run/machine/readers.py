"""Which reader a rank's device gets, by its runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linkgauge.nvml import NvmlAbsentError
from linkgauge.run.machine.amd_reader import AmdReader
from linkgauge.run.machine.nvml_reader import NvmlReader
from linkgauge.run.machine.observe import Reader


def open_reader(runtime: str, device: Mapping[str, Any]) -> tuple[Reader | None, str]:
    """The reader of a rank's device, and the reason where there is none.

    `device` is as the runtime describes it, with the run's own `ordinal`. Empty reason: nothing to read here.
    """
    if runtime == "hip":
        try:
            return AmdReader(str(device["pci_address"]), f"{runtime}:{device['ordinal']}"), ""
        except (OSError, KeyError) as error:
            return None, f"AMD's driver does not answer: {error}"
    if runtime != "cuda":
        return None, ""
    try:
        return NvmlReader(str(device["pci_address"]), f"{runtime}:{device['ordinal']}"), ""
    except NvmlAbsentError as error:
        return None, str(error)
    except Exception as error:  # whatever NVML raises: a measurement does without its observations
        return None, f"NVML does not answer: {error}"
