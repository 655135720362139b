"""How long cores worked, and what a hypervisor took of them, from a made /proc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linkgauge.run.machine.core_ticks import CoreTicks, all_cores, stolen_share
from linkgauge.run.parent import measure
from linkgauge.store.shapes import INFO


def stat(root: Path, stolen: int, idle: int = 500) -> CoreTicks | None:
    """What is read where a hypervisor has had the cores for so many of 1000 ticks and more."""
    (root / "stat").write_text(f"cpu  {500 - stolen} 0 0 {idle} 0 0 0 {stolen} 0 0\ncpu0 1 2 3\n", encoding="utf-8")
    return all_cores(root)


def test_what_a_hypervisor_took_is_a_share_of_all_cores_time(tmp_path: Path) -> None:
    before, after = stat(tmp_path, 0), stat(tmp_path, 120, 1500)
    assert before == CoreTicks(1000, 500, 0)
    assert stolen_share(before, after) == pytest.approx(0.12)
    assert stolen_share(before, before) == 0.0
    assert stolen_share(after, before) == 0.0  # a counter that began anew
    assert all_cores(tmp_path / "none") is None
    assert stolen_share(None, after) == 0.0


class Folder:
    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info

    def update_info(self, more: dict[str, Any]) -> None:
        self.info |= more


class Notes:
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(("share", "kept"), [(0.12, True), (0.004, False), (0.0, False)])
def test_it_is_said_in_one_sentence_and_kept(share: float, kept: bool) -> None:
    folder: Any = Folder({})
    notes: Any = Notes()
    measure._tell_of_hypervisor(folder, share, notes)
    assert ("stolen_share" in folder.info) == kept
    assert len(notes.said) == kept
    if kept:
        assert notes.said[0].startswith("a hypervisor took 12 % of the cores' time during the run")
        INFO({"format": "linkgauge-run", "format_version": 3, **folder.info}, "run.json")
        measure._tell_of_hypervisor(folder, 0.05, notes)  # a run that was resumed keeps the most
        assert folder.info["stolen_share"] == share
