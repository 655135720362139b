"""A system as text for the terminal, and as SVG with devices where the node's figure shows them.

The SVG is written by hand: a box for each node, a line for each bundle, its color the kind of link and its width the
bundle's rate. It needs nothing but this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape

from linkgauge.errors import one_line
from linkgauge.model.grouped import grouped
from linkgauge.system.graph import Graph
from linkgauge.system.model import FABRIC_KINDS, Link, Node, System, rates_of
from linkgauge.system.units import show_rate

_CELL = 120
_BOX = (92, 44)
_MARGIN = 80
_NODE_COLORS = {"device": "#e3efda", "host": "#dce6f5", "switch": "#f6e8cf", "nic": "#eee1f2"}
_LINK_COLORS = {
    "nvlink": "#4d8c16",
    "sli": "#4d8c16",
    "xgmi": "#c2410c",
    "roce": "#b45309",
    "infinity_fabric": "#d97757",
    "pcie": "#3b6fb5",
    "c2c": "#0f766e",
    "upi": "#7c3aed",
    "xbus": "#7c3aed",
    "memory": "#6b7280",
    "internal": "#9ca3af",
}
# More links of one kind than this and their labels would hide each other; the legend states the bundles instead.
_MOST_LABELS = 28
_MOST_CROSSING = 8
# More links than this in all and lines are drawn thin.
_DENSE = 60


def _said(text: str) -> str:
    """Return a description's text for SVG; control characters, which no XML may hold, by number."""
    return escape(one_line(text))


def places(system: System) -> dict[str, tuple[float, float]]:
    """Return where each node is drawn: as described, and in rows by kind for those without a place."""
    known = {node.name: node.at for node in system.nodes if node.at is not None}
    rows: dict[str, list[str]] = {"switch": [], "device": [], "host": [], "nic": []}
    for node in system.nodes:
        if node.at is None:
            pcie = node.kind == "switch" and node.model == "PCIe switch"
            rows.setdefault("pcie" if pcie else node.kind, []).append(node.name)
    start = max((y for _, y in known.values()), default=-1.0) + 1.3
    widest = max((len(row) for row in rows.values()), default=1)
    # Fabric above devices, what leads to hosts below; NICs between the lines that go down from devices.
    for kind in ("switch", "device", "nic", "pcie", "host"):
        row = rows.get(kind, [])
        for number, name in enumerate(row):
            known[name] = ((number + (1.0 if kind == "nic" else 0.5)) * widest / len(row), start)
        start += 1.3 if row else 0.0
    return known


def svg(system: System) -> str:
    """Return the system as an SVG document."""
    at = places(system)
    left, top = min(x for x, _ in at.values()), min(y for _, y in at.values())
    right, bottom = max(x for x, _ in at.values()), max(y for _, y in at.values())

    def point(name: str) -> tuple[float, float]:
        x, y = at[name]
        return (x - left) * _CELL + _MARGIN, (y - top) * _CELL + _MARGIN + 34

    drawn = [link for link in system.links if link.kind != "internal"]
    kinds = list(dict.fromkeys(link.kind for link in drawn))
    legend_height = 24 * (len(kinds) + 1)
    width = max((right - left) * _CELL + 2 * _MARGIN, 560)
    height = (bottom - top) * _CELL + 2 * _MARGIN + 34 + legend_height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">',
        f"<title>{_said(system.title)}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        f'<text x="16" y="26" font-size="16" font-weight="bold">{_said(system.title)}</text>',
    ]
    most = max((link.rate(link.a) or 0.0 for link in drawn), default=0.0)
    thickest = 10.0 if len(drawn) <= _DENSE else 3.0
    labels = []
    for number, link in enumerate(drawn):
        # Labels of neighboring lines are staggered, and off the middle, where diagonals cross.
        line, label = _line(link, point(link.a), point(link.b), most, thickest, (0.38, 0.26, 0.32)[number % 3])
        parts.append(line)
        alike = sum(other.kind == link.kind for other in drawn)
        crossing = link.kind in FABRIC_KINDS and "switch" in (system.kinds[link.a], system.kinds[link.b])
        if alike <= (_MOST_CROSSING if crossing else _MOST_LABELS):
            labels.append(label)
    parts.extend(labels)
    parts.extend(_box(node, point(node.name)) for node in system.nodes)
    parts.extend(_legend(drawn, kinds, height - legend_height))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _width(rate: float | None, most: float, thickest: float) -> float:
    """Return a line's width by the root of its rate, so that a quarter of the rate is half as wide."""
    least = min(1.5, thickest / 3)
    return least if not rate or not most else max(least, thickest * math.sqrt(rate / most))


