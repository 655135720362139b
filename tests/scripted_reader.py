"""A reader of device values that are given beforehand, for tests of observations and of what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from linkgauge.run.machine.observe import STATE, Value


class ScriptedReader:
    """A reader whose values are given, one list a reading."""

    parts: Sequence[str] = (STATE,)

    def __init__(self, *readings: list[Value], subject: str = "cuda:0") -> None:
        self.subject = subject
        self.readings = list(readings)

    def read(self, part: str = "") -> list[Value]:
        return self.readings.pop(0)

    def refused(self) -> dict[str, str]:
        return {}

    def own(self, pids: Iterable[int]) -> None:
        pass
