"""The plans that travel with the program: a TOML file each in linkgauge/plans/, or one for a paper's figures."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from linkgauge.errors import UsageError, brief, nearest, not_one_of
from linkgauge.plan.model import Plan
from linkgauge.plan.papers import FOLDER, PAPERS, paper_plans
from linkgauge.plan.plan_file import read_plan


def names() -> list[str]:
    """Names of the built-in plans: quick, default and full first, then the rest.

    >>> names()[:3]
    ['quick', 'default', 'full']
    """
    found = sorted({path.stem for path in FOLDER.glob("*.toml")} - {*PAPERS} | {*paper_plans()})
    first = [name for name in ("quick", "default", "full") if name in found]
    return first + [name for name in found if name not in first]


def file_of(name: str) -> Path:
    """The file that a built-in plan stands in."""
    figure = paper_plans().get(name)
    return figure.file if figure else FOLDER / f"{name}.toml"


def builtin_plan(name: str) -> Plan:
    """The built-in plan of that name; UsageError naming those there are.

    >>> plan = builtin_plan("quick")
    >>> plan.name, plan.repeat
    ('quick', 1)
    """
    if name not in names():
        raise UsageError(f"unknown plan '{name}'{not_one_of(name, names())}")
    figure = paper_plans().get(name)
    return dataclasses.replace(figure.load() if figure else read_plan(file_of(name)), any_machine=True)


def plan_of(asked: str) -> Plan:
    """The plan that `--plan` names: a file where the text looks like a path or one exists, else a built-in plan."""
    path = Path(asked)
    # Not Path.exists, which raises for a name that is too long to be one.
    if path.suffix == ".toml" or "/" in asked or os.path.exists(path):
        return read_plan(path)
    if asked in names():
        return builtin_plan(asked)
    raise UsageError(
        f"no plan '{brief(asked)}'{nearest(asked, names())}: expected a TOML file or a name of 'linkgauge list plans'"
    )
