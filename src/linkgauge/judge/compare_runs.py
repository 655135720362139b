"""Two runs compared case by case, and pooled by device, pair, transport and as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from linkgauge.judge.left_out import left_out_keys
from linkgauge.model.background import beside_text
from linkgauge.model.case import Case
from linkgauge.model.device_words import device_words
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import format_bytes as size_text
from linkgauge.model.result import HEADLINE, Result
from linkgauge.stats.attempts import counted
from linkgauge.stats.compare import (
    LEAST_REPEATS,
    Comparison,
    Shift,
    compare_repeats,
    hierarchical_bootstrap,
    pool_repeats,
)
from linkgauge.stats.launches import device_noun, shown_transports
from linkgauge.stats.match import Key, Matched, Repeats, match_runs, repeats_of
from linkgauge.store.schema import identity_of

if TYPE_CHECKING:
    from linkgauge.store.run import Run

Dependence = Literal["positive", "any"]


@dataclasses.dataclass(frozen=True)
class CaseShift:
    """One case of both runs. Its key and its row are the second run's."""

    case_key: str
    launch_key: str
    words: str
    row: Result
    comparison: Comparison
    bootstrap: Shift | None = None


@dataclasses.dataclass(frozen=True)
class PoolShift:
    """All cases of one device, pair or transport, or of the run."""

    kind: str
    name: str
    cases: int
    comparison: Comparison


@dataclasses.dataclass(frozen=True)
class RunComparison:
    """What `compare` says: cases, pools, what has no partner, and how devices were matched."""

    how: str
    notes: tuple[str, ...]
    cases: tuple[CaseShift, ...]
    pools: tuple[PoolShift, ...]
    failed: tuple[tuple[str, str], ...]
    only_first: int
    only_second: int
    few: tuple[int, int] | None = None  # launches of each run, where they are too few to tell any case
    disturbed: int = 0  # measurements that are left out, since others used the machine meanwhile
    within: float | None = None  # the smallest shift beyond what the medians' own intervals explain, in the median

    def count(self, verdict: str) -> int:
        """Return how many cases have this verdict."""
        return sum(case.comparison.verdict == verdict for case in self.cases)

    def plain(self, second: Run) -> dict[str, Any]:
        """Return it as JSON values, with the row of each case as the second run's summary has it."""
        from linkgauge.stats.summary import summarize

        rows = {identity_of(row): row for row in summarize(second).to_pylist() if row["lane"] == HEADLINE}
        cases = []
        for one in self.cases:
            bootstrap = None if one.bootstrap is None else dataclasses.asdict(one.bootstrap)
            cases.append(
                {"case_key": one.case_key, "launch_key": one.launch_key, "words": one.words,
                 "dimensions": rows[one.row.identity], "comparison": dataclasses.asdict(one.comparison),
                 "bootstrap": bootstrap}
            )  # fmt: skip
        return dataclasses.asdict(dataclasses.replace(self, cases=())) | {"cases": cases}


def compare_runs(
    first: Run,
    second: Run,
    level: float = 0.05,
    margin: float = 0.01,
    dependence: Dependence = "positive",
    bootstrap: bool = False,
) -> RunComparison:
    """Compare the second run with the first. Shifts are of times: +0.03 is 3 % slower than the first."""
    (before, not_before), (after, not_after) = map(undisturbed_repeats, (first, second))
    matched = match_runs(before, after, first.launched, second.launched)
    keys = list(matched.pairs)
    launches = second.launched
    shown, noun = shown_transports(launches), device_noun(launches)
    sides = [[matched.pairs[key][side].median_ns for key in keys] for side in (0, 1)]
    compared = compare_repeats(
        [list(v.values()) for v in sides[0]], [list(v.values()) for v in sides[1]], level, margin, dependence
    )
    resampled = _bootstraps(first, second, matched, keys) if bootstrap else {}
    cases = tuple(
        CaseShift(*key, words_of(matched.pairs[key][1].row.case, shown, noun), matched.pairs[key][1].row, comparison,
                  resampled.get(key))
        for key, comparison in zip(keys, compared, strict=True)
    )  # fmt: skip
    failed = tuple(
        (
            words_of(b.row.case, shown, noun),
            f"{', '.join(sorted(set(b.failures)))} in the second run, measured in the first",
        )
        for a, b in matched.pairs.values()
        if b.failures and not b.median_ns and a.median_ns
    )
    pools = _pools(keys, matched, sides, level, margin, dependence, shown, noun)
    notes = (*matched.notes, *_left_out_notes(first, second, matched), *disturbed_notes(first, not_before),
             *disturbed_notes(second, not_after))  # fmt: skip
    repeats = [case.comparison.repeats for case in cases]
    few = max(repeats) if repeats and max(map(min, repeats)) < LEAST_REPEATS else None
    within = _within_launches(first, second) if few else None
    return RunComparison(
        matched.how, notes, cases, pools, failed, len(matched.only_first), len(matched.only_second), few,
        not_before + not_after, within,
    )  # fmt: skip


def undisturbed_repeats(run: Run) -> tuple[dict[Key, Repeats], int]:
    """Return a run's cases without the measurements that other users disturbed, and how many these are."""
    from linkgauge.findings.read import disturbed_in
    from linkgauge.stats.summary import results_of

    disturbed = disturbed_in(run)
    return repeats_of(results_of(run), disturbed), len(disturbed)


