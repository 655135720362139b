r"""A GPU that is lost to a wrong kernel: an illegal address, after which no call of the process succeeds any more.

It costs its case only. On the stand-ins for CUDA and HIP everywhere; on a machine with NVIDIA GPUs on one or two of
them too. There `./lg test tests/faults/test_gpu_fault.py` is all that is needed, or, where linkgauge is installed and
this is a checkout that is not built, the following, which needs nothing of pytest but pytest itself:

    PYTHONPATH=tests python -m pytest -c /dev/null --rootdir . --import-mode=importlib -rA \
        tests/faults/test_gpu_fault.py -k hardware

The context that is lost is this test's own; the GPU itself and other programs on it go on.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import os
from pathlib import Path

import pytest

from faults.leftovers import left_behind, new_shared_memory, shared_memory
from linkgauge.errors import LinkgaugeError
from linkgauge.run.parent.devices import find_devices
from linkgauge.store.run import load
from planted_faults import HAVE_FAULTS, NO_FAULTS
from program import started
from thorough import thorough

HERE = Path(__file__).parent
STAND_INS = Path(os.environ.get("LINKGAUGE_TEST_STAND_INS", Path(__file__).parents[2] / "build" / "tests" / "stand_in"))
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS),
]
SIZES = (65536, 131072, 262144)
FAULTED = SIZES[1]


def gpus() -> int:
    """How many NVIDIA GPUs can be used here."""
    try:
        return find_devices("cuda").count
    except LinkgaugeError:
        return 0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the fault is planted, and what comes of it."""

    name: str
    runtime: str = "cuda"
    devices: int = 2
    stand_in: str = "devices=2"  # its settings; empty: hardware
    status: str = "failed"
    reason: str = "CUDA_ERROR_ILLEGAL_ADDRESS (700)"

    def environment(self) -> dict[str, str]:
        """In which the stand-ins are found in the place of a vendor's libraries and its compiler."""
        if not self.stand_in:
            return {}
        folders = os.pathsep.join([str(STAND_INS), str(STAND_INS / "nvrtc12")])
        return {"LD_LIBRARY_PATH": folders, "LINKGAUGE_STAND_IN": self.stand_in}


PLACES = (
    Place("hardware", stand_in=""),
    Place("cuda stand-in"),
    Place("cuda stand-in, one device", devices=1, stand_in="devices=1"),
    # What a HIP runtime makes of it depends on its version and settings: an error, or the end of the process.
    Place("hip stand-in", "hip", reason="hipErrorIllegalAddress (700)"),
    Place("hip stand-in that aborts", "hip", stand_in="devices=2;abort_when_lost=1", status="crashed",
          reason="SIGABRT"),
)  # fmt: skip


# On hardware all; of stand-ins one, and the rest with './lg test --all'.
CHOSEN = {("cuda stand-in", "kernel", "time")}
OTHERS = thorough("another runtime, transport or phase loses its device alike")


def planted() -> list[object]:
    """Every place, transport and phase."""
    found: list[object] = []
    for phase, place, transport in itertools.product(("check", "time"), PLACES, ("kernel", "copy_engine")):
        left = place.stand_in and (place.name, transport, phase) not in CHOSEN
        name = f"{phase}-{place.name}-{transport}"
        found.append(pytest.param(place, transport, phase, id=name, marks=[OTHERS] if left else []))
    return found


@pytest.mark.parametrize(("place", "transport", "phase"), planted())
def test_a_gpu_lost_to_an_illegal_address_costs_its_case_only(
    tmp_path: Path, place: Place, transport: str, phase: str
) -> None:
    if place.stand_in and not (STAND_INS / "libcuda.so.1").exists():
        pytest.skip("no stand-in GPU libraries: build the C++ tests")
    count = place.devices if place.stand_in else min(gpus(), place.devices)
    if count == 0:
        pytest.skip("no NVIDIA GPU here: run this test alone where there is one")
    pattern = "pingpong" if count == 2 else "local_copy"
    sizes = ", ".join(f'"{size}"' for size in SIZES)
    fault = {"size": FAULTED, "transport": transport, "kind": "address", "phase": phase, "rank": count - 1}
    plan = (
        f'[[case]]\ntransport = "{transport}"\npattern = "{pattern}"\nsize = [{sizes}]\npairs = "first"\n'
        'stop_rule = "count"\nstop_samples = 6\nmax_time = "60s"\n'
    )
    job = {
        "plan": plan,
        "devices": f"{place.runtime}:" + ",".join(str(number) for number in range(count)),
        "fault": {"planter": str(HERE / "planter.py"), "folder": str(tmp_path), "faults": [fault]},
        "hung_after_s": 10.0,
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    (tmp_path / "tmp").mkdir()
    before = shared_memory()
    environment = {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache"), **place.environment()}
    done = started([str(HERE / "run_job.py"), str(tmp_path)], cwd=tmp_path, env=environment)
    said = done.stdout + done.stderr
    assert (tmp_path / f"planted-{transport}-{FAULTED}").exists(), said
    rows = {row.case.size_requested: row for row in load(tmp_path / "run").rows() if row.case.transport == transport}
    assert rows[FAULTED].status == place.status, f"{rows[FAULTED].reason}\n{said}"
    assert place.reason in str(rows[FAULTED].reason)
    others = {size: row for size, row in rows.items() if size != FAULTED}
    assert {size: row.status for size, row in others.items()} == dict.fromkeys(set(SIZES) - {FAULTED}, "ok"), said
    assert all(row.verified for row in others.values())
    assert done.returncode == 4, said
    assert left_behind(tmp_path) == []
    assert new_shared_memory(before) == set()
