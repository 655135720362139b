"""What `check` says: one verdict a requirement, and what they amount to together."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from linkgauge.errors import Exit

Outcome = Literal["pass", "fail", "unknown"]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One requirement against what was measured.

    `measured` and `required` are in `unit` (`B/s` or `ns`; empty for what is no quantity). `shortfall` is the share
    by which the requirement is missed: 0.2 is a fifth too slow, or a fifth too late. `task` says of a case what is done
    and how, without its devices: verdicts of one task are shown as one row. `noun`: what one of the devices is called.
    """

    outcome: Outcome
    what: str
    reason: str
    source: str
    run: str = ""
    host: str = ""
    case_key: str = ""
    devices: tuple[int, ...] = ()
    measured: float | None = None
    required: float | None = None
    unit: str = ""
    shortfall: float = 0.0
    labels: tuple[tuple[str, str], ...] = ()
    task: str = ""
    noun: str = "device"
    kind: Literal["check", "finding", "case"] = "check"  # the last two are told apart: only faults and failures count
    check: str = ""  # which check it is of, where several verdicts are of one
    weak: bool = False  # a pass that says too little to rest a PASS on it alone

    def as_json(self) -> dict[str, object]:
        """Return the verdict as plain JSON values."""
        plain = dataclasses.asdict(self)
        plain["devices"] = list(self.devices)
        plain["labels"] = dict(self.labels)
        del plain["noun"], plain["kind"], plain["check"], plain["weak"]
        return plain


@dataclasses.dataclass(frozen=True)
class Checked:
    """All verdicts of a check, the worst first, and how many cases no requirement was stated for."""

    verdicts: tuple[Verdict, ...]
    unrequired: int = 0
    notes: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()  # what the time of the run or of its cases did not suffice for

    @classmethod
    def of(
        cls,
        verdicts: Sequence[Verdict],
        unrequired: int = 0,
        notes: Sequence[str] = (),
        not_measured: Sequence[str] = (),
    ) -> Checked:
        """Order the verdicts: what falls short by how far, then what could not be judged, then what holds."""
        order = ("fail", "unknown", "pass")
        ordered = sorted(verdicts, key=lambda v: (order.index(v.outcome), -v.shortfall, v.run, v.what))
        return cls(tuple(ordered), unrequired, tuple(notes), tuple(not_measured))

    def count(self, outcome: Outcome) -> int:
        """Return how many verdicts have this outcome."""
        return sum(verdict.outcome == outcome for verdict in self.verdicts)

    def checks(self) -> Counter[Outcome]:
        """Return how many checks ended how: every one that was judged, so that its number is the same whatever it gave.

        Without findings and cases that did not end well: there is no number of those that could have been.
        """
        ended = {(one.run, one.source, one.check or str(place)): one.outcome
                 for place, one in enumerate(self.verdicts) if one.kind == "check"}  # fmt: skip
        return Counter(ended.values())

    @property
    def exit_status(self) -> int:
        """1 if a check fails; 3 if one, or all of one run, is unknown; else 0."""
        if self.count("fail"):
            return Exit.FAIL
        return Exit.UNKNOWN if self.count("unknown") or not self.verdicts or self.weak_runs else Exit.DONE

    @property
    def weak_runs(self) -> tuple[str, ...]:
        """The runs of which nothing but passes that say too little is known: what others show is no PASS of these."""
        strong = {one.run for one in self.verdicts if not one.weak}
        return tuple(dict.fromkeys(one.run for one in self.verdicts if one.run not in strong))
