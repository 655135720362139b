"""Commands over the stand-ins for vendors' libraries, which are built with the C++ tests (`./lg test`)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from program import linkgauge

STAND_INS = Path(os.environ.get("LINKGAUGE_TEST_STAND_INS", Path(__file__).parents[1] / "build" / "tests" / "stand_in"))


def linkgauge_over(
    *libraries: str, words: tuple[str, ...], cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`linkgauge WORDS` in `cwd`; `libraries`: the folders of what there is beside the drivers."""
    environment = {
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, (STAND_INS, *(STAND_INS / name for name in libraries)))),
        "XDG_CACHE_HOME": str(cwd / "cache"),
        **variables,
    }
    return linkgauge(*words, cwd=cwd, env=environment)
