"""Faults of the core for Python's tests: a library that is built with the C++ tests plants them.

tests/core/planted_faults.h has the kinds and phases. Ranks import this module too: it imports no test.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_FOLDER = Path(os.environ.get("LINKGAUGE_TEST_STAND_INS", Path(__file__).parents[1] / "build" / "tests" / "stand_in"))
LIBRARY = _FOLDER / "libplanted_faults.so"
HAVE_FAULTS = LIBRARY.exists()
NO_FAULTS = "no library of planted faults: build the C++ tests"


def plant(session: Any, **fault: str | int) -> None:
    """Let something go wrong in every later case of the core's or the worker's session: kind, phase, sample, rank."""
    session.set_hook(str(LIBRARY), " ".join(f"{name}={value}" for name, value in fault.items()))


def clear(session: Any) -> None:
    """Nothing goes wrong any more."""
    session.set_hook("")
