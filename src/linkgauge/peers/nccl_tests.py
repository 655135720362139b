"""nccl-tests and rccl-tests: their command lines, one for all sizes of a test wherever one factor steps them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from linkgauge.errors import EnvironmentLackingError
from linkgauge.peers.launch import PeerLaunch, find_program, started
from linkgauge.peers.libraries import our_ccl
from linkgauge.peers.request import Request, Row


def launches(request: Request, rows: Sequence[Row]) -> Iterator[PeerLaunch]:
    """A launch for each test, rank count, count of operations and series of sizes that one factor steps through.

    Its buffers have the largest size of a launch, and it steps through them from one operation to the next (startColl
    of its src/common.cu): only a size alone finds its data where the operation before left it, as ours does.
    """
    groups: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
    for row in rows:
        groups[(row.test.name, row.ranks, request.counts(row).iterations)].append(row)
    for some in groups.values():
        rising = sorted(some, key=lambda row: row.peer_size)
        for factor, chain in [(2, [row]) for row in rising] if request.sizes_apart else chains(rising):
            yield _launch(request, chain, factor)


def chains(rows: Sequence[Row]) -> list[tuple[int, list[Row]]]:
    """Rows of rising size as series with one whole factor each, from the smallest on; a series may be of one."""
    found: list[tuple[int, list[Row]]] = []
    for row in rows:
        if found:
            factor, chain = found[-1]
            step, rest = divmod(row.peer_size, chain[-1].peer_size)
            if rest == 0 and step > 1 and (len(chain) == 1 or step == factor):
                found[-1] = (step, [*chain, row])
                continue
        found.append((2, [row]))
    return found


def _launch(request: Request, rows: Sequence[Row], factor: int) -> PeerLaunch:
    """One start of a test, with its check of data on, as by default: its kernels write and check what is sent, as ours.

    After another kernel the times of NCCL's large rings scatter by 2 % (docs/measured/h200.md).
    """
    test, counts = rows[0].test, request.counts(rows[0])
    common = ["-b", str(rows[0].peer_size), "-e", str(rows[-1].peer_size), "-f", str(factor)]
    common += ["-n", str(counts.iterations), "-w", str(counts.warmup), "-c", "1", "-d", "float"]
    if not request.mpi:
        program, own = find_program(request.folder, test.name), ["-t", str(rows[0].ranks), "-g", "1"]
    else:
        try:
            program = find_program(request.folder, test.name + "_mpi")
        except EnvironmentLackingError:
            program = find_program(request.folder, test.name)  # as older makefiles name it
        own = ["-g", "1"]
    return started(request, rows, program, [str(program), *own, *common], our_ccl(request.runtime))
