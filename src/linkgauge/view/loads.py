"""What cases lose beside their loads, and what these lose: the table of `show`, of a run's end and of the report."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from linkgauge.errors import LinkgaugeError
from linkgauge.expect.network import Network
from linkgauge.expect.of_run import system_of_run
from linkgauge.expect.sharing import FairShare, part_words, share_of
from linkgauge.stats.interference import LEAST_WINDOWS, SlowDown, interferences
from linkgauge.store.schema import IDENTITY
from linkgauge.system.model import System
from linkgauge.view.results import Results
from linkgauge.view.units import digits, time_text


def interference_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return the columns and a row for each case with loads: its slow-downs, and what fair shares explain of them.

    Both are empty where no case has any.
    """
    titles = {tuple(row[name] for name in IDENTITY): results.words(row) for row in results.rows if row["beside"]}
    found = [one for one in interferences(results.run) if one.identity in titles] if titles else []
    if not found:
        return [], []
    system, network = _system_of(results), Network.of_run(results.run)
    fair = {one.identity: _fair(share_of(system, one, network)) for one in found}
    tails = sorted({one.quantile for each in found for one in each.slow_downs[1:]})
    columns = ["case", "alone", "beside", "slow-down", "95 % interval", "mean", *(f"p{q * 100:.0f}" for q in tails),
               "load keeps", *(["by fair shares"] if any(fair.values()) else [])]  # fmt: skip
    rows = []
    for one in sorted(found, key=lambda one: titles[one.identity]):
        middle = one.slow_downs[0]
        at = {slow.quantile: slow for slow in one.slow_downs}
        kept = [f"{100 * load.kept:.0f} %" for load in one.loads if load.kept is not None]
        rows.append(
            [
                titles[one.identity],
                time_text(one.alone_ns),
                time_text(one.beside_ns),
                _factor(middle.factor),
                _interval(middle) or f"{one.windows} of {LEAST_WINDOWS} windows",
                _factor(one.of_means),
                *(_factor(at[q].factor) if q in at else "-" for q in tails),
                ", ".join(kept) or "-",
                *([fair[one.identity] or "not known"] if any(fair.values()) else []),
            ]
        )
    return columns, rows


def interference_lines(results: Results) -> list[RenderableType]:
    """Return what cases lose beside their loads, a case and its figures below it; none where no case has any.

    A case with its loads is too long for a column beside so many figures.
    """
    columns, rows = interference_rows(results)
    if not rows:
        return []
    lines = [Text("beside loads: time over time alone, by turns", style="bold")]
    for case, alone, beside, factor, interval, *others in rows:
        rest = ", ".join(f"{name} {value}" for name, value in zip(columns[5:], others, strict=True) if value != "-")
        lines += [Text(case), Text(f"  {alone} alone, {beside} beside: {factor} ({interval}); {rest}")]
    return [Group(*lines)]


def _system_of(results: Results) -> System | None:
    try:
        return system_of_run(results.run)
    except LinkgaugeError:
        return None


def _fair(share: FairShare | None) -> str:
    """Return the slow-down that sharing a link or a memory explains, and which; empty where it is not known."""
    if share is None:
        return ""
    ends = dict.fromkeys(_factor(value) for value in (share.low, share.high))
    beside = f", {part_words(share.unknown)} not known" if share.unknown else ""
    return f"{' to '.join(ends)}{f', {share.words}{share.by_weights}' if share.part else ''}{beside}"


def _factor(value: float) -> str:
    return f"{digits(value)}x"


def _interval(slow: SlowDown) -> str:
    return "" if slow.interval is None else " to ".join(digits(end) for end in slow.interval)
