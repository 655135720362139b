"""Device memory whose handles are of the NVLink fabric: runs over stand-in GPUs, on one node and on several.

The stand-ins are built with the C++ tests (`./lg test`); LINKGAUGE_TEST_STAND_INS names their folder otherwise.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linkgauge.model.patterns import PATTERNS
from linkgauge.store.run import load
from patience import PATIENCE_S
from run.on_a_node import namespaces_may_be_made
from stand_ins import STAND_INS, linkgauge_over
from thorough import most, thorough

CORE_SHARES = thorough("tests/core shares such handles on the same stand-in")

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(not (STAND_INS / "libcuda.so.1").exists(), reason="no stand-in GPUs: build the C++ tests"),
]
QUICK = ("--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s", "--warmup", "1", "--no-report",
         "--out", "run")  # fmt: skip
# By inter-process handles nothing could be shared.
NO_IPC = "fail=cuIpcGetMemHandle:1:1"
# Buffers are lent alike in each; the last is refused by copies.
BETWEEN_RANKS = most(
    [name for name, one in PATTERNS.items() if one.ranks in ("2", "any")
     and not (one.own_memory or one.scripted or one.host_ways or one.alone)],
    ["unidirectional", "alltoall", "allreduce", "flag_pingpong"],
)  # fmt: skip
REFUSED_ALIKE = thorough("another call that fails is reported alike")
PAIR = (
    '[[case]]\ntransport = "copy_engine"\npattern = "unidirectional"\nsize = "24KiB"\npairs = "first"\n'
    'handles = "fabric"\n'
)


def rows_of(cwd: Path, plan: str, *words: str, devices: str = "cuda", settings: str = "devices=2") -> list[Any]:
    """The run's cases."""
    (cwd / "plan.toml").write_text(plan)
    given = ("run", "--devices", devices, *QUICK, "--plan", "plan.toml", *words)
    done = linkgauge_over("nvrtc12", words=given, cwd=cwd, LINKGAUGE_STAND_IN=settings)
    assert (cwd / "run").exists(), done.stderr + done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    return list(load(cwd / "run").rows())


@CORE_SHARES
def test_every_pattern_between_processes_is_verified_without_an_ipc_handle(tmp_path: Path) -> None:
    plan = (
        f'[[case]]\ntransport = ["copy_engine", "kernel"]\npattern = {json.dumps(BETWEEN_RANKS)}\nsize = "48KiB"\n'
        'pairs = "first"\nhandles = "fabric"\n'
        '[[case]]\ntransport = "kernel"\npattern = "allreduce"\nsize = "48KiB"\nhandles = "fabric"\n'
        'algorithm = ["one_shot", "two_shot"]\nvariant = ["pull", "push"]\n'
    )
    # Three on two cores spin while they wait.
    rows = rows_of(tmp_path, plan, settings=f"devices={most(3, 2)};{NO_IPC}")
    refused = {(row.case.transport, row.case.pattern, row.reason) for row in rows if row.status != "ok"}
    assert refused == {("copy_engine", "flag_pingpong", "flag_pingpong is between kernels; its transport is kernel")}, (
        refused
    )
    assert all(row.verified for row in rows if row.status == "ok")
    assert {row.case.handles for row in rows} == {"fabric"}
    # Without, the handle that was made to fail is the one that is taken.
    (tmp_path / "plain").mkdir()
    plain = rows_of(tmp_path / "plain", PAIR.replace('handles = "fabric"\n', ""), settings=f"devices=2;{NO_IPC}")
    assert {str(row.status) for row in plain} == {"skipped"}
    assert all("cuIpcGetMemHandle failed" in row.reason for row in plain)


@thorough("every pattern takes it in the test above")
def test_threads_loads_and_applications_take_such_memory_too(tmp_path: Path) -> None:
    load_of = "kernel alltoall 64KiB on=2,3 handles=fabric"
    plan = f'{PAIR}devices = [[0, 1]]\nbackground = ["", "{load_of}"]\n[[case]]\napp = "halo_stencil n=16"\n'
    plan += 'transport = "kernel"\nhandles = "fabric"\ndevices = [[0, 1]]\n'
    for words in ((), ("--threads",)):
        cwd = tmp_path / ("threads" if words else "processes")
        cwd.mkdir()
        rows = rows_of(cwd, plan, *words, settings=f"devices=4;{NO_IPC}")
        assert {(str(row.status), row.reason) for row in rows} == {("ok", "")}
        assert {row.case.background.text for row in rows} == {"", load_of}


