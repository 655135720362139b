"""Our side of a round: one launch of all rows, and the peer's own estimator of each, recomputed from our samples."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.errors import EnvironmentLackingError, RunFolderError
from linkgauge.model.case import Case
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.peers.catalog import TWO_ENDED, Counts
from linkgauge.peers.launch import our_nic, run_logged, why_other_nic
from linkgauge.peers.request import Request, Row
from linkgauge.peers.theirs import NVBANDWIDTH_COUNTS, Figures, Reasons
from linkgauge.run.machine.processes import MARK
from linkgauge.stats.checked import checked_words, operations_checked

if TYPE_CHECKING:
    from linkgauge.model.result import Row as StoredRow
    from linkgauge.store.run import Run

Samples = dict[str, Any]  # columns rank, lane, ns, iterations of phase `sample`, as numpy arrays of one length


def mean_of_rank_0_ns(samples: Samples) -> float:
    """osu_latency, osu_bw and osu_bibw: mean on rank 0, of a round trip (OSU prints half of it) or of a window."""
    first = samples["rank"] == samples["rank"].min()
    return float(samples["ns"][first].sum() / samples["iterations"][first].sum())


def median_of_rank_0_ns(samples: Samples) -> float:
    """ucx_perftest's and ib_*'s latencies: median on rank 0, of a round trip (they print half of it)."""
    first = samples["rank"] == samples["rank"].min()
    return float(statistics.median((samples["ns"][first] / samples["iterations"][first]).tolist()))


def mean_of_rank_means_ns(samples: Samples) -> float:
    """OSU's collectives (cadence barrier) and nccl-tests (a queued batch): mean over ranks of each rank's mean."""
    means = []
    for rank in sorted(set(samples["rank"].tolist())):
        own = samples["rank"] == rank
        means.append(float(samples["ns"][own].sum() / samples["iterations"][own].sum()))
    return statistics.fmean(means)


def nvbandwidth_ns(samples: Samples) -> float:
    """nvbandwidth: median of 3 gated batches of 16, of the first three samples of the first flow."""
    return _median_of_three(samples, samples["lane"] == samples["lane"].min())


def nvbandwidth_sum_ns(samples: Samples) -> float:
    """nvbandwidth's total of both ways: each flow's own median rate, added up; ns for one message each way."""
    lanes = sorted(set(samples["lane"].tolist()))
    rates = [1 / _median_of_three(samples, samples["lane"] == lane) for lane in lanes]
    return len(lanes) / sum(rates)


def _median_of_three(samples: Samples, chosen: Any) -> float:
    order = samples["sample"][chosen].argsort(kind="stable")[:3]
    return float(statistics.median((samples["ns"][chosen][order] / samples["iterations"][chosen][order]).tolist()))


ESTIMATORS: dict[str, Callable[[Samples], float]] = {
    "mean_of_rank_0": mean_of_rank_0_ns,
    "median_of_rank_0": median_of_rank_0_ns,
    "mean_of_rank_means": mean_of_rank_means_ns,
    "nvbandwidth": nvbandwidth_ns,
    "nvbandwidth_sum": nvbandwidth_sum_ns,
}


_LONGEST_LOOP = 2000


def measure_ours(request: Request, rows: Sequence[Row], number: int) -> tuple[Figures, Reasons]:
    """One fresh launch of our cases; the peer's estimator of each."""
    from linkgauge.store.run import load

    plan = request.out / f"plan-{number:02d}.toml"
    plan.write_text(plan_text(request, rows))
    out = request.out / f"ours-{number:02d}"
    if out.exists():
        shutil.rmtree(out)  # of a round that was ended
    command = [sys.executable, "-m", "linkgauge", "run", "--plan", str(plan), "--out", str(out), "--no-report"]
    command += ["--devices", request.devices]
    command += ["--mpi", request.mpi, "--bind", _binding(request)] if request.mpi else ["--threads"]
    command += ["--hosts", ",".join(request.hosts)] if request.hosts else []
    environment = {**request.env, **({} if request.own is None else {MARK: request.own.token})}
    for name in request.env:  # values by the environment: those of a command line stand in ps
        command += ["--env", name]
    command += ["--thread-level", "single"] if request.peer == "osu" else []  # as MPI_Init, which OSU calls
    failure = run_logged(command, request.out / f"ours-{number:02d}.txt", environment)
    if not out.is_dir():
        raise EnvironmentLackingError(f"our side did not run: {failure}")
    run = load(out)
    if request.peer in TWO_ENDED and (reason := _other_library(request, run)):
        return {}, {row.key: reason for row in rows}
    figures: Figures = {}
    reasons: Reasons = {row.key: failure or "the plan has no such case" for row in rows}
    for measured in run.rows():
        for row in _rows_of(rows, measured.case):
            if measured.status == "ok":
                figures[row.key] = _estimate(run, measured, row)
                reasons.pop(row.key, None)
            elif row.key not in figures:
                reasons[row.key] = f"Linkgauge: {measured.status}: {measured.reason}"
    return figures, reasons


