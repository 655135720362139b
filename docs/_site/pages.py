"""The fences that pages may have beside Markdown's own, and the Markdown that takes their place.

`{made} NAME`: a part of the reference (reference.py). `{linkgauge} WORDS`: a command, what it prints, and the picture
or report that it makes; its body may say `status: N`, the exit status if it is not 0, and `from: TEXT` and `lines: N`,
to show N lines from the first with TEXT on. `{python}`: code, and what it prints; one page's code shares its names.
`{stored} FILE`: a text file of a stored run, with `from` and `lines` as above.
`{pages} FOLDER ...`: the folders' pages as a table of contents; its body may hold `:hidden:`. `{source} FILE`: a
Markdown file of the checkout, such as CONTRIBUTING.md; its links to what is no page become text.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from . import outputs, reference

_FENCE = re.compile(r"^(```+)\{(made|linkgauge|python|stored|pages|source)\} *(.*)\n((?s:.*?))^\1$", re.MULTILINE)
FIRST = (
    "first-run", "first-gpu-node", "pandas",
    "install", "accept-a-node", "find-the-slow-node", "slow-allreduce", "choose-a-mechanism", "between-nodes",
    "containers",
    "reading-the-numbers", "timing",
    "commands", "set-up", "add-a-finding", "add-a-transport",
)  # fmt: skip
"""Pages that stand first in their folder's contents, in this order; the others follow by name."""

_MOST_INDENT = 12  # of text; further in stand cells of a table
APPROVING = False
"""Whether outputs that differ from the approved ones are taken as right."""
EXPANDED: dict[str, str] = {}
"""The text of each page that was built, with every fence replaced, by name."""


class PageError(Exception):
    """A page asks for something that is not to be had, or a command on it ended with another status."""


def expand(name: str, text: str, page: outputs.Page | None) -> str:
    """The page's text with every fence of ours replaced. Without `page` no command is run: its output is left out."""
    names: dict[str, Any] = {"__name__": "page"}

    def made(match: re.Match[str]) -> str:
        kind, asked, body = match[2], match[3].strip(), match[4]
        if kind == "made":
            if asked not in reference.PARTS:
                raise PageError(f"{name}: no part '{asked}' of the reference: expected one of {list(reference.PARTS)}")
            return reference.PARTS[asked]()
        if kind == "pages":
            return contents(asked, body)
        if kind == "source":
            return _of_checkout(name, asked)
        if kind == "stored":
            return _stored(name, asked, body, page)
        if kind == "python":
            return _python(body, names, page)
        return _command(name, asked, body, page)

    return _FENCE.sub(made, text)


def commands(text: str) -> list[str]:
    """The words of the commands that a page's fences run."""
    return [match[3].strip() for match in _FENCE.finditer(text) if match[2] == "linkgauge"]


def contents(folders: str, options: str) -> str:
    """A table of contents of the pages that lie in folders of docs/ (`.`: itself); nothing where there are none."""
    found = [
        path.relative_to(outputs.DOCS).with_suffix("").as_posix()
        for folder in folders.split()
        for path in sorted((outputs.DOCS / folder).glob("*.md"), key=_place)
        if path.stem != "index"
    ]
    lines = "\n".join(f"/{each}" for each in found)
    return f"```{{toctree}}\n:maxdepth: 1\n{options}\n{lines}\n```\n" if found else ""


def _of_checkout(name: str, asked: str) -> str:
    """A Markdown file of the checkout without its title, its links as the page `name` has them."""
    text = (outputs.DOCS.parent / asked).read_text(encoding="utf-8").partition("\n")[2]
    up = "../" * name.count("/")

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        return f"[{words}]({up}{target.removeprefix('docs/')})" if re.match(r"docs/[\w/.-]+\.md", target) else words

    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", link, text)


def _place(path: Path) -> tuple[int, str]:
    return (FIRST.index(path.stem) if path.stem in FIRST else len(FIRST), path.stem)


def _command(name: str, asked: str, body: str, page: outputs.Page | None) -> str:
    settings = _settings(body)
    shown = f"$ linkgauge {asked}\n"
    if page is not None:
        output, status = outputs.of_command(asked)
        if status != int(settings.get("status", "0")):
            raise PageError(f"{name}: 'linkgauge {asked}' ended with status {status}: {output}")
        output = _shown_part(output, settings, f"{name}: 'linkgauge {asked}'")
        page.add(f"linkgauge {asked}", output)
        shown += output + "\n"
    # Of a console's text a line that begins with # is taken for a command.
    kind = "text" if re.search("^#", shown, re.MULTILINE) else "console"
    return f"```{kind}\n{shown}```\n" + (_made(name) if page is not None else "")


def _stored(name: str, asked: str, body: str, page: outputs.Page | None) -> str:
    """A text file of a stored run, as a terminal shows it."""
    shown = f"$ cat {asked}\n"
    if page is not None:
        if not Path(asked).is_file():
            raise PageError(f"{name}: no stored run has '{asked}'")
        output = _shown_part(Path(asked).read_text(encoding="utf-8"), _settings(body), f"{name}: '{asked}'")
        page.add(f"cat {asked}", output)
        shown += output + "\n"
    return f"```console\n{shown}```\n"


def _settings(body: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in body.splitlines() if line.strip())


def _shown_part(output: str, settings: dict[str, str], what: str) -> str:
    """The lines of an output that a page shows, with dots for those before and after."""
    lines = [part for line in output.splitlines() for part in _wrapped(line)]
    wanted = settings.get("from", "")
    first = next((number for number, line in enumerate(lines) if wanted in line), None)
    if first is None:
        raise PageError(f"{what} prints no line with '{wanted}'")
    last = min(len(lines), first + int(settings.get("lines", len(lines))))
    return "\n".join([*["..."][: first > 0], *lines[first:last], *["..."][: last < len(lines)]])


def _wrapped(line: str) -> list[str]:
    """A line of an output as lines that fit a page; one of a table stays whole."""
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    if len(line) <= outputs.WIDTH or "   " in text or len(indent) > _MOST_INDENT:
        return [line]
    return textwrap.wrap(
        text, outputs.WIDTH, initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _made(name: str) -> str:
    """What a command on the page left: pictures, shown, and reports, which open by a link."""
    up = "../" * name.count("/")
    shown = {
        ".svg": '<img class="picture" src="{}" alt="The picture that the command made.">',
        ".html": '<a href="{}">Open what it made.</a>',
    }
    return "".join(f"\n{shown[Path(path).suffix].format(up + path)}\n" for path in outputs.take_made(name))


def _python(source: str, names: dict[str, Any], page: outputs.Page | None) -> str:
    shown = f"```python\n{source}```\n"
    if page is not None and (output := outputs.of_python(source, names)):
        page.add(source, output)
        shown += f"\n```text\n{output}\n```\n"
    return shown
