"""Starts a peer and us in turn, and gathers what each says: pairs of launches, same sizes, same counts."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError
from linkgauge.peers.catalogue import PeerTest
from linkgauge.peers.estimators import ESTIMATORS
from linkgauge.peers.ratio import MAX_PAIRS, MIN_PAIRS, Ratio, ratio_of_pairs
from linkgauge.plan.case import Case

_LAUNCH_TIMEOUT_S = 600
_NVBANDWIDTH_SAMPLES = 3  # its own defaults: three samples of 16 copies each
_NVBANDWIDTH_WARMUP = 16
_LONGEST_LOOP = 2000
Key = tuple[str, int]  # test, size of ours in bytes


@dataclasses.dataclass(frozen=True)
class Request:
    """One comparison: which peer, where it lies, what is measured. `mpi` as `--mpi`; empty: threads of one process."""

    peer: str
    folder: Path
    tests: tuple[PeerTest, ...]
    sizes: tuple[int, ...]
    ranks: int
    iterations: int
    warmup: int
    mpi: str
    devices: str
    memory: tuple[str, str]
    out: Path
    bind: str = "none"  # none | core: rank i on the i-th core that is allowed
    max_pairs: int = MAX_PAIRS


@dataclasses.dataclass(frozen=True)
class Line:
    """One row of the table: medians over pairs of both figures in ns per operation, their ratio and its verdict.

    The ratio is of rates or of times, as the peer's test gives them: ours over the peer's.
    """

    test: PeerTest
    size: int
    ours_ns: float
    peer_ns: float
    ratio: Ratio
    verdict: str


def sizes_of(test: PeerTest, request: Request) -> list[tuple[int, int]]:
    """(our size, the peer's) of each size that the test can have."""
    factor = request.ranks if test.sizes == "times ranks" else 1
    blocks = test.case["pattern"] in ("allgather", "reduce_scatter")
    least = 16 * request.ranks if blocks and request.peer == "nccl-tests" else test.least_size
    return [(size, size * factor) for size in request.sizes if size >= least]


def find_program(folder: Path, name: str) -> Path:
    """The program `name` in `folder` or below it; EnvironmentLackingError naming both where it is not."""
    for candidate in (folder, folder / name, *sorted(folder.rglob(name))):
        if candidate.is_file() and candidate.name == name and os.access(candidate, os.X_OK):
            return candidate
    raise EnvironmentLackingError(f"no program '{name}' in '{folder}': expected the folder of the peer's programs")


def alternate(request: Request, tell: Callable[[str], None]) -> list[Line]:
    """Measure pairs until every row holds, differs, or cannot be told; at least 9 pairs, at most `max_pairs`."""
    ours: dict[Key, list[float]] = {}
    theirs: dict[Key, list[float]] = {}
    request.out.mkdir(parents=True, exist_ok=True)
    for pair in range(request.max_pairs):
        order: Sequence[Callable[[int], None]] = (
            lambda n: _add(theirs, measure_peer(request, n)),
            lambda n: _add(ours, measure_ours(request, n)),
        )
        for one in order if pair % 2 == 0 else reversed(order):
            one(pair)
        lines = table(request, ours, theirs)
        open_rows = [line for line in lines if line.verdict == "more pairs"]
        tell(f"pair {pair + 1}: {len(lines) - len(open_rows)} of {len(lines)} rows settled")
        if pair + 1 >= MIN_PAIRS and not open_rows:
            break
    return table(request, ours, theirs)


def _add(series: dict[Key, list[float]], found: dict[Key, float]) -> None:
    for key, value in found.items():
        series.setdefault(key, []).append(value)


def table(request: Request, ours: dict[Key, list[float]], theirs: dict[Key, list[float]]) -> list[Line]:
    """The rows that both sides measured in the same number of pairs."""
    lines = []
    for test in request.tests:
        for size, _ in sizes_of(test, request):
            mine, peers = ours.get((test.name, size), []), theirs.get((test.name, size), [])
            if not mine or len(mine) != len(peers):
                continue
            rate = test.figure == "rate"
            ratio = ratio_of_pairs(peers, mine) if rate else ratio_of_pairs(mine, peers)
            verdict = ratio.verdict(test.tolerance_at(size), at_least=rate)
            if verdict == "more pairs" and ratio.pairs >= request.max_pairs:
                verdict = "cannot tell"
            lines.append(Line(test, size, _middle(mine), _middle(peers), ratio, verdict))
    return lines


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def measure_ours(request: Request, pair: int) -> dict[Key, float]:
    """One fresh launch of our cases; the peer's estimator of each."""
    from linkgauge.stats.series import samples_of
    from linkgauge.store.run import load

    plan = request.out / "plan.toml"
    plan.write_text(plan_text(request))
    out = request.out / f"ours-{pair:02d}"
    command = [sys.executable, "-m", "linkgauge", "run", "--plan", str(plan), "--out", str(out), "--no-report"]
    command += ["--devices", request.devices]
    command += ["--mpi", request.mpi, "--bind", _binding(request)] if request.mpi else ["--threads"]
    command += ["--thread-level", "single"] if request.peer == "osu" else []  # as MPI_Init, which OSU calls
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LAUNCH_TIMEOUT_S, check=False
    )
    if not out.is_dir():
        raise EnvironmentLackingError(f"our side did not run: {(done.stderr or done.stdout).strip()[-300:]}")
    run = load(out)
    found: dict[Key, float] = {}
    for row in run.rows():
        test = _test_of(request, row.record)
        if row.status != "ok" or test is None:
            continue
        samples = samples_of(run, row)
        columns = {name: samples[name].to_numpy() for name in ("rank", "lane", "sample", "ns", "iterations")}
        measured = samples["phase"].to_numpy(zero_copy_only=False) == "sample"
        chosen = {name: values[measured] for name, values in columns.items()}
        found[(test.name, row.case.size_asked)] = ESTIMATORS[test.estimator](chosen)
    return found


