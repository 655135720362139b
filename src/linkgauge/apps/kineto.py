"""PyTorch's profiles (Kineto's JSON, `traceEvents`): what a rank computes, communicates and waits for.

A kernel of NCCL or RCCL has sizes and ranks in its arguments, or its `record_param_comms` on the host has them. What
waits for it is known in one of three ways, the best of which is taken:
- by events between streams (`cuda_sync`, of `enable_cuda_sync_events`): an event that a stream waits for stands for all
  that its own stream had been given when it was recorded;
- by the host's calls: what it launches after cudaStreamWaitEvent, or after it has waited itself, may wait for what it
  launched before. Of these, those count that were over when it began. PyTorch's own waits before a collective are none.
  CUPTI of CUDA 13 writes -1 for the event: `cuda_sync` then says only which stream waits, and the others do not;
- by times alone, where launches are not in the profile.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from linkgauge.apps.timeline import Event, Line, follow
from linkgauge.apps.trace_steps import NOTHING, RankSteps
from linkgauge.apps.trace_values import Entry, list_of_numbers, number_of, sizes_of, sub_group
from linkgauge.errors import UsageError

_LATEST_US = 1e17  # profiles count from 1970 or later
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver", "privateuse1_runtime", "privateuse1_driver")
_COMMUNICATES = re.compile(r"^(?:void )?(?:nccl|rccl|mscclpp?)", re.IGNORECASE)
_WAIT_OF_STREAM = re.compile(r"^(?:cuda|hip|cu)StreamWaitEvent")
_WAIT_OF_HOST = re.compile(r"^(?:(?:cuda|hip)(?:Stream|Device|Event)|cu(?:Stream|Ctx|Event))Synchronize")
_PARAMETERS = "record_param_comms"
_COPIES_IN = "fsdp::all_gather_copy_in"  # FSDP2: into its own block of what the next allgather fills
_IN_PLACE = "In place"
_RECORDED = "wait_on_cuda_event_record_corr_id"
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
Needs = Mapping[Line, int]


@dataclasses.dataclass(eq=False)
class _Op:
    """Something on the device, or of several kernels one thing that communicates. Times in ns."""

    begin: float
    end: float
    number: int
    stream: Line
    thread: Line = ()
    launched: float | None = None
    acts: Sequence[Entry] | None = None  # arguments of what it communicates; None: it computes
    place: int = 0
    needs: Needs | None = None
    ready: float | None = None
    blocked: tuple[float, float] | None = None


def of_profile(events: Sequence[Entry], rank: RankSteps, world: int = 0) -> None:
    """Fill a rank from the events of its profile; `world`: how many ranks the profile says there are."""
    found = _Profile(events, rank)
    if not found.ops:
        raise UsageError(
            f"{rank.where}: no kernels in this profile: expected one with ProfilerActivity.CUDA; of a program on hosts "
            "give its execution trace (torch.profiler.ExecutionTraceObserver)"
        )
    found.depend()
    follow(rank, found.events(rank.of_all or world))


class _Profile:
    """What is in a profile: `ops` on the device by their begin, `calls` of the host by their correlation."""

    def __init__(self, events: Sequence[Entry], rank: RankSteps) -> None:
        self._rank = rank
        self._calls: dict[int, tuple[float, float, Line, Entry]] = {}
        self._parameters: dict[int, Entry] = {}  # of record_param_comms, by External id
        self._between: list[Entry] = []  # cuda_sync
        calls: list[tuple[float, Line, int]] = []  # to _PARAMETERS by External id, and to _COPIES_IN: -1
        pieces = []
        for number, one in enumerate(events):
            kind, times = str(one.get("cat", "")).lower(), times_of(one)
            if times is None:
                continue
            if kind in _ON_DEVICE:
                pieces.append((*times, number, one))
            elif kind in _CALLS:
                thread = (one.get("pid"), one.get("tid"))
                self._calls[number_of(arguments_of(one).get("correlation"))] = (*times, _hashable(thread), one)
            elif kind == "cuda_sync":
                self._between.append(one)
            elif one.get("name") in (_PARAMETERS, _COPIES_IN):
                external = number_of(arguments_of(one).get("External id")) if one["name"] == _PARAMETERS else -1
                calls.append((times[0], _hashable((one.get("pid"), one.get("tid"))), external))
                if external >= 0:
                    self._parameters[external] = one
        self._in_place = _behind_copies(calls)
        self.ops = self._ops(sorted(pieces, key=lambda piece: piece[:3]))

    # --- what there is on the device

    def _ops(self, pieces: Sequence[tuple[float, float, int, Entry]]) -> list[_Op]:
        named = {number_of(arguments_of(one).get("External id")) for *_, one in pieces
                 if _COMMUNICATES.match(str(one.get("name", "")))}  # fmt: skip
        pending = self._unlaunched(pieces)
        found: list[_Op] = []
        of_id: dict[int, _Op] = {}
        for begin, end, number, one in pieces:
            given = arguments_of(one)
            external = number_of(given.get("External id"))
            call = self._calls.get(number_of(given.get("correlation")))
            stream = _hashable((one.get("pid"), given.get("stream", one.get("tid"))))
            op = _Op(begin, end, number, stream)
            if call is not None:
                op.launched, op.thread = call[0], call[2]
            by_name = bool(_COMMUNICATES.match(str(one.get("name", ""))))
            if by_name or ("Collective name" in given and external not in named):
                before = of_id.get(external) if external else None
                if before is not None and before.stream == stream:
                    before.end = max(before.end, end)  # one call, carried out by several kernels
                    continue
                of_id[external] = op
                op.acts = self._acts(given, external, pending, op)
            found.append(op)
        places: dict[Line, int] = defaultdict(int)
        for op in found:
            if op.acts is not None:
                op.place = places[op.stream]
                places[op.stream] += 1
        return found

    def _unlaunched(self, pieces: Sequence[tuple[float, float, int, Entry]]) -> list[tuple[float, Line, Entry]]:
        """Messages and collectives of the host that no kernel names: those of a group, which one kernel carries out."""
        of_kernels = {number_of(arguments_of(one).get("External id")) for *_, one in pieces}
        found = []
        for external, one in self._parameters.items():
            given, times = arguments_of(one), times_of(one)
            name = _plain(given.get("Collective name", ""))
            if external not in of_kernels and times is not None and name and name not in ("wait", "barrier", *NOTHING):
                found.append((times[0], _hashable((one.get("pid"), one.get("tid"))), given))
        return sorted(found, key=lambda one: -one[0])

    def _acts(self, given: Entry, external: int, pending: list[tuple[float, Line, Entry]], op: _Op) -> Sequence[Entry]:
        on_host = arguments_of(self._parameters.get(external, {}))
        if "Collective name" in given or "Collective name" in on_host:
            both = {**on_host, **given}
            # What a group begins and ends with has no size; what it carries out stands before it on the host.
            if _plain(both["Collective name"]) not in NOTHING:
                return [{**both, _IN_PLACE: external in self._in_place}]
        found = []
        while op.launched is not None and pending and pending[-1][0] <= op.launched:
            found.append(pending.pop()[2])
        if not found:
            self._rank.lost["NCCL's kernels without a size: PyTorch 2.3 and newer record it; left out"] += 1
        return found

    # --- what waits for what

    def depend(self) -> None:
        """Set what each op waits for, and since when it could begin."""
        if not any(op.launched is not None for op in self.ops):
            return
        ordered = sorted((op for op in self.ops if op.launched is not None), key=lambda op: (op.launched, op.number))
        last: dict[Line, _Op] = {}
        for op in ordered:
            before = last.get(op.thread)
            if op.acts is not None:
                op.ready = max(op.launched or 0.0, before.end if before is not None else 0.0)
            else:
                last[op.thread] = op
        if any(number_of(arguments_of(one).get(_RECORDED)) > 0 for one in self._between):
            self._by_events(ordered)
        else:
            self._by_calls(ordered)

    def _by_events(self, ordered: Sequence[_Op]) -> None:
        """By what streams wait for: followed in the order in which the host said so."""
        of = _Streams()
        said: list[tuple[float, int, Callable[[], None]]] = []
        said += [(op.launched or 0.0, op.number, functools.partial(of.launch, op)) for op in ordered]
        for number, one in enumerate(self._between):
            given = arguments_of(one)
            call, times = self._calls.get(number_of(given.get("correlation"))), times_of(one)
            since, until = call[:2] if call is not None else times or (0.0, 0.0)
            stream = _stream_of(one)
            event = number_of(given.get(_RECORDED))
            kind = str(given.get("cuda_sync_kind", one.get("name", "")))
            if "Event" in kind and event in self._calls:
                source = _hashable((one.get("pid"), given.get("wait_on_stream")))
                said.append((self._calls[event][0], -1, functools.partial(of.record, event, source)))
            if kind == "Stream Wait Event":
                said.append((since, number, functools.partial(of.wait, stream, event)))
            elif kind == "Event Sync":
                said.append((until, number, functools.partial(of.hold, (since, until), event=event)))
            else:
                said.append(
                    (
                        until,
                        number,
                        functools.partial(of.hold, (since, until), stream=stream, all_=kind != "Stream Sync"),
                    )
                )
        for _, _, act in sorted(said, key=lambda one: one[:2]):
            act()

    def _by_calls(self, ordered: Sequence[_Op]) -> None:
        """By the host's calls: those that wait, but for what PyTorch waits for before a collective."""
        streams = {number_of(arguments_of(one).get("correlation")): _stream_of(one) for one in self._between}
        waits: list[tuple[float, float | None, Line]] = []  # when, since when the host itself waited, which stream
        for correlation, (begin, end, _, one) in self._calls.items():
            name, external = str(one.get("name", "")), number_of(arguments_of(one).get("External id"))
            asks = _plain(arguments_of(self._parameters.get(external, {})).get("Collective name", "wait"))
            if _WAIT_OF_STREAM.match(name) and (external not in self._parameters or asks == "wait"):
                waits.append((begin, None, streams.get(correlation, ())))
            elif _WAIT_OF_HOST.match(name):
                waits.append((end, begin, ()))
        waits.sort(key=lambda one: one[0])
        lines: dict[Line, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))  # launched, and over
        at = 0
        since: dict[Line, float] = {(): 0.0}  # of each stream, and of all
        blocked: tuple[float, float] | None = None
        same: dict[Line, Needs] = {}
        for op in ordered:
            launched = op.launched or 0.0
            while at < len(waits) and waits[at][0] <= launched:
                when, begun_at, stream = waits[at]
                since[stream] = when
                blocked = blocked if begun_at is None else (begun_at, when)
                at += 1
            before = max(since[()], since.get(op.stream, 0.0))
            needs = {line: min(bisect.bisect_left(begun, before), bisect.bisect_right(over, op.begin)) - 1
                     for line, (begun, over) in lines.items()}  # fmt: skip
            op.needs, op.blocked = _later(same.get(op.stream, {}), needs), blocked
            if op.acts is not None:
                begun, over = lines[op.stream]
                begun.append(launched)
                over.append(max(op.end, over[-1] if over else 0.0))
                same[op.stream] = {op.stream: op.place}

    # --- as events

    def events(self, world: int) -> Iterator[Event]:
        """What there is on the device, in no order."""
        acts = [given for op in self.ops for given in op.acts or ()]
        of_all = world or max((number_of(given.get("Group size")) for given in acts), default=0)
        for op in self.ops:
            act = None if op.acts is None else _act(op.acts, self._rank, of_all)
            sends = bool(op.acts) and all(_plain(one["Collective name"]) == "send" for one in op.acts or ())
            yield Event(op.begin, op.end, op.number, act, sends, op.launched, op.stream, op.place, op.needs, op.ready,
                        op.blocked)  # fmt: skip


