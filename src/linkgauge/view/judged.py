"""Findings for what is drawn: whatever goes wrong in a rule is said, and never in the way of a table or report."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from linkgauge.errors import RunFolderError
from linkgauge.model.grouped import grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from linkgauge.findings.finding import Finding
    from linkgauge.judge.advise import Advice
    from linkgauge.store.run import Run


_FIX = "Report it, with the run folder: the tables and charts do not depend on the rules."

# A run's summary and its report tell the same findings, which take seconds where there are many samples.
_FINDINGS: weakref.WeakKeyDictionary[Run, Sequence[Finding]] = weakref.WeakKeyDictionary()


def findings_of(run: Run) -> Sequence[Finding]:
    """Return the findings of a run in the order of telling. RunFolderError where the run itself cannot be read."""
    from linkgauge.findings import judge
    from linkgauge.findings.finding import Finding

    if run not in _FINDINGS:
        try:
            _FINDINGS[run] = judge(run)
        except RunFolderError:
            raise
        except Exception as error:
            words = f"{type(error).__name__} {(str(error).splitlines() or [''])[0][:200]}"
            said = f"The rules ended with an error, so there are no findings: {words}"
            return (Finding("", "loss", "the rules", said, (), 1.0, _FIX),)
    return _FINDINGS[run]


NO_LIMIT = "no limit of this machine's links is known"


def without_limits(run: Run) -> str:
    """Why no rate of a run was held against what its links allow; empty where one was.

    One measured here has its system's limits. Of an imported one it is asked, case by case.
    """
    from linkgauge.findings.read import another_than, facts_of, system_of

    if run.info.get("system") is None:
        return NO_LIMIT
    if unlike := another_than(run.launched, system_of(run)):
        return unlike
    if not run.info.get("origin"):
        return ""
    try:
        return NO_LIMIT if facts_of(run).unjudged else ""
    except RunFolderError:
        raise
    except Exception:
        return NO_LIMIT


def advice_of(run: Run) -> Sequence[Advice]:
    """Return what to use for which sizes, a class of devices at once; nothing where the rules end with an error."""
    from linkgauge.findings.read import facts_of
    from linkgauge.judge.advise import advise

    try:
        return advise(facts_of(run))
    except RunFolderError:
        raise
    except Exception:
        return ()


def misfit(findings: Sequence[Finding]) -> str:
    """Say of a run's findings that its system's limits are not this machine's; empty where they may be."""
    from linkgauge.findings.known import IMPOSSIBLE

    far = any(one.rule == "above_bound" and one.effect > IMPOSSIBLE - 1 for one in findings)
    return "rates are above the limits of the system: is it the right one?" if far else ""


def by_kind(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return the findings of one rule and severity together, each kind where its first stood."""
    return list(grouped(((finding.rule, finding.severity), finding) for finding in findings).values())
