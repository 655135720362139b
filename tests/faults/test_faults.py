"""Faults planted at phases of transports: each costs its case only, is recorded with its evidence, and leaves nothing.

`./lg test --faults` plants all of them (LINKGAUGE_FAULTS=all), `--all` sixty drawn by a seed, else 16. Faults that end
a launch share runs: a run has one case for each, of a size of its own, and sound ones between. Those that end the whole
run (a killed parent, a full disk) share runs too, each of which is resumed until nothing is left. Much of the time
passes waiting for what hangs, so several runs go on at once; the tests look at them one after the other.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import importlib.util
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.leftovers import left_behind, new_shared_memory, shared_memory
from faults.planter import SAMPLES, WARMUP
from faults.triples import GPU_LIBRARIES, THREADED, TRIPLES, Triple, seeded
from linkgauge.run.machine.private_folder import clean_leftovers
from linkgauge.store.run import load
from planted_faults import HAVE_FAULTS, NO_FAULTS
from program import started
from thorough import most, thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS),
]
ALL = os.environ.get("LINKGAUGE_FAULTS") == "all"
CHOSEN = list(TRIPLES) if ALL else seeded(most(60, 16), seed=11)
A_RUN = 12  # faults that share a run
A_CHAIN = 6  # faults that end a run which is then resumed, one after the other
AT_ONCE = 3 if ALL else 2


def parted(triples: list[Triple], size: int) -> list[list[Triple]]:
    return [triples[start : start + size] for start in range(0, len(triples), size)]


def needs_the_last_record(triple: Triple) -> bool:
    """Whether the run is over once the fault was planted: two of them cannot be had of one run."""
    return triple.fault.kind == "disk" and triple.phase == "release"


def alike(triples: list[Triple], size: int) -> list[list[Triple]]:
    """Parts of one kind of launch each."""
    kinds = ("", *GPU_LIBRARIES.values())
    return [part for kind in kinds for part in parted([one for one in triples if stand_in([one]) == kind], size)]


def stand_in(triples: list[Triple]) -> str:
    """The folder of the stand-in for a GPU's library that their runs are over; `alike` has put them together."""
    return GPU_LIBRARIES.get(triples[0].transport, "")


RESUMED = [triple for triple in CHOSEN if triple.fault.resumes]
GROUPS = alike([triple for triple in CHOSEN if not triple.fault.resumes], A_RUN)
CHAINS = [
    *alike([triple for triple in RESUMED if not needs_the_last_record(triple)], A_CHAIN),
    *([triple] for triple in RESUMED if needs_the_last_record(triple)),
]
STAND_INS = Path(os.environ.get("LINKGAUGE_TEST_STAND_INS", Path(__file__).parents[2] / "build" / "tests" / "stand_in"))
HERE = Path(__file__).parent
FIRST_SIZE = 4096
# Patterns and variants of a stand-in's cases, by turns: a wait on a stream for what never comes has an end of its own,
# and kernels put and wait.
WAYS = {
    "nvshmem": (("pingpong", "put"), ("pingpong", "signal"), ("pingpong", "device"), ("allreduce", "collective"),
                ("allreduce", "device+collective")),
    "nccl3": (("allreduce", "device"), ("allreduce", "device+lsa_barrier")),
}  # fmt: skip
# Further MPI libraries, whose launchers end ranks, and tell of their end, in ways of their own.
OTHER_LIBRARIES = [prefix for prefix in os.environ.get("LINKGAUGE_TEST_MPI", "").split(os.pathsep) if prefix]
TO_OTHERS = {"kill": "time", "segv": "warm up", "stop": "time", "hang": "verify", "throw": "check", "abort": "time",
             "launcher": "time"}  # fmt: skip


# Of staging between two devices of SYCL's, whose memory the host does not touch.
ON_SYCL = {"kill": "time", "hang": "verify", "throw": "check", "memory": "prepare", "call": "verify", "corrupt": "time"}


def plan_text(triples: list[Triple], library: str = "", more: str = "") -> str:
    """One faulted case and one sound case for each triple; sizes tell them apart. `more`: a line of all cases."""
    ways = WAYS.get(library, (("pingpong", ""),))
    tables = ["[[launch]]\nthreads = true\n"] if triples[0].transport in THREADED else []
    for number, triple in enumerate(triples):
        size = FIRST_SIZE + 16 * number
        each = 'verify = "each"' if triple.fault.kind == "corrupt" else ""
        pattern, way = ways[number % len(ways)]
        variant = f'variant = "{way}"' if way else ""
        tables.append(
            f'[[case]]\ntransport = "{triple.transport}"\npattern = "{pattern}"\nsize = ["{size}", "{size + 8}"]\n'
            f'pairs = "first"\nstop_rule = "count"\nstop_samples = {SAMPLES}\nmax_time = "60s"\n{each}\n{variant}\n'
            f"{more}\nwarmup = {WARMUP}\n"
        )
    return "\n".join(tables)


