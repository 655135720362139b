"""What no dimension takes is an error of one line that can be read."""

from __future__ import annotations

import pytest

from linkgauge.model import values

KINDS = [name for name, value in vars(values).items() if isinstance(value, values.Values)]


@pytest.mark.parametrize("name", KINDS)
def test_a_number_of_thousands_of_digits_is_a_wrong_value(name: str) -> None:
    huge = (1 << 20000) - 1
    for item in (huge, -huge):
        with pytest.raises(values.WrongValueError, match="of 20000 bits: expected"):
            getattr(values, name).parse(item)
    with pytest.raises(values.WrongValueError):
        getattr(values, name).parse([huge])


@pytest.mark.parametrize("name", KINDS)
def test_an_error_quotes_the_beginning_of_a_long_value(name: str) -> None:
    with pytest.raises(values.WrongValueError) as refused:
        getattr(values, name).parse("é " * 40_000)
    assert len(str(refused.value)) < 2000
