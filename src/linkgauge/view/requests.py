"""What a run's cases requested and whether it held, in a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from linkgauge.stats.moved import STATES
from linkgauge.stats.requests import RequestVerdict
from linkgauge.view.units import count_text

_MOST = 3  # lines of one request: bytes differ from case to case


def request_lines(verdicts: Iterable[RequestVerdict]) -> list[str]:
    """Return a line for each request, state and evidence: `requested NCCL_ALGO=Tree: held in 3 cases (...)`."""
    counted: dict[tuple[str, str], Counter[str]] = {}
    for one in verdicts:
        counted.setdefault((one.requested, one.state), Counter())[one.evidence] += 1
    lines = []
    for state, word in STATES.items():
        for (requested, of), evidence in counted.items():
            if of == state:
                told = [words for words, _ in evidence.most_common(_MOST)]
                more = f"; and {len(evidence) - _MOST} other reasons" if len(evidence) > _MOST else ""
                lines.append(f"requested {requested}: {word} in {count_text(evidence.total(), 'case')} "
                             f"({'; '.join(told)}{more})")  # fmt: skip
    return lines
