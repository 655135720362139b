"""What run.json, the records of journals and the JSON texts in tables are (docs/run-folder.md), as shapes.

What is not named is any JSON. Names may be missing: older runs, imported ones and other programs' have fewer.
"""

from __future__ import annotations

from linkgauge.model.runtimes import RUNTIMES
from linkgauge.model.shape import (
    LEAST,
    MOST_NS,
    anything,
    as_it_is,
    each,
    flag,
    mapping,
    maybe,
    number,
    numeral,
    one_of,
    table,
    text,
    whole,
)

OBJECT = table({})
TEXTS = mapping(text)
DEVICE = whole(0, (1 << 20) - 1)
NUMBER_OF_LAUNCH = whole(-1, (1 << 31) - 1)

WEIGHT = number(1e-6, 1e6)

_FELL_BACK = table(dict.fromkeys(("mpi", "title", "reason", "taken", "when"), text))
INFO = table(
    {
        "asked": table({"library_choices": flag, "every_s": number(0, 1e7), "class_weights": mapping(WEIGHT)}),
        "machine": OBJECT,
        "devices": table(
            {
                "kind": one_of(tuple(RUNTIMES)),
                "ordinals": each(DEVICE),
                "infos": each(table({"uuid": maybe(text), "multiprocessors": maybe(whole())})),
            }
        ),
        "versions": TEXTS,
        "mpi": mapping(table({"library": text})),
        "mpi_fallbacks": each(_FELL_BACK),
        "switches": table(
            {"source": text, "above": mapping(each(text)), "rates": mapping(number(1.0, 1e18))},
            needed=("source", "above"),
        ),
        "nodes_left_out": TEXTS,
        "relaunched": mapping(NUMBER_OF_LAUNCH, numeral),
        "resumed": each(anything),
        "clock": OBJECT,
        "settings": TEXTS,
        "system": maybe(OBJECT),
        "seed": whole(),
        "start": maybe(text),
        "end": maybe(text),
    }
)
"""run.json, beside its format and version."""

EVIDENCE = maybe(
    table(
        {
            "chosen": table(dict.fromkeys(("algorithm", "protocol", "kernel", "grid", "way", "chunk"), maybe(text))),
            "curve": table(
                {"id": text, "time_ns": number(LEAST, MOST_NS), "goodput": number(LEAST)},
                needed=("id", "time_ns", "goodput"),
            ),
            "left_out": table({"why": text, "curve": text}),
            "at_full": text,
        }
    )
)
_TICK = maybe(number(LEAST, MOST_NS))
LAUNCH_TEXTS = {
    "mpi": maybe(table({name: maybe(text) for name in ("name", "version", "abi")})),
    "env": maybe(TEXTS),
    "versions": maybe(TEXTS),
    "clock": maybe(table({"resolution_ns": _TICK, "event_resolution_ns": _TICK})),
    "extra": maybe(
        table({"launch_key_contents": maybe(table({"env": maybe(TEXTS)})), "places": maybe(each(whole(0)))})
    ),
}
"""Columns of launches that are JSON texts."""

# A run may have 10^5: their values become columns, which are checked as such.
_CASE = table({"case": maybe(table({}, as_it_is)), "lanes": maybe(each(anything)), "evidence": anything}, as_it_is)
RECORDS = {
    "launch": table(
        {"launch": NUMBER_OF_LAUNCH, "ranks": maybe(each(table({"device": maybe(OBJECT)})))}, needed=("launch",)
    ),
    "case": _CASE,
    "status": _CASE,
    "observations": table({"rows": maybe(each(OBJECT))}),
}
"""Headers of the journals' records, by their kind; what they say of columns, the tables check."""
