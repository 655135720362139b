"""The dimensions' options, made from their table, and those of nccl-tests that mean the same: -b -e -f -g -w -n."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from linkgauge.app.command_line import Option
from linkgauge.app.options import several, value
from linkgauge.apps import catalog
from linkgauge.errors import UsageError
from linkgauge.model.case import DIMENSIONS
from linkgauge.model.dimension import unique
from linkgauge.model.quantity import parse_size
from linkgauge.model.values import Value
from linkgauge.model.worded import App

Texts = Mapping[str, Sequence[str]]
"""By dimension what was typed of it, not yet read."""
_USUAL = ("transport", "pattern", "size", "ranks", "app")
"""Dimensions whose options `--help` shows; `--help-all` shows all."""


def _made(*_: str) -> list[Option]:
    return [
        Option([one.flag], multiple=True, metavar=one.values.metavar, panel=one.group, choices=one.values.choices,
               advanced=one.name not in _USUAL, help=one.help)
        for one in DIMENSIONS.values()
    ]  # fmt: skip


def _taken(words: dict[str, Any]) -> Texts:
    return {name: texts for name, one in DIMENSIONS.items() if (texts := words.pop(one.key, ()))}


def some_dimensions(*names: str) -> Any:
    """A field of the options of some dimensions, each given once: what was typed of each."""

    def made(_name: str, _kind: str, panel: str) -> list[Option]:
        options = (DIMENSIONS[name] for name in names)
        return [Option([one.flag], metavar=one.values.metavar, panel=panel, choices=one.values.choices,
                       help=one.help) for one in options]  # fmt: skip

    def taken(words: dict[str, Any]) -> Mapping[str, str]:
        return {name: text for name in names if (text := words.pop(DIMENSIONS[name].key, None)) is not None}

    return several(made, taken, default_factory=dict)


def dimension_texts() -> Any:
    """A field of an option for each dimension, which may be repeated: what was typed of each."""
    return several(_made, _taken, default_factory=dict)


@dataclasses.dataclass(frozen=True)
class AsNcclTests:
    """Options of nccl-tests, as typed."""

    panel: ClassVar = "As in nccl-tests"

    min_bytes: str | None = value("SIZE", "Smallest message size, with -e.", advanced=True, flags="-b")
    max_bytes: str | None = value("SIZE", "Largest message size, with -b.", advanced=True, flags="-e")
    step_factor: str | None = value("NUMBER", "Factor from one size to the next.", advanced=True, flags="-f")
    gpus: str | None = value("NUMBER", "GPUs: the same as --ranks.", advanced=True, flags="-g")
    warmup_iterations: str | None = value(
        "NUMBER", "Iterations before the first sample: the same as --warmup.", advanced=True, flags="-w"
    )
    iterations: str | None = value(
        "NUMBER", "Samples: the same as --stop-rule count --stop-samples.", advanced=True, flags="-n"
    )

    def added_to(self, dimensions: Texts) -> Texts:
        """The dimensions' texts with what these options say.

        Raises:
            UsageError: one of them beside the option of ours for the same thing, or sizes that lack an end.
        """
        found = dict(dimensions)
        given = {"-b": self.min_bytes, "-e": self.max_bytes, "-f": self.step_factor}
        if sizes := [flag for flag, text in given.items() if text is not None]:
            if "size" in dimensions:
                raise UsageError(f"{' '.join(sizes)} and --size both give sizes: give one of them")
            found["size"] = [_range(self.min_bytes, self.max_bytes, self.step_factor)]
        for flag, text, sets in (
            ("-g", self.gpus, {"ranks": self.gpus}),
            ("-w", self.warmup_iterations, {"warmup": self.warmup_iterations}),
            ("-n", self.iterations, {"stop_rule": "count", "stop_samples": self.iterations}),
        ):
            if text is None:
                continue
            if both := [DIMENSIONS[one].flag for one in sets if one in dimensions]:
                raise UsageError(f"{flag} sets {both[0]} too: give one of them")
            if not (text.isascii() and text.isdecimal()):
                raise UsageError(f"{flag} '{text}': expected a whole number")
            found |= {name: [str(said)] for name, said in sets.items()}
        return found


def _range(first: str | None, last: str | None, factor: str | None) -> str:
    """The sizes as --size takes them: from -b to -e by the factor -f."""
    if first is None or last is None:
        raise UsageError("-b and -e give a range of sizes together: give both, or --size")
    low, high = parse_size(first), parse_size(last)
    if high < low:
        raise UsageError(f"-b {first} -e {last}: expected the smaller size first")
    if factor is None:
        if low == high:
            return first
        raise UsageError(f"-b {first} -e {last} without a factor: give -f 2 too, or --size {first}:{last}:x2")
    if not (factor.isascii() and factor.isdecimal() and int(factor[:9]) >= 2):
        raise UsageError(f"-f '{factor}': expected a whole number of at least 2")
    return f"{first}:{last}:x{factor}"


def dimension_values(texts: Texts) -> dict[str, tuple[Value, ...]]:
    """The values of the dimensions' options. UsageError naming the option that is wrong."""
    values = {
        name: unique(value for text in several for value in DIMENSIONS[name].from_text(text))
        for name, several in texts.items()
    }
    if 0 in values.get("size", ()):
        raise UsageError("--size 0 moves nothing: expected sizes of 1 byte or more, such as 8 or 1:1GiB:x4")
    return values


def application_texts(texts: Texts, settings: Sequence[str]) -> Texts:
    """The texts with each `--app` as the dimension has it: a path behind `file:`, its parameters behind it."""
    found = dict(texts)
    if settings and "app" not in found:
        raise UsageError("--set is of an application: give --app NAME or --app FILE too")
    for word in settings:
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*=[0-9]{1,13}(\*ranks)?|[A-Za-z0-9][A-Za-z0-9_.-]*", word) is None:
            raise UsageError(
                f"--set '{word}': expected NAME=NUMBER, as n=64, NAME=NUMBER*ranks, or a preset of 'linkgauge apps'"
            )
    if "app" in found:
        asked = [word.strip() for text in found["app"] for word in text.split(",")]
        asked = [name for word in asked for name in (catalog.names() if word == "all" else [word])]
        found["app"] = [" ".join([f"file:{word}" if _is_path(word) else word, *settings]) for word in asked]
    return found


def applications(app: str, settings: Sequence[str]) -> list[App]:
    """The applications of an argument, with these settings, as cases have them."""
    texts = application_texts({"app": [app]}, settings)["app"]
    return [value for text in texts for value in DIMENSIONS["app"].from_text(text)[:1] if isinstance(value, App)]


def _is_path(word: str) -> bool:
    return not word.startswith("file:") and (word.endswith((".toml", ".json")) or "/" in word)
