"""A rule about reduction in the switches: an allreduce as fast as a ring where NVLink SHARP would be faster."""

from __future__ import annotations

from collections.abc import Iterable

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, keys, rate_text
from linkgauge.findings.rule import rule
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_bytes as size_text

_SHORT = 0.08
"""What is lost at the least: healthy machines differ by 3 %; rings of 5 and of 8 GPUs are 10 and 20 % slower."""
_LEAST_OF_RING, _MOST_OF_RING = 0.7, 0.85
"""Between these shares of its bound is what a ring reaches; below, something else is slow, and above, it is none.

NCCL's kernels send payloads of 128 bytes, whose headers take a fifth of a link (NVIDIA/nccl-tests issues 149 and 212):
five sixths are left. Published rings reach 0.73 (H100, NCCL 2.19) to 0.82.
"""
_LEAST_GAIN = 0.85
"""What NVLink SHARP must be known to reach of the ring's bound: on 3 and 4 GPUs it is as fast as a ring."""
_SWITCHES = ("NCCL_NVLS_ENABLE", "NCCL_ALGO")


@rule("an allreduce as fast as a ring, on switches by which NVLink SHARP is faster")
def nvlink_sharp_lost(facts: Facts) -> Iterable[Finding]:
    """Allreduces that leave the algorithm to the library and reach what its ring does, not what NVLink SHARP does."""
    lost = [(loss, measure, typical) for measure in facts.measures if (found := _lost(facts, measure))
            for loss, typical in (found,)]  # fmt: skip
    if not lost:
        return
    loss, one, typical = max(lost, key=lambda item: (item[1].size, item[0]))
    factor = float(PATTERNS[one.pattern].bus_factor(one.ranks))
    launched = {launch.launch_key: launch.env for launch in facts.launches}
    said = [f"{name}={value}" for name in _SWITCHES if (value := launched.get(one.launch_key, {}).get(name))]
    cause = f" It ran with {' '.join(said)}." if said else ""
    yield Finding(
        "nvlink_sharp_lost",
        "loss",
        f"{one.label} on {one.ranks} {facts.noun}s",
        f"{one.label} on {one.ranks} {facts.noun}s has a busbw of {rate_text(one.bus)} at {size_text(one.size)}, as a "
        f"ring has; with NVLink SHARP such machines have {rate_text(typical * factor)}.{cause}",
        tuple(
            Evidence(f"{m.label} of {size_text(m.size)} on {m.ranks} {facts.noun}s: {rate_text(m.bus)}", keys([m]))
            for _, m, _ in lost
        ),
        0.9,
        "Unset NCCL_NVLS_ENABLE and NCCL_ALGO. See whether NCCL names NVLS: linkgauge run --library-choices. Then look "
        "at the state of the fabric (nvidia-smi -q, Fabric) and at the fabric manager's log.",
        loss,
    )


def _lost(facts: Facts, measure: Measure) -> tuple[float, float] | None:
    """By which share an allreduce is below what NVLink SHARP is known to reach, in B/s; None where it lacks nothing."""
    if (
        measure.pattern != "allreduce"
        or measure.case.algorithm
        or measure.case.groups > 1
        or not measure.goodput
        or not facts.on_one_node(measure)
    ):
        return None
    value = {one.rule: one.value_bytes_per_s for one in facts.limits(measure) if one.value_bytes_per_s}
    ring = {one.rule: one.value_bytes_per_s for one in facts.limits(measure, algorithm="ring")
            if one.kind == "upper bound" and one.value_bytes_per_s}  # fmt: skip
    typical = value.get("allreduce_nvls_typical")
    if typical is None or not ring or typical < _LEAST_GAIN * (best := min(ring.values())):
        return None
    reached = measure.goodput / (1 - min(measure.half_width, 0.5))
    if reached < (1 - _SHORT) * typical and _LEAST_OF_RING * best <= measure.goodput <= _MOST_OF_RING * best:
        return 1 - measure.goodput / typical, typical
    return None