def faults_of(triples: list[Triple], folder: Path) -> dict[str, Any]:
    faults = [
        {
            "size": FIRST_SIZE + 16 * number,
            "transport": triple.transport,
            "kind": triple.fault.kind,
            "phase": triple.core_phase,
            "rank": 0 if triple.fault.kind == "disk" else 1,
        }
        for number, triple in enumerate(triples)
    ]
    return {"planter": str(HERE / "planter.py"), "folder": str(folder), "faults": faults}


def run(triples: list[Triple], folder: Path, mpi: str = "", library: str = "", more: str = "") -> int:
    """Measure in a process of its own, which a fault may kill; returns its exit status. `mpi`: its library's prefix."""
    library = library or stand_in(triples)
    job = {"plan": plan_text(triples, library, more), "fault": faults_of(triples, folder), "mpi": mpi,
           "devices": "sycl:0,1" if library == "sycl" else "cuda:0,1" if library else "host:2"}  # fmt: skip
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {"TMPDIR": str(folder / "tmp")}
    if library:
        places = [str(STAND_INS), str(STAND_INS / "nvrtc12"), str(STAND_INS / library)]
        environment |= {"LD_LIBRARY_PATH": os.pathsep.join(places), "LINKGAUGE_STAND_IN": "devices=2",
                        "XDG_CACHE_HOME": str(folder / "cache")}  # fmt: skip
    done = started([str(HERE / "run_job.py"), str(folder)], cwd=folder, env=environment)
    with (folder / "output.log").open("a") as log:
        log.write(done.stdout + done.stderr)
    return done.returncode


def check_evidence(triple: Triple, row: Any) -> list[str]:
    """What is missing from a faulted case's record."""
    evidence = row.evidence
    wrong = []
    signals = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV}
    if triple.fault.kind in signals and evidence.get("signal") != signals[triple.fault.kind]:
        wrong.append(f"signal {evidence.get('signal')}")
    if triple.fault.kind in ("stop", "hang"):
        if not evidence.get("stacks") and triple.fault.kind == "hang":
            wrong.append("no stacks")
        states = {rank["state"] for rank in evidence.get("ranks", [])}
        if triple.fault.kind == "stop" and "stopped" not in states:
            wrong.append(f"states {states}")
    if triple.fault.kind == "corrupt" and not {"first_bad_offset", "expected", "found", "bad_bytes"} <= set(
        evidence.get("verify", {})
    ):
        wrong.append("no first bad offset")
    if triple.fault.kind == "library" and "ncclSend failed with ncclInternalError (3)" not in str(row.reason):
        wrong.append(f"reason {row.reason}")
    if not row.reason:
        wrong.append("no reason")
    return wrong


@dataclasses.dataclass
class Chain:
    """What was seen of a run that was ended by one fault after the other and resumed after each."""

    planted: list[Triple]  # in the order in which they ended the run
    wrong: list[str]


def run_chain(triples: list[Triple], folder: Path) -> Chain:
    """Run and resume until the run ends well; each fault must end it once, and no completed case may change."""
    chain = Chain([], [])
    kept: dict[Any, tuple[int, ...]] = {}
    while True:
        status = run(triples, folder)
        now = completed(folder / "run")
        if any(now.get(identity) != times for identity, times in kept.items()):
            chain.wrong.append(f"cases completed before {chain.planted[-1:]} are not as they were")
        kept = now
        new = [triple for triple in triples if triple not in chain.planted and marker(folder, triples, triple).exists()]
        if status == 0 or len(new) != 1:
            if status or new:
                chain.wrong.append(f"exit status {status} with {[triple.name for triple in new]} planted")
            return chain
        expected = -signal.SIGKILL if new[0].fault.kind == "parent" else 5
        if status != expected:
            chain.wrong.append(f"{new[0].name}: exit status {status}, expected {expected}")
        chain.planted += new


