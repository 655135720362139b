"""How long this program took to start: about what each of its processes takes, on this machine and under its load."""

from __future__ import annotations

import time

_began: float | None = None
_took_s = 0.0


def begin() -> None:
    """The program starts now: nothing has been imported."""
    global _began
    _began = time.monotonic()


def done() -> None:
    """The program has started now: all that its command needs has been imported."""
    global _took_s
    if _began is not None and not _took_s:
        _took_s = time.monotonic() - _began


def start_s() -> float:
    """Seconds that it took; 0 where it has not, or Python was started as another program."""
    return _took_s
