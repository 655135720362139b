"""A paper's figure measured here: how to run its plan, numbers and pictures beside the paper's, what settings give."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linkgauge.built import build_of
from linkgauge.errors import UsageError, nearest
from linkgauge.files import write_atomically
from linkgauge.judge.compare_runs import words_of
from linkgauge.plan.joined import of_each
from linkgauge.plan.papers import Figure, figures
from linkgauge.stats.attempts import counted
from linkgauge.stats.compare import LEAST_REPEATS, Shift
from linkgauge.stats.launches import device_noun, shown_transports
from linkgauge.stats.paired import paired_shift
from linkgauge.tune.table import libraries
from linkgauge.view.paper_points import Drawing, as_csv
from linkgauge.view.picture_facts import COLUMN_INCHES, facts_of

if TYPE_CHECKING:
    from linkgauge.store.run import Run


def chosen(asked: str) -> list[Figure]:
    """Return the figures that `PAPER` or `PAPER:FIGURE` names, all for an empty text. UsageError for an unknown one."""
    known = figures()
    if not asked:
        return known
    found = [one for one in known if asked in (one.paper, one.name)]
    if not found:
        names = [one.name for one in known] + sorted({one.paper for one in known})
        raise UsageError(f"no figure '{asked}'{nearest(asked, names)}: 'linkgauge reproduce' lists those there are")
    return found


def dimensions_of(figure: Figure, device_count: int) -> dict[str, list[str]]:
    """Return by dimension what `linkgauge run` is given beside a figure's plan, on a machine with so many devices."""
    return {name: [",".join(map(str, numbers))] for name, numbers in of_each(figure, device_count).items()}


def pictures(
    run: Run, figure: Figure, found: Sequence[Drawing], folder: Path, suffix: str = ".svg", *, column: bool = False
) -> list[tuple[Path | None, str]]:
    """Draw a figure's pictures in `folder`, with the paper's values, and what was not measured below the title.

    `suffix` is the files' form as in `linkgauge plot`. The figure's CSV file lies beside them. `column`: 3.3 inches
    wide without title, for a column of a paper; what stands below the title is a text file beside the picture.

    Returns each file with a note on what it leaves out, or None with the reason why it is not drawn.
    """
    from linkgauge.errors import LinkgaugeError
    from linkgauge.view import charts
    from linkgauge.view.figure_files import write_figure
    from linkgauge.view.paper_charts import chart_of

    facts = facts_of(run)
    drawn: list[tuple[Path | None, str]] = []
    for drawing in found:
        name = f"{figure.plan}-{drawing.picture.name}"
        if not drawing.measured:
            why = "; ".join(drawing.remarks) or "this run has no case of it"
            drawn.append((None, f"{name}: {why}"))
            continue
        try:
            with charts.drawing():
                title, below = title_of(drawing), subtitle_of(run, drawing)
                chart = chart_of(drawing, column)
                spec = charts.spec_of(charts.themed(chart, *(() if column else (title, below))), validate=False)
            write_figure(spec, folder / f"{name}{suffix}", facts, COLUMN_INCHES if column else None)
            if column:
                write_atomically(folder / f"{name}.txt", "\n".join([title, *below, ""]).encode())
            drawn.append((folder / f"{name}{suffix}", ""))
        except LinkgaugeError as error:
            drawn.append((None, f"{name}: {error}"))
    if any(picture.form == "kinds" for picture in figure.pictures):
        drawn.append(_kinds(run, figure, folder / f"{figure.plan}-kinds{suffix}"))
    write_atomically(
        folder / f"{figure.plan}.csv", as_csv(record for one in found for record in one.records()).encode()
    )
    return drawn


def _kinds(run: Run, figure: Figure, path: Path) -> tuple[Path | None, str]:
    """Draw where the time of a figure's applications went."""
    from linkgauge.errors import LinkgaugeError
    from linkgauge.view.figure_files import write_figure
    from linkgauge.view.figures import Selection, draw
    from linkgauge.view.limits import Limits
    from linkgauge.view.results import Results

    try:
        spec, note = draw(Results(run), Limits(run), "kinds", Selection())
        said = _wrapped([f"{figure.title}, {covered(figure.covers)}. The paper:", *figure.numbers])
        spec["title"] = {**spec["title"], "subtitle": said}
        write_figure(spec, path, facts_of(run))
        return path, note
    except LinkgaugeError as error:
        return None, f"{path.stem}: {error}"


