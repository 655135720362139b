"""Where processes and threads are used up: one line says so, and no sound run is called damaged."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import PATIENCE_S
from synthetic import make_case, make_run
from thorough import thorough

# Root's processes are not counted. The files of this Python may be root's own.
_CAPABILITIES = "+dac_override,+dac_read_search"
_AS_ANOTHER = [
    "setpriv",
    f"--reuid={60_000 + os.getpid() % 5000}",
    "--clear-groups",
    f"--inh-caps={_CAPABILITIES}",
    f"--ambient-caps={_CAPABILITIES}",
]
pytestmark = pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="no setpriv here")


def alone(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Run linkgauge as a user that may have one process and no thread beside it."""
    command = [*(_AS_ANOTHER if os.geteuid() == 0 else []), sys.executable, "-m", "linkgauge", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (1, 1)))  # fmt: skip
    if "setpriv:" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done.returncode, done.stderr


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user reaches: access(2) does not ask for capabilities."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        yield Path(made)


ALIKE = thorough("another command that reads a run ends alike")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["show", "run"], marks=ALIKE),
        ["report", "run"],
        pytest.param(["query", "run", "select 1"], marks=ALIKE),
        ["run", "--devices", "host:2", "--threads", "--transport", "staging", "--pattern", "pingpong", "--size", "8",
         "--out", "new"],
        pytest.param(
            ["run", "--devices", "host:2", "--transport", "staging", "--pattern", "pingpong", "--size", "8"],
            marks=thorough("a run of threads ends alike")),
    ],
)  # fmt: skip
def test_it_is_one_line_that_says_so(command: list[str], folder: Path) -> None:
    make_run(folder / "run", cases=[make_case("staging", "pingpong", 8)], samples=5)
    for path in (folder / "run", *(folder / "run").rglob("*")):
        path.chmod(0o777)
    status, said = alone(*command, cwd=folder)
    assert status == 5, said
    last = said.splitlines()[-1]
    assert "no further thread can be started" in last or "no further process can be started" in last
    assert "of 1 that this user may have: expected more: ulimit -u" in last
    assert "damaged" not in said
    assert "Traceback" not in said
