"""Man pages from the same source as the help: `python -m linkgauge.app.man FOLDER` writes one for each command.

The pages lie in docs/man and are installed with the wheel (CMakeLists.txt); a test says where they are not current.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from linkgauge import __version__
from linkgauge.app import cli
from linkgauge.app.command_line import Grouped

_ENVIRONMENT = (
    ("NO_COLOR", "Turns colors off, whatever its value. Without a terminal there are none either."),
    ("COLUMNS", "Width of what is printed; by default the terminal's. Elsewhere lines have no limit."),
    ("TMPDIR", "Folder for what a run needs while it lasts."),
)


def pages() -> dict[str, str]:
    """Return every page by its file's name."""
    root = click.Context(cli.ROOT, info_name="linkgauge")
    found = {"linkgauge.1": _page(root, cli.ROOT)}
    for name in cli.ROOT.list_commands(root):
        command = cli.ROOT.get_command(root, name)
        assert command is not None
        found[f"linkgauge-{name}.1"] = _page(click.Context(command, info_name=name, parent=root), command)
    return found


def write(folder: Path) -> list[str]:
    """Write every page into `folder`, and remove those of commands that are no more; return their names."""
    made = pages()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("linkgauge*.1"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(made)


def _page(context: click.Context, command: click.Command) -> str:
    path = context.command_path.split()
    title = "-".join(path)
    about, *more = _paragraphs(command.help)
    lines = [
        f'.TH {title.upper()} 1 "" "Linkgauge {__version__}" "Linkgauge"',
        ".SH NAME",
        _text(f"{title} - {about[0].lower()}{about[1:].rstrip('.')}"),
        ".SH SYNOPSIS",
        f"{_bold(context.command_path)} {_text(' '.join(command.collect_usage_pieces(context)))}",
        ".SH DESCRIPTION",
        "\n.PP\n".join(map(_text, [about, *more])),
    ]
    if isinstance(command, cli.Commands):
        for panel, entries in command.panels():
            lines += [f".SS {_text(panel)}", *_listed((f"linkgauge-{one.name}(1)", one.help) for one in entries)]
    lines += [".SH OPTIONS", *_options(context, command)]
    if isinstance(command, click.Group) and not isinstance(command, cli.Commands):
        lines.append(".SH COMMANDS")
        for name, one in command.commands.items():
            within = click.Context(one, info_name=name, parent=context)
            lines += [f".SS {_text(within.command_path)}", _text(_paragraphs(one.help)[0]), *_options(within, one)]
    statuses = command.statuses if isinstance(command, Grouped) else []
    lines += [".SH EXIT STATUS", *_listed((f"{status:d}", f"{_sentence(status.words)}.") for status in statuses)]
    if isinstance(command, cli.Commands):
        lines += [".SH ENVIRONMENT", *_listed(_ENVIRONMENT)]
    if example := re.search(r"Example: (.*)", command.epilog or ""):
        lines += [".SH EXAMPLE", ".EX", _text(example[1]), ".EE"]
    others = "linkgauge(1)" if len(path) > 1 else "linkgauge-run(1), linkgauge-show(1)"
    lines += [".SH SEE ALSO", _text(others), ""]
    return "\n".join(lines)


def _options(context: click.Context, command: click.Command) -> Iterator[str]:
    """Yield arguments and options by their groups, every one of them, and the names of those taken over."""
    assert isinstance(command, Grouped)
    for title, records in command.sections(context, every=True).items():
        yield f".SS {_text(title)}"
        yield from _listed(records)
    for owner, names in command.taken_over(context).items():
        yield f".SS {_text(f'Options of linkgauge-{owner}(1)')}"
        yield _text(", ".join(names))


def _listed(records: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> Iterator[str]:
    for written, told in records:
        yield from (".TP", _bold(written), _text(" ".join(told.split())))


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in (text or "").strip().split("\n\n")]


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _bold(text: str) -> str:
    return f"\\fB{_text(text)}\\fR"


def _text(text: str) -> str:
    """Return a line as roff prints it: a hyphen stays one that can be copied, and nothing is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    print(f"{len(write(Path(sys.argv[1])))} pages in {sys.argv[1]}")
