"""Fits find what made the data: parameters within their intervals, breakpoints where they are, and none elsewhere."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkgauge.expect.fit import hockney, loggp
from linkgauge.expect.fits_of_run import as_data, sweeps_of
from results import results_of
from thorough import most

SIZES = [2**k for k in range(25)]


def eager_then_rendezvous(size: int) -> float:
    return 2000 + size / 5.0 if size <= 8192 else 6000 + size / 20.0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.floats(200, 50_000), st.floats(0.05, 400), st.integers(3, 25))
def test_exact_data_gives_its_parameters(latency: float, bytes_per_ns: float, count: int) -> None:
    sizes = SIZES[-count:]
    fit = hockney(sizes, [latency + size / bytes_per_ns for size in sizes])
    assert len(fit.pieces) == 1
    for size in sizes:
        assert fit.time_ns(size) == pytest.approx(latency + size / bytes_per_ns, rel=1e-6)


def test_intervals_cover_what_made_the_data() -> None:
    """About 95 % of intervals hold the truth, for latency and rate, at 2 % of noise."""
    rng = np.random.default_rng(7)
    held = [0, 0]
    tries = 300
    for _ in range(tries):
        times = [(5000 + size / 10.0) * (1 + 0.02 * rng.standard_normal()) for size in SIZES]
        fit = hockney(SIZES, times, most_pieces=1)
        held[0] += fit.pieces[0].latency.low <= 5000 <= fit.pieces[0].latency.high
        held[1] += fit.pieces[0].rate.low <= 10e9 <= fit.pieces[0].rate.high
    for count in held:
        assert 0.90 <= count / tries <= 0.99


def test_noise_alone_is_no_breakpoint() -> None:
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(most(100, 30)):
        times = [(5000 + size / 10.0) * (1 + 0.03 * rng.standard_normal()) for size in SIZES]
        wrong += len(hockney(SIZES, times).pieces) > 1
    assert wrong <= most(10, 4)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_protocol_switch_is_found_where_it_is(noise: float) -> None:
    rng = np.random.default_rng(3)
    times = [eager_then_rendezvous(size) * (1 + noise * rng.standard_normal()) for size in SIZES]
    fit = hockney(SIZES, times)
    assert fit.breakpoints == ((8192, 16384),)
    small, large = fit.pieces
    assert small.latency.low <= 2000 <= small.latency.high
    assert large.rate.low <= 20e9 <= large.rate.high
    assert small.last_bytes == 8192


def test_order_and_repeats_do_not_matter() -> None:
    times = [eager_then_rendezvous(size) for size in SIZES]
    shuffled = list(zip(SIZES * 2, times * 2, strict=True))
    np.random.default_rng(1).shuffle(shuffled)
    once = hockney(SIZES, times)
    twice = hockney([int(size) for size, _ in shuffled], [time for _, time in shuffled])
    assert [p.latency.value for p in twice.pieces] == pytest.approx([p.latency.value for p in once.pieces])
    assert twice.breakpoints == once.breakpoints


def test_flat_times_have_no_finite_rate() -> None:
    fit = hockney([1, 2, 4, 8, 16], [1000.0] * 5)
    assert fit.pieces[0].latency.value == pytest.approx(1000)
    assert fit.pieces[0].rate.value > 1e15 or math.isinf(fit.pieces[0].rate.value)


def test_nothing_is_below_zero() -> None:
    """Times that grow faster than the size would want a negative latency; it is held at 0."""
    fit = hockney([2**k for k in range(10, 16)], [float(4**k) for k in range(6)], most_pieces=1)
    assert fit.pieces[0].latency.value >= 0
    assert fit.pieces[0].latency.low >= 0


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="needs at least 3"):
        hockney([1, 1, 2], [1.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="above 0"):
        hockney([1, 2, 3], [1.0, 0.0, 2.0])
    with pytest.raises(ValueError, match="3 sizes and 2 times"):
        hockney([1, 2, 3], [1.0, 2.0])


def test_loggp_says_what_is_missing() -> None:
    pingpong = hockney(SIZES, [2000 + size / 10.0 for size in SIZES])
    streaming = hockney(SIZES, [300 + size / 12.0 for size in SIZES])
    alone = loggp(pingpong, "pingpong", "isolated")
    assert alone is not None
    assert alone.latency_and_overheads is not None
    assert alone.latency_and_overheads.value == pytest.approx(2000)
    assert alone.gap_per_byte.value == pytest.approx(0.1)
    assert alone.gap is None
    assert set(alone.missing) == {"o", "L", "g"}
    queued = loggp(streaming, "unidirectional", "isolated", 64)
    assert queued is not None
    assert queued.gap is not None
    assert queued.gap.value == pytest.approx(300)
    assert queued.latency_and_overheads is None
    assert set(queued.missing) == {"o", "L", "L + 2o"}
    assert loggp(streaming, "unidirectional", "isolated", 1) is None
    assert loggp(streaming, "allreduce", "streaming") is None


def test_sweeps_of_a_run() -> None:
    """A fit for each sweep; windowed times are divided, round trips halved, and what is not ok left out."""

    def row(pattern: str, size: int, median_ns: float | None, **more: object) -> dict[str, object]:
        return {
            "transport": "kernel",
            "pattern": pattern,
            "devices": [0, 1],
            "size": size,
            "lane": -1,
            "status": "ok",
            "cadence": "isolated",
            "window": 1,
            "median_ns": median_ns,
            **more,
        }

    sizes = [2**k for k in range(4, 20)]
    rows = [row("pingpong", size, 2 * (3000 + size / 50)) for size in sizes]
    rows += [row("unidirectional", size, 64 * (400 + size / 50), window=64) for size in sizes]
    rows += [row("allreduce", size, 9000 + size / 20) for size in sizes]
    rows += [row("broadcast", size, 9000 + size / 20) for size in sizes[:3]]
    rows += [
        row("pingpong", 1 << 30, 1.0, status="failed"),
        row("pingpong", 1 << 30, None),
        row("pointer_chase", 64, 500.0),
    ]
    found = {str(sweep.dimensions["pattern"]): sweep for sweep in sweeps_of(results_of(rows))}
    assert set(found) == {"pingpong", "unidirectional", "allreduce"}
    assert found["pingpong"].fit.pieces[0].latency.value == pytest.approx(3000)
    assert found["unidirectional"].fit.pieces[0].latency.value == pytest.approx(400)
    assert found["pingpong"].loggp is not None
    assert found["pingpong"].loggp.latency_and_overheads is not None
    assert found["unidirectional"].loggp is not None
    assert found["unidirectional"].loggp.gap is not None
    assert found["allreduce"].loggp is None
    assert json.loads(json.dumps(as_data(found["pingpong"])))["loggp"]["max(g, o)"] is None
