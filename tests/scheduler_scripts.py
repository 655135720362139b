"""The scripts of docs/schedulers as an administrator adapts them: another path of programs, other options."""

from __future__ import annotations

import re
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "docs" / "schedulers"


def adapted(name: str, path: str, options: str = "", more: str = "") -> str:
    """Return a script with this search path, its own options or others, and more lines before them."""
    text = (SCRIPTS / name).read_text()
    text, count = re.subn(
        r"(?m)^(export PATH|\s*local path)=\S+.*$", lambda found: f"{found[1]}='{path}'\n{more}", text
    )
    assert count == 1, name
    if options:
        text, count = re.subn('(?m)^options=".*"$', f'options="{options}"', text)
        assert count == 1, name
    return text
