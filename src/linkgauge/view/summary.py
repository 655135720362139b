"""What a run says when it has ended: one sentence, the best of every task, and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from linkgauge.view.answer import FirstLook, apart_lines, first_answers, task_table
from linkgauge.view.applications import application_tables, applications_told
from linkgauge.view.between import (
    between_lines,
    card_lines,
    class_lines,
    distance_lines,
    gpudirect_lines,
    lost_line,
    places_line,
)
from linkgauge.view.by_turns import interference_lines, rounds_parts
from linkgauge.view.judged import findings_of, limits_known
from linkgauge.view.node_picture import LINK_WORDS
from linkgauge.view.reached import FullPairs, Reached, percent_up
from linkgauge.view.tables import counts_line, status_tables
from linkgauge.view.units import count_text, percents, range_text, rate_text, size_text

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.findings.finding import Finding
    from linkgauge.store.run import Run

_UNLIKE = 0.1


def sentence(look: FirstLook, findings: Sequence[Finding] | None, unit: str = "GB/s") -> str:
    """Return the run in one sentence of plain text.

    `findings` in their order of telling; None says nothing of them. `unit` is one of linkgauge.view.units.RATE_UNITS.
    """
    figures = [*_pairs(look, unit), *_host(look, unit)] or _tasks(look, unit) or applications_told(look.results)
    what = look.kinds.counted
    parts = figures or ["no figures"]
    if what:
        parts[0] = f"{what}: {parts[0]}"
    wrong = sum(row["status"] != "skipped" for row in look.results.others)
    if wrong and not any(finding.severity == "fault" for finding in findings or ()):  # a fault says it
        parts.append(f"{count_text(wrong, 'case')} did not end well")
    odd = wrong > 0 or any(", but " in part for part in figures)
    if findings is not None and (figures or any(finding.severity != "note" for finding in findings)):
        parts.append(judgement(findings, odd, limits_known(look.results.run)))
    text = "; ".join(parts)
    return text if text.endswith(".") else f"{text}."


def judgement(findings: Sequence[Finding], odd: bool = False, limits_known: bool = True) -> str:
    """Return the worst fault or loss in its first sentence, with how many more there are, else `nothing odd`.

    `odd`: something odd was said before. Without known limits a run is not said to be in order.
    """
    for severity in ("fault", "loss"):
        told = [finding for finding in findings if finding.severity == severity]
        if told:
            others = sum(finding.severity in ("fault", "loss") for finding in findings) - 1
            more = f" ({others} more)" if others else ""
            first = re.split(r"(?<=\.)\s+(?=[A-Z])", told[0].sentence)[0]
            return f"{severity}: {first.rstrip('.')}{more}"
    if not limits_known and not odd:
        return "not judged: no limit of this machine's links is known"
    return "nothing else odd" if odd else "nothing odd"


def _pairs(look: FirstLook, unit: str) -> list[str]:
    pairs = look.one_way
    if pairs is None:
        return []
    if len(pairs.rows) == 1:
        ((a, b),) = pairs.rows
        return [f"device {a} to {b} {_of_limit(pairs, [(a, b)], unit)}"]
    if len(pairs.classes) == 1:
        return [_one_class(pairs, unit)]
    return [_several(pairs, unit)]


def _one_class(pairs: FullPairs, unit: str) -> str:
    (own,) = pairs.classes
    every = "all pairs" if pairs.complete else f"{len(own.pairs)} pairs"
    usual = [pair for pair in own.pairs if pair not in own.apart]
    reached = _of_limit(pairs, usual, unit)
    if not own.sure:
        return f"{every} {reached}, whether alike could not be told (too few samples)"
    if own.within > _UNLIKE:
        low, high = rate_text(own.low, unit), rate_text(own.high, unit)
        text = f"{every} between {low} and {high} {unit}, {reached}"
    else:
        text = f"{every} alike within {percent_up(own.within)} %, {reached}"
    return text + _but(pairs, own.apart, unit)


def _several(pairs: FullPairs, unit: str) -> str:
    outside = [pair for own in pairs.classes for pair in own.apart]
    shares = [share for pair in pairs.rows if pair not in outside and (share := pairs.share(pair)) is not None]
    if len(shares) == len(pairs.rows) - len(outside):
        reached = f"{percents(shares)} of the narrowest link on the way{_size_if_small(pairs)}"
    else:
        low, high = min(own.low for own in pairs.classes), max(own.high for own in pairs.classes)
        reached = f"{range_text(rate_text(low, unit), rate_text(high, unit))} {unit}"
    widest = max((own.within for own in pairs.classes if len(own.pairs) > 1), default=0.0)
    each = f"each of {len(pairs.classes)} kinds"
    if not all(own.sure for own in pairs.classes):
        alike = "whether alike could not be told (too few samples)"
    elif widest > _UNLIKE:
        alike = f"{each} up to {percent_up(widest)} % apart"
    else:
        alike = f"{each} alike within {percent_up(widest)} %"
    every = "all pairs" if pairs.complete else f"{len(pairs.rows)} pairs"
    return f"{every} {reached}, {alike}{_but(pairs, outside, unit)}"


def _but(pairs: FullPairs, outside: Sequence[tuple[int, int]], unit: str) -> str:
    """Return which pairs differ from those that are alike, and what they reached."""
    named = ", ".join(f"{a}-{b}: {rate_text(_goodput(pairs, (a, b)), unit)} {unit}" for a, b in outside[:2])
    more = f" and {len(outside) - 2} more" if len(outside) > 2 else ""
    return f", but {named}{more}" if outside else ""


def _of_limit(pairs: FullPairs, of: Sequence[tuple[int, int]], unit: str) -> str:
    """Return what some alike pairs reached: a share of what their way carries where that is known, else goodputs."""
    shares = [share for pair in of if (share := pairs.share(pair)) is not None]
    if len(shares) < len(of):
        rates = [_goodput(pairs, pair) for pair in of]
        each = " each" if len(of) > 1 else ""
        return f"{range_text(rate_text(min(rates), unit), rate_text(max(rates), unit))} {unit}{each}"
    limit = rate_text(pairs.limits[of[0]], unit)
    return f"{percents(shares)} of {limit} {unit}{_noun(pairs, of[0])}{_size_if_small(pairs)}"


def _noun(pairs: FullPairs, pair: tuple[int, int]) -> str:
    """Return what the limit is the rate of, by the way that the pair's bytes take."""
    way = pairs.way(pair)
    kinds = {"switch": " a port", "direct": " a pair"}
    return kinds.get(way.kind if way is not None else "", " of the narrowest link on the way")


