"""How many operations a case checks: as it is written, as the core is told, and what time it may take."""

from __future__ import annotations

import dataclasses

import pytest

from linkgauge.errors import UsageError
from linkgauge.model.case import DIMENSIONS, Case
from linkgauge.model.stop_rule import StopRule
from linkgauge.plan.estimate import case_s
from linkgauge.plan.machine import PlanMachine
from linkgauge.run.parent.watch import patience_for
from linkgauge.run.wire.spec import core_case

MACHINE = PlanMachine("host", 2, 8 << 30, 8 << 30, 8 << 30, 2)
CASE = Case("mpi", "allreduce", 1 << 20, 1 << 20, (0, 1), stop=StopRule(time_ns=2_000_000_000))
VERIFY = DIMENSIONS["verify"]


def test_it_is_a_word_or_a_number() -> None:
    assert VERIFY.from_text("final,each,2140") == ("final", "each", "2140")
    assert VERIFY.from_toml(2140, "a plan") == ("2140",)
    assert VERIFY.stored("2140", "a run") == "2140"
    for wrong in ("0", "-1", "all", "1e3", "", "2000000000"):
        with pytest.raises(UsageError, match=f"--verify: wrong value '{wrong}': expected final, each, or how many"):
            VERIFY.from_text(wrong)
    with pytest.raises(UsageError, match="expected final, each"):
        VERIFY.from_toml([True], "a plan")


@pytest.mark.parametrize(("verify", "each", "checks"), [("final", False, 0), ("each", True, 0), ("17", False, 17)])
def test_the_core_is_told(verify: str, each: bool, checks: int) -> None:
    case = dataclasses.replace(CASE, verify=verify)
    told = core_case(case, (0, 1), 3)
    assert (told["verify_each"], told["checks"]) == (each, checks)


def test_a_case_that_checks_may_take_longer_but_not_without_end() -> None:
    few, many = (case_s(dataclasses.replace(CASE, verify=verify), MACHINE) for verify in ("final", "1000000000"))
    assert few < many <= few + CASE.stop.time_ns / 1e9
    patience = patience_for(dataclasses.replace(CASE, verify="1000000000"), MACHINE, 0.0, 10.0)
    assert patience.total_s > patience_for(CASE, MACHINE, 0.0, 10.0).total_s + CASE.stop.time_ns / 1e9
