"""How often a shift that a light load makes is found on two GPUs, and how often comparisons without one are accused.

    .venv/bin/python bench/gpu_shift.py --out FOLDER [--with 10] [--without 20] [--rounds 128]

One `linkgauge run` copies from GPU 0 to GPU 1 by the copy engine for the whole time. Another process copies known bytes
the same way, in small pieces at an even pace, in every second slot of a comparison that has a shift, and never in one
that has none. Clocks are left alone. Which comparison has the load is drawn. A round is two slots that follow each
other: the median of the samples in the first, and in the second. The rounds go through `between_sides`, by which
`compare --detect` judges (24 rounds are the pilot, a shift must last over six parts of 16).

A repeat of a run is launched anew and takes seconds. So 120 rounds by turns of 30 comparisons would take six hours by
the commands themselves, and the slots stand for repeats here.

First the pace is tuned: short slots with several paces, until the load costs what --detect says. Bytes that the load
copied are counted in each slot. A line of JSON a comparison. `--host` tries all of this without a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benching import PROGRAM, options, say, write_lines

HERE = Path(__file__).resolve()
PIECES = (256 << 10, 2 << 20)  # bytes
SHARES = (0.0025, 0.005, 0.01, 0.02)
GUARD_NS = 1_000_000  # at both ends of a slot
LEAST = 3  # samples of a slot
Slot = dict[str, Any]


class Copies:
    """Copies from GPU 0 to GPU 1, or of host memory, by CUDA's driver."""

    def __init__(self, on_host: bool, most: int) -> None:
        """Allocate `most` bytes at both ends."""
        self._host = on_host
        if on_host:
            self._places = [ctypes.create_string_buffer(most) for _ in range(2)]
            return
        from disturbed import Cuda

        self._cuda = Cuda()
        peer = self._cuda.context(1)
        target = self._cuda.memory(most)
        self._cuda.context(0)
        self._cuda("cuCtxEnablePeerAccess", peer, 0)
        self._places = [target, self._cuda.memory(most)]
        self._stream = ctypes.c_void_p()
        self._cuda("cuStreamCreate", ctypes.byref(self._stream), 1)

    def queue(self, size: int) -> None:
        """Begin a copy."""
        if self._host:
            ctypes.memmove(*self._places, size)
        else:
            self._cuda("cuMemcpyAsync", *self._places, ctypes.c_size_t(size), self._stream)

    def wait(self) -> None:
        """Wait for all."""
        if not self._host:
            self._cuda("cuStreamSynchronize", self._stream)


def rate_of(copies: Copies, size: int) -> float:
    """Bytes a second of copies one after the other."""
    copies.queue(size)
    copies.wait()
    began = time.perf_counter()
    for _ in range(8):
        copies.queue(size)
    copies.wait()
    return 8 * size / (time.perf_counter() - began)


def be_the_load(slots: Path, on_host: bool) -> None:
    """Copy as the slots of a file say, and write a line each of how many bytes into the file beside it.

    Not to a pipe: nobody reads it before the end, and after a thousand slots it is full.
    """
    copies = Copies(on_host, max(PIECES))
    while not slots.exists():
        time.sleep(0.005)
    schedule: list[Slot] = json.loads(slots.read_text())
    lines = []
    for slot in (one for one in schedule if one["rate"]):
        while time.monotonic_ns() < slot["begin"]:
            pass
        every, next_ns, done = 1e9 * slot["piece"] / slot["rate"], float(slot["begin"]), 0
        while (now := time.monotonic_ns()) < slot["end"]:
            if now >= next_ns:
                copies.queue(slot["piece"])
                done += slot["piece"]
                next_ns = max(next_ns + every, now - every)  # what was missed by more is not made up for
        copies.wait()
        lines.append(json.dumps({"begin": slot["begin"], "bytes": done, "late_ns": time.monotonic_ns() - slot["end"]}))
    slots.with_suffix(".copied").write_text("\n".join(lines))


