"""Memory traffic of all cores from a tree made after the kernel's Documentation/filesystems/resctrl.rst."""

from __future__ import annotations

from pathlib import Path

from linkgauge.run.rank.node_counters import memory_use
from linkgauge.system.resctrl import MemoryTraffic


def group(folder: Path, *counts: object) -> None:
    """A group of tasks with a counter for each L3 cache."""
    for domain, count in enumerate(counts):
        files = folder / f"mon_data/mon_L3_{domain:02}"
        files.mkdir(parents=True)
        (files / "mbm_total_bytes").write_text(f"{count}\n", encoding="utf-8")
        (files / "mbm_local_bytes").write_text("1\n", encoding="utf-8")
        (files / "llc_occupancy").write_text("2\n", encoding="utf-8")


def test_all_groups_of_tasks_count_and_those_inside_them_not_twice(tmp_path: Path) -> None:
    top = tmp_path / "sys/fs/resctrl"
    group(top, 1000, 200)
    group(top / "jobs", 30, 4)
    group(top / "mon_groups/one", 500, 100)  # a part of the first group's
    group(top / "jobs/mon_groups/two", 5, 1)
    (top / "info/L3_MON").mkdir(parents=True)
    traffic = MemoryTraffic(tmp_path)
    assert traffic
    assert traffic.read() == 1234
    (value,) = memory_use(traffic)
    assert (value.name, value.value, value.unit) == ("memory_bytes", 1234, "B")


def test_a_counter_that_is_silent_makes_no_sum(tmp_path: Path) -> None:
    top = tmp_path / "sys/fs/resctrl"
    group(top, 1000, "Unavailable")
    assert MemoryTraffic(tmp_path).read() is None
    assert memory_use(MemoryTraffic(tmp_path)) == []


def test_without_resctrl_nothing_is_read(tmp_path: Path) -> None:
    assert not MemoryTraffic(tmp_path)
    assert MemoryTraffic(tmp_path).read() is None
