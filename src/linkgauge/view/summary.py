"""What a run says when it has ended: one sentence, the best of every task, and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from linkgauge.model.device_words import device_words
from linkgauge.view.answer import FirstLook, first_answers
from linkgauge.view.applications import application_tables, applications_told
from linkgauge.view.between import (
    between_lines,
    card_lines,
    distance_lines,
    lost_line,
    places_line,
)
from linkgauge.view.by_turns import interference_lines, rounds_parts
from linkgauge.view.judged import findings_of, misfit, without_limits
from linkgauge.view.node_words import LINK_WORDS
from linkgauge.view.reached import FullPairs, percent_up
from linkgauge.view.requests import request_lines
from linkgauge.view.tables import counts_line, findings_table, status_tables
from linkgauge.view.task_table import apart_lines, task_tables
from linkgauge.view.units import count_text, percents, range_text, rate_text, size_text
from linkgauge.view.unseen import limited_line, unseen_line

if TYPE_CHECKING:
    from rich.console import Console

    from linkgauge.findings.finding import Finding
    from linkgauge.store.run import Run

_UNLIKE = 0.1


def sentence(look: FirstLook, findings: Sequence[Finding] | None, unit: str = "GB/s") -> str:
    """Return the run in a sentence of plain text, and the verdict in another.

    `findings` in the order in which they are reported; None gives no verdict. `unit` is one of
    linkgauge.view.units.RATE_UNITS.
    """
    figures = [*_pairs(look, unit), *_host(look, unit)] or _tasks(look, unit) or applications_told(look.results)
    what = look.kinds.counted
    parts = figures or ["no figures"]
    if what:
        parts[0] = f"{what}: {parts[0]}"
    text = f"{'; '.join(parts)}."
    if what and look.kinds.noun == "host device":
        text = f"No GPU here: these are CPU memory copies, for trying out. {text}"
    cut = sum(row.out_of_time for row in look.results.others)
    wrong = sum(row.status != "skipped" for row in look.results.others) - cut
    cut += look.results.run.info.get("left") or 0  # as the reasons below count them, and `check` does
    if wrong and not any(finding.severity == "fault" for finding in findings or ()):  # a fault names them
        text += f" {count_text(wrong, 'case')} failed."
    if cut:
        text += f" {count_text(cut, 'case')} not measured: out of time."
    differs = wrong > 0 or any(_DIFFERS in part for part in figures)
    if findings is not None and (figures or any(finding.severity != "note" for finding in findings)):
        said = verdict(findings, differs, without_limits(look.results.run))
        text += f" {said}" + "." * (not said.endswith("?"))
    return text


def verdict(findings: Sequence[Finding], differs: bool = False, without_limits: str = "") -> str:
    """Return the worst fault or performance loss in its first sentence, with how many more, else `No problems found`.

    `differs`: a difference was named before. `without_limits`: why there are none, so that there is no all-clear.
    """
    for severity, words in (("disturbed", "Disturbed"), ("fault", "Fault"), ("loss", "Performance loss")):
        found = [finding for finding in findings if finding.severity == severity]
        if found:
            others = sum(finding.severity != "note" for finding in findings) - 1
            more = f" ({others} more)" if others else ""
            first = re.split(r"(?<=\.)\s+(?=[A-Z])", found[0].sentence)[0]
            return f"{words}: {first.rstrip('.')}{more}"
    if wrong := misfit(findings):
        return f"Not judged: {wrong}"
    if without_limits:
        return f"Not judged: {without_limits}"
    return "No other problems found" if differs else "No problems found"


def _pairs(look: FirstLook, unit: str) -> list[str]:
    pairs = look.one_way
    if pairs is None:
        return []
    device = look.kinds.noun
    if len(pairs.rows) == 1:
        (pair,) = pairs.rows
        return [f"{device_words(pair, device)}: {_of_limit(pairs, [pair], unit)}"]
    if len(pairs.classes) == 1:
        return [_one_class(pairs, device, unit)]
    return [_several(pairs, device, unit)]


def _pairs_counted(pairs: FullPairs, count: int, device: str) -> str:
    return f"all {device} pairs" if pairs.complete else count_text(count, f"{device} pair")


def _one_class(pairs: FullPairs, device: str, unit: str) -> str:
    (own,) = pairs.classes
    every = _pairs_counted(pairs, len(own.pairs), device)
    usual = [pair for pair in own.pairs if pair not in own.apart]
    reached = _of_limit(pairs, usual, unit)
    if not own.sure:
        text = f"{every} {reached}, spread between pairs unknown (too few samples)"
    elif own.within > _UNLIKE:
        text = f"{every} within {percent_up(own.within)} % of the fastest, {reached}"
    else:
        text = f"{every} within {percent_up(own.within)} %, {reached}"
    return text + _but(pairs, own.apart, device, unit)


def _several(pairs: FullPairs, device: str, unit: str) -> str:
    outside = [pair for own in pairs.classes for pair in own.apart]
    shares = [share for pair in pairs.rows if pair not in outside and (share := pairs.share(pair)) is not None]
    if len(shares) == len(pairs.rows) - len(outside):
        reached = f"{percents(shares)} of the narrowest link on the path{_size_if_small(pairs)}"
    else:
        low, high = min(own.low for own in pairs.classes), max(own.high for own in pairs.classes)
        reached = f"{range_text(rate_text(low, unit), rate_text(high, unit))} {unit}"
    widest = max((own.within for own in pairs.classes if len(own.pairs) > 1), default=0.0)
    each = f"each of {len(pairs.classes)} kinds of path within {percent_up(widest)} %"
    if not all(own.sure for own in pairs.classes):
        each = "spread between pairs unknown (too few samples)"
    every = _pairs_counted(pairs, len(pairs.rows), device)
    return f"{every} {reached}, {each}{_but(pairs, outside, device, unit)}"


_DIFFERS = ", but "


def _but(pairs: FullPairs, outside: Sequence[tuple[int, int]], noun: str, unit: str) -> str:
    """Return which pairs differ from those that are alike, and what they reached."""
    named = ", ".join(
        f"{device_words(pair, noun)}: {rate_text(pairs.rows[pair].goodput, unit)} {unit}" for pair in outside[:2]
    )
    more = f" and {len(outside) - 2} more" if len(outside) > 2 else ""
    return f"{_DIFFERS}{named}{more}" if outside else ""


def _of_limit(pairs: FullPairs, of: Sequence[tuple[int, int]], unit: str) -> str:
    """Return what some alike pairs reached: `392 GB/s = 87 % of NVLink (450 GB/s)`; no share of an unknown limit."""
    rates = [pairs.rows[pair].goodput for pair in of]
    reached = f"{range_text(rate_text(min(rates), unit), rate_text(max(rates), unit))} {unit}"
    shares = [share for pair in of if (share := pairs.share(pair)) is not None]
    if len(shares) < len(of):
        return reached
    limit = f"{rate_text(pairs.limits[of[0]], unit)} {unit}"
    return f"{reached} = {percents(shares)} of {_link_words(pairs, of[0])} ({limit}){_size_if_small(pairs)}"


def _link_words(pairs: FullPairs, pair: tuple[int, int]) -> str:
    """Return the link whose rate limits a pair: `NVLink`, or the narrowest one on the path."""
    kind = pairs.link_kind(pair)
    return LINK_WORDS.get(kind, kind) or "the narrowest link on the path"


def _size_if_small(pairs: FullPairs) -> str:
    """Return the measured size, where it is too small to fill a link."""
    return "" if pairs.filled else f" at {size_text(pairs.size)}, too small to fill the link"


def _host(look: FirstLook, unit: str) -> list[str]:
    node = look.node
    if node is None:
        return []
    ends = [one for both in node.host.values() for one in both if one.rate is not None]
    limits = {round(one.limit) for one in ends if one.limit}
    if not ends or len(limits) != 1 or not all(one.limit for one in ends):
        return []
    kinds = {kind for ordinal, kind in node.host_kinds.items() if node.host[ordinal][0].rate is not None}
    name = LINK_WORDS.get(kind := next(iter(kinds)), kind) if len(kinds) == 1 else "the host link"
    usual = [one for one in ends if not one.apart] or ends
    shares = [(one.rate or 0.0) / (one.limit or 1.0) for one in usual]
    text = f"host copies {percents(shares)} of {name} ({rate_text(limits.pop(), unit)} {unit})"
    if all(one.share is None for one in ends):
        text += f" at {node.host_basis.rpartition(', ')[2]}, too small to fill it"
    outside = [(ordinal, one) for ordinal, both in node.host.items() for one in both if one.apart]
    if outside:
        ordinal, slow = min(outside, key=lambda pair: pair[1].rate or 0.0)
        more = len({other for other, _ in outside}) - 1
        text += f"{_DIFFERS}GPU {ordinal}: {rate_text(slow.rate, unit)} {unit}" + (f" and {more} more" if more else "")
    return [text]


def _tasks(look: FirstLook, unit: str) -> list[str]:
    """Return the peak of the first task, where neither pairs nor host links were measured."""
    for answer in look.answers:
        if answer.widest is not None:
            factor = answer.peak_factor
            name = "busbw " if answer.algorithm_factor else ""
            text = f"{answer.name}: {name}{rate_text(answer.widest.high * factor, unit)} {unit}"
            limit = answer.bound.goodput_bytes_per_s if answer.bound is not None else None
            if answer.shares is not None and answer.bound is not None and limit:
                share = f"{100 * answer.shares[1]:.0f} %"
                text += f" = {share} of the limit ({rate_text(limit * factor, unit)} {unit}, {answer.bound.rule})"
            return [text]
    return []


def print_summary(run: Run, console: Console) -> None:
    """Print the first screen of a run that has just ended. Needs neither Altair nor DuckDB."""
    print_first_screen(FirstLook.of(run), findings_of(run), console, "GB/s")


def print_first_screen(look: FirstLook, findings: Sequence[Finding], console: Console, unit: str) -> None:
    """Print the sentence and verdict, the peaks, the findings, what failed, and what the verdict does not cover."""
    print_head(look, findings, console, unit)
    results = look.results
    watched = rounds_parts(results) if results.run.info.get("requested", {}).get("every_s") else []
    parts = [*interference_lines(results), *application_tables(results), *watched]
    parts += [findings_table(findings)] if findings else []
    for part in [*parts, *status_tables(results)]:
        console.print("", part, sep="\n")
    console.print("", counts_line(results), sep="\n")
    run = results.run
    if limited := limited_line(run.info, run.launched, {row.transport for row in results.rows}):
        console.print(limited, markup=False, highlight=False)
    for line in filter(None, (unseen_line(look), *look.limits.notes)):
        console.print(Text(line, style="dim"))


def print_head(look: FirstLook, findings: Sequence[Finding], console: Console, unit: str) -> None:
    """Print a run in one sentence, and the best of every task."""
    console.print(Text(sentence(look, findings, unit), style="bold"), "", sep="\n")
    shown, more = first_answers(look.answers)
    if shown:
        for place, table in enumerate(task_tables(shown, unit, console.width)):
            console.print(*([""] if place else []), table, sep="\n")
    if more:
        names = list(dict.fromkeys(one.fastest.row.pattern for one in more))
        console.print(Text(f"{len(names)} more by --all: {', '.join(names)}", style="dim"))
    for line in apart_lines(look.answers, unit):
        console.print(Text(line, style="yellow"))
    results = look.results
    verdicts = (one for of_case in results.requests.values() for one in of_case)
    said = (places_line(results.kinds), lost_line(results.run.info), *between_lines(results.crossings.values()),
            *card_lines(results), *request_lines(verdicts), *distance_lines(results, unit))  # fmt: skip
    for line in filter(None, said):
        console.print(Text(line))