def checked_so_far(out: Path) -> str:
    """Of how many of our operations the data were checked, over the rounds that lie there; empty where it is not
    known."""
    from linkgauge.store.run import load

    found: Counter[str] = Counter()
    for folder in sorted(out.glob("ours-[0-9]*")):
        if folder.is_dir():
            with contextlib.suppress(RunFolderError):  # of a round that was ended
                found += operations_checked(load(folder))
    return checked_words(found)


def _other_library(request: Request, run: Run) -> str:
    """Why what our ranks loaded is not what the peer's programs are given; empty where it is, or none was loaded."""
    from linkgauge.run.parent.mpi_library import resolve

    transport = str(request.rows[0].test.case["transport"])
    ours = our_nic(transport, resolve(request.mpi))
    loaded = (launch.versions.get(f"{transport} file") for launch in run.launched)
    return next((reason for file in loaded if (reason := why_other_nic(ours, str(file or "")))), "")


def _estimate(run: Run, measured: StoredRow, row: Row) -> float:
    from linkgauge.stats.series import samples_of

    samples = samples_of(run, measured)
    columns = {name: samples[name].to_numpy() for name in ("rank", "lane", "sample", "ns", "iterations")}
    kept = samples["phase"].to_numpy(zero_copy_only=False) == "sample"
    ns = ESTIMATORS[row.test.estimator]({name: values[kept] for name, values in columns.items()})
    return ns / row.test.sizes_an_operation


def _binding(request: Request) -> str:
    if request.bind == "none":
        return "none"
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < request.ranks:
        raise EnvironmentLackingError(f"--bind core: {request.ranks} ranks have {len(cores)} cores, expected one each")
    return ":".join(map(str, cores[: request.ranks]))


def _rows_of(rows: Sequence[Row], case: Case) -> Iterator[Row]:
    """The rows that a case of ours is measured for: two where the peer has two names for one measurement."""
    memory = (case.source_memory, case.target_memory)
    for row in rows:
        wanted = {"variant": "", **row.test.case_of(row.ranks)}
        if (
            case.size_requested == row.size * row.test.sizes_an_operation
            and case.ranks == row.ranks
            and (memory == row.memory or not row.test.takes_memory)
            and all(getattr(case, name) == value for name, value in wanted.items() if name != "batch")
        ):
            yield row


def plan_text(request: Request, rows: Sequence[Row]) -> str:
    """Our cases as a plan file: a table for the sizes of a test that are repeated alike, as often as the peer does."""

    def table(row: Row) -> tuple[object, ...]:
        counts = _counts(request, row)
        return row.test.name, row.ranks, row.memory, counts.iterations, counts.warmup

    tables = (_table(request, some) for some in grouped((table(row), row) for row in rows).values())
    texts = ("\n".join(f"{name} = {_toml(value)}" for name, value in table.items()) for table in tables)
    return "\n\n".join(f"[[case]]\n{text}" for text in texts) + "\n"


def _counts(request: Request, row: Row) -> Counts:
    if row.test.counts is not None:
        return row.test.counts
    return NVBANDWIDTH_COUNTS if request.peer == "nvbandwidth" else request.counts(row)


def _table(request: Request, rows: Sequence[Row]) -> dict[str, object]:
    test, counts = rows[0].test, _counts(request, rows[0])
    case = dict(test.case_of(rows[0].ranks))
    # nccl-tests times one queue of all its operations, osu_latency one loop: a common start for every few of them
    # would add its own cost to each. OSU's bandwidth tests time one window after another.
    queued = min(counts.iterations, _LONGEST_LOOP) if case["cadence"] == "streaming" else 1
    batch = int(case.setdefault("batch", queued))
    case |= {
        "size": [(row.size or 1) * test.sizes_an_operation for row in rows],  # of what has none any will do
        "warmup": counts.warmup,
        "stop_rule": "count",
        "stop_samples": max(1, counts.iterations // batch),
        "max_time": "20s",
    }
    if PATTERNS[case["pattern"]].pair:
        case |= {"pairs": "first"}
    else:
        case |= {"ranks": rows[0].ranks} | ({"pairs": test.pairs} if test.messages else {})
    if case["transport"] == "ccl":
        case["buffer"] = request.buffer
    if test.takes_memory:
        case |= {"source_memory": rows[0].memory[0], "target_memory": rows[0].memory[1]}
    return case


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
