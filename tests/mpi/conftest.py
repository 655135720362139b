"""MPI libraries of this machine, and a way to run cases on all ranks of one.

Tests run on every installation that `linkgauge list mpi` finds, and on those that LINKGAUGE_TEST_MPI names (prefixes,
separated by colons): a second wheel lies in a prefix of its own.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from installed_mpi import installed
from linkgauge.run.launchers import launcher_for
from linkgauge.run.launchers.base import LaunchRequest, library_environment
from linkgauge.run.machine.environment import package_environment, worker_environment
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.private_folder import PrivateFolders
from linkgauge.run.parent.mpi_library import resolve
from patience import PATIENCE_S
from thorough import thorough

PROGRAM = Path(__file__).with_name("rank_program.py")
# What a library's ABI changes shows here; other tests are of one library in every run, and of the rest by turns.
BY_EACH = ("test_every_pattern_is_right",)


@functools.cache
def installations() -> tuple[MpiInstallation, ...]:
    """Usable installations, each library once."""
    found = [one for one in installed() if not one.problem]
    found += [resolve(prefix) for prefix in os.environ.get("LINKGAUGE_TEST_MPI", "").split(os.pathsep) if prefix]
    return tuple({one.library.resolve(): one for one in found}.values())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mpi" in metafunc.fixturenames:
        found = installations()
        by_each = metafunc.function.__name__ in BY_EACH
        chosen, kinds = [], set()
        for one in found:
            kind = one.name.split("-")[0]
            marks = [thorough("another release of this library is tested")] if kind in kinds else []
            if kind == "intel" and kinds:
                marks = [thorough("it has MPICH's ABI, and tests/faults has it each time")]
            elif kinds - {kind} and not by_each:
                marks = [thorough("every pattern is tried by this library too, and this test by another")]
            kinds.add(kind)
            chosen.append(pytest.param(one, id=f"{one.name}-{one.source.strip('-')}", marks=marks))
        metafunc.parametrize("mpi", chosen)


RunCases = Callable[..., list[dict[str, Any]]]
RunProgram = Callable[[MpiInstallation, int, Path, dict[str, Any]], Any]


@pytest.fixture
def run_program(tmp_path: Path) -> RunProgram:
    """A function (mpi, ranks, program, request) that runs a program on that many ranks; what rank 0 answers.

    The request goes as JSON, with `segment`, a place for shared memory, and `answer`, the file of the answer.
    """

    def run(mpi: MpiInstallation, ranks: int, program: Path, request: dict[str, Any]) -> Any:
        folders = PrivateFolders([tmp_path])
        try:
            launch = folders.launch(0)
            request_file = tmp_path / "request.json"
            answer_file = tmp_path / "answer.json"
            answer_file.unlink(missing_ok=True)
            request_file.write_text(
                json.dumps({**request, "segment": str(launch.segments / "group"), "answer": str(answer_file)})
            )
            launcher = launcher_for(mpi)
            env = {**library_environment(mpi, launch.temporary), **worker_environment(launch)}
            env["PYTHONPATH"] = package_environment().get("PYTHONPATH", "")
            asked = LaunchRequest(ranks, [sys.executable, str(program), str(request_file)], env, launch)
            done = subprocess.run(
                launcher.command(asked),
                env={**os.environ, **env, **launcher.environment(asked)},
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
            assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
            return json.loads(answer_file.read_text())
        finally:
            folders.close()

    return run


@pytest.fixture
def run_cases(run_program: RunProgram) -> RunCases:
    """A function (mpi, ranks, cases, fault) that measures cases on that many ranks; a result for each case.

    The fault is planted in every case, or in the first alone where it is to be `once`.
    """

    def run(
        mpi: MpiInstallation,
        ranks: int,
        cases: list[dict[str, Any]],
        fault: dict[str, Any] | None = None,
        *,
        once: bool = False,
    ) -> list[dict[str, Any]]:
        request = {"abi": mpi.abi, "ranks": ranks, "cases": cases, "fault": fault, "fault_once": once}
        answer: list[dict[str, Any]] = run_program(mpi, ranks, PROGRAM, request)
        return answer

    return run
