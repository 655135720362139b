"""What a browser makes of a page's pictures: which of their texts lie on each other, and which leave their box."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE_S

MEASURE = """
<script>
window.setTimeout(() => {
  const shown = (one) => one.textContent.trim() && one.getAttribute("opacity") !== "0"
    && getComputedStyle(one).display !== "none" && one.getBoundingClientRect().width > 0;
  const found = { overlaps: [], outside: [], wide: [], crossed: [], limits: [] };
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const figure = svg.closest("figure");
    const name = (figure && figure.querySelector("figcaption") || svg).textContent.trim().slice(0, 60);
    const texts = Array.from(svg.querySelectorAll("text")).filter(shown);
    const boxes = texts.map((one) => ({ words: one.textContent, box: one.getBoundingClientRect(), one }));
    // A halo is the same text twice in one place; a text of half a pixel on another touches, and hides nothing.
    for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
      const a = boxes[i].box, b = boxes[j].box;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const turned = boxes[i].one.closest("[transform*=rotate]") || boxes[j].one.closest("[transform*=rotate]");
      const same = boxes[i].words === boxes[j].words && Math.abs(a.left - b.left) < 1 && Math.abs(a.top - b.top) < 1;
      if (!same && !turned && wide > 1 && high > 4) found.overlaps.push([name, boxes[j].words, boxes[i].words]);
    }
    for (const { words, box } of boxes) {
      if (box.right > frame.right + 2 || box.left < frame.left - 2) found.outside.push([name, words]);
    }
    for (const text of svg.querySelectorAll(".model, .barname, .name")) {
      const at = text.getBoundingClientRect();
      const own = Array.from(svg.querySelectorAll(".box, .bar")).map((one) => one.getBoundingClientRect())
        .find((one) => one.left <= at.left + at.width / 2 && at.left + at.width / 2 <= one.right
          && one.top <= at.top + at.height / 2 && at.top + at.height / 2 <= one.bottom);
      if (own && (at.left < own.left || at.right > own.right)) found.wide.push([name, text.textContent]);
    }
    // A name that a curve or another line runs through cannot be read.
    const drawn = svg.querySelectorAll(".mark-line.role-mark path, .mark-rule.role-mark line");
    const lines = Array.from(drawn).filter((one) =>
      Number(getComputedStyle(one).opacity) * Number(one.getAttribute("opacity") || 1) > 0.01);
    for (const { words, box, one } of boxes.filter((each) => /^limit: |bound\\)/.test(each.words))) {
      for (const line of lines) {
        const place = line.getScreenCTM(), length = line.getTotalLength();
        for (let at = 0; at <= length; at += 2) {
          const point = line.getPointAtLength(at).matrixTransform(place);
          if (point.x > box.left && point.x < box.right && point.y > box.top + 3 && point.y < box.bottom - 3) {
            found.crossed.push([name, words]);
            break;
          }
        }
      }
    }
    found.limits.push([name, texts.filter((one) => one.textContent.startsWith("limit: ")).length]);
  }
  found.width = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const holder = document.createElement("script");
  holder.type = "application/json"; holder.id = "measured";
  holder.textContent = JSON.stringify(found).replaceAll("<", "\\\\u003c");
  document.body.append(holder);
}, WAIT);
</script>"""


def browser() -> str:
    """Return the browser's program; the test is skipped where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("no chromium on this machine: apt-get install chromium")


def dumped(path: Path, tmp_path: Path, width: int = 1400) -> tuple[str, str]:
    """Return the page's tree once all charts are drawn, and what the browser said of scripts."""
    arguments = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},2000",
        "--virtual-time-budget=60000",
        "--dump-dom",
        f"{path.as_uri()}#all",
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def measured(page: str, tmp_path: Path, width: int) -> dict[str, Any]:
    """Return what is wrong with the texts of a page (its HTML) at a width in pixels.

    `overlaps`: [chart, text, text]; `outside`: of the picture; `wide`: than the box that they stand in;
    `crossed`: names of limits that a line runs through; `limits`: how
    many a chart names; `width`: by how many pixels the page is wider than the window.
    """
    body, _, end = page.rpartition("</body>")
    path = tmp_path / f"measured-{width}.html"
    path.write_text(f"{body}{MEASURE.replace('WAIT', '20000')}</body>{end}", encoding="utf-8")
    tree, log = dumped(path, tmp_path, width)
    said = re.search(r'<script type="application/json" id="measured">(.*?)</script>', tree, re.DOTALL)
    assert said is not None, log
    found: dict[str, Any] = json.loads(said[1])
    return found
