"""Where the time of applications goes: a table of `linkgauge show`, at the end of a run, and of the list of them."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from linkgauge.apps.catalogue import label
from linkgauge.model.patterns import PATTERNS
from linkgauge.stats.step_times import KINDS, RankSteps, step_times
from linkgauge.store.schema import IDENTITY
from linkgauge.view.results import Results
from linkgauge.view.row import Row
from linkgauge.view.units import size_text, time_text

_NAMED = 3
_WORDS = {"host_to_device": "to device", "device_to_host": "to host", "within_device": "within device"}


def application_tables(results: Results) -> list[RenderableType]:
    """Return the table of applications, a row a case: its time, and of the rank that waits least for others how much of
    it went into which kind of step. None where the run has no application."""
    rows = _measured(results)
    if not rows:
        return []
    told = step_times(results.run)
    of_row = {id(row): told.get(tuple(row[name] for name in IDENTITY), []) for row in rows}
    table = Table(title="applications: an iteration, and where its busiest rank's time went", title_justify="left",
                  title_style="bold", box=None, pad_edge=False, header_style="bold")  # fmt: skip
    for name in ("application", "ranks", "by", "time", "a rank sends", "where"):
        table.add_column(name, overflow="fold", no_wrap=name in ("ranks", "time"),
                         justify="right" if name in ("ranks", "time") else "left")  # fmt: skip
    for row in sorted(rows, key=lambda row: (label(row["app"]), len(row["devices"]), row["median_ns"])):
        ranks = of_row[id(row)]
        busiest = max(ranks, key=_own, default=None)
        where = "" if busiest is None else _shares(busiest)
        table.add_row(Text(label(row["app"])), str(len(row["devices"])), Text(results.label(row)),
                      time_text(row["median_ns"]), _sent(ranks), where)  # fmt: skip
    return [table]


def applications_told(results: Results) -> list[str]:
    """Return the applications of a run in words, each by what was quickest; of more than a few how many there are."""
    quickest: dict[tuple[str, int], Row] = {}
    for row in _measured(results):
        key = label(row["app"]), len(row["devices"])
        if key not in quickest or row["median_ns"] < quickest[key]["median_ns"]:
            quickest[key] = row
    if not 0 < len(quickest) <= _NAMED:
        return [f"{len(quickest)} applications measured"] if quickest else []
    told = [f"{name} {time_text(row['median_ns'])} by {results.label(row)}" for (name, _), row in quickest.items()]
    return [", ".join(told)]


def _measured(results: Results) -> list[Row]:
    return [row for row in results.rows if PATTERNS[row["pattern"]].scripted and row["median_ns"] is not None]


def _own(one: RankSteps) -> float:
    """Return a rank's time but for what it may have waited for others."""
    return sum(ns for kind, ns in one.ns.items() if kind not in ("message", "collective", "barrier"))


def _shares(one: RankSteps) -> str:
    """Return the kinds with a percent of the time or more, the longest first."""
    total = sum(one.ns.values())
    kinds = sorted((kind for kind in KINDS if one.ns.get(kind, 0) >= total / 100 > 0), key=lambda kind: -one.ns[kind])
    return ", ".join(f"{_WORDS.get(kind, kind)} {100 * one.ns[kind] / total:.0f} %" for kind in kinds)


def _sent(ranks: list[RankSteps]) -> str:
    """Return messages and bytes of the rank that sends most."""
    most = max(ranks, key=lambda one: one.bytes.get("sent", 0), default=None)
    if most is None or not most.counts.get("sent"):
        return "-"
    return f"{most.counts['sent']} of {size_text(most.bytes['sent'] // most.counts['sent'])}"
