"""Programs that we did not write, run for real, traced, replayed and predicted: one table of the four.

    python bench/real_programs/harness.py --sources FOLDER --out FOLDER --curves RUN [--mpi MPIEXEC] [NAME ...]

Needs mpicc, and `otf2`. FOLDER of sources has a clone of each repository that programs.toml names,
under its owner's and its own name. For each program:

- real: RUNS runs with pmpi.c preloaded, which adds up the time that each rank spends in MPI;
- traced: one more, with every call as Score-P records it, made an OTF2 trace, which `linkgauge convert` reads;
- replayed: that step file by `linkgauge run --app`, between real runs, so that all have the same machine;
- predicted: `linkgauge predict` from the curves of RUN, which `linkgauge run --plan applications` made.

A program's time is that from MPI_Init to MPI_Finalize; communication is the part of it in MPI, waiting included, in
the mean of the ranks. FOLDER gets results.jsonl, a line a program.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from otf2_of_events import Rank, read_ranks, write  # noqa: E402

RUNS = 8  # the second and the seventh of eight are a 93 % interval of the median
RANKS = 2


@dataclasses.dataclass(frozen=True)
class Taken:
    """The time of a program, and of its communication in the mean of its ranks, in ms, with the ends of intervals."""

    ms: float
    low_ms: float
    high_ms: float
    communication_ms: float
    communication_low_ms: float
    communication_high_ms: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Taken:
        """Of runs: time and communication in ns. The interval leaves out the first and the last of eight and more."""
        columns = []
        for column in zip(*pairs, strict=True):
            ordered = sorted(value / 1e6 for value in column)
            out = 1 if len(ordered) >= RUNS else 0
            columns += [statistics.median(ordered), ordered[out], ordered[-1 - out]]
        return cls(*(round(value, 4) for value in columns))


def communication_ns(ranks: Sequence[Rank]) -> tuple[float, float]:
    """A program's time, and its communication in the mean of the ranks."""
    return max(rank.ns for rank in ranks), statistics.fmean(rank.in_mpi_ns for rank in ranks)


class Harness:
    """What all programs are run with."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.out, self.sources, self.mpi = asked.out.resolve(), asked.sources.resolve(), asked.mpi
        self.curves = asked.curves.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.shim = self.out / "pmpi.so"
        subprocess.run([asked.mpicc, "-O2", "-shared", "-fPIC", "-o", str(self.shim), str(HERE / "pmpi.c")], check=True)

    def real(self, program: dict[str, Any], name: str, *, events: bool) -> list[Rank]:
        """One run of a program; its ranks' times, with their events if asked."""
        folder = self.out / program["name"] / name
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"LD_PRELOAD": str(self.shim), "LINKGAUGE_PMPI_FOLDER": str(folder),
                    "LINKGAUGE_PMPI_EVENTS": str(int(events))}  # fmt: skip
        words = [self.mpi, "-n", str(RANKS), "env", *(f"{key}={value}" for key, value in settings.items()),
                 *shlex.split(program["command"])]  # fmt: skip
        where = self.sources / program["repository"] / program["folder"]
        with (folder / "output.txt").open("w") as said:
            done = subprocess.run(words, cwd=where, stdout=said, stderr=subprocess.STDOUT, check=False, timeout=300,
                                  env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
        if done.returncode:
            sys.exit(f"{program['name']}: exit {done.returncode}: see {said.name}")
        return read_ranks(folder)

    def converted(self, program: dict[str, Any], ranks: Sequence[Rank]) -> Path:
        """The step file of a traced run."""
        folder = self.out / program["name"]
        anchor = write(ranks, folder / "trace")
        steps = folder / f"{program['name']}.toml"
        said = linkgauge("convert", str(anchor), "-o", str(steps))
        (folder / "convert.txt").write_text(said)
        return steps

    def replayed(self, steps: Path, number: int) -> tuple[float, float]:
        """The time of the step file's iteration and its communication, in ns."""
        run = steps.parent / f"replay-{number}"
        if not run.exists():
            linkgauge("run", "--app", str(steps), "--devices", f"host:{RANKS}", "--transport", "mpi", "--mpi", self.mpi,
                      "--no-report", "--warmup", "1", "--max-time", "6s", "--out", str(run))  # fmt: skip
        return _measured(run)

    def predicted(self, steps: Path) -> dict[str, Any]:
        """What `predict` says from the curves."""
        found = json.loads(linkgauge("predict", str(steps), "--from", str(self.curves), "--transport", "mpi", "--json"))
        return dict(found[0])

    def bounded(self, steps: Path, system: str) -> dict[str, Any]:
        """What `predict` says from the links of a described system: a lower bound."""
        found = json.loads(linkgauge("predict", str(steps), "--system", system, "--transport", "mpi", "--json"))
        return dict(found[0])


def _measured(run: Path) -> tuple[float, float]:
    from linkgauge.stats.step_times import step_times
    from linkgauge.store.run import load
    from linkgauge.view.results import Results

    found = load(run)
    (row,) = Results(found).rows
    ranks = step_times(found)[row.identity]
    return row.median_ns, statistics.fmean(rank.total_ns - rank.ns.get("compute", 0.0) for rank in ranks)


def linkgauge(*words: str) -> str:
    """What a command prints; ends here where it fails."""
    done = subprocess.run([sys.executable, "-m", "linkgauge", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"linkgauge {shlex.join(words)}: exit {done.returncode}: {done.stderr.strip()}\n{done.stdout}")
    return done.stdout


def measure(harness: Harness, program: dict[str, Any], system: str, replays: int) -> dict[str, Any]:
    """A line of results."""
    traced = harness.real(program, "traced", events=True)
    steps = harness.converted(program, traced)
    real, replayed = [], []
    for number in range(RUNS):
        real.append(communication_ns(harness.real(program, f"real-{number}", events=False)))
        if number < replays:
            replayed.append(harness.replayed(steps, number))
    of_curves, of_links = harness.predicted(steps), harness.bounded(steps, system) if system else {}
    return {
        "program": program["name"], "what": program["what"], "source": program["repository"], "command":
        program["command"], "load": round(os.getloadavg()[0], 2), "real": dataclasses.asdict(Taken.of(real)),
        "traced": dataclasses.asdict(Taken.of([communication_ns(traced)])),
        "replayed": dataclasses.asdict(Taken.of(replayed)), "predicted": of_curves, "bound": of_links,
    }  # fmt: skip


def main() -> None:
    """Run all or some programs, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help="programs; all of programs.toml by default")
    parser.add_argument("--sources", type=Path, required=True, help="folder of clones, OWNER/NAME each")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is measured")
    parser.add_argument("--curves", type=Path, required=True, help="run of --plan applications by the same MPI")
    parser.add_argument("--mpi", default="mpiexec", help="mpiexec")
    parser.add_argument("--mpicc", default="mpicc", help="mpicc of the same MPI library")
    parser.add_argument("--system", default="", help="described system whose links bound the programs from below")
    parser.add_argument("--replays", type=int, default=3, help="replays, taken between the first real runs")
    asked = parser.parse_args()
    from linkgauge.model.shape import parsed_toml

    harness = Harness(asked)
    for program in parsed_toml((HERE / "programs.toml").read_text(), "programs.toml")["program"]:
        if asked.name and program["name"] not in asked.name:
            continue
        line = measure(harness, program, asked.system, asked.replays)
        with (harness.out / "results.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps({key: line[key] for key in ("program", "real", "replayed")}), flush=True)


if __name__ == "__main__":
    main()
