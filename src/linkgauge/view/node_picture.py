"""The node as a picture: each port, link and host link colored by the share of its rate that it reached, as SVG.

Written by hand, for the report's page: texts and lines take the page's own colors (`s0` to `s5` by share, `su` where
none is told), so that it is legible in light and dark; figures stand beside every line. Up to 16 devices are drawn, by
their described places where they have links to each other, else in rows between switch and hosts; more are tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from linkgauge.view.alike import short_name
from linkgauge.view.node_words import LINK_WORDS, called, labels, said, texts
from linkgauge.view.reached import Ends, NodeRates, Reached
from linkgauge.view.units import rate_text

if TYPE_CHECKING:
    from linkgauge.system.model import System

STEPS = (0.4, 0.6, 0.7, 0.8, 0.9)
"""Shares at which the color changes: s0 below the first, s5 from the last on."""
_TILE = (94, 40)


def color_class(share: float | None) -> str:
    """Return the class of color of a share: `s0` to `s5`, `su` where there is none."""
    return "su" if share is None else f"s{sum(share >= step for step in STEPS)}"


_LETTER = 7.2
"""Pixels of a letter of a model's name, at most: these names are of capitals and digits."""
_MOST_LETTERS = 20


def _cut(text: str, width: float) -> str:
    """Return as much of a text as a box so wide has room for, with ... where it goes on."""
    room = int((width - 8) / _LETTER)
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def _tile_width(system: System) -> float:
    """Return how wide a box must be for the longest model's name, of very long ones for their beginning."""
    longest = max((len(short_name(one.model or "")) for one in system.devices), default=0)
    return max(_TILE[0], 8 + _LETTER * min(longest, _MOST_LETTERS))


def _box(x: float, y: float, name: str, detail: str, width: float) -> str:
    """Return a device as a box around (x, y), its name above its model."""
    height = _TILE[1]
    return (
        f'<rect class="box" x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height}" '
        f'rx="6"/><text class="name" x="{x:.1f}" y="{y - 2:.1f}">{escape(name)}</text>'
        f'<text class="model" x="{x:.1f}" y="{y + 13:.1f}">{escape(_cut(detail, width))}</text>'
    )


def chips(x: float, y: float, word: str, ends: Ends, unit: str) -> str:
    """Return one line of a tile: what it is of, and both ways' shares (or rates) on their colors."""
    parts = [f'<text class="model start" x="{x:.1f}" y="{y + 12:.1f}">{escape(word)}</text>']
    for place, (one, way) in enumerate(zip(ends, ("out", "in"), strict=True)):
        left = x + 26 + 41 * place
        rate, share = labels(one, unit)
        odd = " odd" if one.apart else ""
        parts.append(
            f'<g class="{color_class(one.share)}{odd}"><title>{escape(word)} {way}: {escape(said(one, unit))}</title>'
            f'<rect class="mark" x="{left:.1f}" y="{y:.1f}" width="4" height="16"/></g>'
            f'<text class="rate start{odd}" x="{left + 6:.1f}" y="{y + 12:.1f}">{escape(share or rate)}</text>'
        )
    return "".join(parts)


_CELL = 120
_PORT, _HOST, _BAR = 76, 70, 26


def rows(system: System, node: NodeRates, unit: str) -> tuple[float, float, list[str]]:
    """Draw devices in one row, or from five on in two, between the switch and their hosts."""
    names = system.names_by_ordinal
    hosts = {ordinal: (system.nearest(name, "host", over_fabric=False) or ("",))[0] for ordinal, name in names.items()}
    order = sorted(names, key=lambda ordinal: (list(hosts.values()).index(hosts[ordinal]), ordinal))
    columns = len(order) if len(order) <= 4 else (len(order) + 1) // 2
    lines = [order[:columns], order[columns:]] if len(order) > columns else [order]
    cell = max(float(_CELL), _tile_width(system) + 16)
    width = columns * cell + 8.0
    fabric = _PORT if node.ports else 0
    below = _HOST + _BAR if any(node.host_kinds.values()) else 0
    depth = fabric + _TILE[1] + below
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

        parts.extend(_one_row(system, node, unit, row, hosts, at, fabric, cell))
    return width, 4 + bar + depth * len(lines), parts


