"""What a rule is. Each stands at its function, by `@rule(...)`; `rules` collects them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkgauge.findings.facts import Facts
    from linkgauge.findings.finding import Finding


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule: its function's name, and what it looks for.

    `reads_samples`: it goes through series and not only summaries, and so takes longer. `faults`: it can tell a fault,
    or why none is reported.
    `whole`: it reads all cases, also those that ran while a device was slower than before; other rules do without.
    `tells`: the names of its findings.
    """

    name: str
    find: Callable[[Facts], Iterable[Finding]]
    looks_for: str
    reads_samples: bool = False
    faults: bool = False
    whole: bool = False
    tells: tuple[str, ...] = ()


REGISTERED: dict[str, Rule] = {}
"""All rules whose modules are loaded, by name."""


def rule(
    looks_for: str,
    *,
    reads_samples: bool = False,
    faults: bool = False,
    whole: bool = False,
    tells: tuple[str, ...] = (),
) -> Callable[[Callable[[Facts], Iterable[Finding]]], Callable[[Facts], Iterable[Finding]]]:
    """Make a function of facts a rule. `tells`: the names of its findings, where these are others than its own."""

    def made(find: Callable[[Facts], Iterable[Finding]]) -> Callable[[Facts], Iterable[Finding]]:
        name = find.__name__
        REGISTERED[name] = Rule(name, find, looks_for, reads_samples, faults, whole, tells or (name,))
        return find

    return made
