"""An application on several numbers of ranks: the same on all, or with a parameter that grows with them."""

from __future__ import annotations

from collections.abc import Callable

from linkgauge.apps import catalogue
from linkgauge.errors import UsageError


def scaled(app: str, weak: str | None, fewest: int) -> Callable[[int], str]:
    """The canonical text of `app` by the number of ranks: always the same (strong scaling), or with the parameter
    `weak` in proportion to the ranks, as it is set on the fewest. UsageError where it has no such parameter."""
    found = catalogue.asked(app)
    if not weak:
        text = found.text
        return lambda ranks: text
    parameters = {**found.file.parameters, **found.settings}
    if weak not in parameters:
        raise UsageError(
            f"--weak {weak}: {found.file.name} has no such parameter: expected one of {', '.join(parameters) or 'none'}"
        )

    def text_of(ranks: int) -> str:
        grown = {**found.settings, weak: parameters[weak] * ranks // fewest}
        return catalogue.Asked(found.file, grown, found.carried).text

    return text_of
