"""Runs a function as every rank of a group of threads, and brings back what each returned or raised."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from patience import PATIENCE_S

core: Any = pytest.importorskip("linkgauge._core", reason="the core is not built")


def as_ranks(size: int, body: Callable[[Any], Any]) -> list[Any]:
    """`body(group)` on one thread a rank; exceptions take the place of results."""
    groups = core.thread_groups(size)
    results: list[Any] = [None] * size

    def play(rank: int) -> None:
        try:
            results[rank] = body(groups[rank])
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE_S)
        assert not thread.is_alive(), "a rank still waits"
    return results


def copy_case(ranks: list[int], **fields: Any) -> dict[str, Any]:
    """A small case of the transport copy_engine."""
    stop = {"kind": "count", "samples": 8, "time_ns": 20_000_000_000}
    case = {"transport": "copy_engine", "pattern": "unidirectional", "size_bytes": 4096, "rank_list": ranks}
    return {**case, "devices": ranks, "stop": stop, **fields}
