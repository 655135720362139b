"""The MPI libraries of this machine, looked for once in a process of tests: each look starts every launcher."""

from __future__ import annotations

import functools

from linkgauge.run.parent.mpi_library import find_all

installed = functools.cache(find_all)
