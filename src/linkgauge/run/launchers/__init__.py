"""Launchers, a file each: whoever asks for one asks here, where all have registered."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path

from linkgauge.run.launchers.base import Launcher
from linkgauge.run.machine.installation import MpiInstallation

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")

FAMILIES = tuple(Launcher.registry.values())


def launcher_for(mpi: MpiInstallation | None) -> Launcher:
    """The launcher of an installation; of a single process for None."""
    return Launcher.registry[mpi.launcher_kind if mpi is not None else "single"](mpi)


def in_allocation() -> tuple[Path, str] | None:
    """The program and the kind of the batch system whose allocation this process is in."""
    found = ((one.in_allocation(), one.kind) for one in FAMILIES)
    return next(((program, kind) for program, kind in found if program is not None), None)


def job_is_over() -> bool:
    """Whether the batch system's job that this process is in has ended under it."""
    return any(one.job_is_over() for one in FAMILIES)


def started_by(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """(launcher's word, rank) where a process with this environment is a rank of a parallel job; None where it is not.

    Families that start any library are asked first: they give the libraries' own variables too.
    """
    for one in sorted(FAMILIES, key=lambda one: bool(one.starts)):
        rank = one.rank_in(environment)
        if rank is not None:
            return one.word, rank
    return None
