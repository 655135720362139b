"""`linkgauge apps` and `linkgauge predict`: the applications there are, and what each takes by a run's curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from linkgauge.app import run_options
from linkgauge.app.command_line import PATH, argument, command, flag, option
from linkgauge.errors import UsageError


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


@command("predict", epilog="Example: linkgauge predict llh,pipeline --from runs/curves --transport mpi")
@argument("app", metavar="APP|FILE|all", help="Applications, apart by commas.")
@option("--from", "from_run", type=PATH, metavar="RUN", help="The run whose curves tell; 'run --plan applications'.")
@option("--measured", type=PATH, metavar="RUN", help="A run that measured them; by default the same one.")
@option("--set", "settings", multiple=True, metavar="NAME=NUMBER", help="A parameter; may be repeated.")
@option("--ranks", callback=run_options.whole(1), metavar="NUMBER", help="How many ranks; by default all of the run's.")
@option("--transport", help="Only these; by default all that the run has.")
@option("--collectives", default="", help="Mechanism of collectives; by default that of messages.")
@option(
    "--statistic", default="median", help="Of what is measured: median, q1, p5 or min, where a machine was not quiet."
)
@flag("--json", "as_json", help="As JSON: times in ns.")
def predict_command(
    app: str, from_run: Path | None, measured: Path | None, settings: tuple[str, ...], ranks: int | None,
    transport: str | None, collectives: str, statistic: str, as_json: bool,
) -> None:  # fmt: skip
    """What an application takes, from a run's curves, beside what was measured."""
    from linkgauge.apps import catalogue
    from linkgauge.model.case import DIMENSIONS
    from linkgauge.store.run import load
    from linkgauge.view.predicted import predictions, print_predictions

    if from_run is None:
        raise UsageError("--from is missing: expected a run folder, as 'linkgauge run --plan applications' makes one")
    texts: Any = run_options.application_texts({"app": [app]}, settings)["app"]
    asked = [catalogue.asked(str(DIMENSIONS["app"].from_text(text)[0])).text for text in texts]
    transports = [str(one) for one in DIMENSIONS["transport"].from_text(transport)] if transport else None
    other = str(DIMENSIONS["collectives"].from_text(collectives)[0]) if collectives else ""
    if statistic not in ("median", "q1", "p5", "min"):
        raise UsageError(f"--statistic '{statistic}': expected median, q1, p5 or min")
    source = load(from_run)
    found = predictions(
        asked, source, source if measured is None else load(measured), ranks, transports, other, f"{statistic}_ns"
    )
    if as_json:
        print(json.dumps([one.plain() for one in found], indent=1))
    else:
        print_predictions(found)
