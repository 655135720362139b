"""`-o table|json|csv`, `--json` and the options of nccl-tests: the same on every command that has them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import click
import pytest

from linkgauge.app import cli
from linkgauge.app.command_line import Option
from linkgauge.app.output import flat, print_data

from .test_help import COMMANDS


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.run_command(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def without_estimate(data: Any) -> Any:
    """What a dry run says but how long it takes, which follows how busy the cores are."""
    return {name: value for name, value in data.items() if name != "estimated_s"} if isinstance(data, dict) else data


def test_every_command_with_json_has_the_forms() -> None:
    seen = 0
    for context, found in COMMANDS:
        flags = {flag for one in found.params if not getattr(one, "owner", "") for flag in one.opts}
        assert ("--json" in flags) == ({"-o", "--format"} <= flags and "--output" not in flags), context.command_path
        seen += "--json" in flags
    assert seen >= 20


FORMED = (
    "list patterns", "list dimensions", "list plans", "apps", "topology hgx-h200-4",
    "expect hgx-h200-4 --pattern allreduce", "simulate alps --gpus 8,16 --no-what-if",
    "run --dry-run --devices host:2 --pattern pingpong --size 8 --transport staging",
)  # fmt: skip


@pytest.mark.parametrize("words", FORMED)
def test_json_and_csv_say_the_same_and_nothing_else(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    by_json = without_estimate(json.loads(printed(capsys, *words.split(), "-o", "json")))
    assert without_estimate(json.loads(printed(capsys, *words.split(), "--json"))) == by_json
    rows = list(csv.DictReader(io.StringIO(printed(capsys, *words.split(), "-o", "csv"))))
    assert rows
    assert all(None not in row and None not in row.values() for row in rows)  # each row has each column
    if isinstance(by_json, list) and "expect" not in words:
        assert len(rows) == len(by_json)
        assert next(iter(rows[0].values())) == str(next(iter(by_json[0].values())))


def test_json_and_another_form_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["list", "plans", "--json", "-o", "csv"]) == 2
    assert "--json and -o csv exclude each other" in capsys.readouterr().err
    assert cli.run_command(["run", "-o", "csv", "--devices", "host:2"]) == 2
    assert "'linkgauge show -o csv' prints a run's results" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"a": 1, "b": None}, {"a": 1, "b": ""}),
        ({"a": {"b": {"c": 2}}, "d": [0, 1]}, {"a.b.c": 2, "d": "0 1"}),
        ({"a": [], "b": {}, "c": [{"d": 1}]}, {"a": "", "b": "", "c": '[{"d": 1}]'}),
    ],
)
def test_a_row_is_flat(row: dict[str, Any], expected: dict[str, Any]) -> None:
    assert flat(row) == expected


def test_rows_of_unlike_columns_have_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    print_data([{"a": 1}, {"b": "x,y"}], "csv")
    assert capsys.readouterr().out == 'a,b\n1,\n,"x,y"\n'


RUN = ["run", "--dry-run", "--devices", "host:4", "--transport", "staging", "--pattern", "allreduce", "--json"]


def cases(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    plan = json.loads(printed(capsys, *RUN, *words))
    return [without_estimate(case) for launch in plan["launches"] for case in launch["cases"]]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("-b 8 -e 64M -f 2", "--size 8:64MiB:x2"),
        ("-b 1M -e 1M", "--size 1MiB"),
        ("-b 8 -e 1M -f 8 -g 2 -w 3 -n 7",
         "--size 8:1MiB:x8 --ranks 2 --warmup 3 --stop-rule count --stop-samples 7"),
    ],
)  # fmt: skip
def test_options_of_nccl_tests_mean_the_same(theirs: str, ours: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = cases(capsys, *theirs.split())
    assert found
    assert found == cases(capsys, *ours.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-b 8 -e 1M -f 2 --size 8", "-b -e -f and --size both give sizes: give one of them"),
        ("-b 8", "-b and -e give a range of sizes together"),
        ("-f 2", "-b and -e give a range of sizes together"),
        ("-b 8 -e 1M", "give -f 2 too, or --size 8:1M:x2"),
        ("-b 1M -e 8 -f 2", "expected the smaller size first"),
        ("-b 8 -e 1M -f 1.5", "-f '1.5': expected a whole number of at least 2"),
        ("-b 8x -e 1M -f 2", "'8x' is not a size"),
        ("-g 2 --ranks 2", "-g sets --ranks too"),
        ("-w 2 --warmup 2", "-w sets --warmup too"),
        ("-n 2 --stop-samples 2", "-n sets --stop-samples too"),
        ("-n two", "-n 'two': expected a whole number"),
    ],
)
def test_what_does_not_go_together_is_one_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command([*RUN, *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_each_short_option_of_a_command_is_one() -> None:
    for context, found in COMMANDS:
        shorts = [flag for one in found.get_params(context) if isinstance(one, Option | click.Option)
                  for flag in one.opts if not flag.startswith("--")]  # fmt: skip
        assert len(shorts) == len(set(shorts)), context.command_path
