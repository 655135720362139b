"""OTF2 traces (Score-P): what the ranks of MPI do, by the format's own Python package.

Its C library reads what a stranger wrote: it runs in a process of its own (apps/otf2_events.py), each line of which is
an event. Sizes of collectives are what Score-P makes of a call's arguments (its scorep_mpi_coll, 2023): with n ranks
and blocks of b bytes n b each way of allreduce, allgather and alltoall; of rooted ones n b at the root, b elsewhere.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.apps.otf2_events import ABSENT, WRONG
from linkgauge.apps.trace_steps import MOST_RANKS, RankSteps
from linkgauge.apps.trace_values import sub_group
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.files import open_regular, temporary_folder
from linkgauge.model.shape import as_it_is, each, parsed, table, text, whole

SUFFIX = ".otf2"
_PATIENCE_S = 600
_READER = Path(__file__).with_name("otf2_events.py")
_WORD = 4  # bytes
_NO_PATTERN = ("createhandle", "destroyhandle", "allocate", "deallocate")
_EVENT = {"ns": whole(), "what": text}
_ABOUT = {"members": each(whole()), "peer": whole(), "root": whole()}
Told = Mapping[str, Any]


def ranks_of(path: Path, lost: Counter[str], *, eager: bool = False) -> list[RankSteps]:
    """What each rank of MPI does in a trace, by its anchor file `traces.otf2`.

    Raises:
        EnvironmentLackingError: the package otf2 is not here.
        UsageError: the file is no trace of MPI, or cannot be read within ten minutes.
    """
    open_regular(path, "the anchor file of an OTF2 trace").close()  # OTF2 waits for a pipe
    with tempfile.TemporaryFile(dir=temporary_folder()) as said:
        try:
            done = subprocess.run([sys.executable, str(_READER), str(path)], stdout=said, stderr=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, check=False, timeout=_PATIENCE_S)  # fmt: skip
        except subprocess.TimeoutExpired:
            raise UsageError(f"{path}: was not read within {_PATIENCE_S} s: expected a shorter trace") from None
        if done.returncode == ABSENT:
            raise EnvironmentLackingError(f"{path}: OTF2 needs the package otf2; fix: pip install otf2")
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines() if done.returncode == WRONG else []
            raise UsageError(
                f"{path}: {words[-1] if words else 'it cannot be read'}: expected the anchor file of an OTF2 trace"
            )
        said.seek(0)
        of_all = parsed(said.readline(), table({"ranks": whole(1, MOST_RANKS)}, needed=("ranks",)), str(path))["ranks"]
        ranks = [RankSteps(f"{path}: rank {rank}", lost, eager=eager, of_all=of_all) for rank in range(of_all)]
        event = table({**_EVENT, **_ABOUT, "rank": whole(0, of_all - 1)}, as_it_is, needed=("rank", *_EVENT))
        _fill(ranks, (parsed(line, event, str(path)) for line in said), lost)
    return ranks


def _fill(ranks: Sequence[RankSteps], events: Iterable[Told], lost: Counter[str]) -> None:
    left: dict[int, int] = {}  # of each rank when it last left MPI, in ns
    for number, told in enumerate(events):
        rank = ranks[told["rank"]]
        rank.at(number)
        what = told["what"]
        if what == "enter":
            if told["rank"] in left:
                rank.compute(told["ns"] - left[told["rank"]])
        elif what == "leave":
            left[told["rank"]] = told["ns"]
        elif what in ("send", "receive"):
            rank.message(what, told["peer"], rank.whole(told, "bytes"))
            if what == "send" and not told["begun"]:
                rank.sent()
            elif not told["begun"]:
                rank.wait()
        elif what == "wait":
            rank.wait()
        else:
            _collective(rank, told, len(ranks), lost)


def _collective(rank: RankSteps, told: Told, of_all: int, lost: Counter[str]) -> None:
    name, members = str(told["what"]), told["members"]
    if any(word in name for word in _NO_PATTERN):
        return
    n = len(members)
    sent, received = rank.whole(told, "sent"), rank.whole(told, "received")
    largest = received if name == "allgatherv" else max(sent, received)
    rooted = name in ("bcast", "gather", "gatherv", "scatter", "scatterv", "reduce")
    if told["rank"] not in members or (rooted and not 0 <= told["root"] < n):
        raise rank.fail(f"a {name} of {n} ranks from one that is none of them, or with root {told['root']}")
    root = members[told["root"]] if rooted else 0
    at_root = rooted and root == told["rank"]
    # In place a rank's own block is not counted: of a rooted one the other side is 0 then. Of others only blocks of
    # whole words tell, as of 20 bytes on 4 ranks, 60 bytes in place.
    in_place = n > 1 and (
        not min(sent, received) if at_root else not rooted and largest % (_WORD * n) > 0 == largest % (_WORD * (n - 1))
    )
    block = largest // (n - in_place) if at_root or not rooted else largest
    # What a rank puts in: of an alltoall a block for each, else a block. What it gets: a block.
    into = largest if name.startswith("alltoall") else block
    if name.endswith(("v", "w")):
        lost["uneven shares of collectives: each has the mean"] += 1
    name = {"bcast": "broadcast", "gatherv": "gather", "scatterv": "scatter", "alltoallw": "alltoallv"}.get(name, name)
    group = sub_group(rank, members, of_all)
    rank.collective(name, {"in": into, "out": block}, group, root, told["begun"])
