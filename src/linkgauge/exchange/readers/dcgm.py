"""DCGM's diagnostics as JSON (dcgmi diag -j): the rates of its PCIe test, and what nvbandwidth printed within.

Read with its sources (NVIDIA/DCGM, nvvs/plugin_src/pcie): `GPU 0 Host to GPU bandwidth: 24.02 GB/s`, in version 4
without the GPU, which is the result's entity; copies of 10,000,000 ints of pinned memory; both ways are their sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from linkgauge.exchange.copies import Copies, Place, left_out
from linkgauge.exchange.imported import Hints, ImportedLog
from linkgauge.exchange.readers import nvbandwidth
from linkgauge.exchange.readers.base import JsonForm
from linkgauge.model.log_text import number_of
from linkgauge.model.shape import DEEPEST, anything, checked

_NAMES = ("DCGM Diagnostic", "DCGM GPU Diagnostic", "DCGM GPU Diagnostic ")
_BYTES = 40_000_000
_RATE = re.compile(
    r"(?:GPU (?P<gpu>\d{1,3}) )?(?P<what>GPU to Host|Host to GPU|bidirectional) (?P<of>bandwidth|latency):\s*"
    r"(?P<value>[\d.]+) (?P<unit>GB/s|us)"
)
_WAYS = {"GPU to Host": 1, "Host to GPU": 1, "bidirectional": 2}


def read_json(data: dict[str, Any], log: ImportedLog, hints: Hints) -> None:
    """Take all rates below any test's `info` into `log`."""
    into = log.table("DCGM")
    evidence = {"test": "PCIe", "estimator": "mean of a loop"}
    if hints.size_bytes is None:
        evidence["size"] = "DCGM's default, 10,000,000 ints; the output does not say"
    copies = Copies(into, "copy_engine", hints.size_bytes or _BYTES, evidence)
    latencies = 0
    seen: set[tuple[int, str]] = set()
    for entity, words in _infos(data, None, DEEPEST):
        for match in _RATE.finditer(words[: 1 << 20]):
            if match["of"] == "latency":
                latencies += 1
                continue
            gpu = int(match["gpu"]) if match["gpu"] else entity
            try:
                value = number_of(match["value"])
            except ValueError:
                log.problem(1, f"{match[0][:80]!r} is no rate")
                continue
            if gpu is None:
                log.problem(1, f"{match[0][:80]!r} left out: it does not say of which GPU it is")
                continue
            if (gpu, match["what"]) in seen:
                log.problem(1, f"GPU {gpu} {match['what']} is there twice: the second is left out")
                continue
            seen.add((gpu, match["what"]))
            host, device = Place(True, -1), Place(False, gpu)
            source, target = (device, host) if match["what"] == "GPU to Host" else (host, device)
            copies.add(1, source, target, value, _WAYS[match["what"]])
    left_out(log, 1, "PCIe", latencies, "times of copies whose size is not known")
    for inner in _within(data, DEEPEST):
        found = checked({"nvbandwidth": inner}, nvbandwidth.SHAPE, f"{log.file}: not as nvbandwidth writes it")
        nvbandwidth.read_json(found, log, hints)


def _infos(value: Any, entity: int | None, deepest: int) -> Iterator[tuple[int | None, str]]:
    """Each text of an `info`, with the GPU that the result around it is of."""
    if not deepest:
        return
    if isinstance(value, Mapping):
        here = entity
        for key in ("entity_id", "gpu_id", "gpu_ids", "gpu_id(s)"):
            if re.fullmatch(r"\d{1,3}", str(value.get(key))):
                here = int(str(value[key]))
        for key, one in value.items():
            if key == "info":
                texts = one if isinstance(one, list) else [one]
                yield from ((here, text) for text in texts if isinstance(text, str))
            else:
                yield from _infos(one, here, deepest - 1)
    elif isinstance(value, list):
        for one in value:
            yield from _infos(one, entity, deepest - 1)


def _within(value: Any, deepest: int) -> Iterator[Mapping[str, Any]]:
    """Each table of nvbandwidth's own within."""
    if not deepest:
        return
    for key, one in value.items() if isinstance(value, Mapping) else ():
        if key == "nvbandwidth" and isinstance(one, Mapping):
            yield one
        else:
            yield from _within(one, deepest - 1)
    for one in value if isinstance(value, list) else ():
        yield from _within(one, deepest - 1)


def _is_one(data: Any) -> bool:
    return isinstance(data, dict) and any(name in data for name in _NAMES)


JsonForm("DCGM's diagnostics", _is_one, anything, read_json).register()
