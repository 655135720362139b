"""The node as a picture: each port, link and host link coloured by the share of its rate that it reached, as SVG.

Written by hand, for the report's page: texts and lines take the page's own colours (`s0` to `s5` by share, `su` where
none is told), so that it is legible in light and dark; figures stand beside every line. Up to 16 devices are drawn, by
their described places where they have links to each other (node_graph), else in rows between switch and hosts; more
are tiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from linkgauge.view.node_graph import graph
from linkgauge.view.node_marks import KINDS, said
from linkgauge.view.node_rows import rows, tiles
from linkgauge.view.reached import Ends, NodeRates
from linkgauge.view.units import count_text

if TYPE_CHECKING:
    from linkgauge.system.model import System

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
    described = "; ".join(f"{name}: {said}" for name, said in texts(system, node, unit))
    return (
        f'<svg class="node" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px;'
        f'min-width:{0.8 * width:.0f}px" role="img" aria-labelledby="node-title node-text">'
        f'<title id="node-title">{escape(system.title)}: what each link reached</title>'
        f'<desc id="node-text">{escape(described)}</desc>{"".join(parts)}</svg>'
    )


def texts(system: System, node: NodeRates, unit: str) -> Iterator[tuple[str, str]]:
    """Yield each port, link and host link by name, and what it reached each way: the picture in words."""
    names = system.names_by_ordinal
    for ordinal, ends in node.ports.items():
        yield f"port of {names[ordinal]}", _both("out", "in", ends, unit)
    for (a, b), ends in node.links.items():
        yield f"link {names[a]} - {names[b]}", _both("forth", "back", ends, unit)
    for ordinal, ends in node.host.items():
        if node.host_kinds.get(ordinal):
            kind = KINDS.get(node.host_kinds[ordinal], node.host_kinds[ordinal])
            yield f"{kind} of {names[ordinal]}", _both("to host", "from host", ends, unit)


def _both(first: str, second: str, ends: Ends, unit: str) -> str:
    return ", ".join(f"{name} {said(one, unit)}" for name, one in zip((first, second), ends, strict=True))


def unknown_text(node: NodeRates) -> str:
    """Return why some of the picture is grey: `not measured (6); 1 MiB does not fill it (8)`; empty if nothing is."""
    hidden = {ordinal for ordinal in node.host if not node.host_kinds.get(ordinal)}
    told = [ends for part in (node.ports, node.links) for ends in part.values()]
    told += [ends for ordinal, ends in node.host.items() if ordinal not in hidden]
    reasons = Counter(one.why for ends in told for one in ends if one.share is None and one.why)
    return "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())


def summary_text(node: NodeRates) -> str:
    """Return what the picture shows, in one line below it."""
    parts = []
    if node.ports:
        parts.append(f"Ports: the best of each device's pairs{f' ({node.basis})' if node.basis else ''}.")
    if node.links:
        parts.append(f"Links: their own pairs{f' ({node.basis})' if node.basis else ''}; at each end what leaves it.")
    if node.host_basis:
        parts.append(f"Host links: each device's copies alone ({node.host_basis}).")
    odd = sum(one.apart for one in node.told)
    if odd:
        parts.append(
            f"{count_text(odd, 'figure')} marked ! {'differs from its' if odd == 1 else 'differ from their'} siblings."
        )
    grey = unknown_text(node)
    return " ".join([*parts, f"Grey: {grey}."] if grey else parts)
