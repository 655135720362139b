"""What the pictures of a node are made of: colours by share, short texts, boxes, and figures inside them."""

from __future__ import annotations

from html import escape

from linkgauge.view.reached import Ends, Reached
from linkgauge.view.units import rate_text

STEPS = (0.4, 0.6, 0.7, 0.8, 0.9)
"""Shares at which the colour changes: s0 below the first, s5 from the last on."""
BOX = (94, 40)
KINDS = {"pcie": "PCIe", "nvlink": "NVLink", "c2c": "NVLink-C2C", "infinity_fabric": "Infinity Fabric",
          "memory": "memory", "xgmi": "xGMI", "sli": "SLI"}  # fmt: skip


def colour_class(share: float | None) -> str:
    """Return the class of colour of a share: `s0` to `s5`, `su` where there is none."""
    return "su" if share is None else f"s{sum(share >= step for step in STEPS)}"


def said(one: Reached, unit: str) -> str:
    """Return in words what a link reached in one direction: `392 GB/s, 87 % of 450`, or why that is not told."""
    rate = f"{rate_text(one.rate, unit)} {unit}" if one.rate is not None else ""
    limit = f" of {rate_text(one.limit, unit)}" if one.limit else ""
    if one.share is None:
        return f"{rate} ({one.why})" if rate else one.why
    return f"{rate}, {100 * one.share:.0f} %{limit}" + (", unlike its siblings" if one.apart else "")


def labels(one: Reached, unit: str) -> tuple[str, str]:
    """Return the two short texts beside a line: the rate, and the share (marked where it differs from its siblings)."""
    if one.rate is None:
        return "?", ""
    share = "" if one.share is None else f"{100 * one.share:.0f} %"
    return rate_text(one.rate, unit), f"! {share}" if one.apart else share


def box(x: float, y: float, name: str, detail: str, size: tuple[float, float] = BOX) -> str:
    """Return a device as a box around (x, y), its name above its model."""
    width, height = size
    cut = detail if len(detail) <= 15 else detail[:14] + "…"
    return (
        f'<rect class="box" x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width}" height="{height}" rx="6"/>'
        f'<text class="name" x="{x:.1f}" y="{y - 2:.1f}">{escape(name)}</text>'
        f'<text class="model" x="{x:.1f}" y="{y + 13:.1f}">{escape(cut)}</text>'
    )


def chips(x: float, y: float, word: str, ends: Ends, unit: str) -> str:
    """Return one line of a tile: what it is of, and both ways' shares (or rates) on their colours."""
    parts = [f'<text class="model start" x="{x:.1f}" y="{y + 12:.1f}">{escape(word)}</text>']
    for place, (one, way) in enumerate(zip(ends, ("out", "in"), strict=True)):
        left = x + 26 + 41 * place
        rate, share = labels(one, unit)
        odd = " odd" if one.apart else ""
        parts.append(
            f'<g class="{colour_class(one.share)}{odd}"><title>{escape(word)} {way}: {escape(said(one, unit))}</title>'
            f'<rect class="mark" x="{left:.1f}" y="{y:.1f}" width="4" height="16"/></g>'
            f'<text class="rate start{odd}" x="{left + 6:.1f}" y="{y + 12:.1f}">{escape(share or rate)}</text>'
        )
    return "".join(parts)
