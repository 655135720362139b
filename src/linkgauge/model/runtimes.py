"""What is known of each runtime, by which devices are reached, a row each. This module imports nothing heavy."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class RuntimeTraits:
    """One row of the table of runtimes. Rates in bytes per second: guesses that estimates begin with."""

    name: str
    through_host: float  # rates between memories by way of the host,
    between_devices: float  # between devices,
    checked: float  # and of data that are written and checked
    operation_s: float  # and the seconds that an operation takes at least
    vendor: str = ""  # of its GPUs, as described systems name it; empty: they may be any vendor's, or the host's
    # Its vendor's collective library: name, file, and how it is had.
    ccl: str = ""
    ccl_file: str = ""
    ccl_fix: str = ""
    managed_env: tuple[tuple[str, str, str], ...] = ()  # (use of managed memory, variable, value) that it needs
    kernels: bool = True  # whether it runs this project's kernels

    @property
    def gpus(self) -> bool:
        """Whether its devices are GPUs for sure, so that it is looked for where none is named."""
        return bool(self.vendor)


_TABLE = (
    RuntimeTraits("cuda", 12e9, 40e9, 30e9, 25e-6, "nvidia", "NCCL", "libnccl.so.2",
                  "pip install nvidia-nccl-cu13 (or -cu12, for a driver of CUDA 12)"),
    # Whether a GPU's page faults are retried, so that managed pages migrate, or are mapped where they are. HIP reads it
    # when it starts (Schieffer et al., Table I).
    RuntimeTraits("hip", 12e9, 40e9, 30e9, 25e-6, "amd", "RCCL", "librccl.so.1", "the rccl package of ROCm",
                  (("migrate", "HSA_XNACK", "1"), ("zero_copy", "HSA_XNACK", "0"))),
    # Any vendor's GPUs, else CPUs: the rates are a CPU's.
    RuntimeTraits("sycl", 1.5e9, 1.5e9, 1.0e9, 60e-6, kernels=False),
    RuntimeTraits("host", 1.5e9, 1.5e9, 1.0e9, 60e-6, "", "oneCCL", "libccl.so.2", "pip install oneccl (1.8 GB)"),
)  # fmt: skip

RUNTIMES: dict[str, RuntimeTraits] = {one.name: one for one in _TABLE}
"""By name, in the order in which they are looked for."""
GPU_RUNTIMES = tuple(one.name for one in _TABLE if one.gpus)
