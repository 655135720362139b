"""What an application's steps cost beside what they do: to load, and each in the core.

    python bench/application_steps.py [STEPS]

Loads a step file of STEPS (10^6) steps of one rank, stated one by one in TOML and in JSON and written out of a loop,
and runs a loop of as many waits for nothing on two ranks in threads: a step's own cost, the clock's reading for its
kind included.
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from typing import Any

from linkgauge.apps import catalogue, matching
from linkgauge.apps.program import core_program, program_of


def seconds(what: str, steps: int, body: Any) -> Any:
    begun = time.perf_counter()
    found = body()
    taken = time.perf_counter() - begun
    print(f"{what}: {taken:.2f} s, {taken / steps * 1e9:.0f} ns a step")
    return found


def load(text: str) -> Any:
    made = program_of(catalogue.parse(text, "bench"), {}, 1)
    matching.check(made)
    return core_program(made, 0)


def run(program: dict[str, Any], steps: int) -> float:
    """Seconds of the fastest of five iterations."""
    core: Any = importlib.import_module("linkgauge._core")
    runtime, groups = core.open_runtime("host", [], 2), core.thread_groups(2)
    found: list[Any] = [None, None]

    def play(rank: int) -> None:
        session = core.Session(runtime, groups[rank], None, None, "", [], None)
        stop = {"kind": "count", "samples": 5, "relative_half_width": 0.1, "time_ns": 10**10}
        found[rank] = session.measure(
            {"transport": "copy_engine", "pattern": "application", "size_bytes": 0, "rank_list": [0, 1],
             "devices": [0, 1], "program": program, "warmup": 1, "stop": stop})  # fmt: skip
        session.close()

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return float(min(found[0]["samples"]["ns"]) / 1e9)


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    stated = 'description = "x"\nstep = [' + "{ compute = 1 }, " * steps + "]"
    seconds("stated one by one in TOML", steps, lambda: load(stated))
    stated = json.dumps({"description": "x", "step": [{"compute": 1}] * steps})
    seconds("in JSON", steps, lambda: load(stated))
    turn = '{ compute = "i % 7 + 1" }'
    looped = f'description = "x"\nstep = [ {{ repeat = {steps}, index = "i", step = [ {turn} ] }} ]'
    seconds("written out of a loop", steps, lambda: load(looped))
    waits = load(f'description = "x"\nstep = [ {{ repeat = {steps}, step = [ {{ wait = true }} ] }} ]')
    taken = run(waits, steps)
    print(f"in the core: {taken / steps * 1e9:.0f} ns a step, the fastest of five iterations")


if __name__ == "__main__":
    main()
