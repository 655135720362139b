"""Findings for what is drawn: asked for where the rules are there, and never in the way of a table or report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from linkgauge.store.run import Run


def findings_of(run: Run) -> Sequence[Any]:
    """Return the findings of a run in the order of telling; none where this installation has no rules."""
    import linkgauge.findings as rules

    judge = getattr(rules, "judge", None)
    return judge(run) if judge is not None else ()
