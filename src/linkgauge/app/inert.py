"""A console for what comes from a description: its texts are printed, never obeyed."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.text import Text

from linkgauge.model.shape import clean
from linkgauge.view.screen import screen_width

_BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]")


class InertConsole(Console):
    """Prints every text as it is: brackets are no markup and colons no emoji, escape sequences reach no terminal.

    Whatever rich is given as a plain text, a table's cells included, comes through `render_str`; what should be bold is
    a `Text` made by `bold`.
    """

    def __init__(self) -> None:
        """On standard output."""
        super().__init__(markup=False, emoji=False, highlight=False, width=screen_width())

    def render_str(self, text: str, **settings: Any) -> Text:
        """Return a text without what a terminal would obey, on one line."""
        return super().render_str(clean(_BREAKS.sub(" ", text)), **settings)


def bold(text: str) -> Text:
    """Return a heading."""
    return Text(clean(_BREAKS.sub(" ", text)), style="bold")
