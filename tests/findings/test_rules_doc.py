"""The pages on findings name rules and findings that there are, and rules report the findings of their table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import linkgauge.findings
from linkgauge.findings import confidence, rules
from linkgauge.findings.rules import RULES
from linkgauge.judge import check

ROOT = Path(__file__).parents[2]
TOLD = {name for rule in RULES for name in rule.tells}
PAGES = [ROOT / "docs/reference/findings.md", ROOT / "docs/explanation/slow-links.md"]
# Names of observations, options and other kinds of thing that these pages put between backquotes too.
OTHERS = {"clock_offset_uncertainty", "throttle_reasons", "carrier_changes"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_on_findings_names_rules_and_findings_that_there_are(page: Path) -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page.read_text(encoding="utf-8")))
    assert len(named) > 5
    assert named - OTHERS <= TOLD | {rule.name for rule in RULES}


def test_every_finding_that_is_made_anywhere_is_in_the_table() -> None:
    made: dict[str, str] = {}
    for path in Path(linkgauge.findings.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                first = node.args[0]
                made[ast.literal_eval(first) if isinstance(first, ast.Constant) else ast.unparse(first)] = path.name
    assert made.pop("SLOW_BY_KIND[kind]") == "slow_words.py"  # the values of which are the table's own
    assert set(made) | set(confidence.SLOW) == TOLD


def test_what_speaks_of_findings_by_name_speaks_of_those_that_there_are() -> None:
    names = {*check.BURN_IN, *confidence._COUNTED, *rules._ALIKE, *rules._CAUSES}
    assert names <= TOLD
