"""What MPI's sums take at most where the library gets new pages in each call for the memory that it needs for them.

glibc gives memory of TEMPORARY_BYTES and more back to the system, or keeps it, by what the process has freed before. So
a run whose ranks had large buffers may show what new pages cost at its largest sizes alone, and a program with others
has it from TEMPORARY_BYTES on. On a virtual machine a page took 1.4 to 1.9 us, and a reduce of 1.6 MB by MPICH 4.0.2
had 570 new ones, which were most of its time.
"""

from __future__ import annotations

from collections.abc import Sequence

from linkgauge.apps.program import Program
from linkgauge.expect.curves import Curve, Curves
from linkgauge.expect.mechanism import Mechanism
from linkgauge.model.patterns import PATTERNS

TEMPORARY_BYTES = 128 << 10  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD at first: mallopt(3)
NEW_PAGES = "the MPI library may get new pages in each sum of 128 KiB and more, as the run shows at larger sizes"


def has_temporary_memory(program: Program, by: Mechanism) -> bool:
    """Whether an application has sums that may take longer for it."""
    return (
        by.on_host
        and by.collectives == "mpi"
        and any(PATTERNS[one.pattern].reduces and one.size >= TEMPORARY_BYTES for one in program.collectives)
    )


class NewPages(Curves):
    """Curves in which a byte of MPI's sums takes as long as at the largest sizes that were measured."""

    def __init__(self, curves: Curves) -> None:
        """Take curves."""
        self._curves = curves

    def find(
        self, pattern: str, transport: str, memory: tuple[str, str], ranks: Sequence[int], window: int = 1,
        variant: str = "",
    ) -> Curve | None:  # fmt: skip
        """The curve beneath, or that."""
        found = self._curves.find(pattern, transport, memory, ranks, window, variant)
        sums = transport == "mpi" and PATTERNS[pattern].reduces
        return found.as_its_largest(TEMPORARY_BYTES) if found is not None and sums else found

    def _lacking(self, pattern: str, transport: str, ranks: int) -> str:
        return self._curves._lacking(pattern, transport, ranks)
