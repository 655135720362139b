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
from linkgauge.apps.trace_files import TraceFile, trace_files
from linkgauge.apps.trace_formats import NOT_IN, read
from linkgauge.apps.trace_steps import RankSteps, Steps, Timed, agree, computing, copy_to_oneself, looped
from linkgauge.errors import UsageError

_MUCH_IDLE = 0.1  # of the computing
_HOST_DECIDES = "the host decides: "
_HOST_TIME = "(see 'linkgauge convert --host-time')"
_KEPT = re.compile(r"waits (\d+(?:\.\d+)?(?:e\+\d\d)?) ms for launches, which computing has in it")
LEAST_OF_WAIT = 0.2
"""Of the wait for launches in a profile, what a program has without the profiler at least: 0.21 to 0.98 of it in eight
programs of PyTorch (docs/results/data/real-programs-gpu.jsonl), of which it was chosen."""
_SAME_BYTES = ("allreduce", "broadcast", "reduce")  # on all ranks, as MPI and NCCL demand


def convert(paths: Sequence[Path], *, host_time: bool = False) -> tuple[dict[str, Any], Counter[str]]:
    """The step file's document of traces, a file a rank or one for all ranks; and how often what was lost.

    Raises:
        UsageError: a file cannot be read or is no trace, or one file names ranks that it cannot speak for.
    """
    files = trace_files(paths)
    document, lost = _converted(files, eager=False, host_time=host_time)
    if _deadlocks(document, len(files)):
        # In the program what was sent had gone before its receiver came, as small messages do.
        freed, told = _converted(files, eager=True, host_time=host_time)
        if not _deadlocks(freed, len(files)):
            told["waits for messages that were sent: a step file's wait needs their receivers, which came later"] += 1
            return freed, told
    return document, lost


def ranks_of_traces(paths: Sequence[Path]) -> list[RankSteps]:
    """What each rank does in the traces, with times. UsageError as of `convert`, or where a trace has no times."""
    files = trace_files(paths)
    lost: Counter[str] = Counter()
    ranks, kinds = _read(files, lost, eager=False, host_time=False)
    if not any(rank.timed for rank in ranks):
        said = _why_none(lost) if not any(rank.steps for rank in ranks) else (
            f"{', '.join(sorted(kinds))} traces do not say when collectives end: expected a profile of PyTorch, or of "
            "Nsight Systems")  # fmt: skip
        raise UsageError(f"{files[0].name}: {said}")
    _check_same_program(ranks)
    return ranks


def _check_same_program(ranks: Sequence[RankSteps]) -> None:
    """UsageError where ranks' collectives of all ranks are not the same, but for some that a profile cut off."""
    first = of_first = None
    for rank in ranks:
        of = Counter(_words_of(one) for one in rank.timed if "collective" in one.step and "group" not in one.step)
        if first is None or of_first is None:
            first, of_first = rank, of
        elif not of <= of_first and not of_first <= of:
            what = next(iter(of_first - of))
            raise UsageError(
                f"{rank.where}: its collectives of all ranks are not those of {first.where} ({what}: {of[what]} and "
                f"{of_first[what]}): expected traces of the same steps of one program"
            )


def _words_of(one: Timed) -> str:
    """Of which pattern a collective is, and of which size where all its ranks have the same."""
    pattern = str(one.step["collective"])
    return f"{pattern} of {one.step['bytes']:,} B" if pattern in _SAME_BYTES else pattern


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


def _converted(files: Sequence[TraceFile], *, eager: bool, host_time: bool) -> tuple[dict[str, Any], Counter[str]]:
    lost: Counter[str] = Counter()
    ranks, kinds = _read(files, lost, eager=eager, host_time=host_time)
    agree(ranks)
    if len(ranks) > 1:  # one trace alone does not say whose it is
        copy_to_oneself(ranks)
    for rank in ranks:
        rank.wait()
        rank.steps = looped(rank.steps)
    if not any("compute" not in step for rank in ranks for step in rank.steps):
        raise UsageError(f"{files[0].name}: {_why_none(lost)}")
    lost.update(NOT_IN[kind] for kind in sorted(kinds))
    count = len(ranks)
    most = max(rank.most_ranks for rank in ranks)
    alike = all(rank.steps == ranks[0].steps for rank in ranks)
    if count == 1 and any("send" in one or "receive" in one for one in _all(ranks[0].steps)):
        raise UsageError(f"{files[0].name}: one rank's messages say not what the others do: expected a trace of each "
                         "rank")  # fmt: skip
    if count > 1 and most > count:
        raise UsageError(
            f"{files[0].name}: rank {most - 1} takes part, and there are traces of {count} ranks: expected one of "
            "each, or one that stands for all"
        )
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    document: dict[str, Any] = {
        "description": f"{files[0].path.name}{more}: a trace of {', '.join(sorted(kinds))}{_host_decides(ranks)}",
    }
    # Where no rank does what others do not, and none is named, more ranks and fewer do the same.
    of_any = alike and not any(rank.peers for rank in ranks)
    if count > 1 and of_any:
        document["description"] += f"; of {count} ranks, on others each rank has as many bytes"
    elif count > 1:
        document["needs"] = {f"ranks == {count}": f"{count} ranks, as the traces have"}
    elif ranks[0].peers:
        document["needs"] = {f"ranks >= {most}": f"{most} ranks or more, which the trace names"}
    if alike:
        document["step"] = ranks[0].steps
    else:
        document["step"] = [{"repeat": 1, "when": f"rank == {number}", "step": rank.steps}
                            for number, rank in enumerate(ranks) if rank.steps]  # fmt: skip
    return document, lost


