"""Each peer's own estimator, recomputed from our samples (docs/definitions.md, Sample, timekeeper, cadence).

All take the samples of one row as arrays and return nanoseconds of one operation as the peer counts it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

Samples = dict[str, Any]  # columns rank, lane, ns, iterations of phase `sample`, as numpy arrays of one length


def mean_of_rank_0_ns(samples: Samples) -> float:
    """osu_latency, osu_bw and osu_bibw: mean on rank 0, of a round trip (OSU prints half of it) or of a window."""
    first = samples["rank"] == samples["rank"].min()
    return float(samples["ns"][first].sum() / samples["iterations"][first].sum())


def median_of_rank_0_ns(samples: Samples) -> float:
    """ucx_perftest's and ib_*'s latencies: median on rank 0, of a round trip (they print half of it)."""
    first = samples["rank"] == samples["rank"].min()
    return float(statistics.median((samples["ns"][first] / samples["iterations"][first]).tolist()))


def mean_of_rank_means_ns(samples: Samples) -> float:
    """OSU's collectives (cadence barrier) and nccl-tests (a queued batch): mean over ranks of each rank's mean."""
    means = []
    for rank in sorted(set(samples["rank"].tolist())):
        own = samples["rank"] == rank
        means.append(float(samples["ns"][own].sum() / samples["iterations"][own].sum()))
    return statistics.fmean(means)


def nvbandwidth_ns(samples: Samples) -> float:
    """nvbandwidth: median of 3 gated batches of 16, of the first three samples of the first flow."""
    return _median_of_three(samples, samples["lane"] == samples["lane"].min())


def nvbandwidth_sum_ns(samples: Samples) -> float:
    """nvbandwidth's total of both ways: each flow's own median rate, added up; ns for one message each way."""
    lanes = sorted(set(samples["lane"].tolist()))
    rates = [1 / _median_of_three(samples, samples["lane"] == lane) for lane in lanes]
    return len(lanes) / sum(rates)


def _median_of_three(samples: Samples, chosen: Any) -> float:
    order = samples["sample"][chosen].argsort(kind="stable")[:3]
    return float(statistics.median((samples["ns"][chosen][order] / samples["iterations"][chosen][order]).tolist()))


ESTIMATORS: dict[str, Callable[[Samples], float]] = {
    "mean_of_rank_0": mean_of_rank_0_ns,
    "median_of_rank_0": median_of_rank_0_ns,
    "mean_of_rank_means": mean_of_rank_means_ns,
    "nvbandwidth": nvbandwidth_ns,
    "nvbandwidth_sum": nvbandwidth_sum_ns,
}
