"""Lines over the parent: what one end says the other hears, in order, and an end that is gone is over."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linkgauge.model.case import Case, Loads
from linkgauge.run.parent.launch_end import FirstEnd, LaunchEnd, load_to_blame, stuck_load
from linkgauge.run.parent.load_launches import LoadEnd, with_loads_ends
from linkgauge.run.wire.heartbeat import COUNT, PHASE, PHASE_NAMES, PID, HeartbeatFile
from linkgauge.run.wire.load_lines import LOAD, MEASURED, OVER, Lines, LoadLines
from patience import PATIENCE_S
from run.test_spec import spec_of

CASE = Case("mpi", "pingpong", 8, 8, (0, 1), background=Loads.of_text("mpi alltoall 8 on=2,3 mpi=same"))
TOKEN = "0123456789abcdef"
KEY = (CASE.case_key, 1)
ROWS = [{"subject": "load 1", "value": 91.0}]


@pytest.fixture
def lines() -> Iterator[LoadLines]:
    opened = LoadLines([], TOKEN)
    yield opened
    opened.close()


def number(value: int) -> bytes:
    return struct.pack("<q", value)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def measured_end(lines: LoadLines, rank: int = 0) -> Lines:
    return Lines(dataclasses.replace(spec_of(4, [CASE]), lines=lines.place, token=TOKEN), CASE, rank)


def load_end(lines: LoadLines) -> Lines:
    told = {"number": 1, "case_key": CASE.case_key, "pace": {"burst": 2}, "words": "the load"}
    load = Case("mpi", "alltoall", 8, 8, (2, 3))
    return Lines(dataclasses.replace(spec_of(4, [load]), lines=lines.place, load=told, token=TOKEN), load, 2)


def end_of(one: Lines) -> socket.socket:
    (descriptor,) = one.fields()["lines"]
    return socket.socket(fileno=os.dup(descriptor))


def heard(link: socket.socket, count: int) -> list[int]:
    said = b""
    while len(said) < 8 * count:
        piece = link.recv(8 * count - len(said))
        assert piece
        said += piece
    return [found for (found,) in struct.iter_unpack("<q", said)]


def test_both_ends_hear_each_other_and_then_how_the_load_went_on(lines: LoadLines) -> None:
    assert measured_end(lines, 1).fields() == {"lines": [-1]}
    measured = measured_end(lines)
    with end_of(measured) as ours:
        ours.sendall(number(0))
        until(lambda: lines.waits_for_load(KEY))  # to come
        load = load_end(lines)  # waits for that word, and leaves it there
        assert load.fields()["pace"] == {"burst": 2}
        with end_of(load) as theirs:
            until(lambda: lines.waits_for_load(KEY))
            assert not lines.may_rest(KEY)
            assert heard(theirs, 1) == [0]
            for words in (number(0), number(1)[:3], number(1)[3:]):
                theirs.sendall(words)
            assert heard(ours, 2) == [0, 1]
            ours.sendall(number(1))
            until(lambda: lines.may_rest(KEY))
            theirs.sendall(number(91))  # as the rows begin
            ours.sendall(number(OVER))
            until(lambda: lines.waits_for_load(KEY))
        load.tell(ROWS)
        load.close()
    assert measured.told() == ROWS
    assert not lines.may_rest(KEY)
    measured.close()


@pytest.mark.parametrize("came", [False, True])
def test_a_load_that_is_gone_is_over(lines: LoadLines, came: bool) -> None:
    measured = measured_end(lines)
    with end_of(measured) as ours:
        ours.sendall(number(0))
        if came:
            load_end(lines).close()
        lines.end(KEY, LOAD)
        assert heard(ours, 1) == [OVER]
    assert measured.told() == []
    measured.close()


def test_a_measured_launch_that_is_gone_ends_the_load(lines: LoadLines) -> None:
    lines.end(KEY, MEASURED)
    load = load_end(lines)
    with end_of(load) as theirs:
        assert heard(theirs, 1) == [OVER]
    load.close()


def test_who_has_not_the_token_is_no_end(lines: LoadLines) -> None:
    place = {**lines.place, "token": "0" * 32}
    stranger = Lines(dataclasses.replace(spec_of(4, [CASE]), lines=place), CASE, 0)
    with end_of(stranger) as link, contextlib.suppress(ConnectionError):
        assert link.recv(1) == b""
    stranger.close()
    assert not lines.waits_for_load(KEY)


def test_where_there_is_no_parent_the_load_is_over(lines: LoadLines) -> None:
    lines.close()
    alone = measured_end(lines)
    with end_of(alone) as link:
        assert link.recv(8) == b""
    assert alone.told() == []
    alone.close()


def test_a_rank_of_a_load_that_died_is_the_loads_where_the_launcher_knows() -> None:
    case = dataclasses.replace(
        CASE, background=Loads.of_text("mpi alltoall 8 on=2,3 mpi=same; kernel alltoall 8 on=3,4")
    )
    devices = tuple(range(5))

    def blamed(status: str, **evidence: int) -> int:
        return load_to_blame(LaunchEnd(True, status=status, reason="died", evidence=evidence), case, devices)

    assert blamed("crashed", told_rank=4, signal=11) == 2
    assert blamed("crashed", told_rank=4, signal=9) == 0  # as it ends the others
    assert blamed("crashed", told_rank=1, signal=9, first_rank=3) == 2
    assert blamed("crashed", told_rank=3, signal=9, first_rank=1) == 0
    assert blamed("crashed", first_rank=4) == 2
    assert blamed("crashed", told_rank=1, signal=11, first_rank=3) == 2
    assert blamed("crashed", told_rank=2, signal=11) == 0  # of no job here
    assert blamed("hung", told_rank=4) == 0
    assert blamed("hung", stuck_load=2) == blamed("timeout", stuck_load=2) == 2


def test_the_load_for_which_the_measured_job_waits_in_vain_is_the_one_of_the_rank_that_stands_still() -> None:
    case = dataclasses.replace(CASE, background=Loads.of_text("kernel alltoall 8 on=2,3; kernel local_copy 8 on=4"))
    waiting, time = PHASE_NAMES.index("other jobs"), PHASE_NAMES.index("time")

    def words(phases: list[int], beats: list[int]) -> np.ndarray[Any, Any]:
        found = np.zeros((5, 8), np.uint64)
        found[:, PHASE], found[:, COUNT] = phases, beats
        return found

    def stuck(phases: list[int], moved: list[int]) -> int:
        return stuck_load(case, tuple(range(5)), [words(phases, [0] * 5), words(phases, moved)])

    assert stuck([waiting, waiting, waiting, time, time], [0, 0, 0, 0, 7]) == 1  # load 2 goes on
    assert stuck([waiting, waiting, waiting, waiting, time], [0, 0, 0, 0, 0]) == 2
    assert stuck([waiting, time, waiting, time, time], [0] * 5) == 0  # the measured job's own
    assert stuck([waiting] * 5, [0] * 5) == 0


def ended(folder: Path, killed: Sequence[int]) -> int | None:
    """The first of four processes to end, of which some are killed between two looks."""
    started = [subprocess.Popen(["sleep", "60"]) for _ in range(4)]
    heartbeat = HeartbeatFile(folder / f"beats-{len(killed)}", 4, create=True)
    for rank, process in enumerate(started):
        heartbeat.set_word(rank, PID, process.pid)
    ends = FirstEnd()
    ends.watch(heartbeat)
    ends.look()
    assert ends.rank is None
    for rank in killed:
        started[rank].kill()
        started[rank].wait()
    ends.look()
    for process in started:
        process.kill()
        process.wait()
    ends.look()
    ends.close()
    return ends.rank


def test_the_process_that_ended_first_is_known_where_the_others_were_seen_alive(tmp_path: Path) -> None:
    assert ended(tmp_path, [2]) == 2
    assert ended(tmp_path, [3, 1]) is None


def test_what_a_load_did_is_told_as_the_loads() -> None:
    good, bad = LoadEnd(1, "", "", {}), LoadEnd(2, "crashed", "load 2 (x): died", {"signal": 9})
    assert with_loads_ends("ok", "", {"a": 1}, [good]) == ("ok", "", {"a": 1})
    status, reason, evidence = with_loads_ends("ok", "", {"a": 1}, [good, bad])
    assert (status, reason) == ("disturbed", bad.reason)
    assert evidence["a"] == 1
    assert [(one["load"], one["signal"]) for one in evidence["loads"]] == [(2, 9)]
    assert json.dumps(evidence)
    assert with_loads_ends("failed", "a load", {}, [bad])[:2] == ("failed", bad.reason)
    assert with_loads_ends("failed", "a load", {}, [LoadEnd(1, "skipped", "no", {})])[:2] == ("skipped", "no")
    assert with_loads_ends("corrupt", "mine", {}, [bad])[:2] == ("corrupt", "mine")
