"""What the programs of bench/ import of the package is there: no test runs them, for they measure for minutes."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = sorted((ROOT / "bench").rglob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_what_a_program_of_bench_imports_is_there(program: Path) -> None:
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "linkgauge":
            module = importlib.import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")
