"""Two ranks started under an MPI library, and what they see of each other: the doctor's one real launch."""

from __future__ import annotations

import sys

from linkgauge.model.shape import each, whole
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.rank_words import shaped, words_of_ranks

_PROGRAM = (
    "import mpi4py; mpi4py.rc.thread_level = 'funneled'\n"
    "from mpi4py import MPI\n"
    "from linkgauge.run.rank_words import say\n"
    "say([MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()])\n"
)


def probe_ranks(mpi: MpiInstallation, ranks: int = 2) -> list[tuple[int, int]] | str:
    """(rank, size) of each rank, or in one sentence why they could not be started."""
    said = shaped(words_of_ranks(mpi, ranks, [sys.executable, "-c", _PROGRAM]), each(whole(), 2, 2))
    return said if isinstance(said, str) else sorted(map(tuple, said))
