"""The table of predicted times, and the lines below it."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from linkgauge.expect.coverage import LEVEL
from linkgauge.expect.mechanism import Mechanism
from linkgauge.model.grouped import grouped
from linkgauge.model.listed import listed
from linkgauge.model.quantity import change, percent
from linkgauge.view.predicted import Prediction
from linkgauge.view.units import range_text, time_text

_MEASURED_BY = "'linkgauge run --plan overlap' measures what it costs, see --overlap"


def print_predictions(
    found: Sequence[Prediction],
    bound_of: str | None = None,
    as_it_is: Sequence[Prediction] | None = None,
    shown: Mapping[str, str] | None = None,
) -> None:
    """Print a table, a row an application and mechanism, and a line of the errors.

    `bound_of`: the system whose links tell, so that what is predicted is a least time. `as_it_is`: the same predictions
    without the change that `found` supposes, which then stand beside instead of what was measured. `shown`: what the
    run's transports are called.
    """
    from rich.text import Text

    from linkgauge.view.screen import console, titled_table

    called = shown or {}
    out = console()
    known = [(one, before) for one, before in zip(found, as_it_is or found, strict=True)
             if one.predicted is not None and one.predicted.time_ns]  # fmt: skip
    several = len({one.ranks for one, _ in known}) > 1
    told = as_it_is is None and any(one.measured_ns is not None for one, _ in known)
    time_name = "predicted" if bound_of is None else "at least"
    title = "predicted from curves" if bound_of is None else f"the least time that the links of {bound_of} allow"
    columns = ["application", "ranks", "by", time_name if as_it_is is None else f"{time_name}, as it is"]
    columns += ["what if", "as fast"] if as_it_is is not None else []
    stated = any(one.interval is not None for one, _ in known)
    columns += [f"{percent(LEVEL)} interval"] if stated else []
    columns += ["measured", "error" if bound_of is None else "of that"] if told else []
    columns += ["as fast as on fewest"] if several else []
    kinds_name = f"by kind of step{': predicted (measured)' if told else ''}"
    numbers = {*columns} - {"application", "by"}
    table = titled_table(f"applications: {title}{', and measured' if told else ''}", [*columns, kinds_name], numbers,
                         no_wrap=True)  # fmt: skip
    first: dict[tuple[str, Mechanism], float] = {}
    for one, before in known:
        assert one.predicted is not None
        assert before.predicted is not None
        by, time_ns = one.mechanism, one.predicted.time_ns
        kinds = [kind.words(told=told) for kind in one.kinds() if told or kind.predicted_ns]
        whole = time_text(before.predicted.time_ns)
        cells: list[Text | str] = [Text(one.app), str(one.ranks), by.words_as(called), whole]
        if as_it_is is not None:
            cells += [time_text(time_ns), f"{before.predicted.time_ns / time_ns:.2f}x"]
        if stated:
            ends = one.interval and (time_text(one.interval.low_ns), time_text(one.interval.high_ns))
            cells.append(range_text(*ends) if ends else "")
        if told and one.error is not None and one.measured_ns:
            compared = change(one.error) if bound_of is None else f"{one.measured_ns / time_ns:.1f}x"
            cells += [time_text(one.measured_ns), compared]
        elif told:
            cells += ["", ""]
        if several:
            fewest = first.setdefault((one.app.partition(" ")[0], by), time_ns)
            cells.append(f"{fewest / time_ns:.2f}x")
        table.add_row(*cells, ", ".join(kinds[:3]))
    if known:
        out.print(table)
    nothing = [one for one in found if one.predicted is not None and not one.predicted.time_ns]
    if nothing:
        where = ", ".join(dict.fromkeys(f"{one.app} on {one.ranks}" for one in nothing))
        out.print(Text(f"moves nothing, and takes no time here: {where}"))
    for words, count in _why_not(found, called).items():
        out.print(Text(f"not predicted: {words}{f' ({count} times)' if count > 1 else ''}"))
    those = [one for one, _ in known]
    for line in _overlap_lines(those, called) + _shared_lines(those, called):
        out.print(Text(line))
    if as_it_is is not None:
        for one, before in known:
            if line := _gain_line(one, before, called):
                out.print(Text(line))
    for line in _interval_lines(those, told=told) + _doubt_lines(those, called):
        out.print(Text(line))
    errors = [one.error for one, _ in known if one.error is not None]
    if errors and told and bound_of is None:
        ratios = statistics.median(math.exp(abs(math.log(1 + error))) for error in errors)
        middle, most = statistics.median(map(abs, errors)), max(map(abs, errors))
        out.print(
            f"{len(errors)} of {len(found)} predicted and measured: error {percent(middle)} in the "
            f"median, {percent(most)} at most; off by a factor of {ratios:.2f} in the median"
        )


_NO_CURVE = re.compile(r"(the run has no \w+ by )(\w+)( on .*)")


def _why_not(found: Sequence[Prediction], called: Mapping[str, str]) -> dict[str, int]:
    """Why what is not predicted is not, and how often: one line of a missing curve, whatever transports lack it."""
    counts: Counter[tuple[str, str]] = Counter()
    lacking: dict[tuple[str, str], dict[str, None]] = {}
    for reason in (one.why_not for one in found if one.why_not):
        match = _NO_CURVE.fullmatch(reason)
        key = (match[1], match[3]) if match else (_as_shown(reason, called), "")
        counts[key] += 1
        lacking.setdefault(key, {})
        if match:
            lacking[key][called.get(match[2], match[2])] = None
    return {f"{key[0]}{', '.join(lacking[key])}{key[1]}": count for key, count in counts.items()}


def _gain_line(one: Prediction, before: Prediction, shown: Mapping[str, str]) -> str:
    """What a change saves, or that it may save nothing; empty where errors are not known."""
    where = one.where(shown)
    gain = one.gain_over(before)
    if gain is None or before.predicted is None:
        return ""
    low, high = gain
    whole = time_text(before.predicted.time_ns)
    if low == high == 0:
        return f"{where}: the change makes no difference to {whole}"
    if low > 0:
        return f"{where}: the change saves {range_text(time_text(low), time_text(high))} of {whole}"
    if high < 0:
        return f"{where}: the change costs {range_text(time_text(-high), time_text(-low))} more than {whole}"
    ends = " or ".join([f"costs up to {time_text(-low)}"] * (low < 0) + [f"saves up to {time_text(high)}"] * (high > 0))
    return f"{where}: no gain can be promised: it {ends} of {whole}, by the {percent(LEVEL)} interval of the error"


def _interval_lines(found: Sequence[Prediction], *, told: bool) -> list[str]:
    """By what the intervals are known, and where measured times stand beside how many of these lie in them."""
    of = grouped((one.interval.within.of, one.interval.within.factor) for one in found if one.interval is not None)
    lines = []
    for words, factors in of.items():
        factors.sort()
        between = range_text(f"{factors[0]:.2f}", f"{factors[-1]:.2f}")
        lines.append(f"{percent(LEVEL)} intervals: what moves takes within a factor of {between}, by {words}")
    held = [one.interval.holds(one.measured_ns) for one in found if one.interval is not None and one.measured_ns]
    return [*lines, *([f"{sum(held)} of {len(held)} measured times lie in their intervals"] if held and told else [])]


def _doubt_lines(found: Sequence[Prediction], shown: Mapping[str, str]) -> list[str]:
    """Of which kinds of step the run itself shows that predictions may be off: a line each cause."""
    causes = grouped((doubt, f"{one.app} by {one.mechanism.words_as(shown)}")
                     for one in found for doubt in one.doubts.items())  # fmt: skip
    return [f"not sure of {kind} in {listed(of, 3)}: {why}" for (kind, why), of in sorted(causes.items())]


def _overlap_lines(found: Sequence[Prediction], shown: Mapping[str, str]) -> list[str]:
    """By which slow-downs collectives and stand-in kernels cost each other, what that came to, and where it is free."""
    lines, free = [], []
    for one in found:
        told = one.overlap
        if told is None:
            continue
        if not told.by:
            free.append(f"{one.where(shown)} ({_change(one, one.in_turns_ns)} if they took turns)")
            continue
        lines.append(
            f"{one.where(shown)}: kernels take {_longer(told.work, told.work_lost)} as long beside collectives, these "
            f"{_longer(told.collective, told.collective_lost)} as long beside kernels"
        )
    known = dict.fromkeys(by for one in found if one.overlap is not None for by in one.overlap.by)
    lines += [f"measured: {_as_shown(by.of, shown)}: the collective takes {by.collective:.2f}x, the kernel "
              f"{by.work:.2f}x as long" for by in known]  # fmt: skip
    if free:
        lines.append(f"overlap of kernels and collectives is taken as free: {', '.join(free)}; {_MEASURED_BY}")
    return lines


def _shared_lines(found: Sequence[Prediction], shown: Mapping[str, str]) -> list[str]:
    """By what collectives of several groups were taken to share devices, and how wrong that may be."""
    shared = [(one, one.predicted.share) for one in found if one.predicted is not None and one.shared_ns]
    lines = [f"measured: {_as_shown(share.of, shown)}: each takes {share.factor:.2f}x as long on the same devices"
             for share in dict.fromkeys(share for _, share in shared) if share.of]  # fmt: skip
    evenly = [f"{one.where(shown)} ({_change(one, one.unshared_ns)} if they cost each other nothing)"
              for one, share in shared if not share.of]  # fmt: skip
    if evenly:
        lines.append(f"collectives of several groups are taken to share their devices evenly: {', '.join(evenly)}; "
                     f"{_MEASURED_BY}")  # fmt: skip
    return lines


def _as_shown(words: str, shown: Mapping[str, str]) -> str:
    """Words that say by which transport, by what screens call it."""
    return re.sub(r"(?<=\bby )\w+", lambda found: shown.get(found[0], found[0]), words)


def _change(one: Prediction, ns: float | None) -> str:
    return "" if one.predicted is None or ns is None else change(ns / one.predicted.time_ns - 1)


def _longer(whole: float, lost: float) -> str:
    return f"{whole / (whole - lost):.2f}x"
