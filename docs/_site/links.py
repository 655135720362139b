"""Links within a site of HTML files: each leads to a file that is there, and to a place in it that is there."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.leads_to: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.places.add(value)
            elif name in ("href", "src") and value:
                (self.leads_to if tag == "a" else self.loads).add(value)


def broken(site: Path) -> list[str]:
    """What is wrong with the links of a site, a line each; also what a page would load from another site."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        here = path.relative_to(site)
        found += [f"{here}: loads {url} from another site" for url in sorted(page.loads) if urlsplit(url).netloc]
        for url in sorted(page.leads_to | page.loads):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{here}: no file {url}")
            elif target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{here}: no place {url}")
    return found
