"""Whether other people's bars fit the machines that they are for: impossible, too high, toothless or about right.

A bar above what the links allow is impossible: no machine passes. One above the lowest healthy measurement that is
known is too high: a healthy machine fails, whichever end starts its copies and whoever measured it. One that a machine
with a dead link passes is toothless. Only measured shares count, since bars of others prove nothing about each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from linkgauge.errors import UsageError
from linkgauge.expect import limits
from linkgauge.findings.nominal import nominal
from linkgauge.model.bar import BUS, PORT, Bar
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import percent
from linkgauge.system import catalog
from linkgauge.system.model import System, is_fabric, lowest_healthy

Fit = Literal["impossible", "too high", "toothless", "about right", "unknown"]
FITS: dict[Fit, str] = {
    "impossible": "above what the links allow: no machine passes",
    "too high": "above the lowest healthy measurement that is known: a healthy machine fails",
    "toothless": "a machine with a dead link passes",
    "about right": "healthy machines pass, and none with a dead link",
    "unknown": "no limit, or no measurement, is known to compare with",
}
_LARGE = 16 << 30
_ROUNDING = 1e-3
_MEMORY_LEFT = 0.75  # no link of a memory dies alone; a bar that lets a quarter of its rate be lost catches nothing
_PORT_RATE, _PORT_MEASURED = 50e9, 0.982  # ib_write_bw on eight ports of 400 Gb/s: 392.82 Gb/s at the least
_PORT_SOURCE = "AlizeeChen11/azurehpc-health-checks, customTests/debugging-test-failure.md"
_HALF = 0.5  # a host link that lost lanes, a NIC's port that trained lower


@dataclasses.dataclass(frozen=True)
class JudgedBar:
    """A bar and whether it fits; rates in B/s of the bar's own quantity, None where they are not known.

    `limit`: what the links allow, `rule` by which rule of which inputs. `usual`: the lowest healthy measurement,
    `usual_source` of whom. `broken`: the most that a machine with a dead link reaches of the usual.
    """

    bar: Bar
    fit: Fit
    why: str
    limit: float | None = None
    rule: str = ""
    usual: float | None = None
    usual_source: str = ""
    broken: float | None = None


def judge_bar(bar: Bar, system_name: str = "") -> JudgedBar:
    """Judge a bar by the machine that its file names, else by the named one. UsageError for an unknown one."""
    name = bar.system or system_name
    if bar.unread:
        return JudgedBar(bar, "unknown", bar.unread)
    if not name:
        return JudgedBar(bar, "unknown", "no described system is known for it: name one with --system")
    system = catalog.load(name)
    if bar.quantity == PORT:
        return _port(bar, system)
    traits = PATTERNS[bar.pattern]
    ranks = bar.ranks or (len(system.devices) if traits.collective else 2 if traits.pair else 1)
    if ranks > len(system.devices):
        return JudgedBar(bar, "unknown", f"{system.name} has {len(system.devices)} devices, and the bar is of {ranks}")
    factor = float(traits.bus_factor(ranks * bar.nodes)) if bar.quantity == BUS else 1.0
    size = bar.size or _LARGE
    block = size // (ranks * bar.nodes) if bar.pattern == "alltoall" else size
    found = nominal(system, bar.transport, bar.pattern, ranks, block, nodes=bar.nodes)
    if found is None:
        between = f" between {bar.nodes} nodes" if bar.nodes > 1 else ""
        return JudgedBar(bar, "unknown", f"the description of {system.name} sets no limit{between}")
    kind, limit, rule = found
    usual, source = _usual(system, bar, ranks, block, kind, limit)
    usual = None if usual is None else usual * factor
    return _judged(bar, limit * factor, rule, _left(system, bar), usual, source)


def _judged(bar: Bar, limit: float, rule: str, left: float, usual: float | None, source: str) -> JudgedBar:
    allowed = f"the links allow {_rate(bar, limit)} ({rule})"
    broken = None if usual is None else usual * left
    made = JudgedBar(bar, "unknown", "", limit, rule, usual, source, broken)
    if bar.value > limit * (1 + _ROUNDING):
        return dataclasses.replace(made, fit="impossible", why=allowed)
    if usual is None:
        return dataclasses.replace(
            made, why=f"{percent(bar.value / limit)} of what {allowed}; no measurement of this class is known"
        )
    measured = f"{_rate(bar, usual)} was measured on a healthy machine ({source})"
    if bar.value > usual * (1 + _ROUNDING):
        return dataclasses.replace(made, fit="too high", why=measured)
    dead = f"with a dead link {_rate(bar, usual * left)} is left"
    if bar.value <= usual * left:
        return dataclasses.replace(made, fit="toothless", why=f"{measured}; {dead}")
    return dataclasses.replace(made, fit="about right", why=f"{measured}; {dead}")


def _rate(bar: Bar, value: float) -> str:
    return f"{value * 8 / 1e9:.3g} Gb/s" if bar.quantity == PORT else f"{value / 1e9:.3g} GB/s"


def _left(system: System, bar: Bar) -> float:
    """What share a machine keeps with a link of the first device dead, or a NIC: all carry as much of a collective."""
    traits = PATTERNS[bar.pattern]
    if traits.within_device:
        return _MEMORY_LEFT
    if len(traits.host_ways) == 1:
        return _HALF
    if bar.nodes > 1:
        ports = sum(1 for _ in system.of_kind("nic"))
        return 1 - 1 / ports if ports > 1 else _HALF
    first, kinds = system.devices[0].name, system.kinds
    own = [link for link in system.links_of(first) if is_fabric(link, kinds)]
    if traits.pair and (between := [link for link in own if link.other(first) == system.devices[1].name]):
        own = between
    return 1 - 1 / max(1, sum(link.count for link in own))


def _usual(system: System, bar: Bar, ranks: int, size: int, kind: str, limit: float) -> tuple[float | None, str]:
    """The lowest healthy measurement of this class that a share is known of, as goodput in B/s, and whose it is."""
    entry = lowest_healthy(
        one
        for one in system.accepted
        for end in ("sender", "receiver")
        if one.fits(bar.transport, bar.pattern, size, ranks, nodes=bar.nodes, initiator=end)
        and (one.pattern == bar.pattern if PATTERNS[bar.pattern].collective else one.kind == kind)
    )
    if entry is not None:
        return limit * entry.share.value, entry.share.source
    if bar.nodes > 1:
        return None, ""
    case = {"pattern": bar.pattern, "transport": bar.transport, "devices": range(ranks), "size": size}
    typical = next((one for one in limits(system, case) if one.rule == "allreduce_nvls_typical"), None)
    return (None, "") if typical is None else (typical.value_bytes_per_s, f"rule {typical.rule}")


def _port(bar: Bar, system: System) -> JudgedBar:
    rates = [nic.port_rate.value for nic in system.of_kind("nic") if nic.port_rate is not None]
    if not rates:
        return JudgedBar(bar, "unknown", f"the description of {system.name} has no rate of a NIC's port")
    rate = min(rates)
    usual = (rate * _PORT_MEASURED, _PORT_SOURCE) if rate == _PORT_RATE else (None, "")
    return _judged(bar, rate, f"port of a NIC, {_rate(bar, rate)}", _HALF, *usual)


def judge_bars(bars: Sequence[Bar], system_name: str = "") -> list[JudgedBar]:
    """Judge all bars, in their order; UsageError where there is none."""
    if not bars:
        raise UsageError("the file states no bar of a bandwidth")
    return [judge_bar(bar, system_name) for bar in bars]
