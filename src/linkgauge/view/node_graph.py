"""The picture of a node whose devices have links to each other: devices where they are described, or on a circle."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from linkgauge.view.alike import short_name
from linkgauge.view.node_marks import chips, colour_class, labels, said
from linkgauge.view.reached import NodeRates, Reached

if TYPE_CHECKING:
    from linkgauge.system.model import System

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]

_BOX = (126.0, 66.0)
_GAP = (140.0, 54.0)
_ALONG = (0.5, 0.36, 0.64, 0.24, 0.76, 0.14)
_LABEL = (62.0, 15.0)


def graph(system: System, node: NodeRates, unit: str) -> tuple[float, float, list[str]]:
    """Return width, height and parts of the picture: a line a link, each half coloured by what leaves that end."""
    at = _placed(system)
    boxes = [_around(point, _BOX) for point in at.values()]
    lines, texts = [], []
    taken: list[Rectangle] = list(boxes)
    names = system.names_by_ordinal
    thick = 9 if len(node.links) <= 16 else 6
    for (a, b), ends in node.links.items():
        start, end = _edge(at[a], at[b]), _edge(at[b], at[a])
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        for one, source, target, near in ((ends[0], a, b, start), (ends[1], b, a, end)):
            name = f"{names[source]} to {names[target]}"
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
        f'<g class="{colour_class(one.share)}{odd}"><title>{escape(name)}: {escape(said(one, unit))}</title>'
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
    model = short_name(system.node(name).model or "")
    parts = [
        f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{_BOX[0]}" height="{_BOX[1]}" rx="6"/>',
        f'<text class="name" x="{x:.1f}" y="{top + 15:.1f}">{escape(name)}</text>',
    ]
    if len(lines) < 2:
        parts.append(f'<text class="model" x="{x:.1f}" y="{top + 30:.1f}">{escape(model)}</text>')
    first = top + (22 if len(lines) > 1 else 40)
    parts += [chips(left + 8, first + 20 * place, word, ends, unit) for place, (word, ends) in enumerate(lines)]
    return "".join(parts)
