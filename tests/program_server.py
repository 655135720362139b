"""Starts `linkgauge` again and again by fork, for tests/program.py: what its commands import is imported once.

Reads requests from the socket of descriptor argv[1]: JSON with the words, folder and environment, with the descriptors
of the three standard streams and of a socket, to which it writes the process id of what it started, and later the
status that wait() gave and the processor time. `once WORDS` in place of the descriptor is one program.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What commands import besides the package's own modules.
MODULES = (
    "linkgauge._core", "numpy", "pyarrow.acero", "pyarrow.dataset", "pyarrow.parquet", "pynvml", "rich._emoji_codes",
    "rich.console", "rich.table", "scipy.linalg", "scipy.sparse", "scipy.sparse.csgraph", "scipy.special", "tomli",
)  # fmt: skip

MOST_BYTES = 1 << 18  # of a request: some words are thousands of characters long


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Turn this child into what a shell would have started, also where it would have closed standard output."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["words"]
    encoding, _, errors = request["env"].get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115 - the process's own
    sys.stdout = open(1, "w", encoding=encoding, errors=errors or "strict", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    if request["closed"]:
        os.close(1)
        sys.stdout = None
    # What depends on the moment of a start, or on the environment.
    random.seed()
    tempfile.tempdir = None
    time.tzset()


def serve(ours: socket.socket) -> bool:
    """Answer requests until the other end is closed; True in a child, which then is the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for a program
    while True:
        text, streams, _, _ = socket.recv_fds(ours, MOST_BYTES, 4)
        if not text:
            return False
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child = os.fork()
            if child == 0:
                ours.close()
                os.close(streams.pop())
                become(json.loads(text), streams)
                return True
            with socket.socket(fileno=streams.pop()) as answers:
                answers.sendall(b"%d\n" % child)
                _, status, used = os.wait4(child, 0)
                answers.sendall(b"%d %f\n" % (status, used.ru_utime + used.ru_stime))
            os._exit(0)
        for stream in streams:
            os.close(stream)


def be_patient() -> None:
    """Before anything takes the value: a busy machine may keep ranks from running for the usual ten seconds."""
    from linkgauge.run.parent import watch

    watch.HUNG_AFTER_S = 60.0


def import_all() -> None:
    """Import all that commands need, and start no thread, which no child of a fork would have.

    A run imports 150 modules and reads every described system before its summary: half a second of each child.
    """
    import linkgauge

    own = (found.name for found in pkgutil.walk_packages(linkgauge.__path__, "linkgauge."))
    for name in (*MODULES, *own):
        with contextlib.suppress(ModuleNotFoundError):  # as where the core is not built
            importlib.import_module(name)
    from linkgauge.system.catalog import described_nodes

    described_nodes()
    main_thread = str(os.getpid())
    tasks = [path for path in Path("/proc/self/task").iterdir() if path.name != main_thread]
    threads = {(path / "comm").read_text().strip() for path in tasks}
    if threads - {"jemalloc_bg_thd"}:  # Arrow's allocator minds forks itself
        sys.exit(f"program_server: imports started threads: {threads}")
    warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork")  # Python 3.12 counts Arrow's thread
    gc.collect()
    gc.freeze()


def end_quickly(program: Callable[[], object]) -> None:
    """Run a program and end this process as the interpreter would, but leave its memory to the kernel.

    To free what all modules hold copies the pages that a child shares: a tenth of a second, most of a short command.
    """
    try:
        program()
        status = 0
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        status = end.code
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            sys.exit(status)  # full or closed: what is said of it, and the status, are the interpreter's
    os._exit(status & 0xFF)


def main() -> None:
    """Import, serve, and in each child be the program that sys.argv says; or be it at once."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    be_patient()
    is_forked = sys.argv[1] != "once"
    if not is_forked:
        sys.argv = sys.argv[2:]
    else:
        import_all()
        if not serve(socket.socket(fileno=int(sys.argv[1]))):
            return
    if sys.argv[0] == "linkgauge":
        from linkgauge.__main__ import main as program

        if is_forked:
            end_quickly(program)
        program()
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
