"""What applications were predicted to take, beside what they took."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.apps import catalogue
from linkgauge.errors import UsageError
from linkgauge.expect.application import Curves, Mechanism, Predicted, known_transports, mechanism_of, predict
from linkgauge.model.patterns import PATTERNS
from linkgauge.stats.step_times import KINDS, RankSteps, step_times
from linkgauge.store.schema import IDENTITY
from linkgauge.view.results import Results
from linkgauge.view.units import time_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run


@dataclasses.dataclass(frozen=True)
class Prediction:
    """An application by one mechanism. Times in ns; those measured are None where they are not known."""

    app: str
    ranks: int
    mechanism: Mechanism
    predicted: Predicted | None
    why_not: str  # where it is not predicted
    measured_ns: float | None
    measured_ranks: Sequence[RankSteps]

    @property
    def error(self) -> float | None:
        """By how much the prediction is too long, as a share of what was measured."""
        if self.predicted is None or not self.measured_ns:
            return None
        return self.predicted.time_ns / self.measured_ns - 1

    def kinds(self) -> list[tuple[str, float, float | None]]:
        """Of the rank that is predicted to take longest: kinds of steps, predicted and measured, the longest first."""
        if self.predicted is None:
            return []
        rank = max(range(self.ranks), key=lambda one: self.predicted.ranks_ns[one])  # type: ignore[union-attr]
        mine = self.predicted.kinds_ns[rank]
        told = next((one.ns for one in self.measured_ranks if one.rank == rank), {})
        found = [(kind, mine.get(kind, 0.0), told.get(kind, 0.0) if told else None) for kind in KINDS]
        return sorted((one for one in found if one[1] or one[2]), key=lambda one: -max(one[1], one[2] or 0.0))

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "app": self.app, "ranks": self.ranks, "transport": self.mechanism.transport,
            "collectives": self.mechanism.collectives, "why_not": self.why_not,
            "predicted_ns": None if self.predicted is None else self.predicted.time_ns,
            "measured_ns": self.measured_ns, "error": self.error,
            "kinds": [{"kind": kind, "predicted_ns": mine, "measured_ns": told} for kind, mine, told in self.kinds()],
        }  # fmt: skip


def predictions(
    apps: Sequence[str],
    source: Run,
    measured: Run,
    ranks: int | None,
    transports: list[str] | None,
    collectives: str,
    statistic: str = "median_ns",
) -> list[Prediction]:
    """Predict each application under each transport from the curves of `source`, beside what `measured` has of it."""
    rows = Results(source).rows
    curves = Curves(rows, statistic)
    there = Results(measured)
    told = step_times(measured)
    taken = {(row["app"], len(row["devices"]), mechanism_of(row)): row
             for row in there.rows if PATTERNS[row["pattern"]].scripted}  # fmt: skip
    count = ranks or max((len(row["devices"]) for row in rows), default=0)
    chosen = transports or known_transports(rows)
    if not chosen or not count:
        raise UsageError(
            f"{source.path}: no pingpong: expected curves, as 'linkgauge run --plan applications' measures"
        )
    found = []
    for app in apps:
        label = catalogue.label(app)
        why = catalogue.why_not_here(app, count)
        for transport in chosen:
            by = Mechanism(transport, collectives or transport)
            row = taken.get((app, count, by))
            answer, reason = None, why
            if not why:
                try:
                    answer = predict(catalogue.program(app, count), curves, by)
                except UsageError as error:
                    reason = str(error)
            ranks_told = told.get(tuple(row[name] for name in IDENTITY), []) if row is not None else []
            ns = float(row[statistic]) if row is not None and row[statistic] is not None else None
            found.append(Prediction(label, count, by, answer, reason, ns, ranks_told))
    return found


def print_predictions(found: Sequence[Prediction]) -> None:
    """Print a table, a row an application and mechanism, and a line of the errors."""
    from rich.table import Table
    from rich.text import Text

    from linkgauge.view.terminal import console

    out = console()
    known = [one for one in found if one.predicted is not None]
    table = Table(title="applications: predicted from curves, and measured", title_justify="left", title_style="bold",
                  box=None, pad_edge=False, header_style="bold")  # fmt: skip
    for name in (
        "application",
        "ranks",
        "by",
        "predicted",
        "measured",
        "error",
        "by kind of step: predicted (measured)",
    ):
        right = name in ("ranks", "predicted", "measured", "error")
        table.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for one in known:
        assert one.predicted is not None
        by = one.mechanism
        how = by.transport if by.collectives == by.transport else f"{by.transport}, collectives by {by.collectives}"
        kinds = [f"{kind} {time_text(mine)}{'' if told is None else f' ({time_text(told)})'}"
                 for kind, mine, told in one.kinds()[:3]]  # fmt: skip
        error = "" if one.error is None else f"{one.error:+.0%}"
        taken = "" if one.measured_ns is None else time_text(one.measured_ns)
        table.add_row(Text(one.app), str(one.ranks), how, time_text(one.predicted.time_ns), taken, error,
                      ", ".join(kinds))  # fmt: skip
    if known:
        out.print(table)
    reasons = dict.fromkeys(one.why_not for one in found if one.why_not)
    for reason in reasons:
        out.print(Text(f"not predicted: {reason}"))
    errors = [abs(one.error) for one in known if one.error is not None]
    if errors:
        ratios = statistics.median(math.exp(abs(math.log(1 + one.error))) for one in known if one.error is not None)
        out.print(
            f"{len(errors)} of {len(found)} predicted and measured: error {statistics.median(errors):.0%} in the "
            f"median, {max(errors):.0%} at most; off by a factor of {ratios:.2f} in the median"
        )
