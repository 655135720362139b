"""The series that rules read: the same of samples in any order, and made once."""

from __future__ import annotations

import dataclasses

import numpy as np

from linkgauge.findings.samples import RankSeries, Samples
from linkgauge.model.case import Case

RANKS, SAMPLES = 4, 50
CASE = Case(transport="mpi", pattern="alltoall", size=1024, size_requested=1024, devices=tuple(range(RANKS)))
IDENTITY = ("key", 0, 0, 0)


def series() -> RankSeries:
    rng = np.random.default_rng(5)
    sample = np.tile(np.arange(SAMPLES), RANKS)
    scheduled = 10**9 + 10_000 * sample
    return RankSeries(
        rank=np.repeat(np.arange(RANKS), SAMPLES),
        lane=np.zeros(RANKS * SAMPLES, np.int16),
        sample=sample,
        scheduled_ns=scheduled,
        start_ns=scheduled + rng.integers(0, 100, sample.size),
        ns=rng.integers(1000, 2000, sample.size),
        iterations=np.ones(sample.size, np.int64),
        host_clock=True,
    )


def taken(held: RankSeries, order: np.ndarray) -> RankSeries:
    names = [field.name for field in dataclasses.fields(held) if field.name != "host_clock"]
    return dataclasses.replace(held, **{name: getattr(held, name)[order] for name in names})


def test_samples_in_any_order_make_the_same_matrix_and_the_same_series() -> None:
    held = series()
    mixed = taken(held, np.random.default_rng(6).permutation(held.rank.size))
    found, expected = mixed.matrix(RANKS), held.matrix(RANKS)
    assert found is not None
    assert expected is not None
    for one, other in zip(found, expected, strict=True):
        assert one.shape == (SAMPLES, RANKS)
        assert (one == other).all()
    (one,), (other,) = (Samples(lambda _, s=s: s).headlines(CASE, (IDENTITY,)) for s in (mixed, held))
    assert (one.times == other.times).all()
    assert one.rising


def test_ranks_with_different_samples_make_no_matrix() -> None:
    held = series()
    assert taken(held, np.arange(held.rank.size - 1)).matrix(RANKS) is None
    other = held.sample.copy()
    other[-1] += 1
    assert dataclasses.replace(held, sample=other).matrix(RANKS) is None


def test_a_series_is_made_once() -> None:
    asked = []
    held = series()
    samples = Samples(lambda identity: asked.append(identity) or held)
    first, again = (samples.headlines(CASE, (IDENTITY,)) for _ in range(2))
    assert first[0] is again[0]
    assert asked == [IDENTITY]
