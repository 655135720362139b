"""Findings for what is drawn: whatever goes wrong in a rule is said, and never in the way of a table or report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from linkgauge.errors import RunFolderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from linkgauge.store.run import Run


@dataclasses.dataclass(frozen=True)
class Unjudged:
    """Said in the place of findings where the rules themselves ended with an error."""

    sentence: str
    severity: str = "loss"
    remedy: str = "Report it, with the run folder: the tables and charts do not depend on the rules."
    evidence: tuple[str, ...] = ()
    confidence: float = 1.0


def findings_of(run: Run) -> Sequence[Any]:
    """Return the findings of a run in the order of telling. RunFolderError where the run itself cannot be read."""
    from linkgauge.findings import judge

    try:
        return judge(run)
    except RunFolderError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0][:200]
        return (Unjudged(f"The rules ended with an error, so there are no findings: {type(error).__name__} {first}"),)


def by_kind(findings: Sequence[Any]) -> list[list[Any]]:
    """Return the findings of one rule and severity together, each kind where its first stood."""
    kinds: dict[tuple[str, str], list[Any]] = {}
    for finding in findings:
        kinds.setdefault((getattr(finding, "rule", finding.sentence), finding.severity), []).append(finding)
    return list(kinds.values())
