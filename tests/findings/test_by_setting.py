"""Failed cases are put down to the setting that they alone had, where without it the same is measured well."""

from __future__ import annotations

import dataclasses
from typing import Any

from findings.test_held_apart import rows_of
from linkgauge.findings.facts import Facts
from linkgauge.findings.health import failed_cases
from linkgauge.findings.measure import FailedCase
from linkgauge.model.result import Launch
from linkgauge.model.worded import LibrarySettings
from results import measures_of

VARIABLES: dict[str, dict[str, str]] = {
    "plain": {}, "fast": {"UCX_TLS": "fast"}, "other": {"UCX_RNDV_THRESH": "8"},
    "both": {"UCX_TLS": "fast", "UCX_RNDV_THRESH": "8"},
}  # fmt: skip
LAUNCHES = [Launch(place, key, env=env) for place, (key, env) in enumerate(VARIABLES.items())]
BAD = FailedCase("k", "mpi", "allreduce", tuple(range(8)), "corrupt", "1 wrong bytes", "fast")


def measured(*keys: str, **settings: Any) -> list[dict[str, Any]]:
    rows = [{**row, "launch_key": key} for key in keys for row in rows_of((1e3,) * 5, transport="mpi", **settings)]
    return [{**row, "case_key": f"{row['case_key']}{row['launch_key']}"} for row in rows]


def told(failures: list[FailedCase], rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    facts = Facts(measures_of(rows), failures=failures, launches=LAUNCHES)
    return [(one.subject, one.fix) for one in failed_cases(facts)]


def test_a_setting_that_corrupts_is_named_and_no_link() -> None:
    # The rate is low: the same setting was measured well in other launches of it.
    ((subject, fix),) = told([BAD], measured("plain", "fast", "other"))
    assert subject == "UCX_TLS=fast"
    assert "Do not set UCX_TLS=fast" in fix
    assert "IOMMU" not in fix


def test_the_nearest_that_was_measured_well_says_which_of_several_it_is() -> None:
    both = dataclasses.replace(BAD, launch_key="both")
    ((subject, _),) = told([BAD, both], measured("plain", "other"))
    assert subject == "UCX_TLS=fast"


def test_a_setting_of_the_case_alone_is_named_too() -> None:
    own = dataclasses.replace(BAD, launch_key="plain", settings=LibrarySettings.of_text("UCX_TLS=fast"))
    ((subject, _),) = told([own], measured("plain"))
    assert subject == "UCX_TLS=fast"


def test_a_launch_that_never_began_has_the_settings_of_its_plan() -> None:
    never = dataclasses.replace(BAD, status="failed", launch_key="", variables=(("UCX_TLS", "fast"),))
    ((subject, fix),) = told([never], measured("plain"))
    assert subject == "UCX_TLS=fast"
    assert fix.startswith("Correct UCX_TLS=fast, or leave it out")
    assert "maintainers" not in fix


def test_what_also_fails_without_it_is_no_settings_doing() -> None:
    without = dataclasses.replace(BAD, launch_key="plain")
    for rows in ([], measured("other")):
        subjects = told([BAD, without], rows)
        assert ("corrupt", subjects[-1][1]) in subjects
    ((subject, fix),) = told([BAD, without], measured())
    assert subject == "corrupt"
    assert "IOMMU" in fix
    elsewhere = [{**row, "devices": [8, 9]} for row in measured("plain")]
    assert told([BAD], elsewhere)[0][0] == "corrupt"
    hung = dataclasses.replace(BAD, status="hung")
    assert "'linkgauge show RUN'" in told([hung], [])[0][1]
