"""The papers' figures are declared as the papers' texts say: paper_parameters.toml is read from the texts alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.model.case import MEMORY_KINDS
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import parse_size
from linkgauge.model.shape import read_toml
from linkgauge.plan.joined import of_each
from linkgauge.plan.model import narrowed
from linkgauge.plan.papers import Figure, figures, left_out, papers
from linkgauge.run.parent.prepare import prepare_on
from linkgauge.view.reproduce import chosen

STATED = read_toml(Path(__file__).parent / "paper_parameters.toml", "the papers' parameters")


def values(figure: Figure, name: str) -> list[Any]:
    """The values of a dimension in all of a figure's tables, each once."""
    found: dict[Any, None] = {}
    for table in figure.load().cases:
        found |= dict.fromkeys(table.values.get(name, ()))
    return list(found)


def of(figure: Figure, name: str, default: str = "") -> set[str]:
    """The words of a dimension; `default` is a table's that does not name it."""
    found: set[str] = set()
    for table in figure.load().cases:
        found |= {"" if str(one) == "default" else str(one) for one in table.values.get(name, (default,))}
    return found


def memories(figure: Figure) -> set[str]:
    """The kinds of memory that a figure's cases send from and receive into."""
    found = set()
    for table in figure.load().cases:
        for pattern in map(str, table.values["pattern"]):
            host = PATTERNS[pattern].host_end
            for end in ("source", "target"):
                usual = "pinned" if host == end else "device"
                found |= {str(one) for one in table.values.get(f"{end}_memory", (usual,))}
    return found & set(MEMORY_KINDS)


def bytes_of(text: str) -> float:
    """A size of the papers' texts, where KB to GB may mean either base."""
    decimal = re.fullmatch(r"([0-9]+)([KMG])B", text)
    if decimal is None:
        return parse_size(text)
    return float(decimal[1]) * {"K": 1e3, "M": 1e6, "G": 1e9}[decimal[2]]


def alike(size: float, stated: str) -> bool:
    """Whether a size is the stated one, in either base."""
    return size == pytest.approx(bytes_of(stated), rel=0.08 if stated.endswith(("KB", "MB", "GB")) else 0)


def sizes(figure: Figure) -> list[int]:
    return [size for size in values(figure, "size") if isinstance(size, int)]


def all_sizes(figure: Figure, stated: list[str]) -> bool:
    found = sizes(figure)
    return len(found) == len(stated) and all(any(alike(size, one) for size in found) for one in stated)


def planned(figure: Figure, name: str) -> list[Any]:
    """The cases of a figure's plan for a described system."""
    system = systems.load(name)
    plan, wanted = figure.load(), of_each(figure, len(system.devices))
    launches = prepare_on(narrowed(plan, wanted, replace=False) if wanted else plan, system, []).launches
    return [case for launch in launches for case in (*launch.cases, *(one for one, _ in launch.skipped))]


def operations(figure: Figure) -> set[int]:
    """How many operations a case does: samples, of a streaming one each with a batch."""
    found = set()
    for table in figure.load().cases:
        batch = table.values["batch"][0] if table.values.get("cadence") == ("streaming",) else 1
        found.add(table.values["stop_samples"][0] * batch)
    return found


def environment(figure: Figure) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for launch in figure.load().launches:
        for name, texts in launch.env.items():
            found.setdefault(name, set()).update(texts)
    return {name: sorted(texts) for name, texts in found.items()}


def loads(figure: Figure) -> set[str]:
    return {
        str(load.values["pattern"])
        for table in figure.load().cases
        for written in table.values.get("background", ())
        for load in getattr(written, "each", ())
    }


