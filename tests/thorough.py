"""What takes long and only './lg test --all' runs, as CI does: whole tests, or more cases of one."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

Kind = TypeVar("Kind")
ALL = os.environ.get("LINKGAUGE_TESTS") == "all"


def thorough(why: str) -> pytest.MarkDecorator:
    """Marks a test that `./lg test` leaves out, with the reason why the tests that stay notice what it would."""
    return pytest.mark.skipif(not ALL, reason=f"only './lg test --all' runs it: {why}")


def most(everything: Kind, some: Kind) -> Kind:
    """`everything` where all is run, else `some`: numbers of examples, lists of parameters."""
    return everything if ALL else some
