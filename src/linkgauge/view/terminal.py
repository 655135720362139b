"""Findings, comparisons, checks and advice on a terminal. Everything from a run folder is shown as plain text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from linkgauge.errors import Exit
from linkgauge.findings.finding import SEVERITIES, Finding
from linkgauge.findings.measure import rate_text
from linkgauge.judge.advise import Advice
from linkgauge.judge.check import FINDINGS
from linkgauge.judge.compare_runs import RunComparison
from linkgauge.judge.standing import Standing
from linkgauge.judge.verdicts import Checked, Outcome, Verdict
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import change, percent
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.stats.alike import members_text
from linkgauge.stats.compare import LEAST_REPEATS, Comparison
from linkgauge.view.fleet_drift import print_fleet
from linkgauge.view.judged import by_kind, misfit
from linkgauge.view.screen import print_hanging, table_of, text_of
from linkgauge.view.units import count_text

_STYLES = {
    "disturbed": "bold yellow", "fault": "bold red", "loss": "yellow", "note": "dim", "fail": "bold red",
    "unknown": "yellow", "pass": "green",
    "worse": "bold red", "better": "green", "same": "dim", "cannot tell": "yellow",
}  # fmt: skip


def print_findings(
    out: Console,
    findings: Sequence[Finding],
    *,
    notes: bool = False,
    evidence: int = 3,
    unjudged: str = "",
    unseen: str = "",
    not_measured: Sequence[str] = (),
) -> None:
    """Print faults and losses in their order, those of one rule together, and how many notes there are.

    Each says what, how sure, its first lines of evidence, and the fix. With `notes` these too. `unjudged`: why no rate
    was held against a limit. `unseen`: what was not looked at. `not_measured`: what time limits left out.
    """
    for kind in by_kind(findings):
        first = kind[0]
        if first.severity == "note" and not notes:
            continue
        count = f" ({len(kind)})" if len(kind) > 1 else ""
        out.print(Text(f"{first.severity:<5} ", style=_STYLES[first.severity]) + Text(f"{first.rule}{count}", "bold"))
        for finding in kind:
            sure = "" if not first.is_alarm else f" ({percent(finding.confidence)} sure)"
            _indented(out, text_of(f"{finding.sentence}{sure}"))
            if first.severity != "note":
                for item in finding.evidence[:evidence]:
                    _indented(out, text_of(f"Evidence: {item.text}"))
                if len(finding.evidence) > evidence:
                    more = f"and {len(finding.evidence) - evidence} more, with the cases: --json"
                    _indented(out, Text(more, style="dim"))
        for fix in dict.fromkeys(finding.fix for finding in kind):
            _indented(out, Text("Fix: ", style="bold") + text_of(fix))
        out.print()
    out.print(text_of(told_in_sum(findings, hidden="" if notes else " (--notes)", unjudged=unjudged)))
    for line in not_measured:
        out.print(text_of(f"Not measured: {line}."))
    if unseen:
        out.print(text_of(unseen, "dim"))


def _indented(out: Console, text: Text) -> None:
    print_hanging(out, Text(" " * 6), text)


def told_in_sum(findings: Sequence[Finding], hidden: str = "", unjudged: str = "") -> str:
    """Return the line under the findings: `No problems found; 5 notes (--notes).`; `hidden` names how to see notes.

    There is no all-clear where `unjudged` says why no rate was compared with a limit.
    """
    words = {"disturbed": ("disturbance", "disturbances"), "fault": ("fault", "faults"), "loss": ("loss", "losses"),
             "note": ("note", "notes")}  # fmt: skip
    counts = {name: sum(f.severity == name for f in findings) for name in SEVERITIES}
    texts = {name: f"{n} {words[name][n != 1]}" for name, n in counts.items() if n}
    notes = f"; {texts.pop('note')}{hidden}" if "note" in texts else ""
    if unjudged:
        told = ", ".join(texts.values()) or "No finding"
        return f"{told}{notes}. No rate was compared with a limit: {unjudged}."
    if wrong := misfit(findings):
        return f"{', '.join(texts.values()) or 'No finding'}{notes}. Not judged: {wrong}"
    return f"{', '.join(texts.values()) or 'No problems found'}{notes}."


_NOTHING_SHARED = (
    "the runs share no case: measure both by one plan, on the same devices, with the same MPI library and environment"
)


def print_comparison(out: Console, found: RunComparison, names: tuple[str, str], limit: int) -> None:
    """Print what changed: pools first, then cases, the largest shifts first."""
    out.print(text_of(f"{names[1]} against {names[0]}: {found.how}. Shifts are of times: + is slower."))
    for note in found.notes:
        out.print(text_of(note))
    if found.few:
        out.print(text_of(_too_few(found)))
    counts = ", ".join(f"{found.count(v)} {v}" for v in ("worse", "better", "same", "cannot tell"))
    if found.cases or found.failed:
        out.print(text_of(f"{len(found.cases)} cases: {counts}."))
    else:
        why = "no case is undisturbed in both: measure again with --wait-idle" if found.disturbed else _NOTHING_SHARED
        out.print(text_of(f"UNKNOWN: {why}."))
    if found.only_first or found.only_second:
        out.print(
            text_of(f"Without a partner: {found.only_first} of the first run, {found.only_second} of the second.")
        )
    for words, how in found.failed:
        out.print(Text("worse ", style=_STYLES["worse"]) + text_of(f"{words}: {how}"))
    pools = [p for p in found.pools if p.comparison.verdict in ("worse", "better") or p.kind == "run"]
    if pools:
        table = table_of("pooled", "cases", "verdict", "shift", "95 % interval")
        for pool in pools:
            table.add_row(text_of(pool.name), str(pool.cases), *_shift(pool.comparison))
        out.print(table)
        for why in () if found.few else dict.fromkeys(p.comparison.reason for p in pools if p.comparison.reason):
            of = ", ".join(pool.name for pool in pools if pool.comparison.reason == why)
            out.print(text_of(f"{of}: {why}", "dim"))
        out.print()
    told = [c for c in found.cases if c.comparison.verdict != "same"]
    told.sort(key=lambda c: -abs(c.comparison.shift.share if c.comparison.shift else 0.0))
    told.sort(key=lambda c: c.comparison.verdict == "cannot tell")
    if not told:
        return
    resampled = any(case.bootstrap for case in told)
    reasons = {case.comparison.reason for case in told}
    alike = bool(found.few) or (len(told) > 1 and len(reasons) == 1)  # said once
    columns = ["case", "before", "after", "verdict", "shift", "95 % interval"]
    columns += ["bootstrap"] if resampled else []
    table = table_of(*columns, *([] if alike else ["why"]))
    for case in told[:limit]:
        a, b = (time_text(v) if math.isfinite(v) else "-" for v in case.comparison.median_ns)
        boot = [f"{change(one.low, 1)} to {change(one.high, 1)}" if (one := case.bootstrap) else ""] * resampled
        reason = [] if alike else [text_of(case.comparison.reason)]
        table.add_row(text_of(case.words), a, b, *_shift(case.comparison), *boot, *reason)
    out.print(table)
    if alike and not found.few and (common := reasons.pop()):
        out.print(text_of(f"Each of these: {common}", "dim"))
    if len(told) > limit:
        out.print(Text(f"and {len(told) - limit} more (--limit, --json)", style="dim"))


def _too_few(found: RunComparison) -> str:
    """Return what was compared, which difference could have shown, and what would tell more."""
    assert found.few is not None
    first, second = found.few
    same = "one launch" if first == 1 else f"{first} launches"
    counts = f"{first} and {second} launches" if first != second else same
    could = f" A shift below {percent(found.within or 0.0, 1)} is lost in the samples' spread."
    if found.within is None:
        could = " Both are single measurements, one value a case: how much of a shift is chance is not known."
    return (
        f"Compared: {count_text(len(found.cases), 'case')}, {counts} a run: too few to tell a change from chance."
        f"{could} To tell: linkgauge run --repeat {LEAST_REPEATS}, for both runs."
    )


def _shift(comparison: Comparison) -> tuple[Text, str, str]:
    verdict = Text(comparison.verdict, style=_STYLES[comparison.verdict])
    if comparison.shift is None:
        return verdict, "-", "-"
    if min(comparison.repeats) < LEAST_REPEATS:  # the range of a few ratios is no interval
        return verdict, _percent(comparison.shift.share), "-"
    ends = (comparison.shift.low, comparison.shift.high)
    return verdict, _percent(comparison.shift.share), " to ".join(map(_percent, ends))


def _percent(share: float) -> str:
    """Return a share with its sign, in percent with a digit behind the point below 10 %: `+0.3%`, `+28%`."""
    return change(share, 1) if abs(share) < 0.0995 else change(share)


def print_check(
    out: Console, checked: Checked, standings: Sequence[Standing], limit: int, passed: bool = False
) -> None:
    """Print a check: the verdict with its counts, what failed and what is unknown, and the fleet where there is one.

    `passed`: of what passed too, of each transport, pattern and number of devices the one with the least to spare.
    """
    style = {0: _STYLES["pass"], 1: _STYLES["fail"], 3: _STYLES["unknown"]}[checked.exit_status]
    word, _, counts = verdict_words(checked).partition(":")
    out.print(Text(word, style=style) + Text(f":{counts}."))
    for line in checked.not_measured:
        out.print(text_of(f"Not measured: {line}."))
    # Of a healthy machine two lines; how much data was checked is in the JSON.
    for note in checked.notes[:1] if checked.exit_status == Exit.DONE and not passed else checked.notes:
        out.print(text_of(note))
    told = _grouped([v for v in checked.verdicts if v.outcome != "pass"])
    told += [[one] for one in _least_to_spare(checked.verdicts)] if passed else []
    for group in told[:limit]:
        worst = group[0]
        source = f"[{worst.source}]" if worst.source and worst.source != FINDINGS else ""
        out.print()
        head = Text(f"{worst.outcome.upper()}  ", style=_STYLES[worst.outcome])
        out.print(head + text_of(_short_words(group, checked), "bold"))
        _indented(out, Text(" ").join(filter(None, (text_of(worst.reason), text_of(source, "dim")))))
    if len(told) > limit:
        out.print(Text(f"and {len(told) - limit} more (--limit, --json)", style="dim"))
    if standings:
        out.print()
        print_fleet(out, standings, limit)


def _least_to_spare(verdicts: Sequence[Verdict]) -> list[Verdict]:
    found: dict[tuple[object, ...], Verdict] = {}
    for one in sorted((v for v in verdicts if v.outcome == "pass" and v.measured and v.required), key=_to_spare):
        labels = dict(one.labels)
        found.setdefault((one.run, labels.get("transport"), labels.get("pattern"), len(one.devices)), one)
    return list(found.values())


def _to_spare(verdict: Verdict) -> float:
    ratio = (verdict.measured or 0.0) / (verdict.required or 1.0)
    return ratio if verdict.unit == "B/s" else 1 / ratio


def verdict_words(checked: Checked) -> str:
    """Return the verdict and its counts: `FAIL: 6 of 14 checks failed, 8 passed`."""
    word = {0: "PASS", 1: "FAIL", 3: "UNKNOWN"}[checked.exit_status]
    return f"{word}: {_counts(checked)}"


def failed_words(checked: Checked) -> Iterator[str]:
    """Yield a line for each requirement that was missed, but those that are findings."""
    for group in _grouped([v for v in checked.verdicts if v.outcome == "fail" and v.source != FINDINGS]):
        yield f"{_short_words(group, checked)}: {group[0].reason}"


def _short_words(group: Sequence[Verdict], checked: Checked) -> str:
    """Return what a requirement is about, what was measured, what is required, and of several runs of which."""
    worst = group[0]
    measured, required = _quantities(group), _quantity(worst, worst.required)
    text = _what(group) + (f": {measured}" if measured else "")
    text += f", {'at most' if worst.unit == 'ns' else 'at least'} {required} required" if required else ""
    runs, hosts = ({getattr(one, name) for one in checked.verdicts} for name in ("run", "host"))
    return text if len(runs) == 1 else f"{text} ({worst.host if worst.host and len(hosts) == len(runs) else worst.run})"


def _counts(checked: Checked) -> str:
    """Return how many checks ended how, those of the verdict first: `6 of 14 checks failed, 8 passed; 1 fault`."""
    outcomes: dict[Outcome, str] = {"fail": "failed", "unknown": "unknown", "pass": "passed"}
    ended = checked.checks()
    judged = ended.total()
    parts = [(word, ended[name]) for name, word in outcomes.items() if ended[name]]
    told = [f"{count} of {count_text(judged, 'check')} {word}" if not place else f"{count} {word}"
            for place, (word, count) in enumerate(parts)]  # fmt: skip
    others = Counter((one.kind, one.outcome) for one in checked.verdicts if one.kind != "check")
    faults, failed, unmeasured = (others[one] for one in (("finding", "fail"), ("case", "fail"), ("case", "unknown")))
    disturbed = others["finding", "unknown"]
    if told and (weak := sum(one.weak for one in checked.verdicts)):
        told.append(f"{'' if weak == judged else f'{weak} of them '}by siblings or limits alone")
    told = [count_text(disturbed, "disturbance")] * bool(disturbed) + [", ".join(told)] * bool(told)
    beside = [count_text(faults, "fault")] if faults else []
    beside += [f"{count_text(failed, 'case')} failed"] if failed else []
    beside += [f"{count_text(unmeasured, 'case')} not measured"] if unmeasured else []
    first = not ended["fail"] and checked.exit_status == Exit.FAIL  # what fails is no check
    text = "; ".join([*beside, *told] if first else [*told, *beside])
    if not text:
        return "no case has a requirement"
    return text + (f"; no requirement for {count_text(checked.unrequired, 'case')}" if checked.unrequired else "")


def _grouped(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Join verdicts that differ in their devices only, each where the worst of them stands."""

    def place(index: int, one: Verdict) -> tuple[object, ...]:
        required = None if one.required is None else f"{one.required:.3g}"
        why = one.reason if one.measured is None else ""
        return (one.task, required, one.outcome, one.source, one.run, why) if one.task else (index,)

    return list(grouped((place(index, one), one) for index, one in enumerate(verdicts)).values())


