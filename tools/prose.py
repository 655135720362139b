"""How texts read: words that the field does not use, sentences that are too long, lines of Markdown that are too wide.

`python3 tools/prose.py` looks at the Markdown pages, at what `--help` prints, and at the texts inside Python and C++
sources. Code (fences, `code`, names) is left alone. Exit status 1 where something is found, a line each.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 25  # of a sentence
MOST_COLUMNS = 120  # of a line of Markdown that is no table, link or heading
# What a reader must not have to learn, and what to write instead. The field's word, where it has one.
WORDS = {
    r"(?:is|are|was|were|be|been|not|as|could be|cannot be|have|has) told": "reported, known",
    r"tells? of": "reports",
    r"nothing odd": "no problems found",
    r"falls? short|fell short": "fails",
    r"(?:could not|cannot) (?:be )?judged?": "unknown, and why",
    r"ceilings?": "limit",
    r"least bounds?": "limit",
    r"constructive": "achievable schedule",
    r"the middle one": "the median",
    r"several levels|lies on .* levels": "multimodal",
    r"out of line": "below the trend",
    r"go(?:es)? on with|going on with": "resumes, continues",
    r"stand(?:s|ing)? in for|stand-ins?": "emulated, simulated, fake",
    r"remed(?:y|ies)": "fix",
    r"(?:is|are|was|were|be|been|as) asked(?: for| of)?|asks for|asked for": "requested, required",
    r"ha(?:s|ve) been seen": "measured, tested",
    r"is sound|are sound": "valid",
    r"the loads? beside|loads beside": "background load",
    r"whose (?:loss|fault)": "which layer is slow",
    r"colour|behaviour|neighbour|recognis|optimis|normalis|organis|synchronis|initialis": "American spelling",
}
_WORDS = [(re.compile(rf"\b(?:{pattern})", re.IGNORECASE), say) for pattern, say in WORDS.items()]
_CODE = re.compile(r"``.*?``|`[^`]*`|\[\[?[\w .-]+\]\]|https?://\S+|\]\([^)]*\)|<[^>]*>")
_SENTENCE = re.compile(r"(?:(?<=[.!?:;])|(?<=[.!?:;]\*\*))[\"')]*\s+(?=[\"'(*]*[A-Z0-9])|\n\s*\n")
_WORD = re.compile(r"[^\W\d_][\w'/-]*")
# From Python 3.12 on, what lies between the braces of an f-string is a token of its own.
_TEXTS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
_NO_PAGES = ("CHANGELOG.md",)


def listed(text: str, where: str) -> Iterator[str]:
    """Each listed word of a text that is no code, a line each."""
    plain = _CODE.sub(" ", text)
    for pattern, say in _WORDS:
        for found in pattern.finditer(plain):
            yield f"{where}: '{' '.join(found[0].split())}': say {say}"


def long_sentences(text: str, where: str) -> Iterator[str]:
    """Each sentence of more than MOST_WORDS words."""
    for sentence in _SENTENCE.split(_CODE.sub("Code", text)):
        count = len(_WORD.findall(sentence))
        if count > MOST_WORDS:
            yield f"{where}: a sentence of {count} words: {' '.join(sentence.split())[:70]}..."


def of_markdown(path: Path) -> Iterator[str]:
    """What is wrong in a page: words and sentences outside fences and tables, words in tables, wide lines."""
    name, fenced, began = str(path.relative_to(ROOT)), "", 0
    paragraph: list[str] = []
    lines = [*path.read_text().split("\n"), ""]
    for number, line in enumerate(lines, 1):
        mark = re.match(r"\s*(```+|~~~+|:::+)", line)
        if fenced:
            fenced = "" if mark and line.strip() == fenced else fenced
            continue
        begins = re.match(r"\s*(?:[-*+] |\d+\. |#|>|\||\[[^\]]+\]: )", line)
        if mark or begins or not line.strip():
            text = "\n".join(paragraph)
            yield from listed(text, f"{name}:{began}")
            if not text.lstrip().startswith(("|", "#")):
                yield from long_sentences(text, f"{name}:{began}")
            paragraph = []
        if mark:
            fenced = mark[1] if not mark[1].startswith(":") else ""
            continue
        if not line.strip():
            continue
        began = began if paragraph else number
        paragraph.append(re.sub(r"^\s*(?:[-*+] |\d+\. |>)", "", line))
        if len(line) > MOST_COLUMNS and not line.lstrip().startswith(("|", "#", "[", "!")) and "](http" not in line:
            yield f"{name}:{number}: {len(line)} columns: at most {MOST_COLUMNS}"


def of_python(path: Path) -> Iterator[str]:
    """Listed words in the texts of a module that its user may see: strings with a space, no docstrings."""
    name, source = str(path.relative_to(ROOT)), path.read_text()
    # Strings that stand alone: docstrings.
    bare = {(node.lineno, node.col_offset) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.type in _TEXTS and token.start not in bare
        if text and " " in token.string:
            yield from listed(re.sub(r"\{[^{}]*\}", " ", token.string), f"{name}:{token.start[0]}")


def of_cpp(path: Path) -> Iterator[str]:
    """Listed words in the string literals of a C++ file."""
    name = str(path.relative_to(ROOT))
    for number, line in enumerate(path.read_text().split("\n"), 1):
        for text in re.findall(r'"((?:[^"\\]|\\.)*)"|//.*', line):
            if " " in text:
                yield from listed(text, f"{name}:{number}")


def of_help() -> Iterator[str]:
    """Words and sentences of what each command's help prints, with all of its options."""
    import click

    from linkgauge.app import cli

    def walked(command: click.Command, name: str) -> Iterator[str]:
        texts = [command.help, command.short_help, command.epilog]
        texts += [one.help for one in command.params if isinstance(one, click.Option)]
        for text in dict.fromkeys(text for text in texts if text):
            yield from listed(text, f"{name} --help")
            yield from long_sentences(text, f"{name} --help")
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name)
            for word in command.list_commands(context):
                if (found := command.get_command(context, word)) is not None:
                    yield from walked(found, f"{name} {word}")

    yield from walked(cli.ROOT, "linkgauge")


def main() -> int:
    """Print what is found; 1 where something is."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True, check=True,
                           capture_output=True).stdout.split("\n")  # fmt: skip
    found = list(of_help())
    for name in sorted(set(names)):
        path = ROOT / name
        if not path.is_file() or name in _NO_PAGES:
            continue
        if path.suffix == ".md":
            found += of_markdown(path)
        elif name.startswith("src/") and path.suffix == ".py":
            found += of_python(path)
        elif name.startswith("core/") and path.suffix in (".h", ".cpp"):
            found += of_cpp(path)
    print("\n".join(dict.fromkeys(found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
