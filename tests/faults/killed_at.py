"""Runs command lines whose process is killed before one of its steps, each forked from this one, which is warm.

A line of standard input is JSON: `step` (from 0; negative: none), `words` of the command line. For each a line is
written: the exit status, negative for a signal, and how many steps were taken. Steps are the calls by which a parent
changes folders.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil  # noqa: F401  # looks at what os has when it is imported
import signal
import sys
from collections.abc import Callable
from typing import Any

from linkgauge.app.cli import run_command

WARM = (
    "numpy",
    "linkgauge.app.resume",
    "linkgauge.app.run",
    "linkgauge.run.parent.measure",
    "linkgauge.store.compaction",
)
STEPS = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "ftruncate", "fsync")


def child(step: int, words: list[str], counted: int) -> int:
    """Run the command line, counting its steps into a pipe, and end by SIGKILL before number `step`."""
    left = [step]

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            os.write(counted, b".")
            return real(*arguments, **keywords)

        return call

    for name in STEPS:
        setattr(os, name, counting(getattr(os, name)))
    return run_command(words)


def main() -> None:
    """Take one line after the other."""
    for name in WARM:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open("output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), 1)
    os.dup2(1, 2)
    for line in sys.stdin:
        asked = json.loads(line)
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reads)
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            status = child(asked["step"], asked["words"], writes)
            sys.stdout.flush()
            os._exit(status)
        os.close(writes)
        steps = 0
        while some := os.read(reads, 4096):
            steps += len(some)
        os.close(reads)
        _, ended = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(ended), steps, file=answers, flush=True)


if __name__ == "__main__":
    main()
