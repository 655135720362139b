"""The peer's side of a round: each of its programs once, and what it printed as nanoseconds of one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.exchange.imported import Hints, ImportedCase, ImportedLog
from linkgauge.exchange.importers import read_log
from linkgauge.model.grouped import grouped
from linkgauge.peers import two_ended
from linkgauge.peers.catalog import TWO_ENDED, Counts
from linkgauge.peers.launch import PeerLaunch, find_program, our_ccl, run_logged, started, why_other_nccl
from linkgauge.peers.request import Request, Row

_OSU_MEMORY = {"device": "D", "managed": "M", "pageable": "H"}
_ACCELERATOR = {"cuda": "cuda", "hip": "rocm"}
_MEMORY_LIMIT = 512 << 20  # what a collective's buffers may take unless -M says more
NCCL_APART = 1 << 20, 128 << 20
"""Sizes in bytes between which each has a launch of nccl-tests: at the first any GPU's L2 holds the buffers, at the
second none (B200: 126 MB)."""


def osu_launches(request: Request, rows: Sequence[Row]) -> Iterator[PeerLaunch]:
    """A launch for each test, rank count, kinds of memory and count; OSU doubles sizes from the first to the last.

    With neither count asked for, OSU's own hold, which differ by size in one launch. Sizes whose quotient is no power
    of two need a launch each.
    """
    own_counts = request.iterations is None and request.large_iterations is None and request.warmup is None

    def start(row: Row) -> tuple[object, ...]:
        counts = None if own_counts else request.counts(row)
        odd = row.peer_size // (row.peer_size & -row.peer_size or 1)
        return row.test.name, row.ranks, row.memory, odd, counts and counts.iterations

    for some in grouped((start(row), row) for row in rows).values():
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
    source, target = ("H" if request.runtime == "host" else _OSU_MEMORY[kind] for kind in rows[0].memory)
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


def nccl_launches(request: Request, rows: Sequence[Row]) -> Iterator[PeerLaunch]:
    """A launch for each test, rank count, count of operations and series of sizes that one factor steps through.

    Its buffers have the largest size of a launch, and it steps through them from one operation to the next (startColl
    of its src/common.cu), while ours stays in one place. Sizes that a GPU's cache may hold, beside larger ones, would
    miss it: they have a launch each. Two H100, 4 MiB beside 400 MiB: our allreduce took 0.944 of its time.
    """

    def start(row: Row) -> tuple[object, ...]:
        least, most = NCCL_APART
        return row.test.name, row.ranks, request.counts(row).iterations, min(max(row.peer_size, least), most)

    for some in grouped((start(row), row) for row in rows).values():
        for factor, chain in chains(sorted(some, key=lambda row: row.peer_size)):
            yield _nccl_launch(request, chain, factor)


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


def _nccl_launch(request: Request, rows: Sequence[Row], factor: int) -> PeerLaunch:
    """One start of a test, with its check of data on, as by default: its kernels write and check what is sent, as ours.

    After another kernel the times of NCCL's large rings scatter by 2 % (docs/results/h200.md).
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


_NVBANDWIDTH_SAMPLES = 3  # its own default, of 16 copies each
NVBANDWIDTH_COUNTS = Counts(_NVBANDWIDTH_SAMPLES * 16, 16)


def nvbandwidth_launches(request: Request, rows: Sequence[Row]) -> Iterator[PeerLaunch]:
    """A launch for each size."""
    program = find_program(request.folder, "nvbandwidth")
    for size, some in grouped((row.size, row) for row in rows).items():
        tests = [row.test.name for row in some]
        yield PeerLaunch(
            tuple(some),
            (str(program), "-b", str(size >> 20), "-i", str(_NVBANDWIDTH_SAMPLES), "-t", *tests),
            request.peers_environment,
        )


Figures = dict[str, float]  # by row key: nanoseconds of one operation as our pattern counts it
Reasons = dict[str, str]  # by row key: why there is no figure

_LAUNCHES: dict[str, Callable[[Request, Sequence[Row]], Iterator[PeerLaunch]]] = {
    "osu": osu_launches,
    "nccl-tests": nccl_launches,
    "nvbandwidth": nvbandwidth_launches,
    **dict.fromkeys(TWO_ENDED, two_ended.launches),
}


