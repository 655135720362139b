"""Values of dimensions that are written in words: each is parsed once, at the door, and keeps the text that it had.

A case, a key, a column and a message have the text; code asks the value. The text that was read is kept as it is, so
that a stored case keeps its key. This module imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from linkgauge.errors import UsageError

PER_RANK = "*ranks"
_CLASS = re.compile(r"(dscp:)?([0-9]{1,2})")


@dataclasses.dataclass(frozen=True)
class Worded:
    """A value that is equal, hashed, stored and shown by its text; false where that is empty, as it is by default."""

    text: str = ""

    def __str__(self) -> str:
        """The text."""
        return self.text

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return bool(self.text)

    @classmethod
    def of_text(cls: type[T], text: str) -> T:
        """The value of a text. UsageError where it is none."""
        raise NotImplementedError


T = TypeVar("T", bound=Worded)


def plain(value: Any) -> Any:
    """A dimension's value as files and other programs have it: the text of one that is written in words."""
    return value.text if isinstance(value, Worded) else value


def follows(default: Any) -> Any:
    """A field that follows from the text."""
    return field(default=default, compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class ServiceClass(Worded):
    """The class of a case's messages: a service `level`, a `dscp`, or, where both are None, a word of Slingshot's."""

    level: int | None = follows(None)
    dscp: int | None = follows(None)

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of_text(cls, text: str) -> ServiceClass:
        """The class of a text; which numbers and words there are is model/values.py's to say."""
        match = _CLASS.fullmatch(text)
        if match is None:
            return cls(text)
        number = int(match[2])
        return cls(f"{match[1] or ''}{number}", *((None, number) if match[1] else (number, None)))


@dataclasses.dataclass(frozen=True)
class LibrarySettings(Worded):
    """The library's own settings during a case, NAME=VALUE NAME=VALUE as it takes them."""

    pairs: tuple[tuple[str, str], ...] = follows(())

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def of_text(cls, text: str) -> LibrarySettings:
        """The settings of a text. UsageError for a word that is none."""
        pairs = [word.partition("=") for word in text.split()]
        if wrong := next(("".join(one) for one in pairs if not one[1]), ""):
            raise UsageError(f"'{wrong}' is no setting of a library: expected NAME=VALUE")
        return cls(text, tuple((name, value) for name, _, value in pairs))

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> LibrarySettings:
        """These settings, in the order of their words."""
        told = sorted(pairs, key="=".join)
        return cls(" ".join(map("=".join, told)), tuple(told))


@dataclasses.dataclass(frozen=True)
class App(Worded):
    """An application: NAME[@DIGEST] [PRESET] [NAME=NUMBER ...] [{file}]; NAME=NUMBER*ranks grows with them.

    What the file and its presets say is apps/catalog.py's to know. In canonical form, which cases have, there are a
    digest and no presets, and no number grows. `settings`: names with numbers, and whether each grows. `body`: the step
    file's JSON, where it travels with the case.
    """

    name: str = follows("")
    digest: str = follows("")
    presets: tuple[str, ...] = follows(())
    settings: tuple[tuple[str, int, bool], ...] = follows(())
    body: str = follows("")

    @classmethod
    @functools.lru_cache(maxsize=64)
    def of_text(cls, text: str) -> App:
        """What a text says. UsageError for a setting that is no number."""
        head, brace, body = text.partition(" {")
        name, *words = head.split(" ")
        name, _, digest = name.partition("@")
        settings = []
        for key, _, value in (word.partition("=") for word in words if "=" in word):
            number = value.removesuffix(PER_RANK)
            if not number.isdecimal():
                raise UsageError(f"application {name}: '{key}={value}': expected NAME=NUMBER or NAME=NUMBER{PER_RANK}")
            settings.append((key, int(number), number != value))
        presets = tuple(word for word in words if "=" not in word)
        return cls(text, name, digest, presets, tuple(settings), brace.strip() + body)

    @classmethod
    def of(
        cls, name: str, digest: str, settings: Iterable[tuple[str, int, bool]], body: str, presets: Sequence[str] = ()
    ) -> App:
        """An application of these parts."""
        named, settings = f"{name}@{digest}" if digest else name, tuple(settings)
        words = [named, *presets, *map(_setting, settings), *([body] if body else [])]
        return cls(" ".join(words), name, digest, tuple(presets), settings, body)

    @property
    def label(self) -> str:
        """What people are shown: no digest, and not what the file says."""
        return " ".join([self.name, *self.presets, *map(_setting, self.settings)])

    def with_settings(self, settings: Mapping[str, int]) -> App:
        """The same with some parameters set, over what it says of them."""
        more = ((name, number, False) for name, number in settings.items())
        return self.of(self.name, self.digest, (*self.settings, *more), self.body, self.presets)


def _setting(one: tuple[str, int, bool]) -> str:
    name, number, grows = one
    return f"{name}={number}{PER_RANK if grows else ''}"
