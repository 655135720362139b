"""Real runs of machines with nothing wrong: no rule raises a fault or a loss on any of them."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import numpy as np
import pytest
from run_extracts import CORPUS, chosen_samples, make_extract, provenance_of, rebuild

from linkgauge.findings import rules
from linkgauge.findings.read import facts_of
from linkgauge.store.run import Run, load
from synthetic import make_run
from thorough import thorough

EXTRACTS = sorted(CORPUS.glob("*.xz"))
NAMED = re.compile(rb"GPU-[0-9a-f]{8}|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d|/(home|root|tmp|usr|opt|work)/|\.so\.\d")


MORE = ("x4-default-1", "default-2", "default-3", "default-4", "default-5", "quick-2", "quick-busy")
LIKE_ANOTHER = thorough("a run of the same plan on the same kind of machine is here")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[LIKE_ANOTHER] if path.stem.endswith(MORE) else []) for path in EXTRACTS],
)
def test_a_clean_run_raises_no_alarm(path: Path, tmp_path: Path) -> None:
    true = provenance_of(path).get("true", "").split()
    found = rules.apply(facts_of(rebuild(path, tmp_path / "run")))
    assert [f.sentence for f in found if f.severity != "note" and f.rule not in true] == []


def test_the_corpus_is_small_and_names_nobody() -> None:
    assert EXTRACTS
    assert sum(path.stat().st_size for path in EXTRACTS) < 1 << 20
    for path in EXTRACTS:
        text = lzma.decompress(path.read_bytes())
        assert NAMED.search(text) is None, path.name
        assert set(provenance_of(path)) >= {"machine", "date", "commit", "plan", "load"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load(make_run(tmp_path_factory.mktemp("made") / "run"))


@thorough("extracts change with the corpus alone")
def test_an_extract_is_the_run_that_it_was_made_of(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "extract.xz"
    path.write_bytes(make_extract(run, {"machine": "made up"}, kept=30))
    again = rebuild(path, tmp_path / "again")
    assert sorted(again.cases["case_key"].to_pylist()) == sorted(run.cases["case_key"].to_pylist())
    old = {m.case_key: m for m in facts_of(run).measures}
    new = {m.case_key: m for m in facts_of(again).measures}
    assert set(old) == set(new)
    for key, measure in new.items():
        assert measure.devices == old[key].devices
        assert measure.samples <= 30
        assert measure.time_ns == pytest.approx(old[key].time_ns, rel=0.05)


@thorough("an extract changes with the corpus alone")
def test_every_sample_of_an_extract_was_taken_then(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "extract.xz"
    path.write_bytes(make_extract(run, {}, kept=12))
    names = ("case_key", "rank", "lane", "sample")
    held = {tuple(row[name] for name in names): row for row in run.samples.to_pylist() if row["phase"] == "sample"}
    rows = rebuild(path, tmp_path / "again").samples.to_pylist()
    assert rows
    for row in rows:
        was = held[tuple(row[name] for name in names)]
        assert row["ns"] == pytest.approx(was["ns"], rel=2e-3, abs=1)
        assert row["start_ns"] == pytest.approx(was["start_ns"], abs=60)
        assert row["iterations"] == was["iterations"]


@pytest.mark.parametrize(("count", "kept"), [(5, 30), (30, 30), (31, 30), (400, 30), (35, 30)])
def test_samples_are_kept_from_beginning_to_end_in_stretches(count: int, kept: int) -> None:
    chosen = chosen_samples(count, kept)
    assert (chosen[0], chosen[-1]) == (0, count - 1)
    assert len(set(chosen)) == len(chosen) <= max(kept, 1)
    assert np.mean(np.diff(chosen) == 1) >= min(1, 1 - 3 / len(chosen))
