"""What the programs of this folder have in common: where the checkout is, options, Linkgauge as a command, results.

Imported before what lies in src/ and tests/, which it puts on the path.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tests", "tests/findings")]
PROGRAM = (sys.executable, "-m", "linkgauge")
ON_A_NODE = {"PYTHONPATH": os.pathsep.join(sys.path)}
"""The environment of PROGRAM on a node of an emulated cluster."""


def options(text: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a program's docstring."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def seeds(text: str) -> range:
    """The seeds of FIRST:END or FIRST:END:STEP."""
    return range(*map(int, text.split(":")))


def linkgauge(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of Linkgauge; `more` as subprocess.run takes it."""
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False, **more)


def say(line: Mapping[str, Any], file: Path | None = None) -> None:
    """Print a line of JSON, and add it to a file where one is named."""
    print(json.dumps(line), flush=True)
    if file is not None:
        add_line(file, line)


def add_line(file: Path, line: Mapping[str, Any]) -> None:
    """Add a line of JSON to a file."""
    with file.open("a") as out:
        out.write(json.dumps(line) + "\n")


def write_lines(file: Path | None, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write lines of JSON, where a file is named."""
    if file is not None:
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_lines(files: Iterable[Path]) -> list[dict[str, Any]]:
    """What such files hold."""
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
