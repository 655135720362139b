"""What each finding says and which fix it names, read from the calls that make findings.

Where a text depends on the case, its values are shown as `...`, and each text that may be taken is listed.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import linkgauge.findings
from linkgauge.findings.confidence import SLOW_BY_KIND
from linkgauge.findings.finding import Finding

_FIELDS = [field.name for field in dataclasses.fields(Finding)]
_SEVERITY, _SENTENCE, _FIX = (_FIELDS.index(name) for name in ("severity", "sentence", "fix"))
_MOST_STEPS = 5  # from a call over names and functions to a text
_FEWEST_WORDS = 5  # of a sentence that says something without its values


@dataclasses.dataclass
class Texts:
    """The severities, sentences and fixes of a finding."""

    severities: list[str] = dataclasses.field(default_factory=list)
    sentences: list[str] = dataclasses.field(default_factory=list)
    fixes: list[str] = dataclasses.field(default_factory=list)


@functools.cache
def texts() -> dict[str, Texts]:
    """The texts of each finding, by its name."""
    found: dict[str, Texts] = {}
    for path in sorted(Path(linkgauge.findings.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Finding":
                    given = list(_arguments(call, function))
                    for kind, name in _names(call.args[0]):
                        kept = found.setdefault(name, Texts())
                        for into, place in (
                            (kept.severities, _SEVERITY), (kept.sentences, _SENTENCE), (kept.fixes, _FIX)
                        ):  # fmt: skip
                            if place < len(given):
                                said = _Module(tree, kind).strings(given[place], function)
                                into += [text for text in said if text not in into]
    for one in found.values():
        one.sentences = [text for text in one.sentences if len(re.findall("[a-z]{2,}", text)) >= _FEWEST_WORDS]
    return found


def _arguments(call: ast.Call, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The arguments of a call, also those that the function made a tuple of before (`*rest`)."""
    for one in call.args:
        if not isinstance(one, ast.Starred):
            yield one
            continue
        for statement in ast.walk(function):
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == ast.unparse(one.value):
                yield from statement.value.elts if isinstance(statement.value, ast.Tuple) else ()


def _names(node: ast.expr) -> list[tuple[str, str]]:
    """(kind, finding) of each finding that a call may make; `SLOW_BY_KIND[kind]` stands for one of each kind."""
    return [("", str(node.value))] if isinstance(node, ast.Constant) else list(SLOW_BY_KIND.items())


@dataclasses.dataclass
class _Module:
    """The module of a call. Of tables by kind only the entry of `kind` counts."""

    tree: ast.Module
    kind: str

    def _imported(self, statement: ast.ImportFrom, node: ast.Name, steps: int) -> Iterator[str]:
        """The texts of a name that another module of findings has."""
        room, _, module = (statement.module or "").rpartition(".")
        if room == linkgauge.findings.__name__:
            path = Path(linkgauge.findings.__file__).with_name(f"{module}.py")
            there = _Module(ast.parse(path.read_text(encoding="utf-8")), self.kind)
            yield from there.strings(node, ast.parse("def nothing(): pass").body[0], steps + 1)

    def strings(self, node: ast.AST | None, function: ast.AST, steps: int = 0) -> Iterator[str]:
        """The texts that an expression may be, by the assignments and functions of its module."""
        if steps > _MOST_STEPS or node is None:
            return
        further = functools.partial(self.strings, function=function, steps=steps + 1)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
            yield re.sub(r"\.{4,}", "...", "".join(parts))
        elif isinstance(node, ast.IfExp):
            yield from further(node.body)
            yield from further(node.orelse)
        elif isinstance(node, ast.BinOp):
            second = next(further(node.right), "...")
            yield from (first + second for first in further(node.left))
        elif isinstance(node, ast.Subscript):
            yield from further(node.value)
        elif isinstance(node, ast.Dict):
            names = [ast.unparse(key).strip("'") for key in node.keys if key]
            one = [value for name, value in zip(names, node.values, strict=True) if self.kind and name == self.kind]
            for value in one or node.values:
                yield from further(value)
        elif isinstance(node, ast.Name):
            for statement in (*ast.walk(function), *self.tree.body):
                if isinstance(statement, ast.Assign) and node.id in [ast.unparse(each) for each in statement.targets]:
                    yield from further(statement.value)
                elif isinstance(statement, ast.ImportFrom) and node.id in [one.name for one in statement.names]:
                    yield from self._imported(statement, node, steps)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for called in self.tree.body:
                if isinstance(called, ast.FunctionDef) and called.name == node.func.id:
                    for inner in ast.walk(called):
                        if isinstance(inner, ast.Return):
                            yield from self.strings(inner.value, called, steps + 1)
