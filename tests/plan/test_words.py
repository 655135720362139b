"""Words that nothing knows are refused before anything is launched; what another transport knows is skipped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.model.case import DIMENSIONS
from linkgauge.model.patterns import PATTERNS
from linkgauge.plan.words import why_unknown
from synthetic import make_case

DRY = ["run", "--devices", "host:3", "--size", "64KiB", "--dry-run"]
OPERATIONS = Path(__file__).parents[2] / "core" / "operation"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--quick", "--variant", "nosuch"], "--variant: unknown variant 'nosuch': expected one of "),
        (["--transport", "kernel", "--variant", "pusch"], "--variant: unknown variant 'pusch' (did you mean 'push'?)"),
        (["--transport", "kernel", "--pattern", "allreduce", "--algorithm", "one_shott"], "did you mean 'one_shot'?"),
        (["--transport", "nccl", "--pattern", "allreduce", "--algorithm", "rings+LL"], "did you mean 'ring'?"),
        (["--transport", "mpi", "--path", "hosst"], "--path: unknown path 'hosst' (did you mean 'host'?)"),
        (["--transport", "copy_engine", "--pattern", "unidirectional", "--via", "7"], "--via: no device 7: "),
        (["--transport", "copy_engine", "--pattern", "unidirectional", "--via", "gpu:7"], "-1 for none"),
        (["--transport", "mpi", "--pattern", "broadcast", "--root", "9"], "--root: root 9 of "),
        (["--transport", "mpi", "--pattern", "allreduce", "--ranks", "9"], "--ranks: 9 ranks on "),
    ],
)
def test_a_word_that_nothing_knows_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*DRY, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert "default.toml" not in error


def test_a_plans_own_word_is_named_by_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "mine.toml"
    plan.write_text(
        'name = "mine"\n[[case]]\ntransport = "kernel"\npattern = "pingpong"\nsize = 8\nvariant = "pusch"\n'
    )
    assert run_command([*DRY, "--plan", str(plan)]) == 2
    assert f"{plan}: [[case]] 1: unknown variant 'pusch'" in capsys.readouterr().err


def test_what_another_transport_knows_is_skipped_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([*DRY, "--transport", "kernel,mpi", "--pattern", "pingpong", "--variant", "push"]) == 0
    said = capsys.readouterr().out
    assert "mpi has no variant 'push' of pingpong" in said
    assert "vector_copy/push pingpong" in said


def test_cases_of_the_same_words_say_in_what_they_differ(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--transport", "copy_engine", "--pattern", "unidirectional", "--window", "1,8", "--ranks", "2"]
    assert run_command([*DRY, *asked]) == 0
    said = [line.split(None, 1)[1] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert any("window=8" in line for line in said)
    assert len(said) == len(set(said))


def test_the_variants_of_patterns_are_the_cores() -> None:
    sources = "".join(path.read_text() for path in OPERATIONS.glob("*.[ch]*"))
    for one in PATTERNS.values():
        for word in one.variants:
            assert re.search(rf'[{{= ]"{word}"', sources), (one.name, word)
            assert not why_unknown(make_case("kernel", one.name, 1 << 20, variant=word))


def test_every_path_is_a_value_of_its_dimension() -> None:
    from linkgauge.plan.library_settings import PATHS

    assert all(DIMENSIONS["path"].from_text(word) == (word,) for word in PATHS)