def measured(asked: argparse.Namespace, slots: Sequence[Slot], out: Path) -> list[Slot]:
    """Measure beside the load, and return the slots with their samples' median and the load's bytes."""
    length_s = slots[-1]["end"] / 1e9
    file = out.with_suffix(".slots.json")
    file.unlink(missing_ok=True)
    where = ["--threads", "--devices", "host"] if asked.host else []
    size, batch = ("1MiB", "4") if asked.host else ("256MiB", "4")
    words = ["run", "--transport", "copy_engine", "--pattern", "unidirectional", "--pairs", "first", "--size", size,
             "--cadence", "streaming", "--batch", batch, "--stop-rule", "duration", "--no-report", "-q",
             "--max-time", f"{length_s + asked.lead + 1:.0f}s", "--out", str(out), *where]  # fmt: skip
    load = subprocess.Popen([sys.executable, str(HERE), "--load", str(file), *(["--host"] if asked.host else [])])
    run = subprocess.Popen([*PROGRAM, *words])
    while run.poll() is None and not _has_begun(out):
        time.sleep(0.02)
    begin = time.monotonic_ns() + int(asked.lead * 1e9)
    slots = [{**slot, "begin": slot["begin"] + begin, "end": slot["end"] + begin} for slot in slots]
    whole = file.with_suffix(".part")
    whole.write_text(json.dumps(slots))
    whole.rename(file)
    run.wait()
    load.wait(timeout=60)
    copied = {one["begin"]: one for one in map(json.loads, file.with_suffix(".copied").read_text().splitlines())}
    if run.returncode:
        print(f"linkgauge run: exit status {run.returncode}", file=sys.stderr)
    from linkgauge.store.run import load as load_run

    table = load_run(out).samples
    own = np.asarray(table["phase"]) == "sample"
    starts, ns = (np.asarray(table[name])[own] for name in ("start_ns", "ns"))
    order = np.argsort(starts)
    starts, ns = starts[order], ns[order]
    per = ns / np.asarray(table["iterations"])[own][order]
    found = []
    for slot in slots:
        first, last = np.searchsorted(starts, (slot["begin"] + GUARD_NS, slot["end"] - GUARD_NS))
        inside = per[first:last][starts[first:last] + ns[first:last] <= slot["end"]]
        one = copied.get(slot["begin"], {"bytes": 0, "late_ns": 0})
        found.append({**slot, "samples": int(inside.size), "bytes": one["bytes"], "late_ns": one["late_ns"],
                      "median_ns": float(np.median(inside)) if inside.size >= LEAST else math.nan})  # fmt: skip
    return found


def _has_begun(out: Path) -> bool:
    """Whether a case of the run has begun, by its journal."""
    return any(b'"begin"' in file.read_bytes() for file in out.rglob("launch-*") if file.is_file())


def laid_out(pairs: Sequence[tuple[int, float, Any]], slot_ns: int) -> list[Slot]:
    """Two slots for each pair (piece, rate, of what): the first free, the second with the load."""
    slots: list[Slot] = []
    for piece, rate, of in pairs:
        for now in (0.0, rate):
            begin = len(slots) * slot_ns
            slots.append({"begin": begin, "end": begin + slot_ns, "piece": piece, "rate": now, "of": of})
    return slots


def differences(slots: Sequence[Slot]) -> np.ndarray:
    """The log ratios of pairs of slots."""
    return np.array([math.log(b["median_ns"] / a["median_ns"]) for a, b in zip(slots[::2], slots[1::2], strict=True)])


def tuned(asked: argparse.Namespace, link: float) -> tuple[int, float, list[dict[str, Any]]]:
    """Return the piece and the rate by which the load costs what --detect says, and what each pace cost."""
    tried: list[dict[str, Any]] = []
    ladder = [(piece, share) for piece in PIECES for share in SHARES]
    for step in range(2):
        pairs = [(piece, share * link, [piece, share]) for _ in range(asked.tuning) for piece, share in ladder]
        slots = measured(asked, laid_out(pairs, asked.slot_ns), asked.out / f"tuning-{step}")
        for piece, share in ladder:
            mine = [slot for slot in slots if slot["of"] == [piece, share]]
            shifts = differences(mine)
            shifts = shifts[np.isfinite(shifts)]
            spent = sum(slot["bytes"] for slot in mine) * 1e9 / (len(mine) / 2 * asked.slot_ns)
            tried.append({"piece": piece, "share": share, "copied_share": spent / link, "rounds": int(shifts.size),
                          "shift": float(np.median(shifts)) if shifts.size else math.nan})  # fmt: skip
            say(tried[-1])
        best = {piece: _reaches([one for one in tried if one["piece"] == piece], asked.detect) for piece in PIECES}
        # The piece of which the cost is nearest to its bytes.
        piece = min(best, key=lambda one: abs(math.log(best[one] / asked.detect)))
        ladder = [(piece, best[piece] * factor) for factor in (0.7, 1.0, 1.4)]
    return piece, best[piece] * link, tried


