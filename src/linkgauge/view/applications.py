"""Where the time of applications goes: a table of `linkgauge show`, at the end of a run, and of the list of them."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from linkgauge.apps.catalogue import label
from linkgauge.stats.step_times import KINDS, RankSteps, busiest, step_times
from linkgauge.view.charts_apps import KIND_WORDS, identity_of, measured, way_of
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import size_text, time_text

_NAMED = 3


def application_tables(results: Results) -> list[RenderableType]:
    """Return the table of applications, a row a case: its time, and of the rank that waits least for others how much of
    it went into which kind of step. None where the run has no application."""
    rows = measured(results.rows)
    if not rows:
        return []
    told = step_times(results.run)
    table = Table(title="applications: an iteration, and where its busiest rank's time went", title_justify="left",
                  title_style="bold", box=None, pad_edge=False, header_style="bold")  # fmt: skip
    for name in ("application", "ranks", "by", "time", "a rank sends", "where"):
        table.add_column(name, overflow="fold", no_wrap=name in ("ranks", "time"),
                         justify="right" if name in ("ranks", "time") else "left")  # fmt: skip
    for row in sorted(rows, key=lambda row: (label(row["app"]), len(row["devices"]), row["median_ns"])):
        ranks = told.get(identity_of(row), [])
        one = busiest(ranks)
        where = "" if one is None else _shares(one)
        table.add_row(Text(label(row["app"])), str(len(row["devices"])), Text(way_of(results, row)),
                      time_text(row["median_ns"]), _sent(ranks), where)  # fmt: skip
    return [table]


def applications_told(results: Results) -> list[str]:
    """Return the applications of a run in words, each by what was quickest; of more than a few how many there are."""
    quickest: dict[tuple[str, int], Row] = {}
    for row in measured(results.rows):
        key = label(row["app"]), len(row["devices"])
        if key not in quickest or row["median_ns"] < quickest[key]["median_ns"]:
            quickest[key] = row
    if not 0 < len(quickest) <= _NAMED:
        return [f"{len(quickest)} applications measured"] if quickest else []
    told = [f"{name} {time_text(row['median_ns'])} by {way_of(results, row)}" for (name, _), row in quickest.items()]
    return [", ".join(told)]


def _shares(one: RankSteps) -> str:
    """Return the kinds with a percent of the time or more, the longest first."""
    total = one.total_ns
    kinds = sorted((kind for kind in KINDS if one.ns.get(kind, 0) >= total / 100 > 0), key=lambda kind: -one.ns[kind])
    return ", ".join(f"{KIND_WORDS.get(kind, kind)} {100 * one.ns[kind] / total:.0f} %" for kind in kinds)


def _sent(ranks: list[RankSteps]) -> str:
    """Return messages and bytes of the rank that sends most."""
    most = max(ranks, key=lambda one: one.bytes.get("sent", 0), default=None)
    if most is None or not most.counts.get("sent"):
        return "-"
    return f"{most.counts['sent']} of {size_text(most.bytes['sent'] // most.counts['sent'])}"