@pytest.mark.parametrize(
    ("plan", "devices", "settings", "status", "part"),
    [
        (PAIR, "cuda", "devices=2;fabric=0", "skipped", "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED is 0"),
        pytest.param(
            PAIR, "cuda", "devices=2;fail=cuMemCreate:1:800", "skipped",
            "cuMemCreate with CU_MEM_HANDLE_TYPE_FABRIC failed with CUDA_ERROR_NOT_PERMITTED (800)",
            marks=REFUSED_ALIKE),
        pytest.param(
            PAIR, "cuda", "devices=2;fail=cuMemImportFromShareableHandle:1:800", "skipped",
            "cuMemImportFromShareableHandle of CU_MEM_HANDLE_TYPE_FABRIC failed with CUDA_ERROR_NOT_PERMITTED (800)",
            marks=REFUSED_ALIKE),
        pytest.param(PAIR, "cuda", "devices=2;fail=cuMemExportToShareableHandle:1:1", "skipped",
                     "cuMemExportToShareableHandle", marks=REFUSED_ALIKE),
        pytest.param(PAIR, "host:2", "", "skipped", "host devices have no fabric handles", marks=REFUSED_ALIKE),
        pytest.param(
            PAIR.replace("copy_engine", "staging"), "cuda", "devices=2", "skipped",
            "handles = fabric is of copy_engine and kernel, not of staging", marks=REFUSED_ALIKE),
        pytest.param(
            '[[case]]\ntransport = "copy_engine"\npattern = "host_to_device"\nhandles = "fabric"\nsize = "8"\n'
            'source_memory = "pinned"\n', "cuda", "devices=2", "ok", "", marks=CORE_SHARES),
    ],
)  # fmt: skip
def test_what_is_refused_is_said_with_the_call_and_why(
    tmp_path: Path, plan: str, devices: str, settings: str, status: str, part: str
) -> None:
    rows = rows_of(tmp_path, plan, devices=devices, settings=settings)
    assert {str(row.status) for row in rows} == {status}, [row.reason for row in rows]
    assert all(part in row.reason for row in rows), [row.reason for row in rows]


@CORE_SHARES
@pytest.mark.skipif(not namespaces_may_be_made(), reason="no namespaces may be made here")
@pytest.mark.parametrize(("handles", "status"), most([("fabric", "ok"), ("ipc", "skipped")], [("fabric", "ok")]))
def test_between_nodes_they_reach_where_other_handles_do_not(tmp_path: Path, handles: str, status: str) -> None:
    """Each rank is on a node of its own, so that neither counters nor memory are shared but by fabric handles."""
    every = ["pingpong", "unidirectional", "bidirectional", "alltoall", "allreduce", "halo", "barrier"]
    patterns = most(every, ["unidirectional", "alltoall", "allreduce", "barrier"])  # buffers are lent alike in each
    plan = (
        '[[case]]\ntransport = ["copy_engine", "kernel"]\nsize = "48KiB"\ninitiator = ["sender", "receiver"]\n'
        f'pattern = {json.dumps(patterns)}\npairs = "first"\nhandles = "{handles}"\n'
        'stop_rule = "count"\nstop_samples = 5\nmax_time = "30s"\nwarmup = 1\n'
        '[[case]]\ntransport = "kernel"\npattern = "pointer_chase"\n'
        'size = "8KiB"\npairs = "first"\nhandles = "fabric"\n'
    )
    (tmp_path / "plan.toml").write_text(plan)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LD_LIBRARY_PATH": os.pathsep.join((str(STAND_INS), str(STAND_INS / "nvrtc12"))),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "LINKGAUGE_STAND_IN": f"devices=3;{NO_IPC}",
    }
    driver = Path(__file__).with_name("measure_across.py")
    done = subprocess.run([sys.executable, str(driver), str(tmp_path)], env=environment, capture_output=True, text=True,
                          check=False, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [row for row in load(tmp_path / "run").rows() if len(set(row.case.devices)) > 1]
    chases = [row for row in rows if row.case.pattern == "pointer_chase"]
    assert {str(row.status) for row in chases} == {"skipped"}
    assert all("one node only" in row.reason for row in chases), chases[0].reason
    others = [row for row in rows if row.case.pattern != "pointer_chase"]
    assert {str(row.status) for row in others} == {status}, [row.reason for row in others]
    if status == "ok":
        assert all(row.verified for row in others)
    else:
        assert all("--handles fabric" in row.reason for row in others), [row.reason for row in others]
