"""What a rule allows a case: a rate or a time, with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from linkgauge.expect.rules import RULES


@dataclass(frozen=True)
class Limit:
    """What one rule allows a case: a goodput in bytes per second as docs/definitions.md counts it, or a latency in ns.

    `basis` says in words what the value rests on (links, path, cut), `source` where the rule comes from. `without` is
    what must not be used for it to hold, where the case may use that; None: it holds anyway.

    >>> from linkgauge.expect import limits
    >>> from linkgauge.system import load
    >>> one = limits(load("hgx-h100-8"), {"pattern": "allreduce"})[0]
    >>> one.rule, one.kind, one.without
    ('allreduce_bytes', 'upper bound', 'in-network reduction')
    """

    rule: str
    kind: str
    value_bytes_per_s: float | None
    basis: str
    source: str
    latency_ns: float | None = None
    without: str | None = None


def goodput(one: Limit) -> float:
    """Return the goodput that a limit allows in bytes per second; 0 of a latency."""
    return one.value_bytes_per_s or 0.0


def limit(rule: str, value: float | None, basis: str, *, kind: str | None = None, source: str | None = None) -> Limit:
    """Return a limit of a rule in the table, with its usual kind and source unless others are given."""
    known = RULES[rule]
    return Limit(rule, kind or known.kind, value, basis, source or known.source)
