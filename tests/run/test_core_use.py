"""What a node's cores did beside a case: by the kernel's own counts, and seen where another program has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from linkgauge.run.node_counters import ALL, BUSY, OWN, STOLEN, CoreUse

TICK = 1e9 / os.sysconf("SC_CLK_TCK")


def read(use: CoreUse) -> dict[str, float]:
    return {value.name: value.value for value in use.read()}


def test_counts_are_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 10 20 500 30 4 6 50 90 9\ncpu0 1 2 3\n")
    for pid, words in ((7, "(a) b) R 1 2 3 4 5 6 7 8 9 10 40 2 0 0"), (8, "(x y) S 1 2 3 4 5 6 7 8 9 10 8 1 0 0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} {words}")
    found = read(CoreUse([7, 8, 7], tmp_path))
    assert found == {ALL: 720 * TICK, BUSY: 140 * TICK, STOLEN: 50 * TICK, OWN: 51 * TICK}
    assert CoreUse([9], tmp_path).read() == []  # a process that is gone: nothing is said
    assert CoreUse([], tmp_path / "none").read() == []


def test_another_programs_time_is_none_of_the_launchs() -> None:
    use = CoreUse([os.getpid()])
    before = read(use)
    work = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    after = read(use)
    grown = {name: after[name] - before[name] for name in after}
    assert grown[ALL] >= grown[BUSY] >= grown[OWN] + 0.35e9
