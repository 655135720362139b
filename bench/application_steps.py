"""What an application's steps cost beside what they do: to load, and each in the core.

    python bench/application_steps.py [STEPS [OTHER]]

Loads step files of STEPS (10^6) steps, each in a process of its own: stated one by one in TOML and in JSON, all alike,
as of a trace (a `compute` of a number of its own and an allreduce by turns; on one rank and on two), as of one whose
allreduces are begun and waited for, and written out of a loop. Processor time stands beside, which others on the
machine lengthen less, and the peak of memory beyond what the program has without a file. OTHER: the `src` of another
version, built, whose loads take turns with these, and what share of its cost these have. Runs a loop of as many waits
for nothing on two ranks in threads: a step's own cost, the clock's reading for its kind included.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

TURNS = 3


def load(text: str, ranks: int) -> Any:
    from linkgauge.apps import catalog, matching
    from linkgauge.apps.program import core_program, program_of

    made = program_of(catalog.parse(text, "bench"), {}, ranks)
    matching.check(made)
    found = [core_program(made, rank) for rank in range(ranks)]
    return found[0]


def peak_mib() -> float:
    """Of this program's memory: what getrusage says is also that of the process which started it."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def measure(path: str, ranks: int, source: str) -> None:
    """Prints seconds, those of a processor, and MiB of the peak of one load, by the package of this `src`."""
    if source:
        sys.meta_path[:] = [one for one in sys.meta_path if "scikit" not in type(one).__name__.lower()]
        sys.path.insert(0, source)
    load('description = "x"\nstep = [ { compute = 1 } ]', 1)
    text = Path(path).read_text()
    least = peak_mib()
    begun, begun_cpu = time.perf_counter(), time.process_time()
    load(text, ranks)
    taken = [time.perf_counter() - begun, time.process_time() - begun_cpu]
    print(json.dumps([*taken, peak_mib() - least]))


def compare(what: str, text: str, steps: int, ranks: int, other: str) -> None:
    found: dict[str, list[list[float]]] = {"": [], **({other: []} if other else {})}
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        for _ in range(TURNS):
            for source, told in found.items():
                call = [sys.executable, __file__, "--load", file.name, str(ranks), source]
                told.append(json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE).stdout))
    taken, cpu, peak = (statistics.median(column) for column in zip(*found[""], strict=True))
    print(f"{what}: {taken:.2f} s ({cpu:.2f} s of a processor), {taken / steps * 1e9:.0f} ns a step, {peak:.0f} MiB")
    if other:
        theirs = [statistics.median(column) for column in zip(*found[other], strict=True)]
        print(f"    other: {theirs[0]:.2f} s ({theirs[1]:.2f} s of a processor), {theirs[2]:.0f} MiB; shares of it "
              f"{taken / theirs[0]:.2f} ({cpu / theirs[1]:.2f}), {peak / theirs[2]:.2f}")  # fmt: skip


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
    if "--help" in sys.argv:
        print(__doc__)
        return
    if sys.argv[1:2] == ["--load"]:
        measure(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        return
    from linkgauge.apps.step_file import as_toml  # not before a load, which may be another version's

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    other = sys.argv[2] if len(sys.argv) > 2 else ""
    computes = [{"compute": 1000 + number} for number in range(steps // 2)]
    allreduces = [{"collective": "allreduce", "bytes": 4 * (number % 50 + 1)} for number in range(steps // 2)]
    traced: list[Any] = [step for both in zip(computes, allreduces, strict=True) for step in both]
    begun: list[Any] = [
        step for compute, allreduce in zip(computes[: steps // 4], allreduces, strict=False)
        for step in (compute, {**allreduce, "begun": True}, allreduce | {"begun": True}, {"wait": True})
    ]  # fmt: skip
    for what, stated, forms, ranks in (
        ("alike", [{"compute": 1}] * steps, "TJ", 1), ("as of a trace", traced, "TJ", 1),
        ("as of a trace on two ranks", traced, "J", 2), ("as of a trace, begun, on two ranks", begun, "J", 2),
    ):  # fmt: skip
        document = {"description": "x", "step": stated}
        if "T" in forms:
            compare(f"stated one by one in TOML, {what}", as_toml(document), steps, ranks, other)
        compare(f"stated one by one in JSON, {what}", json.dumps(document), steps, ranks, other)
    turn = '{ compute = "i % 7 + 1" }'
    looped = f'description = "x"\nstep = [ {{ repeat = {steps}, index = "i", step = [ {turn} ] }} ]'
    compare("written out of a loop", looped, steps, 1, other)
    waits = load(f'description = "x"\nstep = [ {{ repeat = {steps}, step = [ {{ wait = true }} ] }} ]', 1)
    taken = run(waits, steps)
    print(f"in the core: {taken / steps * 1e9:.0f} ns a step, the fastest of five iterations")


if __name__ == "__main__":
    main()