def _behind_copies(calls: Sequence[tuple[float, Line, int]]) -> set[int]:
    """External ids of collectives that their thread has begun straight after _COPIES_IN."""
    found: set[int] = set()
    copied: set[Line] = set()
    for _, thread, external in sorted(calls, key=lambda one: one[0]):
        if external < 0:
            copied.add(thread)
        elif thread in copied:
            copied.remove(thread)
            found.add(external)
    return found


class _Streams:
    """What comes next in each stream waits for, as the host goes on; and for what the host has waited itself."""

    def __init__(self) -> None:
        self._seen: dict[Line, Needs] = defaultdict(dict)
        self._recorded: dict[int, Needs] = {}
        self._host: Needs = {}
        self._blocked: tuple[float, float] | None = None

    def launch(self, op: _Op) -> None:
        """The host gives something to its stream."""
        op.needs, op.blocked = _later(self._seen[op.stream], self._host), self._blocked
        if op.acts is not None:
            self._seen[op.stream] = _later(op.needs, {op.stream: op.place})

    def record(self, event: int, stream: Line) -> None:
        """An event stands for what its stream has been given."""
        self._recorded[event] = self._seen[stream]

    def wait(self, stream: Line, event: int) -> None:
        """A stream waits for an event."""
        self._seen[stream] = _later(self._seen[stream], self._recorded.get(event, {}))

    def hold(self, times: tuple[float, float], *, event: int = 0, stream: Line = (), all_: bool = False) -> None:
        """The host has waited for an event, a stream or all."""
        done = self._seen[stream] if stream in self._seen else self._recorded.get(event, {})
        self._host = _later(self._host, *(self._seen.values() if all_ else (done,)))
        self._blocked = times


