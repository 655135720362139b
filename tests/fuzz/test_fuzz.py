"""Readers of files that may be a stranger's: what they do with nonsense, for a bounded time.

Three ways: inputs that broke a reader once (corpus/), mutants that stay well-formed (hypothesis draws them), and, where
atheris has a wheel, libFuzzer led by the coverage of the readers. Longer by hand: `python tests/fuzz/drive.py TARGET`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import platform
import random
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import hostile, targets
from linkgauge.errors import UsageError
from patience import PATIENCE_S
from thorough import most, thorough

NAMES = sorted(targets.TARGETS)
MEMORY = thorough("each allocation of many readings is traced; what they do with nonsense is tried in every run")
SECONDS = 1  # of libFuzzer for each target
GROWTH_BYTES = 100_000  # over some forty readings: caches of regular expressions and of pyarrow settle late
FOUND = [(name, path) for name in NAMES for path in targets.found(name)]


@pytest.mark.parametrize(("name", "path"), FOUND, ids=[f"{name}-{path.name}" for name, path in FOUND])
def test_what_broke_a_reader_once_does_not_again(name: str, path: Path) -> None:
    targets.TARGETS[name](path.read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_not_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    @contextlib.contextmanager
    def passing() -> object:
        try:
            yield
        except UsageError as error:
            if "--" not in str(error):  # a log that needs a hint is read with hints as well
                refused.append(error)

    monkeypatch.setattr(targets, "refusing", passing)
    seeds = targets.seeds(name)
    assert seeds
    for seed in most(seeds, seeds[::3]):
        targets.TARGETS[name](seed)
    assert refused == []


@pytest.mark.parametrize("name", NAMES)
def test_mutants_end_well_or_in_one_line(name: str) -> None:
    seeds = [*targets.seeds(name), *(path.read_bytes() for path in targets.found(name))]
    refused = []

    @settings(max_examples=most(60, 20), deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(st.sampled_from(seeds), st.integers(0, 2**32 - 1))
    def check(seed: bytes, number: int) -> None:
        mutant = hostile.mutant(name, seed, random.Random(number))
        refused.append(mutant != seed)
        targets.TARGETS[name](mutant)

    check()
    assert sum(refused) > len(refused) / 2, "most mutants are what they were made from"


@pytest.mark.parametrize("name", NAMES)
@MEMORY
def test_reading_nonsense_leaves_no_memory_behind(name: str) -> None:
    seeds = sorted(targets.seeds(name), key=len)[:3]
    inputs = [*seeds, *(hostile.mutant(name, seed, random.Random(n)) for seed in seeds for n in range(2))]

    def passes(count: int) -> int:
        for number in range(count):
            targets.TARGETS[name](inputs[number % len(inputs)])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = passes(2 * len(inputs))
        assert passes(4 * len(inputs)) - before < GROWTH_BYTES
    finally:
        tracemalloc.stop()


@thorough("what it found is in corpus/, and mutants of the seeds go into every reader")
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason=f"atheris has no wheel for Python {platform.python_version()} on {platform.machine()}: hypothesis alone",
)
@pytest.mark.parametrize("name", NAMES)
def test_coverage_led_inputs_end_well_or_in_one_line(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("drive.py")), name, "--seconds", str(SECONDS), "--keep",
         str(tmp_path / "inputs")],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    runs = re.search(r"Done (\d+) runs", done.stderr)
    assert runs is not None
    assert int(runs[1]) > len(targets.seeds(name))
