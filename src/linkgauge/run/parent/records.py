"""What the records of a launch's ranks mean for its run: statuses, what curves have learned, what the display shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linkgauge.plan.curves import Curves
from linkgauge.plan.launches import LaunchSettings
from linkgauge.run.parent.library_choice import Choices
from linkgauge.run.parent.load_launches import LoadLaunches, with_loads_ends
from linkgauge.run.parent.prepared import Pending, Prepared
from linkgauge.run.parent.reporter import Reporter
from linkgauge.run.parent.statuses import Statuses
from linkgauge.run.parent.time_left import TimeLeft
from linkgauge.run.wire.outcome import OBSERVING, point_of
from linkgauge.run.wire.spec import entry_of
from linkgauge.store.journal import Record


class Records:
    """Takes each record as it comes."""

    def __init__(
        self,
        prepared: Prepared,
        info: Mapping[str, Any],
        statuses: Statuses,
        reporter: Reporter,
        time_left: TimeLeft,
    ) -> None:
        """`info` is what run.json has of the run so far."""
        self._prepared, self._statuses, self._reporter, self._time_left = prepared, statuses, reporter, time_left
        self._curves = dict(prepared.curves)  # of each kind of launch
        self.choices = Choices()
        self.measured: dict[LaunchSettings, set[str]] = {}
        """Planned keys of cases that a launch has measured."""
        self.clocks: dict[str, Any] = dict(info.get("clock") or {})
        """Of each launch, by its number."""
        self.observing: dict[str, Any] = dict(info.get(OBSERVING) or {})
        """Likewise: what observing has cost it."""

    def curves_of(self, one: Pending) -> Curves:
        """What is known of the curves of a kind of launch."""
        return self._curves.setdefault(one.planned.settings, Curves())

    def note(self, one: Pending, record: Record, loads: LoadLaunches | None = None) -> None:
        """Take a record of a launch, beside which `loads` go on."""
        if record.kind == "launch":
            self.clocks[str(one.number)] = record.header.get("clock", {})
        elif record.kind == "end":
            if (cost := record.header.get(OBSERVING, {})).get("seconds"):
                self.observing[str(one.number)] = cost
        elif record.kind == "begin":
            entry = entry_of(one.entries, record.header)
            if entry is not None:
                self._reporter.begin(entry.case)
                self._time_left.begin()
                if loads is not None:
                    loads.begin(entry.case)
        elif record.kind == "left_out":
            entry, header = one.take(record.header), record.header
            if entry is not None and "reason" in header:  # else it is another case, which has its own status
                self._statuses.write(one, entry, "skipped", header["reason"], header["evidence"])
        elif record.kind == "case":
            entry = one.take(record.header)
            if entry is None:
                return
            header = record.header
            self.measured.setdefault(one.planned.settings, set()).add(entry.key[0])
            status, reason, evidence = with_loads_ends(
                header["status"], header.get("reason", ""), header.get("evidence", {}),
                [] if loads is None else loads.ended(),
            )  # fmt: skip
            point = point_of(entry.case, record.columns) if status == "ok" else None
            goodput = None if point is None else point.goodput
            if point is not None and self._prepared.rounds is not None:
                self._prepared.rounds.note(one.planned.repeat, one.planned.settings, entry.case, point.time_ns)
            if entry.step is not None:
                self.curves_of(one).learn(entry.case.size_requested, evidence)
            if self._prepared.library_choices:
                self.choices.note(one.planned, entry.case, {"reason": "", "evidence": {}, **header})
            self._statuses.write(one, entry, status, reason, evidence, goodput=goodput)
