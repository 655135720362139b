"""What takes long: whole tests, or more cases of one. './lg test' leaves it out, './lg test --all' runs it.

CI runs a share of it at each change (LINKGAUGE_TESTS=K/N): of whole tests those whose files and reasons, and of more
cases those whose files, fall into the K-th of N parts, so that N changes run all. Where texts are approved
(LINKGAUGE_APPROVE=1) all are run, so that each is written.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path
from typing import TypeVar

import pytest

Kind = TypeVar("Kind")
ASKED = "all" if os.environ.get("LINKGAUGE_APPROVE") else os.environ.get("LINKGAUGE_TESTS", "")
ALL = ASKED == "all"
LEFT_OUT = "only './lg test --all' runs it: "  # tools/run_tests.py counts these
_TESTS = Path(__file__).parent


def in_share(file: str, asked: str, part: str = "") -> bool:
    """Whether a test file, or a part of it, runs what takes long: LINKGAUGE_TESTS is `all`, a share `K/N`, or empty."""
    share, _, shares = asked.partition("/")
    if not shares:
        return asked == "all"
    return zlib.crc32((os.path.relpath(file, _TESTS) + part).encode()) % int(shares) == int(share)


def _in_callers_share(part: str = "") -> bool:
    return in_share(sys._getframe(2).f_code.co_filename, ASKED, part)


def thorough(why: str) -> pytest.MarkDecorator:
    """Marks a test that `./lg test` leaves out, with the reason why the tests that stay notice what it would."""
    return pytest.mark.skipif(not _in_callers_share(why), reason=LEFT_OUT + why)


def by_one_reason(marks: list[pytest.Mark]) -> list[pytest.Mark]:
    """Marks of a test without its second reason and further ones: it runs in the share of its first.

    With two it would run where their shares meet, which no turn of CI need be.
    """
    others = {id(one) for one in [one for one in marks if str(one.kwargs.get("reason")).startswith(LEFT_OUT)][1:]}
    return [one for one in marks if id(one) not in others]


def most(everything: Kind, some: Kind) -> Kind:
    """`everything` where all is run, else `some`: numbers of examples, lists of parameters."""
    return everything if _in_callers_share() else some
