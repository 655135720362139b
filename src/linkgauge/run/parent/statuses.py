"""The statuses of a run's cases, which the parent alone writes; and which cases are left out after failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from linkgauge.run.parent.launch_end import LaunchEnd
from linkgauge.run.parent.prepared import Pending
from linkgauge.run.parent.reporter import Reporter
from linkgauge.run.parent.time_left import TimeLeft
from linkgauge.run.wire.failures import Exhausted, Failures
from linkgauge.run.wire.spec import AFTER_FAILURES, CaseEntry
from linkgauge.store.journal import JournalWriter

FAILED = ("failed", "hung", "timeout", "crashed", "corrupt", "disturbed")
_MOST_NAMED = 8


class Statuses:
    """Writes each case's status, counts it, and shows it."""

    def __init__(self, journal: JournalWriter, reporter: Reporter, time_left: TimeLeft, max_failures: int) -> None:
        """Take the journal of statuses, who shows them, what learns from each how long the rest takes, and a limit."""
        self._journal = journal
        self._reporter = reporter
        self._time_left = time_left
        self._limit = max_failures
        self.failures = Failures(max_failures)
        self.counts: dict[str, int] = {}
        self.first_skipped = ""  # why the first skipped case was
        self.hosts: dict[int, str] = {}
        """Of nodes by their numbers in the run, as far as they are known."""

    def write(
        self, one: Pending, entry: CaseEntry, status: str, reason: str, evidence: Mapping[str, Any],
        *, goodput: float | None = None, node: int | None = None, of_launch: bool = False,
    ) -> None:  # fmt: skip
        """A case of a launch has its status. `node`: whose failure it is, where that is sure.

        `of_launch`: the case was not tried, so that it is not its transport's failure, and no line of its own.
        """
        record = {
            "case_key": entry.case.case_key,
            "launch": one.number,
            "repeat": one.planned.repeat,
            "attempt": entry.attempt,
            "planned_launch": one.planned.number,
            "case": entry.case.dimensions(),
            "status": status,
            "reason": reason,
            "evidence": dict(evidence),
        }
        # One fsync for each case that was measured or failed; thousands of skipped ones share the next.
        self._journal.append("status", record, durable=status != "skipped")
        self.counts[status] = self.counts.get(status, 0) + 1
        if status == "skipped":
            self.first_skipped = self.first_skipped or reason
        if of_launch:
            self._reporter.state.cases_done += 1
            self._reporter.state.failed += 1
            return
        self.failures.note(entry.case, status, node)
        if status != "skipped":
            self._time_left.ended(entry.case)
        self._reporter.case(entry.case, status, reason, goodput)

    def add(self, record: dict[str, Any]) -> None:
        """Add to what is known of a case that has its status."""
        self._journal.append("status", record, durable=False)

    def skip_held(self, one: Pending) -> None:
        """Skip what a launch cannot run."""
        for entry, reason in one.held.values():
            self.write(one, entry, "skipped", reason, {})
        one.held.clear()

    def fail_all(self, one: Pending, end: LaunchEnd, *, say: bool = True) -> None:
        """Nothing more can be had of a launch: each case left fails with the reason; `say` it now."""
        reason = f"its launch could not be run: {end.start_problem}"
        one.give_back()
        for entry in one.entries.values():
            self.write(one, entry, "failed", reason, end.evidence, of_launch=True)
        if say:
            count = len(one.entries)
            self._reporter.problem(f"{count} case{'' if count == 1 else 's'} failed: {reason}")
        one.entries.clear()

    def leave_out(self, one: Pending) -> None:
        """Skip what is left of a launch with nodes on which too many of its transport's cases have failed."""
        found: Counter[tuple[str, Exhausted]] = Counter()
        for key, entry in tuple(one.entries.items()):
            why = self.failures.why_left_out(entry.case)
            if why is None:
                continue
            del one.entries[key]
            transport = entry.case.transport
            found[transport, why] += 1
            reason = (f"skipped after {why.count} failures of {transport}{self._where(why)} (--max-failures "
                      f"{self._limit})")  # fmt: skip
            self.write(one, entry, "skipped", reason, {AFTER_FAILURES: True})
        for (transport, why), count in found.items():
            words = f"{transport}{self._where(why)}"
            self._reporter.problem(f"the other {count} cases of {words} are skipped: {why.count} have failed")

    def _where(self, why: Exhausted) -> str:
        """On which nodes; empty in a run on one."""
        if len(self.hosts) < 2:
            return ""
        names = [self.hosts.get(node, f"node {node}") for node in why.nodes]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        listed = ", ".join(names[:_MOST_NAMED]) + more
        if why.everywhere:
            return f" with {listed}, and nothing alike was ok elsewhere,"
        return f" with {listed}" if len(names) == 1 else f" between {listed}"
