"""What a picture says of itself: facts in its file, and its width in a column of a paper."""

from __future__ import annotations

import html
import re
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from linkgauge.built import build_of
from linkgauge.errors import one_line

if TYPE_CHECKING:
    from linkgauge.store.run import Run

COLUMN_INCHES = 3.3
"""The width of a column of IEEE's and ACM's papers."""
DOTS_PER_INCH = 300
_PNG_HEAD = 8 + 25  # the signature and the first chunk, IHDR


def facts_of(run: Run) -> dict[str, str]:
    """Return what made a run's pictures, and of what: by names that PNG files have for it, or none."""
    from linkgauge.view.results import machine_words

    build = build_of(run.info)
    host, devices = machine_words(run)
    found = {
        "Software": f"Linkgauge {build.version}",
        "Commit": build.commit + (" with changes" if build.dirty else ""),
        "Creation Time": str(run.info.get("start") or ""),
        "Source": f"run {run.info.get('id') or run.path.resolve().name}",
        "Machine": ", ".join([*devices, host]),
    }
    # A stranger's run may hold what no XML may.
    return {name: one_line(value) for name, value in found.items() if value}


def svg_with(svg: str, facts: Mapping[str, str], inches: float | None = None) -> str:
    """Return an SVG file with facts in its metadata, and `inches` wide where that is given."""
    said = "".join(f'<li name="{html.escape(name)}">{html.escape(value)}</li>' for name, value in facts.items())
    metadata = f'<metadata><ul xmlns="urn:linkgauge:facts">{said}</ul></metadata>' if facts else ""
    head = re.search(r"<svg\b[^>]*>", svg)
    if head is None:
        return svg
    tag = head[0] if inches is None else _resized(head[0], inches)
    return svg[: head.start()] + tag + metadata + svg[head.end() :]


def _resized(tag: str, inches: float) -> str:
    size = [re.search(rf'\b{name}="([0-9.]+)"', tag) for name in ("width", "height")]
    if size[0] is None or size[1] is None:
        return tag
    width, height = float(size[0][1]), float(size[1][1])
    if "viewBox" not in tag:
        tag = tag.replace("<svg", f'<svg viewBox="0 0 {width:g} {height:g}"', 1)
    tag = re.sub(r'\bwidth="[0-9.]+"', f'width="{inches:g}in"', tag, count=1)
    return re.sub(r'\bheight="[0-9.]+"', f'height="{inches * height / width:.4g}in"', tag, count=1)


def png_with(png: bytes, facts: Mapping[str, str]) -> bytes:
    """Return a PNG file with facts as text chunks behind its head."""
    chunks = b"".join(
        _chunk(b"iTXt", name.encode("latin-1") + b"\0\0\0\0\0" + value.encode()) for name, value in facts.items()
    )
    return png[:_PNG_HEAD] + chunks + png[_PNG_HEAD:]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
