"""`linkgauge apps`: the applications that travel with the program."""

from __future__ import annotations

import json

from linkgauge.app.command_line import command, flag


@command("apps", epilog="Example: linkgauge run --app llh --set n=64 --devices host:2")
@flag("--json", "as_json", help="As JSON, with parameters and sources.")
def apps_command(as_json: bool) -> None:
    """Applications by what they communicate, a sentence each; 'linkgauge run --app NAME' measures them."""
    from linkgauge.app.listing import print_table
    from linkgauge.apps.catalogue import builtin, names

    files = [builtin(name) for name in names()]
    if as_json:
        rows = [{"name": one.name, "what": one.description, "parameters": dict(one.parameters),
                 "source": one.document.get("source", ""), "digest": one.digest} for one in files]  # fmt: skip
        print(json.dumps(rows, indent=1))
        return
    print_table(
        "applications",
        ("name", "what", "parameters"),
        [{"name": one.name, "what": one.description, "parameters": _settings(one.parameters)} for one in files],
        False,
    )


def _settings(parameters: object) -> str:
    assert isinstance(parameters, dict)
    return " ".join(f"{name}={value}" for name, value in parameters.items())
