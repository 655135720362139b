"""What the tests of views share: run folders of known content."""

from __future__ import annotations

from typing import Any

import pytest

import linkgauge
from linkgauge.store.run import Run
from linkgauge.system.catalog import load
from linkgauge.system.dump import to_data
from linkgauge.view.results import Results
from synthetic import Noise, link_model, make_case, make_run, pair_cases, usual_cases

SKIPPED = [(make_case("kernel", "allreduce", 8, (0, 1)), "no peer access between device 0 and 1")]


def rich_cases() -> list[Any]:
    cases = usual_cases(transports=("staging", "copy_engine", "ccl"), sizes=(8, 4096, 1 << 20, 1 << 30))
    cases += pair_cases("pingpong", 8) + pair_cases("unidirectional", 1 << 30)
    cases += usual_cases(
        transports=("copy_engine", "ccl"), patterns=("allreduce",), sizes=(4096, 1 << 30), devices=(0, 1)
    )
    return list({case.case_key: case for case in cases}.values())


@pytest.fixture(scope="session")
def rich_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four devices, three transports, five patterns, all pairs, two device counts, one slow link, skips and a hang."""
    cases = rich_cases()
    hung = next(case for case in cases if case.pattern == "alltoall" and case.size == 8)
    path = tmp_path_factory.mktemp("rich") / "run"
    make_run(
        path,
        cases=cases,
        samples=60,
        repeats=2,
        skipped=SKIPPED,
        statuses={hung.case_key: ("hung", "no heartbeat for 10 s")},
        time_ns=link_model({(0, 3): 0.5}),
        noise=Noise(sigma=0.01),
    )
    return linkgauge.load(path)


@pytest.fixture(scope="session")
def rich(rich_run: Run) -> Results:
    return Results(rich_run)


@pytest.fixture(scope="session")
def known_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same kinds of cases on a described machine, so that there are limits, and names as long as real ones."""
    system = to_data(load("hgx-h200-4"))
    path = tmp_path_factory.mktemp("known") / "run"
    make_run(path, cases=rich_cases(), samples=60, time_ns=link_model(), noise=Noise(sigma=0.01),
             info={"system": system})  # fmt: skip
    return linkgauge.load(path)


@pytest.fixture(scope="session")
def known_machine(known_run: Run) -> Results:
    return Results(known_run)
