"""How long judging takes: `check` on a run of 64 devices and 20,000 cases, against a baseline, a system and rules.

    python bench/judge.py [--keep DIR]

Makes the run folders (a minute or two), then times `linkgauge check` as a user starts it, the interpreter's start
included. Bar: under 5 s. Also times `findings` and `compare` on the same folders, which have no bar.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import time
from pathlib import Path

from benching import linkgauge, options
from linkgauge.model.case import Case
from synthetic import link_model, make_case, make_run

DEVICES = 64
CASES = 20_000


def system() -> dict[str, object]:
    """64 devices on one fabric of switches, with accepted shares."""
    return {
        "format": 1,
        "name": "bench-64",
        "title": "64 devices on one fabric",
        "source": "made up for this measurement",
        "sources": {},
        "device": [{"name": f"gpu{i}", "ordinal": i, "at": [i % 8, i // 8]} for i in range(DEVICES)],
        "host": [{"name": "cpu0"}],
        "switch": [{"name": f"nvswitch{i}"} for i in range(4)],
        "link": [
            {"kind": "nvlink", "count": 4, "data_rate": 25e9, "a": f"gpu{i}", "b": f"nvswitch{s}", "source": "made up"}
            for i in range(DEVICES)
            for s in range(4)
        ],
        "accepted": [
            {"kind": "nvlink", "pattern": "unidirectional", "share": 0.8, "size": 1 << 20, "source": "made up"},
        ],
    }


def cases() -> list[Case]:
    """All ordered pairs at two sizes by two transports, the rest collectives of eight devices."""
    made = [
        make_case(transport, "unidirectional", size, (a, b))
        for size in (1 << 20, 1 << 26)
        for transport in ("copy_engine", "kernel")
        for a in range(DEVICES)
        for b in range(DEVICES)
        if a != b
    ]
    for number in itertools.count():
        if len(made) >= CASES:
            break
        group = tuple((number + k) % DEVICES for k in range(8))
        size, chunk = 1 << (10 + number % 16), number // DEVICES
        made.append(make_case("ccl", "allreduce" if number % 2 else "allgather", size, group, chunk=chunk))
        made.append(make_case("mpi", "alltoall", size, group, chunk=chunk))
    return list({case.case_key: case for case in made}.values())[:CASES]


def timed(arguments: list[str]) -> str:
    """Run the program; return wall and processor time in seconds and its exit status, in words."""
    start, before = time.perf_counter(), os.times()
    done = linkgauge(*arguments)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(done.stderr)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return f"{time.perf_counter() - start:.2f} s ({spent:.2f} s of processor), exit {done.returncode}"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--keep", type=Path, help="make the folders here and keep them")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        plan, info = cases(), {"system": system()}
        for index in range(6):
            path = folder / f"run{index}"
            if not path.exists():
                make_run(path, cases=plan, seed=index, samples=12, warmup=1, time_ns=link_model(), info=info)
        runs = [str(folder / f"run{index}") for index in range(6)]
        (folder / "system.json").write_text(json.dumps(system()))
        (folder / "rules.toml").write_text(
            '[[rule]]\nname = "pairs"\nwhere = { pattern = "unidirectional" }\ngoodput_at_least = "1 GB/s"\n'
        )
        print(f"{len(plan)} cases of {DEVICES} devices")
        print("baseline of 5 runs:", timed(["baseline", *runs[:5], "-o", str(folder / "base.json")]))
        for name in ("base.json", "system.json", "rules.toml"):
            print(f"check against {name}:", timed(["check", runs[5], "--against", str(folder / name)]), "(bar: 5 s)")
        print("findings:", timed(["findings", runs[5]]))
        print("compare:", timed(["compare", runs[0], runs[5]]))


if __name__ == "__main__":
    main()