def disturbed_notes(run: Run, left_out: int) -> list[str]:
    """Say how many measurements are left out since other users disturbed them."""
    if not left_out:
        return []
    return [f"{left_out} measurements of {run.path} are left out: others used the machine meanwhile; "
            f"'linkgauge findings {run.path}' names them"]  # fmt: skip


def _within_launches(first: Run, second: Run) -> float | None:
    """Return by how much a median must shift to leave both runs' 95 % intervals behind, in the median over the cases.

    None where cases are one value each, which has no interval. It holds what samples of one launch differ by, not what
    launches do: a real shift may be larger and still chance.
    """
    widths: list[dict[str, float]] = []
    for run in (first, second):
        rows = (row for group in counted(run).measured for row in group)
        widths.append({row.case_key: row.half_width for row in rows if row.samples > 1})
    both = [math.hypot(widths[0][key], widths[1][key]) for key in widths[0].keys() & widths[1].keys()]
    return float(np.median(both)) if both else None


def _left_out_notes(first: Run, second: Run, matched: Matched) -> list[str]:
    """Say how many cases without a partner are so since the other run's curves ended before."""
    notes = []
    for name, other, only, run in (
        ("first", "second", matched.only_first, second),
        ("second", "first", matched.only_second, first),
    ):
        spared = {case_key for case_key, _ in only} & left_out_keys(run.rows())
        if spared:
            notes.append(
                f"{len(spared)} cases of the {name} run have no partner, since curves of the {other} ended before or "
                f"were full at another size"
            )
    return notes


def _pools(
    keys: Sequence[tuple[str, str]],
    matched: Matched,
    sides: list[list[dict[int, float]]],
    level: float,
    margin: float,
    dependence: Dependence,
    shown: Mapping[str, str],
    noun: str,
) -> tuple[PoolShift, ...]:
    result: list[PoolShift] = []
    for kind, members in pool_members([matched.pairs[key][1].row.case for key in keys], shown, noun).items():
        pooled = [pool_repeats(sides[0], sides[1], indices) for indices in members.values()]
        compared = compare_repeats([a for a, _ in pooled], [b for _, b in pooled], level, margin / 2, dependence)
        result += [PoolShift(kind, name, len(members[name]), c) for name, c in zip(members, compared, strict=True)]
    return tuple(result)


def pool_members(cases: Sequence[Case], shown: Mapping[str, str], noun: str) -> dict[str, dict[str, list[int]]]:
    """Return by kind of pool and by its name which of the cases are in it; a kind with one pool only is the run's."""
    kinds: dict[str, Callable[[Case], list[str]]] = {
        "run": lambda case: ["all cases"],
        "transport": lambda case: [shown.get(case.transport, case.transport)],
        "device": lambda case: [f"{noun} {device}" for device in sorted(set(case.devices))],
        "pair": lambda case: [device_words(sorted(set(case.devices)), noun)] if len(set(case.devices)) == 2 else [],
    }
    found: dict[str, dict[str, list[int]]] = {}
    for kind, names_of in kinds.items():
        members = grouped((name, index) for index, case in enumerate(cases) for name in names_of(case))
        if members and (kind == "run" or len(members) > 1):
            found[kind] = members
    return found


def _bootstraps(
    first: Run, second: Run, matched: Matched, keys: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Shift]:
    """Return the hierarchical bootstrap's shift of each case that both sides repeated, from the headline series."""
    from linkgauge.stats.series import headline_of, one_node, run_blocks

    held: list[dict[tuple[str, str], list[np.ndarray[Any, Any]]]] = [{}, {}]
    for side, run in enumerate((first, second)):
        nodes = one_node(run)
        # The keys of the first run are those before devices were matched; its case is that of the second.
        own = {
            (matched.pairs[key][side].row.case_key, *identity): key
            for key in keys
            for identity in matched.pairs[key][side].identities
        }
        for identity, block in run_blocks(run):
            key = own.get(identity)
            if key is None:
                continue
            case = matched.pairs[key][side].row.case
            series, _ = headline_of(block.only(block.measured), case, nodes.get(identity[1], True))
            if series.size:
                held[side].setdefault(key, []).append(series)
    return {
        key: hierarchical_bootstrap(held[0][key], held[1][key], resamples=1000)
        for key in keys
        if len(held[0].get(key, ())) >= 2 and len(held[1].get(key, ())) >= 2
    }


def words_of(case: Case, shown: Mapping[str, str], noun: str = "device") -> str:
    """Return what a user calls a case; `shown` is what its run's transports are called, `noun` a device."""
    named = ("path", "algorithm", "service_class", "gpudirect")
    settings = [f"{name} {value}" for name in named if (value := getattr(case, name))]
    memories = (case.source_memory, case.target_memory)
    words = [
        shown.get(case.transport, case.transport),
        case.variant,
        case.app.label if case.app else case.pattern,
        *settings,
        "" if memories == ("device", "device") else f"{' to '.join(dict.fromkeys(memories))} memory",
        "" if case.app else size_text(case.size),
        f"on {device_words(case.devices, noun)}",
    ]
    return " ".join(word for word in words if word) + beside_text(case.background.text, shown)