def _why_none(lost: Counter[str]) -> str:
    """What a trace without communication lacks."""
    without = next((words for words in lost if "without a size" in words or "whose size is" in words), "")
    if without:
        return (
            f"no collective with a size in it, and {lost[without]} without: expected sizes, which PyTorch 2.3 records"
        )
    return "no communication in it: expected a trace of several ranks"


def _host_decides(ranks: Sequence[RankSteps]) -> str:
    """How long a GPU waits for its host, where that is much of its time."""
    for number, rank in enumerate(ranks):
        work_ns = computing(rank.steps) - (rank.idle_ns if rank.host_time else 0.0)
        if rank.idle_ns > _MUCH_IDLE * (rank.idle_ns + work_ns):
            found = (f"{_HOST_DECIDES}in rank {number} the GPU works {work_ns / 1e6:.3g} ms and waits "
                     f"{rank.idle_ns / 1e6:.3g} ms for launches, which computing ")  # fmt: skip
            return f"; {found}{'has in it' if rank.host_time else f'has not in it {_HOST_TIME}'}"
    return ""


def host_decides(description: str) -> str:
    """What a converted step file's description says of a host that decides; "" where it says nothing."""
    _, found, more = description.partition(_HOST_DECIDES)
    words = more.partition(";")[0]
    return f"{found}{words.replace('(see --host-time)', _HOST_TIME)}"  # as step files of before say


def is_whole_program(description: str) -> bool:
    """Whether a converted step file has a program from its start to its end, as an OTF2 trace does."""
    return ": a trace of OTF2" in description


def host_wait_ns(description: str) -> float:
    """How long the computing of a converted step file waits for launches, as they were under the profiler, ns."""
    found = _KEPT.search(description)
    return float(found[1]) * 1e6 if found else 0.0


def _read(
    files: Sequence[TraceFile], lost: Counter[str], *, eager: bool, host_time: bool
) -> tuple[list[RankSteps], set[str]]:
    """What each rank does, and the kinds of the traces."""
    given = [(file.path.resolve(), "" if file.content is None else file.name) for file in files]
    if twice := next((file for file, one in zip(files, given, strict=True) if given.count(one) > 1), None):
        raise UsageError(f"{twice.name}: given twice: expected one trace of each rank")
    whole = [file.path for file in files if file.path.suffix == SUFFIX]
    if whole and len(files) > 1:
        raise UsageError(f"{whole[0]}: an OTF2 trace is of all ranks: expected no other beside it")
    if whole:
        return ranks_of(whole[0], lost, eager=eager), {"OTF2"}
    bases = [file for file in files if file.content is None and nsight.is_one(file.path)]
    if bases and len(bases) < len(files):
        raise UsageError(f"{bases[0].name}: an export of Nsight Systems beside other traces: expected one kind")
    if bases:
        return nsight.ranks_of([file.path for file in _in_order(bases)], lost, eager=eager), {"Nsight Systems'"}
    ranks: list[RankSteps] = []
    kinds = set()
    of_all = len(files) if len(files) > 1 else 0
    for file in _in_order(files):
        ranks.append(RankSteps(file.name, lost, eager=eager, of_all=of_all, host_time=host_time))
        kinds.add(read(file, ranks[-1]))
        if again := [one for one in ranks[:-1] if one.number == ranks[-1].number >= 0]:
            raise UsageError(
                f"{file.name}: rank {ranks[-1].number}, as {again[0].where} is: expected one trace of each rank"
            )
    if {rank.number for rank in ranks} == set(range(len(ranks))):  # as the traces themselves say
        ranks.sort(key=lambda rank: rank.number)
    return ranks, kinds


def _in_order(files: Sequence[TraceFile]) -> list[TraceFile]:
    """By the last number in the names of which each file has one of its own, else as given."""
    numbers = [[int(one[:9]) for one in re.findall(r"\d+", re.split(r"\.(?:json|et|sqlite)", Path(file.name).name)[0])]
               for file in files]  # fmt: skip
    for back in range(1, min(map(len, numbers)) + 1):
        own = [found[-back] for found in numbers]
        if len(set(own)) == len(files):
            return [file for _, file in sorted(zip(own, files, strict=True), key=lambda pair: pair[0])]
    return list(files)


def _all(steps: Steps) -> Iterator[dict[str, Any]]:
    for step in steps:
        yield step
        yield from _all(step.get("step", []))
