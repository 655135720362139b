"""Standard output whose own errors are told from those of other files."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class StandardOutputError(OSError):
    """Standard output cannot be written: its disk is full, or its device takes nothing."""


class _Raw(io.FileIO):
    def write(self, data: Any, /) -> int:
        """Write; a reader that went away stays `BrokenPipeError`, every other error is standard output's."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StandardOutputError(error.errno, error.strerror) from None


def told_apart() -> None:
    """Let `sys.stdout` raise `StandardOutputError`: an error of write() names no file, so that none could be told."""
    known = sys.stdout
    if known is None:
        return
    raw = _Raw(known.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=known.encoding, errors=known.errors, line_buffering=known.isatty()
    )


def silence() -> None:
    """Let what is left in the buffer go nowhere, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
