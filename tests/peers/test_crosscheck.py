"""`linkgauge crosscheck` as a user types it: our real launches over stand-in GPUs and a stand-in NCCL, in turn with a
program that prints what nccl-tests prints. The stand-ins are built with the C++ tests (`./lg test`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

from executables import python_program
from linkgauge.peers.catalog import peer_tests
from program import linkgauge
from thorough import most, thorough

STAND_INS = Path(os.environ.get("LINKGAUGE_TEST_STAND_INS", Path(__file__).parents[2] / "build" / "tests" / "stand_in"))
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(
        not (STAND_INS / "nccl0" / "libnccl.so.2").exists(), reason="no stand-in NCCL: build the C++ tests"
    ),
]
STAND_IN_VERSION = 22809  # as nccl_stand_in.cpp says it was built
PROGRAM = """import pathlib, sys
name = pathlib.Path(sys.argv[0]).name
o = dict(zip(sys.argv[1::2], sys.argv[2::2]))
n, size = int(o["-t"]), int(o["-b"])
with open(pathlib.Path(sys.argv[0]).parent / "started", "a") as started:
    print(name, n, o["-n"], o["-w"], file=started)
print("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library={library}")
print(f"# Collective test starting: {{name}}")
print(f"# nThread {{n}} nGpus 1 minBytes {{size}} warmup iters: {{o['-w']}} iters: {{o['-n']}} agg iters: 1")
for rank in range(n):
    print(f"#  Rank {{rank:2}} Group  0 Pid  100 on  node device {{rank:2}} [0000:0{{rank}}:00] NVIDIA H200")
names = "time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
print("#       size         count      type   redop    root     " + names)
while size <= int(o["-e"]):
    print(size, size // 4, "float", "sum", -1, 12.5, 0.01, 0.01, "N/A", 25.0, 0.02, 0.02, "N/A")
    size *= int(o["-f"])
"""


def against(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    places = [STAND_INS, STAND_INS / "nvrtc12", STAND_INS / "nccl0"]
    environment = {
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, places)),
        "XDG_CACHE_HOME": str(cwd / "cache"),
        "LINKGAUGE_STAND_IN": "devices=3",
    }
    return linkgauge("crosscheck", *words, cwd=cwd, env=environment)


@thorough("tests/peers/test_drive.py has the rows and rounds of nccl-tests")
def test_every_test_of_nccl_tests_in_two_launches_a_round(tmp_path: Path) -> None:
    few = ["all_gather_perf", "all_reduce_perf", "broadcast_perf"]
    names = most([test.name for test in peer_tests("nccl-tests")], few)
    for name in names:
        python_program(tmp_path / "peer", name, PROGRAM.format(library=STAND_IN_VERSION))
    words = ["nccl-tests=peer", "--ranks", "2,3", "--size", "96,768", "--devices", "cuda", "--iterations", "40"]
    words += most([], ["--tests", ",".join(few)])
    done = against(*words, "--pairs", "1", "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert {(row["test"], row["ranks"], row["size"]) for row in table} == {
        (name, ranks, size) for name in names for ranks in (2, 3) for size in (96, 768)
    }
    for row in table:  # of a broadcast what was in place counts
        assert row["peer_ns"] == (25000 if row["test"] == "broadcast_perf" else 12500)
        assert row["ours_ns"] > 0
        assert row["verdict"] == "cannot tell"
    # Each program once a rank count, whatever the sizes, and one run folder of ours with one launch.
    started = (tmp_path / "peer" / "started").read_text().splitlines()
    assert sorted(started) == sorted(f"{name} {ranks} 40 5" for name in names for ranks in (2, 3))
    assert [path.name for path in (tmp_path / "out").glob("ours-*") if path.is_dir()] == ["ours-00"]
    assert json.loads((tmp_path / "out" / "ratios.json").read_text()) == table
    # It has its round already, and a row that nccl-tests cannot have is said.
    again = against(*words, "--pairs", "1", "--out", "out", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "1 round was kept" in again.stderr
    assert sorted((tmp_path / "peer" / "started").read_text().splitlines()) == sorted(started)
    left = against(
        *words, "--tests", "all_gather_perf", "--size", "8,96", "--pairs", "1", "--out", "other", cwd=tmp_path
    )
    assert "nccl-tests would cut 8 bytes to another size: expected a multiple of 48" in left.stdout


def test_another_nccl_than_ours_is_no_comparison(tmp_path: Path) -> None:
    python_program(tmp_path / "peer", "all_reduce_perf", PROGRAM.format(library=22703))
    done = against("nccl-tests=peer", "--tests", "all_reduce_perf", "--devices", "cuda", cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    estimate, error = done.stderr.splitlines()
    assert estimate.startswith("linkgauge: 6 to 31 rounds of 2 rows, about ")
    assert "the peer ran version 2.27.3 of NCCL, Linkgauge's is 2.28.9" in error


def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "peer").mkdir()
    lacking = against("nccl-tests=peer", "--devices", "cuda", cwd=tmp_path)
    assert lacking.returncode == 5
    assert "no program 'all_reduce_perf' in 'peer'" in lacking.stderr
    for words, said in (
        (["osu=peer"], "expected --mpi"),
        (["nccl-tests=peer", "--ranks", "two"], "--ranks 'two': expected whole numbers"),
        (["nccl-tests=peer", "--memory", "device"], "--memory 'device': expected two of"),
        (["nccl-tests=peer", "--tests", "alltoall_perf", "--size", "8"], "nothing is left to compare"),
        (["nccl-tests=peer", "--buffer", "symmetric"], "--buffer 'symmetric': expected allocated or plain"),
    ):
        done = against(*words, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
