"""One faulted run in a process of its own: `python run_job.py FOLDER`; begins FOLDER/run, or resumes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from linkgauge.errors import LinkgaugeError
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.machine.transports import absent_transports
from linkgauge.run.parent.devices import find_devices
from linkgauge.run.parent.measure import measure
from linkgauge.run.parent.mpi_library import resolve
from linkgauge.run.parent.prepare import named_mpis, new_pending, plan_machine, resumed_mpis, resumed_pending
from linkgauge.run.parent.prepared import Prepared, read_launches, write_launches
from linkgauge.run.parent.reporter import Reporter
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load


def main(folder: Path) -> int:
    """Measure; the exit status of a run."""
    job = json.loads((folder / "job.json").read_text())
    devices, path = find_devices(job.get("devices", "host:2")), folder / "run"
    machine = plan_machine(devices, absent_transports(devices.kind))
    if path.exists():
        run_folder = RunFolder.open(path)
        launches = read_launches(path)
        run_folder.confirm_unjudged()
        run_folder.close()
        run_folder.compact()
        relaunched = run_folder.info.get("relaunched", {})
        pending = resumed_pending(launches, load(path), relaunched, frozenset())
        named = {str(one.number): one.planned.number for one in pending}
        run_folder.update_info({"relaunched": {**relaunched, **named}})
        mpis, _ = resumed_mpis(launches, [], path, {})
    else:
        given = [resolve(job["mpi"])] if job.get("mpi") else []
        plan, mpis = named_mpis(parse_plan(job["plan"], "faults", "faults"), given)
        planned = plan_run(plan, expand(plan, machine), machine)
        run_folder = RunFolder.create(path, {"seed": 1})
        write_launches(path, planned)
        pending = new_pending(planned)
    patience_s = job.get("hung_after_s", 3.0)  # twice that passes between cases on a busy machine
    prepared = Prepared(pending, devices, machine, mpis, seed=1, max_failures=1000, fault=job["fault"],
                        hung_after_s=patience_s)  # fmt: skip
    try:
        return measure(prepared, run_folder, Reporter())
    except LinkgaugeError as error:
        print(error, file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
