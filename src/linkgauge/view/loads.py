"""What cases lose beside their loads, and what these lose: the table of `linkgauge show` and at the end of a run."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from linkgauge.expect.network import Network
from linkgauge.expect.sharing import FairShare, part_words, share_of
from linkgauge.stats.interference import LEAST_WINDOWS, Interference, SlowDown
from linkgauge.system.model import System
from linkgauge.view.units import digits, time_text


def interference_table(
    found: list[Interference],
    titles: dict[tuple[str, int, int, int], str],
    system: System | None = None,
    network: Network | None = None,
) -> Table | None:
    """Return the slow-downs, a row a case, or None without any. `titles`: what each case is, by its row identity.

    With the `system` that it ran on, or the `network` between nodes, what fair shares of links and memories explain.
    """
    if not found:
        return None
    tails = sorted({one.quantile for each in found for one in each.slow_downs[1:]})
    table = Table(title="beside loads: time over time alone, by turns", title_justify="left", title_style="bold",
                  box=None, pad_edge=False, header_style="bold")  # fmt: skip
    table.add_column("case", overflow="fold", ratio=1)
    fair = {one.identity: _fair(share_of(system, one, network)) for one in found}
    names = ["alone", "beside", "slow-down", "95 % interval", "mean", *(f"p{q * 100:.0f}" for q in tails), "load keeps"]
    for name in [*names, *(["by fair shares"] if any(fair.values()) else [])]:
        table.add_column(name, justify="right", no_wrap=name != "by fair shares")
    for one in sorted(found, key=lambda one: titles[one.identity]):
        middle = one.slow_downs[0]
        at = {slow.quantile: slow for slow in one.slow_downs}
        kept = [f"{100 * load.kept:.0f} %" for load in one.loads if load.kept is not None]
        table.add_row(
            Text(titles[one.identity]),
            time_text(one.alone_ns),
            time_text(one.beside_ns),
            _factor(middle.factor),
            _interval(middle) or f"{one.windows} of {LEAST_WINDOWS} windows",
            _factor(one.of_means),
            *(_factor(at[q].factor) if q in at else "-" for q in tails),
            ", ".join(kept) or "-",
            *([fair[one.identity] or "not known"] if any(fair.values()) else []),
        )
    return table


def _fair(share: FairShare | None) -> str:
    """Return the slow-down that sharing a link or a memory explains, and which; empty where it is not known."""
    if share is None:
        return ""
    ends = dict.fromkeys(_factor(value) for value in (share.low, share.high))
    beside = f", {part_words(share.unknown)} not known" if share.unknown else ""
    return f"{' to '.join(ends)}{f', {share.words}' if share.part else ''}{beside}"


def _factor(value: float) -> str:
    return f"{digits(value)}x"


def _interval(slow: SlowDown) -> str:
    return "" if slow.interval is None else " to ".join(digits(end) for end in slow.interval)
