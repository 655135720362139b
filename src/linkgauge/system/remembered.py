"""What is worked out of an object that does not change, kept with it: a run's cases ask the same of the same few."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar


class Remembering:
    """An object that does not change; what `remembered` functions answered of it lives as long as it does."""

    @functools.cached_property
    def answers(self) -> dict[object, Any]:
        """Answers by function and arguments."""
        return {}


_Of = TypeVar("_Of", bound=Remembering)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def remembered(
    function: Callable[Concatenate[_Of, _Parameters], _Result],
) -> Callable[Concatenate[_Of, _Parameters], _Result]:
    """Keep a function's results with the object that it was asked of, its first argument."""

    @functools.wraps(function)
    def ask(of: _Of, /, *arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Result:
        key = (function.__module__, function.__qualname__, _still(arguments), _still(options))
        if key not in of.answers:
            of.answers[key] = function(of, *arguments, **options)
        answer: _Result = of.answers[key]
        return answer

    return ask


def _still(value: object) -> object:
    """Return a value that can be a key; mappings in their order, which some results depend on."""
    if isinstance(value, Mapping):
        return tuple((key, _still(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_still(item) for item in value)
    return value