def _one_row(
    system: System, node: NodeRates, unit: str, row: Sequence[int], hosts: dict[int, str],
    at: Callable[[float], float], fabric: float, cell: float,
) -> Iterator[str]:  # fmt: skip
    names = system.names_by_ordinal
    wide = _tile_width(system)
    for place, ordinal in enumerate(row):
        x, name = 4 + (place + 0.5) * cell, names[ordinal]
        model = short_name(system.node(name).model or "")
        if ordinal in node.ports:
            out, into = node.ports[ordinal]
            yield _arrow(x - 10, at(fabric), at(0), out, f"{called(ordinal)} to the switch", unit, True)
            yield _arrow(x + 10, at(0), at(fabric), into, f"the switch to {called(ordinal)}", unit, False)
        edge = fabric + _TILE[1]
        yield _box(x, at(fabric + _TILE[1] / 2), called(ordinal), model, wide)
        if node.host_kinds.get(ordinal):
            out, into = node.host[ordinal]
            yield _arrow(x - 10, at(edge), at(edge + _HOST), out, f"{called(ordinal)} to host", unit, True)
            yield _arrow(x + 10, at(edge + _HOST), at(edge), into, f"host to {called(ordinal)}", unit, False)
    begin = 0
    while begin < len(row):
        end = begin
        while end < len(row) and hosts[row[end]] == hosts[row[begin]]:
            end += 1
        host = hosts[row[begin]]
        if host and node.host_kinds.get(row[begin]):
            y = at(fabric + _TILE[1] + _HOST)
            y = min(y, y - _BAR) if at(1) < at(0) else y
            words = _host_words(system, node, unit, host, row[begin])
            yield _bar(4 + begin * cell + 3, y, (end - begin) * cell - 6, words)
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
        f'<g class="{color_class(one.share)}{odd}"><title>{escape(name)}: {escape(said(one, unit))}</title>'
        f'<line x1="{x:.1f}" y1="{start:.1f}" x2="{x:.1f}" y2="{end - way * 10:.1f}"/><polygon points="{head}"/></g>'
        f'<text class="rate{odd}" x="{at:.1f}" y="{middle - 1:.1f}" text-anchor="{anchor}">{escape(rate)}</text>'
        f'<text class="share{odd}" x="{at:.1f}" y="{middle + 13:.1f}" text-anchor="{anchor}">{escape(share)}</text>'
    )


def _bar(x: float, y: float, width: float, words: Sequence[str]) -> str:
    """Return a bar for a switch or host with the longest of `words` that fits in."""
    fits = [text for text in words if 6.6 * len(text) <= width - 8]
    text = max(fits, key=len, default=_cut(min(words, key=len), width))
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
    kind = LINK_WORDS.get(node.host_kinds[ordinal], node.host_kinds[ordinal])
    limit = node.host[ordinal][0].limit
    rate = f"{kind} {rate_text(limit, unit)} {unit}" if limit else kind
    whole = f"{host}, {model}" if model else host
    return [host, f"{host}: {rate}", f"{whole}: {rate} each way" if limit else f"{whole}: {rate}"]