def _what(group: Sequence[Verdict]) -> str:
    if len(group) == 1:
        return group[0].what
    where = members_text(sorted(verdict.devices for verdict in group), group[0].noun)
    return f"{group[0].task} on {where} ({len(group)} checks)"


def _quantities(group: Sequence[Verdict]) -> str:
    """Show what was measured; of several the range."""
    measured = [verdict.measured for verdict in group if verdict.measured is not None]
    ends = dict.fromkeys(_quantity(group[0], value) for value in (min(measured), max(measured))) if measured else {}
    return " to ".join(ends)


def _quantity(verdict: Verdict, value: float | None) -> str:
    if value is None:
        return ""
    if verdict.unit == "B/s":
        return rate_text(value)
    return time_text(value) if verdict.unit == "ns" else f"{value:.3g}"


def print_advice(out: Console, advice: Sequence[Advice], absent: Sequence[tuple[str, str]]) -> None:
    """Print advice, a line a range of sizes, the task named at its first; columns that nothing fills are left out.

    `absent`: what a program could call that was not measured, and why.
    """
    lines: list[dict[str, Text]] = []
    last = ""
    for one in advice:
        interval = f" ({one.interval_words})" if one.interval_words else ""
        lines.append({
            "task": text_of("" if one.task == last else one.task, "bold"),
            "sizes": Text(one.sizes.replace(" to ", "-")),
            "use": text_of(" or ".join((one.best, *one.alike))),
            "next is slower by": text_of(f"{one.second} {one.margin_words}{interval}" if one.second else ""),
            "export": text_of(" ".join(f"{name}={value}" for name, value in one.exports)),
        })  # fmt: skip
        last = one.task
    filled = [name for name in lines[0] if any(line[name].plain for line in lines)] if lines else []
    table = table_of(*filled)
    for line in lines:
        table.add_row(*(line[name] for name in filled))
    out.print(table)
    if "next is slower by" in filled:
        note = "Slower by: percent of time, at the size of the range where it is most (95 % interval)."
        out.print(text_of(note, "dim"))
    for name, why in absent:
        out.print(text_of(f"Not measured: {name} ({why})."))
