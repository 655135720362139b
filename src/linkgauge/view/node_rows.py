"""The picture of a node whose devices have no links to each other: rows of them between the switch and their hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from linkgauge.view.alike import short_name
from linkgauge.view.node_marks import BOX, KINDS, box, chips, colour_class, labels, said
from linkgauge.view.reached import NodeRates, Reached
from linkgauge.view.units import rate_text

if TYPE_CHECKING:
    from linkgauge.system.model import System

_CELL = 120
_PORT, _HOST, _BAR = 76, 70, 26


def rows(system: System, node: NodeRates, unit: str) -> tuple[float, float, list[str]]:
    """Draw devices in one row, or from five on in two, between the switch and their hosts."""
    names = system.names_by_ordinal
    hosts = {ordinal: (system.nearest(name, "host", over_fabric=False) or ("",))[0] for ordinal, name in names.items()}
    order = sorted(names, key=lambda ordinal: (list(hosts.values()).index(hosts[ordinal]), ordinal))
    columns = len(order) if len(order) <= 4 else (len(order) + 1) // 2
    lines = [order[:columns], order[columns:]] if len(order) > columns else [order]
    width = columns * _CELL + 8.0
    fabric = _PORT if node.ports else 0
    below = _HOST + _BAR if any(node.host_kinds.values()) else 0
    depth = fabric + BOX[1] + below
    bar = _BAR if fabric else (14 if len(lines) > 1 else 0)
    top = depth + 2 if len(lines) > 1 else 2
    parts = []
    if fabric:
        parts.append(_bar(4, top, width - 8, _switch_words(system, node, unit)))
    for number, row in enumerate(lines):
        up = len(lines) > 1 and number == 0

        def at(distance: float, up: bool = up) -> float:
            """Return where something so far from the switch's edge is."""
            return top - distance if up else top + bar + distance

        parts.extend(_one_row(system, node, unit, row, hosts, at, fabric))
    return width, 4 + bar + depth * len(lines), parts


def _one_row(
    system: System, node: NodeRates, unit: str, row: Sequence[int], hosts: dict[int, str],
    at: Callable[[float], float], fabric: float,
) -> Iterator[str]:  # fmt: skip
    names = system.names_by_ordinal
    for place, ordinal in enumerate(row):
        x, name = 4 + (place + 0.5) * _CELL, names[ordinal]
        model = short_name(system.node(name).model or "")
        if ordinal in node.ports:
            out, into = node.ports[ordinal]
            yield _arrow(x - 10, at(fabric), at(0), out, f"{name} to the switch", unit, True)
            yield _arrow(x + 10, at(0), at(fabric), into, f"the switch to {name}", unit, False)
        edge = fabric + BOX[1]
        yield box(x, at(fabric + BOX[1] / 2), name, model)
        if node.host_kinds.get(ordinal):
            out, into = node.host[ordinal]
            yield _arrow(x - 10, at(edge), at(edge + _HOST), out, f"{name} to host", unit, True)
            yield _arrow(x + 10, at(edge + _HOST), at(edge), into, f"host to {name}", unit, False)
    begin = 0
    while begin < len(row):
        end = begin
        while end < len(row) and hosts[row[end]] == hosts[row[begin]]:
            end += 1
        host = hosts[row[begin]]
        if host and node.host_kinds.get(row[begin]):
            y = at(fabric + BOX[1] + _HOST)
            y = min(y, y - _BAR) if at(1) < at(0) else y
            words = _host_words(system, node, unit, host, row[begin])
            yield _bar(4 + begin * _CELL + 3, y, (end - begin) * _CELL - 6, words)
        begin = end


def _arrow(x: float, start: float, end: float, one: Reached, name: str, unit: str, left: bool) -> str:
    """Return a vertical line from `start` to `end` with a head there, and its figures on its outer side."""
    rate, share = labels(one, unit)
    way = 1 if end > start else -1
    middle = (start + end) / 2
    at, anchor = (x - 10, "end") if left else (x + 10, "start")
    odd = " odd" if one.apart else ""
    head = f"{x - 8:.1f},{end - way * 11:.1f} {x + 8:.1f},{end - way * 11:.1f} {x:.1f},{end:.1f}"
    return (
        f'<g class="{colour_class(one.share)}{odd}"><title>{escape(name)}: {escape(said(one, unit))}</title>'
        f'<line x1="{x:.1f}" y1="{start:.1f}" x2="{x:.1f}" y2="{end - way * 10:.1f}"/><polygon points="{head}"/></g>'
        f'<text class="rate{odd}" x="{at:.1f}" y="{middle - 1:.1f}" text-anchor="{anchor}">{escape(rate)}</text>'
        f'<text class="share{odd}" x="{at:.1f}" y="{middle + 13:.1f}" text-anchor="{anchor}">{escape(share)}</text>'
    )


def _bar(x: float, y: float, width: float, words: Sequence[str]) -> str:
    """Return a bar for a switch or host with the longest of `words` that fits in."""
    fits = [text for text in words if 6.6 * len(text) <= width - 8]
    text = max(fits, key=len, default=min(words, key=len))
    return (
        f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}" rx="5"/>'
        f'<text class="barname" x="{x + width / 2:.1f}" y="{y + 17:.1f}">{escape(text)}</text>'
    )


def _switch_words(system: System, node: NodeRates, unit: str) -> list[str]:
    """Return what is said in the switch's bar, from short to long."""
    switches = [one for one in system.of_kind("switch") if one.model != "PCIe switch"]
    model = next((one.model for one in switches if one.model), "switch")
    limits = {round(one.limit) for ends in node.ports.values() for one in ends if one.limit}
    rate = f"{rate_text(limits.pop(), unit)} {unit} a port each way" if len(limits) == 1 else ""
    return [model, f"{model}: {rate}"] if rate else [model]


def _host_words(system: System, node: NodeRates, unit: str, host: str, ordinal: int) -> list[str]:
    model = system.node(host).model or ""
    kind = KINDS.get(node.host_kinds[ordinal], node.host_kinds[ordinal])
    limit = node.host[ordinal][0].limit
    rate = f"{kind} {rate_text(limit, unit)} {unit}" if limit else kind
    whole = f"{host}, {model}" if model else host
    return [host, f"{host}: {rate}", f"{whole}: {rate} each way" if limit else f"{whole}: {rate}"]


def tiles(system: System, node: NodeRates, unit: str) -> tuple[float, float, list[str]]:
    """Draw many devices as tiles of eight a row, their figures inside."""
    names = system.names_by_ordinal
    wide, high = 124.0, 74.0
    parts = []
    for place, (ordinal, name) in enumerate(sorted(names.items())):
        x, y = place % 8 * wide + 4, place // 8 * high + 4
        parts.append(f'<rect class="box" x="{x}" y="{y}" width="{wide - 8}" height="{high - 8}" rx="6"/>')
        parts.append(f'<text class="name" x="{x + wide / 2 - 4}" y="{y + 16}">{escape(name)}</text>')
        lines = [("port", node.ports[ordinal])] if ordinal in node.ports else []
        lines += [("host", node.host[ordinal])] if node.host_kinds.get(ordinal) else []
        for line, (word, ends) in enumerate(lines):
            parts.append(chips(x + 6, y + 24 + 20 * line, word, ends, unit))
    rows = (len(names) + 7) // 8
    return min(len(names), 8) * wide + 4, rows * high + 4, parts
