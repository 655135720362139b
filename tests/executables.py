"""Programs that tests write and start."""

from __future__ import annotations

import stat
import sys
from pathlib import Path


def python_program(folder: Path, name: str, *lines: str) -> Path:
    """An executable Python program of these lines."""
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("\n".join((f"#!{sys.executable}", *lines)) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
