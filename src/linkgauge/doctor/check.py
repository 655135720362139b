"""A check and its result. Checks read the machine through `Readers` only, so that tests can fake every condition."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Collection
from typing import Any

from linkgauge.doctor.readers import Readers
from linkgauge.errors import LinkgaugeError

OK, WARNING, FAILING, NOT_CHECKED = "ok", "warning", "failing", "not checked"


class NotRecordedError(LinkgaugeError):
    """A recording lacks an answer that a check asks for: an older version made it, or its machine had none."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a check found. `cost`: what the condition costs a measurement; `fix`: exactly what to do.

    `needs`: what a check that was skipped needs, such as a GPU.
    """

    status: str
    finding: str
    cost: str = ""
    fix: str = ""
    needs: str = ""


@dataclasses.dataclass(frozen=True)
class Check:
    """A named check. `quick`: no process is started and nothing is measured, so that every run begins with it.

    `momentary`: its finding states an amount that changes from moment to moment, so that nodes of one status are alike.
    """

    name: str
    what: str
    look: Callable[[Readers], Result]
    quick: bool
    momentary: bool = False


class NotCheckedError(Exception):
    """Ends a check with this result."""

    def __init__(self, result: Result) -> None:
        """Keep the result."""
        super().__init__(result.finding)
        self.result = result


CHECKS: dict[str, Check] = {}
# Each registers its checks, in this order.
_KINDS = ("set_up", "host", "devices", "gpu_state", "links", "fabric", "network", "rails", "ports")
_MODULES = tuple(f"linkgauge.doctor.{name}" for name in _KINDS)


def check(
    what: str, *, quick: bool = True, momentary: bool = False
) -> Callable[[Callable[[Readers], Result]], Callable[[Readers], Result]]:
    """Register a function as the check of its name; `what` completes "checks whether"."""

    def register(look: Callable[[Readers], Result]) -> Callable[[Readers], Result]:
        @functools.wraps(look)
        def result_of(readers: Readers) -> Result:
            try:
                return look(readers)
            except NotCheckedError as error:
                return error.result

        CHECKS[look.__name__] = Check(look.__name__, what, result_of, quick, momentary)
        return result_of

    return register


def ok(finding: str) -> Result:
    """Nothing is wrong."""
    return Result(OK, finding)


def not_checked(why: str, needs: str = "") -> Result:
    """It could not be looked at, or does not apply here; `why` says which, `needs` what it needs."""
    return Result(NOT_CHECKED, why, needs=needs)


def load() -> None:
    """Have every check in `CHECKS`."""
    for module in _MODULES:
        importlib.import_module(module)


def run_checks(
    readers: Readers,
    doing: Callable[[str], None] = lambda text: None,
    *,
    quick_only: bool = False,
    also: Collection[str] = (),
) -> list[tuple[Check, Result]]:
    """All checks in their order. A check that itself fails is `not checked` with the error: it never stops anything.

    `doing` hears what is checked. `also`: those that are looked at though they are not quick.
    """
    found = []
    load()
    for one in CHECKS.values():
        if quick_only and not one.quick and one.name not in also:
            continue
        doing(f"checking {one.name.replace('_', ' ')}")
        try:
            result = one.look(readers)
        except NotRecordedError as error:
            result = not_checked(str(error))
        except Exception as error:  # a doctor that dies of a symptom helps nobody
            result = not_checked(f"could not look: {type(error).__name__}: {error}")
        found.append((one, result))
    return found


def as_row(one: Check, result: Result) -> dict[str, Any]:
    """For tables and JSON."""
    return {"check": one.name, **dataclasses.asdict(result), "what": one.what}
