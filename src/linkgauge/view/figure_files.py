"""A figure as a file: PDF, SVG, PNG or Vega-Lite's JSON, with facts of how it was made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.files import write_atomically
from linkgauge.view import charts
from linkgauge.view.picture_facts import DOTS_PER_INCH, png_with, svg_with

FORMATS = (".pdf", ".svg", ".png", ".json")


def _scale(spec: dict[str, Any], inches: float | None) -> float:
    """Return by what a picture is drawn larger to be so wide; 1 without a width."""
    if inches is None:
        return 1.0
    width = re.search(r'<svg\b[^>]*?\bwidth="([0-9.]+)"', charts.converter().vegalite_to_svg(spec))
    # vl-convert takes 72 of the picture's units for an inch.
    return 1.0 if width is None else inches * 72 / float(width[1])


def write_figure(
    spec: dict[str, Any], path: Path, facts: Mapping[str, str] | None = None, inches: float | None = None
) -> None:
    """Write a figure as its name's ending says (FORMATS): PDF, SVG, PNG at 300 dots an inch, or Vega-Lite's JSON.

    `facts` go into the metadata of SVG and PNG, and into the JSON's `usermeta`. `inches`: the width of SVG and PNG.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"'{path}': a figure's name ends with one of {', '.join(FORMATS)}")
    if path.suffix == ".json":
        told = {**spec, "usermeta": {**spec.get("usermeta", {}), **facts}} if facts else spec
        write_atomically(path, json.dumps(told, indent=1).encode())
        return
    vl_convert = charts.converter()
    content: str | bytes
    if path.suffix == ".pdf":
        content = vl_convert.vegalite_to_pdf(spec)
    elif path.suffix == ".svg":
        content = svg_with(vl_convert.vegalite_to_svg(spec), facts or {}, inches)
    else:
        content = png_with(vl_convert.vegalite_to_png(spec, ppi=DOTS_PER_INCH, scale=_scale(spec, inches)), facts or {})
    write_atomically(path, content.encode() if isinstance(content, str) else content)
