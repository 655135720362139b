"""docs/findings.md tells the rules that there are, and the rules tell the findings that their table names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import linkgauge.findings
from approved import approve
from linkgauge.findings import check, confidence, rules
from linkgauge.findings.rules import RULES

TOLD = {name for rule in RULES for name in rule.tells}


def test_the_table_of_rules_is_that_of_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "findings.md"
    rows = [f"| `{rule.name}` | {rule.looks_for} | {', '.join(f'`{name}`' for name in rule.tells)} |" for rule in RULES]
    before, heading, after = page.read_text(encoding="utf-8").partition(
        "| rule | looks for | findings |\n| --- | --- | --- |\n"
    )
    rest = re.sub(r"\A(\| .* \|\n)+", "", after)
    approve(page, "".join([before, heading, *(f"{row}\n" for row in rows), rest]))


def test_every_finding_that_is_made_anywhere_is_in_the_table() -> None:
    made: dict[str, str] = {}
    for path in Path(linkgauge.findings.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                first = node.args[0]
                made[ast.literal_eval(first) if isinstance(first, ast.Constant) else ast.unparse(first)] = path.name
    assert made.pop("SLOW_BY_KIND[kind]") == "localize.py"  # the values of which are the table's own
    assert set(made) | set(confidence.SLOW) == TOLD


def test_what_speaks_of_findings_by_name_speaks_of_those_that_there_are() -> None:
    names = {*check.BURN_IN, *confidence._COUNTED, *rules._ALIKE, *rules._CAUSES}
    assert names <= TOLD
