"""Faults planted at phases of transports: each costs its case only, is recorded with its evidence, and leaves nothing.

`./lg test --faults` plants all of them (LINKGAUGE_FAULTS=all); otherwise sixty drawn by a seed. Faults that end a
launch share runs: a run has one case for each, of a size of its own, and sound ones between. Faults that end the whole
run (a killed parent, a full disk) have a run each, which is resumed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from faults.triples import TRIPLES, Triple, seeded
from linkgauge.run import processes
from linkgauge.run.private_folder import clean_leftovers
from linkgauge.store.run import load

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.timeout(1800),
]
ALL = os.environ.get("LINKGAUGE_FAULTS") == "all"
CHOSEN = list(TRIPLES) if ALL else seeded(60, seed=11)
SHARED = [triple for triple in CHOSEN if not triple.fault.resumes]
ALONE = [triple for triple in CHOSEN if triple.fault.resumes]
A_RUN = 12  # faults that share a run
GROUPS = [SHARED[start : start + A_RUN] for start in range(0, len(SHARED), A_RUN)]
HERE = Path(__file__).parent
FIRST_SIZE = 4096


def plan_text(triples: list[Triple]) -> str:
    """One faulted case and one sound case for each triple; sizes tell them apart."""
    tables = []
    for number, triple in enumerate(triples):
        size = FIRST_SIZE + 16 * number
        each = 'verify = "each"' if triple.fault.kind == "corrupt" else ""
        tables.append(
            f'[[case]]\ntransport = "{triple.transport}"\npattern = "pingpong"\nsize = ["{size}", "{size + 8}"]\n'
            f'pairs = "first"\nstop_rule = "count"\nstop_samples = 6\nstop_time_ns = "60s"\n{each}\n'
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


def run(triples: list[Triple], folder: Path) -> int:
    """Measure in a process of its own, which a fault may kill; returns its exit status."""
    (folder / "job.json").write_text(json.dumps({"plan": plan_text(triples), "fault": faults_of(triples, folder)}))
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with (folder / "output.log").open("a") as log:
        done = subprocess.run([sys.executable, str(HERE / "run_job.py"), str(folder)], env=environment, stdout=log,
                              stderr=log, timeout=600, check=False)  # fmt: skip
    return done.returncode


def left_behind(folder: Path) -> list[str]:
    """Processes, temporary files and shared memory of the folder's runs, MPI libraries' own included."""
    found = []
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = [f"process {pid}" for pid in processes.own_processes() if str(folder) in _environment(pid)]
        if not found:
            break
        time.sleep(0.05)
    found += [str(path) for path in (folder / "tmp").rglob("*") if not path.name.startswith("linkgauge-")]
    return found


def _environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def new_shared_memory(before: set[str], patience_s: float = 10.0) -> set[str]:
    """What is new in /dev/shm and stays: other programs' files come and go."""
    deadline = time.monotonic() + patience_s
    while (new := shared_memory() - before) and time.monotonic() < deadline:
        time.sleep(0.2)
    return new


def shared_memory() -> set[str]:
    """What lies in /dev/shm that is this user's and that no process maps; folders of runs left out."""
    mapped = processes.mapped_files(processes.own_processes())
    found = set()
    for path in Path("/dev/shm").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_uid == os.getuid() and not path.name.startswith("linkgauge-") and path not in mapped:
                found.add(path.name)
    return found


def check_evidence(triple: Triple, row: Any) -> list[str]:
    """What is missing from a faulted case's record."""
    evidence = json.loads(row.record["evidence"] or "{}")
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
    if not row.reason:
        wrong.append("no reason")
    return wrong


@pytest.mark.parametrize("triples", GROUPS, ids=[f"{group[0].name} and on" for group in GROUPS])
def test_each_fault_costs_its_case_only(tmp_path: Path, triples: list[Triple]) -> None:
    before = shared_memory()
    status = run(triples, tmp_path)
    log = (tmp_path / "output.log").read_text()
    rows = {(row.case.transport, row.case.size_asked): row for row in load(tmp_path / "run").rows()}
    wrong = []
    for number, triple in enumerate(triples):
        size = FIRST_SIZE + 16 * number
        row, sound = rows.get((triple.transport, size)), rows.get((triple.transport, size + 8))
        if not (tmp_path / f"planted-{triple.transport}-{size}").exists():
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
    assert left_behind(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert new_shared_memory(before) == set()


@pytest.mark.parametrize("triple", ALONE, ids=[triple.name for triple in ALONE])
def test_a_run_that_was_ended_goes_on_and_has_every_case_once(tmp_path: Path, triple: Triple) -> None:
    before = shared_memory()
    first = run([triple], tmp_path)
    log = (tmp_path / "output.log").read_text()
    assert (tmp_path / f"planted-{triple.transport}-{FIRST_SIZE}").exists(), log
    assert first == (-signal.SIGKILL if triple.fault.kind == "parent" else 5), log
    for row in load(tmp_path / "run").rows():  # what was completed is intact and readable
        assert row.status in ("ok", None)
    assert run([triple], tmp_path) == 0, (tmp_path / "output.log").read_text()
    rows = list(load(tmp_path / "run").rows())
    done = [row.case.size_asked for row in rows if row.status == "ok"]
    assert sorted(done) == [FIRST_SIZE, FIRST_SIZE + 8]
    clean_leftovers([tmp_path / "tmp", Path("/dev/shm")])
    assert left_behind(tmp_path) == []
    assert new_shared_memory(before) == set()


def test_the_list_is_long_enough_and_says_each_triple_once() -> None:
    assert len(TRIPLES) >= 300
    assert len({(triple.fault.kind, triple.phase, triple.transport) for triple in TRIPLES}) == len(TRIPLES)
    assert len(CHOSEN) >= 60
    print(f"{len(CHOSEN)} of {len(TRIPLES)} triples")
