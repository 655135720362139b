"""OSU micro-benchmarks: their command lines, one for all sizes of a test wherever one can have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from linkgauge.errors import EnvironmentLackingError
from linkgauge.peers.launch import PeerLaunch, find_program, started
from linkgauge.peers.request import Request, Row

_MEMORY = {"device": "D", "managed": "M", "pageable": "H"}
_ACCELERATOR = {"cuda": "cuda", "hip": "rocm"}
_MEMORY_LIMIT = 512 << 20  # what a collective's buffers may take unless -M says more


def launches(request: Request, rows: Sequence[Row]) -> Iterator[PeerLaunch]:
    """A launch for each test, rank count, kinds of memory and count; OSU doubles sizes from the first to the last.

    With neither count asked for, OSU's own hold, which differ by size in one launch. Sizes whose quotient is no power
    of two need a launch each.
    """
    own_counts = request.iterations is None and request.large_iterations is None and request.warmup is None
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        counts = None if own_counts else request.counts(row)
        odd = row.peer_size // (row.peer_size & -row.peer_size or 1)
        apart = row.size if request.sizes_apart else odd
        groups[(row.test.name, row.ranks, row.memory, apart, counts and counts.iterations)].append(row)
    for some in groups.values():
        program = find_program(request.folder, some[0].test.name)
        yield started(request, some, program, [str(program), *_arguments(request, some, own_counts)])


def _arguments(request: Request, rows: Sequence[Row], own_counts: bool) -> list[str]:
    test, ranks = rows[0].test, rows[0].ranks
    sizes = [row.peer_size for row in rows]
    words = [] if test.sizeless else ["-m", f"{min(sizes)}:{max(sizes)}"]
    if not own_counts:
        words += ["-i", str(request.counts(rows[0]).iterations)]
        words += [] if request.warmup is None else ["-x", str(request.warmup)]
    # A host device's memory is the host's, which is what OSU takes without a word.
    source, target = ("H" if request.runtime == "host" else _MEMORY[kind] for kind in rows[0].memory)
    if {source, target} - {"H"} and request.runtime not in _ACCELERATOR:
        raise EnvironmentLackingError(f"{request.peer} takes no device memory of {request.runtime} devices")
    if test.sizeless:
        return words
    if test.messages:
        words += ["-W", str(test.case["window"])] if test.windowed else []
        return words + ([source, target] if {source, target} != {"H"} else [])
    if max(sizes) * ranks > _MEMORY_LIMIT:
        words += ["-M", str(max(sizes) * ranks)]
    words += ["-T", "mpi_float"] if test.case["pattern"] in ("allreduce", "reduce") else []
    if source != "H":
        words += ["-d", _ACCELERATOR[request.runtime] if source == "D" else "managed"]
    return words
