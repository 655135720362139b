"""Any stored log reads alike whatever launchers, terminals, loggers and libraries put around its lines."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.exchange.imported import ImportedLog
from linkgauge.exchange.importers import Hints, read_log
from linkgauge.model.log_text import log_text
from store.nccl_logs import nccl_log
from thorough import most

LOGS = Path(__file__).parent / "logs"
HINTS = {
    "alltoall_old.txt": Hints(pattern="alltoall"), "osu_allgather.txt": Hints(ranks=4),
    "osu_others.txt": Hints(ranks=4),
    "blink.csv": Hints(ranks=2, pattern="pingpong", transport="mpi", size_bytes=8),
}  # fmt: skip
SAMPLES = {path.name: path.read_text().splitlines() for path in sorted(LOGS.iterdir())} | {
    "made": nccl_log("all_gather", version="2.17.6"), "old": nccl_log(older=True), "rooted": nccl_log("broadcast"),
}  # fmt: skip

STAMPS = ("2025-11-25T21:20:34.123456789Z ", "2025-11-25T21:20:34.123456Z ", "[2025-11-25 21:20:34] ",
          "2025/11/25 21:20:34 ", "21:20:34 ", "Nov 25 21:20:34 ", "Wed Nov 25 21:20:34 UTC 2026 ",
          "I1125 21:20:34.123456   12345 main.go:12] ",
          "2025-11-25T21:20:34.123456789Z stdout F ", "[2025-11-25T21:20:34.123Z] ",
          "2025-11-25 21:20:34,123 - root - INFO - ", "")  # fmt: skip
TAGS = ("[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-n1-1234@1,0]<stdout>: ", "Wed Nov 25 21:20:34 2026<stdout>:",
        "0: ", "  0: ", "[0] ", "[0]: ", "node-01: ", "10.0.0.1: ", "node01.cluster.local: ", "[default0]:", "[rank0]:",
        "worker-0  | ", "[pod/tests-0/main] ", "(RayWorker pid=1234, ip=10.0.0.1) ", "nid000001 0: ",
        "node1 srun[1234]: ", "INFO:root:", "> ", "")  # fmt: skip
LIBRARY_LINES = (
    "node1:4242:4243 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "node-2.x:4242:4250 [3] transport/net.cc:1234 NCCL WARN a call failed",
    "node1:4242:4242 [0] NCCL INFO NCCL_ALGO set by environment to Ring",
    "NCCL version 2.28.9+cuda13.0",
    "[1732570834.123456] [node1:4242 :0]     ucp_context.c:1234 UCX  WARN  transport 'x' is not available",
    "[1678205653.808236] [node1:903  :0]        ucc_coll.c:255  UCC_COLL INFO  coll_init: Allreduce sum: count 4",
    "[1678205653.8] [node1:903  :0]   tl_nccl_coll.c:55  TL_NCCL ERROR ncclAllReduce failed",
    "libfabric:4242:1732570834::core:core:fi_getinfo_():1161<info> no provider",
)
NUMBERED: dict[str, Callable[[int, str], str]] = {
    "": lambda _, line: line,
    "grep -n": lambda at, line: f"{at}:{line}",
    "cat -n": lambda at, line: f"{at:6d}\t{line}",
}


def read(folder: Path, content: bytes, hints: Hints) -> ImportedLog:
    path = folder / "log"
    path.write_bytes(content)
    return read_log(path, hints)


def results(log: ImportedLog) -> tuple[Any, ...]:
    """All that a log gives but the numbers of its lines."""
    tables = [(table.tool, table.versions, table.ranks, table.cases) for table in log.tables if table.cases]
    return tables, [re.sub(r"^log:\d+: |\bline \d+", "", one) for one in log.problems]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@functools.cache
def plain(folder: Path, name: str) -> tuple[Any, ...]:
    log = read(folder, "\n".join(SAMPLES[name]).encode(), HINTS.get(name, Hints()))
    assert log.cases
    return results(log)


def changed(name: str, around: dict[str, Any]) -> bytes:
    """A stored log as one launcher, terminal and library would have left it."""
    lines = list(SAMPLES[name])
    if around["mark lost"] and not name.endswith((".json", ".csv")):
        lines = [line.replace("#", "", 1) if line.startswith("#") else line for line in lines]
    for place, line in around["library"]:
        lines.insert(place % (len(lines) + 1), line)
    lines = [f"{around['stamp']}{around['tag']}{line}" for line in lines]
    if around["from a browser"]:
        lines = [line.replace("  ", "\u00a0 ") for line in lines]
    if around["colored"]:
        lines = [f"\x1b[32m{line}\x1b[0m" for line in lines]
    lines = [NUMBERED[around["numbered"]](at, line) for at, line in enumerate(lines, start=1)]
    return "".join(line + around["end"] for line in lines).encode(around["encoding"])


AROUND = st.fixed_dictionaries(
    {
        "mark lost": st.booleans(),
        "library": st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(LIBRARY_LINES)), max_size=12),
        "stamp": st.sampled_from(STAMPS),
        "tag": st.sampled_from(TAGS),
        "from a browser": st.booleans(),
        "colored": st.booleans(),
        "numbered": st.sampled_from(sorted(NUMBERED)),
        "end": st.sampled_from(("\n", "\r\n", "\r")),
        "encoding": st.sampled_from(("utf-8", "utf-8-sig", "utf-16", "utf-16-le")),
    }
)


@settings(max_examples=most(400, 60), deadline=None)
@given(name=st.sampled_from(sorted(SAMPLES)), around=AROUND)
def test_whatever_is_put_around_its_lines_a_log_reads_alike(folder: Path, name: str, around: dict[str, Any]) -> None:
    assert results(read(folder, changed(name, around), HINTS.get(name, Hints()))) == plain(folder, name)


@pytest.mark.parametrize("tag", ["", "0: ", "[1,0]<stdout>:", "node1: "])
def test_the_lines_of_a_librarys_log_are_no_processes_and_its_warnings_are_said(folder: Path, tag: str) -> None:
    """`host:pid:tid` begins as the label of a host and of a rank do: most lines of a log may begin so."""
    library = [
        f"node1:{4242 + at % 4}:{4250 + at} [{at % 4}] NCCL INFO Channel {at:02d} : 0[0] -> 1[1]" for at in range(99)
    ]
    warning = "node1:4242:4250 [3] transport/net.cc:1234 NCCL WARN NET/IB : got completion with error 12"
    lines = nccl_log()
    mixed = [*library, *lines[:9], *library, warning, *lines[9:14], warning, *lines[14:]]
    text = log_text("\n".join(f"{tag}{line}" for line in mixed).encode())
    assert [[line.head for line in stream] for stream in text.streams] == [[line.strip() for line in lines]]
    assert text.notes[-2:] == ("200 lines of NCCL's own log set aside",
                               "line 208: NCCL WARN NET/IB : got completion with error 12")  # fmt: skip


def test_a_row_that_a_librarys_line_cut_stays_a_row_that_is_not_read(folder: Path) -> None:
    lines = nccl_log()
    row = next(at for at, line in enumerate(lines) if line.lstrip().startswith("16777216"))
    cut = [*lines[:row], f"{lines[row][:60]}node1:1:2 [0] NCCL INFO Channel 00", lines[row][60:], *lines[row + 1 :]]
    log = read(folder, "\n".join(cut).encode(), Hints())
    assert (len(log.cases), log.left_out) == (4, 3), log.problems  # both sides of the row, and its rest
