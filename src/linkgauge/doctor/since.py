"""Error counters stored at one moment, and what has risen at another, on one node or on many."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from linkgauge.doctor.check import FAILING, OK, WARNING
from linkgauge.doctor.on_nodes import OnNodes, joined
from linkgauge.errors import EnvironmentLackingError
from linkgauge.model.grouped import grouped
from linkgauge.model.shape import label, one_of, read_json, table, text, whole
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.private_folder import remove_elsewhere
from linkgauge.run.parent.rank_words import say, shaped, words_of_ranks
from linkgauge.system.error_counters import NODE, NODES, Rise, boot_s, error_counters, rises, uptime_s

FORMAT = "linkgauge-counters"
MOST_S = 60
_MOST_BYTES = 256 << 20
_SAME_BOOT_S = 10  # a corrected clock moves the date of the start
_SHAPE = table({"format": one_of((FORMAT,)), "format_version": whole(1, 1), "date": text, "nodes": NODES},
               needed=("format", "format_version", "nodes"))  # fmt: skip
_SAID = table({"host": label, "node": NODE}, needed=("host", "node"))
_COST = "data is sent again, or a link or memory is lost for a while: less rate, and spread"
_FIX = (
    "nvidia-smi nvlink -e; rocm-smi --showrasinfo; ibstat; dmesg shows PCIe errors; reseat or replace what keeps rising"
)

_NEW = "what rose before is not known", "linkgauge doctor --snapshot FILE"


def counters_here() -> dict[str, Any]:
    """This node's counters, with when its kernel started."""
    root = Path("/")
    return {"boot_s": boot_s(root), "uptime_s": uptime_s(root), "counters": error_counters(root)}


def counters_on_nodes(mpi: MpiInstallation, hosts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The counters of these nodes, read at once, a rank a node. EnvironmentLackingError where one says none."""
    command = [sys.executable, "-m", "linkgauge.doctor.since"]
    said = shaped(words_of_ranks(mpi, len(hosts), command, timeout_s=MOST_S, hosts=hosts), _SAID)
    if isinstance(said, str):
        raise EnvironmentLackingError(f"counters of {len(hosts)} nodes cannot be read: {said}")
    found = {one["host"]: one["node"] for one in said}
    if len(found) < len(hosts):
        raise EnvironmentLackingError(f"of {len(hosts)} nodes only {', '.join(sorted(found))} said their counters")
    return found


def snapshot(nodes: Mapping[str, Any]) -> str:
    """The counters of nodes as a file holds them."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return json.dumps({"format": FORMAT, "format_version": 1, "date": date, "nodes": nodes}, indent=0) + "\n"


def read_snapshot(path: Path) -> dict[str, Any]:
    """The counters of nodes that a file holds. UsageError where it is no snapshot."""
    found: dict[str, Any] = read_json(path, _MOST_BYTES, "a snapshot (linkgauge doctor --snapshot FILE)", _SHAPE)
    return dict(found["nodes"])


def compared(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[OnNodes]:
    """What rose on which nodes since, thing by thing: each counter that rose, or one row that none did."""
    told: list[tuple[str, tuple[str, str, str, str, str]]] = []
    still = []
    for host, node in sorted(now.items()):
        then = before.get(host)
        if then is None:
            told.append(("counters", (WARNING, "the snapshot has no such node", host, *_NEW)))
        elif abs(then["boot_s"] - node["boot_s"]) > _SAME_BOOT_S:
            told.append(("counters", (WARNING, "the node was restarted since", host, *_NEW)))
        elif found := rises(then["counters"], node["counters"], _seconds(then, node)):
            told += [(f"{one.part}: {one.counter}", (*_status(one), host, *_advice(one))) for one in found]
        else:
            still.append(("counters", (OK, "no error counter rose", host, "", "")))
    things = grouped([*told, *still])
    return [joined(name, of, {host for _, _, host, _, _ in of}) for name, of in things.items()]


def _seconds(then: Mapping[str, Any], now: Mapping[str, Any]) -> float:
    """The time between two looks at one node; 0 where a snapshot does not say."""
    return max(now.get("uptime_s", 0) - then["uptime_s"], 0) if "uptime_s" in then else 0


def _status(rise: Rise) -> tuple[str, str]:
    words = f"rose by {rise.by:,}"
    if rise.few:
        return OK, f"{words}, which sound hardware does"
    return (FAILING if rise.grave else WARNING), words


def _advice(rise: Rise) -> tuple[str, str]:
    return ("", "") if rise.few else (_COST, _FIX)


def worst(found: Iterable[OnNodes]) -> int:
    """The exit status: 1 where a link or data was lost."""
    return int(any(one.status == FAILING for one in found))


def main() -> None:
    """Say this node's counters, as a rank."""
    say({"host": os.uname().nodename, "node": counters_here()})
    remove_elsewhere()


if __name__ == "__main__":
    main()
