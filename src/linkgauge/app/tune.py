"""`linkgauge tune`: which settings to export for a pattern, searched for on this machine, with proof."""

from __future__ import annotations

from typing import Any

from linkgauge.app.command_line import command, flag, option


@command("tune", epilog="Example: linkgauge tune --list mpich")
@option(
    "--list", "listed", is_flag=False, flag_value="all", metavar="[LIBRARY]", help="The table of settings, in short."
)
@flag("--json", "as_json", help="With --list: as JSON.")
def tune_command(listed: str | None, as_json: bool, **words: Any) -> int:
    """The settings that libraries have for moving data: what each changes, its legal values and its risk."""
    _list(listed or "all", as_json)
    return 0


def _list(which: str, as_json: bool) -> None:
    from linkgauge.app.listing import print_table
    from linkgauge.tune.table import SEEN, libraries, library

    chosen = list(libraries().values()) if which == "all" else [library(which)]
    rows = []
    for one in chosen:
        for setting in one.settings:
            values = f"{setting.values[0]} .. {setting.values[-1]}" if setting.ordered else " ".join(setting.values)
            rows.append({
                "library": one.name, "setting": setting.name, "values": values, "scale": setting.scale,
                "default": setting.default, "what": setting.what, "patterns": " ".join(setting.patterns),
                "risk": setting.risk, "seen by": SEEN[one.seen], "evidence": one.evidence,
                "relaunch": setting.relaunch, "conflicts": " ".join(setting.conflicts),
                "needs": " ".join(f"{name}={value}" for name, value in setting.needs),
                "only with": " ".join(f"{name}={value}" for name, value in setting.only_with),
            })  # fmt: skip
    print_table("settings", ("setting", "default", "values", "what"), rows, as_json)
