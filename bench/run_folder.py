"""Measures how fast a run folder is written, compacted, loaded, summarized, reported and queried.

    python bench/run_folder.py [--samples 10000000] [--cases 2000] [--launches 300] [--keep DIR] [--json]

The run folder is made up, by the store's own writer (tests/synthetic.py). Times are wall clock, of this process; the
summary and the report are each made in a fresh process, as the commands do, start-up included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benching import ROOT, options
from linkgauge.store.folder import RunFolder
from synthetic import SIZES, make_case, make_run, usual_cases

STEPS = {
    "summary": "from linkgauge.stats.summary import summarize; summarize(linkgauge.load({run!r}))",
    "report": "from linkgauge.view.report import write_report;"
    "write_report(linkgauge.load({run!r}), {run!r} + '/bench.html')",
    "show": "from linkgauge.view.summary import print_summary; from rich.console import Console;"
    "print_summary(linkgauge.load({run!r}), Console(file=open('/dev/null', 'w')))",
}


def make(path: Path, samples: int, rows: int) -> None:
    """Write a run folder of about `samples` samples in `rows` rows: collectives on four devices and pairs."""
    transports = ("staging", "copy_engine", "kernel", "ccl", "mpi")
    patterns = ("alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast", "pingpong", "unidirectional")
    cases = [make_case(t, p, s) for p in patterns for t in transports for s in SIZES]
    cases = [case for case in cases if case.size > 0]
    whole = [cases[i % len(cases)] for i in range(rows)]
    distinct = [
        make_case(c.transport, c.pattern, c.size_requested + 64 * (i // len(cases)), c.devices)
        for i, c in enumerate(whole)
    ]
    per_rank = max(6, samples // sum(case.ranks for case in distinct))
    make_run(path, cases=distinct, samples=per_rank, warmup=5, compact=False)


def launch_by_launch(path: Path, launches: int) -> dict[str, float]:
    """Compact so many small launches one after the other; mean ms of the first and of the last quarter."""
    make_run(path, cases=usual_cases()[:10], samples=100, repeats=launches, compact=False)
    folder = RunFolder.open(path)
    journals = [(file, file.rename(path.parent / file.name)) for file in folder.launch_journals().values()]
    took = []
    for file, aside in journals:
        aside.rename(file)
        start = time.monotonic()
        folder.compact()
        took.append(time.monotonic() - start)
    start = time.monotonic()
    folder.compact(finish=True)
    quarter = max(1, launches // 4)
    first, last = (1e3 * sum(part) / quarter for part in (took[:quarter], took[-quarter:]))
    return {"seconds": sum(took) + time.monotonic() - start, "first_ms": first, "last_ms": last}


def timed(code: str, run: Path) -> dict[str, float]:
    """Run one step in a fresh process; return its wall and processor time in s, and its peak memory.

    On a machine that does other work only the processor time says something.
    """
    program = (
        f"import sys, time; sys.path[:0] = [{str(ROOT / 'src')!r}]; import resource; import linkgauge;"
        "r = resource.getrusage(resource.RUSAGE_SELF); c = r.ru_utime + r.ru_stime; t = time.monotonic();"
        f"{code.format(run=str(run))};"
        "t = time.monotonic() - t; r = resource.getrusage(resource.RUSAGE_SELF);"
        "print(t, r.ru_utime + r.ru_stime - c, r.ru_maxrss / 1024)"
    )
    start = time.monotonic()
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=600)
    step, cpu, peak = map(float, output.stdout.split()[-3:])
    return {"seconds": step, "cpu_seconds": cpu, "seconds_with_start": time.monotonic() - start, "peak_mib": peak}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--launches", type=int, default=300, help="small ones, compacted one by one; 0: none")
    parser.add_argument("--keep", type=Path, help="make the run folder here and keep it; used again where it is there")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        run = arguments.keep or Path(temporary) / "run"
        if not run.exists():
            start = time.monotonic()
            make(run, arguments.samples, arguments.cases)
            results["write"] = {"seconds": time.monotonic() - start}
            start = time.monotonic()
            RunFolder.open(run).compact(finish=True)
            results["compact"] = {"seconds": time.monotonic() - start}
        results["folder"] = {"mib": sum(p.stat().st_size for p in run.rglob("*.parquet")) / 2**20}
        for name in filter(None, arguments.steps.split(",")):
            results[name] = timed(STEPS[name], run)
        if (run / "bench.html").exists():
            results["report"]["mib"] = (run / "bench.html").stat().st_size / 2**20
            (run / "bench.html").unlink()
        if arguments.launches:
            results["launches"] = launch_by_launch(Path(temporary) / "launches", arguments.launches)
    if arguments.json:
        print(json.dumps(results, indent=1))
        return
    for name, values in results.items():
        print(f"{name:8}", "  ".join(f"{key} {value:.2f}" for key, value in values.items()))


if __name__ == "__main__":
    main()