def tiles(system: System, node: NodeRates, unit: str) -> tuple[float, float, list[str]]:
    """Draw many devices as tiles of eight a row, their figures inside."""
    names = system.names_by_ordinal
    wide, high = 124.0, 74.0
    parts = []
    for place, ordinal in enumerate(sorted(names)):
        x, y = place % 8 * wide + 4, place // 8 * high + 4
        parts.append(f'<rect class="box" x="{x}" y="{y}" width="{wide - 8}" height="{high - 8}" rx="6"/>')
        parts.append(f'<text class="name" x="{x + wide / 2 - 4}" y="{y + 16}">{called(ordinal)}</text>')
        lines = [("port", node.ports[ordinal])] if ordinal in node.ports else []
        lines += [("host", node.host[ordinal])] if node.host_kinds.get(ordinal) else []
        for line, (word, ends) in enumerate(lines):
            parts.append(chips(x + 6, y + 24 + 20 * line, word, ends, unit))
    rows = (len(names) + 7) // 8
    return min(len(names), 8) * wide + 4, rows * high + 4, parts


Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]

_BOX = (126.0, 66.0)
_GAP = (140.0, 54.0)
_ALONG = (0.5, 0.36, 0.64, 0.24, 0.76, 0.14)
_LABEL = (62.0, 15.0)


def graph(system: System, node: NodeRates, unit: str) -> tuple[float, float, list[str]]:
    """Return width, height and parts of the picture: a line a link, each half colored by what leaves that end."""
    at = _placed(system)
    boxes = [_around(point, _BOX) for point in at.values()]
    lines, texts = [], []
    taken: list[Rectangle] = list(boxes)
    thick = 9 if len(node.links) <= 16 else 6
    for (a, b), ends in node.links.items():
        start, end = _edge(at[a], at[b]), _edge(at[b], at[a])
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        for one, source, target, near in ((ends[0], a, b, start), (ends[1], b, a, end)):
            name = f"{called(source)} to {called(target)}"
            lines.append(_half(near, middle, one, name, unit, thick))
            texts.append(_label(near, middle, one, unit, taken))
    for ordinal, (x, y) in at.items():
        lines.append(_device(system, node, ordinal, x, y, unit))
    width = max(x for x, _ in at.values()) + _BOX[0] / 2 + 6
    height = max(y for _, y in at.values()) + _BOX[1] / 2 + 6
    return width, height, lines + texts


def _placed(system: System) -> dict[int, Point]:
    """Return the middle of each device's box: places as described, spread until no boxes touch, else a circle."""
    names = system.names_by_ordinal
    described = {ordinal: system.node(name).at for ordinal, name in names.items()}
    known = {ordinal: at for ordinal, at in described.items() if at is not None}
    if len(known) < len(names) or len(set(known.values())) < len(names):
        count = len(names)
        known = {
            ordinal: (1.25 * math.sin(2 * math.pi * (i + 0.5) / count), -math.cos(2 * math.pi * (i + 0.5) / count))
            for i, ordinal in enumerate(names)
        }
    scale = 40.0
    while scale < 2000 and not _clear(list(known.values()), scale):
        scale *= 1.08
    left, top = min(x for x, _ in known.values()), min(y for _, y in known.values())
    return {
        ordinal: ((x - left) * scale + _BOX[0] / 2 + 6, (y - top) * scale + _BOX[1] / 2 + 6)
        for ordinal, (x, y) in known.items()
    }


def _clear(points: list[Point], scale: float) -> bool:
    """Whether boxes are far enough from each other that a link's figures fit between them."""
    return all(
        abs(ax - bx) * scale >= _BOX[0] + _GAP[0] or abs(ay - by) * scale >= _BOX[1] + _GAP[1]
        for place, (ax, ay) in enumerate(points)
        for bx, by in points[:place]
    )


def _around(at: Point, size: tuple[float, float]) -> Rectangle:
    return (at[0] - size[0] / 2, at[1] - size[1] / 2, at[0] + size[0] / 2, at[1] + size[1] / 2)


def _edge(of: Point, towards: Point) -> Point:
    """Return where the line from one box's middle to another's leaves the first box."""
    dx, dy = towards[0] - of[0], towards[1] - of[1]
    part = min(_BOX[0] / 2 / abs(dx) if dx else math.inf, _BOX[1] / 2 / abs(dy) if dy else math.inf)
    return (of[0] + part * dx, of[1] + part * dy)


