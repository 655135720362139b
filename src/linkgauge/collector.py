"""Python's collector of reference cycles, paused where a million objects are made that live until the end."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Pause it: it would go through them again and again.

    That is a fifth of the time in which a run of many thousand cases becomes objects, and a third of what reading a
    step file of a million steps takes.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