# By a key of the table: what the declaration has in its place, as the table writes it.
HAS: dict[str, Callable[[Figure, Any], bool]] = {
    "transports": lambda figure, said: of(figure, "transport") == set(said),
    "patterns": lambda figure, said: of(figure, "pattern") == set(said),
    "size": all_sizes,
    "sizes": lambda figure, said: alike(min(sizes(figure)), said[0]) and alike(max(sizes(figure)), said[1]),
    "least_size": lambda figure, said: alike(min(sizes(figure)), said),
    "most_size": lambda figure, said: alike(max(sizes(figure)), said),
    "samples": lambda figure, said: all(said[0] <= one <= said[1] for one in values(figure, "stop_samples")),
    "warmup": lambda figure, said: values(figure, "warmup") == [said],
    "operations": lambda figure, said: operations(figure) >= {said} and min(operations(figure)) >= 50,
    "estimator": lambda figure, said: figure.estimator == said,
    "unit": lambda figure, said: figure.unit == said,
    "nodes": lambda figure, said: figure.nodes == said,
    "memories": lambda figure, said: memories(figure) == set(said),
    "managed": lambda figure, said: of(figure, "managed") == set(said),
    "numa": lambda figure, said: values(figure, "source_node") == said,
    "clock": lambda figure, said: values(figure, "clock") == [said],
    "variants": lambda figure, said: of(figure, "variant") == set(said),
    "gpudirect": lambda figure, said: set(values(figure, "gpudirect")) == set(said),
    "classes": lambda figure, said: of(figure, "service_class") == set(said),
    "ranks_per_device": lambda figure, said: {int(one) for one in of(figure, "ranks_per_device", "1")} == set(said),
    "loads": lambda figure, said: loads(figure) == set(said),
    "placements": lambda figure, said: {table.placement for table in figure.load().cases} == set(said),
    "env": lambda figure, said: environment(figure) == said,
    "most_ranks": lambda figure, said: max(values(figure, "ranks")) == said,
    "peer_access": lambda figure, said: {one.peer_access for one in figure.load().launches} == {said},
    "peer_accesses": lambda figure, said: (
        {one.peer_access and "NCCL_P2P_DISABLE" not in one.env for one in figure.load().launches} == set(said)
    ),
    "apps": lambda figure, said: {str(one).partition(" ")[0] for one in values(figure, "app")} == set(said),
    "quantities": lambda figure, said: {one.y for one in figure.pictures if one.form != "kinds"} == set(said),
    "counted": lambda figure, said: {one.counts for one in figure.pictures} == {said},
    "scales": lambda figure, said: {one.y: one.scale for one in figure.pictures} == said,
    "columns": lambda figure, said: (
        {str(place) for curve in figure.published for place, _ in curve.points if curve.picture == "columns"}
        | {"GPU memory"}
        == set(said)
    ),
    "drawn": lambda figure, said: all(
        {way for way in one.paths if len(way) > 1} == set(map(tuple, said)) for one in figure.pictures
    ),
}


@pytest.mark.parametrize("name", STATED["figures"])
def test_a_figure_is_declared_as_the_papers_text_says(name: str) -> None:
    (figure,) = chosen(name)
    said = {**STATED["figures"][name]}
    assert said.pop("read")
    system, ends, counts = said.pop("system", ""), said.pop("ends", []), said.pop("counts", [])
    wrong = [key for key, value in said.items() if not HAS[key](figure, value)]
    assert not wrong, {key: said[key] for key in wrong}
    if system and (ends or counts):
        cases = planned(figure, system)
        assert {case.devices for case in cases} >= {tuple(one) for one in ends}
        if counts:
            assert {case.ranks for case in cases} == set(counts)


def test_every_figure_has_stated_parameters() -> None:
    assert set(STATED["figures"]) == {figure.name for figure in figures()}


@pytest.mark.parametrize("paper", STATED["papers"])
def test_every_figure_and_table_with_a_measurement_is_offered_and_others_are_excused_in_a_line(paper: str) -> None:
    said = STATED["papers"][paper]
    there = {str(i) for i in range(1, said["figures"] + 1)} | {f"table {i}" for i in range(1, said["tables"] + 1)}
    without = set(said["without_measurement"])
    offered = {number for one in figures() if one.paper == paper for number in one.covers}
    assert {one for one in offered if not one.startswith("section")} == there - without
    excused = [one for one in left_out() if one.paper == paper]
    assert {number for one in excused for number in one.covers} == without
    assert all(one.why and "\n" not in one.why for one in excused)


def test_a_paper_of_the_list_is_a_paper_of_the_program() -> None:
    assert list(STATED["papers"]) == [paper.name for paper in papers()]
