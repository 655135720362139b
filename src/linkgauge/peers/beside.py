"""`linkgauge run --with`: the peers' tests that a run's own cases match, alternated with our same cases after it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from linkgauge.peers.catalogue import PeerTest, peer_tests
from linkgauge.peers.drive import Request, alternate
from linkgauge.peers.show import named_peer, print_rows, row_of, write_rows
from linkgauge.plan.case import Case

ITERATIONS = 100  # that each side times; 'linkgauge against' takes other counts
WARMUP = 10
# What a test's table leaves to the case, and must be alike among the cases of one comparison.
_Setting = tuple[int, tuple[str, str], tuple[int, ...]]  # ranks, memory kinds, sizes


def measure_beside(
    run: Path, peers: Sequence[str], *, mpi: str, devices: str, bind: str, tell: Callable[[str], None]
) -> None:
    """Drive each `PEER=FOLDER` beside the run in the folder `run`; prints one table and keeps it as `with/ratios.json`.

    `mpi` as in `--mpi`, empty for threads of one process. A peer of which the run has no case is told so. Raises
    EnvironmentLackingError where a peer cannot be driven.
    """
    from linkgauge.store.run import load

    cases = [row.case for row in load(run).rows() if row.status == "ok"]
    out = run / "with"
    rows: list[dict[str, Any]] = []
    for text in peers:
        name, folder = named_peer(text)
        requests = requests_of(cases, name, folder, out=out, mpi=mpi, devices=devices, bind=bind)
        if not requests:
            tests = ", ".join(test.name for test in peer_tests(name))
            tell(f"{name}: no case of this run is the same measurement as one of its tests ({tests})")
        for request in requests:
            lines = alternate(request, lambda said, name=name: tell(f"{name}: {said}"))  # type: ignore[misc]
            rows += [{"peer": name, "ranks": request.ranks, **row_of(line)} for line in lines]
    if not rows:
        return
    write_rows(out, rows)
    print_rows(rows)


def requests_of(
    cases: Sequence[Case], peer: str, folder: Path, *, out: Path, mpi: str, devices: str, bind: str
) -> list[Request]:
    """The comparisons that `cases` ask for: tests of one rank count, memory kinds and sizes go together."""
    groups: dict[_Setting, list[PeerTest]] = defaultdict(list)
    for test in peer_tests(peer):
        sizes: dict[tuple[int, tuple[str, str]], set[int]] = defaultdict(set)
        for case in cases:
            if _same_measurement(test, case):
                sizes[(case.ranks, (case.source_memory, case.target_memory))].add(case.size_asked)
        for (ranks, memory), some in sizes.items():
            groups[(ranks, memory, tuple(sorted(some)))].append(test)
    requests = []
    for number, ((ranks, memory, sizes_of_all), tests) in enumerate(sorted(groups.items(), key=lambda item: item[0])):
        requests.append(
            Request(
                peer=peer,
                folder=folder,
                tests=tuple(tests),
                sizes=sizes_of_all,
                ranks=ranks,
                iterations=ITERATIONS,
                warmup=WARMUP,
                mpi=mpi,
                devices=devices,
                memory=memory,
                out=out / f"{re.sub('[^a-z0-9]', '_', peer)}-{number}",
                bind=bind,
            )
        )
    return requests


# Dimensions that no peer is told of: a case where one is not the default is not the same measurement.
_DEFAULTS = ("variant", "ranks_per_device", "root", "datatype", "op", "in_place", "path", "buffer", "algorithm", "via")


def _same_measurement(test: PeerTest, case: Case) -> bool:
    plain = Case(case.transport, case.pattern, case.size, case.size_asked, case.devices)
    if any(getattr(case, name) != getattr(plain, name) for name in _DEFAULTS):
        return False
    # Ours is measured anew with the peer's own cadence: what the run's case must share is what is moved, and by what.
    names = [name for name in ("transport", "pattern", "initiator") if name in test.case]
    if any(getattr(case, name) != test.case[name] for name in names):
        return False
    # A pair is the first: the peers' programs take no other.
    pair = case.pattern in ("pingpong", "unidirectional", "bidirectional")
    return case.devices == (0, 1) if pair else case.devices == tuple(range(case.ranks))
