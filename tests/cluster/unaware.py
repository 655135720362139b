"""A run between emulated nodes whose MPI library takes them for one: `python -m cluster.unaware CLUSTER_FOLDER OUT`.

The ranks are started here by a launcher that knows of no node, and each then enters its own: MPICH finds itself on one
node, with memory to share. `python -m cluster.unaware --enter CLUSTER_FOLDER COMMAND...` is such a rank.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PLAN = """
[[case]]
transport = "mpi"
pattern = ["pingpong", "allreduce"]
size = ["8", "1MiB"]
pairs = "first"
stop_rule = "count"
stop_samples = 20
max_time = "30s"
"""


def enter(folder: Path, command: list[str]) -> None:
    pid = (folder / f"n{os.environ['PMI_RANK']}.pid").read_text().strip()
    os.execvp("nsenter", ["nsenter", "--target", pid, "--net", "--uts", "--ipc", "--mount", "--", *command])


def run(folder: Path, out: Path) -> int:
    from linkgauge.plan.expand import expand
    from linkgauge.plan.launches import plan_run
    from linkgauge.plan.plan_file import parse_plan
    from linkgauge.run.parent.measure import measure
    from linkgauge.run.parent.prepare import named_mpis, new_pending
    from linkgauge.run.parent.prepared import WORKER, Prepared, write_launches
    from linkgauge.run.parent.reporter import Reporter
    from linkgauge.store.folder import RunFolder
    from run.conftest import devices_of, machine_of

    plan, mpis = named_mpis(parse_plan(PLAN, "unaware", "unaware"), [])
    machine = machine_of(2)
    planned = plan_run(plan, expand(plan, machine), machine)
    made = RunFolder.create(out, {"seed": 1})
    write_launches(made.path, planned)
    worker = (sys.executable, "-m", "cluster.unaware", "--enter", str(folder), *WORKER)
    prepared = Prepared(new_pending(planned), devices_of(2), machine, mpis, seed=1, worker=worker)
    return measure(prepared, made, Reporter())


if __name__ == "__main__":
    if sys.argv[1] == "--enter":
        enter(Path(sys.argv[2]), sys.argv[3:])
    sys.exit(run(Path(sys.argv[1]), Path(sys.argv[2])))
