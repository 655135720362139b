"""How far a reader goes to an answer: clicks from a first page, and words read on the way.

docs/results/data/questions.csv has the questions. The path of each is a chain of links; the reader reads each page from
its beginning, or from the place that the link names, up to the next link, and the last one up to the answer.
"""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

from . import outputs

QUESTIONS = outputs.DOCS / "results" / "data" / "questions.csv"
MOST_CLICKS = 3
MOST_WORDS = 600
_BLOCKS = {"p", "li", "td", "th", "tr", "pre", "h1", "h2", "h3", "h4", "dt", "dd"}
_UNREAD = ("script", "style", "svg")


class _Article(HTMLParser):
    """The text of a page's article, and where in it each place begins, each link is read and each block ends."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.places: dict[str, int] = {"": 0}
        self.links: list[tuple[str, int]] = []  # where it leads, and its end
        self.ends: list[int] = []
        self._within = "<article" not in page
        self._href = ""
        self._unread = 0  # depth within what is no text
        self.feed(page)
        self.ends.append(len(self.text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._within = self._within or tag == "article"
        if place := given.get("id"):
            self.places.setdefault(place, len(self.text))
        if tag == "a":
            self._href = given.get("href") or ""
        if tag in _UNREAD or "headerlink" in (given.get("class") or ""):
            self._unread += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._within = False
        if self._unread:
            self._unread -= tag in (*_UNREAD, "a")
        elif tag == "a" and self._within:
            self.links.append((self._href, len(self.text)))
        if tag in _BLOCKS:
            self.ends.append(len(self.text))
            self.text += " "

    def handle_data(self, data: str) -> None:
        if self._within and not self._unread:
            self.text += data


def read(site: Path, path: str, answer: str) -> tuple[int, int]:
    """Clicks and words from the first page of a path to the end of the block that holds the answer's last word.

    ValueError where a page has no link to the next, or the last page has no such answer.
    """
    first, *steps = path.split()
    file, begin, words = _file(site, first), 0, 0
    page = _page(file)
    for step in steps:
        name, _, place = step.partition("#")
        target = _file(site, name)
        ends = [end for href, end in page.links if end >= begin and _leads(site, file, href) == (target, place)]
        if not ends:
            raise ValueError(f"no link to {step} on {file.name}")
        words += len(page.text[begin : ends[0]].split())
        file, page = target, _page(target)
        begin = page.places[place]
    found = re.compile(r"\s+".join(map(re.escape, answer.split()))).search(page.text, begin)
    if found is None:
        raise ValueError(f"no '{answer}' on {path.split()[-1]}")
    end = min(end for end in page.ends if end >= found.end())
    return len(steps), words + len(page.text[begin:end].split())


def _file(site: Path, name: str) -> Path:
    return outputs.DOCS.parent / "README.md" if name == "README" else site / f"{name}.html"


def _page(file: Path) -> _Article:
    text = file.read_text(encoding="utf-8")
    return _Article(MarkdownIt().enable("table").render(text) if file.suffix == ".md" else text)


def _leads(site: Path, file: Path, href: str) -> tuple[Path, str]:
    """The page and the place that a link of a page leads to. README's lead to the pages' sources."""
    parts = urlsplit(href)
    if file.suffix == ".md":
        name = parts.path.removeprefix("docs/").removesuffix(".md")
        name = {"CONTRIBUTING": "contributing/set-up"}.get(name, name)
        return site / f"{name}.html", parts.fragment
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    return target, unquote(parts.fragment)


def questions() -> list[dict[str, str]]:
    """The rows of the table of questions."""
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def too_far(site: Path) -> list[str]:
    """The questions whose answer a reader does not reach within the bar, a line each."""
    found = []
    for row in questions():
        try:
            clicks, words = read(site, row["path"], row["answer"])
        except (ValueError, KeyError) as error:
            found.append(f"{row['question']}: {error}")
            continue
        if clicks > MOST_CLICKS or words > MOST_WORDS:
            found.append(f"{row['question']}: {clicks} clicks and {words} words; at most {MOST_CLICKS}, {MOST_WORDS}")
    return found
