"""Expected goodput: what a system's links allow a case, by named rules (docs/reference/limits.md).

What others call:

- `limits(system, case) -> list[Limit]`, where `case` is a mapping with the names of docs/definitions.md's
  dimensions (`pattern` is the only one that must be there; `Case.dimensions()` or a row of cases.parquet will do);
- `Limit`: `rule`, `kind`, `value_bytes_per_s` (goodput as the pattern's row of docs/definitions.md counts it) or
  `latency_ns`, `basis` in words, `source`;
- `RULES`: the table of rules.

Importing this package loads no solver; calling `limits` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linkgauge.expect.limit import Limit
from linkgauge.expect.rules import KINDS, RULES, Rule

if TYPE_CHECKING:
    from linkgauge.expect.of_case import limits

__all__ = ["KINDS", "RULES", "Limit", "Rule", "limits"]


def __getattr__(name: str) -> Any:
    """Import the solvers only when a limit is asked for."""
    if name == "limits":
        import importlib

        return importlib.import_module("linkgauge.expect.of_case").limits
    raise AttributeError(name)
