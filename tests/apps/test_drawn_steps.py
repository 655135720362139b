"""What step files become, and what is said of those that are wrong, stays as it is whatever reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.apps.drawn_steps import Drawn, told

from linkgauge.apps import expansion
from thorough import most

KEPT = Path(__file__).parent / "drawn_steps.json"  # a text a file, as they were when steps were read one by one


@pytest.mark.parametrize("few", most([expansion._FEW, 1, 1 << 20], [expansion._FEW]))
def test_drawn_files_become_what_they_did(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "_FEW", few)
    kept = json.loads(KEPT.read_text())
    for number, expected in enumerate(kept):
        assert told(Drawn(number).document(), 1 + number % 4) == expected, number
    assert sum(": expected" in one for one in kept) > len(kept) // 5
