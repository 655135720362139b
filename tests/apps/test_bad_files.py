"""Step files that are wrong: one line that names the place, status 2, before anything runs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.app.cli import run_command
from linkgauge.apps import catalog, matching, step_file
from linkgauge.apps.formula import Formula
from linkgauge.apps.program import program_of
from linkgauge.apps.rows import COMPUTE, COPY
from linkgauge.apps.step_file import StepFile, step_file_of
from linkgauge.errors import UsageError
from linkgauge.model.worded import App
from thorough import most

RING = '{ receive = "(rank - 1) % ranks", bytes = 8 }, { send = "(rank + 1) % ranks", bytes = 8 }, { wait = true }'

BAD = {
    "no step": ("", "has no 'step'"),
    "no verb": ("step = [{ bytes = 8 }]", "no verb"),
    "two verbs": ('step = [{ send = 1, receive = 1, bytes = 8 }]', "send and receive"),
    "unknown key": ("step = [{ wait = true, byte = 8 }]", "unknown key 'byte'"),
    "no bytes": ('step = [{ send = "1 - rank" }]', "no 'bytes'"),
    "no number behind its like": ("step = [{ compute = 1 }, { compute = true }]", "2: compute: 'True' is no formula"),
    "no number, of parts": ("step = [{ compute = 1 }, { compute = 1.0 }]", "[[step]] 2: compute: '1.0' is no formula"),
    "a number too large behind its like": (
        f"step = [{{ compute = 1 }}, {{ compute = {1 << 62} }}]", "[[step]] 2: compute: a number beyond 2^62"),
    "a name of a loop's behind its like of other numbers": (
        'step = [{ repeat = 2, index = "i", step = [{ send = "i", bytes = 1 }] }, { send = "i", bytes = 2 }]',
        "[[step]] 2.send: unknown name 'i'"),
    "a name that only a loop has": (
        'step = [{ repeat = 2, index = "i", step = [{ compute = "i" }] }, { compute = "i" }]', "unknown name 'i'"),
    "unknown rank": ('step = [{ send = "rank + 1", bytes = 8 }]', "send is 2: expected another rank"),
    "itself": ('step = [{ send = "rank", bytes = 8 }]', "expected another rank"),
    "unknown name": ('step = [{ send = "1 - rank", bytes = "m" }]', "unknown name 'm'"),
    "a name of no value yet": ('values = { a = "b", b = "1" }\nstep = [{ compute = "a" }]', "unknown name 'b'"),
    "a value of itself": ('values = { a = "a + 1" }\nstep = [{ compute = "a" }]', "unknown name 'a'"),
    "below 0": ('step = [{ compute = "0 - 5" }]', "compute is -5"),
    "no whole number": ('step = [{ compute = "7 / 2" }]', "no whole number"),
    "code": ("step = [{ compute = \"__import__('os').system('true')\" }]", "what no formula has"),
    "a loop of 10^9": ('step = [{ repeat = 1000000000, step = [{ compute = 1 }] }]', "turns of a loop"),
    "loops of 10^9 together": (
        "step = [{ repeat = 100000, step = [{ repeat = 10000, step = [{ compute = 1 }] }] }]", "steps are executed"),
    "10^12 written out that come to nothing": (
        'step = [{ repeat = 1000000, index = "i", step = [{ repeat = 1000000, index = "j", '
        'step = [{ compute = "i*j*0" }] }] }]', "written out"),
    "10^9 written out": (
        'step = [{ repeat = 10000000, index = "i", step = [{ compute = "i + 1" }] }]', "written out"),
    "sizes that differ": (
        'step = [{ send = "1 - rank", bytes = "8 + rank" }, { receive = "1 - rank", bytes = 8 }]', "expected the same"),
    "sizes that differ in order": (
        'step = [{ when = "rank == 0", send = 1, bytes = 8 }, { when = "rank == 0", send = 1, bytes = 16 },'
        '{ when = "rank == 1", receive = 0, bytes = 16 }, { when = "rank == 1", receive = 0, bytes = 8 }]',
        "message 0 from rank 0 to rank 1 is of 8 bytes, and 16 are received"),
    "never received": ('step = [{ when = "rank == 0", send = 1, bytes = 8 }]', "receives 0 of 0"),
    "a deadlock": (
        'step = [{ receive = "1 - rank", bytes = 8 }, { wait = true }, { send = "1 - rank", bytes = 8 }]',
        "a deadlock: rank 0 waits in [[step]] 2 for message 0 of rank 1"),
    "a deadlock with a collective": (
        'step = [{ when = "rank == 0", receive = 1, bytes = 8 }, { when = "rank == 0", wait = true },'
        '{ barrier = true }, { when = "rank == 1", send = 0, bytes = 8 }]', "a deadlock"),
    "a collective without one rank": ('step = [{ when = "rank == 0", barrier = true }]', "to come to barrier"),
    "other collectives": (
        'step = [{ collective = "broadcast", bytes = 8, root = "rank" }]', "where others do broadcast"),
    "a root that is none": ('step = [{ collective = "broadcast", bytes = 8, root = 5 }]', "root is 5"),
    "no whole blocks": ('step = [{ collective = "allgather", bytes = 10 }]', "allgather of 10 bytes"),
    "in place what is other when it is done again": (
        'step = [{ collective = "allreduce", bytes = 8, in_place = true }]', "in_place of allreduce: expected an allg"),
    "no such collective": ('step = [{ collective = "pingpong", bytes = 8 }]', "expected one of"),
    "nothing in a queue": ('step = [{ sync = "q" }]', "nothing is put into a queue 'q'"),
    "loops nine deep": (
        "step = [" + "{ repeat = 1, step = [" * 9 + "{ wait = true }" + "] }" * 9 + "]", "nest deeper than 8"),
    "a taken name": ('step = [{ repeat = 2, index = "rank", step = [{ wait = true }] }]', "is no name"),
    "a preset of no parameter": (
        "parameters = { n = 1 }\npresets = { big = { m = 2 } }\nstep = [{ wait = true }]", "no parameter 'm'"),
    "a preset without a name": (
        'parameters = { n = 1 }\npresets = { "a b" = { n = 2 } }\nstep = [{ wait = true }]', "is no name"),
    "no TOML": ("step = [", "not valid TOML"),
    "a date": ("step = [{ compute = 1979-05-27 }]", "dates or times"),
}  # fmt: skip


@pytest.mark.parametrize("what", most([*BAD], [one for one in BAD if not one.startswith("10^12")]))
def test_one_line_and_status_2(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body, expected = BAD[what]
    path = tmp_path / "mine.toml"
    path.write_text(f'description = "x"\n{body}\n')
    status = run_command(["run", "--app", str(path), "--devices", "host:2", "--threads", "--dry-run"])
    said = capsys.readouterr().err
    assert status == 2, said
    assert said.count("\n") == 1
    assert said.startswith("linkgauge: error: ")
    assert expected in said


def test_a_step_file_may_be_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = {"description": "x", "parameters": {"n": 2}, "step": [{"repeat": "n", "step": [{"barrier": True}]}]}
    toml, told = tmp_path / "mine.toml", tmp_path / "mine.json"
    toml.write_text(step_file.as_toml(document))
    told.write_text(json.dumps(document, indent=1))
    assert catalog.parse(told.read_text(), "mine") == catalog.parse(toml.read_text(), "mine")
    dry = ["run", "--devices", "host:2", "--transport", "copy_engine", "--dry-run", "--app"]
    said = []
    for file in (toml, told):
        assert run_command([*dry, str(file)]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    told.write_text('{"description": "x",\n "step": [}')
    assert run_command([*dry, str(told)]) == 2
    assert f"{told}: not JSON: truncated or damaged at line 2" in capsys.readouterr().err


def test_a_plan_names_applications_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text(f'description = "x"\nstep = [{RING}]\n')
    plan = tmp_path / "plan.toml"
    plan.write_text(f'[[case]]\napp = ["gups turns=3", "file:{tmp_path}/mine.toml"]\ntransport = "kernel"\n')
    assert run_command(["run", "--plan", str(plan), "--devices", "host:2", "--threads", "--dry-run"]) == 0
    assert "2 cases" in capsys.readouterr().out
    plan.write_text('[[case]]\napp = "gups turn=3"\n')
    assert run_command(["run", "--plan", str(plan), "--devices", "host:2", "--threads", "--dry-run"]) == 2
    assert "no parameter 'turn'" in capsys.readouterr().err


def test_a_preset_is_the_parameters_that_it_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = "parameters = { n = 1, m = 1 }\nstep = [{ compute = 'n + m' }]\n"
    presets = '[presets]\n"8x2.B" = { n = 5, m = 6 }\n'
    without, file = (catalog.parse(f'description = "x"\n{one}', "made") for one in (steps, steps + presets))
    assert without.digest == file.digest  # so that cases of a file before it had presets are cases of it still
    assert catalog.Asked(file, {}, True).app == catalog.Asked(without, {}, True).app
    assert catalog.asked(App.of_text("tensor_parallel layers=3 8B tokens=7")).settings == {
        "layers": 3, "hidden": 4096, "tokens": 7
    }  # fmt: skip
    assert catalog.asked(App.of_text("tensor_parallel 70B")).app.label == "tensor_parallel hidden=8192 layers=80"
    (tmp_path / "mine.toml").write_text(f'description = "x"\n{steps}{presets}')
    words = ["run", "--app", str(tmp_path / "mine.toml"), "--devices", "host:2", "--threads", "--dry-run"]
    assert run_command([*words, "--set", "8x2.B", "--transport", "kernel"]) == 0
    assert "vector_copy mine m=6 n=5 on host device 0 - host device 1" in capsys.readouterr().out
    assert run_command([*words, "--set", "8x3"]) == 2
    assert "no preset '8x3': expected NAME=NUMBER or one of 8x2.B" in capsys.readouterr().err


def test_what_a_file_needs_is_a_reason_to_skip(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "--app", "kv_cache", "--devices", "host:3", "--threads", "--dry-run"]) == 0
    assert "kv_cache needs an even number of ranks" in capsys.readouterr().out


def file_of(steps: list[dict[str, object]]) -> StepFile:
    return step_file_of({"description": "x", "step": steps}, "made")


@st.composite
def matched(draw: st.DrawFn) -> tuple[int, list[dict[str, object]]]:
    """Messages between 2 to 4 ranks, received and sent in one order of pairs, with waits between some."""
    ranks = draw(st.integers(2, 4))
    steps: list[dict[str, object]] = []
    for _ in range(draw(st.integers(1, 8))):
        source, target = draw(st.permutations(range(ranks)))[:2]
        size = draw(st.integers(1, 99))
        steps += [
            {"when": f"rank == {source}", "send": target, "bytes": size},
            {"when": f"rank == {target}", "receive": source, "bytes": size},
        ]
        if draw(st.booleans()):
            steps.append({"wait": True})
        if draw(st.booleans()):
            steps = [{"repeat": draw(st.integers(1, 3)), "step": steps}]
    return ranks, steps


@given(matched())
def test_what_meets_is_accepted_and_what_lacks_a_message_is_not(made: tuple[int, list[dict[str, object]]]) -> None:
    ranks, steps = made
    matching.check(program_of(file_of(steps), {}, ranks))

    def without_first(some: list[dict[str, object]]) -> list[dict[str, object]]:
        for place, step in enumerate(some):
            if "receive" in step:
                return [*some[:place], *some[place + 1 :]]
            if "step" in step:
                inner = without_first(step["step"])  # type: ignore[arg-type]
                return [*some[:place], {**step, "step": inner}, *some[place + 1 :]]
        raise AssertionError

    with pytest.raises(UsageError):
        matching.check(program_of(file_of(without_first(steps)), {}, ranks))


def test_long_loops_are_not_followed_turn_by_turn() -> None:
    file = catalog.parse(
        f'description = "x"\n[[step]]\nrepeat = 1000000\nstep = [{RING.replace("{ wait = true }", "{wait=true}")}]',
        "long",
    )
    calls: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, of: calls.update([event]))
    try:
        matching.check(program_of(file, {}, 4))
    finally:
        sys.setprofile(None)
    assert calls.total() < 100_000


def test_steps_that_say_the_same_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    real = step_file.checked
    monkeypatch.setattr(step_file, "checked", lambda *words: looked.append(words) or real(*words))
    file = catalog.parse(f'description = "x"\nstep = [ {"{ compute = 1 }, { wait = true }, " * 500} ]', "many")
    assert len(file.steps.kind) == 1000
    assert [file.where(number) for number in (0, 999)] == ["many: [[step]] 1", "many: [[step]] 1000"]
    assert len(looked) == 3  # the file, and a step of each kind


def test_a_step_knows_its_place_by_its_number() -> None:
    inner = {"repeat": 2, "step": [{"wait": True}, {"wait": True}]}
    outer = {"repeat": 2, "step": [{"compute": 1}, inner, {"wait": True}]}
    file = file_of([{"wait": True}, outer, {"wait": True}])
    places = ["1", "2", "2.step 1", "2.step 2", "2.step 2.step 1", "2.step 2.step 2", "2.step 3", "3"]
    assert [file.where(number) for number in range(len(places))] == [f"made: [[step]] {place}" for place in places]
    (rank,) = program_of(file, {}, 1).ranks
    assert rank.steps.tolist() == [0, 1, 2, 3, 4, 5, 3, 6, 1, 7]  # a loop's end is the loop


def test_what_steps_that_say_the_same_are_is_found_once_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = Formula.__call__
    monkeypatch.setattr(Formula, "__call__", lambda one, names: asked.append(one.text) or real(one, names))
    said = [{"compute": "10 + rank"}, {"copy": "host_to_device", "bytes": "60 + 4"}, {"wait": True}]
    written_out = {"repeat": 3, "index": "i", "step": [{"compute": "10 + i"}]}
    ranks = program_of(file_of([*said * 50, written_out]), {}, 2).ranks
    assert [asked.count(text) for text in ("10 + rank", "60 + 4", "10 + i")] == [2, 100, 6]
    for rank, one in enumerate(ranks):
        assert [row[3] for row in one.rows if row[0] == COMPUTE] == [10 + rank] * 50 + [10, 11, 12]
        assert [row[4] for row in one.rows if row[0] == COPY] == [64 * turn for turn in range(50)]