def covered(covers: Sequence[str]) -> str:
    """Return the numbers of figures as a paper writes them: `Figs. 3, 4`, `table 1`."""
    numbers = [one for one in covers if one[0].isdigit()]
    first = [f"Fig{'s' if len(numbers) > 1 else ''}. {', '.join(numbers)}"] if numbers else []
    return ", ".join([*first, *(one for one in covers if not one[0].isdigit())])


def title_of(drawing: Drawing) -> str:
    """Return a picture's title: which figure of which paper, and what of it."""
    figure, picture = drawing.figure, drawing.picture
    authors = figure.title.partition(" et al.")[0].partition(",")[0]
    return f"{authors}, {covered(picture.covers or figure.covers)} · {picture.name.replace('-', ' ')}"


def subtitle_of(run: Run, drawing: Drawing) -> list[str]:
    """Return the lines below a picture's title: paper, statistic, machine, the paper's numbers, what is missing."""
    from linkgauge.view.results import machine_words

    figure = drawing.figure
    host, devices = machine_words(run)
    when = str(run.info.get("start") or "")[:10]
    machine = ", ".join(part for part in (*devices, host, when, f"Linkgauge {build_of(run.info).words}") if part)
    spread = "Band: quartiles. " if drawing.picture.form == "curve" and figure.estimator != "best" else ""
    spread = "Box: quartiles, whiskers: 5 and 95 %, diamond: mean. " if drawing.picture.form == "boxes" else spread
    lines = [figure.title, f"Statistic: {figure.estimator}. {spread}Measured on {machine}.", *drawing.remarks]
    return _wrapped([*lines, "The paper:", *figure.numbers])


def _wrapped(lines: Sequence[str]) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, 100)]


@dataclasses.dataclass(frozen=True)
class Effect:
    """A case under one setting: its time without, in ns, and what the setting changes of it, as a share.

    `shift` is None where there are no pairs of launches. `unread`: why no library here heeds it; empty: one may.
    """

    words: str
    setting: str
    default_ns: float
    shift: Shift | None
    pairs: int
    unread: str

    @property
    def verdict(self) -> str:
        """What can be said, in words."""
        if self.shift is None or self.pairs < LEAST_REPEATS:
            return "cannot tell"
        return "faster" if self.shift.high < 0 else "slower" if self.shift.low > 0 else "no change seen"


def effects(run: Run) -> list[Effect]:
    """Return what each setting of a run's launches gives over launches without any, by setting and case."""
    launches = {row.launch: row for row in run.launched}
    times: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    words: dict[tuple[str, str], str] = {}
    told: dict[str, str] = {}
    shown, noun = shown_transports(launches.values()), device_noun(launches.values())
    for row in (row for group in counted(run).measured for row in group):
        launch = launches[row.launch]
        setting = " ".join(f"{name}={value}" for name, value in sorted(launch.env.items()))
        key = (launch.mpi_name, row.case_key)
        words[key] = words_of(row.case, shown, noun)
        times.setdefault(key, {}).setdefault(setting, {})[row.repeat] = row.median_ns
        kind = next((rank.device_kind for rank in launch.ranks), "host")
        told[setting] = "; ".join(why for name in launch.env if (why := _unread(name, kind, launch.mpi_vendor)))
    found = []
    for key, by_setting in times.items():
        default = by_setting.pop("", {})
        for setting, mine in by_setting.items():
            both = sorted(default.keys() & mine.keys())
            shift = paired_shift([np.log(mine[one] / default[one]) for one in both]) if both else None
            usual = float(np.median([*default.values()])) if default else float("nan")
            found.append(Effect(words[key], setting, usual, shift, len(both), told[setting]))
    return sorted(found, key=lambda one: (one.setting, one.words))


def _unread(name: str, kind: str, mpi_vendor: str) -> str:
    """Why a variable is none of the libraries of a launch; empty where it is of one, or of nobody that is known."""
    owners = [one for one in libraries().values() if any(setting.name == name for setting in one.settings)]
    if not owners or {kind, mpi_vendor} & {vendor for one in owners for vendor in one.vendors}:
        return ""
    return f"{name} is {' and '.join(one.title for one in owners)}'s: nothing here reads it"
