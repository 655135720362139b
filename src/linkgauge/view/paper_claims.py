"""What a paper states of a figure, judged by a run: each claim is a ratio of the figure's own points."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linkgauge.errors import Exit
from linkgauge.model.grouped import grouped
from linkgauge.plan.papers import Claim, Figure
from linkgauge.view.paper_choice import fits
from linkgauge.view.paper_points import PUBLISHED, Drawing, Point
from linkgauge.view.units import digits

if TYPE_CHECKING:
    from linkgauge.store.run import Run

AS_IN_PAPER, DIFFERS, NOT_JUDGED = "as in the paper", "differs", "not judged"
_WORDS = ("panel", "series")


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim and what the run says of it: the verdict, and why, with the value that was found."""

    claim: Claim
    verdict: str
    why: str


@dataclasses.dataclass(frozen=True)
class FigureVerdict:
    """A figure's verdict: it differs where one claim does, and is as in the paper where none does and one holds."""

    figure: Figure
    judged: tuple[Judged, ...]
    why_not: str = ""  # why nothing could be judged

    @property
    def verdict(self) -> str:
        """One of the three."""
        verdicts = {one.verdict for one in self.judged}
        return DIFFERS if DIFFERS in verdicts else AS_IN_PAPER if AS_IN_PAPER in verdicts else NOT_JUDGED

    @property
    def why(self) -> str:
        """What decided, in words; empty where all that could be judged is as in the paper."""
        if self.verdict == NOT_JUDGED:
            reasons = dict.fromkeys(one.why for one in self.judged)
            return self.why_not or "; ".join(reasons) or "the paper states no ratio that another machine could show"
        return "; ".join(f"{one.claim.says}: {one.why}" for one in self.judged if one.verdict == DIFFERS)


def status_of(verdicts: Sequence[FigureVerdict]) -> Exit:
    """Return the exit status: FAIL where a figure differs, UNKNOWN where none could be judged, else DONE."""
    found = {one.verdict for one in verdicts}
    return Exit.FAIL if DIFFERS in found else Exit.DONE if AS_IN_PAPER in found else Exit.UNKNOWN


def judge(run: Run, figure: Figure, drawings: Sequence[Drawing]) -> FigureVerdict:
    """Judge a figure's claims by its points."""
    infos = (run.info.get("devices") or {}).get("infos") or ()
    names = " ".join(str(one.get("name", "")) for one in infos)
    by_picture = {one.picture.name: one for one in drawings}
    return FigureVerdict(figure, tuple(_judged(claim, by_picture.get(claim.picture), names) for claim in figure.claims))


def _judged(claim: Claim, drawing: Drawing | None, devices: str) -> Judged:
    if claim.on and claim.on not in devices:
        return Judged(claim, NOT_JUDGED, f"the paper's value is of {claim.on}")
    points = drawing.measured if drawing is not None else []
    chosen = _at(_selected(points, claim.of), claim.at)
    if drawing is None or not chosen:
        return Judged(claim, NOT_JUDGED, f"not measured: {_what(claim.of, claim.at)}")
    ratios = _ratios(claim, drawing, chosen)
    if not ratios:
        return Judged(claim, NOT_JUDGED, f"not measured: {_what(claim.over or claim.of, claim.over_at or claim.at)}")
    picks: dict[str, Callable[[Sequence[float]], Sequence[float]]] = {
        "median": lambda all_: [float(np.median(all_))],
        "highest": lambda all_: [max(all_)],
        "lowest": lambda all_: [min(all_)],
        "range": lambda all_: [max(all_)],
        "each": lambda all_: all_,
    }
    decisive = picks[claim.how](ratios)
    outside = [one for one in decisive if not claim.least <= one <= claim.most]
    shown = outside or decisive
    value = digits(shown[0]) if len(shown) == 1 else f"{digits(min(shown))} to {digits(max(shown))}"
    # Nothing is divided: the value has the picture's unit.
    plain = claim.over is None and not (claim.over_at or claim.published or claim.how == "range")
    unit = f" {drawing.unit}" if plain and drawing.unit != "times" else ""
    why = f"{value}{unit}, expected {_expected(claim)}{unit}"
    return Judged(claim, DIFFERS if outside else AS_IN_PAPER, why)


def _expected(claim: Claim) -> str:
    if claim.most == float("inf"):
        return f"at least {claim.least:g}"
    return f"{claim.least:g} to {claim.most:g}" if claim.least else f"at most {claim.most:g}"


def _ratios(claim: Claim, drawing: Drawing, chosen: Sequence[Point]) -> list[float]:
    """Return a claim's ratios; none where what is divided by was not measured, or is not positive."""
    if claim.how == "range":
        panels = grouped((point.panel, float(point.value or 0.0)) for point in chosen)
        return [max(all_) / min(all_) for all_ in panels.values() if len(all_) > 1 and min(all_) > 0]
    if claim.published:
        stated = {
            (one.panel, one.x): float(one.value or 0)
            for one in drawing.points
            if one.status == PUBLISHED and one.series == f"paper: {claim.published}"
        }
        return [float(one.value or 0) / stated[one.panel, one.x] for one in chosen if stated.get((one.panel, one.x))]
    if claim.over is None and not claim.over_at:
        return [float(one.value or 0.0) for one in chosen]
    under = _at(_selected(drawing.measured, claim.of if claim.over is None else claim.over), claim.over_at or claim.at)
    # The nearest that pairs them: the same panel and place, then the same place, then the same panel, then all.
    keys: tuple[Callable[[Point], Any], ...] = (
        lambda one: (one.panel, one.x),
        lambda one: one.x,
        lambda one: (one.panel, one.series),
        lambda one: one.panel,
        lambda one: None,
    )
    for key in keys[2:] if claim.over_at else keys:
        pairs = [(a, b) for a in chosen for b in under if a is not b and key(a) == key(b)]
        if pairs:
            return [float(a.value or 0.0) / b.value for a, b in pairs if b.value]
    return []


def _selected(points: Sequence[Point], where: Mapping[str, Any]) -> list[Point]:
    """Return the points of cases with these dimensions, in panels and series with these words."""
    dimensions = {name: value for name, value in where.items() if name not in _WORDS}
    words = {name: str(value) for name, value in where.items() if name in _WORDS}
    return [
        one
        for one in points
        if (one.row is None or fits(one.row, dimensions))
        and all(text in getattr(one, name) for name, text in words.items())
    ]


def _at(points: Sequence[Point], at: tuple[str, ...]) -> list[Point]:
    """Return the points at some places: at the first or last of each series, at those in words, or all."""
    if not at:
        return list(points)
    if at in (("first",), ("last",)):
        ends = grouped(((point.panel, point.series), point) for point in points)
        pick = min if at == ("first",) else max
        return [pick(all_, key=_number) for all_ in ends.values()]
    return [one for one in points if one.place in at]


def _number(point: Point) -> float:
    return float(point.x) if isinstance(point.x, int | float) or str(point.x).isdigit() else 0.0


def _what(where: Mapping[str, Any], at: tuple[str, ...]) -> str:
    said = ", ".join(
        f"{name} {' or '.join(map(str, value)) if isinstance(value, list | tuple) else value or 'default'}"
        for name, value in where.items()
    )
    places = " or ".join(at)
    return " at ".join(part for part in (said or "this picture", places) if part)