def _binding(request: Request) -> str:
    if request.bind == "none":
        return "none"
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < request.ranks:
        raise EnvironmentLackingError(f"--bind core: {request.ranks} ranks have {len(cores)} cores, expected one each")
    return ":".join(map(str, cores[: request.ranks]))


def _test_of(request: Request, record: dict[str, object]) -> PeerTest | None:
    for test in request.tests:
        if all(record[name] == value for name, value in test.case.items() if name != "batch"):
            return test
    return None


def plan_text(request: Request) -> str:
    """Our cases as a plan file: a table a test, so many operations as the peer's."""
    parts = []
    for test in request.tests:
        case = dict(test.case)
        # nccl-tests times one queue of all its operations, osu_latency one loop: a common start for every few of them
        # would add its own cost to each. OSU's bandwidth tests time one window after another.
        streams = min(request.iterations, _LONGEST_LOOP)
        batch = int(case.setdefault("batch", streams if case["cadence"] == "streaming" else 1))
        samples = _NVBANDWIDTH_SAMPLES if request.peer == "nvbandwidth" else max(1, request.iterations // batch)
        pair = case["pattern"] in ("pingpong", "unidirectional", "bidirectional")
        case |= {
            "size": [size for size, _ in sizes_of(test, request)],
            "warmup": _NVBANDWIDTH_WARMUP if request.peer == "nvbandwidth" else request.warmup,
            "stop_rule": "count",
            "stop_samples": samples,
            "stop_time_ns": "20s",
            **({"pairs": "first"} if pair else {"ranks": request.ranks}),
        }
        if request.peer != "nvbandwidth":
            case |= {"source_memory": request.memory[0], "target_memory": request.memory[1]}
        elif case["pattern"] in ("host_to_device", "device_to_host", "local_copy"):
            case["ranks"] = 1
        parts.append("[[case]]\n" + "\n".join(f"{name} = {_toml(value)}" for name, value in case.items()))
    return "\n\n".join(parts) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def measure_peer(request: Request, pair: int) -> dict[Key, float]:
    """One launch of each of the peer's programs; nanoseconds per operation as our pattern counts it."""
    from linkgauge.peers.commands import commands_of
    from linkgauge.store.imported import Hints
    from linkgauge.store.importers import read_log

    found: dict[Key, float] = {}
    for number, (tests, command, environment) in enumerate(commands_of(request)):
        log = request.out / f"peer-{pair:02d}-{number}.txt"
        with log.open("wb") as output:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                timeout=_LAUNCH_TIMEOUT_S,
                check=False,
            )
        if done.returncode != 0:
            last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise EnvironmentLackingError(
                f"{' '.join(command)[:200]} ended with {done.returncode}; it said: {last[0][:200]}"
            )
        imported = read_log(log, Hints(ranks=request.ranks, transport="ccl" if request.peer == "nccl-tests" else None))
        for one in imported.cases:
            test = next((test for test in tests if _is_case(test, one.case, request)), None)
            if test is None or not one.intervals:
                continue
            ns, iterations = one.intervals[0]
            found.setdefault((test.name, one.case.size_asked), ns / iterations)
    return found


def _is_case(test: PeerTest, case: Case, request: Request) -> bool:
    """Whether an imported case is the test's: pattern, transport and initiator; the first pair of a matrix."""
    names = ("pattern", "transport", "initiator") if request.peer == "nvbandwidth" else ("pattern",)
    devices = case.devices
    first = request.peer != "nvbandwidth" or devices in ((0, 1), (0,))
    in_place = case.in_place
    return (
        first
        and not in_place
        and all(getattr(case, name) == test.case.get(name, getattr(case, name)) for name in names)
    )
