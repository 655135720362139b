"""How many thread blocks, and so multiprocessors, a kernel copy takes from a program's own kernels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import Measure, rate_text
from linkgauge.findings.rule import rule
from linkgauge.model.device_words import device_words
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.stats.curves import LEAST_BLOCKS
from linkgauge.stats.derived import fewest_blocks


@rule("how few thread blocks give a kernel copy 95 % of its best rate")
def blocks_needed(facts: Facts) -> Iterable[Finding]:
    """The fewest blocks, of those measured, with 95 % of the best rate of a kernel copy, where fewer than the best do.

    docs/explanation/statistics.md, A curve over sizes: fewest blocks.
    """
    kernels = facts.grouped(lambda m: (m.without("blocks"), m.devices, m.size) if _is_sized(m) else None)
    for measures in kernels.values():
        of_blocks = {m.case.blocks: m for m in sorted(measures, key=lambda m: m.effective)}
        swept = [of_blocks[count] for count in sorted(of_blocks)]
        if len(swept) < LEAST_BLOCKS:
            continue
        times = np.array([m.time_ns for m in swept])
        widths = times * np.array([m.half_width for m in swept])
        found = fewest_blocks(np.array([float(m.case.blocks) for m in swept]), times, times - widths, times + widths)
        best = min(swept, key=lambda m: m.time_ns)
        if found is None or found.limit or found.value >= best.case.blocks:
            continue
        enough = of_blocks[int(found.value)]
        where = f"{enough.label} of {size_text(enough.size)} on {device_words(enough.devices, facts.noun)}"
        texts = [f"{m.case.blocks} blocks {rate_text(m.goodput)}" for m in (enough, best)]
        yield Finding(
            "blocks_needed",
            "note",
            where,
            f"{where}: {enough.case.blocks} blocks ({found.low:.0f} to {found.high:.0f}) reach 95 % of the best, which "
            f"{best.case.blocks} give; {found.below:.0f} are too few.",
            tuple(Evidence(text, (m.case_key,)) for text, m in zip(texts, (enough, best), strict=True)),
            0.9,
            f"Give such a copy {enough.case.blocks} blocks where kernels run beside it; each may take a "
            "multiprocessor.",
            devices=enough.devices,
        )


def _is_sized(measure: Measure) -> bool:
    return measure.transport == "kernel" and measure.case.blocks > 0 and measure.goodput is not None
