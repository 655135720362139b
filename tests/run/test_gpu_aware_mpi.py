"""Whole runs of MPI on device memory: a real Open MPI behind a library that says it takes CUDA's pointers, which it
does where the devices are stand-ins, whose memory is the host's. They are built with the C++ tests (`./lg test`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from installed_mpi import installed
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.store.run import load
from program import linkgauge
from thorough import thorough

STAND_INS = Path(os.environ.get("LINKGAUGE_TEST_STAND_INS", Path(__file__).parents[2] / "build" / "tests" / "stand_in"))
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(not (STAND_INS / "libcuda.so.1").exists(), reason="no stand-in GPUs: build the C++ tests"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
]
SAYS_YES = "int MPIX_Query_cuda_support(void) { return 1; }\n"
# What a library does that claims more than it can: it reads a device's pointer as the host's.
DIES = SAYS_YES + "#include <stdlib.h>\nint MPI_Allreduce() { abort(); }\n"
PLAN = """
[[case]]
transport = ["mpi", "staging"]
pattern = ["pingpong", "unidirectional", "bidirectional", "allreduce", "alltoall", "allgather", "broadcast"]
size = "64KiB"
pairs = "first"
ranks_per_device = [1, 2]

[[case]]
transport = "mpi"
pattern = ["pingpong", "unidirectional"]
variant = ["default", "put", "get"]
size = "64KiB"
pairs = "first"
source_memory = ["device", "pageable"]
target_memory = ["device", "pinned"]
"""


@pytest.fixture
def open_mpi() -> MpiInstallation:
    found = [one for one in installed() if one.abi == "openmpi" and one.launcher and not one.problem]
    if not found:
        pytest.skip("no Open MPI here")
    return found[0]


def prefix_of(open_mpi: MpiInstallation, folder: Path, source: str) -> Path:
    """An installation whose library is Open MPI's with what `source` defines before it."""
    assert COMPILER is not None
    (folder / "lib").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "more.c").write_text(source)
    library = folder / "lib" / "libmpi.so.40"
    options = ["-shared", "-fPIC", "-Wl,-soname,libmpi_more.so", "-Wl,--no-as-needed"]
    subprocess.run(
        [COMPILER, *options, "-o", str(library), str(folder / "more.c"), str(open_mpi.library.resolve()),
         f"-Wl,-rpath,{open_mpi.library.resolve().parent}"], check=True, capture_output=True,
    )  # fmt: skip
    launcher = folder / "bin" / "mpiexec"
    launcher.write_text(f'#!/bin/sh\nexec {open_mpi.launcher} "$@"\n')
    launcher.chmod(0o755)
    return folder


def run(cwd: Path, prefix: Path, plan: str) -> tuple[int, str]:
    (cwd / "plan.toml").write_text(plan)
    environment = {
        "LD_LIBRARY_PATH": f"{STAND_INS}:{STAND_INS / 'nvrtc12'}",
        "XDG_CACHE_HOME": str(cwd / "cache"),
        "LINKGAUGE_STAND_IN": "devices=2",
    }
    words = ["run", "--devices", "cuda", "--mpi", str(prefix), "--plan", "plan.toml", "--out", "run", "--no-report"]
    words += ["--stop-rule", "count", "--stop-samples", "5", "--warmup", "1", "--max-time", "20s"]
    done = linkgauge(*words, cwd=cwd, env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr + done.stdout


@thorough("mpi and staging are measured on host devices, and a library that dies is below")
def test_device_memory_goes_through_the_library_with_one_rank_a_device_and_two(
    tmp_path: Path, open_mpi: MpiInstallation
) -> None:
    prefix = prefix_of(open_mpi, tmp_path / "mpi", SAYS_YES)
    status, said = run(tmp_path, prefix, PLAN)
    assert status == 0, said
    assert (prefix / "lib" / "libmpi.so.40").exists()  # below a temporary folder, mapped by every rank, and not theirs
    rows = list(load(tmp_path / "run").rows())
    skipped = [(row.case.pattern, row.reason) for row in rows if row.status == "skipped"]
    assert all("put" in str(reason) or "one-sided" in str(reason) for _, reason in skipped), skipped
    measured = [row for row in rows if row.status == "ok"]
    assert len(measured) + len(skipped) == len(rows)
    assert all(row.verified for row in measured)
    shared = {(row.case.transport, row.case.pattern): row.case.devices for row in measured
              if row.case.ranks_per_device == 2}  # fmt: skip
    for transport in ("mpi", "staging"):
        for pattern in ("allreduce", "alltoall", "allgather", "broadcast"):
            assert shared[transport, pattern] == (0, 0, 1, 1)
        assert shared[transport, "unidirectional"] == (0, 1)
    kinds = {(row.case.source_memory, row.case.target_memory) for row in measured if row.case.transport == "mpi"}
    assert kinds == {(source, target) for source in ("device", "pageable") for target in ("device", "pinned")}


@thorough("a library that dies costs its cases alone in test_runner.py too")
def test_a_library_that_dies_of_a_device_pointer_costs_its_cases_alone(
    tmp_path: Path, open_mpi: MpiInstallation
) -> None:
    plan = '[[case]]\ntransport = ["mpi", "staging"]\npattern = ["allreduce", "alltoall"]\nsize = "64KiB"\n'
    status, said = run(tmp_path, prefix_of(open_mpi, tmp_path / "mpi", DIES), plan)
    assert status == 4, said
    found = {(row.case.transport, row.case.pattern): row for row in load(tmp_path / "run").rows()}
    assert found["mpi", "allreduce"].status == "crashed"
    assert "SIGABRT" in str(found["mpi", "allreduce"].reason)
    assert found["mpi", "alltoall"].status == found["staging", "alltoall"].status == "ok"
