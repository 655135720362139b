"""What ends a command from outside: SIGINT, SIGTERM and SIGHUP, with a word and the documented status at every moment.

Until a command begins there is nothing to give back, and the process ends where it is: an exception amid an import may
be swallowed. Within a command they raise `KeyboardInterrupt`, and what it holds is given back. While cases are measured
the runner has handlers of its own. Whichever is ignored when the program starts (`nohup`) stays ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from linkgauge.errors import Exit

TYPE_CHECKING = False  # typing's own takes 5 ms, in which a signal would end the program without a word
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heeded() -> list[signal.Signals]:
    """The ending signals that this process was not told to ignore."""
    return [one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN]


def end(said: str) -> NoReturn:
    """End the process where it is, with a last line: no buffer is written, nothing is taken down."""
    with contextlib.suppress(OSError):
        os.write(2, f"linkgauge: error: {said}\n".encode())
    os._exit(Exit.INTERRUPTED)


def _end(number: int, frame: FrameType | None) -> None:
    end(words(number))


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(words(number))


def _again(swallowed: sys.UnraisableHookArgs, /) -> None:
    """Raise once more, a moment later, what came amid a callback that lets nothing out (importlib has one).

    Within a hook nothing can be raised either.
    """
    if not isinstance(swallowed.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(swallowed)
        return
    said = str(swallowed.exc_value)

    def late(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(said)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)


def words(number: int) -> str:
    """What is said of a signal that ended a command."""
    return "interrupted" if number == signal.SIGINT else f"interrupted by {signal.Signals(number).name}"


def end_at_once() -> None:
    """From now on a signal ends the process where it is."""
    for one in heeded():
        signal.signal(one, _end)


def raise_from_now() -> None:
    """A command begins: what it makes has to be given back. Only where `end_at_once` was called: in a whole program."""
    for one in ENDING:
        if signal.getsignal(one) is _end:
            sys.unraisablehook = _again
            signal.signal(one, _raise)


def leave() -> NoReturn:
    """End the process of a command that was interrupted and has said so, everything that it made being given back.

    Python would end it by SIGINT itself wherever the `KeyboardInterrupt` once left code that a C library had run.
    """
    import atexit

    atexit._run_exitfuncs()  # CPython's own, which its shutdown and multiprocessing's tests call too
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(Exit.INTERRUPTED)


def ignore() -> None:
    """The command is over and its status known: the interpreter, which gives up its handlers first, takes itself down.

    A signal would else end that with its own status, for as long as libraries take to unload (20 to 60 ms).
    """
    for one in heeded():
        signal.signal(one, signal.SIG_IGN)
