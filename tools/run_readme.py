"""Runs the commands of a Markdown page: every line of its ```sh blocks, in order, each in a shell of its own.

    tools/run_readme.py PAGE [FOLDER]

A broken command in the page is a broken promise. Blocks marked ```console show output or need another machine, and are
left alone. Commands run in FOLDER, by default the checkout, with its environment on the path, as a reader would have
it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# CI has run these by themselves; a test that runs all tests would not end.
EXIT_CASES_FAILED = 4  # docs/definitions.md
RUN_ELSEWHERE = {"./lg test", "./lg wheels wheelhouse"}


def blocks(text: str) -> list[str]:
    """The contents of the ```sh blocks of a Markdown text, in order."""
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands_of(block: str) -> list[str]:
    """A block's commands, one a line, without those that CI runs by themselves."""
    lines = (line.strip() for line in block.splitlines())
    return [line for line in lines if line and line.split("#")[0].strip() not in RUN_ELSEWHERE]


def main() -> int:
    """Exit status 1 with the block and its output at the first that fails; 2 where the page has none."""
    page = Path(sys.argv[1])
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT
    folder.mkdir(parents=True, exist_ok=True)
    found = blocks(page.read_text(encoding="utf-8"))
    if not found:
        print(f"{page}: no ```sh block")
        return 2
    environment = {**os.environ, "PATH": f"{ROOT}/.venv/bin{os.pathsep}{os.environ['PATH']}"}
    for number, block in enumerate(found, 1):
        for command in commands_of(block):
            print(f"--- block {number}: {command}", flush=True)
            status = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                check=False,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
            ).returncode
            if status == EXIT_CASES_FAILED and command.startswith(("./lg run", "linkgauge run")):
                print("--- it ran; some cases ended badly, as they may on a busy machine")
            elif status != 0:
                print(f"{page}: '{command}' of block {number} ended with status {status}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
