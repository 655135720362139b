"""Which applications there are, and which step file and parameters a case's `app` (model/worded.py) stands for."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

from linkgauge.apps import matching
from linkgauge.apps.program import Program, program_of, why_not
from linkgauge.apps.rows import parameters_of
from linkgauge.apps.step_file import StepFile, step_file_of, written
from linkgauge.collector import uncollected
from linkgauge.errors import UsageError, nearest
from linkgauge.model.shape import as_it_is, parsed, parsed_tables, read_toml
from linkgauge.model.worded import PER_RANK, App

FOLDER = Path(__file__).parent.parent / "applications"


def names() -> list[str]:
    """Names of the step files that travel with the program."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@functools.lru_cache(maxsize=64)
def builtin(name: str) -> StepFile:
    """The step file of that name; UsageError naming those there are."""
    if name not in names():
        known = names()
        raise UsageError(
            f"no application '{name}'{nearest(name, known)}: expected a step file's path (in a plan file:PATH) or one "
            f"of {', '.join(known)}"
        )
    return step_file_of(read_toml(FOLDER / f"{name}.toml", "a step file's TOML"), name)


def parse(text: str, name: str) -> StepFile:
    """The step file of TOML or JSON text."""
    with uncollected():
        return step_file_of(parsed_tables(text, name), name)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a case's `app` says."""

    file: StepFile
    settings: Mapping[str, int]
    carried: bool  # the file travels with the case

    @property
    def app(self) -> App:
        """It in canonical form: settings by name, none that is as in the file."""
        parameters = self.file.parameters
        told = ((name, value, False) for name, value in sorted(self.settings.items()) if parameters[name] != value)
        return App.of(self.file.name, self.file.digest, told, written(self.file.document) if self.carried else "")


@functools.lru_cache(maxsize=64)
def asked(app: App, ranks: int | None = None) -> Asked:
    """What the dimension says on so many ranks; None: of a case's, which is of its own number of them.

    UsageError for an unknown name or parameter, or a file that is none.
    """
    name = app.name
    if app.body:
        file = step_file_of(parsed(app.body, as_it_is, f"{name}: the step file that the case carries"), name)
    else:
        file = builtin(name)
    if app.digest and app.digest != file.digest:
        raise UsageError(
            f"application {name} is {file.digest} here, and the case has {app.digest}: expected the same file"
        )
    settings: dict[str, int] = {}
    for preset in app.presets:
        if preset not in file.presets:
            known = ", ".join(file.presets) or "none"
            raise UsageError(f"{name}: no preset '{preset}': expected NAME=NUMBER or one of {known}")
        settings |= file.presets[preset]
    for key, number, grows in app.settings:
        if grows and ranks is None:
            raise UsageError(f"{name}: {key}={number}{PER_RANK}: expected the number of ranks to be known")
        settings[key] = number * (ranks or 0 if grows else 1)
    parameters_of(file, settings)
    return Asked(file, settings, bool(app.body))


@functools.lru_cache(maxsize=16)
def program(app: App, ranks: int) -> Program:
    """The application's programs on so many ranks, checked. UsageError where it is wrong."""
    found = asked(app)
    made = program_of(found.file, found.settings, ranks)
    matching.check(made)
    return made


def why_not_here(app: App, ranks: int) -> str:
    """Why it is none for so many ranks, in the file's own words; empty where it is one."""
    found = asked(app)
    return why_not(found.file, found.settings, ranks)
