"""Builds the site into build/docs: html/ with llms.txt, every link within it checked. Called by './lg docs'."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sphinx.cmd.build import build_main

from . import links, outputs, packed, pages, reading, reference

ROOT = outputs.DOCS.parent
OUT = ROOT / "build" / "docs"
_ORDER = ("index", "tutorials", "how-to", "reference", "explanation", "results", "contributing")


def write_text_of_all_pages(html: Path) -> None:
    """One text of all pages, as Markdown with every output and table in place: llms.txt, for language models."""

    def place(name: str) -> tuple[int, bool, str]:
        first = name.split("/")[0]
        return (_ORDER.index(first) if first in _ORDER else len(_ORDER), not name.endswith("index"), name)

    parts = [f"<!-- page: {name} -->\n\n{pages.EXPANDED[name].strip()}\n" for name in sorted(pages.EXPANDED, key=place)]
    (html / "llms.txt").write_text("\n".join(parts), encoding="utf-8")


BESIDE: tuple[Callable[[Path], None], ...] = (write_text_of_all_pages,)
"""What else is made beside the pages, each given the folder of the site: a maker of man pages is a further entry."""


def main() -> int:
    """Exit status 1: a page warns, an output is not the approved one, a link leads nowhere or an answer is too far."""
    parser = argparse.ArgumentParser(prog="lg docs", description=__doc__)
    parser.add_argument("--approve", action="store_true", help="take changed outputs of commands as right")
    parser.add_argument("--external", action="store_true", help="check links to other sites too, by the network")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="write the site there as one zip file")
    asked = parser.parse_args()
    begin = time.monotonic()
    pages.APPROVING = asked.approve
    html = OUT / "html"
    shutil.rmtree(OUT, ignore_errors=True)
    pictures = OUT / "static" / "systems"
    pictures.mkdir(parents=True)
    for name, text in reference.pictures().items():
        (pictures / f"{name}.svg").write_text(text, encoding="utf-8")
    words = ["-q", "-E", "-W", "--keep-going", "-d", str(OUT / "doctrees"), str(outputs.DOCS)]
    with outputs.workplace():
        status = int(build_main(["-b", "html", *words, str(html)]))
        if status == 0 and asked.external:
            status = int(build_main(["-b", "linkcheck", *words, str(OUT / "linkcheck")]))
    if status == 0:
        for make in BESIDE:
            make(html)
        if wrong := links.broken(html) + reading.too_far(html):
            print("\n".join(wrong), file=sys.stderr)
            status = 1
    if status == 0:
        words_written = len((html / "llms.txt").read_text(encoding="utf-8").split())
        print(f"{html / 'index.html'}: {len(pages.EXPANDED)} pages, {words_written} words, "
              f"{time.monotonic() - begin:.0f} s")  # fmt: skip
        if asked.pack:
            print(packed.pack(html, asked.pack))
    return status


if __name__ == "__main__":
    sys.exit(main())