def _half(near: Point, far: Point, one: Reached, name: str, unit: str, thick: float) -> str:
    odd = " odd" if one.apart else ""
    return (
        f'<g class="{color_class(one.share)}{odd}"><title>{escape(name)}: {escape(said(one, unit))}</title>'
        f'<line style="stroke-width:{thick}" x1="{near[0]:.1f}" y1="{near[1]:.1f}" x2="{far[0]:.1f}" '
        f'y2="{far[1]:.1f}"/></g>'
    )


def _label(near: Point, far: Point, one: Reached, unit: str, taken: list[Rectangle]) -> str:
    """Return the figures of one half of a link, on it where nothing else is written yet."""
    rate, share = labels(one, unit)
    words = f"{rate} {share}".strip()
    size = (6.6 * len(words) + 8, _LABEL[1])
    spots = [
        (near[0] + part * (far[0] - near[0]), near[1] + part * (far[1] - near[1]) + shift)
        for shift in (0.0, -14.0, 14.0)
        for part in _ALONG
    ]

    def overlap(spot: Point) -> float:
        left, top, right, bottom = _around(spot, size)
        return sum(
            max(0.0, min(right, other[2]) - max(left, other[0])) * max(0.0, min(bottom, other[3]) - max(top, other[1]))
            for other in taken
        )

    x, y = next((spot for spot in spots if overlap(spot) == 0), min(spots, key=overlap))
    taken.append(_around((x, y), size))
    odd = " odd" if one.apart else ""
    return (
        f'<rect class="halo" x="{x - size[0] / 2:.1f}" y="{y - size[1] / 2:.1f}" width="{size[0]:.1f}" '
        f'height="{size[1]}" rx="4"/><text class="rate middle{odd}" x="{x:.1f}" y="{y + 4:.1f}">{escape(words)}</text>'
    )


def _device(system: System, node: NodeRates, ordinal: int, x: float, y: float, unit: str) -> str:
    """Return a device's box with its ports to switches and its host link as figures inside."""
    name = system.names_by_ordinal[ordinal]
    left, top, *_ = _around((x, y), _BOX)
    lines = [("port", node.ports[ordinal])] if ordinal in node.ports else []
    lines += [("host", node.host[ordinal])] if node.host_kinds.get(ordinal) else []
    model = _cut(short_name(system.node(name).model or ""), _BOX[0])
    parts = [
        f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{_BOX[0]}" height="{_BOX[1]}" rx="6"/>',
        f'<text class="name" x="{x:.1f}" y="{top + 15:.1f}">{called(ordinal)}</text>',
    ]
    if len(lines) < 2:
        parts.append(f'<text class="model" x="{x:.1f}" y="{top + 30:.1f}">{escape(model)}</text>')
    first = top + (22 if len(lines) > 1 else 40)
    parts += [chips(left + 8, first + 20 * place, word, ends, unit) for place, (word, ends) in enumerate(lines)]
    return "".join(parts)


_MOST_DRAWN = 16


def node_svg(system: System, node: NodeRates, unit: str) -> str:
    """Return the node as an SVG element for an HTML page, with a title and a description for who cannot see it."""
    drawn = len(system.names_by_ordinal)
    if drawn > _MOST_DRAWN:
        width, height, parts = tiles(system, node, unit)
    elif node.links:
        width, height, parts = graph(system, node, unit)
    else:
        width, height, parts = rows(system, node, unit)
    described = "; ".join(f"{name}: {said}" for name, said in texts(node, unit))
    return (
        f'<svg class="node" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px;'
        f'min-width:{0.8 * width:.0f}px" role="img" aria-labeledby="node-title node-text">'
        f'<title id="node-title">{escape(system.title)}: what each link reached</title>'
        f'<desc id="node-text">{escape(described)}</desc>{"".join(parts)}</svg>'
    )
