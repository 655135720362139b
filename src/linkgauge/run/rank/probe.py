"""What a device runtime shows, as one line of JSON.

Usage: `python -m linkgauge.run.rank.probe cuda|hip|sycl|host [HOST_DEVICES]`.

A process of its own, since opening a GPU's runtime makes a context that holds memory until the process ends.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from linkgauge.run.machine.transports import library_folders


def look(which: str, host_devices: int) -> dict[str, Any]:
    """The devices of a runtime, its version, or the reason why there is none."""
    core = importlib.import_module("linkgauge._core")
    return dict(core.probe(which, host_devices, [str(folder) for folder in library_folders()]))


def main() -> None:
    """Entry point."""
    print(json.dumps(look(sys.argv[1], int(sys.argv[2]))))


if __name__ == "__main__":
    main()
