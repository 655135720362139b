"""Lines over the parent: what one end says the other hears, in order, and an end that is gone is over."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from linkgauge.model.case import Case
from linkgauge.run.launch import LaunchEnd
from linkgauge.run.load_launches import LoadEnd, told_as_the_loads, with_loads_ends
from linkgauge.run.load_lines import LOAD, MEASURED, OVER, Lines, LoadLines
from run.test_spec import spec_of

CASE = Case("mpi", "pingpong", 8, 8, (0, 1), beside="mpi alltoall 8 on=2,3 mpi=same")
KEY = (CASE.case_key, 1)
ROWS = [{"subject": "load 1", "value": 91.0}]


@pytest.fixture
def lines() -> Iterator[LoadLines]:
    opened = LoadLines([])
    yield opened
    opened.close()


def number(value: int) -> bytes:
    return struct.pack("<q", value)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def measured_end(lines: LoadLines, rank: int = 0) -> Lines:
    return Lines(dataclasses.replace(spec_of(4, [CASE]), lines=lines.place), CASE, rank)


def load_end(lines: LoadLines) -> Lines:
    told = {"number": 1, "case_key": CASE.case_key, "pace": {"burst": 2}, "words": "the load"}
    load = Case("mpi", "alltoall", 8, 8, (2, 3))
    return Lines(dataclasses.replace(spec_of(4, [load]), lines=lines.place, load=told), load, 2)


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
    case = dataclasses.replace(CASE, beside="mpi alltoall 8 on=2,3 mpi=same; kernel alltoall 8 on=3,4")
    devices = tuple(range(5))

    def told(rank: int, number: int) -> tuple[str, str]:
        evidence = {"told_rank": rank, "signal": number}
        return told_as_the_loads(LaunchEnd(True, status="crashed", reason="died", evidence=evidence), case, devices)

    assert told(4, 11) == ("disturbed", "load 2 (kernel alltoall 8 on=3,4): died")
    assert told(4, 9) == ("crashed", "died")  # as it ends the others
    assert told(1, 11) == ("crashed", "died")
    assert told(2, 11) == ("crashed", "died")  # of no job here
    hung = LaunchEnd(True, status="hung", reason="silent", evidence={"told_rank": 4})
    assert told_as_the_loads(hung, case, devices) == ("hung", "silent")


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
