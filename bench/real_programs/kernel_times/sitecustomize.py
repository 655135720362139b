"""How long each of NCCL's kernels took in each case that a rank of `linkgauge run` measures, by PyTorch's profiler.

Python imports this at its start from a folder of PYTHONPATH. In a rank whose environment has KERNEL_TIMES=FOLDER, each
case is measured under a profile of the device alone, as gpu_steps.py takes one of a program's iterations. A process
writes FOLDER/PID.jsonl, a line a case: its application, and [begin, ns, device] of each kernel by its begin.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

RANK = "linkgauge.run.rank.worker"


class Profiled:
    """The case in hand; ranks that are threads of one process share its profile."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._to = folder / f"{os.getpid()}.jsonl"
        self._lock = threading.Lock()
        self._inside = 0
        self._profile: Any = None

    def begin(self, device: int) -> None:
        """A rank begins the case on its device, which the profiler waits for at the end."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                kind = torch.profiler.ProfilerActivity.CPU
                if torch.cuda.is_available():
                    kind = torch.profiler.ProfilerActivity.CUDA
                    torch.cuda.set_device(device)
                self._profile = torch.profiler.profile(activities=[kind])
                self._profile.start()

    def end(self, case: Any) -> None:
        """A rank has measured it."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._profile.stop()
                events = self._profile.profiler.kineto_results.events()
                found = sorted((one.start_ns(), one.duration_ns(), one.device_index()) for one in events
                               if one.name().startswith("ncclDevKernel"))  # fmt: skip
                with self._to.open("a") as file:
                    file.write(json.dumps({"app": _name_of(case), "kernels": found}) + "\n")


def _name_of(case: Any) -> str:
    from linkgauge.apps.catalog import asked

    return asked(case.app).file.name if case.app else str(case.pattern)


def _wrap(folder: Path) -> None:
    from linkgauge.run.rank.session import Session

    measure, profiled = Session.measure, Profiled(folder)

    def measured(session: Session, case: Any) -> Any:
        profiled.begin(session._spec.device_of(session.rank))
        try:
            return measure(session, case)
        finally:
            profiled.end(case)

    Session.measure = measured  # type: ignore[assignment]


if os.environ.get("KERNEL_TIMES") and RANK in sys.orig_argv:
    import torch  # seconds, which no case should have in it

    _wrap(Path(os.environ["KERNEL_TIMES"]))
