"""One rank of a test: measures the cases of a request; rank 0 writes what all ranks found."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import mpi4py

mpi4py.rc.thread_level = "funneled"

from mpi4py import MPI  # noqa: E402

from linkgauge import _core  # noqa: E402
from linkgauge.run.machine.transports import library_folders  # noqa: E402
from linkgauge.run.rank.session import open_mpi  # noqa: E402

sys.path.append(str(Path(__file__).parents[1]))  # a rank knows no folder of the tests

from planted_faults import clear, plant  # noqa: E402


def measured(session: Any, case: dict[str, Any]) -> dict[str, Any]:
    try:
        result = session.measure(case)
    except _core.Unsupported as error:
        return {"status": "skipped", "reason": str(error)}
    except Exception as error:  # every rank's own words go back to the test
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    if result is None:
        return {"status": "idle"}
    return {
        "status": "ok" if result["verified"] else "corrupt",
        "verify": result["verify"],
        "samples": len(result["samples"]["ns"]),
    }


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    world = MPI.COMM_WORLD
    mpi = open_mpi(_core, request["abi"])
    runtime = _core.open_runtime("host", host_devices=request["ranks"])
    group = _core.process_group(world.rank, [0] * world.size, request["segment"])
    session = _core.Session(runtime, group, mpi, library_folders=[str(folder) for folder in library_folders()])
    found = []
    for number, case in enumerate(request["cases"]):
        # Of the first case alone where that is asked for: what comes after it must be measured.
        if request["fault"] and (number == 0 or not request["fault_once"]):
            plant(session, **request["fault"])
        else:
            clear(session)
        found.append(measured(session, case))
    everything = world.gather(found, root=0)
    if everything is not None:
        Path(request["answer"]).write_text(
            json.dumps([{"ranks": list(ranks)} for ranks in zip(*everything, strict=True)])
        )
    session.close()
    world.Barrier()
    MPI.Finalize()
    # Where NIXL and the MPI have each brought a libnl, one's destructor faults when both go. MPICH 5 tells its
    # launcher of its end in a destructor alone, without which the launcher ends the other ranks.
    if "MPICH" not in MPI.Get_library_version():
        os._exit(0)


main()
