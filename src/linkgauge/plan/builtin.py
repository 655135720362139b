"""The plans that travel with the program: one TOML file each in linkgauge/plans/, read like any other plan file."""

from __future__ import annotations

import os
from pathlib import Path

from linkgauge.errors import UsageError, nearest
from linkgauge.plan.model import Plan
from linkgauge.plan.plan_file import read_plan

FOLDER = Path(__file__).resolve().parent.parent / "plans"


def names() -> list[str]:
    """Names of the built-in plans: quick, default and full first, then the rest."""
    found = sorted(path.stem for path in FOLDER.glob("*.toml"))
    first = [name for name in ("quick", "default", "full") if name in found]
    return first + [name for name in found if name not in first]


def builtin_plan(name: str) -> Plan:
    """The built-in plan of that name; UsageError naming those there are."""
    if name not in names():
        raise UsageError(f"unknown plan '{name}'{nearest(name, names())}: expected one of {', '.join(names())}")
    return read_plan(FOLDER / f"{name}.toml")


def plan_of(asked: str) -> Plan:
    """The plan that `--plan` names: a file where the text looks like a path or one exists, else a built-in plan."""
    path = Path(asked)
    # Not Path.exists, which raises for a name that is too long to be one.
    if path.suffix == ".toml" or "/" in asked or os.path.exists(path):
        return read_plan(path)
    if asked in names():
        return builtin_plan(asked)
    raise UsageError(f"no plan '{asked}'{nearest(asked, names())}: expected a TOML file or one of {', '.join(names())}")
