"""Linkgauge measures every path that data can take between GPUs and host memory."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing's own: interrupts.py
if TYPE_CHECKING:
    from linkgauge.store.run import Run

__version__ = "0.2.0"


def load(path: str | os.PathLike[str]) -> Run:
    """Open the run folder `path` for reading (linkgauge.store.run.Run says what it offers).

    RunFolderError where it is none, is truncated, or is of a version that cannot be read.

    >>> run = load("linkgauge-demo")
    >>> run.info["devices"]["infos"][0]["name"]
    'NVIDIA H100 80GB HBM3'
    >>> run.cases.num_rows
    620
    """
    # Imported here: workers import this package and must not load pyarrow.
    from linkgauge.store.run import load as load_run

    return load_run(path)