def measure_peer(request: Request, rows: Sequence[Row], number: int) -> tuple[Figures, Reasons]:
    """One launch of each of the peer's programs that `rows` need. What one that fails had printed before counts."""
    figures: Figures = {}
    reasons: Reasons = {}
    for count, launch in enumerate(launches_of(request, rows, reasons)):
        log = request.out / f"peer-{number:02d}-{count}.txt"
        failure = run_logged(launch.command, log, launch.environment)
        if request.peer in TWO_ENDED:
            (only,) = launch.rows
            figure = two_ended.read_figure(request, only, log.read_text(errors="replace"))
            if figure is not None and not failure:
                figures[only.key] = figure
            else:
                reasons[only.key] = failure or f"{log.name} has no figure of {only.test.name}"
            continue
        # nvbandwidth does not print the size that it was told, OSU not how many messages are in flight.
        first = launch.rows[0]
        size = first.size if request.peer == "nvbandwidth" else None
        window = int(first.test.case["window"]) if first.test.windowed else None
        said = _read(log, Hints(ranks=first.ranks, size_bytes=size, window=window))
        cases = said.cases if said is not None else []
        named = said.versions.get("nccl", "") if said is not None else ""
        if named and (reason := why_other_nccl(named, request.runtime)):
            cases, failure = [], reason
            if not figures:  # nor would the others be ours: nothing more is started for nothing
                return {}, {**{row.key: reason for row in rows}, **reasons}
        for one in cases:
            row = next((row for row in launch.rows if _is_case(row, one, request.peer)), None)
            if row is not None and one.wrong:
                reasons[row.key] = f"{log.name}, {row.peer_size} bytes: {one.wrong}"
            elif row is not None and one.intervals:
                ns, iterations = one.intervals[0]
                figures.setdefault(row.key, ns / iterations)
        for row in launch.rows:
            if row.key not in figures:
                others = next((one.case.ranks for one in cases if one.evidence.get("test") == row.test.name), row.ranks)
                missing = f"{log.name} has no row of {row.peer_size} bytes"
                if others != row.ranks:
                    missing = f"{row.test.name} took {others} devices, Linkgauge {row.ranks}: give --ranks as many"
                reasons.setdefault(row.key, failure or missing)
    return figures, reasons


def look_at_peer(request: Request, rows: Sequence[Row]) -> tuple[list[PeerLaunch], Reasons]:
    """What would be started for `rows`, and by row key why some cannot be measured, all before anything is.

    EnvironmentLackingError where nothing can be.
    """
    reasons: Reasons = {row.key: why for row in rows if (why := request.why_not_placed(row))}
    found = launches_of(request, [row for row in rows if row.key not in reasons], reasons)
    if not found:
        raise EnvironmentLackingError(next(iter(reasons.values()), "nothing is left to compare"))
    return found, reasons


def _read(log: Path, hints: Hints) -> ImportedLog | None:
    """What a log holds; None where the program ended before it printed a table."""
    try:
        return read_log(log, hints, own=True)
    except UsageError:
        return None


def launches_of(request: Request, rows: Sequence[Row], reasons: Reasons) -> list[PeerLaunch]:
    """The launches of one round, a test whose program is not there left out with the reason."""
    found: list[PeerLaunch] = []
    by_test: dict[str, list[Row]] = {}
    for row in rows:
        # nvbandwidth is one program for all of its tests.
        by_test.setdefault("" if request.peer == "nvbandwidth" else row.test.name, []).append(row)
    for some in by_test.values():
        try:
            found += _LAUNCHES[request.peer](request, some)
        except EnvironmentLackingError as lacking:
            reasons.update({row.key: str(lacking) for row in some})
    return found


def _is_case(row: Row, one: ImportedCase, peer: str) -> bool:
    """Whether an imported case is the row's; of nvbandwidth's matrices the first device's, or the first pair's."""
    case = one.case
    if case.in_place != row.test.theirs_in_place or case.size_requested != row.size:
        return False
    if peer != "nvbandwidth":
        return bool(case.pattern == row.test.case_of(row.ranks)["pattern"])
    first = case.devices[:2] in ((0,), (0, 1)) and case.root == 0
    return first and case.ranks == row.ranks and one.evidence["test"] == row.test.name
