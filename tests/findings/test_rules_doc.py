"""docs/findings.md tells the rules that there are."""

from __future__ import annotations

import re
from pathlib import Path

from linkgauge.findings.rules import RULES


def test_the_table_of_rules_is_that_of_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \| (.+) \|$", text, flags=re.MULTILINE)
    assert table == [(rule.name, rule.looks_for) for rule in RULES]
