"""Command lines of the peers, as their own help gives them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

from linkgauge.errors import UsageError
from linkgauge.peers.catalogue import PeerTest
from linkgauge.peers.drive import Request, find_program, sizes_of

Launch = tuple[tuple[PeerTest, ...], list[str], dict[str, str]]

_OSU_MEMORY = {"device": "D", "managed": "M", "pageable": "H", "pinned": "H"}


def commands_of(request: Request) -> Iterator[Launch]:
    """The launches of one pass: which tests each serves, its command, and what its environment has besides."""
    if request.peer == "osu":
        for test in request.tests:
            for size, _ in sizes_of(test, request):
                yield (test,), _osu(request, test, size), _root_allowed()
    elif request.peer == "nccl-tests":
        for test in request.tests:
            yield (test,), _nccl_tests(request, test), _root_allowed()
    else:
        names = [test.name for test in request.tests]
        program = find_program(request.folder, "nvbandwidth")
        for size in request.sizes:
            if size % (1 << 20):
                raise UsageError(f"nvbandwidth takes whole MiB, not {size} bytes")
            yield request.tests, [str(program), "-b", str(size >> 20), "-i", "3", "-t", *names], {}


def _launcher(request: Request) -> list[str]:
    from linkgauge.run.mpi_library import resolve

    mpi = resolve(request.mpi)
    if request.bind == "core":
        own = ["--map-by", "core", "--bind-to", "core"] if mpi.launcher_kind == "openmpi" else ["-bind-to", "core"]
    else:
        own = ["--oversubscribe", "--bind-to", "none"] if mpi.launcher_kind == "openmpi" else []
    return [str(mpi.launcher), *own, "-n", str(request.ranks)]


def _root_allowed() -> dict[str, str]:
    if os.geteuid() != 0:
        return {}
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def _osu(request: Request, test: PeerTest, size: int) -> list[str]:
    program = find_program(request.folder, test.name)
    command = [*_launcher(request), str(program), "-m", f"{size}:{size}"]
    command += ["-i", str(request.iterations), "-x", str(request.warmup)]
    source, target = (_OSU_MEMORY[kind] for kind in request.memory)
    if test.case["pattern"] in ("pingpong", "unidirectional", "bidirectional"):
        command += [source, target] if "D" in (source, target) or "M" in (source, target) else []
    else:
        command += ["-T", "mpi_float"] if test.case["pattern"] in ("allreduce", "reduce") else []
        command += ["-d", "cuda"] if source == "D" else []
    return command


def _nccl_tests(request: Request, test: PeerTest) -> list[str]:
    sizes = [peer for _, peer in sizes_of(test, request)]
    factors = {after // before for before, after in itertools.pairwise(sizes)} or {2}
    if len(factors) > 1 or any(after % before for before, after in itertools.pairwise(sizes)):
        raise UsageError("nccl-tests steps sizes by one factor: give a range, such as 8:1GiB:x8")
    common = ["-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(factors.pop()), "-n", str(request.iterations)]
    common += ["-w", str(request.warmup), "-c", "0", "-d", "float"]
    if request.mpi:
        program = find_program(request.folder, test.name + "_mpi")
        return [*_launcher(request), str(program), "-g", "1", *common]
    return [str(find_program(request.folder, test.name)), "-t", str(request.ranks), "-g", "1", *common]
