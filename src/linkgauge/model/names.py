"""Names of hosts as people and batch systems write them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from linkgauge.errors import UsageError

MOST_HOSTS = 1 << 17
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
_PART = re.compile(r"([^,\[\]]*(?:\[[0-9,-]+\][^,\[\]]*)*)(?:,|$)")


def host_names(text: str) -> list[str]:
    """The hosts of a list, in its order, each once: `a,b`, and ranges as Slurm writes them, `n[01-04,7]-ib`.

    UsageError naming the part that is none.
    """
    found: dict[str, None] = {}
    for part in host_parts(text):
        for name in _expanded(part, text):
            if not _NAME.fullmatch(name):
                raise UsageError(f"'{name[:80]}' is no name of a host: expected letters, digits, dots and dashes")
            found[name] = None
            if len(found) > MOST_HOSTS:
                raise _too_many(text)
    return list(found)


def host_parts(text: str) -> Iterator[str]:
    """The parts of a list of hosts, names and ranges as they were written. UsageError naming what is none."""
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or not match[1]:
            raise UsageError(f"'{text[at : at + 40]}' is no list of hosts: expected names such as a,b or n[01-04]")
        yield match[1]
        at = match.end()


def _too_many(text: str) -> UsageError:
    return UsageError(f"'{text[:40]}' names more than {MOST_HOSTS} hosts: expected fewer")


def _expanded(pattern: str, text: str) -> Iterator[str]:
    parts = re.split(r"\[([0-9,-]+)\]", pattern)  # fixed, a range, fixed, ...
    choices: list[list[str]] = []
    for one in parts[1::2]:
        choices.append(list(itertools.islice(_numbers(one), MOST_HOSTS + 1)))
        if math.prod(map(len, choices)) > MOST_HOSTS:  # before the next is listed: a file may have 10^6 of them
            raise _too_many(text)
    for chosen in itertools.product(*choices):
        yield "".join(itertools.chain.from_iterable(itertools.zip_longest(parts[::2], chosen, fillvalue="")))


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"'[{text[:40]}]' is no range of hosts: expected numbers such as [01-04,7]")
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield str(number).zfill(len(match[1]))
