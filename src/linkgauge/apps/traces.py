"""Traces of real programs as step files, a file a rank: what they communicate, in their order, with what is lost said.

One file stands for every rank; of several the numbers in their names say the ranks. OTF2's has all ranks in it,
Nsight Systems' one or several.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from linkgauge.apps import nsight
from linkgauge.apps.matching import DeadlockError, check
from linkgauge.apps.otf2_trace import SUFFIX, ranks_of
from linkgauge.apps.program import program_of
from linkgauge.apps.step_file import step_file_of
from linkgauge.apps.trace_formats import NOT_IN, read
from linkgauge.apps.trace_steps import MOST_RANKS, RankSteps, Steps, looped
from linkgauge.errors import UsageError


def convert(paths: Sequence[Path]) -> tuple[dict[str, Any], Counter[str]]:
    """The step file's document of traces, a file a rank or one for all ranks; and how often what was lost.

    Raises:
        UsageError: a file cannot be read or is no trace, or one file names ranks that it cannot speak for.
    """
    paths = [file for path in paths for file in _files_of(path)]
    if len(paths) > MOST_RANKS:
        raise UsageError(f"{len(paths)} traces: expected at most {MOST_RANKS}")
    document, lost = _converted(paths, eager=False)
    if _deadlocks(document, len(paths)):
        # In the program what was sent had gone before its receiver came, as small messages do.
        freed, told = _converted(paths, eager=True)
        if not _deadlocks(freed, len(paths)):
            told["waits for messages that were sent: a step file's wait needs their receivers, which came later"] += 1
            return freed, told
    return document, lost


def _files_of(path: Path) -> list[Path]:
    """The traces in a folder, as profilers write one for each rank; else the path itself."""
    if not path.is_dir():
        return [path]
    try:
        found = sorted(one for one in path.iterdir() if one.is_file() and _TRACE.search(one.name))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if not found:
        raise UsageError(
            f"{path}: no trace in this folder: expected files that end in .json, .json.gz, .json.zst or .et"
        )
    return found


_TRACE = re.compile(r"\.(?:json|et)(?:\.gz|\.zst)?$")


def _deadlocks(document: dict[str, Any], traces: int) -> bool:
    """Whether ranks of the step file wait for each other for ever. What else is wrong with it `run` says."""
    steps = document["step"]
    if not any("send" in one for one in _all(steps)):
        return False
    ranks = next(
        (int(words.split()[-1]) for words in document.get("needs", {}) if words.startswith("ranks ==")), traces
    )
    try:
        check(program_of(step_file_of(document, "the traces"), {}, ranks))
    except DeadlockError:
        return True
    except UsageError:
        return False
    return False


def _converted(paths: Sequence[Path], *, eager: bool) -> tuple[dict[str, Any], Counter[str]]:
    lost: Counter[str] = Counter()
    ranks, kinds = _read(paths, lost, eager=eager)
    for rank in ranks:
        rank.wait()
        rank.steps = looped(rank.steps)
    if not any("compute" not in step for rank in ranks for step in rank.steps):
        raise UsageError(f"{paths[0]}: no communication in it: expected a trace of several ranks")
    lost.update(NOT_IN[kind] for kind in sorted(kinds))
    count = len(ranks)
    most = max(rank.most_ranks for rank in ranks)
    alike = all(rank.steps == ranks[0].steps for rank in ranks)
    if count == 1 and any("send" in one or "receive" in one for one in _all(ranks[0].steps)):
        raise UsageError(f"{paths[0]}: one rank's messages say not what the others do: expected a trace of each rank")
    if count > 1 and most > count:
        raise UsageError(f"{paths[0]}: rank {most - 1} takes part, and there are traces of {count}: expected all")
    document: dict[str, Any] = {
        "description": f"{Path(paths[0]).name}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}: a trace of "
                       f"{', '.join(sorted(kinds))}",
    }  # fmt: skip
    if count > 1:
        document["needs"] = {f"ranks == {count}": f"{count} ranks, as the traces have"}
    elif ranks[0].peers:
        document["needs"] = {f"ranks >= {most}": f"{most} ranks or more, which the trace names"}
    if alike:
        document["step"] = ranks[0].steps
    else:
        document["step"] = [{"repeat": 1, "when": f"rank == {number}", "step": rank.steps}
                            for number, rank in enumerate(ranks) if rank.steps]  # fmt: skip
    return document, lost


def _read(paths: Sequence[Path], lost: Counter[str], *, eager: bool) -> tuple[list[RankSteps], set[str]]:
    """What each rank does, and the kinds of the traces."""
    whole = [path for path in paths if path.suffix == SUFFIX]
    if whole and len(paths) > 1:
        raise UsageError(f"{whole[0]}: an OTF2 trace is of all ranks: expected no other beside it")
    if whole:
        return ranks_of(whole[0], lost, eager=eager), {"OTF2"}
    bases = [path for path in paths if nsight.is_one(path)]
    if bases and len(bases) < len(paths):
        raise UsageError(f"{bases[0]}: an export of Nsight Systems beside other traces: expected one kind")
    if bases:
        return nsight.ranks_of(_in_order(bases), lost, eager=eager), {"Nsight Systems'"}
    ranks, kinds = [], set()
    for path in _in_order(paths):
        ranks.append(RankSteps(str(path), lost, eager=eager))
        kinds.add(read(path, ranks[-1]))
    return ranks, kinds


def _in_order(paths: Sequence[Path]) -> list[Path]:
    """By the last number in the names where each has one of its own, else as given."""
    numbers = [re.findall(r"\d+", re.split(r"\.(?:json|et|sqlite)", path.name)[0]) for path in paths]
    if all(numbers) and len({int(found[-1][:9]) for found in numbers}) == len(paths):
        return [path for _, path in sorted(zip((int(found[-1][:9]) for found in numbers), paths, strict=True))]
    return list(paths)


def _all(steps: Steps) -> Iterator[dict[str, Any]]:
    for step in steps:
        yield step
        yield from _all(step.get("step", []))
