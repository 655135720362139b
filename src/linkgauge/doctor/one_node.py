"""A rank that looks at its own node and says it: `python -m linkgauge.doctor.one_node DEVICES`.

It imports only what looks: a rank of each node pays for it, which is most of its processor time (0.4 s).
"""

from __future__ import annotations

import os
import platform
import sys
import time

from linkgauge import __version__
from linkgauge.doctor.check import as_row, run_checks
from linkgauge.doctor.readers import Readers
from linkgauge.run.machine.interfaces import Interface
from linkgauge.run.machine.private_folder import remove_elsewhere
from linkgauge.run.parent.devices import find_devices
from linkgauge.run.parent.info import machine, settings_of
from linkgauge.run.parent.rank_words import say
from linkgauge.system.rdma_ports import rdma_ports

_ALSO = ("rail_mtu", "cables")
"""Checks that start a program, and only where RDMA cards are: rails differ between nodes in these, too."""


def facts(readers: Readers) -> dict[str, str]:
    """What a node is, in words that are equal for nodes that are alike."""
    known = machine()
    there, ports = readers.network(), rdma_ports()
    found = {
        "system": f"{known['operating_system']}, Linux {known['kernel']}, {known['architecture']}",
        "processor": f"{known['cpu']}, {known['available_cores']} of {known['cores']} cores, "
                     f"{known['numa_nodes']} NUMA nodes, {round(known['memory_bytes'] / 2**30)} GiB",
        "python": platform.python_version(),
        "linkgauge": __version__,
        "rdma devices": ", ".join(there.rdma) or "none",
        "rdma ports": ", ".join(f"{one.name} {one.state} {one.rate}" for one in ports) or "none",
        "infiniband subnets": "; ".join(sorted({one.subnet for one in ports if one.subnet})) or "none",
        "settings": " ".join(f"{name}={value}" for name, value in settings_of(os.environ).items()) or "none",
    }  # fmt: skip
    for one in there.interfaces:
        if one.kind != "loopback":
            found[f"interface {one.name}"] = _words(one)
    return found


def _words(one: Interface) -> str:
    """An interface in words without what is each node's own, its address."""
    rate = f"{one.rate / 1e9:g} Gb/s" if one.rate else "no rate known"
    kind = "" if one.kind == "network" else f", {one.kind}"
    return f"{'up' if one.up else 'down'}, {rate}{', ' + one.driver if one.driver else ''}{kind}"


def main() -> None:
    """Look at this node and say it."""
    problem = ""
    try:
        count = find_devices(sys.argv[1]).count
    except Exception as error:  # a node without such a device is what is looked for
        count, problem = 0, str(error)
    readers = Readers(ranks=max(count, 1))
    rows = [as_row(one, result) for one, result in run_checks(readers, quick_only=True, also=_ALSO)]
    rows = [row for row in rows if row["check"] != "mpi_library"]  # of the node that starts the ranks
    devices = {"devices": problem or f"{count} {sys.argv[1]}"}
    say({"host": os.uname().nodename, "date": time.time(), "rows": rows, "facts": {**facts(readers), **devices},
         "network": readers.network().plain()})  # fmt: skip
    remove_elsewhere()


if __name__ == "__main__":
    main()
