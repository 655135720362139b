"""Plans and runs over a fake core: real launchers, real MPI libraries, real journals; only the measuring is faked."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app.planning import apply_launch
from linkgauge.app.request import Launch
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.run.parent.measure import measure
from linkgauge.run.parent.prepare import named_mpis, new_pending
from linkgauge.run.parent.prepared import WORKER, Prepared, RoundJudge, TimeLimit, write_launches
from linkgauge.run.parent.reporter import Reporter
from linkgauge.store.folder import RunFolder

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
SMALL_PLAN = """
[[case]]
transport = ["kernel", "mpi"]
pattern = ["pingpong", "allreduce"]
size = ["8", "4KiB"]
pairs = "first"
"""


def machine_of(devices: int) -> PlanMachine:
    return PlanMachine("host", devices, 8 << 30, 8 << 30, 8 << 30, 2)


def devices_of(count: int) -> DeviceSet:
    infos = tuple({"ordinal": number, "kind": "host", "name": "fake", "numa_node": -1} for number in range(count))
    return DeviceSet("host", tuple(range(count)), infos)


class Measured:
    """A run made by the machinery under test."""

    def __init__(self, path: Path, status: int) -> None:
        self.path, self.status = path, status

    def statuses(self) -> list[tuple[str, str]]:
        from linkgauge.store.run import load

        return [(row.case.transport + " " + row.case.pattern, str(row.status)) for row in load(self.path).rows()]


@pytest.fixture
def run_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that measures a plan's text with the fake core and returns a `Measured`."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)

    def run(
        text: str = SMALL_PLAN,
        *,
        devices: int = 2,
        mpis: Sequence[MpiInstallation] = (),
        threads: bool = False,
        fault: dict[str, Any] | None = None,
        name: str = "run",
        max_failures: int = 3,
        hung_after_s: float = 10.0,
        env: Sequence[str] = (),
        real: bool = False,
        limit: TimeLimit | None = None,
        launcher_args: Sequence[str] = (),
        rounds: RoundJudge | None = None,
    ) -> Measured:
        plan = parse_plan(text, "test", "test")
        launch = Launch(threads=threads, env=tuple(env), launcher_args=shlex.join(launcher_args))
        plan = apply_launch(plan, launch, [one.name for one in mpis])
        plan, known = named_mpis(plan, mpis)
        machine = machine_of(devices)
        planned = plan_run(plan, expand(plan, machine), machine)
        folder = RunFolder.create(tmp_path / name, {"seed": 1})
        write_launches(folder.path, planned)
        worker = WORKER if real else FAKE_WORKER
        prepared = Prepared(new_pending(planned), devices_of(devices), machine, known, seed=1,
                            max_failures=max_failures, time_limit=limit, fault=fault, worker=worker,
                            hung_after_s=hung_after_s, rounds=rounds)  # fmt: skip
        return Measured(folder.path, measure(prepared, folder, Reporter()))

    return run
