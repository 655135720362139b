"""Collectives that the ranks of a running job recorded, as cases: each rank's file tells its own part.

A rank that comes early waits within the collective for those that come late, so what it records is longer. The time of
a call is that of the rank that recorded least: it came last and waited for none. Which rank that is, and how long the
others waited, is said.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from linkgauge.exchange.imported import Call, ImportedCase, ImportedLog, make_case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import format_duration as time_text

_SLOW = 3  # times the median of its kind
_LATE_SHARE = 0.5  # of the calls in which one rank comes last
_FEWEST = 8  # calls before anything is said of late ranks or slow calls


def join(logs: Sequence[ImportedLog]) -> None:
    """Make cases of the calls in all logs, in the first log that has any: one case a group, pattern and size."""
    having = [log for log in logs if log.calls]
    if not having:
        return
    first = having[0]
    kinds: defaultdict[tuple[str, str, int, str, int, str], list[Call]] = defaultdict(list)
    for log in having:
        for call in log.calls:
            kinds[call.tool, call.group, call.ranks, call.pattern, call.size, call.datatype].append(call)
    for (tool, _, ranks, pattern, size, datatype), calls in sorted(kinds.items()):
        if not PATTERNS[pattern].takes(ranks) or ranks < 2:
            first.problem(calls[0].line, f"{len(calls)} calls left out: no {pattern} is of {ranks} ranks", len(calls))
            continue
        _kind(first, tool, ranks, pattern, size, datatype, calls)


def _kind(
    log: ImportedLog, tool: str, ranks: int, pattern: str, size: int, datatype: str, calls: Sequence[Call]
) -> None:
    by_number: defaultdict[int, dict[int, Call]] = defaultdict(dict)
    for call in calls:
        if call.rank in by_number[call.number]:
            log.problem(call.line, f"call {call.number} of rank {call.rank} is recorded twice: the second is left out")
        else:
            by_number[call.number][call.rank] = call
    seen = {call.rank: call for call in calls}
    whole = {number: some for number, some in by_number.items() if len(some) == ranks}
    used = whole or by_number
    if len(used) < len(by_number):
        count = sum(len(some) for number, some in by_number.items() if number not in used)
        log.problem(calls[0].line, f"{pattern} of {size} bytes: {count} records left out: not of all ranks", count)
    times = [min(call.ns for call in some.values()) for _, some in sorted(used.items())]
    evidence: dict[str, Any] = {"estimator": "of each call the rank that came last", "calls": len(times)}
    what = f"{pattern} of {size} bytes on {ranks} ranks"
    if len(seen) < ranks:
        evidence["estimator"] = f"of each call the least of {len(seen)} of {ranks} ranks: waiting may be in it"
        log.note(
            calls[0].line, f"{what}: records of {len(seen)} of them alone: give those of all to have no waiting in it"
        )
    else:
        evidence |= _late(log, what, used, times)
    into = log.table(tool, {}, _ranks(seen) if len(seen) == ranks else ())
    case = make_case("ccl", pattern, size, range(ranks), cadence="streaming", arrival="free", clock="event", warmup=0,
                     source_memory="device", target_memory="device",
                     datatype=datatype or ("float32" if PATTERNS[pattern].reduces else "int8"))  # fmt: skip
    if not datatype:
        evidence["datatype"] = "not recorded"
    one = ImportedCase(case, tuple((time, 1) for time in times), evidence=evidence, operations=len(times))
    into.add(calls[0].line, one)


def _late(log: ImportedLog, what: str, calls: dict[int, dict[int, Call]], times: Sequence[float]) -> dict[str, Any]:
    """What is said of ranks that come late and calls that are slow."""
    line = next(iter(next(iter(calls.values())).values())).line
    last = Counter(min(some.values(), key=lambda call: call.ns).rank for some in calls.values())
    waited = [
        max(call.ns for call in some.values()) - min(call.ns for call in some.values()) for some in calls.values()
    ]
    rank, count = last.most_common(1)[0]
    told: dict[str, Any] = {"waited_ns": statistics.median(waited)}
    if len(times) < _FEWEST:
        return told
    middle = statistics.median(times)
    if count >= _LATE_SHARE * len(times) and told["waited_ns"] > 0.1 * middle:
        told["late_rank"] = rank
        log.note(line, f"{what}: rank {rank} comes last in {count} of {len(times)} calls; the first to come waits "
                       f"{time_text(told['waited_ns'])} in the median call")  # fmt: skip
    if slow := sum(1 for time in times if time > _SLOW * middle):
        told["slow_calls"] = slow
        log.note(line, f"{what}: {slow} of {len(times)} calls take more than {_SLOW} times the median, "
                       f"{time_text(middle)}, on every rank")  # fmt: skip
    return told


def _ranks(seen: dict[int, Call]) -> list[dict[str, Any]]:
    """The ranks as a table has them; which device each has is not recorded, so they are numbered by rank on a host."""
    places: Counter[str] = Counter()
    found = []
    for rank, call in sorted(seen.items()):
        device = {"ordinal": places[call.host], "name": "", "pci_address": "", "kind": "gpu"}
        places[call.host] += 1
        found.append({"rank": rank, "host": call.host or None, "pid": call.pid, "device": device})
    return found
