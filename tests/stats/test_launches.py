"""What sets launches apart, in words: libraries, variables, and at worst their keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import linkgauge
from linkgauge.app.cli import run_command
from linkgauge.findings.read import facts_of
from linkgauge.model.result import Launch
from linkgauge.stats.launches import Place, Places, launch_devices, launch_names
from results import launches_of
from synthetic import make_case, make_run


def launch(key: str, library: str = "", **env: str) -> Launch:
    return Launch(launch_key=key, mpi={"name": library} if library else {}, env=env)


def test_only_what_differs_is_named() -> None:
    launches = [
        launch("a", "mpich-5", UCX_TLS="sm", COLOR="red"),
        launch("b", "mpich-5", COLOR="red"),
        launch("c", "openmpi-4", COLOR="red"),
        launch("d", "openmpi-4", COLOR="blue"),
    ]
    assert launch_names(launches, "a") == {"a": ""}
    assert launch_names(launches, "ab") == {"a": "UCX_TLS=sm", "b": "default settings"}
    assert launch_names(launches, "bc") == {"b": "mpich-5", "c": "openmpi-4"}
    names = launch_names(launches, "abcd")
    assert names["a"] == "mpich-5 COLOR=red UCX_TLS=sm"
    assert names["d"] == "openmpi-4 COLOR=blue"
    assert len(set(names.values())) == 4


def test_launches_alike_in_all_that_is_stored_are_told_by_their_keys() -> None:
    names = launch_names([launch("aaaaaaaa", "mpich-5"), launch("bbbbbbbb", "mpich-5")], ["aaaaaaaa", "bbbbbbbb"])
    assert names == {"aaaaaaaa": "launch aaaaaa", "bbbbbbbb": "launch bbbbbb"}
    assert launch_names(launches_of([{"launch_key": "a"}, {"launch_key": "b"}]), "ab") == {
        "a": "launch a",
        "b": "launch b",
    }
    assert launch_names([], "ab") == {"a": "launch a", "b": "launch b"}


def test_findings_and_advice_say_which_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launches = (
        {"launch_key": "aaaa", "mpi": {"name": "mpich-5"}},
        {"launch_key": "bbbb", "mpi": {"name": "openmpi-4"}},
    )
    run = make_run(tmp_path / "run", cases=[make_case("mpi", "pingpong", 8)], launches=launches, samples=20)
    labels = {measure.label for measure in facts_of(linkgauge.load(run)).measures}
    assert labels == {"mpi (mpich-5) pingpong", "mpi (openmpi-4) pingpong"}
    assert run_command(["advise", str(run), "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert {said["best"], said["second"], *said["alike"]} - {""} == {"mpi mpich-5", "mpi openmpi-4"}


@given(nodes=st.integers(2, 4), devices=st.integers(1, 3), shared=st.integers(1, 2), data=st.data())
def test_a_launch_without_some_nodes_has_its_cases_in_the_places_of_the_whole_one(
    nodes: int, devices: int, shared: int, data: st.DataObject
) -> None:
    def ranks(of: list[int]) -> list[dict[str, object]]:
        places = [(f"n{node}", device) for node in of for device in range(devices) for _ in range(shared)]
        return [{"rank": r, "host": host, "device_ordinal": device} for r, (host, device) in enumerate(places)]

    gone = data.draw(st.sets(st.integers(0, nodes - 1), min_size=1, max_size=nodes - 1))
    left = [node for node in range(nodes) if node not in gone]
    numbers = [node * devices + device for node in left for device in range(devices) for _ in range(shared)]
    part, whole = launches_of(
        [
            {"launch": 1, "ranks": ranks(left), "extra": json.dumps({"places": numbers})},
            {"launch": 0, "ranks": ranks(list(range(nodes))), "extra": "{}"},
        ]
    )
    case = data.draw(st.lists(st.sampled_from(sorted(set(numbers))), min_size=1, max_size=4, unique=True))
    wanted = [Place(f"n{number // devices}", number % devices) for number in case]
    assert list(Places([whole, part]).of(1, case)) == wanted
    for launches in ([whole, part], [part]):
        known = launch_devices(launches)
        assert [Place(known[n].host, known[n].device_ordinal) for n in case] == wanted