def completed(path: Path) -> dict[Any, tuple[int, ...]]:
    """The times of each case that is ok, by its row's identity; a run that was killed has no other statuses."""
    loaded = load(path)
    rows = list(loaded.rows())
    assert {row.status for row in rows} <= {"ok", None}
    times: dict[Any, list[int]] = {row.identity: [] for row in rows if row.status == "ok"}
    for sample in loaded.samples.select(["case_key", "launch", "repeat", "attempt", "ns"]).to_pylist():
        identity = (sample["case_key"], sample["launch"], sample["repeat"], sample["attempt"])
        if identity in times:
            times[identity].append(sample["ns"])
    assert all(times.values())
    return {identity: tuple(series) for identity, series in times.items()}


def marker(folder: Path, triples: list[Triple], triple: Triple) -> Path:
    """The file that the planter makes when it plants."""
    return folder / f"planted-{triple.transport}-{FIRST_SIZE + 16 * triples.index(triple)}"


def identity(triples: list[Triple]) -> str:
    """A run's name among the tests."""
    return triples[0].name + (" and on" if len(triples) > 1 else "")


class Runs:
    """The runs of this module, measured ahead of the tests that look at them, so many at once."""

    def __init__(self, folder: Path) -> None:
        self.shared_memory_before = shared_memory()
        self._folder = folder
        self._pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self._started: dict[str, tuple[Path, concurrent.futures.Future[Any]]] = {}

    def start(self, function: Callable[[list[Triple], Path], Any], triples: list[Triple]) -> None:
        folder = self._folder / str(len(self._started))
        folder.mkdir()
        self._started[identity(triples)] = folder, self._pool.submit(function, triples, folder)

    def result(self, triples: list[Triple]) -> tuple[Path, Any]:
        """The folder of a run, and what its function returned."""
        folder, started = self._started[identity(triples)]
        return folder, started.result()

    def wait(self) -> None:
        concurrent.futures.wait([started for _, started in self._started.values()])

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Runs]:
    made = Runs(tmp_path_factory.mktemp("faults"))
    asked = {item.name.partition("[")[2].rstrip("]") for item in request.session.items}
    for function, lists in ((run, GROUPS), (run_chain, CHAINS)):
        for triples in lists:
            if identity(triples) in asked and (HAVE_STAND_INS or not stand_in(triples)):
                made.start(function, triples)
    yield made
    made.close()


HAVE_STAND_INS = all((STAND_INS / folder).exists() for folder in GPU_LIBRARIES.values())


def need_stand_ins(triples: list[Triple]) -> None:
    """Skip what cannot be had."""
    if stand_in(triples) and not HAVE_STAND_INS:
        pytest.skip("no stand-ins for NCCL and NVSHMEM: build the C++ tests")


@pytest.mark.parametrize("triples", GROUPS, ids=map(identity, GROUPS))
def test_each_fault_costs_its_case_only(runs: Runs, triples: list[Triple]) -> None:
    need_stand_ins(triples)
    folder, status = runs.result(triples)
    expect_each_cost_its_case(triples, folder, status)


@thorough("each fault is tried with one library")
@pytest.mark.parametrize("prefix", OTHER_LIBRARIES)
def test_each_fault_costs_its_case_only_under_another_mpi_library(prefix: str, tmp_path: Path) -> None:
    triples = [triple for triple in TRIPLES if triple.transport == "mpi"
               and TO_OTHERS.get(triple.fault.kind) == triple.phase]  # fmt: skip
    before = shared_memory()
    expect_each_cost_its_case(triples, tmp_path, run(triples, tmp_path, prefix))
    assert new_shared_memory(before) == set()


@thorough("each fault is tried on devices of another kind")
@pytest.mark.skipif(not (STAND_INS / "sycl").exists(), reason="no stand-in for SYCL: build the C++ tests")
def test_each_fault_costs_its_case_only_on_sycl_devices(tmp_path: Path) -> None:
    triples = [triple for triple in TRIPLES if triple.transport == "staging"
               and ON_SYCL.get(triple.fault.kind) == triple.phase]  # fmt: skip
    assert len(triples) == len(ON_SYCL)
    expect_each_cost_its_case(triples, tmp_path, run(triples, tmp_path, library="sycl"))


