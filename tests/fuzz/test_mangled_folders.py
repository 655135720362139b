"""Bytes of a run folder changed, cut or swapped at random: a reader gives figures or one line, never a traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fuzz.targets import read_everything
from linkgauge.errors import LinkgaugeError
from synthetic import make_case, make_run
from thorough import thorough

CASES = [make_case(t, p, 4096) for t in ("mpi", "ccl") for p in ("pingpong", "bidirectional", "allreduce")]
ROUNDS = 120


@pytest.mark.parametrize("compact", [False, pytest.param(True, marks=thorough("journals are mangled too"))])
def test_mangled_run_folders(tmp_path: Path, compact: bool) -> None:
    source = make_run(tmp_path / "source", cases=CASES, samples=12, compact=compact)
    files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    rng = np.random.default_rng(11)
    refused = 0
    for number in range(ROUNDS):
        path = tmp_path / f"mangled{number}"
        shutil.copytree(source, path)
        for _ in range(rng.integers(1, 3)):
            file = path / files[rng.integers(len(files))]
            content = bytearray(file.read_bytes())
            kind = rng.integers(5)
            at = int(rng.integers(len(content))) if content else 0
            if kind == 0:
                content = content[:at]
            elif kind == 1 and content:
                content[at] ^= 1 << int(rng.integers(8))
            elif kind == 2:
                content[at : at + 8] = rng.bytes(8)
            elif kind == 3:
                content[at:at] = rng.bytes(int(rng.integers(1, 64)))
            else:
                other = path / files[rng.integers(len(files))]
                content = bytearray(other.read_bytes())
            file.write_bytes(bytes(content))
        try:
            read_everything(path)
        except LinkgaugeError as error:
            refused += 1
            assert str(error).count("\n") == 0, str(error)  # noqa: PT017 - either outcome is right
        shutil.rmtree(path)
    assert refused > ROUNDS / 4
