"""What commands and Python code on pages print, run in a folder that holds the stored runs."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import shlex
import shutil
import tarfile
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linkgauge.app import cli

DOCS = Path(__file__).resolve().parents[1]
MADE = DOCS.parent / "build" / "docs" / "static" / "made"
RUNS = DOCS / "_runs"
LOG = DOCS.parent / "tests" / "store" / "logs" / "all_reduce.txt"
"""A log of nccl-tests with damaged lines, which a page imports."""
APPROVED = DOCS / "_outputs"
WIDTH = 100  # of a terminal, in characters
# What a terminal, a user or a site would change of an output.
_SETTINGS = {"COLUMNS": str(WIDTH), "LINES": "50", "TZ": "UTC", "NO_COLOR": "1", "TERM": "dumb"}


@contextlib.contextmanager
def workplace() -> Iterator[None]:
    """Within it the current folder is a fresh one with the stored runs and the log; the terminal has 100 columns."""
    before, here = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="linkgauge-docs-") as folder:
        for path in sorted(RUNS.glob("*.tar.xz")):
            with tarfile.open(path) as archive:
                archive.extractall(folder, filter="data")
        shutil.copy(LOG, folder)
        os.environ.update(_SETTINGS)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(before)


def of_command(line: str) -> tuple[str, int]:
    """What `linkgauge` of these words prints, errors included, and its exit status."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = cli.run_command(shlex.split(line))
    return _trimmed(out.getvalue()), status


def take_made(name: str) -> list[str]:
    """Move the pictures and reports that a command left in the current folder to the site's; their paths in there."""
    MADE.mkdir(parents=True, exist_ok=True)
    found = []
    for path in sorted([*Path().glob("*.svg"), *Path().glob("*/report.html")]):
        made = f"{name.replace('/', '-')}-{len(list(MADE.iterdir()))}{path.suffix}"
        shutil.move(path, MADE / made)
        found.append(f"_static/made/{made}")
    return found


def of_python(source: str, names: dict[str, Any]) -> str:
    """What Python code prints, run with `names`, in which it leaves its own. Its last expression is printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(source, "<page>", "exec"), names)
        except Exception:
            out.write(traceback.format_exc())
            raise RuntimeError(out.getvalue()) from None
    return _trimmed(out.getvalue())


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


class Page:
    """The outputs on one page, beside those that were approved."""

    def __init__(self, name: str) -> None:
        """`name`: the page's, without its ending."""
        self.file = APPROVED / f"{name}.txt"
        self._made: list[str] = []

    def add(self, asked: str, output: str) -> None:
        """Take an output down."""
        self._made.append(f"$ {asked.strip()}\n{output}\n")

    def difference(self) -> str:
        """How the outputs differ from those that were approved; empty where they do not."""
        before = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        lines = difflib.unified_diff(before.splitlines(), self._text().splitlines(), "approved", "now", lineterm="")
        return "\n".join(lines)

    def approve(self) -> None:
        """Take the outputs as right; a page without any has no file."""
        if self._made:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(self._text(), encoding="utf-8")
        else:
            self.file.unlink(missing_ok=True)

    def _text(self) -> str:
        return "\n".join(self._made)
