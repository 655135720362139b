"""How sure findings say they are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from linkgauge.findings import rules
from linkgauge.findings.confidence import LEAST, SLOW, calibrated, confidence_of
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding

COUNTED = [name for name in (*SLOW, *(rule.name for rule in rules.RULES)) if calibrated(name)]


@pytest.mark.parametrize("rule", COUNTED)
def test_more_evidence_never_makes_less_sure(rule: str) -> None:
    shares = [confidence_of(rule, strength) for strength in np.linspace(0, 1, 101)]
    assert all(a <= b for a, b in itertools.pairwise(shares))
    assert 0 < shares[0] <= shares[-1] <= 0.99


def test_what_was_never_counted_says_what_its_rule_says() -> None:
    assert confidence_of("errors_rose", 0.98) == 0.98


def finding(strength: float, severity: str = "fault") -> Finding:
    return Finding("slow_link", severity, "link a - b", "It is slow.", (Evidence("x"),), strength, "Look.")  # type: ignore[arg-type]


@pytest.mark.parametrize(("strength", "told"), [(0.72, "note"), (0.95, "fault")])
def test_a_fault_that_is_more_often_wrong_than_right_is_a_note(
    strength: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES", (rules.Rule("slow_elements", lambda facts: [finding(strength)], "x"),))
    (one,) = rules.apply(Facts([]))
    assert one.severity == told
    assert one.unsure is (told == "note")
    assert (one.confidence < LEAST) is one.unsure
    assert one.strength == strength
    assert ("measure again" in one.sentence) is one.unsure