def _reaches(tried: Sequence[dict[str, Any]], detect: float) -> float:
    """The share at which a line through zero, by the paces near it, costs `detect`."""
    known = [one for one in tried if one["shift"] > detect / 5]
    near = sorted(known, key=lambda one: abs(math.log(one["shift"] / detect)))[:3]
    return float(np.median([one["share"] * detect / one["shift"] for one in near])) if near else max(SHARES)


def main() -> None:
    """Tune the load, measure all comparisons in one run, and judge them."""
    parser = options(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-shift"), help="folder for runs and found.jsonl")
    parser.add_argument("--with", type=int, default=10, dest="shifted", help="comparisons with the load")
    parser.add_argument("--without", type=int, default=20, help="comparisons without")
    parser.add_argument("--rounds", type=int, default=128, help="of a comparison")
    parser.add_argument("--slot-ms", type=float, default=25.0, help="length of a slot; a round has two")
    parser.add_argument("--detect", type=float, default=0.005, help="the shift, as a share")
    parser.add_argument("--tuning", type=int, default=16, help="rounds of each pace that is tried")
    parser.add_argument("--lead", type=float, default=1.5, help="seconds from a case's begin to the first slot")
    parser.add_argument("--seed", type=int, default=1, help="of which comparison has the load")
    parser.add_argument("--host", action="store_true", help="copies of host memory, to try this program")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.load is not None:
        be_the_load(asked.load, asked.host)
        return
    from linkgauge.stats.small_shifts import between_sides

    asked.out.mkdir(parents=True, exist_ok=True)
    asked.slot_ns = int(asked.slot_ms * 1e6)
    link = _in_a_process(asked)
    piece, rate, tried = tuned(asked, link)
    kinds = [True] * asked.shifted + [False] * asked.without
    random.Random(asked.seed).shuffle(kinds)
    pairs = [(piece, rate if loaded else 0.0, at) for at, loaded in enumerate(kinds) for _ in range(asked.rounds)]
    slots = measured(asked, laid_out(pairs, asked.slot_ns), asked.out / "comparisons")
    lines: list[dict[str, Any]] = [{"tuning": tried, "link": link, "piece": piece, "rate": rate}]
    for at, loaded in enumerate(kinds):
        mine = [slot for slot in slots if slot["of"] == at]
        values = differences(mine)
        found = between_sides(values, asked.detect, round_s=2 * asked.slot_ms / 1e3)
        (member,) = found.members
        copied = sum(slot["bytes"] for slot in mine) * 1e9 / (asked.rounds * asked.slot_ns)
        lines.append({"load": loaded, "verdict": member.verdict, "shift": member.share, "low": member.low,
                      "high": member.high, "since": member.since, "copied_share": copied / link,
                      "rounds": int(np.isfinite(values).sum()), "needed": found.needed, "seen": found.seen,
                      "late_ns": max((slot["late_ns"] for slot in mine), default=0),
                      "log_ratios": [None if math.isnan(one) else round(float(one), 6) for one in values]})  # fmt: skip
    write_lines(asked.out / "found.jsonl", lines)
    for loaded in (True, False):
        mine = [one for one in lines[1:] if one["load"] == loaded]
        called = sum(one["verdict"] in ("slower", "faster") for one in mine)
        middle = float(np.median([one["shift"] for one in mine])) if mine else math.nan
        print(f"{'with' if loaded else 'without'} the load: {called} of {len(mine)} called, shift {middle:.3%}")


def _in_a_process(asked: argparse.Namespace) -> float:
    """The link's rate, from a process that then gives the GPUs back."""
    code = f"import gpu_shift; print(gpu_shift.rate_of(gpu_shift.Copies({asked.host}, 64 << 20), 64 << 20))"
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
