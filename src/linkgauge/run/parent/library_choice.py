"""What NCCL chose for the cases of a run, asked of it in launches of their own after the measured ones.

NCCL tells it in its log only (run/machine/nccl_log.py), and writing that takes time. So a case is done once more,
untimed, in a launch that differs by the log alone. The answer becomes part of the measured row's evidence, as
`chosen`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from linkgauge.model.case import Case
from linkgauge.model.stop_rule import StopRule
from linkgauge.plan.launches import LaunchSettings, PlannedLaunch
from linkgauge.run.machine.nccl_log import FUNCTIONS, NcclLog
from linkgauge.run.wire.spec import CaseEntry

CHOSEN = "chosen"
LOG_VARIABLES = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
_NAMES_A_WAY = frozenset(
    {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_P2P_USE_CUDA_MEMCPY", "NCCL_SHM_DISABLE", "NCCL_SHM_USE_CUDA_MEMCPY"}
)
"""Variables of which the log of channels tells whether they did something, with messages too."""
_STATUS_KEYS = ("case_key", "launch", "repeat", "attempt", "case", "status", "reason", "evidence")


def log_environment(folder: Path, told: str = "TUNING,NET,P2P,SHM") -> dict[str, str]:
    """What makes NCCL write its choices, and nothing else, into a file for each process in `folder`.

    `told`: its subsystem; ENV are the variables that it reads, told once, so that a measured launch may have it.
    """
    return dict(zip(LOG_VARIABLES, ("INFO", told, str(folder / "nccl.%h.%p")), strict=True))


def untimed(case: Case) -> Case:
    """The case with nothing of how it is timed: one operation between its checks."""
    return dataclasses.replace(
        case,
        cadence="isolated",
        arrival="deadline",
        skew_ns=0,
        clock="host",
        batch=1,
        verify="final",
        warmup=0,
        stop=StopRule(rule="count", samples=1),
    )


class Choices:
    """The measured rows that a library is to be asked about, by the settings of their launch and the untimed case."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._planned: dict[LaunchSettings, PlannedLaunch] = {}
        self._asked: dict[LaunchSettings, dict[str, tuple[Case, list[dict[str, Any]]]]] = {}

    def note(self, planned: PlannedLaunch, case: Case, status: Mapping[str, Any]) -> None:
        """Take in a row by its status record. Those of which no log tells, or whose own launch logs, are left out."""
        settings = planned.settings
        of_way = case.gpudirect or case.path or _NAMES_A_WAY.intersection(dict(planned.settings.env))
        tells = case.pattern in FUNCTIONS or of_way
        if case.transport != "ccl" or not tells or status["status"] != "ok":
            return
        if NcclLog.from_environment({**os.environ, **dict(settings.env)}) is not None:
            return
        self._planned.setdefault(settings, planned)
        bare = untimed(case)
        _, rows = self._asked.setdefault(settings, {}).setdefault(bare.case_key, (bare, []))
        rows.append({name: status[name] for name in _STATUS_KEYS})

    def launches(self) -> Iterator[tuple[PlannedLaunch, list[CaseEntry]]]:
        """The launches to ask in, each with its cases."""
        for settings, cases in self._asked.items():
            entries = [CaseEntry(case, 0, index) for index, (case, _) in enumerate(cases.values())]
            yield self._planned[settings], entries

    def answered(self, planned: PlannedLaunch, header: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The status records of the rows that a case record of such a launch speaks of, with what was chosen."""
        chosen = header.get("evidence", {}).get(CHOSEN)
        if not chosen:
            return []
        _, rows = self._asked[planned.settings].get(str(header["case_key"]), (None, []))
        return [{**row, "evidence": {**row["evidence"], CHOSEN: chosen}} for row in rows]
