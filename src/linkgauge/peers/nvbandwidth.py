"""nvbandwidth: its command lines, one for all tests of a size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from linkgauge.peers.catalogue import Counts
from linkgauge.peers.launch import PeerLaunch, find_program
from linkgauge.peers.request import Request, Row

SAMPLES = 3  # its own default, of 16 copies each
COUNTS = Counts(SAMPLES * 16, 16)


def launches(request: Request, rows: Sequence[Row]) -> Iterator[PeerLaunch]:
    """A launch for each size."""
    program = find_program(request.folder, "nvbandwidth")
    by_size: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_size[row.size].append(row)
    for size, some in by_size.items():
        tests = [row.test.name for row in some]
        yield PeerLaunch(
            tuple(some), (str(program), "-b", str(size >> 20), "-i", str(SAMPLES), "-t", *tests), request.env
        )
