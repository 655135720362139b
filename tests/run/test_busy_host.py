"""Host devices beside two busy programs: load of the host is neither a loss nor a fault of the machine's."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from linkgauge.findings import rules
from linkgauge.findings.read import facts_of
from linkgauge.store.run import load
from program import linkgauge
from thorough import thorough

pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many programs that never sleep, for as long as this lasts."""
    words = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(words) for _ in range(count)]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


@thorough("findings/test_other_users.py has busy cores by their figures")
def test_two_busy_programs_are_no_loss_of_host_devices(tmp_path: Path) -> None:
    with busy_loops(2):
        done = linkgauge(
            "run", "--out", "run", "--devices", "host:2", "--threads", "--transport", "copy_engine,kernel", "--pattern",
            "unidirectional,bidirectional,allreduce", "--size", "8,64KiB,1MiB", "--stop-rule", "count",
            "--stop-samples", "20", "--no-report", cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = facts_of(load(tmp_path / "run"))
    assert len(facts.measures) >= 10
    assert [one.sentence for one in rules.apply(facts) if one.is_alarm] == []
