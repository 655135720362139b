"""What run.json, the records of journals and the JSON texts in tables are (docs/reference/run-folder.md), as shapes.

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
from linkgauge.store import older, schema
from linkgauge.system.error_counters import KEY as KEY_OF_COUNTERS
from linkgauge.system.error_counters import STORED as COUNTERS
from linkgauge.system.switches import MOST_SWITCHES

OBJECT = table({})
_SECONDS = number(0.0, 1e9)
TEXTS = mapping(text)
DEVICE = whole(0, (1 << 20) - 1)
NUMBER_OF_LAUNCH = whole(-1, (1 << 31) - 1)

WEIGHT = number(1e-6, 1e6)

_FELL_BACK = table(dict.fromkeys(("mpi", "title", "reason", "taken", "when"), text))
_REQUESTED = table(
    {"library_choices": flag, "every_s": number(0, 1e7), "detect": number(0, 1), "class_weights": mapping(WEIGHT)}
)
_RATE = number(0.0, 1e18)
_LOOK = table(
    {
        "moment": one_of(("before", "after")),
        "when_ns": whole(),
        "devices": each(
            table(
                {
                    "device": DEVICE,
                    **dict.fromkeys(("nvlink_bytes_per_s", "pcie_bytes_per_s"), _RATE),
                    "busy": number(0.0, 1.0),
                    "values": mapping(number(-1e30, 1e30)),
                    "processes": each(text),
                },
                needed=("device",),
            )
        ),
        "host": table(
            {
                "processes": each(text),
                **dict.fromkeys(("cores", "others", "stolen"), number(0.0, 1e9)),
                "memory_bytes_per_s": _RATE,
            }
        ),
    },
    needed=("moment", "when_ns"),
)
_INTERFACE = table(
    {**dict.fromkeys(("name", "kind", "address", "driver"), text), **dict.fromkeys(("rate", "mtu"), whole()),
     **dict.fromkeys(("up", "carrier"), flag), "carrier_changes": maybe(whole())}, needed=("name", "kind", "up")
)  # fmt: skip
_NETWORK = {"interfaces": each(_INTERFACE), "rdma": each(text)}
_NODE = table({"host": text, "network": table(_NETWORK, needed=_NETWORK)}, needed=("host",))
INFO = table(
    {
        "format": one_of((schema.FORMAT,)),
        "format_version": whole(1),
        "keys_of_format": whole(1),
        "id": text,
        **dict.fromkeys(("requested", *older.INFO), _REQUESTED),
        "machine": OBJECT,
        "devices": table(
            {
                "kind": one_of(tuple(RUNTIMES)),
                "ordinals": each(DEVICE),
                "infos": each(
                    table({"uuid": maybe(text), "multiprocessors": maybe(whole()), "attributes": maybe(OBJECT)})
                ),
            }
        ),
        "versions": TEXTS,
        "build": table({**dict.fromkeys(("version", "commit", "build_type", "compiler"), text), "dirty": flag}),
        "mpi": mapping(table({"library": text})),
        "mpi_fallbacks": each(_FELL_BACK),
        "switches": table(
            {"source": text, "above": mapping(each(text, MOST_SWITCHES)), "rates": mapping(number(1.0, 1e18))},
            needed=("source", "above"),
        ),
        "nodes": each(_NODE),
        "nodes_left_out": TEXTS,
        "pairs_left_out": TEXTS,
        "relaunched": mapping(NUMBER_OF_LAUNCH, numeral),
        "resumed": each(anything),
        "clock": OBJECT,
        "observing": mapping(table({"seconds": _SECONDS, "of_seconds": _SECONDS, "parts": mapping(_SECONDS)})),
        "warnings": each(text, 1 << 10),
        "throttled": table(dict.fromkeys(("periods", "throttled", "time_ns"), whole())),
        "stolen_share": number(0.0, 1.0),
        "looks": each(_LOOK),
        KEY_OF_COUNTERS: each(COUNTERS),
        "settings": TEXTS,
        "system": maybe(OBJECT),
        "seed": whole(),
        "start": maybe(text),
        "end": maybe(text),
        "left": maybe(whole()),
        "damaged": each(text, 1 << 16),
    },
    needed=("format", "format_version"),
)
"""run.json."""

_CHOSEN = ("algorithm", "protocol", "kernel", "via", "grid", "way", "completion", "chunk")
EVIDENCE = maybe(
    table(
        {
            "chosen": table(dict.fromkeys(_CHOSEN, maybe(text))),
            "curve": table(
                {"id": text, "time_ns": number(LEAST, MOST_NS), "goodput": number(LEAST)},
                needed=("id", "time_ns", "goodput"),
            ),
            "left_out": table({"why": text, "curve": text}),
            "at_full": text,
        }
    )
)
_ANSWER = table({"known": flag, "value": maybe(text), "by": text}, needed=("known", "by"))
_TICK = maybe(number(LEAST, MOST_NS))
LAUNCH_TEXTS = {
    "mpi": maybe(table({name: maybe(text) for name in ("name", "version", "abi")})),
    "env": maybe(TEXTS),
    "versions": maybe(TEXTS),
    "clock": maybe(table({"resolution_ns": _TICK, "event_resolution_ns": _TICK})),
    "extra": maybe(
        table(
            {
                "launch_key_contents": maybe(table({"env": maybe(TEXTS)})),
                "places": maybe(each(whole(0))),
                "not_observed": maybe(mapping(TEXTS)),
                "derived_env": maybe(TEXTS),
                "answers": maybe(mapping(_ANSWER)),
            }
        )
    ),
}
"""Columns of launches that are JSON texts."""

_IDENTITY = {"case_key": text, **dict.fromkeys(schema.IDENTITY[1:], NUMBER_OF_LAUNCH)}
# A run may have 10^5: their values become columns, which are checked as such.
_CASE = table(
    {**_IDENTITY, "case": maybe(table({}, as_it_is)), "lanes": maybe(each(anything)), "evidence": anything},
    as_it_is,
    _IDENTITY,
)
RECORDS = {
    "launch": table(
        {"launch": NUMBER_OF_LAUNCH, "ranks": maybe(each(table({"device": maybe(OBJECT)})))}, needed=("launch",)
    ),
    "case": _CASE,
    "status": _CASE,
    "observations": table({**_IDENTITY, "rows": maybe(each(OBJECT))}, needed=_IDENTITY),
}
"""Headers of the journals' records, by their kind; what they say of columns, the tables check."""
