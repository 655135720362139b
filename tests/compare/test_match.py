"""Matching of two runs' cases: attempts, repeats, launches, devices that moved or left."""

from __future__ import annotations

import json
from typing import Any

from linkgauge.model.case import Case
from linkgauge.model.result import Launch, Result
from linkgauge.stats.match import match_runs, repeats_of
from results import launches_of, result_of


def row(
    case: Case, repeat: int = 0, attempt: int = 0, median: float | None = 1.0, status: str = "ok", key: str = "x"
) -> Result:
    return result_of(
        {**case.dimensions(), "launch_key": key, "repeat": repeat, "attempt": attempt,
         "planned_launch": ord(key or "x"), "median_ns": median, "status": status}
    )  # fmt: skip


def launch(host: str, uuids: list[str], **more: Any) -> list[Launch]:
    ranks = [{"host": host, "device_uuid": uuid, "device_ordinal": i} for i, uuid in enumerate(uuids)]
    return launches_of([{"ranks": ranks, **more}])


PAIR = Case("copy_engine", "unidirectional", 1024, 1024, (0, 1))
OTHER = Case("copy_engine", "unidirectional", 1024, 1024, (2, 1))


def test_repeats_gather_by_case_and_launch_key_and_the_last_attempt_counts() -> None:
    rows = [
        row(PAIR, repeat=0, attempt=1, median=7.0),
        row(PAIR, repeat=0, attempt=0, median=99.0),
        row(PAIR, repeat=1, median=8.0),
        row(PAIR, repeat=0, median=5.0, key="y"),
        row(PAIR, repeat=2, median=None, status="hung"),
        row(PAIR, repeat=3, median=None, status="skipped"),
    ]
    known = repeats_of(rows)
    assert known[(PAIR.case_key, "x")].median_ns == {0: 7.0, 1: 8.0}
    assert known[(PAIR.case_key, "x")].failures == ["hung"]
    assert known[(PAIR.case_key, "y")].median_ns == {0: 5.0}


def test_a_case_whose_launch_never_started_is_paired_with_what_the_other_run_measured() -> None:
    good, failed = repeats_of([row(PAIR)]), repeats_of([row(PAIR, median=None, status="failed", key="")])
    for first, second in ((good, failed), (failed, good)):
        matched = match_runs(first, second)
        assert list(matched.pairs) == [(PAIR.case_key, "x")]
        assert not matched.only_first
        assert not matched.only_second
    both = repeats_of([row(PAIR), row(PAIR, key="y")])
    assert not match_runs(both, failed).pairs  # of which launch it was is not known
    one = repeats_of([row(PAIR, key="y"), row(PAIR, median=None, status="failed", key="")])
    assert set(match_runs(both, one).pairs) == {(PAIR.case_key, "x"), (PAIR.case_key, "y")}


def test_on_one_host_devices_match_by_uuid() -> None:
    first = repeats_of([row(PAIR)])
    second = repeats_of([row(OTHER, median=2.0), row(PAIR, median=3.0)])
    # The device that was 0 is now 2.
    matched = match_runs(first, second, launch("h", ["A", "B", "C"]), launch("h", ["C", "B", "A"]))
    assert matched.how == "devices matched by UUID"
    assert [(a.median_ns[0], b.median_ns[0]) for a, b in matched.pairs.values()] == [(1.0, 2.0)]
    assert list(matched.only_second) == [(PAIR.case_key, "x")]
    assert "device 0 of the first run is device 2 of the second" in matched.notes


def test_across_hosts_devices_match_by_ordinal() -> None:
    first = repeats_of([row(PAIR)])
    second = repeats_of([row(PAIR, median=3.0)])
    matched = match_runs(first, second, launch("h", ["A", "B", "C"]), launch("g", ["C", "B", "A"]))
    assert "by ordinal" in matched.how
    assert "g" in matched.how
    assert len(matched.pairs) == 1


def test_a_device_that_left_is_named_and_its_cases_stay_unpaired() -> None:
    first = repeats_of([row(PAIR)])
    second = repeats_of([row(PAIR)])
    matched = match_runs(first, second, launch("h", ["A", "B"]), launch("h", ["A", "Z"]))
    assert not matched.pairs
    assert matched.notes == ("device 1 of the first run (B) is not in the second",)
    assert len(matched.only_first) == len(matched.only_second) == 1


def test_another_launch_key_is_another_case() -> None:
    first, second = repeats_of([row(PAIR)]), repeats_of([row(PAIR, key="y")])
    assert not match_runs(first, second).pairs


def test_launches_that_differ_are_said_where_nothing_else_does() -> None:
    def of(key: str, **contents: Any) -> list[Launch]:
        extra = json.dumps({"launch_key_contents": {"mode": "processes", "ranks": 2, "env": {}, **contents}})
        return launch("h", ["A", "B"], launch_key=key, extra=extra)

    first = repeats_of([row(PAIR), row(OTHER)])
    second = repeats_of([row(PAIR, key="y")])
    matched = match_runs(first, second, of("x", env={"NCCL_ALGO": "Ring"}), of("y", mode="threads"))
    assert not matched.pairs
    assert matched.notes == (
        "1 case of both runs not compared, since their launches differ: NCCL_ALGO Ring in the first and none in the "
        "second; mode processes in the first and threads in the second",
    )
    # Nothing to say of cases that the other run lacks, nor of launches alike; what is not stored stops nothing.
    assert match_runs(first, repeats_of([row(PAIR)]), of("x"), of("x")).notes == ()
    for lacking in (None, "{}", '{"launch_key_contents": null}', '{"launch_key_contents": {"env": null}}'):
        odd = launches_of([{"launch_key": "y", "extra": lacking, "ranks": []}])
        (note,) = match_runs(first, second, of("x"), odd).notes
        assert "1 case of both runs not compared" in note
