"""The papers' figures: each is a built-in plan, and says what its pictures show, which statistic the paper
uses, and the values that the paper states.

A paper is one file in linkgauge/plans/; docs/reference/plans.md (The papers' plans) has its keys.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linkgauge.model.quantity import parse_size
from linkgauge.model.shape import (
    as_it_is,
    checked,
    each,
    mapping,
    number,
    one_of,
    one_or_more,
    only,
    parsed_by,
    read_toml,
    table,
    text,
    whole,
)
from linkgauge.plan.model import Plan
from linkgauge.plan.plan_file import PLAN, plan_of_tables

FOLDER = Path(__file__).resolve().parent.parent / "plans"
PAPERS = ("sc24", "infinity-fabric", "openpower", "tartan", "leonardo")


FORMS = ("curve", "bars", "boxes", "matrix", "ratio", "kinds")
PLACES = ("size", "ranks", "devices", "target", "route")
QUANTITIES = ("goodput", "busbw", "latency")
UNITS = ("GB/s", "Gb/s", "us")
ENDS = ("first", "last")


@dataclasses.dataclass(frozen=True)
class Picture:
    """What one picture of a figure shows; the table, the chart and the CSV file are made from it.

    `x` is one of PLACES. `panel` and `series` name dimensions of a case; a dimension that varies and stands in neither
    tells series apart if it says how data is moved, else panels. So no case is left out silently. `patterns`,
    `transports`: only these cases. `sizes`, `ranks`: only these, or the first or last one of each pattern. `most`: no
    larger size. `counts` is how many bytes the paper counts for one byte of ours. `scale` is of the vertical axis.
    """

    name: str
    form: str = "curve"
    x: str = "size"
    y: str = "goodput"
    unit: str = ""
    scale: str = "log"
    covers: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    sizes: str | tuple[int, ...] = ()
    ranks: str = ""
    most: int | None = None
    panel: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    counts: float = 1.0


@dataclasses.dataclass(frozen=True)
class PublishedCurve:
    """Values that a paper states: points of one picture, in its unit. `read` says where in the paper they stand.

    `where` names dimensions of the cases beside which they are drawn. `level`: one value for every place.
    """

    picture: str
    series: str
    read: str
    points: tuple[tuple[float, float], ...] = ()
    level: float | None = None
    where: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Figure:
    """A paper's figures or tables that one plan repeats.

    `covers` are their numbers in the paper. `pictures` say what is drawn, `published` what the paper states, and
    `curves` names a built-in file of published curves. `estimator` is how the paper sums up a case's samples (mean,
    median, best), `unit` the one in which it prints rates. `ranks` is `each` where it is measured on 2, 3, ... devices,
    `via` where copies go by way of each device. `nodes` is how many a faithful repetition needs. `against` names the
    launch without settings where the paper tells what settings give: the others' times are held against its.
    """

    name: str  # PAPER:FIGURE
    title: str
    file: Path
    tables: Mapping[str, Any] = dataclasses.field(repr=False)  # the plan's
    covers: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    published: tuple[PublishedCurve, ...] = ()
    curves: str = ""
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
    "covers": each(text), "estimator": text, "unit": one_of(UNITS), "numbers": each(text), "ranks": text,
    "via": text, "nodes": whole(1), "against": text, "curves": text,
}  # fmt: skip


def _sizes(value: Any, at: str) -> str | tuple[int, ...]:
    return str(value) if value in ENDS else tuple(each(_size)(value, at))


_size = parsed_by(parse_size)
_picture = only(
    {"name": text, "form": one_of(FORMS), "x": one_of(PLACES), "y": one_of(QUANTITIES), "unit": one_of(UNITS),
     "scale": one_of(("log", "linear")), "covers": each(text), "patterns": each(text), "transports": each(text),
     "sizes": _sizes, "ranks": one_of(ENDS), "most": _size, "panel": each(text), "series": each(text),
     "counts": number(0.0)},
    ("name",),
)  # fmt: skip
_published = only(
    {"picture": one_or_more(text), "series": text, "read": text, "points": each(each(number(), 2, 2)),
     "level": number(0.0), "where": mapping(as_it_is)},
    ("picture", "series", "read"),
)  # fmt: skip
_figure = only(
    {**_OWN, **dict.fromkeys(PLAN, as_it_is), "case": each(table({}, as_it_is)), "picture": each(_picture),
     "published": each(_published)}
)  # fmt: skip
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
        pictures = tuple(Picture(**_frozen(one)) for one in entry.get("picture", ()))
        curves = tuple(
            PublishedCurve(**{**_frozen(one), "picture": name})
            for one in entry.get("published", ())
            for name in one["picture"]
        )
        found.append(
            Figure(f"{paper}:{key}", document["title"], file, tables, pictures=pictures, published=curves, **own)
        )
    return found, [LeftOut(paper, tuple(entry["covers"]), entry["why"]) for entry in document["left_out"]]


def _frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) for name, value in entry.items()}


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


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
