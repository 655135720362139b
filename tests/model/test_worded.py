"""Values that are written in words: each keeps its text, and is parsed where a case is made and nowhere else."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import linkgauge
from linkgauge.errors import UsageError
from linkgauge.model.case import DIMENSIONS, Case, Loads
from linkgauge.model.worded import App, LibrarySettings, ServiceClass, Worded
from linkgauge.plan.library_settings import class_settings, runtime_settings
from linkgauge.plan.memory import total_bytes
from linkgauge.run.parent.reporter import case_text
from linkgauge.run.wire.spec import core_case
from linkgauge.stats.request_paths import priority_of
from linkgauge.store.schema import dimension_types

WORDED: dict[str, Worded] = {
    one.name: one.default for one in dataclasses.fields(Case) if isinstance(one.default, Worded)
}
TEXTS = {
    "background": "mpi ring_shift 64KiB on=2,3 service_class=1; kernel local_copy 8 on=0 mpi=same",
    "service_class": "dscp:46",
    "settings": "UCX_TLS=tcp UCX_RNDV_THRESH=8192",
    "app": "made@12345678 n=64 {\"step\":[]}",
}  # fmt: skip
DOORS = {"model/case.py", "model/values.py", "model/worded.py", "store/door.py"}
"""Where a text becomes a value: what is typed or lies in a plan, and rows of tables."""


def case_with(**texts: str) -> Case:
    return Case.from_dimensions({**Case("mpi", "ring_shift", 8, 8, (0, 1)).dimensions(), **texts})


@pytest.mark.parametrize("name", WORDED)
def test_a_stored_text_is_kept_as_it_is_and_tells_cases_apart(name: str) -> None:
    plain = Case("mpi", "ring_shift", 8, 8, (0, 1))
    assert not WORDED[name]
    assert str(WORDED[name]) == ""
    assert dimension_types()[name] == "string"
    case = case_with(**{name: TEXTS[name]})
    value = getattr(case, name)
    assert type(value) is type(WORDED[name])
    assert value
    assert str(value) == TEXTS[name]
    assert case.dimensions() == {**plain.dimensions(), name: TEXTS[name]}
    assert case != plain
    assert case.case_key != plain.case_key
    assert case == case_with(**{name: TEXTS[name]})
    assert hash(value) == hash(type(value).of_text(TEXTS[name]))
    assert any(getattr(value, one.name) for one in dataclasses.fields(value) if one.name != "text")
    if name not in ("settings", "background"):
        assert DIMENSIONS[name].from_text(TEXTS[name].split(" {")[0])


def test_a_case_is_used_without_its_texts_being_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_with(**{name: text for name, text in TEXTS.items() if name != "app"})

    def of_text(cls: type[Worded], text: str) -> Worded:
        raise AssertionError(f"{cls.__name__} '{text}' is read again")

    for kind in {type(one) for one in WORDED.values()}:
        monkeypatch.setattr(kind, "of_text", classmethod(of_text))
    assert core_case(case, (0, 1, 2, 3), 1)["loads"][0]["case"]["devices"] == [2, 3]
    assert [job.devices for job in case.jobs] == [(0, 1), (2, 3)]
    assert [number for number, _ in case.background.own_launches] == [2]
    assert class_settings(case, "mpich")[0]
    assert runtime_settings(case, "host", "mpich") == ()
    assert priority_of(case.service_class) == 5
    assert total_bytes(case) > total_bytes(dataclasses.replace(case, background=Loads()))
    assert case_text(case).endswith(f"with background load {TEXTS['background']}")
    assert case.settings.pairs == (("UCX_TLS", "tcp"), ("UCX_RNDV_THRESH", "8192"))


def test_texts_are_read_at_the_doors_alone() -> None:
    folder = Path(inspect.getfile(linkgauge)).parent
    kinds = "|".join(("kind", "cls", "self", *(type(one).__name__ for one in WORDED.values())))
    reads = re.compile(rf"\b(?:{kinds})\.of_text\b")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if reads.search(path.read_text())}
    assert found == DOORS - {"model/worded.py"} | {"expect/published.py"}


def test_what_is_no_setting_is_told() -> None:
    with pytest.raises(UsageError, match="'UCX_TLS' is no setting of a library: expected NAME=VALUE"):
        LibrarySettings.of_text("A=1 UCX_TLS")
    with pytest.raises(UsageError, match="'n=many': expected NAME=NUMBER"):
        App.of_text("made n=many")
    assert ServiceClass.of_text("bulk_data") == ServiceClass("bulk_data")


def test_an_application_says_its_parts() -> None:
    app = App.of_text('made@12345678 large n=64 m=2*ranks {"step":[]}')
    assert (app.name, app.digest, app.presets, app.body) == ("made", "12345678", ("large",), '{"step":[]}')
    assert app.settings == (("n", 64, False), ("m", 2, True))
    assert app.label == "made large n=64 m=2*ranks"
    assert App.of(app.name, app.digest, app.settings, app.body, app.presets) == app
    assert app.with_settings({"n": 3}).text == 'made@12345678 large n=64 m=2*ranks n=3 {"step":[]}'
