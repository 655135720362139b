"""What a search found, on one page of text: what to export, what it gains and how that is known, what was rejected."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping
from shlex import quote

from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import change, format_duration, percent
from linkgauge.plan.environment import shown as without_secrets
from linkgauge.stats.checked import MISSED, checks_for, missed_rate
from linkgauge.stats.compare import Shift
from linkgauge.tune.choice import Choice
from linkgauge.tune.confirm import LEVEL, LOOKS, RAREST, Confirmed, Found
from linkgauge.tune.record import DEFAULT, NOT_READ, Config
from linkgauge.tune.search import LEAST_GAIN

_MOST_REJECTED = 40


def shown(config: Config) -> str:
    """A setting in words."""
    return " ".join(f"{name}={value}" for name, value in config) or "default"


def with_proof(found: Found, choice: Choice) -> Found:
    """What was found, of which nothing counts as proved that is not seen to be read."""
    confirmed = []
    for one in found.confirmed:
        unseen = [name for name, told in choice.told(one.config).items() if not told]
        problem = one.problem or found.record.why_not(one.config)
        problem = problem or (f"{', '.join(unseen)}: not seen to be read" if unseen else "")
        confirmed.append(dataclasses.replace(one, problem=problem))
    confirmed.sort(key=lambda one: bool(one.problem))
    return dataclasses.replace(found, confirmed=confirmed)


Chosen = tuple[Mapping[str, str], Mapping[str, str]]
"""By case what the library chose by default and with the best setting, in words, as far as it tells."""


def page(found: Found, choice: Choice, subject: str, chosen: Chosen = ({}, {})) -> str:
    """The whole page; the first sentence is the answer."""
    lines = [sentence(found, subject, choice.preset), *_baseline(choice), ""]
    best = found.best
    for one in found.confirmed:
        if one is best:
            lines += _confirmed(one, choice, found, chosen)
        else:
            how = f"Unproved, {one.problem}" if one.problem else "Also proved"
            lines += [f"{how}: {shown(one.config)}: {_percent(one.gain)} over {one.pairs} pairs.", ""]
    lines += _tried(found, choice)
    return "\n".join(lines).rstrip() + "\n"


def _baseline(choice: Choice) -> list[str]:
    """What is called the default, where that is more than the library alone."""
    if not choice.preset:
        return []
    lines = [f"Your environment is the baseline, called the default here: {_variables(choice.preset)}."]
    if choice.own:
        lines.append(f"The library's own default is among the values: {_variables(choice.own)}.")
    return lines


def _variables(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(without_secrets(environment).items()))


def sentence(found: Found, subject: str, preset: Mapping[str, str] | None = None) -> str:
    """The answer in a sentence, and a further one where the budget ended the search."""
    than = "your environment" if preset else "the default"
    more = ""
    if found.unfinished and found.record.known() and (found.best or not found.unconfirmed):
        more = " The search is unfinished: a longer --time-limit tries more."
    elif found.unconfirmed:
        seems = change(math.expm1(found.record.effect(found.unconfirmed).change), 1)
        more = f" There was no time to confirm {shown(found.unconfirmed)} ({seems}): give a longer --time-limit."
    return _answer(found, subject, than) + more


def _answer(found: Found, subject: str, than: str) -> str:
    launches = len(found.record.launched)
    best = found.best
    if not launches and found.record.default_bad:
        return f"{subject}: no launch of the default counts: {found.record.default_bad}."
    if best is None or best.gain is None:
        if not found.record.known() and not found.record.ruled_out:
            return f"{subject}: {launches} measurements of the default took all the time: give a longer --time-limit."
        why = f": {found.confirmed[0].problem}" if found.confirmed else ""
        return f"{subject}: nothing to export is proved to be faster than {than}{why} ({launches} measurements)."
    return (
        f"{subject}: {_less(best.gain)} than {than} with {len(best.config)} "
        f"variable{'s' if len(best.config) > 1 else ''} "
        f"({best.pairs} fresh pairs, p = {best.p_value:.2g}; {launches} measurements)."
    )


def _less(shift: Shift) -> str:
    return f"{percent(-shift.share, 1)} less time ({percent(-shift.high, 1)} to {percent(-shift.low, 1)})"


def _percent(shift: Shift | None) -> str:
    return (
        "no time" if shift is None else f"{change(shift.share, 1)} ({change(shift.low, 1)} to {change(shift.high, 1)})"
    )


def _confirmed(one: Confirmed, choice: Choice, found: Found, chosen: Chosen) -> list[str]:
    medians = {case: statistics.median(launch.outcome.times[case] for launch in found.record.last_defaults())
               for case in one.by_case}  # fmt: skip
    lines = [
        "export " + " ".join(f"{name}={quote(value)}" for name, value in sorted(choice.exports(one.config).items())),
        "",
    ]
    width = max(map(len, [*one.by_case, *one.guards]), default=0)
    lines.append("Time against the default, with 95 % intervals; minus is faster:")
    for case, shift in one.by_case.items():
        before = medians[case]
        after = before * (1 + shift.share)
        lines.append(f"  {case:<{width}}  {format_duration(before)} -> {format_duration(after)}  {_percent(shift)}")
    if one.guards:
        lines.append("Guard cases, which the search did not look at:")
        lines += [f"  {case:<{width}}  {_percent(shift)}" for case, shift in one.guards.items()]
    lines.append("How it is known:")
    for name, told in choice.told(one.config).items():
        part = one.contributions.get(name)
        gives = f"; without it alone {_percent(part)}" if part else ""
        setting = choice.known[name].setting
        risk = f"; risk: {setting.risk}" if setting.risk else ""
        lines.append(f"  read: {told}{gives}{risk}")
    lines += _effects(chosen)
    lines.append(
        f"  a gain above {percent(LEAST_GAIN)} on launches that chose nothing: p = {one.p_value:.2g} where {LEVEL:g} "
        f"is needed ({LOOKS} candidates may be confirmed)"
    )
    lines += _data(one)
    return [*lines, ""]


def _data(one: Confirmed) -> list[str]:
    """How many operations were checked, and how rare a fault may be that they missed."""
    if not one.checked:
        return []
    total, least = sum(one.checked.values()), min(one.checked.values())
    rate = missed_rate(least)
    more = "; a longer --max-time or a longer --time-limit checks more" if least < checks_for(RAREST) else ""
    return [
        f"  data: right in {total:,} of {total:,} operations checked, {least:,} or more of each case, each with new "
        "data",
        f"  a fault in {rate:.2g} of a case's operations would have been found with a probability of "
        f"{percent(1 - MISSED)}; a rarer one may be missed{more}",
    ]


def _effects(chosen: Chosen) -> list[str]:
    """What the library chose of either, the cases of one change on one line."""
    before, after = chosen
    changes = grouped(((before[case], after[case]), case) for case in before if case in after)
    words = ((f"{one} either way" if one == other else f"{one} -> {other}", cases)
             for (one, other), cases in changes.items())  # fmt: skip
    return [f"  chosen: {change} ({', '.join(cases)})" for change, cases in words]


def _tried(found: Found, choice: Choice) -> list[str]:
    record = found.record
    changing = ", ".join(found.survivors) or "none found"
    lines = [f"Settings that change the time: {changing}"]
    best = found.best.config if found.best else None
    timed = record.known() if record.count(DEFAULT) else []  # without the default there is nothing to compare with
    known = sorted(timed, key=lambda config: record.effect(config).change)
    if known:
        lines.append(
            f"Tried, time against the default ({record.count(DEFAULT)} measurements of it, noise of one "
            f"{percent(record.noise(), 1)}; minus is faster):"
        )
    else:
        why = "" if record.count(DEFAULT) else ", of which no launch counts"
        lines.append(f"No setting was compared with the default{why}.")
    for config in known[:_MOST_REJECTED]:
        if config != best:
            effect = record.effect(config)
            lines.append(f"  {change(math.expm1(effect.change), 1):>8}  {_times(effect.launches)}  {shown(config)}")
    if len(known) > _MOST_REJECTED:
        lines.append(f"  and {len(known) - _MOST_REJECTED} slower ones")
    if record.default_bad and record.launched:
        lines.append(f"  once bad  default: {record.default_bad}")
    lines += [f"  rejected  {shown(tuple(sorted(bad)))}: {why}" for bad, why in record.ruled_out.items()]
    if found.untried:
        why = "a longer --time-limit tries them" if found.unfinished else "the search went by their neighbors"
        lines.append(f"Not tried; {why}:")
        lines += [f"  {name}={','.join(values)}" for name, values in found.untried.items()]
    if choice.refused:
        lines += ["Not tried:", *_refused(choice.refused)]
    return lines


def _times(count: int) -> str:
    return f"{count:3} time{'s' if count != 1 else ' '}"


def _refused(refused: Mapping[str, str]) -> list[str]:
    """A line for each reason, with all values that it is of; a reason of a whole setting names that itself."""
    values: dict[str, dict[str, list[str]]] = {}
    for what, why in refused.items():
        name, is_value, value = what.partition("=")
        of = values.setdefault(why, {})
        if is_value:
            of.setdefault(name, []).append(value)
    lines = []
    for why, names in values.items():
        which = " ".join(f"{name}={','.join(some)}" for name, some in names.items())
        lines.append(f"  {which}: {why}" if which else f"  {why}")
    return lines


def plain(found: Found, choice: Choice, subject: str, chosen: Chosen = ({}, {})) -> str:
    """The same as JSON, for programs."""

    def shift(one: Shift | None) -> dict[str, float] | None:
        return None if one is None else dataclasses.asdict(one)

    confirmed = [
        {
            "environment": choice.exports(one.config), "proved": not one.problem, "problem": one.problem,
            "change": shift(one.gain), "pairs": one.pairs, "p_value": one.p_value, "read": choice.told(one.config),
            "cases": {case: shift(part) for case, part in one.by_case.items()},
            "guards": {case: shift(part) for case, part in one.guards.items()},
            "without": {name: shift(part) for name, part in one.contributions.items()},
            "checked": dict(one.checked), "missed_rate": missed_rate(min(one.checked.values(), default=0)),
        }
        for one in found.confirmed
    ]  # fmt: skip
    record = found.record
    tried = [
        {"environment": dict(one), "change": math.expm1(record.effect(one).change), "launches": record.count(one)}
        for one in record.known()
    ]
    rejected = [{"environment": dict(bad), "why": why} for bad, why in record.ruled_out.items() if why != NOT_READ]
    told = {"default": dict(chosen[0]), "best": dict(chosen[1])}
    return json.dumps({"subject": subject, "confirmed": confirmed, "chosen": told, "tried": tried, "rejected": rejected,
                       "refused": dict(choice.refused), "unfinished": found.unfinished,
                       "untried": {name: list(values) for name, values in found.untried.items()},
                       "environment": without_secrets(choice.preset), "library_default": dict(choice.own)},
                      indent=1) + "\n"  # fmt: skip
