"""What cases lose beside their loads, and what these lose: the table of `linkgauge show` and at the end of a run."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from linkgauge.stats.interference import LEAST_WINDOWS, Interference, SlowDown
from linkgauge.view.units import digits, time_text


def interference_table(found: list[Interference], titles: dict[tuple[str, int, int, int], str]) -> Table | None:
    """Return the slow-downs, a row a case, or None without any. `titles`: what each case is, by its row identity."""
    if not found:
        return None
    tails = sorted({one.quantile for each in found for one in each.slow_downs[1:]})
    table = Table(title="beside loads: time over time alone, by turns", title_justify="left", title_style="bold",
                  box=None, pad_edge=False, header_style="bold")  # fmt: skip
    table.add_column("case", overflow="fold", ratio=1)
    for name in ("alone", "beside", "slow-down", "95 % interval", *(f"p{q * 100:.0f}" for q in tails), "load keeps"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        middle = one.slow_downs[0]
        at = {slow.quantile: slow for slow in one.slow_downs}
        kept = [f"{100 * load.kept:.0f} %" for load in one.loads if load.kept is not None]
        table.add_row(
            Text(titles[one.identity]),
            time_text(one.alone_ns),
            time_text(one.beside_ns),
            _factor(middle.factor),
            _interval(middle) or f"{one.windows} of {LEAST_WINDOWS} windows",
            *(_factor(at[q].factor) if q in at else "-" for q in tails),
            ", ".join(kept) or "-",
        )
    return table


def _factor(value: float) -> str:
    return f"{digits(value)}x"


def _interval(slow: SlowDown) -> str:
    return "" if slow.interval is None else " to ".join(digits(end) for end in slow.interval)
