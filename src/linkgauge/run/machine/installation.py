"""A launcher and an MPI library that belong together, as run/parent/mpi_installation.py finds them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from linkgauge.plan.library_settings import dialect

_VENDORS = {"mpich": "MPICH", "openmpi": "Open MPI", "intel": "Intel MPI", "cray": "Cray MPICH", "mvapich": "MVAPICH"}


@dataclasses.dataclass(frozen=True)
class MpiInstallation:
    """A launcher and a library that belong together.

    `problem` says in one sentence why it cannot be used; empty where it can.
    """

    name: str  # how --mpi and plan files name it: mpich-5.0.2, openmpi-4.1.4, ...
    vendor: str  # mpich | openmpi | intel | cray | mvapich | unknown
    version: str
    abi: str  # mpich | openmpi | standard
    library: Path
    launcher: Path | None
    launcher_kind: str  # of run/launchers/; empty where it is of none
    source: str  # where it was found: wheel, system, PATH, --mpi
    version_text: str = ""
    large_count: bool = False
    problem: str = ""
    passed_over: tuple[tuple[str, str], ...] = ()  # title and problem of those that would have been taken before it

    @property
    def title(self) -> str:
        """Its vendor's name, version and where it was found: `MPICH 5.0.2 (wheel)`."""
        known = _VENDORS.get(self.vendor, "")
        return f"{known} {self.version} ({self.source})" if known else f"{self.name} ({self.source})"

    @property
    def dialect(self) -> str:
        """Whose words its settings are in (plan/library_settings.py)."""
        return dialect(self.vendor, self.abi)

    @property
    def build(self) -> str:
        """What `launch_key` takes for the MPI build: the library's own words about itself, without its path."""
        return " ".join(self.version_text.split())[:200] or f"{self.vendor} {self.version}"
