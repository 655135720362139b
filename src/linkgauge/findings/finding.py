"""What a rule says: a finding, its evidence, and the order in which findings are told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, NamedTuple

Severity = Literal["disturbed", "fault", "loss", "note"]
SEVERITIES: tuple[Severity, ...] = ("disturbed", "fault", "loss", "note")
"""What a finding amounts to.

disturbed: others used the machine meanwhile, so that these cases say nothing of it. fault: something is out of line
with its siblings or reports errors. loss: it works as built or set up, and goodput is left on the table. note: a
description that helps to read the figures; never an alarm.
"""


class Evidence(NamedTuple):
    """One figure and the cases that it comes from.

    >>> Evidence("392 GB/s one way, 231 GB/s the other").case_keys
    ()
    """

    text: str
    case_keys: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding.

    `subject` names the thing (`link GPU 0 - GPU 1`, `GPU 3`, `mpi allreduce`). `effect` is the share of the goodput
    that should be there and is not (0 where that has no meaning). `strength` is between 0 and 1 and grows with the
    evidence by each rule's own formula; `confidence` is the share of findings of such strength that were right where
    causes were planted (findings/confidence.py), and no probability that a technician finds a broken part. `unsure`: a
    fault or loss that is told as a note because such findings are wrong more often than right.

    >>> found = Finding("noisy", "note", "device 1", "Device 1 is noisy.", (), 0.9, "Measure again.", devices=(1,))
    >>> found.as_json()["devices"]
    [1]
    """

    rule: str
    severity: Severity
    subject: str
    sentence: str
    evidence: tuple[Evidence, ...]
    confidence: float
    fix: str
    effect: float = 0.0
    devices: tuple[int, ...] = ()
    strength: float = 0.0
    unsure: bool = False

    @property
    def is_alarm(self) -> bool:
        """Whether it accuses the machine: a fault or a loss."""
        return self.severity in ("fault", "loss")

    def as_json(self) -> dict[str, object]:
        """Return the finding as plain JSON values."""
        plain = dataclasses.asdict(self)
        plain["evidence"] = [{"text": item.text, "case_keys": list(item.case_keys)} for item in self.evidence]
        plain["devices"] = list(self.devices)
        return plain


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of telling: disturbances, faults, losses, notes; within each the surest first."""
    return sorted(
        findings, key=lambda f: (SEVERITIES.index(f.severity), -f.confidence * (0.2 + f.effect), f.rule, f.subject)
    )