def _line(
    link: Link, a: tuple[float, float], b: tuple[float, float], most: float, thickest: float, along: float
) -> tuple[str, str]:
    rate = link.rate(link.a)
    color = _LINK_COLORS.get(link.kind, "#444444")
    dash = "" if rate else ' stroke-dasharray="5 4"'
    line = (
        f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{color}" '
        f'stroke-width="{_width(rate, most, thickest):.1f}" stroke-opacity="0.75"{dash}/>'
    )
    if rate is None:
        return line, ""
    words = f"{link.count} x {_short(rate / link.count)}" if link.count > 1 else _short(rate)
    x, y = a[0] + along * (b[0] - a[0]), a[1] + along * (b[1] - a[1])
    half = 3.1 * len(words) + 3
    label = (
        f'<rect x="{x - half:.1f}" y="{y - 8:.1f}" width="{2 * half:.1f}" height="15" rx="3" fill="white" '
        f'fill-opacity="0.85"/><text x="{x:.1f}" y="{y + 3.5:.1f}" font-size="11" text-anchor="middle" '
        f'fill="{color}">{words}</text>'
    )
    return line, label


def _short(rate: float) -> str:
    return f"{rate / 1e9:.4g}"


def _box(node: Node, at: tuple[float, float]) -> str:
    width, height = _BOX
    x, y = at[0] - width / 2, at[1] - height / 2
    # Below the name, what is known: a device's model, a NIC's rate; cut where the box ends.
    detail = _short(node.port_rate.value) + " GB/s" if node.port_rate else node.model or ""
    name = node.name if len(node.name) <= 15 else node.name.removeprefix("pcie ")
    text = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width}" height="{height}" rx="6" '
        f'fill="{_NODE_COLORS[node.kind]}" stroke="#333333" stroke-width="1"/>',
        f'<text x="{at[0]:.1f}" y="{at[1] - 2:.1f}" font-size="13" text-anchor="middle" font-weight="bold">'
        f"{_said(name)}</text>",
    ]
    if detail:
        cut = detail if len(detail) <= 16 else detail[:15] + "…"
        text.append(
            f'<text x="{at[0]:.1f}" y="{at[1] + 14:.1f}" font-size="10" text-anchor="middle" fill="#444444">'
            f"{_said(cut)}</text>"
        )
    return "".join(text)


def _legend(links: list[Link], kinds: list[str], top: float) -> Iterable[str]:
    yield f'<text x="16" y="{top:.0f}" font-size="12" fill="#444444">GB/s in one direction; dashed: rate unknown</text>'
    for number, kind in enumerate(kinds, start=1):
        y = top + 22 * number
        bundles = {
            rate: f"{link.count} x {_short(rate / link.count)}" if link.count > 1 else _short(rate)
            for link in links
            if link.kind == kind and (rate := link.rate(link.a))
        }
        ends = ", ".join(bundles[rate] for rate in sorted(bundles)) or "rate unknown"
        yield (
            f'<line x1="16" y1="{y - 4:.0f}" x2="56" y2="{y - 4:.0f}" stroke="{_LINK_COLORS.get(kind, "#444444")}" '
            f'stroke-width="4"/><text x="66" y="{y:.0f}" font-size="12">{escape(kind)}: {ends}</text>'
        )


def matrix(system: System, unit: str = "GB/s") -> list[list[str]]:
    """Return what joins each device to each other: links and their rate directly, `switch` and a rate, or the way.

    A cell is one of: `-` (itself), `4 xgmi 200`, `switch 450` (least of both ends' rate to switches), `2 hops` (over
    devices that pass traffic on in hardware), or `host` (none of these: by way of the host).
    """
    devices = system.devices
    by_pair = grouped((frozenset((link.a, link.b)), link) for link in system.links)
    ports = {
        d.name: sum(
            link.rate(d.name) or 0.0
            for link in system.links_of(d.name)
            if link.kind in FABRIC_KINDS and system.kinds[link.other(d.name)] == "switch"
        )
        for d in devices
    }
    # Over devices, switches or whatever else says that it passes traffic on.
    wires = Graph(rates_of(link for link in system.links if link.kind in FABRIC_KINDS))
    routed = wires.through(frozenset(node.name for node in system.nodes if node.routes))
    hops = {d.name: routed.hops(d.name) for d in devices}
    return [[_cell(by_pair, ports, hops, a.name, b.name, unit) for b in devices] for a in devices]


def _cell(
    by_pair: Mapping[frozenset[str], list[Link]],
    ports: Mapping[str, float],
    hops: Mapping[str, Mapping[str, int]],
    a: str,
    b: str,
    unit: str,
) -> str:
    if a == b:
        return "-"
    direct = by_pair.get(frozenset((a, b)))
    if direct:
        rates = [link.rate(a) for link in direct]
        total = None if any(rate is None for rate in rates) else sum(rate for rate in rates if rate is not None)
        count = sum(link.count for link in direct)
        shown = "?" if total is None else show_rate(total, unit).split()[0]
        return f"{count} {direct[0].kind} {shown}"
    if ports[a] and ports[b]:
        return f"switch {show_rate(min(ports[a], ports[b]), unit).split()[0]}"
    return f"{hops[a][b]} hops" if b in hops[a] else "host"
