"""What published curves make of applications by each of their ways, beside what was seen of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from linkgauge.apps import catalog
from linkgauge.expect.curves import Curves, Faster
from linkgauge.expect.published import CurvesOfWay, Published, Seen, Way
from linkgauge.model.worded import App
from linkgauge.view.predicted import predicted
from linkgauge.view.units import time_text

ALIKE = 0.01
"""Ways whose times were seen to differ by less than this share are taken as alike."""


@dataclasses.dataclass(frozen=True)
class ByWay:
    """An application by one way. Times in ns; `time_ns` is what it communicates, `seen_ns` all that it was seen to
    take."""

    app: App
    ranks: int
    way: Way
    taken: str  # the way that it takes then
    time_ns: float | None
    why_not: str
    seen: Seen | None

    @property
    def seen_ns(self) -> int | None:
        """None where nobody says."""
        return None if self.seen is None else self.seen.times_ns.get(self.way.name)

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "app": self.app.label, "ranks": self.ranks, "way": self.way.name, "words": self.way.words,
            "predicted_ns": self.time_ns, "why_not": self.why_not, "seen_ns": self.seen_ns,
            "seen": "" if self.seen is None else self.seen.what,
        }  # fmt: skip


def by_ways(
    apps: Sequence[App], published: Published, beneath: Curves, counts: Sequence[int], factors: dict[str, float]
) -> list[ByWay]:
    """Each application on each number of ranks, by each way."""
    curves = {way.name: Faster(CurvesOfWay(way, beneath), factors) for way in published.ways}
    found = []
    for asked, count in itertools.product(apps, counts):
        file = catalog.asked(asked, count).file
        for way in published.ways:
            own = {key: value for key, value in way.settings.items() if key in file.parameters}
            app = catalog.asked(asked.with_settings(own), count).app
            taken = published.way_of(app, way)
            answer, why = predicted(app, count, curves[taken.name], taken.mechanism)
            ns = None if answer is None else answer.time_ns
            found.append(ByWay(app, count, way, taken.name, ns, why, published.seen_of(app, count)))
    return found


def order(found: Sequence[ByWay]) -> tuple[int, int, int]:
    """Of all pairs of unlike ways of an application that were predicted and seen: how many come in the order in which
    they were seen, of how many that differ there, and how many were seen alike."""
    right = differ = alike = 0
    for a, b in itertools.combinations(found, 2):
        if (a.app.name, a.ranks) != (b.app.name, b.ranks) or a.seen is not b.seen:
            continue
        if a.time_ns is None or b.time_ns is None or a.seen_ns is None or b.seen_ns is None or a.taken == b.taken:
            continue
        if abs(a.seen_ns - b.seen_ns) < ALIKE * max(a.seen_ns, b.seen_ns):
            alike += 1
            continue
        differ += 1
        right += (a.time_ns < b.time_ns) == (a.seen_ns < b.seen_ns)
    return right, differ, alike


def print_by_ways(found: Sequence[ByWay], published: Published) -> None:
    """Print a table, a row an application and way, with differences to the last way, and how orders compare."""
    from rich.text import Text

    from linkgauge.view.screen import console, titled_table

    out = console()
    last = published.ways[-1].name
    seen = any(one.seen_ns is not None for one in found)
    title = f"applications: what they communicate by published curves{', and seen as a whole' if seen else ''}"
    columns = ["application", "ranks", "by", "communication", f"more than {last}"]
    columns += ["seen", f"more than {last}", "of"] if seen else []
    table = titled_table(title, columns, {*columns} - {"application", "by", "of"}, no_wrap=True)
    for one in found:
        if one.time_ns is None:
            continue
        base = next((b for b in found if (b.seen, b.ranks, b.way.name, b.app.name) == (
            one.seen, one.ranks, last, one.app.name)), None)  # fmt: skip
        cells = [one.app.label, str(one.ranks), one.way.name, time_text(one.time_ns),
                 _more(one.time_ns, None if base is None else base.time_ns)]  # fmt: skip
        if seen:
            told = one.seen_ns
            cells += ["", "", ""] if told is None or one.seen is None else [
                time_text(told), _more(told, None if base is None else base.seen_ns), one.seen.what
            ]  # fmt: skip
        table.add_row(*map(Text, cells))
    out.print(table)
    for way in published.ways:
        out.print(Text(f"{way.name}: {way.words}"))
    out.print(Text(f"from {published.source}; copies at the rate of the links of {published.system}"))
    for reason, count in Counter(one.why_not for one in found if one.why_not).items():
        out.print(Text(f"not predicted: {reason}{f' ({count} times)' if count > 1 else ''}"))
    right, differ, alike = order(found)
    if differ or alike:
        out.print(
            f"pairs of ways in the order in which they were seen: {right} of {differ}; {alike} more were seen alike"
        )


def _more(time: float, base: float | None) -> str:
    if base is None or time == base:
        return ""
    return f"{'+' if time > base else '-'}{time_text(abs(time - base))}"
