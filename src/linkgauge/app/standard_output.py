"""Standard output whose own errors are told from those of other files; both streams print in any locale."""

from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata
from typing import Any

# What is printed for characters that a terminal's encoding lacks; of others their letters without marks, else "?".
_PLAIN = {
    "\N{MIDDLE DOT}": "-", "\N{EN DASH}": "-", "\N{EM DASH}": "-", "\N{MINUS SIGN}": "-",
    "\N{MULTIPLICATION SIGN}": "x",
    "\N{MICRO SIGN}": "u", "\N{GREEK SMALL LETTER MU}": "u", "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=", "\N{RIGHTWARDS ARROW}": "->", "\N{PLUS-MINUS SIGN}": "+-",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{FULL BLOCK}": "#",
}  # fmt: skip


def _plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = ""
    for character in error.object[error.start : error.end]:
        letters = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
        found += _PLAIN.get(character) or letters or "?"
    return found, error.end


codecs.register_error("plainly", _plainly)


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


class _Unheard(io.FileIO):
    def write(self, data: Any, /) -> int:
        """Write; where nothing takes it, as when a terminal was closed, what was said goes nowhere."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _open_to_nothing(descriptor: int) -> None:
    """Open standard input or standard error to /dev/null, where the caller has closed it."""
    found = os.open(os.devnull, os.O_RDWR)
    if found != descriptor:
        os.dup2(found, descriptor)
        os.close(found)
    if descriptor == 0:
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115, the process's own
    else:
        sys.stderr = open(2, "w", closefd=False, encoding="utf-8")  # noqa: SIM115, the process's own


def told_apart() -> None:
    """Let `sys.stdout` raise `StandardOutputError`: an error of write() names no file, so that none could be told.

    Characters that the locale's encoding lacks are printed plainly instead of ending the command. What cannot be said
    on standard error ends none either: a run whose terminal is gone still has to write its end.
    """
    for descriptor, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None and descriptor != 1:  # closed by the caller; a file that is opened next must not become it
            _open_to_nothing(descriptor)
    if sys.stderr is not None:
        said = io.BufferedWriter(_Unheard(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(said, encoding=sys.stderr.encoding, errors="plainly", line_buffering=True)
    known = sys.stdout
    if known is None:
        return
    raw = _Raw(known.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=known.encoding, errors="plainly", line_buffering=known.isatty()
    )


def silence() -> None:
    """Let what is left in the buffer go nowhere, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
