"""Commands over the stand-ins for vendors' libraries, which are built with the C++ tests (`./lg test`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STAND_INS = Path(os.environ.get("LINKGAUGE_TEST_STAND_INS", Path(__file__).parents[1] / "build" / "tests" / "stand_in"))


def linkgauge_over(
    *libraries: str, words: tuple[str, ...], cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`linkgauge WORDS` in `cwd`; `libraries`: the folders of what there is beside the drivers."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, (STAND_INS, *(STAND_INS / name for name in libraries)))),
        "XDG_CACHE_HOME": str(cwd / "cache"),
        **variables,
    }
    return subprocess.run([sys.executable, "-m", "linkgauge", *words], capture_output=True, text=True, check=False,
                          timeout=200, cwd=cwd, env=environment, stdin=subprocess.DEVNULL)  # fmt: skip
