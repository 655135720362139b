"""A command's options as data: what click is given of a dataclass' fields, and what comes back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import click
import pytest

from linkgauge.app import cli
from linkgauge.app.command_line import command
from linkgauge.app.options import Whole, pair, repeated, switch, takes, value
from linkgauge.app.request import EarlierRun, Presentation, Request
from linkgauge.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Inner:
    panel: ClassVar = "Inside"

    out_file: Path | None = value("FILE", "File.")
    words: tuple[str, ...] = repeated("WORD", "Words.", flags="--word")


@dataclasses.dataclass(frozen=True)
class Outer:
    count: int = value("NUMBER", "Count.", 3, type=Whole(1))
    loud: bool = switch("Loud.", flags="-l --loud")
    warm: bool | None = pair("Warm.", None)
    report: bool = pair("Report.", True)
    inner: Inner = Inner()
    set_by_command: float = 0.5


def parsed(*words: str, **settings: Any) -> Any:
    @command("tried")
    @takes(Outer, **settings)
    def tried(given: Outer) -> Outer:
        """Nothing."""
        return given

    with tried.make_context("tried", list(words)) as context:
        return tried.invoke(context)


def test_what_is_not_given_has_the_fields_default() -> None:
    assert parsed() == Outer()


def test_what_is_given_comes_back_in_its_group_and_with_its_type() -> None:
    words = ("--count", "7", "-l", "--no-warm", "--no-report", "--out-file", "x", "--word", "a", "--word", "b")
    assert parsed(*words) == Outer(7, True, False, False, Inner(Path("x"), ("a", "b")))


def test_what_is_left_out_is_no_option_and_has_its_default() -> None:
    assert parsed("--loud", without=(Inner, "count")) == Outer(loud=True)
    for word in ("--count", "--word"):
        with pytest.raises(click.UsageError, match=word):
            parsed(word, "1", without=(Inner, "count"))


def test_to_leave_out_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="gone"):
        parsed(without=("gone",))


@pytest.mark.parametrize("word", ["0", "-1", "x", "9" * 5000, str(1 << 63)])
def test_a_number_out_of_range_names_its_option(word: str) -> None:
    with pytest.raises(UsageError, match=r"--count '.*': expected a whole number of at least 1, below 2\*\*63"):
        parsed("--count", word)


@pytest.mark.parametrize("name", ["watch", "tune", "reproduce"])
def test_what_a_command_takes_over_is_what_run_has(name: str) -> None:
    """Each of run's options that another command takes is of the same name, type, default and text."""
    context = click.Context(cli.ROOT)
    run, other = (cli.ROOT.get_command(context, one) for one in ("run", name))
    assert run is not None
    assert other is not None
    known = {one.name: one.to_info_dict() for one in run.params}
    taken = [one for one in other.params if getattr(one, "owner", "") == "run"]
    assert len(taken) >= 18
    assert all(known[one.name] == one.to_info_dict() for one in taken)


def test_every_field_of_a_request_is_an_option_or_named_here() -> None:
    left_out = {field.name for group in (EarlierRun, Presentation) for field in dataclasses.fields(group)}
    groups = [field.default for field in dataclasses.fields(Request) if dataclasses.is_dataclass(field.default)]
    fields = {field.name for group in groups for field in dataclasses.fields(group)}
    context = click.Context(cli.ROOT)
    run, watch = (cli.ROOT.get_command(context, one) for one in ("run", "watch"))
    assert run is not None
    assert watch is not None
    assert fields - {one.name for one in run.params} == {"core_use", "every_s", "made", "summary"}
    assert not left_out & {one.name for one in watch.params}
