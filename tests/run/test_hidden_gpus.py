"""GPUs that variables hide are named before anything else, over emulated libraries; and so are others who use them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from linkgauge.errors import Exit
from linkgauge.owner import in_host_namespace
from stand_ins import STAND_INS, linkgauge_over
from thorough import thorough

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(
        not (STAND_INS / "libcuda.so.1").exists(), reason="no stand-in GPU libraries: build the C++ tests"
    ),
]
FEW = ("--threads", "--transport", "kernel", "--pattern", "unidirectional", "--size", "64KiB", "--pairs", "first",
       "--stop-rule", "count", "--stop-samples", "5", "--warmup", "1", "--no-report")  # fmt: skip
NO_HIP = {"HIP_VISIBLE_DEVICES": ""}  # the emulated HIP has GPUs as well


def over_two(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command on a machine of two emulated GPUs, which NVML lists."""
    return linkgauge_over(
        "nvrtc12", words=words, cwd=cwd, LINKGAUGE_STAND_IN="devices=2", LINKGAUGE_STAND_IN_NVML="2", **variables
    )


def test_some_are_hidden(tmp_path: Path) -> None:
    words = ("--threads", "--transport", "kernel", "--pattern", "empty_op", *FEW[-7:])
    done = over_two("run", "--out", "run", *words, cwd=tmp_path, CUDA_VISIBLE_DEVICES="0,7")
    assert done.returncode == 0, done.stderr
    said = "1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=0,7: 7 is no GPU here"
    assert done.stderr.splitlines()[0] == f"linkgauge: {said}"
    assert sum(said in line for line in done.stderr.splitlines()) == 1
    info = json.loads((tmp_path / "run/run.json").read_text())
    assert info["devices"]["kind"] == "cuda"
    assert info["warnings"][0] == said


def test_all_are_hidden(tmp_path: Path) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "", **NO_HIP}
    done = over_two("run", "--dry-run", *FEW, cwd=tmp_path, **hidden)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == (
        "linkgauge: Measuring host devices although 2 GPUs are here: CUDA_VISIBLE_DEVICES is empty"
    )
    named = over_two("run", "--dry-run", "--devices", "cuda", *FEW, cwd=tmp_path, **hidden)
    (line,) = named.stderr.splitlines()
    assert (named.returncode, "2 of 2 GPUs are hidden: CUDA_VISIBLE_DEVICES is empty" in line) == (Exit.LACKING, True)
    quiet = over_two("run", "--dry-run", "--devices", "host:2", *FEW, cwd=tmp_path, **hidden)
    assert (quiet.returncode, quiet.stderr) == (0, "")  # who names host devices wants them


def test_a_device_beyond_the_visible_ones_says_why(tmp_path: Path) -> None:
    done = over_two("run", "--dry-run", "--devices", "cuda:1", *FEW, cwd=tmp_path, CUDA_VISIBLE_DEVICES="1")
    (line,) = done.stderr.splitlines()
    assert done.returncode == Exit.BAD_INPUT
    assert line.endswith("no cuda device 1: expected 0 to 0; 1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=1")


@thorough("what the doctor says of hidden GPUs is tested of its rule")
def test_the_doctor_and_the_topology_say_so_first(tmp_path: Path) -> None:
    for words in (("doctor",), ("topology", "--here")):
        done = over_two(*words, cwd=tmp_path, CUDA_VISIBLE_DEVICES="1", **NO_HIP)
        first = done.stderr.splitlines()[0]
        assert first == "linkgauge: 1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=1"
    assert over_two("doctor", "-q", cwd=tmp_path, CUDA_VISIBLE_DEVICES="1", **NO_HIP).stderr == ""
    assert (
        "devices hidden: 1 of 2 GPUs is hidden by CUDA_VISIBLE_DEVICES=1"
        in over_two("doctor", cwd=tmp_path, CUDA_VISIBLE_DEVICES="1").stdout
    )


def test_an_exclusive_run_names_who_uses_its_gpus_and_does_not_start(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        try:
            done = over_two("run", "--out", "run", "--devices", "cuda", "--exclusive", *FEW, cwd=tmp_path,
                            LINKGAUGE_STAND_IN_NVML_PID=str(other.pid))  # fmt: skip
            waited = over_two("run", "--out", "run", "--devices", "cuda", "--wait-idle", "2s", *FEW, cwd=tmp_path,
                              LINKGAUGE_STAND_IN_NVML_PID=str(other.pid))  # fmt: skip
        finally:
            other.kill()
    outside = f"a process outside this container (PID {other.pid} there)"  # where the tests run in one
    named = f"pid {other.pid} (sleep, user " if in_host_namespace() else outside
    for one, fix in ((done, "or leave out --exclusive"), (waited, "give a longer --wait-idle")):
        assert one.returncode == Exit.LACKING
        line = one.stderr.splitlines()[-1]
        assert f"GPU 0: {named}" in line
        assert f"GPU 1: {named}" in line
        assert fix in line
    assert f"waiting for an idle machine (GPU 0: {named}" in waited.stderr
    assert not (tmp_path / "run").exists()