@thorough("each fault is tried with memory of our own")
@pytest.mark.skipif(not (STAND_INS / "libcuda.so.1").exists(), reason="no stand-in GPUs: build the C++ tests")
def test_each_fault_costs_its_case_only_where_memory_is_opened_by_fabric_handles(tmp_path: Path) -> None:
    ways = {"copy_engine": {**ON_SYCL, "kill": "check"}, "kernel": {**ON_SYCL, "stop": "time"}}
    if not most(True, False):  # half of them each: which transport fails is nothing to such memory
        halves = ("kill", "hang", "memory"), ("stop", "throw", "call", "corrupt")
        ways = {name: {kind: by_kind[kind] for kind in half}
                for (name, by_kind), half in zip(ways.items(), halves, strict=True)}  # fmt: skip
    triples = [triple for triple in TRIPLES if ways.get(triple.transport, {}).get(triple.fault.kind) == triple.phase]
    assert len(triples) == sum(map(len, ways.values()))
    status = run(triples, tmp_path, library="nvrtc12", more='handles = "fabric"')
    expect_each_cost_its_case(triples, tmp_path, status)


@thorough("each fault is tried with memory of our own")
@pytest.mark.skipif(not (STAND_INS / "nccl3").exists(), reason="no stand-in for NCCL: build the C++ tests")
def test_each_fault_costs_its_case_only_where_our_kernels_have_nccls_memory(tmp_path: Path) -> None:
    # Two phases of each, by the one variant and the other; or one, by turns.
    phases = {"kill": ("check", "time"), "segv": ("warm up", "verify"), "stop": ("check", "time"),
              "hang": ("time", "verify"), "throw": ("check", "verify"), "memory": ("prepare", "check")}  # fmt: skip
    taken = {kind: most(both, both[at % 2 : at % 2 + 1]) for at, (kind, both) in enumerate(phases.items())}
    triples = [triple for triple in TRIPLES if triple.transport == "ccl"
               and triple.phase in taken.get(triple.fault.kind, ())]  # fmt: skip
    assert len(triples) == most(2, 1) * len(phases)
    status = run(triples, tmp_path, library="nccl3", more='algorithm = "two_shot"')
    expect_each_cost_its_case(triples, tmp_path, status)


def expect_each_cost_its_case(triples: list[Triple], folder: Path, status: int) -> None:
    log = (folder / "output.log").read_text()
    rows = {(row.case.transport, row.case.size_requested): row for row in load(folder / "run").rows()}
    wrong = []
    for number, triple in enumerate(triples):
        size = FIRST_SIZE + 16 * number
        row, sound = rows.get((triple.transport, size)), rows.get((triple.transport, size + 8))
        if not marker(folder, triples, triple).exists():
            wrong.append(f"{triple.name}: was not planted")
        elif row is None or row.status != triple.fault.status:
            said = f"{row.status}: {row.reason}" if row is not None else "no record"
            wrong.append(f"{triple.name}: expected {triple.fault.status}, is {said}")
        else:
            wrong += [f"{triple.name}: {what}" for what in check_evidence(triple, row)]
        if sound is None or sound.status != "ok":
            wrong.append(f"the sound case beside {triple.name} is {sound.status if sound else 'not there'}")
    print(f"{len(triples)} faults planted, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong) + "\n" + log[-3000:]
    assert status == 4, log[-3000:]
    assert left_behind(folder) == []
    assert list((folder / "tmp").iterdir()) == []


@pytest.mark.parametrize("triples", CHAINS, ids=map(identity, CHAINS))
def test_a_run_that_was_ended_goes_on_and_has_every_case_once(runs: Runs, triples: list[Triple]) -> None:
    need_stand_ins(triples)
    folder, chain = runs.result(triples)
    log = (folder / "output.log").read_text()
    wrong = [*chain.wrong, *(f"{triple.name}: was not planted" for triple in triples if triple not in chain.planted)]
    print(f"{len(chain.planted)} faults planted and as many resumed, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong) + "\n" + log[-3000:]
    done = [row.case.size_requested for row in load(folder / "run").rows() if row.status == "ok"]
    firsts = [FIRST_SIZE + 16 * number for number in range(len(triples))]
    assert sorted(done) == sorted(size for first in firsts for size in (first, first + 8))
    clean_leftovers([folder / "tmp", Path("/dev/shm")])
    assert left_behind(folder) == []


def test_no_shared_memory_is_left_when_all_runs_are_over(runs: Runs) -> None:
    # Not after each run: what a killed parent leaves lies there until that run is resumed, beside the others.
    runs.wait()
    clean_leftovers([Path("/dev/shm")])
    assert new_shared_memory(runs.shared_memory_before) == set()


def test_the_list_is_long_enough_and_says_each_triple_once() -> None:
    assert len(TRIPLES) >= 300
    assert len({(triple.fault.kind, triple.phase, triple.transport) for triple in TRIPLES}) == len(TRIPLES)
    assert len(CHOSEN) >= most(60, 16)
    print(f"{len(CHOSEN)} of {len(TRIPLES)} triples")
