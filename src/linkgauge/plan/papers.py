"""The papers' figures: each is a built-in plan, and says what to draw of it, how the paper reckons, and its numbers.

A paper is one file in linkgauge/plans/; docs/reference/plans.md (The papers' plans) says what stands in it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linkgauge.model.shape import as_it_is, checked, each, mapping, only, read_toml, table, text, whole
from linkgauge.plan.model import Plan
from linkgauge.plan.plan_file import PLAN, plan_of_tables

FOLDER = Path(__file__).resolve().parent.parent / "plans"
PAPERS = ("sc24", "infinity-fabric", "openpower", "tartan", "leonardo")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A paper's figures or tables that one plan repeats.

    `covers` are their numbers in the paper; none: a plan that is measured beside another figure's. `draws` names the
    pictures of `linkgauge plot`, in the paper's form. `estimator` is how the paper sums up a case's samples (mean,
    median, best), `unit` the one it prints. `ranks` is `each` where it is measured on 2, 3, ... devices, `via` where
    copies go by way of each device. `nodes` is how many a faithful repetition needs. `against` names the launch without
    settings where the paper tells what settings give: the others' times are held against its.
    """

    name: str  # PAPER:FIGURE
    title: str
    file: Path
    tables: Mapping[str, Any] = dataclasses.field(repr=False)  # the plan's
    covers: tuple[str, ...] = ()
    draws: tuple[str, ...] = ()
    estimator: str = ""
    unit: str = ""
    numbers: tuple[str, ...] = ()
    ranks: str = ""
    via: str = ""
    nodes: int = 1
    against: str = ""

    @property
    def paper(self) -> str:
        """The paper's short name."""
        return self.name.partition(":")[0]

    @property
    def plan(self) -> str:
        """The plan's name."""
        return self.name.replace(":", "-")

    def load(self) -> Plan:
        """Return the plan."""
        return plan_of_tables(self.tables, str(self.file), self.plan, f"figure.{self.name.partition(':')[2]}")


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Figures and tables of a paper that no plan repeats, and why."""

    paper: str
    covers: tuple[str, ...]
    why: str


_OWN = {
    "covers": each(text), "draws": each(text), "estimator": text, "unit": text, "numbers": each(text), "ranks": text,
    "via": text, "nodes": whole(1), "against": text,
}  # fmt: skip
_figure = only({**_OWN, **dict.fromkeys(PLAN, as_it_is), "case": each(table({}, as_it_is))})
_paper = only(
    {"title": text, "estimator": text, "unit": text, "figure": mapping(as_it_is), "every_case": table({}, as_it_is),
     "left_out": each(only({"covers": each(text), "why": text}, ("covers", "why")))},
    ("title", "figure", "left_out"),
)  # fmt: skip


def read_paper(file: Path) -> tuple[list[Figure], list[LeftOut]]:
    """Return what a paper's file says of its figures; UsageError naming the table with a key that is not known."""
    paper, document = file.stem, checked(read_toml(file, "a paper's TOML"), _paper, str(file))
    found = []
    for key, said in document["figure"].items():
        entry = checked(said, _figure, f"{file}: [figure.{key}]")
        tables = {name: value for name, value in entry.items() if name in PLAN}
        tables["case"] = [{**document.get("every_case", {}), **case} for case in entry.get("case", [])]
        own = {name: document[name] for name in ("estimator", "unit") if name in document} | {
            name: tuple(value) if isinstance(value, list) else value for name, value in entry.items() if name in _OWN
        }
        found.append(Figure(f"{paper}:{key}", document["title"], file, tables, **own))
    return found, [LeftOut(paper, tuple(entry["covers"]), entry["why"]) for entry in document["left_out"]]


@functools.cache
def _papers() -> list[tuple[list[Figure], list[LeftOut]]]:
    return [read_paper(FOLDER / f"{name}.toml") for name in PAPERS]


def paper_plans() -> dict[str, Figure]:
    """Return the figures, and the plans beside them, by the plan's name, in the order of the papers."""
    return {figure.plan: figure for found, _ in _papers() for figure in found}


def figures() -> list[Figure]:
    """Return all figures in the order of the papers."""
    return [figure for figure in paper_plans().values() if figure.covers]


def left_out() -> list[LeftOut]:
    """Return what no plan repeats, in the order of the papers."""
    return [one for _, without in _papers() for one in without]
