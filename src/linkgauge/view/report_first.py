"""The report's first screen: the sentence, the node, the pair matrix, and the table of tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from linkgauge.view.answer import TaskAnswer, first_answers
from linkgauge.view.first import FirstLook
from linkgauge.view.full_pairs import FullPairs
from linkgauge.view.node_marks import STEPS, colour_class
from linkgauge.view.node_picture import node_svg, summary_text, texts
from linkgauge.view.page import Page, escape
from linkgauge.view.tasks import NOTE, apart_lines, task_words
from linkgauge.view.units import rate_text, size_text

_MOST_CELLS = 16
_MOST_FIGURES = 8


def first_screen(page: Page, look: FirstLook, unit: str) -> None:
    """Add the picture of the node beside the pair matrix, and the table of tasks."""
    page.html('<section class="first">')
    _pictures(page, look, unit)
    page.html("</section>")
    _tasks(page, look, unit)


def _pictures(page: Page, look: FirstLook, unit: str) -> None:
    node, system = look.node, look.ceilings.system
    drawn = node is not None and any(one.rate is not None for one in node.told)
    pairs = [one for one in (look.one_way, look.both_ways) if one is not None and len(one.rows) > 1]
    if node is not None and drawn:
        page.html(f'<figure class="picture"><figcaption>{escape(f"What each link reached, {unit}")}</figcaption>')
        page.html(f'<div class="scroll">{node_svg(system, node, unit)}</div>')
        page.html(f'<p class="hint">{escape(summary_text(node))}</p>')
        rows = "".join(f"<li>{escape(name)}: {escape(said)}</li>" for name, said in texts(system, node, unit))
        page.html(f"<details><summary>in words</summary><ul>{rows}</ul></details></figure>")
    if pairs:
        page.html('<div class="matrices">')
        for one in pairs:
            _matrix(page, one, unit)
        _legend(page)
        page.html("</div>")
    elif drawn:
        _legend(page)


def _matrix(page: Page, pairs: FullPairs, unit: str) -> None:
    """Add one matrix of goodput: a row a source; coloured by shares of what its way carries."""
    ways = "both ways, sum" if pairs.pattern == "bidirectional" else "one way"
    caption = f"Pairs {ways}, {unit}"
    page.html(f'<figure class="matrix"><figcaption>{escape(caption)}</figcaption><div class="scroll">')
    if len(pairs.devices) > _MOST_CELLS:
        _ranges(page, pairs, unit)
    else:
        _cells(page, pairs, unit)
    page.html("</div>")
    limits = {round(limit) for limit in pairs.limits.values()}
    if not pairs.shares:
        colour = "No colour: what the links carry is not known."
    elif not pairs.filled:
        colour = f"No colour: this fills no link, {100 * max(pairs.shares):.0f} % at most."
    elif len(limits) == 1:
        colour = f"Colour: share of {rate_text(limits.pop(), unit)}, what the links carry."
    else:
        colour = "Colour: share of what the narrowest link on the way carries."
    page.note(f"{pairs.label}, {size_text(pairs.size)}. {colour}")
    page.html("</figure>")


def _cells(page: Page, pairs: FullPairs, unit: str) -> None:
    outside = {pair for own in pairs.classes for pair in own.apart}
    figures = len(pairs.devices) <= _MOST_FIGURES
    size = "" if figures else " small"
    head = "".join(f'<th scope="col">{device}</th>' for device in pairs.devices)
    page.html(f'<table class="heat{size}"><thead><tr><th>from \\ to</th>{head}</tr></thead><tbody>')
    for a in pairs.devices:
        line = [f'<tr><th scope="row">{a}</th>']
        for b in pairs.devices:
            if (a, b) not in pairs.rows:
                line.append("<td></td>")
                continue
            share = pairs.share((a, b))
            rate = rate_text(pairs.rows[a, b]["goodput_bytes_per_s"], unit)
            told = f"{a} to {b}: {rate} {unit}" + ("" if share is None else f", {100 * share:.0f} %")
            odd = " odd" if (a, b) in outside else ""
            colour = colour_class(share if pairs.filled else None)
            text = rate if figures else ("!" if odd else "")
            line.append(f'<td class="{colour}{odd}" title="{escape(told)}">{escape(text)}</td>')
        page.html("".join([*line, "</tr>"]))
    page.html("</tbody></table>")


def _ranges(page: Page, pairs: FullPairs, unit: str) -> None:
    """Add a line for each class of pairs, where a matrix would have too many cells to look at."""
    page.html("<table><thead><tr><th>alike pairs</th><th>from</th><th>to</th><th>apart</th></tr></thead><tbody>")
    for own in pairs.classes:
        a, b = own.pairs[0]
        apart = ", ".join(f"{x} to {y}" for x, y in own.apart[:6])
        cells = (f"{len(own.pairs)} as {a} to {b}", rate_text(own.low, unit), rate_text(own.high, unit), apart)
        page.html("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    page.html("</tbody></table>")


def _legend(page: Page) -> None:
    ends = [0.0, *STEPS, 1.0]
    steps = "".join(
        f'<span><i class="{colour_class(low)}"></i>{100 * low:.0f} to {100 * high:.0f} %</span>'
        for low, high in itertools.pairwise(ends)
    )
    page.html(f'<p class="legend">Share of the rate: {steps}<span><i class="su"></i>not told</span></p>')


def _tasks(page: Page, look: FirstLook, unit: str) -> None:
    page.heading(2, "What this machine can do", "answer")
    shown, more = first_answers(look.answers)
    if not shown:
        page.note("No case ended with figures.")
    else:
        _task_table(page, shown, unit)
        for line in apart_lines(look.answers, unit):
            page.html(f'<p class="apart">{escape(line)}</p>')
        if more:
            names = ", ".join(dict.fromkeys(one.fastest.row["pattern"] for one in more))
            page.html(f"<details><summary>{len(more)} more: {escape(names)}</summary>")
            _task_table(page, more, unit)
            page.html("</details>")
        page.note(NOTE)
    if look.ceilings.problem:
        page.note(f"No ceilings: {look.ceilings.problem}")
    elif look.ceilings.system is None:
        page.note("No ceilings: the run does not say on what system it was measured.")
    for note in look.ceilings.notes:
        page.note(note)


def _task_table(page: Page, tasks: Sequence[TaskAnswer], unit: str) -> None:
    columns = [
        ("task", True), ("lowest time", False), ("by", True), ("at", False), (f"highest {unit}", False), ("by", True),
        ("at", False), ("share", False), ("of the least bound", True),
    ]  # fmt: skip
    rows = []
    for task in tasks:
        words = task_words(task, unit)
        bound = f"{words.bound} ({task.bound.rule})" if words.share and task.bound is not None else ""
        rows.append([
            words.name, words.time, words.time_by, words.time_at, words.rate, words.rate_by, words.rate_at,
            words.share, bound,
        ])  # fmt: skip
    keep = len(columns) if any(row[-1] for row in rows) else len(columns) - 2
    page.static_table(columns[:keep], [row[:keep] for row in rows], "tasks")
