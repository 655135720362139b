"""Formulas of step files: the values that Python gives, and no more than numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.apps.formula import LARGEST, FormulaError, formula

NAMES = {"rank": 3, "ranks": 8, "n": 100}


def written(depth: int) -> st.SearchStrategy[str]:
    leaf = st.one_of(st.integers(0, 50).map(str), st.sampled_from(list(NAMES)))
    if depth == 0:
        return leaf
    part = written(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(part, st.sampled_from(["+", "-", "*", "//", "%", "<", "==", ">="]), part).map(
            lambda one: f"({one[0]} {one[1]} {one[2]})"
        ),
        st.tuples(part, part).map(lambda one: f"min({one[0]}, {one[1]})"),
        st.tuples(part, part, part).map(lambda one: f"({one[0]} if {one[1]} else {one[2]})"),
        st.tuples(part, part).map(lambda one: f"(({one[0]} > 1) and not ({one[1]} > 2))"),
    )


@given(written(3))
def test_values_are_those_of_python(text: str) -> None:
    read = formula(text) if len(text) <= 400 else None
    if read is None:
        return
    try:
        expected = int(eval(text, {"min": min}, dict(NAMES)))
    except ZeroDivisionError:
        with pytest.raises(FormulaError):
            read(NAMES)
        return
    assert read(NAMES) == expected
    assert read.names <= NAMES.keys()


def test_quotients_say_how_they_round() -> None:
    assert formula("ceil(7, 2)")({}) == 4
    assert formula("ceil(6, 2)")({}) == 3
    assert formula("7 // 2")({}) == 3
    assert formula("6 / 2")({}) == 3
    with pytest.raises(FormulaError, match="no whole number"):
        formula("7 / 2")({})


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "().__class__", "n.bit_length()", "lambda: 1", "[1, 2]", "'a'", "1.5", "n ** n", "1 << 70",
        "(n := 3)", "n if", "", "min(n)", "max(n, key=n)", "print(1)", "True", "f'{n}'", "n[0]", "1 < 2 < 3",
        "ceil(1, 2, 3)", "1" * 401, "(" * 90 + "1" + ")" * 90 + "+" + "-" * 60 + "1", "é",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        formula(text)({"n": 3})


def test_numbers_on_the_way_are_bounded() -> None:
    assert formula("n * n")({"n": 1 << 30}) == 1 << 60
    with pytest.raises(FormulaError, match="2\\^62"):
        formula("n * n")({"n": LARGEST - 1})
    with pytest.raises(FormulaError, match="unknown name 'm'"):
        formula("m")({"n": 1})
