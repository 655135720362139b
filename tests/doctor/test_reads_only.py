"""The doctor, a record and a look at counters read: they open nothing for writing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S

_WATCHED = """
import json, os, sys
written = []
def hook(event, arguments):
    if event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        written.append(str(arguments[0]))
    if event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate"):
        written.append(f"{event} {arguments[0]}")
sys.addaudithook(hook)
if sys.argv[1] == "control":
    open(sys.argv[2], "w").close()
else:
    from linkgauge.doctor.readers import Readers
    from linkgauge.doctor.recorded import record
    from linkgauge.doctor.since import compared, counters_here
    record(Readers(mpi_problem="not asked"))
    compared({}, {"a": counters_here()})
print(json.dumps([one for one in written if one != os.devnull]))
"""


def _written(folder: Path, what: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-B", "-c", _WATCHED, what, str(folder / "made")],
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder)},
    )  # fmt: skip
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_nothing_is_opened_for_writing(tmp_path: Path) -> None:
    """Every check, discovery and the counters, in a process whose opened files are seen; of ranks there are none."""
    assert _written(tmp_path, "control") == [str(tmp_path / "made")]
    (tmp_path / "made").unlink()
    assert _written(tmp_path, "doctor") == []
    assert list(tmp_path.iterdir()) == []