def _size_if_small(pairs: FullPairs) -> str:
    """Return the size that was measured, where that fills no link."""
    return "" if pairs.filled else f" at {size_text(pairs.size)}, which fills no link"


def _host(look: FirstLook, unit: str) -> list[str]:
    node = look.node
    if node is None:
        return []
    ends = [one for both in node.host.values() for one in both if one.rate is not None]
    limits = {round(one.limit) for one in ends if one.limit}
    if not ends or len(limits) != 1 or not all(one.limit for one in ends):
        return []
    kinds = {kind for ordinal, kind in node.host_kinds.items() if node.host[ordinal][0].rate is not None}
    name = f" of {LINK_WORDS.get(kind := next(iter(kinds)), kind)}" if len(kinds) == 1 else ""
    usual = [one for one in ends if not one.apart] or ends
    text = f"host {percents([_share(one) for one in usual])} of {rate_text(limits.pop(), unit)} {unit}{name}"
    if all(one.share is None for one in ends):
        text += f" at {node.host_basis.rpartition(', ')[2]}, which does not fill it"
    outside = [(ordinal, one) for ordinal, both in node.host.items() for one in both if one.apart]
    if outside:
        ordinal, slow = min(outside, key=lambda told: told[1].rate or 0.0)
        more = len({other for other, _ in outside}) - 1
        text += f", but device {ordinal}: {rate_text(slow.rate, unit)} {unit}" + (f" and {more} more" if more else "")
    return [text]


def _share(one: Reached) -> float:
    return (one.rate or 0.0) / (one.limit or 1.0)


def _tasks(look: FirstLook, unit: str) -> list[str]:
    """Return the highest goodput of the first task, where neither pairs nor host links were measured."""
    for answer in look.answers:
        if answer.widest is not None:
            text = f"{answer.name} {rate_text(answer.widest.high, unit)} {unit}"
            limit = answer.bound.goodput_bytes_per_s if answer.bound is not None else None
            if answer.shares is not None and answer.bound is not None and limit:
                text += f", {100 * answer.shares[1]:.0f} % of {rate_text(limit, unit)} {unit} ({answer.bound.rule})"
            return [text]
    return []


def _goodput(pairs: FullPairs, pair: tuple[int, int]) -> float:
    return float(pairs.rows[pair]["goodput_bytes_per_s"])


def print_summary(run: Run, console: Console, unit: str = "GB/s") -> None:
    """Print the run in one sentence, the best of every task, what was skipped or went wrong, and the cases' count.

    `unit` is one of linkgauge.view.units.RATE_UNITS. Needs neither Altair nor DuckDB.
    """
    look = FirstLook.of(run)
    print_head(look, findings_of(run), console, unit)
    watched = rounds_parts(look.results) if run.info.get("asked", {}).get("every_s") else []
    for table in [
        *interference_lines(look.results),
        *application_tables(look.results),
        *watched,
        *status_tables(look.results),
    ]:
        console.print("", table, sep="\n")
    console.print("", counts_line(look.results), sep="\n")


def print_head(look: FirstLook, findings: Sequence[Finding], console: Console, unit: str) -> None:
    """Print a run in one sentence, and the best of every task."""
    console.print(Text(sentence(look, findings, unit), style="bold"), "", sep="\n")
    shown, more = first_answers(look.answers)
    if shown:
        console.print(task_table(shown, unit, console.width))
    if more:
        names = ", ".join(dict.fromkeys(one.fastest.row["pattern"] for one in more))
        console.print(Text(f"{len(more)} more: {names}", style="dim"))
    for line in apart_lines(look.answers, unit):
        console.print(Text(line, style="yellow"))
    places = places_line(look.results.kinds)
    crossings = look.results.crossings.values()
    said = (*between_lines(crossings), *card_lines(look.results), *class_lines(crossings),
            *gpudirect_lines(look.results.run), *distance_lines(look.results, unit))  # fmt: skip
    lost = lost_line(look.results.run.info)
    for line in (*(text for text in (places, lost) if text), *said):
        console.print(Text(line))
