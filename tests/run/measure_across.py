"""Measures FOLDER/plan.toml into FOLDER/run on the GPUs that the loader shows, each rank on a node of its own.

A process of its own, since the loader reads where libraries are when a process starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.parent.devices import find_devices
from linkgauge.run.parent.measure import measure
from linkgauge.run.parent.prepare import named_mpis, new_pending, plan_machine
from linkgauge.run.parent.prepared import WORKER, Prepared, write_launches
from linkgauge.run.parent.reporter import Reporter
from linkgauge.store.folder import RunFolder


def main(folder: Path) -> int:
    """The exit status of the run, 0 where no case failed."""
    devices = find_devices("cuda")
    machine = plan_machine(devices, {})
    plan, mpis = named_mpis(parse_plan((folder / "plan.toml").read_text(), "across", "across"), [])
    planned = plan_run(plan, expand(plan, machine), machine)
    run = RunFolder.create(folder / "run", {"seed": 1})
    write_launches(run.path, planned)
    worker = (sys.executable, str(Path(__file__).with_name("on_a_node.py")), "0", *WORKER)
    return measure(Prepared(new_pending(planned), devices, machine, mpis, seed=1, worker=worker), run, Reporter())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
