"""The core as a worker sees it: one session a rank. Nothing else of the worker touches the core's own types."""

from __future__ import annotations

from typing import Any, Protocol

from linkgauge.plan.case import Case
from linkgauge.run.outcome import RankOutcome
from linkgauge.run.spec import WorkerSpec


class Session(Protocol):
    """One rank's door to the core. Calls are collective over the launch's ranks unless they say otherwise."""

    def measure(self, case: Case) -> RankOutcome:
        """Measure one case; ranks that take no part sleep and bring back `idle`."""

    def exchange(self, mine: bytes) -> list[bytes]:
        """Each rank's bytes, by rank."""

    def describe(self) -> dict[str, Any]:
        """Describe this rank's device. Not collective."""

    def facts(self) -> dict[str, Any]:
        """Return `clock` (cost and resolution) and `versions` of runtime and driver. Not collective."""

    def close(self) -> None:
        """Give everything back."""


def open_process_session(spec: WorkerSpec, world: Any, heartbeat: Any) -> Session:
    """This process' rank of the launch: `world` is mpi4py's COMM_WORLD, `heartbeat` the rank's words."""
    raise NotImplementedError


def open_thread_sessions(spec: WorkerSpec, heartbeats: list[Any]) -> list[Session]:
    """All ranks of a launch of threads."""
    raise NotImplementedError
