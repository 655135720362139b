"""What a retry replaces where launches cannot start: the attempts of its own planned launch, and no other's."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from executables import python_program
from linkgauge.errors import EnvironmentLackingError
from linkgauge.findings.read import facts_of
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent import mpi_library
from linkgauge.run.parent.measure import measure
from linkgauge.run.parent.prepare import resumed_pending
from linkgauge.run.parent.prepared import Prepared, read_launches
from linkgauge.run.parent.reporter import Reporter
from linkgauge.stats.attempts import counted
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load
from run.conftest import FAKE_WORKER, devices_of, machine_of
from thorough import thorough

PLAN = '[[case]]\ntransport = "mpi"\npattern = "pingpong"\nsize = ["8", "4KiB"]\npairs = "first"\n'


@pytest.fixture(scope="module")
def good() -> MpiInstallation:
    return mpi_library.default_installation()


@pytest.fixture
def broken(tmp_path: Path, good: MpiInstallation) -> MpiInstallation:
    launcher = python_program(tmp_path / "broken", "mpiexec", "import sys", "print('no door')", "sys.exit(1)")
    return dataclasses.replace(good, name="openmpi-4.9", vendor="openmpi", version="4.9", version_text="Open MPI 4.9",
                               launcher=launcher, library=tmp_path / "libmpi.so")  # fmt: skip


def retry(path: Path, mpis: Sequence[MpiInstallation], *statuses: str) -> int:
    """Resume the run with these libraries, as `run --resume --retry` does."""
    folder, run = RunFolder.open(path), load(path)
    pending = resumed_pending(read_launches(path), run, folder.info.get("relaunched", {}), frozenset(statuses))
    named = {str(one.number): one.planned.number for one in pending}
    folder.update_info({"relaunched": {**folder.info.get("relaunched", {}), **named}})
    prepared = Prepared(pending, devices_of(2), machine_of(2), {one.name: one for one in mpis}, seed=1,
                        worker=FAKE_WORKER)  # fmt: skip
    try:
        return measure(prepared, folder, Reporter())
    except EnvironmentLackingError as error:
        return error.exit_status


@thorough("a retry that cannot start is below")
def test_a_case_whose_library_cannot_start_stays_failed_when_another_librarys_is_measured_again(
    run_plan: Any, good: MpiInstallation, broken: MpiInstallation
) -> None:
    path = run_plan(PLAN, mpis=[good, broken]).path
    assert Counter(row.status for row in counted(load(path)).rows) == {"ok": 2, "failed": 2}
    assert retry(path, [good, broken], "ok") == 0
    run = load(path)
    assert len(list(run.rows())) == 6
    assert Counter(row.status for row in counted(run).rows) == {"ok": 2, "failed": 2}
    assert {row.attempt for row in counted(run).rows if row.status == "ok"} == {1}
    assert len(facts_of(run).failures) == 2


@thorough("which attempts count is in stats/test_attempts.py")
def test_a_case_whose_retry_cannot_start_is_listed_once_as_what_the_retry_was(
    run_plan: Any, good: MpiInstallation, broken: MpiInstallation
) -> None:
    fault = {"kind": "corrupt", "transport": "mpi", "pattern": "pingpong", "size": 8}
    path = run_plan(PLAN, mpis=[good], fault=fault).path
    assert Counter(row.status for row in counted(load(path)).rows) == {"ok": 1, "corrupt": 1}
    assert retry(path, [dataclasses.replace(broken, name=good.name)], "corrupt") == EnvironmentLackingError.exit_status
    rows = counted(load(path)).rows
    assert Counter((row.status, row.attempt) for row in rows) == {("ok", 0): 1, ("failed", 1): 1}
    assert len(facts_of(load(path)).failures) == 1
    assert retry(path, [good], "failed") == 0
    assert Counter((row.status, row.attempt) for row in counted(load(path)).rows) == {("ok", 0): 1, ("ok", 2): 1}