def _act(acts: Sequence[Entry], rank: RankSteps, of_all: int) -> Callable[[bool], None]:
    def act(begun: bool) -> None:
        for given in acts:
            _communicate(given, rank, of_all, begun)

    return act


def _communicate(given: Entry, rank: RankSteps, of_all: int, begun: bool) -> None:
    name = str(given["Collective name"])
    sizes = sizes_of(rank, given, "In msg nelems", "Out msg nelems", "float")
    ranks = list_of_numbers(given.get("Process Group Ranks"))
    if _plain(name) in ("send", "recv"):
        verb, key = ("send", "Dst Rank") if _plain(name) == "send" else ("receive", "Src Rank")
        rank.message(verb, rank.whole(given, key), sizes["in"] or sizes["out"])
        return
    rank.collective(name, sizes, sub_group(rank, ranks, of_all), _root(given, ranks, rank), begun,
                    list_of_numbers(given.get("In split size")), in_place=bool(given.get(_IN_PLACE)))  # fmt: skip


def _root(given: Entry, ranks: Sequence[int], rank: RankSteps) -> int:
    """Of a rooted collective: `Rank` is the root then, counted in its group."""
    if "Root" in given:
        return rank.whole(given, "Root")
    if not _plain(given["Collective name"]).startswith(_ROOTED):
        return 0
    place = number_of(given.get("Rank"))
    return ranks[place] if 0 <= place < len(ranks) else max(0, place)


def _later(*needs: Needs) -> Needs:
    """What waits for all of these."""
    found = dict(needs[0]) if needs else {}
    for one in needs[1:]:
        if one is not found:
            for line, place in one.items():
                found[line] = max(place, found.get(line, -1))
    return found


def _stream_of(event: Entry) -> Line:
    return _hashable((event.get("pid"), arguments_of(event).get("stream")))


def _plain(name: object) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _hashable(values: Iterable[object]) -> Line:
    return tuple(one if isinstance(one, int | str) else str(one) for one in values)


def times_of(event: Entry) -> tuple[float, float] | None:
    """When something began and ended, in ns; None where it says not."""
    begin, length = _us(event.get("ts")), _us(event.get("dur"))
    return None if begin is None or length is None else (begin * 1e3, (begin + length) * 1e3)


def _us(value: object) -> float | None:
    """A time of a profile in us, which some write as a text; None where it is none."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,17}(?:\.\d{1,9})?", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_US:
        return None
    return float(value)


def arguments_of(event: Entry) -> Entry:
    """What an event says besides its name and times."""
    found = event.get("args")
    return found if isinstance(found, dict) else {}
