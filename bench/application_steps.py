"""What an application's steps cost beside what they do: to load, and each in the core.

    python bench/application_steps.py [STEPS]

Loads step files of STEPS (10^6) steps of one rank: stated one by one in TOML and in JSON, all alike and as of a trace
(a `compute` of a number of its own and an allreduce by turns), and written out of a loop. Processor time stands beside,
which others on the machine lengthen less. Runs a loop of as many waits for nothing on two ranks in threads: a step's
own cost, the clock's reading for its kind included.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import threading
import time
from typing import Any

from linkgauge.apps import catalogue, matching
from linkgauge.apps.program import core_program, program_of
from linkgauge.apps.step_file import as_toml


def seconds(what: str, steps: int, body: Any) -> Any:
    begun, begun_cpu = time.perf_counter(), time.process_time()
    found = body()
    taken, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    print(f"{what}: {taken:.2f} s ({cpu:.2f} s of a processor), {taken / steps * 1e9:.0f} ns a step")
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
    traced = [
        step for number in range(steps // 2)
        for step in ({"compute": 1000 + number}, {"collective": "allreduce", "bytes": 4 * (number % 50 + 1)})
    ]  # fmt: skip
    for what, stated in (("alike", [{"compute": 1}] * steps), ("as of a trace", traced)):
        document = {"description": "x", "step": stated}
        for form, text in (("TOML", as_toml(document)), ("JSON", json.dumps(document))):
            seconds(f"stated one by one in {form}, {what}", steps, functools.partial(load, text))
    turn = '{ compute = "i % 7 + 1" }'
    looped = f'description = "x"\nstep = [ {{ repeat = {steps}, index = "i", step = [ {turn} ] }} ]'
    seconds("written out of a loop", steps, lambda: load(looped))
    waits = load(f'description = "x"\nstep = [ {{ repeat = {steps}, step = [ {{ wait = true }} ] }} ]')
    taken = run(waits, steps)
    print(f"in the core: {taken / steps * 1e9:.0f} ns a step, the fastest of five iterations")


if __name__ == "__main__":
    main()
