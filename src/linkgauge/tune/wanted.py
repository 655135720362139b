"""What the launches of a search measure, and what one of them gave."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from linkgauge.model.case import Case
from linkgauge.model.device_words import device_noun
from linkgauge.model.transports import shown_names
from linkgauge.model.values import EACH
from linkgauge.model.worded import LibrarySettings
from linkgauge.plan.launches import LaunchSettings
from linkgauge.run.parent.prepared import Prepared
from linkgauge.run.parent.reporter import case_text
from linkgauge.store.run import Run
from linkgauge.tune.record import Outcome


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What each launch measures: the objective's cases and the guard cases, under one kind of launch."""

    prepared: Prepared  # without launches: devices, machine, libraries
    settings: LaunchSettings
    cases: Sequence[Case]
    guards: Sequence[Case]
    checks: int = 0  # operations of each case that a confirming launch checks, beside those that every launch does

    def confirming(self) -> list[Case]:
        """The cases of a launch that confirms, guard cases too."""
        return [self._checked(one) for one in (*self.cases, *self.guards)]

    def words(self, case: Case) -> str:
        """A case as other screens have it."""
        kinds = {self.prepared.devices.kind}
        return case_text(case, shown_names(kinds), device_noun(kinds))

    def _checked(self, case: Case) -> Case:
        more = max(self.checks, case.checks)
        return case if case.verify == EACH or not more else dataclasses.replace(case, verify=str(more))


def outcome_in(run: Run, wanted: Wanted, spelled: LibrarySettings) -> Outcome:
    """What a launch gave: medians by case in words, or what went wrong, the worst case's words.

    `spelled`: of its cases with these settings.
    """
    from linkgauge.stats.attempts import counted

    confirming, count = wanted.confirming(), len(wanted.cases)
    objective, guards_too = (
        [dataclasses.replace(case, settings=spelled) for case in some]
        for some in ((*wanted.cases, *confirming[:count]), (*wanted.guards, *confirming[count:]))
    )
    aimed = {case.case_key for case in objective}
    found = counted(run)
    known = {case.case_key: wanted.words(case) for case in (*objective, *guards_too)}
    times: dict[str, float] = {}
    guards: dict[str, float] = {}
    for row in (group[0] for group in found.measured if group[0].case_key in known):
        side = times if row.case_key in aimed else guards
        side[known[row.case_key]] = row.median_ns
    bad = ""
    checked: dict[str, int] = {}
    for one in run.rows():
        if one.case.settings != spelled:
            continue
        if one.case_key in known and (right := one.operations_checked):
            checked[known[one.case_key]] = right
        if one.status not in ("ok", "skipped", "timeout") or (one.status == "skipped" and one.case_key in aimed):
            bad = f"{one.status}: {known.get(one.case_key, one.case_key)}: {one.reason}"
            if one.status == "corrupt":
                break
    return Outcome(times, guards, bad, checked)
